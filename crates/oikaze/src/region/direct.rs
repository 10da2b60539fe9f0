//! Threads that read or write a region by themselves, for an operation that is done when the call returns: the engine knows nothing of them, and
//! the region's end waits for them.
//!
//! Who goes in counts first and looks then; who ends the registration says so first and looks then. Both sequentially consistent, so that one
//! of them sees the other (Dekker's argument).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(super) struct Direct {
    inside: AtomicUsize,
    over: AtomicBool,
}

pub(super) struct Inside<'d>(&'d Direct);

impl Direct {
    /// Unless the registration has ended.
    #[inline]
    pub fn enter(&self) -> Option<Inside<'_>> {
        self.inside.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(self);
        (!self.over.load(Ordering::SeqCst)).then_some(inside)
    }

    /// Nobody gets in any more.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Has it ended, with somebody still inside?
    pub fn is_ending(&self) -> bool {
        self.over.load(Ordering::SeqCst) && self.is_used()
    }

    fn is_used(&self) -> bool {
        self.inside.load(Ordering::SeqCst) != 0
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.inside.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::Direct;

    #[test]
    fn nobody_gets_in_after_the_end_and_who_is_inside_is_seen() {
        let direct = Direct::default();
        let inside = direct.enter().unwrap();
        assert!(direct.is_used());
        direct.end();
        assert!(direct.enter().is_none() && direct.is_used());
        drop(inside);
        assert!(!direct.is_used());
    }
}
