//! Copies of a peer's memory, and offsets in elements.

use crate::completion::operation::Operation;
use crate::error::{Error, Result};
use crate::memory::range::{OffsetRange, resolve};
use crate::memory::region::{LocalRegion, RegionSlice};
use crate::memory::remote::region::RemoteRegion;
use bytemuck::{NoUninit, Pod};
use oikaze_engine::OperationKind;
use oikaze_os::memory::Region;
use oikaze_protocol::rma::{Combine, Number, Rights};
use std::borrow::Borrow;
use std::fmt;
use std::marker::PhantomData;

impl RemoteRegion {
    /// Returns a copy of `len` bytes from `offset` of the region on, and waits for it.
    ///
    /// If the region is [mapped](RemoteRegion::is_mapped), the calling thread copies the bytes
    /// itself (MEM-18.2). Otherwise memory for the answer is registered for this call, and a
    /// program that reads often registers memory once, and calls [`RemoteRegion::get`].
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let mine = job.publish("numbers", Region::shared(4096)?, Rights::READ)?;
    /// mine.write(8, &7_u64.to_ne_bytes())?;
    /// job.barrier()?;
    /// let there = job.peer((job.rank() + 1) % job.size())?.region("numbers")?;
    /// assert_eq!(there.get_copy(8, 8)?, 7_u64.to_ne_bytes());
    /// assert_eq!(there.get_value::<u64>(8)?, 7);
    /// # job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The bytes lie outside the region; reading is not permitted; the table of regions is full;
    /// the peer is lost; the time limit passed.
    #[track_caller]
    pub fn get_copy(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut copy = vec![0; self.check_inside(offset, len)?];
        self.get_into(offset, &mut copy)?;
        Ok(copy)
    }

    /// Returns a copy of a value at `offset` of the region, as [`RemoteRegion::get_copy`] does.
    ///
    /// # Errors
    /// As [`RemoteRegion::get_copy`].
    #[track_caller]
    pub fn get_value<T: Pod>(&self, offset: u64) -> Result<T> {
        self.check_inside(offset, size_of::<T>())?;
        let mut value = T::zeroed();
        self.get_into(offset, bytemuck::bytes_of_mut(&mut value))?;
        Ok(value)
    }

    /// Writes a value to `offset` of the region, as [`RemoteRegion::put_copy`] does. It is the
    /// counterpart of [`RemoteRegion::get_value`].
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let mine = job.publish("point", Region::shared(4096)?, Rights::READ | Rights::WRITE)?;
    /// job.barrier()?;
    /// let there = job.peer(0)?.region("point")?;
    /// if job.rank() == 0 {
    ///     there.put_value(16, [1.5_f64, 2.5])?.wait()?;
    ///     assert_eq!(there.get_value::<[f64; 2]>(16)?, [1.5, 2.5]);
    /// }
    /// # job.barrier()?;
    /// # drop(mine);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The value is longer than [`COPY_MAX`](super::COPY_MAX) bytes.
    pub fn put_value<T: NoUninit>(&self, offset: u64, value: T) -> Result<Operation<()>> {
        self.put_copy(offset, bytemuck::bytes_of(&value))
    }

    /// Views the region as elements of type `T`, with places in elements instead of bytes.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let region = Region::shared(1000 * size_of::<f64>())?;
    /// let mine = job.publish("field", region, Rights::READ | Rights::WRITE | Rights::ATOMIC)?;
    /// let next = job.peer((job.rank() + 1) % job.size())?.region("field")?;
    /// let there = next.elements::<f64>();
    /// there.put_copy(10, &[1.5, 2.5])?.wait()?;
    /// there.accumulate_copy(11, Sum, &[1.0])?.wait()?;
    /// assert_eq!(there.get(10..12)?, [1.5, 3.5]);
    /// assert_eq!(there.get_value(11)?, 3.5);
    /// # job.barrier()?;
    /// # drop(mine);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn elements<T: Pod>(&self) -> RemoteElements<'_, T> {
        RemoteElements { region: self, of: PhantomData }
    }

    #[track_caller]
    fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<()> {
        if into.is_empty() || self.get_bytes_direct(offset, into) {
            return Ok(());
        }
        let (node, limit) = (&self.peer.node, self.peer.limit);
        let memory = Region::zeroed(into.len())?;
        let local = LocalRegion::new(node, memory, Rights::NONE, None, limit)?;
        self.get(offset, local.all()).wait()?;
        Ok(local.read(0, into)?)
    }

    /// Returns the length of a range that lies in the region. A wrong length takes no memory.
    fn check_inside(&self, offset: u64, len: usize) -> Result<usize> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len() => Ok(len),
            _ => Err(Error::invalid(
                self.what(OperationKind::Get, offset, len as u64).to_string(),
                format!("the region has {} bytes: stay inside", self.len()),
            )),
        }
    }
}

/// View of a peer's region as elements of one type; see [`RemoteRegion::elements`]. Bytes behind
/// the last whole element are not reached.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let mine = job.publish("words", Region::shared(4096)?, Rights::READ)?;
/// let there = job.peer(0)?.region("words")?;
/// assert_eq!(there.elements::<u32>().len(), 1024);
/// # job.barrier()?;
/// # drop(mine);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct RemoteElements<'a, T> {
    region: &'a RemoteRegion,
    of: PhantomData<T>,
}

impl<T> fmt::Debug for RemoteElements<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteElements").field("region", &self.region.name).finish_non_exhaustive()
    }
}

impl<T: Pod> RemoteElements<'_, T> {
    /// Returns the number of whole elements.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.region.len().checked_div(size_of::<T>() as u64).unwrap_or(0)
    }

    /// Returns `true` if the region has no whole element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the offset of an element in bytes. An element far outside the region gets an offset
    /// that no region has.
    #[must_use]
    pub fn offset(&self, element: u64) -> u64 {
        element.saturating_mul(size_of::<T>() as u64)
    }

    /// Returns copies of elements, as [`RemoteRegion::get_copy`] does.
    ///
    /// # Errors
    /// As [`RemoteRegion::get_copy`]; the range ends before it starts.
    pub fn get(&self, elements: impl OffsetRange) -> Result<Vec<T>> {
        let what = || format!("get of elements of a region of node {}", self.region.peer.rank);
        let elements = resolve(elements, self.len(), what)?;
        let (first, last) = (self.offset(elements.start), self.offset(elements.end));
        let len = usize::try_from(last.saturating_sub(first)).unwrap_or(usize::MAX);
        let len = self.region.check_inside(first, len)?;
        let mut copy = vec![T::zeroed(); len.checked_div(size_of::<T>()).unwrap_or(0)];
        self.region.get_into(first, bytemuck::cast_slice_mut(&mut copy))?;
        Ok(copy)
    }

    /// Returns a copy of one element.
    ///
    /// # Errors
    /// As [`RemoteRegion::get_copy`].
    #[track_caller]
    pub fn get_value(&self, element: u64) -> Result<T> {
        self.region.get_value(self.offset(element))
    }

    /// Writes one element.
    ///
    /// # Errors
    /// As [`RemoteRegion::put_value`].
    pub fn put_value(&self, element: u64, value: T) -> Result<Operation<()>> {
        self.region.put_copy(self.offset(element), bytemuck::bytes_of(&value))
    }

    /// Writes a counted slice from an element on, as [`RemoteRegion::put`] does.
    pub fn put(&self, first: u64, from: impl Borrow<RegionSlice>) -> Operation<()> {
        self.region.put(self.offset(first), from)
    }

    /// Writes up to [`COPY_MAX`](super::COPY_MAX) bytes of elements, which are copied before the
    /// call returns.
    ///
    /// # Errors
    /// As [`RemoteRegion::put_copy`].
    pub fn put_copy(&self, first: u64, elements: &[T]) -> Result<Operation<()>> {
        self.region.put_copy(self.offset(first), bytemuck::cast_slice(elements))
    }
}

impl<T: Pod + Number> RemoteElements<'_, T> {
    /// Combines up to [`COPY_MAX`](super::COPY_MAX) bytes of numbers with the elements from `first`
    /// on.
    ///
    /// # Errors
    /// As [`RemoteRegion::accumulate_copy`].
    pub fn accumulate_copy(
        &self,
        first: u64,
        operator: impl Into<Combine>,
        numbers: &[T],
    ) -> Result<Operation<()>> {
        self.region.accumulate_copy(self.offset(first), operator, numbers)
    }
}
