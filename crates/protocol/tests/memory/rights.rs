//! Rights that change, and what is remembered of what they refused: MEM-1.7, MEM-1.9, MEM-3.8,
//! MEM-6.5.

use super::world::{FRAGMENT, World};
use oikaze_protocol::limits::REFUSALS_KEPT;
use oikaze_protocol::rma::{
    AtomicOp, MessageKind, Operation, OperationValue, Published, RegionAccess, Rights, RmaError,
    RmaEvent, Signal, TicketId,
};
use oikaze_protocol::wind::{Body, Refusal, Segment, Token};

const T: Token = Token(7);
const LEN: usize = 1000;

fn refused(refusal: Refusal) -> Vec<RmaEvent> {
    vec![RmaEvent::Failed { token: T, error: RmaError::Refused(refusal) }]
}

fn grant(world: &mut World, slot: u32, rights: Rights) {
    world.nodes[1].memory.slots[slot as usize].as_mut().unwrap().rights = rights;
}

/// MEM-3.8: for one fragment the right was not there. At the end it is; the put is refused all the
/// same, and nothing is signalled.
#[test]
fn a_fragment_that_was_refused_is_not_forgotten() {
    for missed in 0..LEN as u64 / FRAGMENT {
        let mut world = World::new(2);
        let (slot, words) = (world.region(1, 5, LEN), world.region(1, 6, 8));
        let signal = Some(Signal { key: 6, offset: 0, add: 1 });
        let message = world.nodes[0].rma.put(5, 0, Body::Inline(vec![1; LEN]), signal, T).unwrap();
        world.post(0, 1, message);
        world.step(0);
        for fragment in 0..LEN as u64 / FRAGMENT {
            grant(&mut world, slot, if fragment == missed { Rights::READ } else { Rights::ALL });
            let before = world.nodes[1].memory.bytes(slot).to_vec();
            // The last one delivers as well.
            world.step(fragment);
            assert_eq!(before == world.nodes[1].memory.bytes(slot), fragment == missed);
        }
        grant(&mut world, slot, Rights::ALL);
        world.run(1);
        assert_eq!(world.take(0), refused(Refusal::NotPermitted), "fragment {missed}");
        assert_eq!(world.nodes[1].memory.word(words, 0), 0);
    }
}

/// MEM-1.7: an answer that was posted is withdrawn, and its requester told.
#[test]
fn a_get_being_served_ends_with_its_right() {
    let mut world = World::new(2);
    let slot = world.region(1, 5, LEN);
    let own = world.nodes[0].memory.add(9, Rights::NONE, vec![0; LEN]);
    let get = world.nodes[0]
        .rma
        .get(1, 5, 0, Segment { region: own, offset: 0, len: LEN as u64 }, T)
        .unwrap();
    world.post(0, 1, get);
    while !world.nodes[1].rma.is_serving(slot) {
        assert!(world.step(0));
    }
    let node = &mut world.nodes[1];
    assert!(node.rma.rights_changed(slot, &node.memory).is_empty(), "nothing has changed");
    grant(&mut world, slot, Rights::WRITE);
    let node = &mut world.nodes[1];
    let withdrawn = node.rma.rights_changed(slot, &node.memory);
    assert_eq!(withdrawn.len(), 1);
    assert!(!node.rma.is_serving(slot));
    world.forget(withdrawn[0].1);
    world.run(1);
    assert_eq!(world.take(0), refused(Refusal::NotPermitted));
}

/// MEM-1.9: each is counted, the latest are there one by one, with who, what, where and why.
#[test]
fn what_was_refused_is_remembered() {
    let mut world = World::new(3);
    let closed = world.region(1, 5, LEN);
    world.region(1, 6, LEN);
    grant(&mut world, closed, Rights::READ);
    let access = |key, offset, len, right| RegionAccess { key, offset, len, right };
    let ticket = TicketId { token: 1, serial: 1 };
    let put = |key, offset| Operation::Put { key, offset, signal: None };
    let signal = |key, offset| Operation::Put {
        key: 6,
        offset: 0,
        signal: Some(Signal { key, offset, add: 1 }),
    };
    let atomic = |key, offset| Operation::Atomic { ticket, key, offset, op: AtomicOp::add(1u64) };
    let get = |key, offset, len| Operation::Get { ticket, key, offset, len };
    use MessageKind as Kind;
    use Refusal::{Misaligned, NotPermitted, OutOfBounds, UnknownKey};
    let write = |key, offset, len| access(key, offset, len, Rights::WRITE);
    let change = |key, offset| access(key, offset, 8, Rights::ATOMIC);
    let read = |key, offset, len| access(key, offset, len, Rights::READ);
    let cases = [
        (put(5, 8), 20, Kind::Put, write(5, 8, 20), NotPermitted),
        (put(6, 990), 20, Kind::Put, write(6, 990, 20), OutOfBounds),
        (put(7, 0), 20, Kind::Put, write(7, 0, 20), UnknownKey),
        (put(7, 0), 500, Kind::Put, write(7, 0, 500), UnknownKey),
        (signal(5, 16), 20, Kind::PutSignal, change(5, 16), NotPermitted),
        (signal(6, 4), 500, Kind::PutSignal, change(6, 4), Misaligned),
        (atomic(6, 12), 0, Kind::Atomic, change(6, 12), Misaligned),
        (get(6, u64::MAX, 2), 0, Kind::Get, read(6, u64::MAX, 2), OutOfBounds),
    ];
    for (number, (operation, len, kind, access, refusal)) in cases.iter().enumerate() {
        let from = [0, 2][number % 2];
        let body = if *len == 0 { Body::Empty } else { Body::Inline(vec![1; *len]) };
        world.forge(from, 1, *operation, body);
        world.run(number as u64);
        let (_, latest) = world.nodes[1].rma.refusals();
        let last = latest.back().unwrap();
        assert_eq!(
            (last.from, last.operation, last.access, last.refusal),
            (from, *kind, *access, *refusal)
        );
        assert_eq!((last.serial, latest.len()), (number as u64 + 1, number + 1));
    }
    let (counters, _) = world.nodes[1].rma.refusals();
    let counted =
        (counters.not_permitted, counters.out_of_bounds, counters.unknown_key, counters.misaligned);
    assert_eq!(counted, (2, 2, 2, 2));
    for _ in 0..300 {
        world.forge(0, 1, put(7, 0), Body::Inline(vec![1; 20]));
    }
    world.run(5);
    let (counters, latest) = world.nodes[1].rma.refusals();
    assert_eq!(counters.unknown_key, 302);
    assert_eq!(latest.len(), REFUSALS_KEPT);
    assert_eq!(latest.back().unwrap().serial, 308);
    assert_eq!(latest.front().unwrap().serial, 308 - REFUSALS_KEPT as u64 + 1);
    assert!(world.nodes[1].memory.bytes(closed).iter().all(|byte| *byte == 0));
}

/// MEM-6.5.
#[test]
fn a_name_stands_for_what_its_region_is_now() {
    let mut world = World::new(2);
    world.region(1, 5, LEN);
    let now = Published { key: 5, len: 2000, rights: Rights::READ };
    world.nodes[1].rma.republish("r5", now);
    world.nodes[1].rma.republish("nothing", now);
    assert_eq!((world.nodes[1].rma.name_of(5), world.nodes[1].rma.name_of(6)), (Some("r5"), None));
    let lookup = world.nodes[0].rma.lookup(1, "r5", T).unwrap();
    world.post(0, 1, lookup);
    world.run(1);
    assert_eq!(world.take(0), vec![RmaEvent::Done { token: T, value: OperationValue::Found(now) }]);
}

#[test]
fn rights_are_said_in_words() {
    assert_eq!(Rights::NONE.to_string(), "none");
    assert_eq!(Rights::ATOMIC.to_string(), "atomic");
    assert_eq!(Rights::ALL.to_string(), "read and write and atomic and push");
}
