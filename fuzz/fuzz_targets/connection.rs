//! An established connection that is fed frames of any content behind sound headers, as a peer gone
//! mad (or one that holds the key) would send. Nothing may panic, loop or grow without bound.
#![no_main]
#![forbid(unsafe_code)]

use core::time::Duration;
use libfuzzer_sys::fuzz_target;
use oikaze_protocol::Rank;
use oikaze_protocol::seal::KeyStep;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{
    Admission, Body, Charge, Class, Connection, Delivered, Head, Introduction, Message,
};
use oikaze_protocol::wind::{Handler, Refusal, Segment, Settings, Token};
use oikaze_protocol::wire::{Builder, Hello, SealKind, Shown, View};

/// Believes nothing, keeps nothing.
struct Anything;

impl Handler for Anything {
    fn admit(&mut self, _: Rank, number: u64, _: Class, _: &[u8], _: u64) -> Admission {
        match number % 3 {
            0 => Admission::Place,
            1 => Admission::Assemble,
            _ => Admission::Refuse(Refusal::Malformed),
        }
    }
    fn may_be_shared(&self, _: Class, _: &[u8]) -> bool {
        true
    }
    fn place(&mut self, _: Rank, _: u64, _: u64, _: &[u8]) {}
    fn deliver(
        &mut self,
        _: Rank,
        number: u64,
        _: Class,
        _: &[u8],
        _: Delivered<'_>,
    ) -> Result<(), Refusal> {
        if number % 5 == 0 { Err(Refusal::NoRoom) } else { Ok(()) }
    }
    fn abandon(&mut self, _: Rank) {}
}

const ME: u64 = 0x1111;
const PEER: u64 = 0x2222;
const STREAM: u64 = 0x3333;

fn connection(now: Time) -> Connection {
    let settings = Settings { held_max: 1 << 20, assembly_max: 1 << 20, ..Settings::default() };
    let mut connection = Connection::new(settings, Introduction::here(0, 2, 1, ME), 1, 1, now);
    let seal = SealKind::EndToEnd as u8;
    let mine = Introduction {
        datagram_max: 1472,
        receive_buffer: 1 << 20,
        credit: 1 << 16,
        seal,
        ..Introduction::here(1, 2, 1, PEER)
    };
    let yours = Some(Shown { connection: ME, incarnation: 1, path: 0 });
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, 0, 1, SealKind::Handshake, 1232);
    builder.hello(&Hello {
        mine,
        to: Some(0),
        path: 0,
        yours,
        answer_wanted: false,
        key: KeyStep::Nothing,
        cookie: None,
    });
    builder.finish(None);
    bytes.extend([0; 16]);
    if let Ok(view) = View::parse(&bytes) {
        connection.receive(now, &view, 0, &mut Anything);
    }
    assert!(connection.is_established());
    connection
}

/// `len u8 | flags u8 | number u8 | frames`: one datagram from the fuzzer's bytes, and what is left
/// of them. Flag 8 makes it one of a stream (WIND-12).
fn datagram<'b>(input: &'b [u8], into: &mut Vec<u8>) -> Option<&'b [u8]> {
    let ([len, flags, number], rest) = input.split_first_chunk::<3>()?;
    let (frames, rest) = rest.split_at_checked(usize::from(*len).min(rest.len()))?;
    let payload = if flags & 2 != 0 { usize::from(*number) + 1 } else { 0 };
    into.clear();
    let handshake = flags & 4 != 0;
    let group = !handshake && flags & 8 != 0;
    let connection = if group { STREAM } else { ME };
    into.extend(if handshake { 0 } else { connection }.to_le_bytes());
    // The last of all numbers, too.
    into.extend((*number as i8 as u64).to_le_bytes());
    let lane = if group { 4 } else { 0 };
    into.extend([flags & 3 | lane, if handshake { 2 } else { 1 }]);
    into.extend(u16::try_from(frames.len()).ok()?.to_le_bytes());
    into.extend(u16::try_from(payload).ok()?.to_le_bytes());
    into.extend([0, 0]);
    into.extend(frames);
    into.resize(into.len() + payload + if handshake { 16 } else { 4 }, 0x77);
    Some(rest)
}

fuzz_target!(|input: &[u8]| {
    let mut now = Time(1);
    let mut connection = connection(now);
    connection.follow_stream(STREAM);
    for token in 0..6u64 {
        let body = match token % 3 {
            0 => Body::Empty,
            1 => Body::Inline(vec![1; 5000]),
            _ => Body::Segment(Segment { region: 0, offset: 0, len: 20_000 }),
        };
        let class = if token % 2 == 0 { Class::Ordered } else { Class::Unordered };
        let message = Message {
            class,
            urgent: false,
            charge: [Charge::Nothing, Charge::Entry, Charge::Body][token as usize / 2],
            head: Head::new(),
            body,
            token: Token(token),
        };
        let _ = connection.post(now, message);
    }
    let (mut input, mut bytes, mut out) = (input, Vec::new(), Vec::new());
    while let Some(rest) = datagram(input, &mut bytes) {
        input = rest;
        match View::parse(&bytes) {
            Ok(view) if view.header().connection == STREAM => {
                connection.receive_group(now, &view, 0, &mut Anything);
            }
            Ok(view) => connection.receive(now, &view, 0, &mut Anything),
            Err(_) => {}
        }
        now += Duration::from_micros(100);
        if connection.next_timeout().is_some_and(|at| at <= now) {
            connection.timeout(now);
        }
        for turn in 0.. {
            out.clear();
            let due = connection.has_due(now);
            assert_eq!(due, connection.transmit(now, &mut out).is_some());
            if !due {
                break;
            }
            assert!(turn < 10_000, "transmit comes to an end");
        }
        while connection.poll_event().is_some() {}
    }
});
