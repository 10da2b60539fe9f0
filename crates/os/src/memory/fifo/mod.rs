//! FIFOs in regions (MEM-13). Many producers push through the engine or by mapping the region, and
//! many consumers pop at the owner.
//!
//! [`shape`] describes the layout, [`queue`] the transfer of elements, and this file applies both
//! to a region's memory. Producers and consumers use the shape that the owner made the FIFO with.
//! The shape in the region's memory is not trusted.

mod queue;
mod shape;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use shape::Shape;

use super::AccessError;
use super::region::{Region, Side};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use oikaze_protocol::wind::Refusal;
use queue::{Cells, NotPushed, QueueWord, is_empty, pop, push};
use shape::{ELEMENT_AT, HEAD_AT, MAGIC, MAGIC_AT, SLOTS_AT, TAIL_AT};

/// Reason why a FIFO cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FifoError {
    /// The region cannot be accessed.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The FIFO's words were overwritten.
    #[error(
        "this FIFO was written over: whoever may write its region, or change its words, must leave them alone"
    )]
    Destroyed,
}

/// The consuming end of a FIFO that fills a region or its beginning.
#[derive(Clone, Debug)]
pub struct Fifo {
    region: Region,
    shape: Shape,
}

impl Fifo {
    /// Makes an empty FIFO of the first bytes of a region that no other code knows yet.
    ///
    /// # Errors
    /// [`AccessError`]: the region is shorter than [`Shape::bytes`], not aligned, or lent for
    /// reading.
    pub fn format(region: Region, shape: Shape) -> Result<Fifo, AccessError> {
        region.check_bounds(0, shape.bytes())?;
        for position in 0..shape.slots() {
            region.store_u64(shape.slot(position), position)?;
        }
        region.store_u64(SLOTS_AT, shape.slots())?;
        region.store_u64(ELEMENT_AT, shape.element())?;
        region.store_u64(TAIL_AT, 0)?;
        region.store_u64(HEAD_AT, 0)?;
        region.store_u64(MAGIC_AT, MAGIC)?;
        region.fifo_bits().store(shape.to_bits(), Ordering::Release);
        Ok(Fifo { region, shape })
    }

    /// Returns the number and size of the elements.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Removes the oldest element and appends it to `into`. Returns `false` if there is none. Any
    /// number of threads may call it.
    ///
    /// # Errors
    /// [`FifoError`]: somebody has written over it.
    pub fn try_pop(&self, into: &mut Vec<u8>) -> Result<bool, FifoError> {
        self.region
            .with_fifo(Side::Program, self.shape, |cells| pop(cells, self.shape, into))?
            .map_err(|_| FifoError::Destroyed)
    }

    /// Returns `true` if there is no element to pop.
    ///
    /// # Errors
    /// The region cannot be accessed.
    pub fn is_empty(&self) -> Result<bool, FifoError> {
        Ok(self.region.with_fifo(Side::Program, self.shape, |cells| is_empty(cells, self.shape))?)
    }
}

impl Region {
    /// Pushes an element into the FIFO of this shape.
    pub(super) fn fifo_push(
        &self,
        side: Side,
        shape: Shape,
        element: &[u8],
    ) -> Result<(), Refusal> {
        if element.len() as u64 > shape.element() {
            return Err(Refusal::TooLong);
        }
        let pushed = self.with_fifo(side, shape, |cells| push(cells, shape, element));
        pushed.map_err(|_| Refusal::NoFifo)?.map_err(|error| match error {
            NotPushed::Full => Refusal::Full,
            NotPushed::Destroyed => Refusal::NoFifo,
        })
    }

    /// Returns the shape of the FIFO that the region's owner has made here. The memory itself is
    /// not read: it holds elements, whose content the producers choose (MEM-13.3).
    pub(super) fn fifo_shape(&self) -> Result<Shape, Refusal> {
        Shape::from_bits(self.fifo_bits().load(Ordering::Acquire)).ok_or(Refusal::NoFifo)
    }

    /// Calls `act` with the words of a FIFO of this shape, which stay valid until `act` returns.
    fn with_fifo<R>(
        &self,
        side: Side,
        shape: Shape,
        act: impl FnOnce(&InMemory) -> R,
    ) -> Result<R, AccessError> {
        self.check_writable()?;
        self.reach(side, 0, shape.bytes(), |at| {
            if !at.cast::<u64>().is_aligned() {
                return Err(AccessError::Misaligned { offset: 0, width: 8 });
            }
            Ok(act(&InMemory { at, shape }))
        })?
    }
}

/// The words of a queue in a region. Made by [`Region::with_fifo`] alone, which vouches for
/// `shape.bytes()` writable bytes at `at`, aligned to 8, with only atomic references to them.
struct InMemory {
    at: NonNull<u8>,
    shape: Shape,
}

impl InMemory {
    fn word(&self, cell: QueueWord) -> &AtomicU64 {
        let offset = match cell {
            QueueWord::Tail => TAIL_AT,
            QueueWord::Head => HEAD_AT,
            QueueWord::Turn(position) => self.shape.slot(position),
            QueueWord::Length(position) => self.shape.slot(position) + 8,
        };
        // SAFETY: see `InMemory`; every slot of every position lies inside the shape, at a multiple
        // of 8.
        unsafe { AtomicU64::from_ptr(self.at.byte_add(offset as usize).cast().as_ptr()) }
    }

    /// Returns the address of the element at a position.
    fn element(&self, position: u64) -> NonNull<u8> {
        // SAFETY: see `InMemory`: inside the shape.
        unsafe { self.at.byte_add(self.shape.slot(position) as usize + 16) }
    }
}

impl Cells for InMemory {
    fn load(&self, cell: QueueWord, order: Ordering) -> u64 {
        self.word(cell).load(order)
    }

    fn store(&self, cell: QueueWord, value: u64, order: Ordering) {
        self.word(cell).store(value, order);
    }

    fn claim(&self, cell: QueueWord, old: u64, new: u64) -> Result<(), u64> {
        self.word(cell).compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        let len = bytes.len().min(self.shape.element() as usize);
        // SAFETY: see `InMemory`; an element has room for this many bytes. The source bytes are not
        // part of this region.
        unsafe { self.element(position).as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), len) }
    }

    fn read(&self, position: u64, len: u64, into: &mut Vec<u8>) {
        let len = len.min(self.shape.element()) as usize;
        into.reserve(len);
        // SAFETY: see `InMemory`; an element has this many bytes. The vector has room for them, and
        // they are written before the length includes them.
        unsafe {
            into.spare_capacity_mut()
                .as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping(self.element(position).as_ptr(), len);
            into.set_len(into.len() + len);
        }
    }
}
