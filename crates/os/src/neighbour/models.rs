//! A channel between two processes, tried as one between two threads ([`crate::models`]).

use super::channel::{CHANNEL, Reader, Writer};
use super::memory::{Memory, Part};
use crate::models::model;
use loom::thread;
use oikaze_protocol::neighbour::{Heading, Kind};
use oikaze_protocol::wind::Refusal;

fn channel() -> (Writer, Reader) {
    let memory = Memory::of(CHANNEL);
    (Writer::new(memory.clone()), Reader::new(memory))
}

fn put(writer: &mut Writer, number: u64, bytes: usize) -> Option<u64> {
    writer.put(Heading::plain(Kind::Piece, 0), &[Part::Bytes(&vec![number as u8; bytes])]).ok()
}

fn take(reader: &mut Reader) -> Option<Vec<u8>> {
    let heading = reader.peek().unwrap()?;
    let mut bytes = Vec::new();
    reader.append(0, heading.len, &mut bytes);
    let position = reader.pass(heading);
    reader.settle(position);
    Some(bytes)
}

/// MEM-16.1: records of one and two lines through a ring of four, so that one is skipped at the end: each comes once, whole, in order.
#[test]
fn loom_records() {
    model(3, || {
        let (mut writer, mut reader) = channel();
        let lens = [56, 120, 120];
        let writing = thread::spawn(move || {
            let put = (1..).zip(lens).take_while(|(number, len)| put(&mut writer, *number, *len).is_some()).count();
            (writer, put)
        });
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.extend(take(&mut reader));
        }
        let (mut writer, put) = writing.join().unwrap();
        taken.extend(std::iter::from_fn(|| take(&mut reader)));
        let expected: Vec<Vec<u8>> = (1..).zip(lens).take(put).map(|(number, len)| vec![number as u8; len]).collect();
        assert_eq!(taken, expected);
        writer.settled().unwrap();
        assert!(put >= 2 && writer.is_settled());
    });
}

/// MEM-16.4: a refusal is known when its record is settled.
#[test]
fn loom_refusals() {
    model(3, || {
        let (mut writer, mut reader) = channel();
        let first = put(&mut writer, 1, 8).unwrap();
        let second = put(&mut writer, 2, 8).unwrap();
        let reading = thread::spawn(move || {
            for refused in [false, true] {
                let heading = reader.peek().unwrap().unwrap();
                let position = reader.pass(heading);
                if refused {
                    reader.refuse(position, Refusal::NoRoom).unwrap();
                }
                reader.settle(position);
            }
        });
        let settled = writer.settled().unwrap();
        if settled >= first {
            assert_eq!(writer.refusal(first), Ok(None));
        }
        if settled >= second {
            assert_eq!(writer.refusal(second), Ok(Some(Refusal::NoRoom)));
        }
        reading.join().unwrap();
    });
}

/// MEM-16.5: who sleeps has seen the record, or is woken.
#[test]
fn loom_sleep() {
    model(3, || {
        let (mut writer, reader) = channel();
        let writing = thread::spawn(move || {
            put(&mut writer, 1, 8).unwrap();
            writer.must_wake()
        });
        reader.fall_asleep();
        let seen = reader.has_record();
        let woken = writing.join().unwrap();
        assert!(seen || woken);
    });
}
