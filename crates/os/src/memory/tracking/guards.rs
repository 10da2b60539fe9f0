//! Guards, which lend an array's elements to threads of this process.

use std::any::TypeId;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::panic::Location;
use std::sync::Arc;

use bytemuck::{CheckedBitPattern, NoUninit};

use super::error::SharedError;
use super::hold::{GuardHold, WantedGuard};
use super::others::GuardKind;
use super::private_copy::PrivateCopy;
use super::shared_memory::SharedMemory;
use oikaze_protocol::coherence::Access;
use oikaze_protocol::limits::PAGE;

/// Ends what a guard holds when dropped.
struct Loan<'a> {
    memory: &'a SharedMemory,
    hold: GuardHold,
}

impl Loan<'_> {
    fn lost_page(&self) -> Option<(u64, u32)> {
        self.memory.lost_page(&self.hold.bytes)
    }

    /// Returns the address at which the guard shows its first byte.
    fn address(&self) -> usize {
        self.memory.shown_at(&self.hold, self.hold.bytes.start)
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.memory.drop_hold(&mut self.hold);
    }
}

/// Returns the access of a guard.
fn access_of(kind: GuardKind) -> Access {
    if kind == GuardKind::Read { Access::Read } else { Access::Write }
}

/// Read access to elements of a shared array.
pub struct ReadGuard<'a, T> {
    elements: &'a [T],
    loan: Loan<'a>,
}

/// Read and write access to elements of a shared array.
pub struct WriteGuard<'a, T> {
    elements: &'a mut [T],
    loan: Loan<'a>,
}

impl<T> ReadGuard<'_, T> {
    /// Returns a page of this guard that was lost with its home, and the home: see
    /// [`SharedMemory::lost_page`].
    #[must_use]
    pub fn lost_page(&self) -> Option<(u64, u32)> {
        self.loan.lost_page()
    }
}

impl<T> WriteGuard<'_, T> {
    /// Ends the guard, which has no elements from then on. Returns the race that it has found, if
    /// any (COH-16.7).
    #[must_use]
    pub fn end(&mut self) -> Option<SharedError> {
        self.elements = &mut [];
        self.loan.memory.end_hold(&mut self.loan.hold)
    }

    /// Returns a page of this guard that was lost with its home, and the home: see
    /// [`SharedMemory::lost_page`].
    #[must_use]
    pub fn lost_page(&self) -> Option<(u64, u32)> {
        self.loan.lost_page()
    }
}

impl<T> Deref for ReadGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T> Deref for WriteGuard<'_, T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<T> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        self.elements
    }
}

// Shows only the length: printing the elements would touch pages, which may wait for another node.
impl<T> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadGuard").field("len", &self.elements.len()).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteGuard").field("len", &self.elements.len()).finish_non_exhaustive()
    }
}

impl SharedMemory {
    fn element_bytes<T>(&self, elements: &Range<usize>) -> Result<Range<usize>, SharedError> {
        let size = size_of::<T>();
        let refuse = |why: String| {
            SharedError::invalid(
                format!(
                    "elements {}..{} of {} in array {:?}",
                    elements.start,
                    elements.end,
                    std::any::type_name::<T>(),
                    self.name()
                ),
                why,
                "Ask for elements the array has.",
            )
        };
        if size == 0 || align_of::<T>() > PAGE {
            return Err(refuse(
                "elements of this type have no bytes, or an alignment beyond a page".into(),
            ));
        }
        if elements.start > elements.end {
            return Err(refuse("the range ends before it starts".into()));
        }
        match elements.end.checked_mul(size) {
            Some(end) if end <= self.bytes() => Ok(elements.start * size..end),
            _ => Err(refuse(format!("the array has {} of them", self.bytes() / size))),
        }
    }

    /// Lends elements for reading. A touch of an invalid page waits for its home.
    ///
    /// # Errors
    /// Outside the array, or a live guard of this process writes some of them. Or an element is not
    /// a valid `T`.
    #[track_caller]
    pub fn slice<T: CheckedBitPattern + 'static>(
        &self,
        elements: Range<usize>,
    ) -> Result<ReadGuard<'_, T>, SharedError> {
        let loan = self.lend_range::<T>(&elements, GuardKind::Read, Location::caller())?;
        let first = loan.address();
        // SAFETY: inside the view or the guard's copy, which live as long as the loan; aligned,
        // since the view starts on a page, a copy at the same place in a page, and `T`'s size is a
        // multiple of its alignment; `checked` has seen that all bits are a `T`. No guard of this
        // process writes here, no byte that another node sends gets here before the loan has ended
        // (registry, COH-3.9), and no node that maps the memory stores here (COH-16.6, 16.8).
        let elements = unsafe {
            self.checked::<T>(first, &elements)?;
            std::slice::from_raw_parts(first as *const T, elements.len())
        };
        Ok(ReadGuard { elements, loan })
    }

    /// Lends elements for reading and writing. With [`GuardKind::Merge`], other nodes that map the
    /// memory may write other elements of the range meanwhile.
    ///
    /// # Errors
    /// Outside the array; a live guard of this process covers some of them; a guard of a node that
    /// maps the memory is in the way; an element is not a valid `T`.
    #[track_caller]
    pub fn slice_mut<T: CheckedBitPattern + NoUninit + 'static>(
        &self,
        elements: Range<usize>,
        kind: GuardKind,
    ) -> Result<WriteGuard<'_, T>, SharedError> {
        let loan = self.lend_range::<T>(&elements, kind, Location::caller())?;
        let first = loan.address();
        // SAFETY: as in `slice`, and the registry gives these bytes to this guard alone.
        let elements = unsafe {
            self.checked::<T>(first, &elements)?;
            std::slice::from_raw_parts_mut(first as *mut T, elements.len())
        };
        Ok(WriteGuard { elements, loan })
    }

    /// Lends a range of elements.
    #[inline]
    fn lend_range<T>(
        &self,
        elements: &Range<usize>,
        kind: GuardKind,
        taken_at: &'static Location<'static>,
    ) -> Result<Loan<'_>, SharedError> {
        let hull = self.element_bytes::<T>(elements)?;
        self.expect_touches(&hull, access_of(kind))?;
        let (rows, taken_at) = (Vec::new(), Some(taken_at));
        let hold = self.hold(WantedGuard { hull, rows, kind, lends: true, taken_at })?;
        Ok(Loan { memory: self, hold })
    }

    /// Checks that the bits of lent elements, from the address `first` on, are of type `T`. Other
    /// nodes may have sent any bits.
    ///
    /// # Safety
    /// The elements must be in the view, aligned, and lent to the caller.
    unsafe fn checked<T: CheckedBitPattern + 'static>(
        &self,
        first: usize,
        elements: &Range<usize>,
    ) -> Result<(), SharedError> {
        // A type that is its own `Bits` takes any bits.
        if TypeId::of::<T>() == TypeId::of::<T::Bits>() {
            return Ok(());
        }
        // SAFETY: `T` and `T::Bits` have one layout, and the caller lends the elements.
        let bits = unsafe { std::slice::from_raw_parts(first as *const T::Bits, elements.len()) };
        match bits.iter().position(|bits| !T::is_valid_bit_pattern(bits)) {
            None => Ok(()),
            Some(bad) => Err(SharedError::invalid(
                format!("element {} of array {:?}", elements.start + bad, self.name()),
                format!("its bits are not a valid {}", std::any::type_name::<T>()),
                "Only a broken program can have written them; look at what the nodes write.",
            )),
        }
    }

    /// Returns the bytes of rows of elements, and all bytes from the first one to the last one.
    fn row_bytes<T: CheckedBitPattern + 'static>(
        &self,
        rows: &[Range<usize>],
    ) -> Result<(Range<usize>, Vec<Range<usize>>), SharedError> {
        let bytes = rows.iter().map(|row| self.element_bytes::<T>(row));
        let bytes = bytes.collect::<Result<Vec<_>, _>>()?;
        if bytes.windows(2).any(|pair| matches!(pair, [one, next] if one.end > next.start)) {
            return Err(SharedError::invalid(
                format!("rows of array {:?}", self.name()),
                "they are not in order and disjoint",
                "Sort the rows.",
            ));
        }
        let start = bytes.first().map_or(0, |row| row.start);
        Ok((start..bytes.last().map_or(start, |row| row.end), bytes))
    }

    /// Begins a guard of rows of elements, which are in order and disjoint.
    fn hold_rows<T: CheckedBitPattern + 'static>(
        &self,
        rows: &[Range<usize>],
        kind: GuardKind,
        lends: bool,
        taken_at: Option<&'static Location<'static>>,
    ) -> Result<GuardHold, SharedError> {
        let (hull, rows) = self.row_bytes::<T>(rows)?;
        for row in &rows {
            self.expect_touches(row, access_of(kind))?;
        }
        self.hold(WantedGuard { hull, rows, kind, lends, taken_at })
    }

    /// Lends rows of elements, which are in order and disjoint. Returns the address of each row.
    /// The bits there are of type `T`. Errors name the line `taken_at`.
    fn lend_rows<T: CheckedBitPattern + 'static>(
        &self,
        rows: &[Range<usize>],
        kind: GuardKind,
        taken_at: Option<&'static Location<'static>>,
    ) -> Result<(Loan<'_>, Vec<usize>), SharedError> {
        let hold = self.hold_rows::<T>(rows, kind, true, taken_at)?;
        let loan = Loan { memory: self, hold };
        let address = |row: &Range<usize>| self.shown_at(&loan.hold, row.start * size_of::<T>());
        let addresses: Vec<usize> = rows.iter().map(address).collect();
        for (first, elements) in addresses.iter().zip(rows) {
            // SAFETY: inside what the guard shows and aligned, as in `slice`; the loan covers all
            // rows.
            unsafe { self.checked::<T>(*first, elements)? };
        }
        Ok((loan, addresses))
    }

    /// Lends several rows of elements for reading. The rows are in order and disjoint.
    ///
    /// # Errors
    /// As [`slice`](Self::slice).
    #[track_caller]
    pub fn rows<T: CheckedBitPattern + 'static>(
        &self,
        rows: &[Range<usize>],
    ) -> Result<ReadRows<'_, T>, SharedError> {
        let (loan, addresses) =
            self.lend_rows::<T>(rows, GuardKind::Read, Some(Location::caller()))?;
        let slice = |(first, elements): (usize, &Range<usize>)| {
            // SAFETY: as in `slice`, for each row; the loan covers all of them.
            unsafe { std::slice::from_raw_parts(first as *const T, elements.len()) }
        };
        Ok(ReadRows { rows: addresses.into_iter().zip(rows).map(slice).collect(), loan })
    }

    /// Lends several rows of elements for reading and writing, as [`slice_mut`](Self::slice_mut).
    /// The rows are in order and disjoint, and those of a block of the array.
    ///
    /// # Errors
    /// As [`slice_mut`](Self::slice_mut).
    #[track_caller]
    pub fn rows_mut<T: CheckedBitPattern + NoUninit + 'static>(
        &self,
        rows: &[Range<usize>],
        kind: GuardKind,
    ) -> Result<WriteRows<'_, T>, SharedError> {
        let (loan, addresses) = self.lend_rows::<T>(rows, kind, Some(Location::caller()))?;
        let slice = |(first, elements): (usize, &Range<usize>)| {
            // SAFETY: as in `slice_mut`, for each row; the rows are disjoint.
            unsafe { std::slice::from_raw_parts_mut(first as *mut T, elements.len()) }
        };
        Ok(WriteRows { rows: addresses.into_iter().zip(rows).map(slice).collect(), loan })
    }
}

/// Bytes that are lent by their address, to a caller whose language has no references. The rules
/// are those of the other guards.
pub struct LentBytes {
    memory: Arc<SharedMemory>,
    hold: GuardHold,
}

/// Keeps the memory mapped that a guard has lent by its address.
#[derive(Clone)]
pub struct KeptBytes {
    _memory: Arc<SharedMemory>,
    _copy: Option<Arc<PrivateCopy>>,
}

impl LentBytes {
    /// Returns the address of the first byte that is lent.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.memory.shown_at(&self.hold, self.hold.bytes.start) as *mut u8
    }

    /// Keeps the memory mapped, also after the end of the guard.
    #[must_use]
    pub fn keep(&self) -> KeptBytes {
        KeptBytes { _memory: Arc::clone(&self.memory), _copy: self.hold.copy.clone() }
    }

    /// Marks the array, as [`SharedMemory::mark`], because the program may store at the address
    /// after the end of the guard. Stores into a private copy are nobody else's.
    ///
    /// # Errors
    /// As [`SharedMemory::mark`].
    pub fn mark(&self) -> Result<(), SharedError> {
        if self.hold.copy.is_some() { Ok(()) } else { self.memory.mark() }
    }

    /// As [`ReadGuard::lost_page`], of all pages from the first row to the last one.
    #[must_use]
    pub fn lost_page(&self) -> Option<(u64, u32)> {
        self.memory.lost_page(&self.hold.bytes)
    }

    /// Ends the loan, as [`WriteGuard::end`] does.
    #[must_use]
    pub fn end(&mut self) -> Option<SharedError> {
        self.memory.end_hold(&mut self.hold)
    }
}

impl KeptBytes {
    /// Keeps all memory of an array mapped.
    #[must_use]
    pub fn all_of(memory: &Arc<SharedMemory>) -> KeptBytes {
        KeptBytes { _memory: Arc::clone(memory), _copy: None }
    }
}

impl Drop for LentBytes {
    fn drop(&mut self) {
        self.memory.drop_hold(&mut self.hold);
    }
}

impl fmt::Debug for LentBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentBytes").field("bytes", &self.hold.bytes).finish_non_exhaustive()
    }
}

impl SharedMemory {
    /// Lends rows of bytes by their address. The rows are in order and disjoint. Errors name no
    /// line of the program, because a binding of another language calls this.
    ///
    /// # Errors
    /// As [`slice`](Self::slice) and [`slice_mut`](Self::slice_mut).
    pub fn lend(
        self: &Arc<Self>,
        rows: &[Range<usize>],
        kind: GuardKind,
    ) -> Result<LentBytes, SharedError> {
        let hold = self.hold_rows::<u8>(rows, kind, false, None)?;
        Ok(LentBytes { memory: Arc::clone(self), hold })
    }
}

/// Read access to rows of elements of a shared array.
pub struct ReadRows<'a, T> {
    rows: Vec<&'a [T]>,
    loan: Loan<'a>,
}

/// Read and write access to rows of elements of a shared array.
pub struct WriteRows<'a, T> {
    rows: Vec<&'a mut [T]>,
    loan: Loan<'a>,
}

impl<T> ReadRows<'_, T> {
    /// Returns the rows, in the order in which they were asked for.
    #[must_use]
    pub fn rows(&self) -> &[&[T]] {
        &self.rows
    }

    /// As [`ReadGuard::lost_page`], of all pages from the first row to the last one.
    #[must_use]
    pub fn lost_page(&self) -> Option<(u64, u32)> {
        self.loan.lost_page()
    }
}

impl<'a, T> WriteRows<'a, T> {
    /// Does what [`WriteGuard::end`] does.
    #[must_use]
    pub fn end(&mut self) -> Option<SharedError> {
        self.rows = Vec::new();
        self.loan.memory.end_hold(&mut self.loan.hold)
    }

    /// Returns one row.
    #[must_use]
    pub fn row(&self, number: usize) -> Option<&[T]> {
        self.rows.get(number).map(|row| &**row)
    }

    /// Returns the rows, in the order in which they were asked for.
    #[must_use]
    pub fn rows_mut(&mut self) -> &mut [&'a mut [T]] {
        &mut self.rows
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// As [`ReadGuard::lost_page`], of all pages from the first row to the last one.
    #[must_use]
    pub fn lost_page(&self) -> Option<(u64, u32)> {
        self.loan.lost_page()
    }
}
