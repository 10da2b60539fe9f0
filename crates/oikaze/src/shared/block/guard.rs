//! Guards over rectangular blocks of a shared array.

use super::array_block::ArrayBlock;
use crate::error::Result;
use crate::shared::core::{ArrayCore, kind_of};
use crate::shared::element::Element;
use oikaze_os::memory::tracking as os;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{AXES_MAX, Ownership, WriteId};
use std::fmt;
use std::ops::{Index, IndexMut, Range};

/// Guard of a block that may be read. It is indexed by the indices of the array, as
/// `guard[[i, j, k]]`. [`ReadGuard`](crate::shared::ReadGuard) says what holds while a guard is
/// alive.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let grid = job.array::<f32>("grid", [8, 8, 8])?;
/// let mine = grid.home_block(job.rank());
/// let halo = grid.read(mine.grow(1))?;
/// let mut sum = 0.0;
/// for i in mine.range(0) {
///     for j in mine.range(1) {
///         sum += halo.row([i, j]).iter().sum::<f32>() + halo[[i, j, 0]];
///     }
/// }
/// assert_eq!(sum, 0.0);
/// # Ok(())
/// # }
/// ```
///
/// Indexing panics outside the block, as indexing a slice does. [`get`](Self::get) does not.
pub struct BlockReadGuard<'a, T> {
    array: &'a ArrayCore,
    block: ArrayBlock,
    /// Number of elements of each row of the guard.
    run: usize,
    guard: os::ReadRows<'a, T>,
}

/// Guard of a block that may be written. It is indexed by the indices of the array, as
/// `guard[[i, j, k]]`. [`WriteGuard`](crate::shared::WriteGuard) says what holds while a guard is
/// alive.
/// The guard owns the bytes of its block alone, and not the bytes between its rows.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let grid = job.array::<u32>("grid", [64, 64])?;
/// let n = job.size() as usize;
/// let columns = job.rank() as usize * 64 / n..(job.rank() as usize + 1) * 64 / n;
/// let mut guard = grid.write([0..64, columns.clone()])?; // other nodes write the other columns
/// for i in 0..64 {
///     for j in columns.clone() {
///         guard[[i, j]] = (i * j) as u32;
///     }
/// }
/// drop(guard);
/// job.barrier()?;
/// assert_eq!(grid.read(grid.whole())?[[7, 9]], 63);
/// # Ok(())
/// # }
/// ```
///
/// Indexing panics outside the block, as indexing a slice does. [`get_mut`](Self::get_mut) does
/// not.
pub struct BlockWriteGuard<'a, T: Element> {
    array: &'a ArrayCore,
    block: ArrayBlock,
    run: usize,
    guard: os::WriteRows<'a, T>,
    write: Option<WriteId>,
    push: Vec<Rank>,
    is_owner: bool,
}

/// Row and place in the row of an element, where all rows have `run` elements.
fn place(block: &ArrayBlock, run: usize, index: &[usize]) -> Option<(usize, usize)> {
    let position = block.position(index)?;
    if position < run { Some((0, position)) } else { Some((position / run, position % run)) }
}

/// Row and places in the row of the innermost axis, for an index along all other axes.
fn row_place(block: &ArrayBlock, run: usize, outer: &[usize]) -> Option<(usize, Range<usize>)> {
    let inner = block.range(outer.len());
    let mut index = [0; AXES_MAX];
    index.get_mut(..outer.len())?.copy_from_slice(outer);
    *index.get_mut(outer.len())? = inner.start;
    let (row, start) = place(block, run, index.get(..=outer.len())?)?;
    Some((row, start..start + inner.len()))
}

/// Ends an index as that of a slice ends.
#[cold]
#[track_caller]
#[allow(clippy::panic)]
fn outside(index: &[usize], block: &ArrayBlock) -> ! {
    panic!("index {index:?} lies outside the guard's block {block:?}")
}

impl<'a, T: Element> BlockReadGuard<'a, T> {
    /// Returns the block that the guard covers.
    #[must_use]
    pub fn block(&self) -> ArrayBlock {
        self.block
    }

    /// Returns an element, or `None` outside the block.
    #[must_use]
    pub fn get<const N: usize>(&self, index: [usize; N]) -> Option<&T> {
        let (row, place) = place(&self.block, self.run, &index)?;
        self.guard.rows().get(row)?.get(place)
    }

    /// Returns the elements along the innermost axis, for an index along all other axes.
    ///
    /// # Panics
    /// The index lies outside the block.
    #[must_use]
    #[track_caller]
    pub fn row<const N: usize>(&self, outer: [usize; N]) -> &[T] {
        let found = row_place(&self.block, self.run, &outer);
        let row = found.and_then(|(row, places)| self.guard.rows().get(row)?.get(places));
        row.unwrap_or_else(|| outside(&outer, &self.block))
    }

    /// Returns all elements as one slice, if they lie side by side, as those of a slab do.
    #[must_use]
    pub fn as_slice(&self) -> Option<&[T]> {
        match self.guard.rows() {
            [] => Some(&[]),
            [row] => Some(row),
            _ => None,
        }
    }

    /// Iterates over the elements in row-major order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.guard.rows().iter().flat_map(|row| row.iter())
    }

    /// Copies the elements in row-major order.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        self.guard.rows().concat()
    }

    /// Returns the rows of elements that lie side by side, in row-major order.
    pub(crate) fn slices(&self) -> &[&[T]] {
        self.guard.rows()
    }

    /// Ends the guard, as [`ReadGuard::release`](crate::shared::ReadGuard::release).
    ///
    /// # Errors
    /// A page was lost with its home, and the guard has shown old bytes of the page.
    pub fn release(self) -> Result<()> {
        let lost = self.guard.lost_page();
        lost.map_or(Ok(()), |lost| Err(self.array.lost("give back a read guard", lost)))
    }
}

impl<'a, T: Element> BlockWriteGuard<'a, T> {
    /// Returns the block that the guard covers.
    #[must_use]
    pub fn block(&self) -> ArrayBlock {
        self.block
    }

    /// Returns an element, or `None` outside the block.
    #[must_use]
    pub fn get<const N: usize>(&self, index: [usize; N]) -> Option<&T> {
        let (row, place) = place(&self.block, self.run, &index)?;
        self.guard.row(row)?.get(place)
    }

    /// Returns an element to write, or `None` outside the block.
    #[must_use]
    pub fn get_mut<const N: usize>(&mut self, index: [usize; N]) -> Option<&mut T> {
        let (row, place) = place(&self.block, self.run, &index)?;
        self.guard.rows_mut().get_mut(row)?.get_mut(place)
    }

    /// Returns the elements along the innermost axis, for an index along all other axes.
    ///
    /// # Panics
    /// The index lies outside the block.
    #[must_use]
    #[track_caller]
    pub fn row<const N: usize>(&self, outer: [usize; N]) -> &[T] {
        let found = row_place(&self.block, self.run, &outer);
        let row = found.and_then(|(row, places)| self.guard.row(row)?.get(places));
        row.unwrap_or_else(|| outside(&outer, &self.block))
    }

    /// Returns the elements along the innermost axis to write.
    ///
    /// # Panics
    /// The index lies outside the block.
    #[must_use]
    #[track_caller]
    pub fn row_mut<const N: usize>(&mut self, outer: [usize; N]) -> &mut [T] {
        let found = row_place(&self.block, self.run, &outer);
        let block = self.block;
        let rows = self.guard.rows_mut();
        let row = found.and_then(|(row, places)| rows.get_mut(row)?.get_mut(places));
        row.unwrap_or_else(|| outside(&outer, &block))
    }

    /// Returns all elements as one slice, if they lie side by side, as those of a slab do.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        match self.guard.rows_mut() {
            [] => Some(&mut []),
            [row] => Some(row),
            _ => None,
        }
    }

    /// Iterates over the elements in row-major order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> + use<'_, 'a, T> {
        self.guard.rows_mut().iter_mut().flat_map(|row| row.iter_mut())
    }

    /// Returns the rows of elements that lie side by side, in row-major order.
    pub(crate) fn slices_mut(&mut self) -> &mut [&'a mut [T]] {
        self.guard.rows_mut()
    }

    /// Gives all elements one value.
    pub fn fill(&mut self, value: T) {
        self.guard.rows_mut().iter_mut().for_each(|row| row.fill(value));
    }

    /// Copies elements in row-major order to the block.
    ///
    /// # Errors
    /// There are not as many elements as the block has. Nothing is copied then.
    pub fn copy_from_slice(&mut self, elements: &[T]) -> Result<()> {
        if elements.len() != self.block.len() {
            return Err(crate::error::Error::invalid(
                format!("copy {} elements to block {:?}", elements.len(), self.block),
                format!("the block has {} elements", self.block.len()),
            ));
        }
        let rows = self.guard.rows_mut().iter_mut();
        rows.zip(elements.chunks(self.run.max(1)))
            .for_each(|(row, from)| row.copy_from_slice(from));
        Ok(())
    }

    /// Sends what this guard writes to these nodes with the next barrier, as
    /// [`WriteGuard::push_to`](crate::shared::WriteGuard::push_to) does.
    ///
    /// # Errors
    /// A rank is not in the job, or the guard is one of
    /// [`SharedArray::write_merged`](crate::shared::SharedArray::write_merged).
    pub fn push_to(&mut self, ranks: &[Rank]) -> Result<()> {
        self.array.check_push(ranks, self.is_owner)?;
        self.push.extend_from_slice(ranks);
        Ok(())
    }

    /// Ends the guard, as [`WriteGuard::release`](crate::shared::WriteGuard::release).
    ///
    /// # Errors
    /// As [`WriteGuard::release`](crate::shared::WriteGuard::release).
    pub fn release(mut self) -> Result<()> {
        let array = self.array;
        if let Some(lost) = self.guard.lost_page() {
            return Err(array.lost("give back a write guard", lost));
        }
        self.guard.end().map_or(Ok(()), |race| Err(race.into()))
    }
}

impl<T: Element, const N: usize> Index<[usize; N]> for BlockReadGuard<'_, T> {
    type Output = T;
    #[track_caller]
    fn index(&self, index: [usize; N]) -> &T {
        self.get(index).unwrap_or_else(|| outside(&index, &self.block))
    }
}

impl<T: Element, const N: usize> Index<[usize; N]> for BlockWriteGuard<'_, T> {
    type Output = T;
    #[track_caller]
    fn index(&self, index: [usize; N]) -> &T {
        self.get(index).unwrap_or_else(|| outside(&index, &self.block))
    }
}

impl<T: Element, const N: usize> IndexMut<[usize; N]> for BlockWriteGuard<'_, T> {
    #[track_caller]
    fn index_mut(&mut self, index: [usize; N]) -> &mut T {
        let block = self.block;
        self.get_mut(index).unwrap_or_else(|| outside(&index, &block))
    }
}

impl<T: Element> Drop for BlockWriteGuard<'_, T> {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.array.end_write(write, &self.push);
        }
    }
}

// Shows only the block: printing the elements would touch pages, which may wait for another node.
impl<T> fmt::Debug for BlockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockReadGuard").field("block", &self.block).finish_non_exhaustive()
    }
}

impl<T: Element> fmt::Debug for BlockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockWriteGuard").field("block", &self.block).finish_non_exhaustive()
    }
}

/// Guards of blocks. `T` is the type of the elements, or a byte.
impl ArrayCore {
    #[track_caller]
    pub(crate) fn read_block<T: Element>(
        &self,
        block: ArrayBlock,
    ) -> Result<BlockReadGuard<'_, T>> {
        self.check_block(&block)?;
        let rows = block.rows();
        self.make_readable(&rows)?;
        let rows = self.rows_as::<T>(&rows);
        let run = rows.first().map_or(0, Range::len);
        Ok(BlockReadGuard { array: self, block, run, guard: self.memory.rows(&rows)? })
    }

    #[track_caller]
    pub(crate) fn write_block<T: Element>(
        &self,
        block: ArrayBlock,
        ownership: Ownership,
    ) -> Result<BlockWriteGuard<'_, T>> {
        self.check_block(&block)?;
        let rows = block.rows();
        rows.iter().try_for_each(|row| self.check_not_lost(row))?;
        let write = self.begin_write(&rows, ownership)?;
        let lent = self.rows_as::<T>(&rows);
        let run = lent.first().map_or(0, Range::len);
        let guard = self.memory.rows_mut(&lent, kind_of(ownership));
        let guard = guard.inspect_err(|_| self.abandon_write(write))?;
        self.note_owned(&rows, ownership);
        Ok(BlockWriteGuard {
            array: self,
            block,
            run,
            guard,
            write,
            push: Vec::new(),
            is_owner: ownership == Ownership::Owned,
        })
    }
}
