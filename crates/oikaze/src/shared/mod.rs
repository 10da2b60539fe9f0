//! Shared arrays: the same memory on every node, read and written with plain loads and stores.

mod array;
mod builder;
mod guard;
mod lock;

pub use array::{Element, SharedArray};
pub use builder::ArrayBuilder;
pub use guard::{ReadGuard, WriteGuard};
pub use lock::LockGuard;
/// Counters of one shared array on this node, from [`SharedArray::statistics`].
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let array = job.array::<u8>("array", 100)?;
/// assert_eq!(array.statistics().fetched_pages, 0);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::coherence::ArrayStatistics;
/// How transfers of a shared array end at their receiver: the five deliveries of the Wind paper,
/// for experiments. The runtime chooses well without a setting.
///
/// ```
/// use oikaze::shared::Delivery;
/// # fn main() {
/// assert_eq!(Delivery::from_name("direct_map"), Some(Delivery::DirectMap));
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::coherence::Delivery;
/// Assignment of the pages of a shared array to nodes.
///
/// ```
/// use oikaze::shared::Homes;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let dealt = job.array_with_homes::<u8>("dealt", 1 << 20, Homes::Cyclic { pages: 1 })?;
/// assert_eq!(dealt.home_of(0), Some(0));
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::coherence::Homes;

use crate::Result;
use crate::job::Job;
use std::time::Duration;

impl Job {
    /// Makes a shared array of `len` elements under this name of up to 48 bytes. The array has at
    /// most 1 TiB ([`ARRAY_PAGES_MAX`](crate::limits::ARRAY_PAGES_MAX)), and each node is home to
    /// one block of its pages. Collective: all nodes make the same arrays in the same order.
    ///
    /// # Errors
    /// Nodes disagree on name, length, element or homes (the error names them); a node has no
    /// memory for the array (all nodes get the error); a node is lost; a guard of any array of this
    /// node is alive (as for [`Job::barrier`]).
    pub fn array<T: Element>(&self, name: &str, len: usize) -> Result<SharedArray<T>> {
        self.array_with_homes(name, len, Homes::Block)
    }

    /// Makes a shared array as [`Job::array`] does, with the given homes of its pages.
    ///
    /// # Errors
    /// As [`Job::array`].
    pub fn array_with_homes<T: Element>(
        &self,
        name: &str,
        len: usize,
        homes: Homes,
    ) -> Result<SharedArray<T>> {
        self.array_builder(name, len).homes(homes).build()
    }

    /// Returns a builder for a shared array with further settings.
    pub fn array_builder<T: Element>(&self, name: &str, len: usize) -> ArrayBuilder<'_, T> {
        ArrayBuilder::new(self, name, len)
    }

    /// Acquires lock number `lock` (any number) of the job. Guards of other threads may be alive.
    /// Such guards keep the bytes that they have shown until they end.
    ///
    /// # Errors
    /// A node that the lock needs is lost; the time limit passed; a guard that this thread took is
    /// alive.
    pub fn lock(&self, lock: u64) -> Result<LockGuard> {
        LockGuard::acquire(&self.node, lock, self.limit, self.limit)
    }

    /// Acquires a lock as [`Job::lock`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Job::lock`].
    pub fn lock_for(&self, lock: u64, limit: Duration) -> Result<LockGuard> {
        LockGuard::acquire(&self.node, lock, Some(limit), self.limit)
    }
}
