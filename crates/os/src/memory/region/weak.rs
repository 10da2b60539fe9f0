//! Regions that are known to somebody without being kept.

use super::{Inner, Region};
use std::sync::{Arc, Weak};

/// A region for as long as somebody counts it; it stands for no other one afterwards.
#[derive(Clone, Debug)]
pub struct WeakRegion(Weak<Inner>);

impl WeakRegion {
    /// The region, if somebody counts it.
    #[must_use]
    pub fn upgrade(&self) -> Option<Region> {
        self.0.upgrade().map(|inner| Region { inner })
    }

    /// Does it stand for this one's memory?
    #[must_use]
    pub fn is(&self, region: &Region) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&region.inner))
    }
}

impl Region {
    /// To know it without keeping it.
    #[must_use]
    pub fn downgrade(&self) -> WeakRegion {
        WeakRegion(Arc::downgrade(&self.inner))
    }
}
