//! Tests exchanges while other threads work in the same regions, and checks for leaks afterwards.

use super::*;
use core::sync::atomic::{AtomicBool, Ordering};

/// Stops the other threads, also if this one fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Counters in pages that take no part continue in both regions, whatever is exchanged beside them.
#[test]
fn pages_beside_exchanged_ones_notice_nothing() {
    const ROUNDS: u64 = 300;
    let placement = placement("");
    let page = page_size() as u64;
    let ((a, first), (b, second)) = (small(40, 1), small(40, 2));
    for (region, offset) in [(&a, 0), (&b, 0), (&a, 35 * page), (&b, 35 * page)] {
        region.store_u64(offset, 0).unwrap();
    }
    let over = AtomicBool::new(false);
    let counted: Vec<u64> = std::thread::scope(|threads| {
        let count = |region: &'_ Region, offset: u64| {
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                assert_eq!(region.fetch_add(offset, 1), Ok(count));
                count += 1;
            }
            count
        };
        let places = [(&a, 0), (&b, 0), (&a, 35 * page), (&b, 35 * page)];
        let workers = places.map(|(region, offset)| threads.spawn(move || count(region, offset)));
        let stop = Stop(&over);
        for round in 0..ROUNDS {
            let way = if round % 3 == 0 { PlacementMethod::Copy } else { PlacementMethod::Auto };
            placement.exchange(at(&a, page), at(&b, 5 * page), 30, way).unwrap();
            if placement.why_not().is_none() {
                placement
                    .exchange(at(&b, 5 * page), at(&a, page), 30, PlacementMethod::Move)
                    .unwrap();
            } else {
                placement
                    .exchange(at(&b, 5 * page), at(&a, page), 30, PlacementMethod::Auto)
                    .unwrap();
            }
        }
        drop(stop);
        workers.map(|worker| worker.join().unwrap()).into()
    });
    let words = [a.load_u64(0), b.load_u64(0), a.load_u64(35 * page), b.load_u64(35 * page)]
        .map(Result::unwrap);
    assert_eq!(words.as_slice(), counted);
    // The number of exchanges is even.
    assert!(
        bytes(&a)[page as usize..31 * page as usize] == first[page as usize..31 * page as usize]
    );
    assert!(
        bytes(&b)[5 * page as usize..35 * page as usize]
            == second[5 * page as usize..35 * page as usize]
    );
}

/// MEM-17.2: a thread that touches the pages meanwhile, against the rules, sees one content, the
/// other, or zeros. Once the thread has stopped, an exchange works as it should.
#[test]
fn touches_in_the_middle_lose_no_page() {
    let placement = placement("");
    let page = page_size() as u64;
    let ((a, _), (b, _)) = (small(8, 1), small(8, 2));
    a.fill(0, 8 * page, 1).unwrap();
    b.fill(0, 8 * page, 2).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let (mut seen, mut byte) = ([0_u64; 3], [0]);
            while !over.load(Ordering::Relaxed) {
                for offset in (0..8 * page).step_by(512) {
                    a.read(offset, &mut byte).unwrap();
                    seen[usize::from(byte[0])] += 1;
                }
            }
            seen
        });
        let stop = Stop(&over);
        for _ in 0..2000 {
            let way = if placement.why_not().is_none() {
                PlacementMethod::Move
            } else {
                PlacementMethod::Auto
            };
            placement.exchange(at(&a, 0), at(&b, 0), 8, way).unwrap();
        }
        drop(stop);
        let seen = reader.join().unwrap();
        assert!(seen.iter().sum::<u64>() > 0);
    });
    // The other threads only read, and an even number of exchanges has changed nothing.
    assert!(bytes(&a).iter().all(|byte| *byte == 1) && bytes(&b).iter().all(|byte| *byte == 2));
}

/// Threads exchange at the same time, each its own pages.
#[test]
fn exchanges_of_several_threads_do_not_meet() {
    let placement = placement("");
    let page = page_size() as u64;
    let ((a, first), (b, second)) = (small(64, 1), small(64, 2));
    std::thread::scope(|threads| {
        for lane in 0..4 {
            let (a, b, placement) = (&a, &b, &placement);
            threads.spawn(move || {
                for _ in 0..101 {
                    let way = if placement.why_not().is_none() {
                        PlacementMethod::Move
                    } else {
                        PlacementMethod::Auto
                    };
                    placement
                        .exchange(at(a, lane * 16 * page), at(b, lane * 16 * page), 16, way)
                        .unwrap();
                }
            });
        }
    });
    assert!(bytes(&a) == second && bytes(&b) == first);
}

/// Runs in a process of its own, so that no other test opens or maps anything meanwhile.
#[test]
fn nothing_is_left_behind() {
    if !alone(module_path!(), "nothing_is_left_behind") {
        return;
    }
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let mappings = || {
        std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .filter(|line| !line.contains('['))
            .count()
    };
    let work = || {
        for memory in ALL {
            for without in WITHOUT {
                let (a, b) = (filled(memory, 4 << 20, 1).0, filled(memory, 4 << 20, 2).0);
                placement(without)
                    .exchange(at(&a.region, 0), at(&b.region, 0), 1024, PlacementMethod::Auto)
                    .unwrap();
            }
        }
    };
    work();
    let before = (descriptors(), mappings());
    (0..10).for_each(|_| work());
    // An allocator may keep one or two more mappings.
    assert_eq!(descriptors(), before.0);
    assert!(mappings() <= before.1 + 4, "{} {}", mappings(), before.1);
}
