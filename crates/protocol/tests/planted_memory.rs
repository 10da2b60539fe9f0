//! Checks that each bug that can be planted in remote memory breaks a promise that tests/memory
//! checks. A process of its own, because a planted bug affects the whole process.
#![cfg(feature = "planted-bugs")]

#[allow(dead_code)]
#[path = "memory/vectors.rs"]
mod vectors;
#[allow(dead_code)]
#[path = "memory/world.rs"]
mod world;

use oikaze_protocol::planted::{Bug, plant};
use oikaze_protocol::rma::{Accumulation, AtomicOp, Combine, NumberKind, Rights, Rma, Signal};
use oikaze_protocol::wind::{Body, Segment, Token};
use world::World;

const T: Token = Token(7);

/// Returns `true` if the signal is visible at any step before all of its data is.
fn signal_overtakes(len: usize) -> bool {
    let mut world = World::new(2);
    let (data, word) = (world.region(1, 5, 1000), world.region(1, 6, 8));
    let signal = Some(Signal { key: 6, offset: 0, add: 1 });
    let message = world.nodes[0].rma.put(5, 0, Body::Inline(vec![1; len]), signal, T).unwrap();
    world.post(0, 1, message);
    let mut overtaken = false;
    for step in 0.. {
        let more = world.step(step);
        let whole = world.nodes[1].memory.bytes(data)[..len].iter().all(|byte| *byte == 1);
        overtaken |= world.nodes[1].memory.word(word, 0) != 0 && !whole;
        if !more {
            return overtaken;
        }
    }
    unreachable!("it ends")
}

fn atomic_repeats() -> bool {
    let mut world = World::new(2);
    let slot = world.region(1, 5, 8);
    let message = world.nodes[0].rma.atomic(1, 5, 0, AtomicOp::add(1u64), T).unwrap();
    world.post(0, 1, message);
    world.run(1);
    world.nodes[1].memory.word(slot, 0) != 1
}

fn element_repeats() -> bool {
    let mut world = World::new(2);
    let slot = world.region(1, 5, 400);
    let how = Accumulation { element: NumberKind::U32, combine: Combine::Sum };
    let message = Rma::accumulate(5, 0, how, Body::Inline([1, 0, 0, 0].repeat(100)), T).unwrap();
    world.post(0, 1, message);
    world.run(1);
    world.nodes[1].memory.bytes(slot).chunks(4).any(|element| element != [1, 0, 0, 0])
}

fn push_repeats() -> bool {
    let mut world = World::new(2);
    let slot = world.nodes[1].memory.fifo(5, 8, 8);
    let message = Rma::push(5, Body::Inline(vec![1]), true, T).unwrap();
    world.post(0, 1, message);
    world.run(1);
    world.nodes[1].memory.pushed(slot).len() != 1
}

fn get_completes_early() -> bool {
    let mut world = World::new(2);
    world.nodes[1].memory.add(5, Rights::READ, vec![1; 900]);
    let own = world.nodes[0].memory.add(9, Rights::NONE, vec![0; 900]);
    let message =
        world.nodes[0].rma.get(1, 5, 0, Segment { region: own, offset: 0, len: 900 }, T).unwrap();
    world.post(0, 1, message);
    let mut step = 0;
    while world.take(0).is_empty() {
        step += 1;
        assert!(world.step(step), "it ends");
    }
    world.nodes[0].memory.bytes(own).contains(&0)
}

#[test]
fn each_planted_bug_shows() {
    let symptoms = || {
        (
            signal_overtakes(500),
            atomic_repeats(),
            get_completes_early(),
            element_repeats(),
            push_repeats(),
        )
    };
    assert_eq!(symptoms(), (false, false, false, false, false));
    plant(Some(Bug::SignalBeforeData));
    assert_eq!(symptoms(), (true, false, false, false, false));
    plant(Some(Bug::RepeatAtomic));
    assert_eq!(symptoms(), (false, true, false, false, false));
    plant(Some(Bug::CompleteBeforePlaced));
    assert_eq!(symptoms(), (false, false, true, false, false));
    plant(Some(Bug::RepeatElement));
    assert_eq!(symptoms(), (false, false, false, true, false));
    plant(Some(Bug::RepeatPush));
    assert_eq!(symptoms(), (false, false, false, false, true));
    plant(None);
}
