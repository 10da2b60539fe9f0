//! Tests of exchanged pages. Two regions of one process stand for those of two processes: one hands
//! over a descriptor, the other takes it.

use super::super::super::{MemoryError, PageSize};
use super::*;
use oikaze_protocol::rma::Rights;
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// Number of units of each region, and bytes behind the last whole unit.
const UNITS: usize = 4;
const REST: usize = 5000;

/// Returns a region whose units each begin and end with a word of their own. Returns `None`, with a
/// message, where pages cannot be exchanged.
fn region(which: u64) -> Option<Region> {
    let Some(size) = super::super::huge::huge_page() else {
        crate::testing::skipped("there are no huge pages here");
        return None;
    };
    let region = Region::shared(UNITS * size + REST).unwrap();
    for unit in 0..UNITS as u64 {
        write(&region, unit, which << 32 | unit);
    }
    region.store_u64((UNITS * size) as u64, which).unwrap();
    Some(region)
}

fn ends(region: &Region, unit: u64) -> [u64; 2] {
    let size = region.exchange_unit().unwrap();
    [unit * size, (unit + 1) * size - 8]
}

fn write(region: &Region, unit: u64, word: u64) {
    ends(region, unit).into_iter().for_each(|at| region.store_u64(at, word).unwrap());
}

/// Reads a unit's words as the program sees them and as the runtime does.
fn read(region: &Region, unit: u64) -> u64 {
    let [first, last] = ends(region, unit).map(|at| region.load_u64(at).unwrap());
    let [first_there, last_there] = ends(region, unit).map(|at| {
        region
            .lend(at, 8)
            .unwrap()
            .with_bytes(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap()))
    });
    assert!(first == last, "{first:x} {last:x} {first_there:x} {last_there:x}");
    assert!(first == first_there, "{first:x} {last:x} {first_there:x} {last_there:x}");
    assert!(last == last_there, "{first:x} {last:x} {first_there:x} {last_there:x}");
    first
}

/// Hands pages over as between two processes, through descriptors.
fn handed_over(lock: &PagesLock, offset: u64, len: u64) -> FilePages {
    let pages = lock.pages(offset).unwrap().until(len);
    FilePages::received(pages.file().try_clone_to_owned().unwrap(), pages.offset, pages.len)
        .unwrap()
}

/// Performs both sides of an exchange and returns how much was exchanged.
fn exchange((a, at): (&Region, u64), (b, there): (&Region, u64), len: u64) -> u64 {
    let (one, other) = (a.lock_pages().unwrap(), b.lock_pages().unwrap());
    let first = handed_over(&one, at, len);
    let second = handed_over(&other, there, first.len);
    let len = second.len;
    other.take(there, first.until(len)).unwrap();
    one.take(at, second).unwrap();
    len
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// MEM-20.1: after any exchange, the contents follow in both mappings, and nothing else
    /// changes.
    #[test]
    fn pages_follow_the_model(steps in proptest::collection::vec((0..3_usize, 1..3_usize, 0..UNITS, 0..UNITS, 1..=UNITS), 1..30)) {
        let Some(regions) = [1, 2, 3].map(region).into_iter().collect::<Option<Vec<_>>>() else { return Ok(()) };
        let mut model: Vec<Vec<u64>> = (1..=3).map(|which| (0..UNITS as u64).map(|unit| which << 32 | unit).collect()).collect();
        let size = regions[0].exchange_unit().unwrap();
        for (number, (a, further, from, to, units)) in steps.into_iter().enumerate() {
            let b = (a + further) % 3;
            let mut done = 0;
            let units = units.min(UNITS - from).min(UNITS - to);
            while done < units {
                let place = |region, unit: usize| (region, (unit + done) as u64 * size);
                let len = exchange(place(&regions[a], from), place(&regions[b], to), (units - done) as u64 * size);
                prop_assert!(len > 0 && len.is_multiple_of(size));
                done += (len / size) as usize;
            }
            for unit in 0..units {
                let word = model[a][from + unit];
                model[a][from + unit] = std::mem::replace(&mut model[b][to + unit], word);
            }
            write(&regions[a], from as u64, number as u64);
            model[a][from] = number as u64;
        }
        for (region, words) in regions.iter().zip(&model) {
            let found: Vec<u64> = (0..UNITS as u64).map(|unit| read(region, unit)).collect();
            prop_assert_eq!(&found, words);
        }
        for (region, which) in regions.iter().zip(1..) {
            prop_assert_eq!(region.load_u64(UNITS as u64 * size), Ok(which));
        }
    }
}

/// MEM-20.2: a thread that touches the pages meanwhile sees one content or the other, never
/// anything else, and never faults.
#[test]
fn threads_see_one_or_the_other() {
    const ROUNDS: u64 = 400;
    let (Some(a), Some(b)) = (region(1), region(2)) else { return };
    let size = a.exchange_unit().unwrap();
    let whole = UNITS as u64 * size;
    for (region, which) in [(&a, 1), (&b, 2)] {
        (0..UNITS as u64).for_each(|unit| write(region, unit, which));
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let look = |region: Region| {
            let over = &over;
            move || {
                let (mut seen, mut looks) = ([0_u64; 3], 0_usize);
                while !over.load(Ordering::Relaxed) || looks < 1000 {
                    let word = region
                        .load_u64(ends(&region, (looks % UNITS) as u64)[looks / UNITS % 2])
                        .unwrap();
                    seen[word as usize] += 1;
                    looks += 1;
                }
                seen
            }
        };
        let readers = [threads.spawn(look(a.clone())), threads.spawn(look(b.clone()))];
        for _ in 0..ROUNDS {
            exchange((&a, 0), (&b, 0), whole);
        }
        over.store(true, Ordering::Relaxed);
        for seen in readers.map(|reader| reader.join().unwrap()) {
            assert_eq!(seen[0], 0);
        }
    });
    // The number of exchanges is even.
    assert!((0..UNITS as u64).all(|unit| read(&a, unit) == 1 && read(&b, unit) == 2));
}

/// MEM-20.3: pages that are not whole, not inside, or not what they are said to be change nothing.
#[test]
fn what_does_not_fit_is_not_taken() {
    let (Some(a), Some(b)) = (region(1), region(2)) else { return };
    let size = a.exchange_unit().unwrap();
    let (one, other) = (a.lock_pages().unwrap(), b.lock_pages().unwrap());
    assert!(a.lock_pages().is_none() && a.pages_are_locked());
    let pages = |offset, len| FilePages { offset, len, ..handed_over(&other, 0, size) };
    let last = UNITS as u64 * size;
    for (at, pages) in [
        (size / 2, pages(0, size)),
        (0, pages(4096, size)),
        (0, pages(0, size + 4096)),
        (last, pages(0, size)),
        (size, pages(0, last)),
        (u64::MAX - size + 1, pages(0, size)),
    ] {
        let refused = one.take(at, pages).unwrap_err();
        assert!(
            matches!(&refused, NotTaken::Refused(why) if why.kind() == io::ErrorKind::InvalidInput),
            "{at}: {refused:?}"
        );
    }
    let file = || other.pages(0).unwrap().file().try_clone_to_owned().unwrap();
    for (offset, len) in [(0, 0), (0, last + 3 * size), (last + size, size), (u64::MAX, size)] {
        assert!(FilePages::received(file(), offset, len).is_err(), "{offset} {len}");
    }
    let unsealed =
        memfd_create("unsealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&unsealed, size).unwrap();
    assert!(FilePages::received(unsealed, 0, size).is_err());
    // Sealed, but its pages may be missing when they are touched.
    if let Ok(huge) =
        memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB)
    {
        ftruncate(&huge, size).unwrap();
        fcntl_add_seals(&huge, SealFlags::SHRINK).unwrap();
        assert!(FilePages::received(huge, 0, size).is_err());
    }
    assert!(
        (0..UNITS as u64)
            .all(|unit| read(&a, unit) == 1 << 32 | unit && read(&b, unit) == 2 << 32 | unit)
    );
    drop(one);
    assert!(a.lock_pages().is_some());
}

#[test]
fn memory_whose_pages_cannot_change_place_says_so() {
    let size = super::super::huge::huge_page().unwrap_or(2 << 20);
    let small = Region::shared_of(2 * size, PageSize::Small).unwrap();
    let private = Region::private(2 * size).unwrap();
    assert!([&small, &private].iter().all(|region| region.exchange_unit().is_none()));
    assert!(private.lock_pages().is_none() && !private.pages_are_locked());
    assert!(small.file().is_some());
    small.leave_file();
    assert!(small.file().is_none());
}

/// Each file is kept open once, and consecutive mappings are one.
#[test]
fn what_has_come_home_leaves_nothing_behind() {
    let (Some(a), Some(b)) = (region(1), region(2)) else { return };
    let size = a.exchange_unit().unwrap();
    for unit in 0..UNITS as u64 {
        exchange((&a, unit * size), (&b, unit * size), size);
    }
    let runs = |region: &Region| region.backed().unwrap().runs().len();
    assert_eq!((runs(&a), runs(&b)), (2, 2), "all units, and the rest");
    for unit in (0..UNITS as u64).rev() {
        exchange((&a, unit * size), (&b, unit * size), size);
    }
    assert_eq!((runs(&a), runs(&b)), (1, 1));
    assert!((0..UNITS as u64).all(|unit| read(&a, unit) == 1 << 32 | unit));
}

/// Set in a process that has used up its mappings.
const FULL: &str = "OIKAZE_TEST_MAPPINGS";

/// MEM-20.3: a region that has prepared its place takes pages there, or as many of them as come,
/// however few mappings this process has left. A region that has not prepared takes them, or is
/// refused and keeps its old pages, the same through both mappings. Runs in a process of its own.
#[test]
fn a_place_that_was_prepared_takes_pages_when_there_are_no_mappings_left() {
    if std::env::var_os(FULL).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        let name = "memory::region::file_pages::tests::a_place_that_was_prepared_takes_pages_when_there_are_no_mappings_left";
        let ended = command.args(["--exact", name, "--nocapture"]).env(FULL, "1").output().unwrap();
        let said =
            [ended.stdout, ended.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        assert!(ended.status.success(), "{}: {said:?}", ended.status);
        assert!(said[0].contains("1 passed"), "{}: {said:?}", ended.status);
        return;
    }
    let Some(there) = region(3) else { return };
    let size = there.exchange_unit().unwrap();
    let from = there.lock_pages().unwrap();
    let mut all = Vec::with_capacity(1 << 20);
    for ((free, prepared), units) in (0..8)
        .flat_map(|free| [(free, true), (free, false)])
        .flat_map(|case| [(case, 2), (case, 1)])
    {
        // Free some mappings for the test case.
        all.truncate(all.len().saturating_sub(100));
        let here = region(1).unwrap();
        let (mut lock, came) = (here.lock_pages().unwrap(), handed_over(&from, size, units * size));
        assert!(!prepared || lock.prepare(size, 2 * size));
        use_up_mappings(&mut all);
        all.truncate(all.len() - free);
        let outcome = lock.take(size, came);
        drop(lock);
        let case = (free, prepared, units, &outcome);
        assert!(outcome.is_ok() || !prepared, "{case:?}");
        let taken = if outcome.is_ok() { 1..1 + units } else { 0..0 };
        let expected = [0, 1, 2, 3]
            .map(|unit| if taken.contains(&unit) { 3 << 32 | unit } else { 1 << 32 | unit });
        assert_eq!([0, 1, 2, 3].map(|unit| read(&here, unit)), expected, "{case:?}");
    }
    drop(all);
    // Another place is prepared as well, and given back.
    let here = region(1).unwrap();
    assert!(here.lock_pages().unwrap().prepare(size, 2 * size));
    assert!(here.lock_pages().unwrap().prepare(0, 4 * size));
}

/// Takes as many mappings as the kernel grants, none of which it can join.
fn use_up_mappings(all: &mut Vec<Mapping>) {
    let file = super::super::super::memfd::sparse("oikaze-test", 4096).unwrap();
    while let Ok(one) = Mapping::of_file(file.as_fd(), 4096) {
        assert!(all.len() < all.capacity(), "there is no bound");
        all.push(one);
    }
}

/// MEM-20.3: whichever step fails, the region is as it was, through both mappings. Otherwise the
/// region is known to be torn, and then grants nothing.
#[test]
fn a_region_whose_mappings_disagree_is_known() {
    let mut torn = 0;
    for first in 0..3 {
        for failures in 1..4 {
            let (Some(a), Some(b)) = (region(1), region(2)) else { return };
            let (lock, pages) =
                (a.lock_pages().unwrap(), b.lock_pages().unwrap().pages(0).unwrap());
            let size = a.exchange_unit().unwrap();
            let mut step = 0;
            let outcome = lock.put_behind_by(size, pages.until(size), &mut |mapping, run| {
                step += 1;
                if (first..first + failures).contains(&(step - 1)) {
                    return Err(io::ErrorKind::QuotaExceeded.into());
                }
                let FilePages { file, offset, len } = &run.pages;
                mapping.replace(run.at as usize, file.as_fd(), *offset, *len as usize)
            });
            let mut table = crate::memory::RegionTable::new();
            let registered = table.insert(a.clone(), Rights::ALL);
            let is_torn = matches!(outcome, Err(NotTaken::Torn(_)));
            assert_eq!(a.is_torn(), is_torn, "{first} {failures}");
            assert_eq!(registered.is_err(), is_torn, "{first} {failures}");
            assert_eq!(outcome.is_ok(), first > 1);
            if is_torn {
                torn += 1;
                assert_eq!(registered, Err(MemoryError::Torn));
                assert!(table.insert(a.clone(), Rights::NONE).is_ok(), "of use to its own node");
            } else {
                assert_eq!(read(&a, 1), if outcome.is_ok() { 2 << 32 } else { 1 << 32 | 1 });
            }
        }
    }
    assert_eq!(torn, 2, "the second mapping cannot be replaced, nor the first put back");
}
