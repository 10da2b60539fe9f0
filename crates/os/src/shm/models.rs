//! Models a channel between two processes as one between two threads ([`crate::models`]).

use super::memory::{Memory, Part};
use crate::models::model;
use crate::shm::lease_marks::{Marks, layout};
use crate::shm::ring::{CHANNEL, Reader, Writer, is_asleep};
use crate::sync::models::{Interruption, STEPS};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use oikaze_protocol::shm::{Heading, RecordKind};
use oikaze_protocol::wind::Refusal;
use std::sync::atomic::AtomicBool;

fn channel() -> (Writer, Reader) {
    let memory = Memory::of(CHANNEL);
    (Writer::new(memory.clone()), Reader::new(memory))
}

fn put(writer: &mut Writer, number: u64, bytes: usize) -> Option<u64> {
    writer
        .put(Heading::plain(RecordKind::Piece, 0), &[Part::Bytes(&vec![number as u8; bytes])])
        .ok()
}

fn take(reader: &mut Reader) -> Option<Vec<u8>> {
    let heading = reader.peek().unwrap()?;
    let mut bytes = Vec::new();
    reader.append(0, heading.len, &mut bytes);
    let position = reader.pass(heading);
    reader.settle(position);
    Some(bytes)
}

/// MEM-16.1: records of one and two lines pass through a ring of four, so that one line is skipped
/// at the end. Each record arrives once, whole and in order.
#[test]
fn loom_records() {
    model(3, || {
        let (mut writer, mut reader) = channel();
        let lens = [56, 120, 120];
        let writing = thread::spawn(move || {
            let put = (1..)
                .zip(lens)
                .take_while(|(number, len)| put(&mut writer, *number, *len).is_some())
                .count();
            (writer, put)
        });
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.extend(take(&mut reader));
        }
        let (mut writer, put) = writing.join().unwrap();
        taken.extend(std::iter::from_fn(|| take(&mut reader)));
        let expected: Vec<Vec<u8>> =
            (1..).zip(lens).take(put).map(|(number, len)| vec![number as u8; len]).collect();
        assert_eq!(taken, expected);
        writer.settled().unwrap();
        assert!(put >= 2 && writer.is_settled());
    });
}

/// MEM-16.10: a writer continues at the beginning if its reader has kept up, and goes on otherwise.
/// Each record arrives once, whole and in order. Behind the third record of one line the ring is
/// half full, or empty.
#[test]
fn loom_begins_anew() {
    static WENT_ON: AtomicBool = AtomicBool::new(false);
    static BEGAN_ANEW: AtomicBool = AtomicBool::new(false);
    model(3, || {
        let (mut writer, mut reader) = channel();
        let ends = [1, 2].map(|number| put(&mut writer, number, 8).unwrap());
        let writing = thread::spawn(move || {
            let third = put(&mut writer, 3, 8);
            let fourth = put(&mut writer, 4, 8);
            (writer, third, fourth)
        });
        let mut taken: Vec<_> = (0..3).filter_map(|_| take(&mut reader)).collect();
        let (mut writer, third, fourth) = writing.join().unwrap();
        let anew = third.unwrap() > ends[1] + ends[0];
        if anew { &BEGAN_ANEW } else { &WENT_ON }.store(true, Ordering::Relaxed);
        taken.extend(std::iter::from_fn(|| take(&mut reader)));
        assert!(taken.iter().map(|bytes| bytes[0]).eq(1..=if fourth.is_some() { 4 } else { 3 }));
        writer.settled().unwrap();
        assert!(writer.is_settled());
    });
    assert!(WENT_ON.load(Ordering::Relaxed) && BEGAN_ANEW.load(Ordering::Relaxed));
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

/// MEM-16.5: a reader that sleeps has seen the record, or is woken.
#[test]
fn loom_sleep() {
    model(3, || {
        let (mut writer, reader) = channel();
        let writing = thread::spawn(move || {
            put(&mut writer, 1, 8).unwrap();
            writer.must_wake()
        });
        reader.fall_asleep();
        fence(Ordering::SeqCst);
        let seen = reader.has_record();
        let woken = writing.join().unwrap();
        assert!(seen || woken);
    });
}

/// MEM-16.5: the same if the reader makes the writer's fence, wherever that fence falls.
#[test]
fn loom_sleep_of_who_makes_the_fence() {
    for at in 0..3 {
        model(3, move || {
            let memory = Memory::of(CHANNEL);
            let (mut writer, reader) = (Writer::new(memory.clone()), Reader::new(memory.clone()));
            let interruption = Interruption::new();
            let writing = {
                let interruption = Arc::clone(&interruption);
                thread::spawn(move || {
                    interruption.step(at, 0);
                    put(&mut writer, 1, 8).unwrap();
                    interruption.step(at, 1);
                    let woken = is_asleep(&memory);
                    interruption.step(at, 2);
                    woken
                })
            };
            reader.fall_asleep();
            interruption.heavy();
            let seen = reader.has_record();
            let woken = writing.join().unwrap();
            assert!(seen || woken);
        });
    }
}

/// MEM-18.3, MEM-18.5: a thread that accesses a region while its owner ends it either enters and is
/// waited for, or does not enter. This holds with fences on both sides, and with all fences made by
/// the owner.
fn one_reaches_one_ends(place: Option<usize>, fence_at: Option<usize>) {
    model(3, move || {
        let marks = Marks::new(Memory::of(layout::ALL));
        marks.begin(1);
        let used = Arc::new(UnsafeCell::new(0));
        let interruption = Interruption::new();
        let reaching = {
            let (marks, used, interruption) =
                (marks.clone(), Arc::clone(&used), Arc::clone(&interruption));
            thread::spawn(move || {
                let step = |step| fence_at.iter().for_each(|at| interruption.step(*at, step));
                step(0);
                let seen = marks.set(1, place);
                if fence_at.is_some() {
                    step(1)
                } else {
                    fence(Ordering::SeqCst)
                }
                let is_over = marks.is_over(1);
                step(2);
                if !is_over {
                    // SAFETY: whoever has got in is waited for.
                    used.with_mut(|used| unsafe { *used += 1 });
                }
                step(3);
                marks.clear(1, &seen);
                step(4);
            })
        };
        marks.end(1);
        if fence_at.is_some() {
            interruption.heavy()
        } else {
            fence(Ordering::SeqCst)
        }
        while marks.is_inside(1) {
            thread::yield_now();
        }
        // SAFETY: nobody gets in any more, and nobody is inside.
        used.with_mut(|used| unsafe { *used += 1 });
        reaching.join().unwrap();
        marks.drop_line(1);
        assert!(marks.is_dropped(1) && !marks.is_inside(1));
    });
}

#[test]
fn loom_marks_with_fences_on_both_sides() {
    [None, Some(0)].into_iter().for_each(|place| one_reaches_one_ends(place, None));
}

#[test]
fn loom_marks_with_fences_of_the_owner() {
    for at in 0..STEPS {
        [None, Some(0)].into_iter().for_each(|place| one_reaches_one_ends(place, Some(at)));
    }
}
