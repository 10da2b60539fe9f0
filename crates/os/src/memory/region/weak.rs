//! Weak references to regions.

use super::{Inner, Region};
use std::sync::{Arc, Weak};

/// A weak reference to a region. It never refers to another region afterwards.
#[derive(Clone, Debug)]
pub struct WeakRegion(Weak<Inner>);

impl WeakRegion {
    /// Returns the region if a counted handle still exists.
    #[must_use]
    pub fn upgrade(&self) -> Option<Region> {
        self.0.upgrade().map(|inner| Region { inner })
    }

    /// Returns `true` if this refers to the memory of `region`.
    #[must_use]
    pub fn is(&self, region: &Region) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&region.inner))
    }
}

impl Region {
    /// Returns a weak reference to the region.
    #[must_use]
    #[doc(hidden)]
    pub fn downgrade(&self) -> WeakRegion {
        WeakRegion(Arc::downgrade(&self.inner))
    }
}
