//! Guards of arrays whose element type is known at run time only. They give addresses.

use super::{ranges, strides};
use crate::error::Result;
use crate::shared::block::array_block::ArrayBlock;
use crate::shared::core::ArrayCore;
use oikaze_os::memory::tracking::{KeptBytes, LentBytes};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::WriteId;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Address of an array's elements, for plain loads and stores
/// ([`UntypedArray::plain`](super::UntypedArray::plain)). The memory stays mapped while this lives.
///
/// ```
/// use oikaze::ffi::{ElementKind, PlainMemory};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let array = job.untyped_array("field", &[512], ElementKind::F64.into()).build_untyped()?;
/// let plain: PlainMemory = array.plain()?;
/// assert_eq!(plain.len(), 4096);
/// // SAFETY: aligned and mapped, and no other node writes it.
/// assert_eq!(unsafe { plain.address().cast::<f64>().read() }, 0.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PlainMemory {
    /// Keeps the memory mapped.
    _kept: KeptBytes,
    address: usize,
    len: usize,
}

impl PlainMemory {
    pub(super) fn new(kept: KeptBytes, address: *mut u8, len: usize) -> Self {
        Self { _kept: kept, address: address as usize, len }
    }

    /// Returns the address of the first element.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.address as *mut u8
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for PlainMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlainMemory").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Methods that guards to read and to write have in common.
macro_rules! guard_of_block {
    ($guard:ident, $doing:literal) => {
        impl $guard {
            /// Returns the address of the block's first element. The memory is the program's until
            /// the guard ends. Rows lie apart as [`Self::strides`] says.
            #[must_use]
            pub fn address(&self) -> *mut u8 {
                self.lent.address()
            }

            /// Returns the memory from the first element to the end of the last one.
            fn plain_memory(&self) -> PlainMemory {
                let rows = self.shape().into_iter().zip(self.strides());
                let last: usize = rows.map(|(len, stride)| len.saturating_sub(1) * stride).sum();
                let len = if self.block.is_empty() { 0 } else { last + self.array.element_size() };
                PlainMemory::new(self.lent.keep(), self.address(), len)
            }

            /// Returns the number of elements of the block along each axis.
            #[must_use]
            pub fn shape(&self) -> Vec<usize> {
                (0..self.block.dimensions()).map(|axis| self.block.extent(axis)).collect()
            }

            /// Returns the bytes from one index of each axis to the next one.
            #[must_use]
            pub fn strides(&self) -> Vec<usize> {
                strides(&self.array)
            }

            /// Returns the indices of the block along each axis.
            #[must_use]
            pub fn ranges(&self) -> Vec<Range<usize>> {
                ranges(&self.block)
            }

            /// Ends the guard, as [`ReadGuard::release`](crate::shared::ReadGuard::release).
            ///
            /// # Errors
            /// A page was lost with its home, and the guard has shown old bytes of the page. No
            /// node sees writes to it. Or what has changed under the guard is not stored, because a
            /// guard of another node is in the way.
            pub fn release(mut self) -> Result<()> {
                if let Some(lost) = self.lent.lost_page() {
                    return Err(self.array.lost($doing, lost));
                }
                self.lent.end().map_or(Ok(()), |race| Err(race.into()))
            }
        }

        impl fmt::Debug for $guard {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($guard))
                    .field("block", &self.block)
                    .finish_non_exhaustive()
            }
        }
    };
}
guard_of_block!(UntypedReadGuard, "give back a read guard");
guard_of_block!(UntypedWriteGuard, "give back a write guard");

/// Guard of a block that may be read, by its address.
/// [`ReadGuard`](crate::shared::ReadGuard) says what holds while a guard is alive.
///
/// ```
/// use oikaze::ffi::{ElementKind, UntypedReadGuard};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let array = job.untyped_array("grid", &[10, 20], ElementKind::I32.into()).build_untyped()?;
/// let guard: UntypedReadGuard = array.read(&[2..5, 0..20])?;
/// assert_eq!((guard.shape(), guard.strides()), (vec![3, 20], vec![80, 4]));
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
pub struct UntypedReadGuard {
    lent: LentBytes,
    array: Arc<ArrayCore>,
    block: ArrayBlock,
}

impl UntypedReadGuard {
    pub(super) fn new(array: Arc<ArrayCore>, lent: LentBytes, block: ArrayBlock) -> Self {
        Self { lent, array, block }
    }

    /// Returns the memory from the first element to the end of the last one. It stays mapped for as
    /// long as the value lives, after the end of the guard, too. Then it may show old bytes.
    #[must_use]
    pub fn memory(&self) -> PlainMemory {
        self.plain_memory()
    }
}

/// Guard of a block that may be written, by its address. It owns the bytes of its block alone, and
/// not the bytes between its rows. [`WriteGuard`](crate::shared::WriteGuard) says what holds while
/// a guard is alive.
///
/// ```
/// use oikaze::ffi::{ElementKind, UntypedWriteGuard};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let array = job.untyped_array("words", &[1000], ElementKind::U64.into()).build_untyped()?;
/// if job.rank() == 0 {
///     let guard: UntypedWriteGuard = array.write(&[3..4])?;
///     // SAFETY: the guard lends eight aligned bytes there.
///     unsafe { guard.address().cast::<u64>().write(7) };
/// }
/// job.barrier()?;
/// assert_eq!(array.get(3..4)?, 7_u64.to_ne_bytes());
/// # Ok(())
/// # }
/// ```
pub struct UntypedWriteGuard {
    lent: LentBytes,
    array: Arc<ArrayCore>,
    block: ArrayBlock,
    /// Number of the announced write; `None` for a lazy guard.
    write: Option<WriteId>,
    push: Vec<Rank>,
    is_owner: bool,
}

impl UntypedWriteGuard {
    pub(super) fn new(
        array: Arc<ArrayCore>,
        lent: LentBytes,
        block: ArrayBlock,
        write: Option<WriteId>,
        is_owner: bool,
    ) -> Self {
        Self { lent, array, block, write, push: Vec::new(), is_owner }
    }

    /// Returns the memory from the first element to the end of the last one. It stays mapped for as
    /// long as the value lives, after the end of the guard, too. Stores after the end are lost, or
    /// are those of a plain pointer ([`UntypedArray::plain`](super::UntypedArray::plain)).
    ///
    /// # Errors
    /// All nodes map the memory, and a guard of another node in Rust is alive, which would see
    /// stores after the end of this guard.
    pub fn memory(&self) -> Result<PlainMemory> {
        self.lent.mark()?;
        Ok(self.plain_memory())
    }

    /// Ends a guard under which nothing was written.
    pub(super) fn abandon(mut self) {
        self.array.abandon_write(self.write.take());
    }

    /// Does what [`WriteGuard::push_to`](crate::shared::WriteGuard::push_to) does.
    ///
    /// # Errors
    /// A rank is not in the job, or the guard is a lazy one or one of
    /// [`UntypedArray::write_merged`](super::UntypedArray::write_merged).
    pub fn push_to(&mut self, ranks: &[Rank]) -> Result<()> {
        self.array.check_push(ranks, self.is_owner)?;
        self.push.extend_from_slice(ranks);
        Ok(())
    }
}

impl Drop for UntypedWriteGuard {
    fn drop(&mut self) {
        if let Some(write) = self.write.take() {
            self.array.end_write(write, &self.push);
        }
    }
}
