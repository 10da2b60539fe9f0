//! Places of threads, and the fence that the revoking thread makes for the bias owner.

#[cfg(loom)]
pub use modelled::*;
#[cfg(not(loom))]
pub use real::*;

#[cfg(not(loom))]
mod real {
    use crate::sync::asymmetric_fence::{self, Reach};

    pub const PLACES: usize = crate::sync::PLACES;

    /// Initial number of entries in a row after which a thread becomes the bias owner.
    pub const PATIENCE: u32 = 256;

    #[inline]
    pub fn place() -> Option<u32> {
        crate::sync::place().and_then(|place| u32::try_from(place).ok())
    }

    /// Returns `true` if fences are asymmetric. Otherwise there is no bias owner.
    pub fn is_asymmetric() -> bool {
        asymmetric_fence::are_asymmetric(Reach::Process)
    }

    #[inline]
    pub fn light() {
        asymmetric_fence::light(true);
    }

    pub fn heavy() {
        asymmetric_fence::heavy(Reach::Process);
    }
}

/// In a model, each thread is the bias owner as soon as it enters often. `sync::models` tests
/// that one side may make the other's fence.
#[cfg(loom)]
mod modelled {
    use loom::sync::atomic::fence;
    use std::cell::Cell;
    use std::sync::atomic::Ordering;

    pub const PLACES: usize = 4;
    pub const PATIENCE: u32 = 0;

    // Loom runs all threads of a model on one system thread. So models that run at the same time do
    // not disturb this count.
    std::thread_local! {
        static NEXT: Cell<u32> = const { Cell::new(0) };
    }

    loom::thread_local! {
        static PLACE: u32 = NEXT.replace(NEXT.get().wrapping_add(1)) % PLACES as u32;
    }

    pub fn place() -> Option<u32> {
        PLACE.try_with(|place| *place).ok()
    }

    pub fn is_asymmetric() -> bool {
        true
    }

    pub fn light() {
        fence(Ordering::SeqCst);
    }

    pub fn heavy() {
        fence(Ordering::SeqCst);
    }
}
