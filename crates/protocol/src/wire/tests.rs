//! Round trips of frames, and damaged bytes of every kind.

mod captures;

use super::*;
use crate::limits::{ACK_RANGES_MAX, HEAD_MAX, REFUSALS_MAX};
use crate::seal::KeyStep;
use crate::wind::{Class, Refusal};
use core::ops::RangeInclusive;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

/// A frame as plain values.
#[derive(Clone, Debug)]
enum Plain {
    Ping,
    Close(CloseReason),
    Message {
        number: u64,
        class: Class,
        credited: bool,
        head: Vec<u8>,
        body: Vec<u8>,
    },
    Open {
        number: u64,
        class: Class,
        credited: bool,
        head: Vec<u8>,
        len: u64,
    },
    Withdraw(Withdrawal),
    Acknowledge {
        stream: Option<u64>,
        ranges: Vec<RangeInclusive<u64>>,
        told: AckFields,
        refusals: Vec<RefusedMessage>,
    },
    Group {
        members: u32,
        probe: bool,
    },
    Settled(u64),
}

/// Returns the number that a group datagram has for a member.
fn number_of(member: u8) -> u32 {
    0x0101_0101 * u32::from(member)
}

fn members_of(mask: u32) -> impl Iterator<Item = u8> {
    (0..32).filter(move |member| mask >> member & 1 == 1)
}

fn class() -> impl Strategy<Value = Class> {
    prop_oneof![Just(Class::Ordered), Just(Class::Unordered), Just(Class::Sync)]
}

fn ranges() -> impl Strategy<Value = Vec<RangeInclusive<u64>>> {
    (any::<u32>(), prop::collection::vec((1..1000u64, 0..1000u64), 0..ACK_RANGES_MAX)).prop_map(
        |(start, steps)| {
            let mut high = u64::from(start) + 100_000;
            let mut ranges = Vec::new();
            for (gap, below) in steps {
                ranges.push(high - below..=high);
                high -= below + gap + 1;
            }
            ranges
        },
    )
}

fn told() -> impl Strategy<Value = AckFields> {
    (any::<bool>(), any::<u64>(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(
        |(bulk, credit, delay, marked, share)| AckFields {
            lane: if bulk { Lane::Bulk } else { Lane::Small },
            credit,
            delay,
            marked,
            share,
        },
    )
}

fn plain() -> impl Strategy<Value = Plain> {
    let bytes = |most: usize| prop::collection::vec(any::<u8>(), 0..=most);
    let refused = (any::<u64>(), 1..=17u8).prop_map(|(number, code)| RefusedMessage {
        number,
        refusal: Refusal::from_code(code).unwrap(),
    });
    prop_oneof![
        Just(Plain::Ping),
        (0..3usize).prop_map(|at| Plain::Close(
            [CloseReason::Goodbye, CloseReason::NoProgress, CloseReason::Nonsense][at]
        )),
        (any::<u64>(), class(), any::<bool>(), bytes(HEAD_MAX), bytes(300)).prop_map(
            |(number, class, credited, head, body)| Plain::Message {
                number,
                class,
                credited,
                head,
                body
            }
        ),
        (any::<u64>(), class(), any::<bool>(), bytes(HEAD_MAX), any::<u64>()).prop_map(
            |(number, class, credited, head, len)| Plain::Open {
                number,
                class,
                credited,
                head,
                len
            }
        ),
        (any::<u64>(), any::<bool>(), any::<u64>()).prop_map(|(number, charged, len)| {
            Plain::Withdraw(Withdrawal { number, charged, len })
        }),
        (any::<Option<u64>>(), ranges(), told(), prop::collection::vec(refused, 0..=REFUSALS_MAX))
            .prop_map(|(stream, ranges, told, refusals)| Plain::Acknowledge {
                stream,
                ranges,
                told,
                refusals
            }),
        (1..=u32::MAX, any::<bool>()).prop_map(|(members, probe)| Plain::Group { members, probe }),
        any::<u64>().prop_map(Plain::Settled),
    ]
}

fn write(builder: &mut Builder<'_>, plain: &Plain) {
    match plain {
        Plain::Ping => builder.ping(),
        Plain::Close(reason) => builder.close(*reason),
        Plain::Message { number, class, credited, head, body } => {
            builder.message(&SmallMessage {
                number: *number,
                class: *class,
                credited: *credited,
                head,
                body,
            });
        }
        Plain::Open { number, class, credited, head, len } => {
            builder.open(&Open {
                number: *number,
                class: *class,
                credited: *credited,
                head,
                len: *len,
            });
        }
        Plain::Withdraw(withdrawal) => builder.withdraw(*withdrawal),
        Plain::Settled(number) => builder.settled(*number),
        Plain::Acknowledge { stream: None, ranges, told, refusals } => {
            builder.acknowledge(ranges.iter().cloned(), *told, refusals);
        }
        Plain::Acknowledge { stream: Some(stream), ranges, told, refusals } => {
            builder.group_acknowledge(*stream, ranges.iter().cloned(), *told, refusals);
        }
        Plain::Group { members, probe } => {
            let numbered = members_of(*members).filter(|_| !probe);
            builder.group(*members, numbered.map(number_of));
        }
    }
}

fn same(frame: &Frame<'_>, plain: &Plain) -> bool {
    match (frame, plain) {
        (Frame::Ping, Plain::Ping) => true,
        (Frame::Close(reason), Plain::Close(written)) => reason == written,
        (Frame::Message(m), Plain::Message { number, class, credited, head, body }) => {
            *m == SmallMessage { number: *number, class: *class, credited: *credited, head, body }
        }
        (Frame::Open(o), Plain::Open { number, class, credited, head, len }) => {
            *o == Open { number: *number, class: *class, credited: *credited, head, len: *len }
        }
        (Frame::Withdraw(w), Plain::Withdraw(withdrawal)) => w == withdrawal,
        (Frame::Settled(number), Plain::Settled(written)) => number == written,
        (Frame::Group(g), Plain::Group { members, probe }) => {
            (0..=u8::MAX).all(|member| {
                let has = members_of(*members).any(|one| one == member);
                let number = (has && !probe).then(|| number_of(member));
                (g.has(member), g.number_of(member)) == (has, number)
            }) && g.is_probe() == *probe
        }
        (Frame::GroupAcknowledge(g), Plain::Acknowledge { stream: Some(stream), .. })
            if g.stream != *stream =>
        {
            false
        }
        (Frame::Acknowledge(a), Plain::Acknowledge { stream: None, ranges, told, refusals })
        | (
            Frame::GroupAcknowledge(GroupAcknowledgement { ack: a, .. }),
            Plain::Acknowledge { stream: Some(_), ranges, told, refusals },
        ) => {
            a.ranges().eq(ranges.iter().cloned())
                && a.fields == *told
                && a.refusals().eq(refusals.iter().copied())
                && a.largest == ranges.first().map_or(0, |range| *range.end())
        }
        _ => false,
    }
}

fn datagram(plains: &[Plain], bulk: Option<(Fragment, &[u8])>) -> Vec<u8> {
    let mut bytes = vec![0xee; 3];
    let mut builder = Builder::new(&mut bytes, 7, 9, SealKind::EndToEnd, 65_507);
    if let Some((fragment, payload)) = bulk {
        builder.fragment(fragment, payload.len() as u16);
    }
    plains.iter().for_each(|plain| write(&mut builder, plain));
    let (len, expected) = (builder.len(), builder.room());
    assert_eq!(len + expected, 65_507);
    assert_eq!(builder.finish(bulk.map(|b| b.1)), len);
    bytes.extend([0; 4]);
    bytes.split_off(3)
}

/// Reads everything that there is to read, without a panic.
fn read_all(bytes: &[u8]) -> usize {
    let Ok(view) = View::parse(bytes) else { return 0 };
    let _ = view.sender();
    let mut read = view.payload().len() + view.tag().len();
    for frame in view.frames() {
        if let Ok(Frame::Group(group)) = frame {
            read += (0..=u8::MAX).filter_map(|member| group.number_of(member)).count();
        }
        if let Ok(
            Frame::Acknowledge(ack) | Frame::GroupAcknowledge(GroupAcknowledgement { ack, .. }),
        ) = frame
        {
            read += ack.ranges().count() + ack.refusals().count();
            let mut below = u64::MAX;
            for range in ack.ranges() {
                assert!(range.start() <= range.end(), "descending, disjoint");
                assert!(*range.end() < below, "descending, disjoint");
                below = *range.start();
            }
        }
        read += usize::from(frame.is_ok());
    }
    read
}

proptest! {
    /// WIRE-2, WIRE-4: frames are read as they were written (WIRE-1.1, 2.3, 3.1, WIRE-4.1 to 4.7,
    /// WIRE-4.12, WIRE-4.13).
    #[test]
    fn round_trip(plains in prop::collection::vec(plain(), 0..12), low in any::<u32>(), offset in any::<u64>(), len in 0..2000usize) {
        let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
        let fragment = Fragment { message_low: low, offset };
        let bulk = (len > 0).then_some((fragment, payload.as_slice()));
        let bytes = datagram(&plains, bulk);
        let view = View::parse(&bytes).unwrap();
        prop_assert_eq!((view.header().connection, view.header().number), (7, 9));
        prop_assert_eq!(view.payload(), &payload[..]);
        let mut frames = view.frames().map(|frame| frame.unwrap());
        if bulk.is_some() {
            prop_assert_eq!(frames.next(), Some(Frame::Fragment(fragment)));
        }
        for plain in &plains {
            prop_assert!(same(&frames.next().unwrap(), plain), "{:?}", plain);
        }
        prop_assert!(frames.next().is_none());
    }

    /// WIRE-2.6: a prefix of a datagram is not a datagram, and neither is a longer one.
    #[test]
    fn truncated_or_extended(plains in prop::collection::vec(plain(), 0..6), cut in any::<prop::sample::Index>()) {
        let bytes = datagram(&plains, None);
        prop_assert!(View::parse(&bytes[..cut.index(bytes.len())]).is_err());
        let longer = [bytes.as_slice(), &[0]].concat();
        prop_assert_eq!(View::parse(&longer).unwrap_err(), Malformed::Trailing);
    }

    /// WIRE-2.6: reading any bytes is safe.
    #[test]
    fn mutated(plains in prop::collection::vec(plain(), 0..6), at in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = datagram(&plains, None);
        for (index, value) in at {
            let index = index.index(bytes.len());
            bytes[index] = value;
        }
        read_all(&bytes);
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        read_all(&bytes);
    }

    /// Random frames behind a header that fits them.
    #[test]
    fn random_frames(frames in prop::collection::vec(any::<u8>(), 0..300), kind in 0..14u8, bulk in any::<bool>()) {
        let mut bytes = Vec::new();
        let header = Header {
            connection: 1,
            number: 1,
            flags: Flags(u8::from(bulk) * 2 + kind / 7 * 4),
            seal: SealKind::EndToEnd,
            frames_len: frames.len() as u16,
            payload_len: u16::from(bulk),
        };
        bytes.resize(24, 0);
        header.write(&mut bytes);
        bytes.extend(&frames);
        if let Some(first) = bytes.get_mut(24) {
            *first = kind;
        }
        bytes.resize(bytes.len() + 4 + usize::from(bulk), 0);
        prop_assert!(View::parse(&bytes).is_ok());
        read_all(&bytes);
    }

    /// WIRE-4.8, WIRE-4.9, WIRE-4.11.
    #[test]
    fn handshake_round_trip(connection in 1..u64::MAX, values in any::<[u32; 6]>(), yours in any::<Option<(u64, u64, u8)>>(), wanted in any::<bool>(), step in 0..4, byte in any::<u8>()) {
        let key = match step { 0 => KeyStep::Nothing, 1 => KeyStep::First([byte; 49]), 2 => KeyStep::Second([byte; 65]), _ => KeyStep::Done };
        let [rank, nodes, page_size, receive_buffer, to, other] = values;
        let mine = Introduction { rank, nodes, page_size, receive_buffer, seal: other as u8, bulk_port: other as u16, ..Introduction::here(0, 0, u64::from(other), connection) };
        let yours = yours.filter(|y| y.0 != 0).map(|(connection, incarnation, path)| Shown { connection, incarnation, path });
        let cookie = (byte != 0).then_some([byte; 16]);
        let hello = Hello { mine, to: Some(to), path: 3, yours, answer_wanted: wanted, key, cookie };
        let refuse = Refuse { rank, misfit: Misfit::Nodes, mine: 1, yours: 2, incarnation: 3 };
        let mut bytes = Vec::new();
        let mut builder = Builder::new(&mut bytes, 0, 1, SealKind::Handshake, 1232);
        builder.hello(&hello);
        builder.refuse(&refuse);
        let reply = CookieReply { rank, incarnation: 3, number: u64::from(other), cookie: [byte; 16] };
        builder.cookie(&reply);
        builder.finish(None);
        bytes.extend([0; 16]);
        let view = View::parse(&bytes).unwrap();
        prop_assert_eq!(view.sender(), Some(rank));
        let frames: Vec<Frame<'_>> = view.frames().map(|frame| frame.unwrap()).collect();
        prop_assert_eq!(frames, vec![Frame::Hello(hello), Frame::Refuse(refuse), Frame::Cookie(reply)]);
    }
}

/// WIRE-4.10: a padded datagram is as long as its limit, and means nothing more.
#[test]
fn padding_fills_a_datagram() {
    for (limit, frames) in [(36, 2), (35, 1), (32, 1), (31, 1), (1232, 2), (65_507, 2)] {
        let mut bytes = Vec::new();
        let mut builder = Builder::new(&mut bytes, 7, 9, SealKind::HeaderOnly, limit);
        builder.ping();
        builder.pad();
        let len = builder.finish(None);
        bytes.extend([0; 4]);
        assert_eq!(
            (len, bytes.len()),
            if frames == 2 { (limit, limit) } else { (32, 32) },
            "limit {limit}"
        );
        let expected = [Ok(Frame::Ping), Ok(Frame::Pad)];
        assert!(View::parse(&bytes).unwrap().frames().eq(expected.into_iter().take(frames)));
        assert!(!Frame::Pad.elicits());
    }
}

/// WIRE-3.3, WIRE-3.4: frames stand only where they may.
#[test]
fn frames_out_of_place() {
    let build = |connection: u64, seal: SealKind, write: &dyn Fn(&mut Builder<'_>)| {
        let mut bytes = Vec::new();
        let mut builder = Builder::new(&mut bytes, connection, 1, seal, 1232);
        write(&mut builder);
        builder.finish(None);
        bytes.resize(bytes.len() + seal.tag_len(), 0);
        bytes
    };
    let ping_in_handshake = build(0, SealKind::Handshake, &|b| b.ping());
    assert_eq!(
        View::parse(&ping_in_handshake).unwrap().frames().next(),
        Some(Err(Malformed::Frame))
    );
    let refuse = Refuse { rank: 0, misfit: Misfit::Rank, mine: 0, yours: 0, incarnation: 0 };
    let refuse_in_data = build(5, SealKind::EndToEnd, &|b| b.refuse(&refuse));
    assert_eq!(View::parse(&refuse_in_data).unwrap().frames().next(), Some(Err(Malformed::Frame)));
    // WIRE-5.4: connection 0 has the handshake's seal, and no other connection has it.
    assert_eq!(
        View::parse(&build(0, SealKind::EndToEnd, &|b| b.ping())).unwrap_err(),
        Malformed::Header
    );
    assert_eq!(
        View::parse(&build(5, SealKind::Handshake, &|b| b.ping())).unwrap_err(),
        Malformed::Header
    );
    // WIRE-2.7: data goes by either lane, and handshakes by the small one.
    let by_bulk = |b: &mut Builder<'_>| b.flag(Flags::BULK_LANE);
    assert_eq!(
        View::parse(&build(5, SealKind::EndToEnd, &by_bulk)).unwrap().header().lane(),
        Lane::Bulk
    );
    assert_eq!(
        View::parse(&build(5, SealKind::EndToEnd, &|b| b.ping())).unwrap().header().lane(),
        Lane::Small
    );
    assert_eq!(
        View::parse(&build(0, SealKind::Handshake, &by_bulk)).unwrap_err(),
        Malformed::Header
    );
}

/// WIRE-1.3, WIRE-2.1, 2.4, 2.5 and 2.6, WIRE-3.1 and 3.2: field by field, values without meaning
/// are malformed.
#[test]
fn fields_without_meaning() {
    let good = |payload: &[u8]| {
        let mut bytes = Vec::new();
        let mut builder = Builder::new(&mut bytes, 5, 1, SealKind::EndToEnd, 1232);
        if !payload.is_empty() {
            builder.fragment(Fragment { message_low: 1, offset: 2 }, payload.len() as u16);
        }
        builder.ping();
        builder.finish(Some(payload).filter(|payload| !payload.is_empty()));
        bytes.extend([0; 4]);
        bytes
    };
    let (small, bulk) = (good(&[]), good(b"bytes"));
    assert!(View::parse(&small).is_ok() && View::parse(&bulk).is_ok());
    // Offsets as in section 2: connection 0, number 8, flags 16, seal 17, frames_len 18,
    // payload_len 20, reserved 22.
    let header = [
        (&small, 0, 0, "connection 0, the handshake's, with another seal"),
        (&small, 16, 8, "a flag that is none"),
        (&small, 16, 128, "another"),
        (&small, 16, 2, "BULK without a payload"),
        (&bulk, 16, 0, "a payload without BULK"),
        (&small, 17, 9, "a seal that is none"),
        (&small, 22, 1, "reserved"),
        (&small, 23, 1, "reserved"),
    ];
    for (datagram, at, value, what) in header {
        let mut bytes = datagram.clone();
        bytes[at] = value;
        assert_eq!(View::parse(&bytes).err(), Some(Malformed::Header), "{what}");
    }
    // The first frame: kind 24, flags 25, len 26.
    for (at, value, what) in [
        (24, 0, "kind 0"),
        (24, 200, "kind 200"),
        (25, 1, "a flag of PING"),
        (26, 3, "shorter"),
        (26, 5, "longer"),
    ] {
        let mut bytes = small.clone();
        bytes[at] = value;
        let frames: Vec<_> = View::parse(&bytes).unwrap().frames().collect();
        assert_eq!(frames, [Err(Malformed::Frame)], "{what}");
    }
}

/// WIRE-4.2: an ACK without ranges acknowledges nothing.
#[test]
fn without_ranges_there_is_no_largest_number() {
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, 5, 1, SealKind::EndToEnd, 1232);
    builder.acknowledge(core::iter::empty(), AckFields::default(), &[]);
    builder.finish(None);
    bytes.extend([0; 4]);
    // The frame begins at 24. Its largest number is at 28, and the first `below` at 60.
    for (at, value) in [(28, 0), (28, 1), (60, 1)] {
        let mut bytes = bytes.clone();
        bytes[at] = value;
        assert_eq!(
            View::parse(&bytes).unwrap().frames().all(|frame| frame.is_ok()),
            value == 0,
            "{at}"
        );
    }
}

/// WIRE-4.12: a GROUP frame has a member, and as many numbers as members or none.
#[test]
fn group_frame_has_one_number_for_each_member() {
    let parsed = |members: u32, numbers: u32| {
        let mut bytes = Vec::new();
        let mut builder = Builder::new(&mut bytes, 5, 1, SealKind::EndToEnd, 1232);
        builder.group(members, 0..numbers);
        assert_eq!(builder.len(), 24 + Addressees::frame_len(numbers as usize) + 4);
        builder.finish(None);
        bytes.extend([0; 4]);
        View::parse(&bytes).unwrap().frames().all(|frame| frame.is_ok())
    };
    for (members, numbers, sound) in [
        (0b1011, 3, true),
        (0b1011, 0, true),
        (0b1011, 2, false),
        (0b1011, 4, false),
        (u32::MAX, 32, true),
        (u32::MAX, 33, false),
        (0, 0, false),
        (0, 1, false),
    ] {
        assert_eq!(parsed(members, numbers), sound, "{members:b} {numbers}");
    }
}

/// WIRE-4.13: a GROUP_ACK frame is an ACK frame with a stream, and no longer than it says.
#[test]
fn group_acknowledgement_has_the_length_that_is_reckoned() {
    for ranges in [1u64, 5] {
        let mut bytes = Vec::new();
        let mut builder = Builder::new(&mut bytes, 5, 1, SealKind::EndToEnd, 1232);
        let all = (0..ranges).rev().map(|at| 10 * at + 1..=10 * at + 2);
        builder.group_acknowledge(77, all, AckFields::default(), &[]);
        assert_eq!(builder.len(), 24 + Acknowledgement::group_frame_len(ranges as usize, 0) + 4);
        builder.finish(None);
    }
}

/// WIND-3.1: frames that must be acknowledged.
#[test]
fn what_elicits_an_acknowledgement() {
    let (number, class, credited, head) = (1, Class::Ordered, false, &[][..]);
    for frame in [
        Frame::Ping,
        Frame::Message(SmallMessage { number, class, credited, head, body: &[] }),
        Frame::Open(Open { number, class, credited, head, len: 1 }),
        Frame::Fragment(Fragment { message_low: 1, offset: 0 }),
        Frame::Withdraw(Withdrawal { number, charged: false, len: 0 }),
    ] {
        assert!(frame.elicits(), "{frame:?}");
    }
    assert!(!Frame::Close(CloseReason::Goodbye).elicits());
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, 5, 1, SealKind::EndToEnd, 1232);
    builder.acknowledge([1..=3].into_iter(), AckFields::default(), &[]);
    builder.group_acknowledge(9, [1..=3].into_iter(), AckFields::default(), &[]);
    builder.group(1, core::iter::empty());
    builder.finish(None);
    bytes.extend([0; 4]);
    assert!(View::parse(&bytes).unwrap().frames().all(|frame| !frame.unwrap().elicits()));
}
