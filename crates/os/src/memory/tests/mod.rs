//! Tests of regions, their table, and words shared by threads.

mod oracle;

use super::*;
use oikaze_protocol::rma::{Accumulation, AtomicOp, Combine, Memory, NumberKind, Rights};
use oikaze_protocol::wind::{Refusal, Segment};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

/// MEM-1.1: no part of a key reveals anything of another key.
#[test]
fn slots_and_keys_are_not_used_again_soon() {
    const ROUNDS: usize = 20_000;
    let mut table = RegionTable::new();
    let region = Region::private(64).unwrap();
    let (mut slots, mut keys, mut bits) = (HashSet::new(), HashSet::new(), [0; 64]);
    for round in 0..ROUNDS {
        let Registered { slot, key, .. } = table.insert(region.clone(), Rights::ALL).unwrap();
        assert!(slots.insert(slot), "slot {slot:#x} again");
        assert!(keys.insert(key), "key {key:#x} again");
        bits.iter_mut().enumerate().for_each(|(bit, count)| *count += (key >> bit & 1) as usize);
        assert!(table.locate(key, 0, 64, Rights::READ).is_ok());
        assert_eq!(
            table.locate(key ^ 1 << (round % 64), 0, 64, Rights::READ),
            Err(Refusal::UnknownKey)
        );
        assert!(table.remove(slot).is_some());
        assert_eq!(table.locate(key, 0, 64, Rights::READ), Err(Refusal::UnknownKey));
        assert!(table.remove(slot).is_none());
    }
    assert!(table.is_empty());
    // Thirty standard deviations wide.
    assert!(bits.iter().all(|count| count.abs_diff(ROUNDS / 2) < 2_100), "{bits:?}");
}

#[test]
fn a_gather_keeps_its_memory() {
    let mut table = RegionTable::new();
    let region = Region::shared(5000).unwrap();
    region.fill(0, 5000, 7).unwrap();
    let slot = table.insert_local(region).unwrap();
    let gather = table.gather(&Segment { region: slot, offset: 100, len: 4900 }).unwrap();
    drop(table.remove(slot));
    assert!(gather.with_bytes(|bytes| bytes.len() == 4900 && bytes.iter().all(|byte| *byte == 7)));
}

#[test]
fn lent_memory_grants_what_it_can_and_only_while_it_is_lent() {
    let mut table = RegionTable::new();
    let bytes = vec![3_u8; 100];
    let slot = with_borrowed(&bytes, |region| {
        assert_eq!(table.insert(region.clone(), Rights::WRITE), Err(MemoryError::ReadOnly));
        assert_eq!(region.fetch_add(0, 1), Err(AccessError::ReadOnly));
        let Registered { slot, key, .. } = table.insert(region.clone(), Rights::READ).unwrap();
        assert_eq!(table.locate(key, 0, 100, Rights::READ), Ok(slot));
        assert!(!table.covers(slot, 0, 100), "nothing can land in memory lent for reading");
        assert!(table.gather(&Segment { region: slot, offset: 0, len: 100 }).is_some());
        slot
    });
    assert!(table.gather(&Segment { region: slot, offset: 0, len: 100 }).is_none());
    assert!(!table.read(slot, 0, &mut [0; 1]));
    table.write(slot, 0, &[1]);
    assert_eq!(table.strays(), 1);
    assert!(table.region(slot).unwrap().view_ptr().is_null());
}

#[test]
fn atomics_in_lent_memory_ask_for_the_address_and_not_the_offset() {
    let mut words = [0_u64; 4];
    let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut words);
    with_borrowed_mut(&mut bytes[1..], |region| {
        assert_eq!(region.fetch_add(0, 1), Err(AccessError::Misaligned { offset: 0, width: 8 }));
        assert_eq!(region.fetch_add(7, 5), Ok(0));
        assert_eq!(region.load_u64(7), Ok(5));
    });
    assert_eq!(words, [0, 5, 0, 0]);
}

#[test]
fn typed_words_are_what_their_type_says() {
    let region = Region::zeroed(64).unwrap();
    let (narrow, wide) = (region.word::<i32>(4), region.word::<u64>(8));
    narrow.store(-3).unwrap();
    assert_eq!((narrow.fetch_min(2), narrow.fetch_max(2), narrow.load()), (Ok(-3), Ok(-3), Ok(2)));
    assert_eq!(region.word::<u32>(0).load(), Ok(0), "nobody else's half");
    assert_eq!(region.word::<u64>(0).load(), Ok(2 << 32), "nobody else's half");
    assert_eq!(
        (wide.swap(6), wide.fetch_and(3), wide.fetch_or(8), wide.fetch_xor(1)),
        (Ok(0), Ok(6), Ok(2), Ok(10))
    );
    assert_eq!(wide.compare_exchange(11, 1), Ok(11));
    assert_eq!(wide.compare_exchange(11, 2), Ok(1));
    assert_eq!(wide.fetch_add(u64::MAX), Ok(1));
    assert_eq!(wide.load(), Ok(0));
    assert_eq!(
        region.word::<u32>(62).load(),
        Err(AccessError::OutOfBounds { offset: 62, len: 4, size: 64 })
    );
    assert_eq!(region.word::<u32>(2).swap(1), Err(AccessError::Misaligned { offset: 2, width: 4 }));
    with_borrowed(&[1, 2, 3, 4, 5], |region| {
        assert_eq!(region.word::<u32>(1).load(), Ok(u32::from_ne_bytes([2, 3, 4, 5])));
        assert_eq!(region.word::<u32>(0).store(1), Err(AccessError::ReadOnly));
    });
}

/// MEM-12.1, MEM-12.2, MEM-12.3, in the program's memory.
#[test]
fn elements_are_combined_as_their_type_says() {
    let region = Region::shared(4096).unwrap();
    region.accumulate(8, Combine::Sum, &[1.5_f64, -2.0, f64::INFINITY]).unwrap();
    region.accumulate(8, Combine::Sum, &[0.25_f64, 2.0, f64::NEG_INFINITY]).unwrap();
    let float = |offset| f64::from_bits(region.load_u64(offset).unwrap());
    assert!(float(8) == 1.75 && float(16) == 0.0 && float(24).is_nan());
    region.accumulate(24, Combine::Max, &[-1.0_f64]).unwrap();
    assert!(float(24).is_nan(), "a NaN stays a NaN");
    region.accumulate(100, Combine::Min, &[-3_i32, 4]).unwrap();
    region.accumulate(100, Combine::Max, &[0xFFFF_FFF0_u32, 3]).unwrap();
    assert_eq!((region.word::<i32>(100).load(), region.word::<i32>(104).load()), (Ok(-3), Ok(3)));
    region.accumulate(104, Combine::Sum, &[u32::MAX]).unwrap();
    assert_eq!(region.word::<u32>(104).load(), Ok(2), "nothing is carried");
    assert_eq!(region.word::<u32>(108).load(), Ok(0), "nothing is carried");
    let nothing: [f32; 0] = [];
    region.accumulate(4096, Combine::Sum, &nothing).unwrap();
    assert_eq!(
        region.accumulate(4092, Combine::Sum, &[1_u64]),
        Err(AccessError::OutOfBounds { offset: 4092, len: 8, size: 4096 })
    );
    assert_eq!(
        region.accumulate(4, Combine::Sum, &[1_u64, 2]),
        Err(AccessError::Misaligned { offset: 4, width: 8 })
    );
    with_borrowed(&[0; 8], |lent| {
        assert_eq!(lent.accumulate(0, Combine::Sum, &[1_u32]), Err(AccessError::ReadOnly))
    });
}

/// MEM-12.4: sums of exact floating-point numbers lose nothing, from both mappings, concurrently
/// with atomics of the same width.
#[test]
fn threads_lose_no_element() {
    let region = Region::shared(4096).unwrap();
    let add = Accumulation { element: NumberKind::F64, combine: Combine::Sum };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (region, mut table) = (region.clone(), RegionTable::new());
            let slot = table.insert_local(region.clone()).unwrap();
            scope.spawn(move || {
                for _ in 0..2000 {
                    if thread % 2 == 0 {
                        region.accumulate(0, Combine::Sum, &[1.0_f64; 4]).unwrap();
                        region.word::<u32>(64).fetch_add(1).unwrap();
                    } else {
                        let ones: Vec<u8> =
                            [1.0_f64; 4].iter().flat_map(|one| one.to_ne_bytes()).collect();
                        table.accumulate(slot, 0, add, &ones).unwrap();
                        let one = Accumulation { element: NumberKind::U32, combine: Combine::Sum };
                        table.accumulate(slot, 64, one, &1_u32.to_ne_bytes()).unwrap();
                    }
                }
            });
        }
    });
    for offset in [0, 8, 16, 24] {
        assert_eq!(f64::from_bits(region.load_u64(offset).unwrap()), 8000.0);
    }
    assert_eq!(region.word::<u32>(64).load(), Ok(8000));
}

#[test]
fn threads_lose_no_addition() {
    for region in [Region::shared(64).unwrap(), Region::private(64).unwrap()] {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (region, mut table) = (region.clone(), RegionTable::new());
                let slot = table.insert_local(region.clone()).unwrap();
                scope.spawn(move || {
                    for _ in 0..5000 {
                        // Half of the threads act as the program does, and half as a peer does,
                        // through the other mapping.
                        if thread % 2 == 0 {
                            region.fetch_add(8, 1).unwrap();
                        } else {
                            table.atomic(slot, 8, AtomicOp::add(1u64)).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(region.load_u64(8), Ok(20_000));
    }
}

#[test]
fn one_thread_wins_each_exchange() {
    let region = Region::shared(8).unwrap();
    let wins: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u64)
            .map(|_| {
                let region = region.clone();
                scope.spawn(move || {
                    (0..2000_u64)
                        .filter(|n| region.compare_exchange(0, *n, n + 1) == Ok(*n))
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(region.load_u64(0), Ok(wins as u64));
}

/// Data first, then the signal: a thread that sees the signal sees the data, across the two
/// mappings.
#[test]
fn a_signal_comes_after_its_data() {
    let region = Region::shared(8192).unwrap();
    let mut table = RegionTable::new();
    let slot = table.insert_local(region.clone()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=500_u64 {
                table.write(slot, 4096, &[round as u8; 512]);
                table.atomic(slot, 0, AtomicOp::swap(round)).unwrap();
                // The next round may overwrite the data only after this round has been read.
                while region.load_u64(8) != Ok(round) && !stop.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
        });
        let mut wrong = 0;
        for round in 1..=500_u64 {
            while region.load_u64(0) != Ok(round) {
                std::thread::yield_now();
            }
            let mut bytes = [0; 512];
            region.read(4096, &mut bytes).unwrap();
            wrong += usize::from(bytes != [round as u8; 512]);
            region.store_u64(8, round).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wrong, 0);
    });
}

#[test]
fn nonsense_is_refused_with_its_reason() {
    assert_eq!(Region::private(0).unwrap_err(), MemoryError::Length(0));
    assert_eq!(Region::shared(usize::MAX).unwrap_err(), MemoryError::Length(usize::MAX));
    // A request above the available memory is refused before the out-of-memory killer acts.
    let text = Region::shared(1 << 46).unwrap_err().to_string();
    assert!(text.contains("available"), "{text}");
    let region = Region::zeroed(100).unwrap();
    let error = region.read(90, &mut [0; 11]).unwrap_err();
    assert_eq!(error, AccessError::OutOfBounds { offset: 90, len: 11, size: 100 });
    assert_eq!(error.to_string(), "11 bytes at offset 90 lie outside a region of 100 bytes");
    assert_eq!(
        region.fill(u64::MAX, 2, 1),
        Err(AccessError::OutOfBounds { offset: u64::MAX, len: 2, size: 100 })
    );
    assert_eq!(region.store_u64(4, 1), Err(AccessError::Misaligned { offset: 4, width: 8 }));
    assert!(region.load_u64(96).is_err());
}

/// Memory that may be received into directly (MEM-3.7): live, inside, writable, and no page of a
/// shared array.
#[test]
fn a_scatter_leads_into_what_may_be_written_and_nowhere_else() {
    let mut table = RegionTable::new();
    let region = Region::private(100).unwrap();
    let slot = table.insert(region.clone(), Rights::ALL).unwrap().slot;
    let at = |region, offset, len| Segment { region, offset, len };
    let mut scatter = table.scatter(at(slot, 10, 20)).unwrap();
    scatter.fill(15, &[1, 2, 3, 4, 5]);
    scatter.fill(16, &[9; 5]);
    scatter.fill(usize::MAX, &[9; 5]);
    assert_eq!(scatter.part(15, 5), Some([1, 2, 3, 4, 5].as_slice()));
    assert_eq!(scatter.part(16, 5), None);
    assert_eq!(scatter.part(usize::MAX, 2), None);
    let mut bytes = [0; 100];
    region.read(0, &mut bytes).unwrap();
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(index, byte)| *byte
                == if (25..30).contains(&index) { index as u8 - 24 } else { 0 })
    );
    // Writing bytes from where they were received changes nothing, and nothing is lost.
    table.write(slot, 25, scatter.part(15, 5).unwrap());
    assert_eq!(scatter.part(15, 5), Some([1, 2, 3, 4, 5].as_slice()));
    for wrong in [at(slot, 90, 11), at(slot, u64::MAX, 2), at(slot + 1, 0, 1)] {
        assert!(table.scatter(wrong).is_none(), "{wrong:?}");
    }
    drop(scatter);
    table.remove(slot);
    assert!(table.scatter(at(slot, 0, 1)).is_none());
    let (read, mut write) = ([0; 8], [0; 8]);
    let kept = scope(|scope| {
        let read = table.insert_local(scope.borrow(&read)).unwrap();
        let write = table.insert_local(scope.borrow_mut(&mut write)).unwrap();
        assert!(table.scatter(at(read, 0, 8)).is_none());
        assert!(table.scatter(at(write, 0, 8)).is_some());
        write
    });
    assert!(table.scatter(at(kept, 0, 8)).is_none(), "the loan is over");
    let owner: std::sync::Arc<dyn super::region::Owner> = std::sync::Arc::new(());
    let mut page = vec![0_u8; 64];
    // SAFETY: the page outlives the table's use of it below, and nobody else refers to it.
    let alias = unsafe {
        Region::from_alias(owner, core::ptr::NonNull::new(page.as_mut_ptr()).unwrap(), 64)
    };
    let alias = table.insert_local(alias).unwrap();
    assert!(table.scatter(at(alias, 0, 8)).is_none(), "a shared array");
    assert!(table.scatter_pages(at(alias, 0, 8)).is_some());
    assert!(table.scatter_pages(at(alias, 60, 8)).is_none());
    let other = table.insert(Region::private(100).unwrap(), Rights::ALL).unwrap().slot;
    assert!(table.scatter_pages(at(other, 0, 8)).is_none(), "no array");
}
