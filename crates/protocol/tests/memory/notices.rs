//! Puts with notice: the entry comes after all bytes, once, and not for a put that failed (MEM-25).

use super::world::World;
use oikaze_protocol::random::Random;
use oikaze_protocol::rma::{Notice, OperationValue, Rights, Rma, RmaError, RmaEvent};
use oikaze_protocol::wind::{Body, Charge, Refusal, Token};

const LEN: usize = 4000;
const KEY: u64 = 5;

fn put(world: &mut World, offset: u64, bytes: Vec<u8>, tag: u64) {
    let message = Rma::put_notice(KEY, offset, Body::Inline(bytes), tag, Token(tag)).unwrap();
    assert_eq!(message.charge, Charge::Entry);
    world.post(0, 1, message);
}

/// MEM-25.1, MEM-25.2, MEM-25.5: whatever the order of fragments, each entry comes when its bytes
/// are there, and before its sender is told.
#[test]
fn an_entry_comes_once_after_all_its_bytes() {
    for seed in 0..200 {
        let (mut world, mut random) = (World::new(2), Random::new(seed));
        let slot = world.region(1, KEY, LEN);
        // Puts to ranges that do not overlap, each with bytes of its tag.
        let (mut puts, mut offset) = (Vec::new(), 0);
        while puts.len() < 9 {
            let len = [0, 1, 99, 100, 101, 350][random.below(6)];
            puts.push((offset, len));
            offset += len;
        }
        for (tag, (offset, len)) in puts.iter().enumerate() {
            put(&mut world, *offset, vec![tag as u8 + 1; *len as usize], tag as u64);
        }
        let (mut told, mut done) = (Vec::new(), 0);
        while world.step(random.next_u64()) {
            for event in world.take(1) {
                let RmaEvent::Placed { from: 0, notice: Notice { key: KEY, offset, len, tag } } =
                    event
                else {
                    panic!("{event:?}")
                };
                assert_eq!(puts[tag as usize], (offset, len), "seed {seed}");
                let bytes = &world.nodes[1].memory.bytes(slot)[offset as usize..][..len as usize];
                assert!(bytes.iter().all(|byte| *byte == tag as u8 + 1), "seed {seed}");
                told.push(tag);
            }
            for event in world.take(0) {
                let RmaEvent::Done { token, value: OperationValue::Nothing } = event else {
                    panic!("{event:?}")
                };
                assert!(told.contains(&token.0), "seed {seed}: complete means entered");
                done += 1;
            }
        }
        told.sort_unstable();
        assert!(told.iter().copied().eq(0..puts.len() as u64), "seed {seed}: each once");
        assert_eq!(done, puts.len());
    }
}

/// MEM-25.2: a put that is refused, at its beginning or at its end, leaves no entry.
#[test]
fn a_refused_put_leaves_no_entry() {
    for (offset, len, rights, refusal) in [
        (LEN as u64 - 10, 11, Rights::WRITE, Refusal::OutOfBounds),
        (LEN as u64 - 10, 500, Rights::WRITE, Refusal::OutOfBounds),
        (0, 10, Rights::READ, Refusal::NotPermitted),
        (0, 500, Rights::ATOMIC, Refusal::NotPermitted),
    ] {
        let mut world = World::new(2);
        world.nodes[1].memory.add(KEY, rights, vec![0; LEN]);
        put(&mut world, offset, vec![1; len], 3);
        world.run(7);
        let failed = RmaEvent::Failed { token: Token(3), error: RmaError::Refused(refusal) };
        assert_eq!((world.take(0), world.take(1)), (vec![failed], vec![]));
    }
}

/// MEM-25.2: a put that its sender withdraws before it is whole leaves no entry.
#[test]
fn a_withdrawn_put_leaves_no_entry() {
    let mut world = World::new(2);
    world.region(1, KEY, LEN);
    put(&mut world, 0, vec![1; 1000], 3);
    // The put has begun, and some fragments have come.
    (0..4).for_each(|pick| assert!(world.step(pick)));
    world.withdraw(0, Token(3));
    world.run(1);
    assert_eq!(world.take(1), vec![]);
}
