//! Atomic changes of single words of a region, by the program and by peers through the runtime
//! (MEM-5.1).

use super::error::AccessError;
use super::region::{Region, Side};
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, Ordering};
use oikaze_protocol::rma::{AtomicOp, Change, Width, Word};

/// A word of a region that peers may change too; see [`Region::word`]. Each change acquires and
/// releases.
#[derive(Clone, Copy, Debug)]
pub struct LocalWord<'r, T> {
    region: &'r Region,
    offset: u64,
    of: PhantomData<T>,
}

impl Region {
    /// Returns the aligned word at `offset`, of 32 or 64 bits. (A bad offset is reported when the
    /// word is used.)
    #[must_use]
    #[inline]
    pub fn word<T: Word>(&self, offset: u64) -> LocalWord<'_, T> {
        LocalWord { region: self, offset, of: PhantomData }
    }

    /// Loads the aligned word at `offset` (acquire).
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, misaligned, or the lending scope has ended.
    #[inline]
    pub fn load_u64(&self, offset: u64) -> Result<u64, AccessError> {
        self.word(offset).load()
    }

    /// Stores the aligned word at `offset` (release).
    ///
    /// # Errors
    /// As [`Region::atomic`].
    #[inline]
    pub fn store_u64(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.word(offset).store(value)
    }

    /// Adds to the aligned word at `offset`, wrapping, and returns the old value.
    ///
    /// # Errors
    /// As [`Region::atomic`].
    pub fn fetch_add(&self, offset: u64, value: u64) -> Result<u64, AccessError> {
        self.atomic(offset, AtomicOp::add(value))
    }

    /// Stores `new` at `offset` if the aligned word there is `expected`, and returns the old value.
    ///
    /// # Errors
    /// As [`Region::atomic`].
    pub fn compare_exchange(
        &self,
        offset: u64,
        expected: u64,
        new: u64,
    ) -> Result<u64, AccessError> {
        self.atomic(offset, AtomicOp::compare_swap(expected, new))
    }

    /// Stores `value` at `offset` and returns the old value.
    ///
    /// # Errors
    /// As [`Region::atomic`].
    pub fn swap(&self, offset: u64, value: u64) -> Result<u64, AccessError> {
        self.atomic(offset, AtomicOp::swap(value))
    }

    /// Performs one atomic operation on the aligned word at `offset` (acquire and release). Returns
    /// the old value, zero above its width.
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, misaligned, lent for reading, or the lending scope has
    /// ended.
    #[doc(hidden)]
    pub fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, AccessError> {
        self.atomic_from(Side::Program, offset, op)
    }

    pub(super) fn atomic_from(
        &self,
        side: Side,
        offset: u64,
        op: AtomicOp,
    ) -> Result<u64, AccessError> {
        self.check_writable()?;
        self.with_word(side, offset, op.width(), |word| match op.width() {
            // SAFETY: `with_word` vouches for an aligned word of this width.
            Width::W32 => u64::from(unsafe { change_32(word.cast(), op.change()) }),
            // SAFETY: as above.
            Width::W64 => unsafe { change_64(word.cast(), op.change()) },
        })
    }

    /// Calls `act` with a pointer to an aligned word of this width that stays valid until `act`
    /// returns. Only atomic references to the word exist. A caller whose `act` writes has checked
    /// that the region is writable.
    #[inline]
    pub(super) fn with_word<R>(
        &self,
        side: Side,
        offset: u64,
        width: Width,
        act: impl FnOnce(NonNull<u8>) -> R,
    ) -> Result<R, AccessError> {
        let width = width.bytes();
        self.reach(side, offset, width, |at| {
            if (at.addr().get() as u64).is_multiple_of(width) {
                Ok(act(at))
            } else {
                Err(AccessError::Misaligned { offset, width })
            }
        })?
    }
}

impl<T: Word> LocalWord<'_, T> {
    /// Loads the value (acquire).
    ///
    /// # Errors
    /// [`AccessError`]: out of bounds, misaligned, or the lending scope has ended.
    #[inline]
    pub fn load(self) -> Result<T, AccessError> {
        if !self.region.writable() {
            // Memory lent for reading does not change, and must not be referred to as atomic.
            let mut bytes = [0; 8];
            let width = T::WIDTH.bytes() as usize;
            self.region.read(self.offset, bytes.get_mut(..width).unwrap_or_default())?;
            return Ok(T::from_bits(match T::WIDTH {
                Width::W32 => {
                    u64::from(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
                }
                Width::W64 => u64::from_ne_bytes(bytes),
            }));
        }
        let bits =
            self.region.with_word(Side::Program, self.offset, T::WIDTH, |word| match T::WIDTH {
                // SAFETY: `with_word` vouches for an aligned word of this width; nobody has
                // references to it but atomic ones.
                Width::W32 => u64::from(
                    unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }.load(Ordering::Acquire),
                ),
                Width::W64 => {
                    // SAFETY: as above.
                    unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) }.load(Ordering::Acquire)
                }
            })?;
        Ok(T::from_bits(bits))
    }

    /// Stores the value (release).
    ///
    /// # Errors
    /// As [`Region::atomic`].
    #[inline]
    pub fn store(self, value: T) -> Result<(), AccessError> {
        self.region.check_writable()?;
        let bits = value.to_bits();
        self.region.with_word(Side::Program, self.offset, T::WIDTH, |word| match T::WIDTH {
            // SAFETY: `with_word` vouches for an aligned word of this width; nobody has references
            // to it but atomic ones.
            Width::W32 => unsafe { AtomicU32::from_ptr(word.cast().as_ptr()) }
                .store(bits as u32, Ordering::Release),
            Width::W64 => {
                // SAFETY: as above.
                unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) }.store(bits, Ordering::Release)
            }
        })
    }

    /// Adds, wrapping, and returns the old value.
    ///
    /// # Errors
    /// As [`Region::atomic`], as for all changes.
    pub fn fetch_add(self, add: T) -> Result<T, AccessError> {
        self.change(AtomicOp::add(add))
    }

    /// Stores `new` and returns the old value.
    ///
    /// # Errors
    /// As [`LocalWord::fetch_add`].
    pub fn swap(self, new: T) -> Result<T, AccessError> {
        self.change(AtomicOp::swap(new))
    }

    /// Stores `new` if the value is `expected`, and returns the old value.
    ///
    /// # Errors
    /// As [`LocalWord::fetch_add`].
    pub fn compare_exchange(self, expected: T, new: T) -> Result<T, AccessError> {
        self.change(AtomicOp::compare_swap(expected, new))
    }

    /// Keeps the bits that are in both, and returns the old value.
    ///
    /// # Errors
    /// As [`LocalWord::fetch_add`].
    pub fn fetch_and(self, bits: T) -> Result<T, AccessError> {
        self.change(AtomicOp::and(bits))
    }

    /// Sets these bits and returns the old value.
    ///
    /// # Errors
    /// As [`LocalWord::fetch_add`].
    pub fn fetch_or(self, bits: T) -> Result<T, AccessError> {
        self.change(AtomicOp::or(bits))
    }

    /// Flips these bits and returns the old value.
    ///
    /// # Errors
    /// As [`LocalWord::fetch_add`].
    pub fn fetch_xor(self, bits: T) -> Result<T, AccessError> {
        self.change(AtomicOp::xor(bits))
    }

    /// Keeps the smaller of both and returns the old value.
    ///
    /// # Errors
    /// As [`LocalWord::fetch_add`].
    pub fn fetch_min(self, other: T) -> Result<T, AccessError> {
        self.change(AtomicOp::min(other))
    }

    /// Keeps the greater of both and returns the old value.
    ///
    /// # Errors
    /// As [`LocalWord::fetch_add`].
    pub fn fetch_max(self, other: T) -> Result<T, AccessError> {
        self.change(AtomicOp::max(other))
    }

    fn change(self, op: AtomicOp) -> Result<T, AccessError> {
        self.region.atomic(self.offset, op).map(T::from_bits)
    }
}

/// Changes a word by the processor's instruction, where there is one, and returns the old value.
macro_rules! change {
    ($name:ident, $bits:ty: $unsigned:ident, $signed:ident) => {
        /// # Safety
        /// `word` is valid and aligned for the call, and nobody has references to it but atomic
        /// ones.
        pub(super) unsafe fn $name(word: NonNull<$bits>, change: Change) -> $bits {
            // SAFETY: the caller vouches for it.
            let (unsigned, signed) = unsafe {
                ($unsigned::from_ptr(word.as_ptr()), $signed::from_ptr(word.cast().as_ptr()))
            };
            match change {
                Change::Add(add) => unsigned.fetch_add(add as $bits, Ordering::AcqRel),
                Change::CompareSwap { expected, new } => unsigned
                    .compare_exchange(
                        expected as $bits,
                        new as $bits,
                        Ordering::AcqRel,
                        Ordering::Acquire,
                    )
                    .unwrap_or_else(|old| old),
                Change::Swap(new) => unsigned.swap(new as $bits, Ordering::AcqRel),
                Change::And(bits) => unsigned.fetch_and(bits as $bits, Ordering::AcqRel),
                Change::Or(bits) => unsigned.fetch_or(bits as $bits, Ordering::AcqRel),
                Change::Xor(bits) => unsigned.fetch_xor(bits as $bits, Ordering::AcqRel),
                Change::Min(other) => unsigned.fetch_min(other as $bits, Ordering::AcqRel),
                Change::Max(other) => unsigned.fetch_max(other as $bits, Ordering::AcqRel),
                Change::MinSigned(other) => signed
                    .fetch_min((other as $bits).cast_signed(), Ordering::AcqRel)
                    .cast_unsigned(),
                Change::MaxSigned(other) => signed
                    .fetch_max((other as $bits).cast_signed(), Ordering::AcqRel)
                    .cast_unsigned(),
            }
        }
    };
}
change!(change_32, u32: AtomicU32, AtomicI32);
change!(change_64, u64: AtomicU64, AtomicI64);
