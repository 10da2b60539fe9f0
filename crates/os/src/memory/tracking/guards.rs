//! Guards, which lend an array's elements to threads of this process.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};

use bytemuck::Pod;

use super::error::SharedError;
use super::shared_memory::SharedMemory;
use oikaze_protocol::coherence::Access;
use oikaze_protocol::limits::PAGE;

/// Ends a borrow when dropped.
struct Loan<'a> {
    memory: &'a SharedMemory,
    ticket: u64,
    bytes: Range<usize>,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.memory.end_loan(self.ticket);
    }
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
        self.loan.memory.lost_page(&self.loan.bytes)
    }
}

impl<T> WriteGuard<'_, T> {
    /// Returns a page of this guard that was lost with its home, and the home: see
    /// [`SharedMemory::lost_page`].
    #[must_use]
    pub fn lost_page(&self) -> Option<(u64, u32)> {
        self.loan.memory.lost_page(&self.loan.bytes)
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
    fn element_bytes<T: Pod>(&self, elements: &Range<usize>) -> Result<Range<usize>, SharedError> {
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
    /// Outside the array, or a live guard of this process writes some of them.
    #[track_caller]
    pub fn slice<T: Pod>(&self, elements: Range<usize>) -> Result<ReadGuard<'_, T>, SharedError> {
        let bytes = self.element_bytes::<T>(&elements)?;
        self.expect_touches(&bytes, Access::Read)?;
        let first = (self.view().base() + bytes.start) as *const T;
        let ticket = self.borrows().borrow(self.name(), bytes.clone(), false)?;
        let loan = Loan { memory: self, ticket, bytes };
        // SAFETY: inside the view, which lives as long as `self`; aligned, since the view starts on
        // a page and `T`'s size is a multiple of its alignment; any bits are a `T` (Pod). No guard
        // of this process writes here, and no byte that another node sends gets here before the
        // loan has ended (registry, COH-3.9).
        let elements = unsafe { std::slice::from_raw_parts(first, elements.len()) };
        Ok(ReadGuard { elements, loan })
    }

    /// Lends elements for reading and writing.
    ///
    /// # Errors
    /// Outside the array, or a live guard of this process covers some of them.
    #[track_caller]
    pub fn slice_mut<T: Pod>(
        &self,
        elements: Range<usize>,
    ) -> Result<WriteGuard<'_, T>, SharedError> {
        let bytes = self.element_bytes::<T>(&elements)?;
        self.expect_touches(&bytes, Access::Write)?;
        let first = (self.view().base() + bytes.start) as *mut T;
        let ticket = self.borrows().borrow(self.name(), bytes.clone(), true)?;
        let loan = Loan { memory: self, ticket, bytes };
        // SAFETY: as in `slice`, and the registry gives these bytes to this guard alone.
        let elements = unsafe { std::slice::from_raw_parts_mut(first, elements.len()) };
        Ok(WriteGuard { elements, loan })
    }
}
