//! Arrays whose element type is known at run time only, for bindings of other languages. They are
//! the arrays of [`SharedArray`]: nodes in different languages share one array.

mod element;
mod guard;

pub use guard::{PlainMemory, UntypedReadGuard, UntypedWriteGuard};

use super::builder::ArrayBuilder;
use super::core::{ArrayCore, kind_of};
use super::element::ElementType;
use super::shape::Extents;
use crate::error::{Error, Result};
use crate::job::handle::Job;
use crate::shared::block::array_block::ArrayBlock;
use crate::shared::builder::distribution::Distribution;
use crate::tables::element_kind::ElementKind;
use oikaze_os::memory::tracking::{GuardKind, KeptBytes, SharedMemory};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::ArrayStatistics;
use oikaze_protocol::coherence::{Ownership, TargetOp};
use oikaze_protocol::rma::{Accumulation, Combine, Width};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

impl Job {
    /// Returns a builder for a shared array of this shape (one to four axes), whose element type is
    /// known at run time only. [`Job::array`] says what holds for arrays.
    pub fn untyped_array(
        &self,
        name: &str,
        shape: &[usize],
        element: ElementType,
    ) -> UntypedArrayBuilder<'_> {
        ArrayBuilder::with_layout(self, name, shape, element)
    }
}

/// Settings of an array that is about to be made. [`Job::untyped_array`] makes one.
///
/// ```
/// use oikaze::ffi::{ElementKind, UntypedArrayBuilder};
/// use oikaze::shared::builder::Homes;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let element = ElementKind::F32.into();
/// let builder: UntypedArrayBuilder = job.untyped_array("field", &[100, 20], element);
/// let field = builder.homes(Homes::Cyclic { pages: 1 }).build_untyped()?;
/// assert_eq!((field.len(), field.element().size()), (2000, 4));
/// # Ok(())
/// # }
/// ```
pub type UntypedArrayBuilder<'a> = ArrayBuilder<'a, ElementType>;

impl UntypedArrayBuilder<'_> {
    /// Makes the array. Collective, as [`Job::array`].
    ///
    /// # Errors
    /// As [`ArrayBuilder::build`]; or the shape has no axis or more than four.
    pub fn build_untyped(self) -> Result<UntypedArray> {
        Ok(UntypedArray { array: Arc::new(self.declare()?) })
    }
}

/// An array that all nodes of a job share, of elements whose type is known at run time only.
/// [`SharedArray`] says what holds for arrays; methods have the names that they have there.
///
/// ```
/// use oikaze::ffi::{ElementKind, UntypedArray};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let builder = job.untyped_array("field", &[10], ElementKind::F64.into());
/// let array: UntypedArray = builder.build_untyped()?;
/// array.fill(&1.5_f64.to_ne_bytes())?;
/// assert_eq!(array.get(9..10)?, 1.5_f64.to_ne_bytes());
/// # Ok(())
/// # }
/// ```
pub struct UntypedArray {
    array: Arc<ArrayCore>,
}

impl fmt::Debug for UntypedArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntypedArray")
            .field("name", &self.name())
            .field("shape", &self.shape())
            .finish_non_exhaustive()
    }
}

impl UntypedArray {
    /// Returns the array's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.array.name
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.array.len()
    }

    /// Returns `true` if there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of elements along each axis.
    #[must_use]
    pub fn shape(&self) -> Vec<usize> {
        self.array.shape().as_slice().to_vec()
    }

    /// Returns the element type.
    #[must_use]
    pub fn element(&self) -> &ElementType {
        &self.array.settings.element
    }

    /// Returns the bytes from one index of each axis to the next one.
    #[must_use]
    pub fn strides(&self) -> Vec<usize> {
        strides(&self.array)
    }

    /// Does what [`SharedArray::home_range`] does.
    #[must_use]
    pub fn home_range(&self, rank: Rank) -> Range<usize> {
        self.array.home_range(rank)
    }

    /// As [`SharedArray::home_block`], as a range for each axis.
    #[must_use]
    pub fn home_block(&self, rank: Rank) -> Vec<Range<usize>> {
        ranges(&self.array.home_block(rank))
    }

    /// As [`SharedArray::home_blocks`], each as a range for each axis.
    #[must_use]
    pub fn home_blocks(&self, rank: Rank) -> Vec<Vec<Range<usize>>> {
        self.array.home_blocks(rank).iter().map(ranges).collect()
    }

    /// Does what [`SharedArray::home_of`] does.
    #[must_use]
    pub fn home_of(&self, index: &[usize]) -> Option<Rank> {
        Some(self.array.home_of(self.array.shape().position(index)?))
    }

    /// Does what [`SharedArray::statistics`] does.
    #[must_use]
    pub fn statistics(&self) -> ArrayStatistics {
        self.array.statistics()
    }

    /// Returns the address of the elements, for plain loads and stores without a guard. Its pages
    /// are tracked from then on, as for [`SharedArray::write_lazily`]: a load traps where a page is
    /// not valid here and waits for it, and the first store to a page between two barriers traps.
    /// The program's synchronisation keeps two nodes from touching an element at the same time if
    /// one of them writes it.
    ///
    /// # Errors
    /// A page was lost with its home, or this process is a child of fork. Or all nodes map the
    /// memory, and a guard of a node in Rust is alive, which would see the stores.
    pub fn plain(&self) -> Result<PlainMemory> {
        let array = &self.array;
        array.check_lazy(std::slice::from_ref(&(0..array.len())))?;
        array.make_plain();
        let memory: &Arc<SharedMemory> = &array.memory;
        let address = memory.plain_address()?;
        let len = array.len().saturating_mul(array.element_size());
        Ok(PlainMemory::new(KeptBytes::all_of(memory), address, len))
    }

    /// Does what [`SharedArray::why_not_shared`] does.
    #[must_use]
    pub fn why_not_shared(&self) -> Option<&str> {
        self.array.why_not_shared()
    }

    /// Checks a part that a program gave as one range for each axis.
    fn block(&self, part: &[Range<usize>]) -> Result<ArrayBlock> {
        self.array.block_of(part)
    }

    /// Returns a guard of a block to read, as [`SharedArray::read`].
    ///
    /// # Errors
    /// As [`SharedArray::read`].
    pub fn read(&self, part: &[Range<usize>]) -> Result<UntypedReadGuard> {
        let (array, block) = (&self.array, self.block(part)?);
        let rows = block.rows();
        array.make_readable(&rows)?;
        let lent = array.memory.lend(&array.rows_as::<u8>(&rows), GuardKind::Read)?;
        Ok(UntypedReadGuard::new(Arc::clone(array), lent, block))
    }

    /// Returns a guard of a block to write, as [`SharedArray::write`].
    ///
    /// # Errors
    /// As [`SharedArray::write`].
    pub fn write(&self, part: &[Range<usize>]) -> Result<UntypedWriteGuard> {
        self.write_as(part, Ownership::Owned, |_| Ok(())).map(|(guard, ())| guard)
    }

    /// Returns a guard of a block in which only elements that change count as written, as
    /// [`SharedArray::write_merged`].
    ///
    /// # Errors
    /// As [`SharedArray::write`].
    pub fn write_merged(&self, part: &[Range<usize>]) -> Result<UntypedWriteGuard> {
        self.write_as(part, Ownership::Merged, |_| Ok(())).map(|(guard, ())| guard)
    }

    /// Returns a guard as [`UntypedArray::write`], or as [`UntypedArray::write_merged`] if `merged`
    /// is set, and its [memory](UntypedWriteGuard::memory). After an error, nothing of the block
    /// counts as written.
    ///
    /// # Errors
    /// As [`UntypedArray::write`] and [`UntypedWriteGuard::memory`].
    pub fn write_with_memory(
        &self,
        part: &[Range<usize>],
        merged: bool,
    ) -> Result<(UntypedWriteGuard, PlainMemory)> {
        let ownership = if merged { Ownership::Merged } else { Ownership::Owned };
        self.write_as(part, ownership, UntypedWriteGuard::memory)
    }

    /// Returns a guard, and what `take` takes from the guard before its bytes count as owned.
    fn write_as<T>(
        &self,
        part: &[Range<usize>],
        ownership: Ownership,
        take: impl FnOnce(&UntypedWriteGuard) -> Result<T>,
    ) -> Result<(UntypedWriteGuard, T)> {
        let (array, block) = (&self.array, self.block(part)?);
        let rows = block.rows();
        rows.iter().try_for_each(|row| array.check_not_lost(row))?;
        let write = array.begin_write(&rows, ownership)?;
        let lent = array.memory.lend(&array.rows_as::<u8>(&rows), kind_of(ownership));
        let lent = lent.inspect_err(|_| array.abandon_write(write))?;
        let is_owner = ownership == Ownership::Owned;
        let guard = UntypedWriteGuard::new(Arc::clone(array), lent, block, write, is_owner);
        let taken = match take(&guard) {
            Ok(taken) => taken,
            Err(error) => {
                guard.abandon();
                return Err(error);
            }
        };
        array.note_owned(&rows, ownership);
        Ok((guard, taken))
    }

    /// Returns a guard of a block to read, whose pages come when they are touched, as
    /// [`SharedArray::read_lazily`].
    ///
    /// # Errors
    /// As [`SharedArray::read_lazily`].
    pub fn read_lazily(&self, part: &[Range<usize>]) -> Result<UntypedReadGuard> {
        let (array, block) = (&self.array, self.block(part)?);
        let rows = block.rows();
        array.check_lazy(&rows)?;
        let lent = array.memory.lend(&array.rows_as::<u8>(&rows), GuardKind::Read)?;
        Ok(UntypedReadGuard::new(Arc::clone(array), lent, block))
    }

    /// Returns a guard of a block to write, whose pages come when they are touched, as
    /// [`SharedArray::write_lazily`]. Other nodes may write other elements of the block.
    ///
    /// # Errors
    /// As [`SharedArray::write_lazily`].
    pub fn write_lazily(&self, part: &[Range<usize>]) -> Result<UntypedWriteGuard> {
        let (array, block) = (&self.array, self.block(part)?);
        let rows = block.rows();
        array.check_lazy(&rows)?;
        array.make_plain();
        let lent = array.memory.lend(&array.rows_as::<u8>(&rows), GuardKind::Merge)?;
        Ok(UntypedWriteGuard::new(Arc::clone(array), lent, block, None, false))
    }

    /// Does what [`SharedArray::prefetch`] does.
    ///
    /// # Errors
    /// The block is out of bounds.
    pub fn prefetch(&self, part: &[Range<usize>]) -> Result<()> {
        self.array.prefetch(&self.block(part)?.rows())
    }

    /// Does what [`SharedArray::subscribe`] does.
    ///
    /// # Errors
    /// The block is out of bounds.
    pub fn subscribe(&self, part: &[Range<usize>]) -> Result<()> {
        self.array.change_subscription(&self.block(part)?.rows(), true)
    }

    /// Does what [`SharedArray::unsubscribe`] does.
    ///
    /// # Errors
    /// The block is out of bounds.
    pub fn unsubscribe(&self, part: &[Range<usize>]) -> Result<()> {
        self.array.change_subscription(&self.block(part)?.rows(), false)
    }

    /// Does what [`SharedArray::halo`] does.
    ///
    /// # Errors
    /// The block is out of bounds.
    pub fn halo(&self, part: &[Range<usize>], n: usize) -> Result<()> {
        self.array.halo(&self.block(part)?, n)
    }

    /// Gives all elements the value of these bytes, as [`SharedArray::fill`].
    ///
    /// # Errors
    /// As [`SharedArray::fill`]; or the value is not as long as an element.
    pub fn fill(&self, value: &[u8]) -> Result<()> {
        self.check_len("fill", value.len() == self.array.element_size(), value.len())?;
        self.array.fill(value)
    }

    /// Frees the array on all nodes, as [`SharedArray::free`]. Addresses that [`Self::plain`]
    /// returned show the last bytes of this node afterwards.
    ///
    /// # Errors
    /// As [`SharedArray::free`].
    pub fn free(&self) -> Result<()> {
        self.array.free()
    }

    /// Does what [`SharedArray::resize`] does.
    ///
    /// # Errors
    /// As [`SharedArray::resize`].
    pub fn resize(&mut self, shape: &[usize]) -> Result<()> {
        let extents = Extents::of_slice(shape).map_err(|why| self.invalid("resize", why))?;
        self.array = Arc::new(self.array.resized(extents)?);
        Ok(())
    }

    /// Does what [`SharedArray::redistribute`] does.
    ///
    /// # Errors
    /// As [`SharedArray::redistribute`].
    pub fn redistribute(&mut self, distribution: Distribution) -> Result<()> {
        self.array = Arc::new(self.array.redistributed(distribution)?);
        Ok(())
    }

    /// Writes the bytes of elements at their homes, from element `first` in row-major order on, as
    /// [`SharedArray::put`].
    ///
    /// # Errors
    /// As [`SharedArray::put`]; or the bytes are not a whole number of elements.
    pub fn put(&self, first: usize, elements: &[u8]) -> Result<()> {
        self.check_whole("put", elements.len())?;
        self.array.change_many("put", first, TargetOp::Write, elements)
    }

    /// Returns the bytes of elements as they are at their homes, as [`SharedArray::get`].
    ///
    /// # Errors
    /// As [`SharedArray::get`].
    pub fn get(&self, elements: Range<usize>) -> Result<Vec<u8>> {
        let len = elements.len().saturating_mul(self.array.element_size());
        let mut got = Vec::with_capacity(if elements.end <= self.len() { len } else { 0 });
        self.array.get_parts(elements, |bytes| {
            got.extend_from_slice(bytes);
            Ok(())
        })?;
        Ok(got)
    }

    /// Combines an element with a number at its home, and returns the element's bytes from before,
    /// as [`SharedArray::fetch_combine`].
    ///
    /// # Errors
    /// As [`SharedArray::fetch_combine`]; or elements are not numbers of 32 or 64 bits, or the
    /// number is not as long as an element.
    pub fn fetch_combine(
        &self,
        index: &[usize],
        combine: Combine,
        number: &[u8],
    ) -> Result<Vec<u8>> {
        let op = TargetOp::Combine(self.accumulation("fetch_combine", combine)?);
        self.check_len("fetch_combine", number.len() == self.array.element_size(), number.len())?;
        self.change("fetch_combine", index, op, number)
    }

    /// Replaces an element by `new` at its home if its bits are those of `expected`, and returns
    /// the element's bytes from before, as [`SharedArray::compare_exchange`].
    ///
    /// # Errors
    /// As [`Self::fetch_combine`].
    pub fn compare_exchange(
        &self,
        index: &[usize],
        expected: &[u8],
        new: &[u8],
    ) -> Result<Vec<u8>> {
        let what = "compare_exchange";
        self.accumulation(what, Combine::Sum)?;
        for value in [expected, new] {
            self.check_len(what, value.len() == self.array.element_size(), value.len())?;
        }
        let width = if self.array.element_size() == 4 { Width::W32 } else { Width::W64 };
        self.change(what, index, TargetOp::CompareExchange(width), &[expected, new].concat())
    }

    /// Combines numbers with the elements from `first` in row-major order on, as
    /// [`SharedArray::accumulate`].
    ///
    /// # Errors
    /// As [`SharedArray::accumulate`]; or elements are not numbers of 32 or 64 bits, or the bytes
    /// are not a whole number of elements.
    pub fn accumulate(&self, first: usize, combine: Combine, numbers: &[u8]) -> Result<()> {
        let op = TargetOp::Accumulate(self.accumulation("accumulate", combine)?);
        self.check_whole("accumulate", numbers.len())?;
        self.array.change_many("accumulate", first, op, numbers)
    }

    /// Does what [`SharedArray::save`] does.
    ///
    /// # Errors
    /// As [`SharedArray::save`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.array.save(path.as_ref())
    }

    /// Does what [`SharedArray::load`] does.
    ///
    /// # Errors
    /// As [`SharedArray::load`].
    pub fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        self.array.load(path.as_ref(), |_| Ok(()))
    }

    fn change(
        &self,
        doing: &str,
        index: &[usize],
        op: TargetOp,
        operands: &[u8],
    ) -> Result<Vec<u8>> {
        let place = self.array.shape().position(index);
        self.array.change_place(doing, &index, place, op, operands)
    }

    fn accumulation(&self, doing: &str, combine: Combine) -> Result<Accumulation> {
        let number = self.element().kind().and_then(ElementKind::number);
        let element = number.ok_or_else(|| {
            let why = format!("its elements are not of {}", ElementKind::names_of_numbers());
            self.invalid(doing, why)
        })?;
        Ok(Accumulation { element, combine })
    }

    fn check_whole(&self, doing: &str, len: usize) -> Result<()> {
        self.check_len(doing, len.is_multiple_of(self.array.element_size()), len)
    }

    fn check_len(&self, doing: &str, fits: bool, len: usize) -> Result<()> {
        if fits {
            return Ok(());
        }
        let why =
            format!("{len} bytes are given for elements of {} bytes", self.array.element_size());
        Err(self.invalid(doing, why))
    }

    fn invalid(&self, doing: &str, why: String) -> Error {
        Error::invalid(format!("{doing} array \"{}\"", self.name()), why)
    }
}

fn ranges(block: &ArrayBlock) -> Vec<Range<usize>> {
    (0..block.dimensions()).map(|axis| block.range(axis)).collect()
}

fn strides(array: &ArrayCore) -> Vec<usize> {
    let extents = array.shape();
    (0..extents.dimensions()).map(|axis| extents.stride(axis) * array.element_size()).collect()
}
