//! Shared arrays: the same memory on every node, read and written with plain loads and stores.

pub(crate) mod array;
pub mod block;
pub mod builder;
mod core;
pub(crate) mod element;
mod files;
pub(crate) mod guard;
mod lifetime;
pub(crate) mod lock;
mod npy;
mod part;
mod replace;
mod segment;
mod shape;
mod targets;
pub(crate) mod untyped;

pub use array::SharedArray;
#[doc(hidden)]
pub use element::derive;
pub use element::{Element, ElementField};
pub use guard::{ReadGuard, WriteGuard};
pub use lock::LockGuard;
/// Makes a struct an element of shared arrays. [`trait@Element`] says which structs can be one.
///
/// ```compile_fail
/// use oikaze::Element;
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Padded {
///     small: u8,
///     large: u64, // seven bytes of padding before it
/// }
/// ```
///
/// ```compile_fail
/// use oikaze::Element;
/// #[derive(Clone, Copy, Element)]
/// #[repr(C)]
/// struct Named {
///     name: &'static str, // an address of one node
/// }
/// ```
pub use oikaze_macros::Element;
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
pub use part::Part;
pub use shape::{ElementIndex, Extents, Shape};

use crate::error::{Error, Result};
use crate::job::handle::Job;
use builder::ArrayBuilder;
use oikaze_protocol::coherence::{Homes, LockMode};
use std::time::Duration;

/// Mode of a lock that one thread of one node has at a time.
const ALONE: LockMode = LockMode { reads: false, tries: false };
/// Mode of a lock that any number of threads and nodes have at once.
const READING: LockMode = LockMode { reads: true, tries: false };

impl Job {
    /// Makes a shared array of this shape under this name of up to 48 bytes: a number of elements,
    /// or an array of one to four extents. It has at most 1 TiB
    /// ([`ARRAY_PAGES_MAX`](crate::limits::ARRAY_PAGES_MAX)). Each node is home to one block, of
    /// the pages of an array of one dimension, and otherwise of the indices of the outermost axis.
    /// Collective: all nodes make the same arrays in the same order.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let line = job.array::<u64>("line", 1000)?;
    /// let field = job.array::<f32>("field", [10, 20, 30])?;
    /// assert_eq!((line.len(), field.len()), (1000, 6000));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Nodes disagree on name, shape, element or homes (the error names them); a node has no
    /// memory for the array (all nodes get the error); a node is lost; a guard of any array of this
    /// node is alive (as for [`Job::barrier`]).
    #[track_caller]
    pub fn array<T: Element>(&self, name: &str, shape: impl Shape) -> Result<SharedArray<T>> {
        self.array_builder(name, shape).build()
    }

    /// Makes a shared array as [`Job::array`] does, with the given homes of its pages.
    ///
    /// # Errors
    /// As [`Job::array`].
    #[track_caller]
    pub fn array_with_homes<T: Element>(
        &self,
        name: &str,
        shape: impl Shape,
        homes: Homes,
    ) -> Result<SharedArray<T>> {
        self.array_builder(name, shape).homes(homes).build()
    }

    /// Returns a builder for a shared array with further settings.
    pub fn array_builder<T: Element>(&self, name: &str, shape: impl Shape) -> ArrayBuilder<'_, T> {
        ArrayBuilder::new(self, name, shape)
    }

    /// Acquires lock number `lock` (any number) of the job. Guards of other threads may be alive.
    /// Such guards keep the bytes that they have shown until they end.
    ///
    /// # Errors
    /// A node that the lock needs is lost; the time limit passed; a guard that this thread took is
    /// alive.
    #[track_caller]
    pub fn lock(&self, lock: u64) -> Result<LockGuard> {
        self.wait_for_lock(lock, ALONE, None)
    }

    /// Acquires the lock of this name, as [`Job::lock`] does with [`Job::lock_number`].
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let counts = job.array::<u64>("counts", 8)?;
    /// let held = job.lock_named("counts")?;
    /// counts.write(..)?.fill(1);
    /// held.release()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Job::lock`].
    #[track_caller]
    pub fn lock_named(&self, name: &str) -> Result<LockGuard> {
        self.lock(self.lock_number(name))
    }

    /// Returns the number of the lock of this name, which is 2⁶³ or more and the same on all nodes
    /// and in all languages. Errors and explanations then call the lock so. A node remembers at
    /// most 4096 names. Two names have the same lock with a probability of 2⁻⁶³. A program in which
    /// that happens is right but slower, unless one thread holds both locks at once.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let log = job.lock_number("log");
    /// if let Some(held) = job.try_lock(log)? {
    ///     let error = job.lock(log).map(drop).unwrap_err(); // this thread would wait for itself
    ///     assert!(error.to_string().starts_with("lock \"log\": "));
    ///     held.release()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lock_number(&self, name: &str) -> u64 {
        let number = lock::number_of(name);
        self.node.waits.name_lock(number, name);
        number
    }

    /// Acquires a lock as [`Job::lock`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Job::lock`].
    #[track_caller]
    pub fn lock_for(&self, lock: u64, limit: Duration) -> Result<LockGuard> {
        self.wait_for_lock(lock, ALONE, Some(limit))
    }

    /// Acquires a lock as [`Job::lock`] does, if no other thread or node has it. Returns `None` at
    /// once otherwise, and asks at most one other node. A lock that another node gave back a moment
    /// ago may still count as taken.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let log = job.array::<u64>("log", 1)?;
    /// // Whoever is free writes the log. The others go on with their work.
    /// if let Some(held) = job.try_lock(5)? {
    ///     log.write(0..1)?[0] += 1;
    ///     held.release()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A node that the lock needs is lost; a guard that this thread took is alive; this thread has
    /// the lock already.
    #[track_caller]
    pub fn try_lock(&self, lock: u64) -> Result<Option<LockGuard>> {
        self.lock_in_mode(lock, LockMode { tries: true, ..ALONE }, None)
    }

    /// Waits for a lock as [`Job::lock_for`] does. Returns `None` if the time limit passed. With a
    /// limit of zero, this is [`Job::try_lock`].
    ///
    /// # Errors
    /// As [`Job::try_lock`].
    #[track_caller]
    pub fn try_lock_for(&self, lock: u64, limit: Duration) -> Result<Option<LockGuard>> {
        self.lock_in_mode(lock, LockMode { tries: true, ..ALONE }, Some(limit))
    }

    /// Acquires lock number `lock` for reading. Any number of threads and nodes can have a lock for
    /// reading at once, while none has it by [`Job::lock`]. The caller sees what earlier holders
    /// wrote under [`Job::lock`]. A request that came earlier gets the lock earlier, whichever kind
    /// it is of.
    ///
    /// Oikaze does not prevent writes under a lock for reading. Two holders that write the same
    /// elements race. A node that is lost while it reads breaks no lock.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let prices = job.array::<f64>("prices", 2)?;
    /// if job.rank() == 0 {
    ///     let held = job.lock(5)?;
    ///     prices.write(..)?.copy_from_slice(&[2.0, 3.0]);
    ///     held.release()?;
    /// }
    /// let held = job.read_lock(5)?; // all nodes may be here at once
    /// let sum: f64 = prices.read(..)?.iter().sum();
    /// held.release()?;
    /// assert!(sum == 0.0 || sum == 5.0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Job::lock`].
    #[track_caller]
    pub fn read_lock(&self, lock: u64) -> Result<LockGuard> {
        self.wait_for_lock(lock, READING, None)
    }

    /// Acquires the lock of this name for reading, as [`Job::read_lock`] does with
    /// [`Job::lock_number`].
    ///
    /// # Errors
    /// As [`Job::lock`].
    #[track_caller]
    pub fn read_lock_named(&self, name: &str) -> Result<LockGuard> {
        self.read_lock(self.lock_number(name))
    }

    /// Acquires a lock as [`Job::read_lock`] does, with this time limit.
    ///
    /// # Errors
    /// As [`Job::lock`].
    #[track_caller]
    pub fn read_lock_for(&self, lock: u64, limit: Duration) -> Result<LockGuard> {
        self.wait_for_lock(lock, READING, Some(limit))
    }

    /// Acquires a lock as [`Job::read_lock`] does, if no other thread or node has it by
    /// [`Job::lock`] or waits for it. Returns `None` at once otherwise, as [`Job::try_lock`] does.
    ///
    /// # Errors
    /// As [`Job::try_lock`].
    #[track_caller]
    pub fn try_read_lock(&self, lock: u64) -> Result<Option<LockGuard>> {
        self.lock_in_mode(lock, LockMode { tries: true, ..READING }, None)
    }

    /// Waits for a lock as [`Job::read_lock_for`] does. Returns `None` if the time limit passed.
    /// With a limit of zero, this is [`Job::try_read_lock`].
    ///
    /// # Errors
    /// As [`Job::try_lock`].
    #[track_caller]
    pub fn try_read_lock_for(&self, lock: u64, limit: Duration) -> Result<Option<LockGuard>> {
        self.lock_in_mode(lock, LockMode { tries: true, ..READING }, Some(limit))
    }

    /// Acquires a lock in this mode, which does not try, within `limit` or that of the job.
    #[track_caller]
    fn wait_for_lock(
        &self,
        lock: u64,
        mode: LockMode,
        limit: Option<Duration>,
    ) -> Result<LockGuard> {
        let held = self.lock_in_mode(lock, mode, limit)?;
        // Only a request that tries finds a lock taken.
        held.ok_or_else(|| Error::invalid(self.node.waits.lock_text(lock), "the lock is taken"))
    }
}
