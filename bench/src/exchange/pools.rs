//! Pools of memory, and one measured walk through them.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::error::{Error, Tried};
use oikaze::memory::{PageSize, Region, page_size};
use oikaze_os::memory::placement::{
    PageRange, Placement, PlacementError, PlacementMethod, install, retract,
};

/// Bytes of a pool, which exceed any cache.
pub const POOL: usize = 512 << 20;
/// Maximum number of operations of a walk.
const MOST: usize = 2000;

/// Operation that is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Copy,
    Exchange,
    Move,
    Install,
    Auto,
}

/// Pools of one size of pages.
pub struct Pools {
    /// Two pools that are full.
    a: Region,
    b: Region,
    /// A pool that is empty.
    empty: Region,
    shared: Region,
}

/// Checks that a full pool consists of huge pages, whatever the machine's settings promise.
fn check_huge(pool: &Region) -> Result<(), Error> {
    let maps = std::fs::read_to_string("/proc/self/smaps").tried("reading /proc/self/smaps")?;
    match huge_bytes(&maps, pool.view_ptr().addr()) {
        Some(bytes) if bytes >= POOL => Ok(()),
        found => Err(Error::new(format!(
            "making a pool of {} MiB of huge pages: the machine gave {} MiB of them; free memory, and write madvise to \
             /sys/kernel/mm/transparent_hugepage/enabled (`oikaze doctor` says what there is)",
            POOL >> 20,
            found.unwrap_or(0) >> 20
        ))),
    }
}

/// Returns the bytes of huge pages in the mapping that begins at an address, by the text of
/// `/proc/self/smaps`. `None` if no mapping begins there.
fn huge_bytes(maps: &str, address: usize) -> Option<usize> {
    let start = format!("{address:x}-");
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
    lines.next()?;
    let of_mapping = lines
        .take_while(|line| line.split_whitespace().next().is_some_and(|word| word.ends_with(':')));
    let of_huge = of_mapping.filter_map(|line| {
        let kib = ["AnonHugePages:", "ShmemPmdMapped:"]
            .iter()
            .find_map(|name| line.strip_prefix(name))?;
        kib.trim().strip_suffix(" kB")?.parse::<usize>().ok()
    });
    Some(of_huge.sum::<usize>() << 10)
}

impl Pools {
    /// Makes pools of pages of this size.
    ///
    /// # Errors
    /// There is no memory, or the machine gives small pages where huge ones are wanted.
    pub fn new(pages: PageSize) -> Result<Self, Error> {
        let failed = |why| Error::new(format!("making pools: {why}"));
        let unfilled = |why| Error::new(format!("filling pools: {why}"));
        let private = || Region::private_of(POOL, pages).map_err(failed);
        let full = |region: Region| -> Result<Region, Error> {
            region.fill(0, POOL as u64, 1).map_err(unfilled)?;
            if pages == PageSize::Huge {
                check_huge(&region)?;
            }
            Ok(region)
        };
        let shared = full(Region::shared_of(POOL, pages).map_err(failed)?)?;
        Ok(Self { a: full(private()?)?, b: full(private()?)?, empty: private()?, shared })
    }

    /// Returns the microseconds of one operation of `size` bytes and the read that follows it. The
    /// value is the mean of a walk through up to `volume` bytes.
    ///
    /// # Errors
    /// The placement fails.
    pub fn measure(
        &self,
        act: Act,
        size: usize,
        volume: usize,
        full: bool,
    ) -> Result<f64, PlacementError> {
        let operations = (volume / size).clamp(1, MOST);
        // Spreads operations over the whole pool. If there is room between their places, each copy
        // uses places that no other operation has just brought into a cache.
        let stride = POOL / operations / size * size;
        let shift = if act == Act::Copy { stride / 2 / size * size } else { 0 };
        if act == Act::Install {
            retract(PageRange { region: &self.shared, offset: 0 }, (POOL / page_size()) as u64)?;
        }
        let begun = Instant::now();
        for operation in 0..operations {
            let offset = (operation * stride + shift) as u64;
            look(self.one(act, offset, size)?, offset, size, full);
        }
        let took = begun.elapsed();
        if act == Act::Move {
            // Moves the pages back, so that the place is empty again.
            for operation in 0..operations {
                let offset = (operation * stride) as u64;
                carry(&self.empty, &self.a, offset, size, PlacementMethod::Move)?;
            }
        }
        Ok(took.as_secs_f64() * 1e6 / operations as f64)
    }

    /// Runs one operation. Returns the region to read afterwards.
    fn one(&self, act: Act, offset: u64, size: usize) -> Result<&Region, PlacementError> {
        let pages = (size / page_size()) as u64;
        let (a, b) = (PageRange { region: &self.a, offset }, PageRange { region: &self.b, offset });
        match act {
            Act::Copy => {
                carry(&self.a, &self.b, offset, size, PlacementMethod::Copy).map(|()| &self.b)
            }
            Act::Auto => {
                carry(&self.a, &self.b, offset, size, PlacementMethod::Auto).map(|()| &self.b)
            }
            Act::Move => carry(&self.a, &self.empty, offset, size, PlacementMethod::Move)
                .map(|()| &self.empty),
            Act::Exchange => Placement::of_this_process()
                .exchange(a, b, pages, PlacementMethod::Move)
                .map(|_| &self.b),
            Act::Install => {
                install(PageRange { region: &self.shared, offset }, pages).map(|()| &self.shared)
            }
        }
    }
}

fn carry(
    from: &Region,
    to: &Region,
    offset: u64,
    size: usize,
    way: PlacementMethod,
) -> Result<(), PlacementError> {
    let (from, to) = (PageRange { region: from, offset }, PageRange { region: to, offset });
    Placement::of_this_process().transfer(from, to, (size / page_size()) as u64, way).map(drop)
}

/// Reads one word per page, or all bytes.
fn look(region: &Region, offset: u64, size: usize, full: bool) {
    let mut bytes = [0; 4096];
    let (first, end) = (offset as usize, offset as usize + size);
    if full {
        for at in (first..end).step_by(bytes.len()) {
            _ = region.read(at as u64, &mut bytes);
            black_box(&mut bytes);
        }
    } else {
        for at in (first..end).step_by(page_size()) {
            _ = black_box(region.load_u64(at as u64));
        }
    }
}

/// Thread of this process that computes on the other core until this value is dropped.
pub struct Busy {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Busy {
    pub fn start() -> std::io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let compute = move || {
            let _ = oikaze_os::cpu::pin_to_core(1);
            let mut sum = 0_u64;
            while !seen.load(Ordering::Relaxed) {
                sum = black_box(sum.wrapping_add(1));
            }
        };
        let thread = std::thread::Builder::new().name("busy".into()).spawn(compute)?;
        Ok(Self { over, thread: Some(thread) })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
