//! How threads are told apart, and the fence that a bias owner leaves to who revokes its bias.

#[cfg(loom)]
pub use modelled::*;
#[cfg(not(loom))]
pub use real::*;

#[cfg(not(loom))]
mod real {
    use crate::hazard::fences::{self, Reach};

    pub const PLACES: usize = crate::hazard::PLACES;

    /// Times one after another that a thread must have come often to become the bias owner, at
    /// first.
    pub const PATIENCE: u32 = 256;

    #[inline]
    pub fn place() -> Option<u32> {
        crate::hazard::place().and_then(|place| u32::try_from(place).ok())
    }

    /// There is no bias owner if not.
    pub fn is_asymmetric() -> bool {
        fences::are_asymmetric(Reach::Process)
    }

    #[inline]
    pub fn light() {
        fences::light(true);
    }

    pub fn heavy() {
        fences::heavy(Reach::Process);
    }
}

/// Each thread of a model is the bias owner as soon as it comes often. That one side may make the
/// other's fence is tried in `hazard::models`.
#[cfg(loom)]
mod modelled {
    use loom::sync::atomic::fence;
    use std::cell::Cell;
    use std::sync::atomic::Ordering;

    pub const PLACES: usize = 4;
    pub const PATIENCE: u32 = 0;

    // Loom runs all threads of a model on one of the system's: those of other models, at the same
    // time, do not count.
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
