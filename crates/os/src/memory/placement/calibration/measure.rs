//! The measurement: each way at two sizes, through memory that was not touched of late, and the line through both.

use super::super::super::huge::huge_page;
use super::super::super::{PageSize, Region, memory_left};
use super::super::mover::Mover;
use super::super::{Pages, copy, install, page_size, retract};
use super::{Calibration, Crossovers};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use rustix::mm::{Advice, madvise};
use std::time::{Duration, Instant};

/// The two sizes.
const SMALL: usize = 32 << 10;
const LARGE: usize = 1 << 20;
/// How often each is tried, each time elsewhere.
const TRIES: usize = 5;
/// Which of them counts, from the quickest on: other programs that compute meanwhile make more than half of them slower, but not by chance
/// quicker.
const COUNTS: usize = 1;
/// Room for a try of each size.
const STRIDE: usize = SMALL + LARGE;
/// Room for all tries of one way.
const SLAB: usize = TRIES * STRIDE;
/// Ways that have a slab of their own in both pools: what one of them has touched is of no use to another, and by the time it comes to the
/// second pass the first has driven it out of the cache.
const SLABS: usize = 4;
const POOL: usize = SLABS * SLAB;
/// Less free memory than this, and nothing is measured.
const ROOM: usize = 16 * POOL;

/// What it costs to bring so many bytes somewhere: a line.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Nanoseconds for the call.
    call: f64,
    /// Nanoseconds for a byte.
    byte: f64,
}

impl Cost {
    fn through(small: Duration, large: Duration) -> Cost {
        let (small, large) = (small.as_nanos() as f64, large.as_nanos() as f64);
        let byte = ((large - small) / (LARGE - SMALL) as f64).max(0.0);
        Cost { call: small - byte * SMALL as f64, byte }
    }

    /// Bytes from which on this is cheaper than `other`, in whole pages.
    fn beats(self, other: Cost) -> Option<usize> {
        if self.byte >= other.byte {
            return (self.call < other.call && self.byte <= other.byte).then(page_size);
        }
        let from = (self.call - other.call) / (other.byte - self.byte);
        Some((from.max(1.0) as usize).next_multiple_of(page_size()))
    }
}

/// Both measurements; `None` if there is no memory for them.
pub(super) fn all(mover: &Mover) -> Option<Calibration> {
    if memory_left().iter().any(|(left, _)| *left < ROOM) {
        return None;
    }
    let pools = Pools::new(mover)?;
    let alone = pools.crossovers();
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return Some(Calibration { alone, beside: alone });
    }
    let (running, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let beside = std::thread::scope(|threads| {
        let busy = || {
            running.store(true, Ordering::Relaxed);
            while !over.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
        };
        let started = std::thread::Builder::new().name("oikaze-measure".into()).spawn_scoped(threads, busy).is_ok();
        // One that has not run yet is on no processor, and interrupts nobody.
        while started && !running.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let beside = if started { pools.crossovers() } else { alone };
        over.store(true, Ordering::Relaxed);
        beside
    });
    Some(Calibration { alone, beside })
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
        // In the order in which they are measured, so that the first has been in the cache longest ago.
        for slab in 0..SLABS {
            a.fill((slab * SLAB) as u64, SLAB as u64, 1).ok()?;
            b.fill((slab * SLAB) as u64, SLAB as u64, 1).ok()?;
        }
        let shared = Region::shared(2 * LARGE).ok()?;
        let huge = match huge_page() {
            Some(size) if size <= POOL => make(size, PageSize::Huge).zip(make(size, PageSize::Huge)),
            _ => None,
        };
        Some(Pools { mover, a, b, shared, huge })
    }

    fn crossovers(&self) -> Crossovers {
        let (a, b) = (start(&self.a), start(&self.b));
        let look = |at, len| read(b, at, len);
        // SAFETY: a walk stays within the two pools, which are private, apart, watched and known to nobody else.
        let copy = walk(0, |at, len| _ = unsafe { copy::copy(b.add(at), a.add(at), len) }, look);
        // SAFETY: as above.
        let exchange = walk(1, |at, len| _ = unsafe { self.mover.exchange(a.add(at), b.add(at), len, false) }, look);
        // SAFETY: as above.
        let by_copy = walk(2, |at, len| _ = unsafe { copy::exchange(a.add(at), b.add(at), len) }, look);
        let moving = self.moving();
        let install = self.installing();
        Crossovers {
            moving: moving.beats(copy),
            taking: exchange.beats(copy),
            exchange: exchange.beats(by_copy),
            install: install.beats(copy),
            huge: self.huge_from(by_copy),
        }
    }

    /// From `a` to `b`, whose pages have been dropped, and back.
    fn moving(&self) -> Cost {
        let (a, b) = (start(&self.a), start(&self.b));
        let before = |at, len| {
            // SAFETY: within `b`, whose bytes are worth nothing.
            let _ = unsafe { madvise(b.add(at).as_ptr().cast(), len, Advice::LinuxDontNeed) };
        };
        // SAFETY: as in `crossovers`.
        let act = |at, len| _ = unsafe { self.mover.carry(b.add(at), a.add(at), len) };
        let cost = |len| {
            typical(3, len, |at| {
                before(at, len);
                let took = timed(|| act(at, len), || read(b, at, len));
                // SAFETY: as above.
                unsafe { self.mover.carry(a.add(at), b.add(at), len) };
                took
            })
        };
        Cost::through(cost(SMALL), cost(LARGE))
    }

    fn installing(&self) -> Cost {
        let view = start(&self.shared);
        let cost = |len: usize| {
            typical(0, len, |_| {
                let (place, pages) = (Pages { region: &self.shared, offset: 0 }, (len / page_size()) as u64);
                let _ = retract(place, (LARGE / page_size()) as u64);
                timed(|| _ = install(place, pages), || read(view, 0, len))
            })
        };
        Cost::through(cost(SMALL), cost(LARGE))
    }

    /// One huge page, beside its copy.
    fn huge_from(&self, by_copy: Cost) -> Option<usize> {
        let (size, (a, b)) = huge_page().zip(self.huge.as_ref())?;
        let (a, b) = (start(a), start(b));
        // SAFETY: two private regions of one huge page each, watched, known to nobody else.
        let act = || _ = unsafe { self.mover.exchange(a, b, size, true) };
        // Touched first, so that the pages are there.
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

/// One word a page is looked at.
fn read(at: NonNull<u8>, first: usize, len: usize) {
    for offset in (first..first + len).step_by(page_size()) {
        // SAFETY: callers stay within a region of ours.
        unsafe { at.add(offset).cast::<u64>().read_volatile() };
    }
}

/// Its cost, at places of its own slab.
fn walk(slab: usize, act: impl Fn(usize, usize), look: impl Fn(usize, usize)) -> Cost {
    let cost = |len| typical(slab, len, |at| timed(|| act(at, len), || look(at, len)));
    Cost::through(cost(SMALL), cost(LARGE))
}

/// What it takes to do something, and to look at it.
fn timed(act: impl FnOnce(), look: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    look();
    begun.elapsed()
}

/// Of tries at the places that a slab has for this size.
fn typical(slab: usize, len: usize, mut one: impl FnMut(usize) -> Duration) -> Duration {
    let first = slab * SLAB + if len == SMALL { LARGE } else { 0 };
    let mut all: [Duration; TRIES] = core::array::from_fn(|index| one(first + index * STRIDE));
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
        assert_eq!(cost(1000.0, 0.01).beats(cost(0.0, 0.11)), Some(10_000_usize.next_multiple_of(page)));
        assert_eq!(cost(0.0, 0.01).beats(cost(1000.0, 0.11)), Some(page));
        assert_eq!(cost(1000.0, 0.11).beats(cost(0.0, 0.11)), None);
        assert_eq!(cost(0.0, 0.11).beats(cost(10.0, 0.11)), Some(page));
        assert_eq!(cost(0.0, 0.2).beats(cost(10.0, 0.11)), None);
        let line = Cost::through(Duration::from_nanos(1000), Duration::from_nanos(1000 + (LARGE - SMALL) as u64));
        assert!((line.byte - 1.0).abs() < 1e-9);
        // A machine that was interrupted: slower for less.
        assert!(Cost::through(Duration::from_nanos(1000), Duration::from_nanos(10)).byte == 0.0);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let Ok(mover) = Mover::open() else { return };
        let begun = Instant::now();
        let found = all(&mover);
        println!("{found:?} in {:?}", begun.elapsed());
        for of in found.iter().flat_map(|found| [found.alone, found.beside]) {
            let sizes = [of.moving, of.taking, of.exchange, of.install, of.huge];
            assert!(sizes.into_iter().flatten().all(|from| from > 0 && from.is_multiple_of(page_size())), "{of:?}");
        }
    }
}
