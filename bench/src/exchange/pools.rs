//! Pools of memory, and one measured walk through them.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use oikaze::memory::{PageSize, Region, page_size};
use oikaze_os::memory::MemoryError;
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

impl Pools {
    pub fn new(pages: PageSize) -> Result<Self, MemoryError> {
        let full =
            || Region::private_of(POOL, pages).inspect(|region| _ = region.fill(0, POOL as u64, 1));
        let shared = Region::shared_of(POOL, pages)?;
        let _ = shared.fill(0, POOL as u64, 1);
        Ok(Self { a: full()?, b: full()?, empty: Region::private_of(POOL, pages)?, shared })
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
