//! Group datagrams that no sender sent so: forged by another member, replayed, or of an old stream.

use super::world::{Group, STREAM};
use crate::limits::NUMBERS_AHEAD_MAX;
use crate::wind::tests::support::channel::Faults;
use crate::wind::tests::support::world::{Words, message};
use crate::wind::*;
use crate::wire::{Builder, Flags, Fragment, Open, SealKind, View};
use std::vec::Vec;

/// Returns a group datagram as `write` makes it.
fn datagram(stream: u64, number: u64, write: impl FnOnce(&mut Builder<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, stream, number, SealKind::EndToEnd, 1232);
    builder.flag(Flags::BULK_LANE);
    write(&mut builder);
    let payload = [7; 100];
    let is_bulk = builder.has(Flags::BULK);
    builder.finish(is_bulk.then_some(&payload));
    bytes.extend([0; 4]);
    bytes
}

/// WIND-12.5: replayed datagrams are counted and change nothing.
#[test]
fn replayed_group_datagrams_change_nothing() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 1);
    group.records = true;
    group.post(&message(Class::Ordered, 1, 60_000), &[1, 2, 3]);
    group.settle();
    let before = *group.members[0].connection.statistics();
    let sent = core::mem::take(&mut group.sent);
    assert!(!sent.is_empty());
    for bytes in &sent {
        group.give(1, &View::parse(bytes).unwrap());
    }
    let after = *group.members[0].connection.statistics();
    assert_eq!(after.duplicate_datagrams - before.duplicate_datagrams, sent.len() as u64);
    assert_eq!(after.group_datagrams_received, before.group_datagrams_received);
    assert!(group.members[0].connection.is_idle(), "no acknowledgement is due");
    group.settle();
}

/// WIND-12.2: datagrams of a stream that the connection does not follow are stale.
#[test]
fn datagrams_of_an_old_stream_change_nothing() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 3);
    let probe = |stream| {
        datagram(stream, 900, |builder| {
            builder.group(1, core::iter::empty());
            builder.ping();
        })
    };
    let end = &mut group.members[0];
    for (stream, stale) in [(STREAM + 1, 1), (STREAM, 0)] {
        let before = *end.connection.statistics();
        let bytes = probe(stream);
        let view = View::parse(&bytes).unwrap();
        end.connection.receive_group(group.now, &view, 0, &mut end.handler);
        let after = *end.connection.statistics();
        assert_eq!(after.stale - before.stale, stale);
        let received = after.group_datagrams_received - before.group_datagrams_received;
        assert_eq!(received, 1 - stale);
    }
    end.connection.leave_stream(STREAM);
    let bytes = probe(STREAM);
    let view = View::parse(&bytes).unwrap();
    let before = end.connection.statistics().stale;
    end.connection.receive_group(group.now, &view, 0, &mut end.handler);
    assert_eq!(end.connection.statistics().stale, before + 1);
}

/// WIND-12.11, WIRE-4.12: what makes no sense is counted, and ends no connection.
#[test]
fn malformed_group_datagrams_are_dropped() {
    let fragment = |low| {
        move |builder: &mut Builder<'_>| {
            builder.fragment(Fragment { message_low: low, offset: 0 }, 100);
        }
    };
    let open =
        |number| Open { number, class: Class::Ordered, credited: false, head: &[0; 9], len: 100 };
    let numbers = || [3u32].into_iter();
    let cases: Vec<(&str, Vec<u8>)> = [
        ("no GROUP", datagram(STREAM, 50, fragment(0))),
        ("GROUP alone", datagram(STREAM, 50, |builder| builder.group(1, numbers()))),
        (
            "two of GROUP",
            datagram(STREAM, 50, |builder| {
                fragment(0)(builder);
                builder.group(1, numbers());
                builder.group(1, numbers());
            }),
        ),
        (
            "a numbered fragment",
            datagram(STREAM, 50, |builder| {
                fragment(3)(builder);
                builder.group(1, numbers());
            }),
        ),
        (
            "a numbered OPEN",
            datagram(STREAM, 50, |builder| {
                fragment(0)(builder);
                builder.group(1, numbers());
                builder.open(&open(3));
            }),
        ),
        (
            "a probe with a number",
            datagram(STREAM, 50, |builder| {
                builder.group(1, numbers());
                builder.ping();
            }),
        ),
        (
            "a fragment without a number",
            datagram(STREAM, 50, |builder| {
                fragment(0)(builder);
                builder.group(1, core::iter::empty());
            }),
        ),
        (
            "CLOSE",
            datagram(STREAM, 50, |builder| {
                fragment(0)(builder);
                builder.group(1, numbers());
                builder.close(CloseReason::Goodbye);
            }),
        ),
        (
            "a number far ahead",
            datagram(STREAM, 2 * NUMBERS_AHEAD_MAX, |builder| {
                fragment(0)(builder);
                builder.group(1, numbers());
            }),
        ),
        (
            "number 0",
            datagram(STREAM, 0, |builder| {
                builder.group(1, core::iter::empty());
                builder.ping();
            }),
        ),
        (
            "a message far ahead",
            datagram(STREAM, 50, |builder| {
                fragment(0)(builder);
                builder.group(1, [70_000].into_iter());
                builder.open(&open(0));
            }),
        ),
    ]
    .into();
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 5);
    for (what, bytes) in &cases {
        let before = *group.members[0].connection.statistics();
        group.give(1, &View::parse(bytes).unwrap());
        let after = *group.members[0].connection.statistics();
        assert_eq!(after.malformed, before.malformed + 1, "{what}");
        assert_eq!(after.group_datagrams_received, before.group_datagrams_received, "{what}");
    }
    group.post(&message(Class::Ordered, 1, 60_000), &[1, 2, 3]);
    group.settle();
}

/// WIND-12.5: a datagram that is addressed to others is not acknowledged.
#[test]
fn datagram_to_others_is_ignored() {
    let mut group = Group::proven(3, Settings::default(), Faults::default(), 7);
    let before = *group.members[0].connection.statistics();
    let bytes = datagram(STREAM, 50, |builder| {
        builder.group(0b110, core::iter::empty());
        builder.ping();
    });
    group.give(1, &View::parse(&bytes).unwrap());
    assert_eq!(*group.members[0].connection.statistics(), before);
    assert!(group.members[0].connection.is_idle());
}

/// Returns a forged datagram with a number that the sender will not use for long. It begins a
/// message of a number that the sender has not posted, which is refused.
fn refused_ahead() -> Vec<u8> {
    let head = Words { id: 4, refuse: true, place: false }.head(0);
    datagram(STREAM, 1 << 20, |builder| {
        builder.fragment(Fragment { message_low: 0, offset: 0 }, 100);
        builder.group(1, [500].into_iter());
        builder.open(&Open {
            number: 0,
            class: Class::Unordered,
            credited: false,
            head: &head,
            len: 100,
        });
    })
}

/// WIND-12.11: what is forged before the sender knows who has joined ends no connection.
#[test]
fn what_is_forged_early_ends_no_connection() {
    let mut group = Group::new(3, Settings::default(), Faults::default(), 21);
    assert!(group.members[0].connection.follow_stream(STREAM));
    group.give(1, &View::parse(&refused_ahead()).unwrap());
    (0..200).for_each(|_| group.step());
    assert!(group.members[0].handler.refused.is_empty());
    assert!(group.sender[0].connection.is_established());
}
