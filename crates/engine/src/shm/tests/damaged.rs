//! A local peer whose side of the rings the test writes. It writes nonsense, and more than it may.

use super::*;
use oikaze_protocol::limits::{MESSAGE_MAX, PAGE};
use std::os::unix::fs::FileExt;

/// MEM-16.2: nonsense in the ring ends this pair with an error, and has no other effect.
#[test]
fn a_damaged_ring_ends_its_pair() {
    let strange: [&dyn Fn(&mut Pair); 8] = [
        &|pair| put(pair, Heading::plain(RecordKind::Piece, 0), &[Part::Bytes(&[1; 100])]),
        &|pair| put(pair, Heading::plain(RecordKind::Withdrawn, 0), &[]),
        &|pair| {
            let heading = Heading {
                kind: RecordKind::Begin,
                class: Class::Ordered,
                head: 0,
                len: 0,
                flag: false,
            };
            put(pair, heading, &[Part::Bytes(&u64::MAX.to_le_bytes())]);
        },
        // A head longer than its record.
        &|pair| put(pair, Heading { head: 60, ..Heading::plain(RecordKind::Whole, 0) }, &[]),
        // The peer has read records that were never written.
        &|pair| pair.inward.settle(1 << 40),
        // The peer has taken a message, and refused one that never existed. The outcome of the
        // first is not forgotten.
        &|pair| {
            let heading = pair.inward.peek().unwrap().unwrap();
            let end = pair.inward.pass(heading);
            pair.inward.refuse(1, Refusal::NoRoom).unwrap();
            pair.inward.settle(end);
        },
        // MEM-16.6: more messages than the peer may send before they are read, at once and one
        // after another.
        &|pair| begin(pair, MESSAGE_MAX + 1),
        &|pair| {
            let (heading, head) = whole();
            put(pair, heading, &[Part::Bytes(&head)]);
            begin(pair, CREDIT - CREDIT_OVERHEAD);
        },
    ];
    for spoil in strange {
        let (mut a, mut hostile) = facing_a_hostile_one();
        let waiting = a.ask(send(Class::Ordered, 1, Body::copy_of(b"something unsettled")));
        a.turn(Time(1));
        spoil(&mut hostile);
        a.turn(Time(2));
        a.turn(Time(3));
        assert_eq!(a.engine.inbox().take_death(), Some((1, Death::Damaged)));
        let lost = Some(Err(Failure::PeerLost { peer: 1, death: Death::Damaged }));
        assert_eq!(waiting.outcome(), lost);
        // The connection was not even open, and nothing goes over the network instead.
        let late = a.ask(send(Class::Ordered, 1, Body::Empty));
        a.turn(Time(4));
        assert_eq!(late.outcome(), lost);
    }
}

/// MEM-16.2: the same holds while only a message longer than the ring is in flight, none of whose
/// records is settled by itself.
#[test]
fn a_position_that_cannot_be_is_noticed_in_the_middle_of_a_long_message() {
    let (mut a, mut hostile) = facing_a_hostile_one();
    let long = a.ask(send(Class::Ordered, 1, Body::Inline(vec![1; 3 * RING_BYTES])));
    a.turn(Time(1));
    assert!(!long.is_done());
    hostile.inward.settle(1 << 40);
    a.turn(Time(2));
    a.turn(Time(3));
    assert_eq!(a.engine.inbox().take_death(), Some((1, Death::Damaged)));
    assert_eq!(long.outcome(), Some(Err(Failure::PeerLost { peer: 1, death: Death::Damaged })));
}

/// MEM-16.2: a peer that asks for ever and never reads an answer does not fill this node's memory.
#[test]
fn questions_whose_answers_are_not_read_are_bounded() {
    let (mut a, mut hostile) = facing_a_hostile_one();
    let mut now = Time(1);
    let mut death = None;
    // An answer takes a record, too. The test sends two rings full of them, and as many as may
    // wait.
    for _ in 0..4 * RING_BYTES / RECORD_STEP {
        let ask = hostile
            .outward
            .put(Heading::plain(RecordKind::Ask, 0), &[Part::Bytes(&7u64.to_le_bytes())]);
        now = step(now);
        a.turn(now);
        death = death.or(a.engine.inbox().take_death());
        if ask.is_err() || death.is_some() {
            break;
        }
    }
    assert_eq!(death, Some((1, Death::Damaged)));
}

/// MEM-18.6: a peer that stays in the middle of an access to a region for ever, or claims to, is
/// given up after the failure time. (The first region that is handed out has the first line, and
/// its name in a thread's mark is 1.)
#[test]
fn who_never_leaves_a_region_is_given_up() {
    let (mut a, mut hostile, memory) = facing_a_hostile_one_and_its_memory();
    let region = Region::shared(4096).unwrap();
    let Registered { key, slot, .. } =
        a.engine.memory().insert(region.clone(), Rights::ALL).unwrap();
    put(&mut hostile, Heading::plain(RecordKind::Ask, 0), &[Part::Bytes(&key.to_le_bytes())]);
    a.turn(Time(1));
    memory.write_all_at(&1u64.to_le_bytes(), 2 * PAGE as u64).unwrap();
    assert!(!a.engine.shm().is_reached(&region), "it may be there");
    a.engine.set_rights(slot, None, Rights::NONE).unwrap();
    assert!(a.engine.shm().is_reached(&region));
    assert!(a.engine.shm_mut().wedged_inside(&region).is_none());
    a.engine.give_up_peers_inside(&Region::shared(4096).unwrap(), Time(2));
    a.turn(Time(2));
    assert_eq!(a.engine.inbox().take_death(), None, "it is in no other");
    a.engine.give_up_peers_inside(&region, Time(3));
    assert!(!a.engine.shm().is_reached(&region), "it is waited for no more");
    assert!(a.engine.shm_mut().wedged_inside(&region).is_some(), "and may write there still");
    a.turn(Time(3));
    assert_eq!(a.engine.inbox().take_death(), Some((1, Death::Stuck)));
}
