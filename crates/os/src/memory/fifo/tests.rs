//! Tests of FIFOs: one thread against a queue of vectors, many threads, and overwritten memory.

use super::*;
use crate::memory::RegionTable;
use oikaze_protocol::limits::{FIFO_ELEMENT_MAX, FIFO_SLOTS_MAX};
use oikaze_protocol::rma::{Memory, Operation, Rights, Rma};
use oikaze_protocol::wind::{Admission, Class, Delivered};
use proptest::prelude::*;
use std::collections::VecDeque;

fn fifo(slots: u64, element: u64) -> (Fifo, RegionTable, u32) {
    let shape = Shape::new(slots, element).unwrap();
    let region = Region::shared(shape.bytes() as usize).unwrap();
    let mut table = RegionTable::new();
    let slot = table.insert(region.clone(), Rights::PUSH).unwrap().slot;
    (Fifo::format(region, shape).unwrap(), table, slot)
}

fn pop(fifo: &Fifo) -> Result<Option<Vec<u8>>, FifoError> {
    let mut element = vec![0xEE];
    let there = fifo.try_pop(&mut element)?;
    assert_eq!(element.remove(0), 0xEE, "appended");
    assert!(there || element.is_empty());
    Ok(there.then_some(element))
}

proptest! {
    /// MEM-13.1, MEM-13.2.
    #[test]
    fn it_is_a_queue(slots in 1..20u64, element in 1..40u64, steps in prop::collection::vec(prop::option::of((0..50usize, any::<u8>())), 1..200)) {
        let (fifo, mut table, slot) = fifo(slots, element);
        let capacity = slots.max(2).next_power_of_two();
        prop_assert_eq!(fifo.shape().slots(), capacity);
        prop_assert_eq!(table.fifo_element(slot), Ok(element));
        let mut oracle = VecDeque::new();
        for step in steps {
            match step {
                Some((len, byte)) => {
                    let bytes = vec![byte; len];
                    let expected = match () {
                        () if len as u64 > element => Err(Refusal::TooLong),
                        () if oracle.len() as u64 == capacity => Err(Refusal::Full),
                        () => {
                            oracle.push_back(bytes.clone());
                            Ok(())
                        }
                    };
                    prop_assert_eq!(table.push(slot, &bytes), expected);
                }
                None => prop_assert_eq!(pop(&fifo), Ok(oracle.pop_front())),
            }
        }
    }

    /// MEM-13.4: whatever overwrites it, both ends return a possible result, and touch nothing
    /// outside the FIFO.
    #[test]
    fn a_destroyed_queue_is_an_error_and_harms_nothing_else(
        damage in prop::collection::vec((0..70u64, prop_oneof![0..9u64, any::<u64>(), (0..9u64).prop_map(u64::wrapping_neg)]), 1..6),
        before in 0..6usize,
    ) {
        let shape = Shape::new(4, 20).unwrap();
        let len = shape.bytes() + 128;
        let region = Region::private(len as usize).unwrap();
        region.fill(shape.bytes(), 128, 0x5A).unwrap();
        let mut table = RegionTable::new();
        let slot = table.insert(region.clone(), Rights::ALL).unwrap().slot;
        let fifo = Fifo::format(region.clone(), shape).unwrap();
        (0..before).for_each(|_| { let _ = table.push(slot, &[1; 20]); });
        for (word, value) in damage {
            region.store_u64(word * 8 % shape.bytes(), value).unwrap();
        }
        for _ in 0..10 {
            match table.push(slot, &[7; 20]) {
                Ok(()) | Err(Refusal::Full | Refusal::NoFifo | Refusal::TooLong) => {}
                other => prop_assert!(false, "{other:?}"),
            }
            match pop(&fifo) {
                Ok(element) => prop_assert!(element.is_none_or(|element| element.len() <= 20)),
                Err(error) => prop_assert_eq!(error, FifoError::Destroyed),
            }
        }
        let mut behind = [0; 128];
        region.read(shape.bytes(), &mut behind).unwrap();
        prop_assert_eq!(behind, [0x5A; 128]);
    }
}

/// MEM-13.4: each relevant word is overwritten by an impossible value.
#[test]
fn what_is_destroyed_is_said() {
    let (tail, head, turn, length) = (TAIL_AT, HEAD_AT, 384, 392);
    for (word, value, pushes, pops) in [
        (MAGIC_AT, 1, Ok(()), Ok(Some(vec![9]))),
        (SLOTS_AT, 1 << 40, Ok(()), Ok(Some(vec![9]))),
        (ELEMENT_AT, 1 << 20, Ok(()), Ok(Some(vec![9]))),
        (tail, u64::MAX, Err(Refusal::NoFifo), Ok(Some(vec![9]))),
        (head, 77, Ok(()), Err(FifoError::Destroyed)),
        (turn, 1 << 50, Ok(()), Err(FifoError::Destroyed)),
        (length, 9, Ok(()), Err(FifoError::Destroyed)),
    ] {
        let (fifo, mut table, slot) = fifo(4, 8);
        table.push(slot, &[9]).unwrap();
        fifo.region.store_u64(word, value).unwrap();
        assert_eq!(table.push(slot, &[1]), pushes, "{word} {value}");
        assert_eq!(pop(&fifo), pops, "{word} {value}");
    }
}

/// MEM-13.1, MEM-13.4: elements are the producers' own bytes. An element may look like the header
/// of a FIFO of long elements, whose place the next push names. That push still does not overwrite
/// adjacent bytes.
#[test]
fn a_fifo_forged_inside_an_element_is_none() {
    let shape = Shape::new(32, 512).unwrap();
    let region = Region::shared(shape.bytes() as usize).unwrap();
    let (mut table, mut rma) = (RegionTable::new(), Rma::new());
    let key = table.insert(region.clone(), Rights::PUSH).unwrap().key;
    let fifo = Fifo::format(region, shape).unwrap();
    let mut push = |number, offset, element: &[u8]| {
        let head = Operation::Push { key, offset }.encode();
        rma.deliver(1, number, Class::Ordered, &head, Delivered::Bytes(element), &mut table)
    };
    let mut forged = [0; 512];
    for (at, word) in [(MAGIC_AT, MAGIC), (SLOTS_AT, 2), (ELEMENT_AT, 4096)] {
        forged[at as usize..][..8].copy_from_slice(&word.to_ne_bytes());
    }
    push(0, 0, &forged).unwrap();
    push(1, 0, &[7; 100]).unwrap();
    let inside = shape.slot(0) + 16;
    assert_eq!(push(2, inside, &[0xEE; 4096]), Err(Refusal::NoFifo));
    let head = Operation::Push { key, offset: inside }.encode();
    assert_eq!(
        rma.admit(1, 3, Class::Ordered, &head, 4096, &mut table),
        Admission::Refuse(Refusal::NoFifo)
    );
    assert_eq!(pop(&fifo), Ok(Some(forged.to_vec())));
    assert_eq!(pop(&fifo), Ok(Some(vec![7; 100])));
    assert_eq!(pop(&fifo), Ok(None));
}

/// MEM-13.3: the memory's content proves no FIFO, neither a forged header nor an overwritten one.
#[test]
fn what_the_memory_says_makes_no_fifo() {
    let region = Region::private(16384).unwrap();
    let mut table = RegionTable::new();
    let slot = table.insert(region.clone(), Rights::ALL).unwrap().slot;
    for (at, word) in [(SLOTS_AT, 2), (ELEMENT_AT, 4096), (MAGIC_AT, MAGIC)] {
        region.store_u64(at, word).unwrap();
    }
    assert_eq!(table.fifo_element(slot), Err(Refusal::NoFifo));
    assert_eq!(table.push(slot, &[1]), Err(Refusal::NoFifo));
    let fifo = Fifo::format(region.clone(), Shape::new(4, 64).unwrap()).unwrap();
    region.store_u64(ELEMENT_AT, 4096).unwrap();
    assert_eq!(table.fifo_element(slot), Ok(64));
    assert_eq!(table.push(slot, &[1; 65]), Err(Refusal::TooLong));
    assert_eq!((table.push(slot, &[1]), pop(&fifo)), (Ok(()), Ok(Some(vec![1]))));
    // The FIFO may be made anew, in another shape.
    Fifo::format(region, Shape::new(2, 8).unwrap()).unwrap();
    assert_eq!(table.fifo_element(slot), Ok(8));
    for (slots, element) in [(1, 1), (FIFO_SLOTS_MAX, FIFO_ELEMENT_MAX), (100, 7)] {
        let shape = Shape::new(slots, element).unwrap();
        assert_eq!(Shape::from_bits(shape.to_bits()), Some(shape));
    }
}

#[test]
fn places_where_no_fifo_is() {
    let region = Region::private(4096).unwrap();
    let mut table = RegionTable::new();
    let slot = table.insert(region.clone(), Rights::ALL).unwrap().slot;
    assert_eq!(table.push(slot, &[1]), Err(Refusal::NoFifo));
    assert_eq!(table.fifo_element(slot), Err(Refusal::NoFifo));
    assert_eq!(table.push(slot + 1, &[1]), Err(Refusal::NoFifo));
    let shape = Shape::new(1000, 8).unwrap();
    assert!(matches!(Fifo::format(region, shape), Err(AccessError::OutOfBounds { .. })));
    for (slots, element) in
        [(4, 0), (4, FIFO_ELEMENT_MAX + 1), (FIFO_SLOTS_MAX + 1, 8), (u64::MAX, 8)]
    {
        assert_eq!(Shape::new(slots, element), None);
    }
}

/// MEM-13.2: each element comes out once and whole, and those of one producer in order, also for
/// each of several consumers.
#[test]
fn producers_and_consumers_lose_nothing() {
    const EACH: u64 = 20_000;
    let (fifo, _, _) = fifo(64, 24);
    let left = &std::sync::atomic::AtomicU64::new(2 * EACH);
    let taken: Vec<Vec<u64>> = std::thread::scope(|scope| {
        for producer in 0..2 {
            let region = fifo.region.clone();
            scope.spawn(move || {
                let mut table = RegionTable::new();
                let slot = table.insert_local(region).unwrap();
                for number in 0..EACH {
                    let element =
                        (producer << 32 | number).to_ne_bytes().repeat(1 + number as usize % 3);
                    while let Err(refusal) = table.push(slot, &element) {
                        assert_eq!(refusal, Refusal::Full);
                        std::thread::yield_now();
                    }
                }
            });
        }

        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let fifo = fifo.clone();
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    while left.load(Ordering::Relaxed) > 0 {
                        let Some(element) = pop(&fifo).unwrap() else {
                            std::thread::yield_now();
                            continue;
                        };
                        left.fetch_sub(1, Ordering::Relaxed);
                        let words: Vec<u64> = element
                            .as_chunks::<8>()
                            .0
                            .iter()
                            .map(|word| u64::from_ne_bytes(*word))
                            .collect();
                        let number = words[0] & u64::from(u32::MAX);
                        assert_eq!(words, vec![words[0]; 1 + number as usize % 3]);
                        taken.push(words[0]);
                    }
                    taken
                })
            })
            .collect();
        consumers.into_iter().map(|consumer| consumer.join().unwrap()).collect()
    });
    for producer in 0..2 {
        let own = |taken: &Vec<u64>| {
            taken.iter().copied().filter(|word| word >> 32 == producer).collect::<Vec<_>>()
        };
        assert!(taken.iter().all(|taken| own(taken).is_sorted_by(|a, b| a < b)));
    }
    let mut all = taken.concat();
    all.sort_unstable();
    assert_eq!(
        all,
        (0..2)
            .flat_map(|producer| (0..EACH).map(move |number| producer << 32 | number))
            .collect::<Vec<_>>()
    );
}
