//! Accumulates: elements of a region are combined with others, each atomically (MEM-12).

use super::AccessError;
use super::region::{Region, Side};
use crate::memory::atomic::{change_32, change_64};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use oikaze_protocol::rma::{Accumulation, Combine, Number, Width};

impl Region {
    /// Combines `values` with the elements from `offset` on, as [`Combine`] says. Each element is
    /// atomic with respect to peers' accumulates and atomics.
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, misaligned, lent for reading, or the lending scope has
    /// ended. Nothing has changed then.
    pub fn accumulate<T: Number>(
        &self,
        offset: u64,
        combine: Combine,
        values: &[T],
    ) -> Result<(), AccessError> {
        let how = Accumulation { element: T::ELEMENT, combine };
        let wide = size_of::<T>() as u64;
        self.with_elements(Side::Program, offset, how, values.len() as u64 * wide, |at| {
            for (index, value) in values.iter().enumerate() {
                // SAFETY: `with_elements` vouches for this many elements behind `at`.
                unsafe { combine_one(at.byte_add(index * wide as usize), how, value.bits()) };
            }
        })
    }

    /// As [`Region::accumulate`], with elements in their memory layout. An incomplete last element
    /// is ignored.
    pub(super) fn accumulate_from(
        &self,
        side: Side,
        offset: u64,
        how: Accumulation,
        elements: &[u8],
    ) -> Result<(), AccessError> {
        self.with_elements(side, offset, how, elements.len() as u64, |at| match how.width() {
            Width::W32 => {
                for (index, element) in elements.as_chunks::<4>().0.iter().enumerate() {
                    // SAFETY: `with_elements` vouches for this many elements behind `at`.
                    unsafe {
                        combine_one(
                            at.byte_add(4 * index),
                            how,
                            u64::from(u32::from_ne_bytes(*element)),
                        )
                    };
                }
            }
            Width::W64 => {
                for (index, element) in elements.as_chunks::<8>().0.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe {
                        combine_one(at.byte_add(8 * index), how, u64::from_ne_bytes(*element))
                    };
                }
            }
        })
    }

    /// Calls `act` with a pointer to `len` bytes of writable, aligned elements that stay valid
    /// until `act` returns.
    fn with_elements(
        &self,
        side: Side,
        offset: u64,
        how: Accumulation,
        len: u64,
        act: impl FnOnce(NonNull<u8>),
    ) -> Result<(), AccessError> {
        self.check_writable()?;
        let width = how.width().bytes();
        self.reach(side, offset, len, |at| {
            if !(at.addr().get() as u64).is_multiple_of(width) {
                return Err(AccessError::Misaligned { offset, width });
            }
            act(at);
            Ok(())
        })?
    }
}

/// Combines one element.
///
/// # Safety
/// `at` is valid for a read and write of the element's width, and aligned to it; nobody has
/// references to it but atomic ones.
unsafe fn combine_one(at: NonNull<u8>, how: Accumulation, other: u64) {
    // Orders are as with atomics: a thread that sees an element sees what its writer saw.
    let (order, seen) = (Ordering::AcqRel, Ordering::Acquire);
    match (how.width(), how.of_integers(other)) {
        (Width::W32, Some(op)) => {
            // SAFETY: the caller vouches for it.
            unsafe { change_32(at.cast(), op.change()) };
        }
        (Width::W64, Some(op)) => {
            // SAFETY: the caller vouches for it.
            unsafe { change_64(at.cast(), op.change()) };
        }
        (Width::W32, None) => {
            // SAFETY: the caller vouches for it.
            let word = unsafe { AtomicU32::from_ptr(at.cast().as_ptr()) };
            let _always = word.fetch_update(order, seen, |here| {
                Some(how.of_floats(u64::from(here), other) as u32)
            });
        }
        (Width::W64, None) => {
            // SAFETY: the caller vouches for it.
            let word = unsafe { AtomicU64::from_ptr(at.cast().as_ptr()) };
            let _always = word.fetch_update(order, seen, |here| Some(how.of_floats(here, other)));
        }
    }
}
