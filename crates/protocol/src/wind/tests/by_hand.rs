//! Tests that send hand-made frames to an established end, both permitted ones and ones that no
//! correct peer sends.

use super::support::channel::Faults;
use super::support::world::{Node, Words, World, death, message};
use crate::limits::{
    DATAGRAM_MIN, HEADER_LEN, MESSAGES_IN_FLIGHT, NUMBERS_AHEAD_MAX, WIRE_VERSION, WIRE_VERSION_MIN,
};
use crate::seal::{KeyStep, SECOND_LEN};
use crate::wind::*;
use crate::wire::{
    AckFields, Builder, Cookie, Flags, Frame, Hello, Open, Refuse, RefusedMessage, SealKind, Shown,
    SmallMessage, Versions, View, Withdrawal,
};
use std::string::ToString;
use std::vec::Vec;

/// Delivers a datagram with this number of the small lane to node 0, as if from its peer.
fn say(world: &mut World, number: u64, write: impl FnOnce(&mut Builder<'_>)) {
    let node = &mut world.nodes[0];
    let seal = SealKind::EndToEnd;
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, node.connection.id(), number, seal, DATAGRAM_MIN);
    write(&mut builder);
    builder.finish(None);
    bytes.resize(bytes.len() + seal.tag_len(), 0);
    node.connection.receive(world.now, &View::parse(&bytes).unwrap(), 0, &mut node.handler);
}

/// Delivers a HELLO of a peer's process of this incarnation in the same way.
fn greet(world: &mut World, number: u64, incarnation: u64) {
    let [Node { connection, handler, .. }, other] = &mut world.nodes;
    let mine = Introduction { incarnation, ..other.connection.handshake.me };
    let yours = Some(Shown {
        connection: connection.id(),
        incarnation: connection.handshake.me.incarnation,
        path: 0,
    });
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, 0, number, SealKind::Handshake, DATAGRAM_MIN);
    builder.hello(&Hello {
        mine,
        to: Some(0),
        path: 0,
        yours,
        answer_wanted: true,
        key: KeyStep::Nothing,
        cookie: None,
    });
    builder.finish(None);
    bytes.resize(bytes.len() + SealKind::Handshake.tag_len(), 0);
    connection.receive(world.now, &View::parse(&bytes).unwrap(), 0, handler);
}

/// Returns a HELLO to node 0 of a peer that speaks these versions.
fn hello_of(versions: Versions, world: &World) -> Vec<u8> {
    let mine = Introduction { versions, ..world.nodes[1].connection.handshake.me };
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, 0, 1, SealKind::Handshake, DATAGRAM_MIN);
    let key = KeyStep::Second([7; SECOND_LEN]);
    let (to, cookie) = (Some(0), Some([7; 16]));
    builder.hello(&Hello { mine, to, path: 0, yours: None, answer_wanted: true, key, cookie });
    builder.finish(None);
    bytes.resize(bytes.len() + SealKind::Handshake.tag_len(), 0);
    bytes
}

/// Makes the only frame of a handshake datagram longer, or shorter, by bytes at its end.
fn with_frame_of(bytes: &mut Vec<u8>, change: isize) {
    for len in [18, HEADER_LEN + 2] {
        let old = u16::from_le_bytes(bytes[len..len + 2].try_into().unwrap());
        let new = old.checked_add_signed(change.try_into().unwrap()).unwrap();
        bytes[len..len + 2].copy_from_slice(&new.to_le_bytes());
    }
    bytes.resize(bytes.len().checked_add_signed(change).unwrap(), 3);
}

/// Delivers a HELLO to node 0. Returns the refusal by which the connection ends there, and the one
/// that it sends.
fn refusals_of(world: &mut World, bytes: &[u8]) -> (HandshakeRefusal, Refuse) {
    let Node { connection, handler, .. } = &mut world.nodes[0];
    connection.receive(world.now, &View::parse(bytes).unwrap(), 0, handler);
    let Some(Death::Refused(why)) = connection.death() else { panic!("{:?}", connection.death()) };
    let mut answer = Vec::new();
    assert!(connection.transmit(world.now, &mut answer).is_some());
    answer.resize(answer.len() + SealKind::Handshake.tag_len(), 0);
    let view = View::parse(&answer).unwrap();
    let refusal = view.frames().flatten().find_map(|frame| match frame {
        Frame::Refuse(refuse) => Some(refuse),
        _ => None,
    });
    (why, refusal.expect("it tells the peer"))
}

/// WIRE-6.2 to 6.5, WIND-1.5: a HELLO without a common version is understood as far as its
/// versions, whatever it has appended or means by its steps. Both ends learn both ranges.
#[test]
fn hello_without_a_common_version_is_refused_with_both_ranges() {
    let range = |lowest, highest| Versions { lowest, highest };
    let cases = [
        (range(WIRE_VERSION + 1, WIRE_VERSION + 1), "12"),
        (range(WIRE_VERSION + 1, WIRE_VERSION + 3), "12 to 14"),
        (range(WIRE_VERSION_MIN - 1, WIRE_VERSION_MIN - 1), "10"),
        (range(0, WIRE_VERSION_MIN - 1), "0 to 10"),
        (range(WIRE_VERSION + 1, WIRE_VERSION_MIN - 1), "12 to 10"),
        (range(u16::MAX, u16::MAX), "65535"),
    ];
    for (theirs, text) in cases {
        let mut world = World::new(Settings::default(), Faults::default(), 5);
        let mut bytes = hello_of(theirs, &world);
        // A step that this version does not know, and eight bytes more.
        let range = bytes.len() - SealKind::Handshake.tag_len() - 4;
        bytes[range - size_of::<Cookie>() - KeyStep::LEN] = 9;
        with_frame_of(&mut bytes, 8);
        let (why, told) = refusals_of(&mut world, &bytes);
        assert_eq!((why.misfit, why.by_peer), (Misfit::Version, false));
        let words = [Versions::SPOKEN, theirs].map(Versions::word);
        assert_eq!([why.mine, why.theirs], words, "{theirs}");
        assert_eq!((told.misfit, [told.mine, told.yours]), (Misfit::Version, words), "{theirs}");
        let at_peer = HandshakeRefusal::from_frame(&told).to_string();
        let here = why.to_string();
        assert!(here.contains(&std::format!("11 here, {text} at the peer:")), "{here}");
        assert!(at_peer.contains(&std::format!("{text} here, 11 at the peer (found")), "{at_peer}");
        for text in [here, at_peer] {
            assert!(text.contains("install the same release on all hosts"), "{text}");
        }
    }
}

/// WIRE-6.3: a node that knows no ranges speaks one version. Its HELLO ends before the range.
#[test]
fn hello_without_a_range_tells_one_version() {
    for (version, is_common) in [(WIRE_VERSION, true), (WIRE_VERSION_MIN - 1, false)] {
        let mut world = World::new(Settings::default(), Faults::default(), 5);
        let one = Versions { lowest: version, highest: version };
        let mut bytes = hello_of(one, &world);
        with_frame_of(&mut bytes, -4);
        let key = bytes.len() - SealKind::Handshake.tag_len() - size_of::<Cookie>() - KeyStep::LEN;
        bytes[key..key + KeyStep::LEN].fill(0);
        if is_common {
            let Node { connection, handler, .. } = &mut world.nodes[0];
            connection.receive(world.now, &View::parse(&bytes).unwrap(), 0, handler);
            assert_eq!((connection.death(), connection.version()), (None, Some(version)));
        } else {
            let (why, _) = refusals_of(&mut world, &bytes);
            assert_eq!(Versions::from_word(why.theirs), one);
        }
    }
}

/// WIRE-6.2: a refusal of a later version is longer, and names a property that is unknown here. It
/// ends the handshake all the same.
#[test]
fn refusal_of_a_later_version_ends_the_handshake() {
    let mut world = World::new(Settings::default(), Faults::default(), 5);
    let Node { connection, handler, .. } = &mut world.nodes[0];
    connection.connect(world.now);
    let incarnation = connection.handshake.me.incarnation;
    let refuse = Refuse { rank: 1, misfit: Misfit::Seal, mine: 5, yours: 6, incarnation };
    let mut bytes = Vec::new();
    let mut builder = Builder::new(&mut bytes, 0, 1, SealKind::Handshake, DATAGRAM_MIN);
    builder.refuse(&refuse);
    builder.finish(None);
    bytes[HEADER_LEN + 8] = 200;
    bytes.resize(bytes.len() + SealKind::Handshake.tag_len(), 0);
    with_frame_of(&mut bytes, 24);
    connection.receive(world.now, &View::parse(&bytes).unwrap(), 0, handler);
    let Some(Death::Refused(why)) = connection.death() else { panic!("{:?}", connection.death()) };
    assert_eq!((why.misfit, why.mine, why.theirs), (Misfit::Other, 6, 5));
    assert!(why.to_string().contains("install the same release on all hosts"), "{why}");
}

/// WIRE-6.4: both ends use the highest version that both speak.
#[test]
fn both_ends_use_the_highest_common_version() {
    let mut world = World::new(Settings::default(), Faults::default(), 5);
    let ranges =
        [(WIRE_VERSION_MIN - 2, WIRE_VERSION + 1), (WIRE_VERSION_MIN - 1, WIRE_VERSION + 4)];
    for (node, (lowest, highest)) in world.nodes.iter_mut().zip(ranges) {
        node.connection.handshake.me.versions = Versions { lowest, highest };
    }
    world.nodes[0].connection.connect(world.now);
    world.run(|world| world.nodes.iter().all(|node| node.connection.is_established()));
    assert_eq!([0, 1].map(|at| world.nodes[at].connection.version()), [Some(WIRE_VERSION + 1); 2]);
}

/// Number that the peer has not reached.
const NEW: u64 = 1000;

fn established() -> World {
    let mut world = World::established(Settings::default(), Faults::default(), 1);
    world.run(World::is_idle);
    world
}

/// WIND-7.8: a statement about something that never existed ends the connection with a reason at
/// both ends, and nothing that comes with it is processed.
#[test]
fn nonsense_ends_the_connection_with_a_reason_at_both_ends() {
    let credit = Settings::default().credit;
    let refused = |number| [RefusedMessage { number, refusal: Refusal::NotPermitted }];
    let told = |lane, credit| AckFields { lane, credit, ..AckFields::default() };
    let cases: [(u64, AckFields, Vec<RefusedMessage>, Nonsense); 4] = [
        (
            999,
            AckFields::default(),
            refused(0).to_vec(),
            Nonsense::Acknowledged { number: 999, next: 1 },
        ),
        (5, told(Lane::Bulk, 0), Vec::new(), Nonsense::Acknowledged { number: 5, next: 2 }),
        (
            1,
            told(Lane::Bulk, credit + 1),
            Vec::new(),
            Nonsense::Credit { granted: credit + 1, most: credit },
        ),
        (1, told(Lane::Bulk, 0), refused(1).to_vec(), Nonsense::Refused { number: 1 }),
    ];
    for (number, told, refusals, nonsense) in cases {
        let mut world = established();
        let head = Words { id: 1, refuse: false, place: true }.head(0);
        let body = Body::Segment(Segment { region: 1, offset: 0, len: 20_000 });
        let message = Message { urgent: false, head, body, ..message(Class::Unordered, 1, 0) };
        let now = world.now;
        let connection = &mut world.nodes[0].connection;
        connection.post(now, message).unwrap();
        assert!(connection.transmit(now, &mut Vec::new()).is_some());
        let least = number.min(1);
        say(&mut world, NEW, |builder| {
            builder.acknowledge([least.max(number)..=number].into_iter(), told, &refusals)
        });
        assert!(!world.nodes[0].connection.is_established());
        world.run(|world| {
            world.nodes[1].events.contains(&Event::Dead(Death::GivenUp(CloseReason::Nonsense)))
        });
        let death = Death::Nonsense(nonsense);
        assert_eq!(
            world.nodes[0].events,
            [Event::Established, Event::Failed(Token(1), death), Event::Dead(death)]
        );
        assert_eq!(world.nodes[0].connection.snapshot().standing, Standing::Ended(death));
    }
}

/// WIND-7.11: skipped numbers do no harm to a peer that acknowledges what it has received, and give
/// away one that acknowledges all.
#[test]
fn peer_that_acknowledges_skipped_numbers_is_given_up() {
    let mut world = established();
    let sent = |world: &World| world.nodes[0].connection.sending.small.flight.next_number() - 1;
    for id in 1..=600 {
        let now = world.now;
        let posted = world.nodes[0].connection.post(now, message(Class::Ordered, id, 100));
        posted.unwrap();
        world.run(World::is_idle);
    }
    assert_eq!(world.nodes[1].handler.delivered.len(), 600);
    assert_eq!(world.nodes[1].connection.statistics().malformed, 0);
    let real = world.nodes[1].connection.statistics().datagrams_received;
    let skipped = sent(&world) - real;
    assert!((2..=4).contains(&skipped), "{skipped} of {real}");
    let all = 1..=sent(&world);
    say(&mut world, 1000 * NEW, |builder| {
        builder.acknowledge([all].into_iter(), AckFields::default(), &[])
    });
    let death = death(&world, 0).or(world.nodes[0].connection.death());
    assert!(matches!(death, Some(Death::Nonsense(Nonsense::Skipped { .. }))), "{death:?}");
}

/// WIND-4.5: a message returned as *not present* and not taken by then fails with all others.
#[test]
fn what_came_back_fails_with_the_connection() {
    for ends in ["closed", "dead", "restarted"] {
        let mut world = established();
        let head = Words { id: 1, refuse: false, place: false }.head(0);
        let message =
            Message { urgent: false, head, body: Body::Empty, ..message(Class::Unordered, 7, 0) };
        let now = world.now;
        let connection = &mut world.nodes[0].connection;
        let number = connection.post(now, message).unwrap();
        assert!(connection.transmit(now, &mut Vec::new()).is_some());
        let refused = [RefusedMessage { number, refusal: Refusal::NotPresent }];
        say(&mut world, NEW, |builder| {
            builder.acknowledge([1..=1].into_iter(), AckFields::default(), &refused)
        });
        match ends {
            "closed" => say(&mut world, NEW + 1, |builder| builder.close(CloseReason::Goodbye)),
            "dead" => world.nodes[0].connection.end(Death::Ended),
            _ => greet(&mut world, 1, 11),
        }
        let connection = &mut world.nodes[0].connection;
        let (mut failed, mut returned) = (0, 0);
        while let Some(event) = connection.poll_event() {
            failed += usize::from(matches!(event, Event::Failed(Token(7), _)));
            returned +=
                usize::from(event == Event::Returned && connection.take_returned().is_some());
        }
        assert_eq!((failed, returned), (1, 0), "{ends}");
    }
}

/// WIND-6.3: a peer that sends a message that costs credit as if it cost none could fill the
/// receiver's memory. It was never charged for the credit that is returned.
#[test]
fn what_is_not_credited_as_it_should_be_is_refused() {
    for charges in [true, false] {
        let mut world = established();
        world.nodes[0].handler.charges = Some(charges);
        let granted = world.nodes[0].connection.inbox.report_credit();
        let head = Words { id: 1, refuse: false, place: false }.head(0);
        let credited = !charges;
        for (number, class) in [(1, Class::Ordered), (2, Class::Unordered)] {
            let message = SmallMessage { number, class, credited, head: &head, body: b"body" };
            say(&mut world, NEW + number, |builder| builder.message(&message));
            let open = Open { number: 10 + number, class, credited, head: &head, len: 10_000 };
            say(&mut world, NEW + 10 + number, |builder| builder.open(&open));
        }
        let connection = &mut world.nodes[0].connection;
        assert!(
            connection.refusals.queue.iter().all(|refused| refused.refusal == Refusal::Malformed)
        );
        assert_eq!((connection.refusals.len(), connection.inbox.held()), (4, 0));
        let given_back = if credited { 2 * (10_000 + 128) + 2 * (4 + 128) } else { 0 };
        assert_eq!(connection.inbox.report_credit(), granted + given_back);
        assert!(world.nodes[0].handler.delivered.is_empty());
    }
}

/// WIND-4.7: a withdrawal returns what its message was charged, not what the withdrawal says.
#[test]
fn a_withdrawal_gives_back_what_was_charged() {
    let mut world = established();
    let head = Words { id: 1, refuse: false, place: false }.head(0);
    let granted = world.nodes[0].connection.inbox.report_credit();
    let open = Open { number: 0, class: Class::Ordered, credited: true, head: &head, len: 100 };
    say(&mut world, NEW, |builder| builder.open(&open));
    for (charged, len) in [(true, u64::MAX), (true, 99), (false, 100)] {
        say(&mut world, NEW + 1, |builder| {
            builder.withdraw(Withdrawal { number: 0, charged, len })
        });
    }
    assert_eq!(world.nodes[0].connection.statistics().malformed, 3);
    assert_eq!(world.nodes[0].connection.inbox.report_credit(), granted);
    say(&mut world, NEW + 1, |builder| {
        builder.withdraw(Withdrawal { number: 0, charged: true, len: 100 })
    });
    assert_eq!(world.nodes[0].connection.inbox.report_credit(), granted + 100 + 128);
}

/// WIND-6.4: a message that is read after its sender restarted gives no credit to the new process.
#[test]
fn a_newcomer_gets_no_credit_for_what_others_sent() {
    let mut world = established();
    greet(&mut world, 1, 11);
    let connection = &mut world.nodes[0].connection;
    let granted = connection.inbox.report_credit();
    connection.consumed(1000, 1 << 30);
    assert_eq!(connection.inbox.report_credit(), granted);
}

/// WIRE-2.2: no datagram has the number before the first, or the last of all, which none can
/// follow.
#[test]
fn numbers_that_no_datagram_has_are_not_taken_in() {
    let mut world = established();
    for number in [0, u64::MAX, u64::MAX] {
        say(&mut world, number, |builder| builder.ping());
    }
    assert_eq!(world.nodes[0].connection.statistics().stale, 3);
    assert!(world.nodes[0].connection.is_idle(), "nothing is to be acknowledged");
    // WIND-3.2, WIND-7.7: no datagram has a number that is too far ahead either.
    let ahead = NUMBERS_AHEAD_MAX + 1_000_000;
    say(&mut world, ahead, |builder| builder.ping());
    assert_eq!(world.nodes[0].connection.statistics().malformed, 1);
    assert!(world.nodes[0].connection.is_idle());
    say(&mut world, NUMBERS_AHEAD_MAX, |builder| builder.ping());
    say(&mut world, NUMBERS_AHEAD_MAX, |builder| builder.ping());
    assert_eq!(world.nodes[0].connection.statistics().duplicate_datagrams, 1);
    assert!(world.nodes[0].connection.transmit(world.now, &mut Vec::new()).is_some());
}

/// WIND-1.9, WIND-7.2: a replay of what a peer once sent does not keep the peer alive, and gets no
/// answer.
#[test]
fn an_old_hello_is_no_sign_of_life() {
    let mut world = established();
    world.nodes[1].asleep = true;
    let (begun, answers) = (world.now, world.nodes[0].connection.statistics().handshakes_sent);
    while world.nodes[0].connection.is_established() {
        greet(&mut world, 1, 10);
        world.run_for(std::time::Duration::from_secs(1));
        assert!(world.now - begun < 2 * Settings::default().failure_time);
    }
    assert_eq!(world.nodes[0].events.last(), Some(&Event::Dead(Death::Silent)));
    assert_eq!(world.nodes[0].connection.statistics().handshakes_sent, answers);
}

/// WIND-7.7: neither replays nor malformed datagrams keep a peer alive.
#[test]
fn replays_and_malformed_datagrams_are_no_sign_of_life() {
    let mut world = established();
    say(&mut world, NEW, |builder| builder.ping());
    world.nodes[1].asleep = true;
    let (begun, mut next) = (world.now, NEW);
    while world.nodes[0].connection.is_established() {
        next += 1;
        say(&mut world, NEW, |builder| builder.ping());
        say(&mut world, next + NUMBERS_AHEAD_MAX, |builder| builder.ping());
        // This message is farther ahead than any may be in flight.
        let withdrawal = Withdrawal { number: MESSAGES_IN_FLIGHT as u64, charged: false, len: 0 };
        say(&mut world, next, |builder| builder.withdraw(withdrawal));
        world.run_for(std::time::Duration::from_secs(1));
        assert!(world.now - begun < 2 * Settings::default().failure_time);
    }
    assert_eq!(world.nodes[0].events.last(), Some(&Event::Dead(Death::Silent)));
}

/// WIND-5.1: the largest acknowledged number shows a round trip, even if its datagram needs no
/// acknowledgement itself, as an ACK.
#[test]
fn an_acknowledgement_that_is_acknowledged_shows_a_round_trip() {
    let mut world = established();
    let now = world.now;
    let head = Words { id: 1, refuse: false, place: false }.head(0);
    let message =
        Message { urgent: false, head, body: Body::Empty, ..message(Class::Ordered, 1, 0) };
    let connection = &mut world.nodes[0].connection;
    let number = connection.sending.small.flight.next_number();
    connection.post(now, message).unwrap();
    assert!(connection.transmit(now, &mut Vec::new()).is_some());
    say(&mut world, NEW, |builder| {
        builder.ping();
        builder.flag(Flags::ACK_NOW);
    });
    let connection = &mut world.nodes[0].connection;
    assert!(connection.transmit(now, &mut Vec::new()).is_some());
    assert_eq!(connection.sending.small.flight.next_number(), number + 2);
    let shown = |world: &World| {
        world.nodes[0].connection.round_trips.histogram().map_or(0, |histogram| histogram.len())
    };
    let before = shown(&world);
    world.now += std::time::Duration::from_micros(30);
    say(&mut world, NEW + 1, |builder| {
        builder.acknowledge([1..=number + 1].into_iter(), AckFields::default(), &[])
    });
    assert_eq!(shown(&world), before + 1);
    // This acknowledgement brings no news.
    say(&mut world, NEW + 2, |builder| {
        builder.acknowledge([1..=number + 1].into_iter(), AckFields::default(), &[])
    });
    assert_eq!(shown(&world), before + 1);
}
