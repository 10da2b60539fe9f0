//! The measurement: each way at two sizes, in memory that was not touched recently, and the line
//! through both.

use super::super::super::huge::huge_page;
use super::super::super::{PageSize, Region, memory_left};
use super::super::mover::Mover;
use super::super::{PageRange, copy, install, page_size, retract};
use super::{Calibration, Crossovers};
use crate::cpu::{Topology, pin_to_core};
use crate::memory::placement::scratch::CHUNK;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::mm::{Advice, madvise};
use std::time::{Duration, Instant};

/// The two sizes in bytes (an exchange is measured at `SMALL` and a chunk).
const SMALL: usize = 32 << 10;
const LARGE: usize = 1 << 20;
/// Size of a cache line in bytes.
const CACHE_LINE: usize = 64;
/// Number of tries of each measurement, each in other memory.
const TRIES: usize = 5;
/// Index of the try that counts, from the quickest on. Other programs that compute meanwhile slow
/// down more than half of the tries, but none becomes quicker by chance.
const COUNTS: usize = 1;
/// Bytes for one try of each size.
const STRIDE: usize = SMALL + LARGE;
/// Bytes for all tries of one way, in whole chunks.
const SLAB: usize = (TRIES * STRIDE).next_multiple_of(CHUNK);
/// Slab of both pools that is copied over, and used for moves after that has been measured. Each
/// way has its own slab, so that it does not profit from what another has touched.
const COPIED: usize = 0;
/// Slab that is exchanged by moves.
const EXCHANGED: usize = 1;
/// Slab that is exchanged by copies.
const EXCHANGED_BY_COPY: usize = 2;
const POOL: usize = 3 * SLAB;
/// Minimum free memory in bytes for a measurement.
const ROOM: usize = 16 * POOL;

/// Cost of bringing bytes to their place, as a line.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Nanoseconds per call.
    call: f64,
    /// Nanoseconds per byte.
    byte: f64,
}

impl Cost {
    /// Returns the line through two sizes and their times.
    fn through(
        (small, took_small): (usize, Duration),
        (large, took_large): (usize, Duration),
    ) -> Cost {
        let (took_small, took_large) = (took_small.as_nanos() as f64, took_large.as_nanos() as f64);
        let byte = ((took_large - took_small) / (large - small) as f64).max(0.0);
        Cost { call: took_small - byte * small as f64, byte }
    }

    /// Returns the size in bytes, in whole pages, from which on this is cheaper than `other`.
    fn beats(self, other: Cost) -> Option<usize> {
        if self.byte >= other.byte {
            return (self.call < other.call && self.byte <= other.byte).then(page_size);
        }
        let from = (self.call - other.call) / (other.byte - self.byte);
        Some((from.max(1.0) as usize).next_multiple_of(page_size()))
    }
}

/// Runs both measurements. Returns `None` if there is no memory for them.
pub(super) fn all(mover: &Mover) -> Option<Calibration> {
    if memory_left().iter().any(|(left, _)| *left < ROOM) {
        return None;
    }
    let pools = Pools::new(mover)?;
    // All memory is slower the first time, and pages that move for the first time take the kernel
    // half as long again. Programs reuse theirs, so these results do not count.
    let _ = (pools.copies(), pools.exchanging(SMALL), pools.exchanging(CHUNK));
    // Measured once: a thread that computes makes no copy dearer.
    let copies = pools.copies();
    let alone = pools.crossovers(copies);
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Some(Calibration { alone, beside: alone });
    }
    let (running, over) = (AtomicBool::new(false), AtomicBool::new(false));
    // On this thread's processor, the busy thread would be interrupted by nothing.
    let here = rustix::thread::sched_getcpu();
    let beside = std::thread::scope(|threads| {
        let busy = || {
            let another = || Topology::detect().ok()?.cpus.into_iter().find(|cpu| *cpu != here);
            let _ = another().map(pin_to_core);
            running.store(true, Ordering::Relaxed);
            while !over.load(Ordering::Relaxed) {
                std::hint::black_box(());
            }
        };
        let _inherited = crate::processes::signals::SignalsBlocked::begin();
        let started = std::thread::Builder::new()
            .name("oikaze-measure".into())
            .spawn_scoped(threads, busy)
            .is_ok();
        // A thread that has not run yet is on no processor, so nothing would interrupt it.
        while started && !running.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let beside = if started { pools.crossovers(copies) } else { alone };
        over.store(true, Ordering::Relaxed);
        beside
    });
    Some(Calibration { alone, beside })
}

/// Costs of copying.
#[derive(Clone, Copy, Debug)]
struct Copies {
    /// Cost of copying one content over the other.
    over: Cost,
    /// Cost of exchanging both contents.
    exchange: Cost,
}

struct Pools<'m> {
    mover: &'m Mover,
    a: Region,
    b: Region,
    shared: Region,
    huge: Option<(Region, Region)>,
}

impl<'m> Pools<'m> {
    fn new(mover: &'m Mover) -> Option<Pools<'m>> {
        let make = |len, pages| {
            let region = Region::private_of(len, pages).ok()?;
            let (memory, watched) = region.private_memory()?;
            mover.watch(memory, watched).then_some(region)
        };
        let (a, b) = (make(POOL, PageSize::Small)?, make(POOL, PageSize::Small)?);
        a.fill(0, POOL as u64, 1).ok()?;
        b.fill(0, POOL as u64, 1).ok()?;
        let shared = Region::shared(2 * LARGE).ok()?;
        let huge = match huge_page() {
            Some(size) if size <= POOL => {
                make(size, PageSize::Huge).zip(make(size, PageSize::Huge))
            }
            _ => None,
        };
        Some(Pools { mover, a, b, shared, huge })
    }

    /// Evicts one line every `step` bytes from the caches, which may be larger than the pools. Only
    /// x86-64 lets programs do that.
    fn evict(&self, at: usize, len: usize, step: usize) {
        #[cfg(target_arch = "x86_64")]
        for line in (at..at + len).step_by(step) {
            // SAFETY: callers stay within the pools; no bytes are changed.
            unsafe {
                core::arch::x86_64::_mm_clflush(start(&self.a).as_ptr().add(line));
                core::arch::x86_64::_mm_clflush(start(&self.b).as_ptr().add(line));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (at, len, step);
    }

    fn copies(&self) -> Copies {
        let (a, b) = (start(&self.a), start(&self.b));
        // Evict what is copied, and leave modified lines that must be written back first, as in a
        // program that copies much.
        for slab in [COPIED, EXCHANGED_BY_COPY] {
            self.evict(slab * SLAB, SLAB, CACHE_LINE);
        }
        for pool in [&self.a, &self.b] {
            let _ = pool.fill((EXCHANGED * SLAB) as u64, SLAB as u64, 1);
        }
        let walk = |slab, act: &dyn Fn(usize, usize)| {
            let cost = |len| typical(slab, len, |at| timed(|| act(at, len), || read(b, at, len)));
            Cost::through((SMALL, cost(SMALL)), (LARGE, cost(LARGE)))
        };
        // SAFETY: a walk stays within the two pools, which are private, apart, watched and known to
        // no other code.
        let over = walk(COPIED, &|at, len| _ = unsafe { copy::copy(b.add(at), a.add(at), len) });
        let exchange = walk(EXCHANGED_BY_COPY, &|at, len| {
            // SAFETY: as above.
            _ = unsafe { copy::exchange(a.add(at), b.add(at), len) }
        });
        Copies { over, exchange }
    }

    fn crossovers(&self, copies: Copies) -> Crossovers {
        // Beside another thread, a call may cost as much as a copy of `LARGE`, which would hide the
        // cost per byte.
        let exchange =
            Cost::through((SMALL, self.exchanging(SMALL)), (CHUNK, self.exchanging(CHUNK)));
        let moving = self.moving();
        let install = self.installing();
        Crossovers {
            moving: moving.beats(copies.over),
            taking: exchange.beats(copies.over),
            exchange: exchange.beats(copies.exchange),
            install: install.beats(copies.over),
            huge: self.huge_from(copies.exchange),
        }
    }

    fn exchanging(&self, len: usize) -> Duration {
        let (a, b) = (start(&self.a), start(&self.b));
        // SAFETY: as in `copies`.
        let act = |at| _ = unsafe { self.mover.exchange(a.add(at), b.add(at), len, false) };
        typical(EXCHANGED, len, |at| {
            // Evict the words that `read` loads.
            self.evict(at, len, page_size());
            timed(|| act(at), || read(b, at, len))
        })
    }

    /// Moves from `a` to `b`, whose pages have been dropped, and back.
    fn moving(&self) -> Cost {
        let (a, b) = (start(&self.a), start(&self.b));
        let before = |at, len| {
            // SAFETY: within `b`, whose content is not needed.
            let _ = unsafe { madvise(b.add(at).as_ptr().cast(), len, Advice::LinuxDontNeed) };
        };
        // SAFETY: as in `copies`.
        let act = |at, len| _ = unsafe { self.mover.carry(b.add(at), a.add(at), len) };
        let cost = |len| {
            typical(COPIED, len, |at| {
                before(at, len);
                let took = timed(|| act(at, len), || read(b, at, len));
                // SAFETY: as above.
                unsafe { self.mover.carry(a.add(at), b.add(at), len) };
                took
            })
        };
        Cost::through((SMALL, cost(SMALL)), (LARGE, cost(LARGE)))
    }

    fn installing(&self) -> Cost {
        let view = start(&self.shared);
        let cost = |len: usize| {
            typical(0, len, |_| {
                let (place, pages) =
                    (PageRange { region: &self.shared, offset: 0 }, (len / page_size()) as u64);
                let _ = retract(place, (LARGE / page_size()) as u64);
                timed(|| _ = install(place, pages), || read(view, 0, len))
            })
        };
        Cost::through((SMALL, cost(SMALL)), (LARGE, cost(LARGE)))
    }

    /// Compares one huge page's move with its copy.
    fn huge_from(&self, by_copy: Cost) -> Option<usize> {
        let (size, (a, b)) = huge_page().zip(self.huge.as_ref())?;
        let (a, b) = (start(a), start(b));
        // SAFETY: two private regions of one huge page each, watched, known to no other code.
        let act = || _ = unsafe { self.mover.exchange(a, b, size, true) };
        // Touch the pages first, so that they are present.
        let took = typical(0, 0, |_| {
            // SAFETY: as above.
            unsafe { (a.write_volatile(1), b.write_volatile(2)) };
            timed(act, || read(b, 0, size))
        });
        ((took.as_nanos() as f64) < by_copy.call + by_copy.byte * size as f64).then_some(size)
    }
}

fn start(region: &Region) -> NonNull<u8> {
    NonNull::new(region.view_ptr()).unwrap_or(NonNull::dangling())
}

/// Reads one word per page.
fn read(at: NonNull<u8>, first: usize, len: usize) {
    for offset in (first..first + len).step_by(page_size()) {
        // SAFETY: callers stay within a region of ours.
        unsafe { at.add(offset).cast::<u64>().read_volatile() };
    }
}

/// Returns the time to run `act` and then `look`.
fn timed(act: impl FnOnce(), look: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    look();
    begun.elapsed()
}

/// Returns the typical time of tries at the places that a slab has for this size. There are fewer
/// places for a chunk, and they are reused.
fn typical(slab: usize, len: usize, mut one: impl FnMut(usize) -> Duration) -> Duration {
    let place = |index| match len {
        CHUNK => index * CHUNK % SLAB,
        SMALL => LARGE + index * STRIDE,
        _ => index * STRIDE,
    };
    let mut all: [Duration; TRIES] = core::array::from_fn(|index| one(slab * SLAB + place(index)));
    all.sort_unstable();
    all[COUNTS]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(call: f64, byte: f64) -> Cost {
        Cost { call, byte }
    }

    #[test]
    fn lines_cross_where_they_should() {
        let page = page_size();
        assert_eq!(
            cost(1000.0, 0.01).beats(cost(0.0, 0.11)),
            Some(10_000_usize.next_multiple_of(page))
        );
        assert_eq!(cost(0.0, 0.01).beats(cost(1000.0, 0.11)), Some(page));
        assert_eq!(cost(1000.0, 0.11).beats(cost(0.0, 0.11)), None);
        assert_eq!(cost(0.0, 0.11).beats(cost(10.0, 0.11)), Some(page));
        assert_eq!(cost(0.0, 0.2).beats(cost(10.0, 0.11)), None);
        let after = |nanos| Duration::from_nanos(nanos);
        let line =
            Cost::through((SMALL, after(1000)), (LARGE, after(1000 + (LARGE - SMALL) as u64)));
        assert!((line.byte - 1.0).abs() < 1e-9);
        // An interrupted measurement: slower for less.
        assert!(Cost::through((SMALL, after(1000)), (LARGE, after(10))).byte == 0.0);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let Ok(mover) = Mover::open() else { return };
        let begun = Instant::now();
        let found = all(&mover);
        println!("{found:?} in {:?}", begun.elapsed());
        for of in found.iter().flat_map(|found| [found.alone, found.beside]) {
            let sizes = [of.moving, of.taking, of.exchange, of.install, of.huge];
            assert!(
                sizes
                    .into_iter()
                    .flatten()
                    .all(|from| from > 0 && from.is_multiple_of(page_size())),
                "{of:?}"
            );
        }
    }
}
