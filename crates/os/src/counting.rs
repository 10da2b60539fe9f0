//! An allocator that counts, so that tests can check how much memory an object keeps, and that a
//! path allocates nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The system's allocator with counters. A test program declares it as its global allocator:
///
/// ```
/// use oikaze_os::counting::Counting;
///
/// #[global_allocator]
/// static HEAP: Counting = Counting::new();
///
/// let before = HEAP.live();
/// let kept = vec![0_u8; 1 << 20];
/// assert!(HEAP.live() - before >= 1 << 20);
/// drop(kept);
/// ```
///
/// The harness of a test program allocates on threads of its own, whenever it starts or ends a
/// test. So one test of several compares [`live_here`](Self::live_here) or
/// [`calls_here`](Self::calls_here).
#[derive(Debug)]
pub struct Counting {
    live: AtomicU64,
    calls: AtomicU64,
    /// Size of the allocations that fail; 0 if none.
    refused: AtomicUsize,
}

thread_local! {
    /// Bytes that this thread has allocated and not freed, and number of its allocations.
    static HERE: Cell<(i64, u64)> = const { Cell::new((0, 0)) };
}

impl Counting {
    /// Creates the allocator with all counters 0.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a static needs a constant")]
    pub const fn new() -> Self {
        Self { live: AtomicU64::new(0), calls: AtomicU64::new(0), refused: AtomicUsize::new(0) }
    }

    /// Makes all later allocations of exactly this size in bytes fail, as if memory were short.
    /// Code that allocates without asking whether it may aborts the process then. 0 ends it.
    pub fn refuse(&self, size: usize) {
        self.refused.store(size, Ordering::Relaxed);
    }

    fn refuses(&self, size: usize) -> bool {
        size > 0 && size == self.refused.load(Ordering::Relaxed)
    }

    /// Returns the bytes that all threads have allocated and not yet freed.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Returns the number of allocations by all threads, reallocations included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Returns the bytes that this thread has allocated, less those that it has freed.
    #[must_use]
    pub fn live_here(&self) -> i64 {
        HERE.get().0
    }

    /// Returns the number of allocations by this thread, reallocations included.
    #[must_use]
    pub fn calls_here(&self) -> u64 {
        HERE.get().1
    }

    fn took(&self, bytes: usize) {
        self.live.fetch_add(bytes as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        // A thread that ends may free and allocate after its variables are gone.
        let _ = HERE.try_with(|here| {
            let (live, calls) = here.get();
            here.set((live + bytes as i64, calls + 1));
        });
    }

    fn freed(&self, bytes: usize) {
        self.live.fetch_sub(bytes as u64, Ordering::Relaxed);
        let _ = HERE.try_with(|here| {
            let (live, calls) = here.get();
            here.set((live - bytes as i64, calls));
        });
    }
}

// SAFETY: all is left to the system's allocator, with the arguments as they came; what is counted
// beside it has no influence. A refused allocation returns null, as `GlobalAlloc` permits.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.refuses(layout.size()) {
            return std::ptr::null_mut();
        }
        self.took(layout.size());
        // SAFETY: the caller keeps `GlobalAlloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.took(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        self.freed(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new: usize) -> *mut u8 {
        self.freed(layout.size());
        self.took(new);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, new) }
    }
}
