//! Memory that another process may write at any moment. Words are accessed as atomics, bytes by
//! copies through raw pointers, and every place is checked.

#[cfg(all(test, loom))]
pub(super) use loom::sync::atomic::fence;
pub(super) use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
pub(super) use std::sync::atomic::fence;

#[cfg(not(all(test, loom)))]
pub(super) use real::{Memory, claim};

/// Source of a copy.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Memory of this process.
    Bytes(&'a [u8]),
    /// Bytes of a region that stay in place meanwhile: offset in the gather, and length.
    Region(&'a crate::memory::Gather, usize, usize),
}

impl Part<'_> {
    /// Returns the length in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Region(gather, from, len) => (*len).min(gather.len().saturating_sub(*from)),
        }
    }
}

#[cfg(not(all(test, loom)))]
mod real {
    use super::{Ordering, Part};
    use crate::memory::mapping::Mapping;
    use core::ptr::NonNull;
    use core::sync::atomic::{AtomicU32, AtomicU64};
    use rustix::thread::futex;
    use std::sync::Arc;
    use std::time::Duration;

    /// Offset of the lower half of a word.
    const LOWER_HALF: usize = if cfg!(target_endian = "little") { 0 } else { 4 };

    /// A range of a mapping of a sealed file. Places are bytes from its start. Words outside the
    /// range read as 0, and stores outside have no effect.
    #[derive(Clone, Debug)]
    pub(in crate::shm) struct Memory {
        /// Start of the range, in the mapping.
        start: NonNull<u8>,
        len: usize,
        _mapping: Arc<Mapping>,
        /// Stands for all words outside the range.
        nowhere: &'static AtomicU64,
    }

    static NOWHERE: AtomicU64 = AtomicU64::new(0);

    /// Prefetches a cache line for writing from the processor that has it. Does not wait for the
    /// line.
    #[inline]
    pub(in crate::shm) fn claim(at: *mut u8) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which reads and writes nothing that a program sees, wherever it points.
        // Processors that do not know it pass over it.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    // SAFETY: the pointer leads into the mapping, which is counted and may be reached from any
    // thread, through atomics and raw copies.
    unsafe impl Send for Memory {}
    // SAFETY: as above.
    unsafe impl Sync for Memory {}

    impl Memory {
        /// Takes `len` bytes from `from`, a whole number of words, or as much of them as the
        /// mapping has.
        pub fn new(mapping: Arc<Mapping>, from: usize, len: usize) -> Memory {
            let from = from.next_multiple_of(8).min(mapping.len());
            let len = len.min(mapping.len() - from);
            // SAFETY: inside the mapping, or its end.
            let start = unsafe { mapping.base().add(from) };
            Memory { start, len, _mapping: mapping, nowhere: &NOWHERE }
        }

        #[inline]
        fn at(&self, place: usize, len: usize) -> Option<*mut u8> {
            let inside = place.checked_add(len).is_some_and(|end| end <= self.len);
            // SAFETY: inside the range, which is inside the mapping.
            inside.then(|| unsafe { self.start.as_ptr().add(place) })
        }

        #[inline]
        fn word(&self, place: usize) -> &AtomicU64 {
            match self.at(place, 8) {
                // SAFETY: inside a readable and writable mapping of a file that cannot shrink, for
                // as long as `self` is borrowed; aligned, for the mapping begins at a page, the
                // range at a word. Only atomics reach words, in either process.
                Some(at) if place.is_multiple_of(8) => unsafe { AtomicU64::from_ptr(at.cast()) },
                _ => self.nowhere,
            }
        }

        #[inline]
        pub fn load(&self, place: usize, order: Ordering) -> u64 {
            self.word(place).load(order)
        }

        #[inline]
        pub fn store(&self, place: usize, value: u64, order: Ordering) {
            self.word(place).store(value, order);
        }

        pub fn swap(&self, place: usize, value: u64, order: Ordering) -> u64 {
            self.word(place).swap(value, order)
        }

        /// Stores `new` if the word is `old`. Returns `true` if it was.
        #[inline]
        pub fn exchange(&self, place: usize, old: u64, new: u64) -> bool {
            let (done, failed) = (Ordering::SeqCst, Ordering::Relaxed);
            self.word(place).compare_exchange(old, new, done, failed).is_ok()
        }

        /// Sets these bits, as a full fence.
        pub fn or(&self, place: usize, bits: u64) {
            self.word(place).fetch_or(bits, Ordering::SeqCst);
        }

        /// Clears all bits but these, as a full fence. Returns what the word was.
        pub fn and(&self, place: usize, bits: u64) -> u64 {
            self.word(place).fetch_and(bits, Ordering::SeqCst)
        }

        /// Returns the lower half of a word, on which threads of all processes may sleep. Only the
        /// kernel reads it.
        fn futex(&self, place: usize) -> &AtomicU32 {
            let word = self.word(place).as_ptr().cast::<u8>();
            // SAFETY: one half of a word that lives for as long as `self` is borrowed, aligned.
            unsafe { AtomicU32::from_ptr(word.add(LOWER_HALF).cast()) }
        }

        /// Sleeps until the word is woken, for at most this time. Returns at once if its lower half
        /// has another value. A signal ends the sleep.
        pub fn sleep_on(&self, place: usize, value: u32, limit: Duration) {
            let Ok(limit) = rustix::thread::Timespec::try_from(limit) else { return };
            // Each way to return means to look at the memory again.
            let flags = futex::Flags::empty();
            let _ = futex::wait(self.futex(place), flags, value, Some(&limit));
        }

        /// Wakes a thread that sleeps on this word.
        pub fn wake(&self, place: usize) {
            // There may be none.
            let _ = futex::wake(self.futex(place), futex::Flags::empty(), 1);
        }

        /// Prefetches the cache line of a place for writing from the processor that has it. Does
        /// not wait for the line.
        #[inline]
        pub fn claim(&self, place: usize) {
            if let Some(at) = self.at(place, 1) {
                claim(at);
            }
        }

        pub fn add(&self, place: usize, value: u64) {
            self.word(place).fetch_add(value, Ordering::Relaxed);
        }

        pub fn subtract(&self, place: usize, value: u64) {
            self.word(place).fetch_sub(value, Ordering::Release);
        }

        /// Copies a part to `place`.
        #[inline]
        pub fn write(&self, place: usize, part: &Part<'_>) {
            let len = part.len();
            let Some(at) = self.at(place, len) else { return };
            let from = match part {
                Part::Bytes(bytes) => bytes.as_ptr(),
                // SAFETY: `Part::len` has cut the range to what the gather has.
                Part::Region(gather, from, _) if len > 0 => unsafe { gather.as_ptr().add(*from) },
                Part::Region(..) => return,
            };
            // SAFETY: both ranges are valid for `len` bytes (`at` has checked the one, `len` the
            // other); a ring is nobody's region, so that they do not overlap. Whoever else writes
            // there meanwhile spoils bytes, of which any value is valid.
            unsafe { core::ptr::copy_nonoverlapping(from, at, len) }
        }

        /// Copies bytes from `place`.
        #[inline]
        pub fn read(&self, place: usize, into: &mut [u8]) {
            let Some(at) = self.at(place, into.len()) else { return };
            // SAFETY: as in `write`, the other way round; an exclusive slice is nobody's mapping.
            unsafe { core::ptr::copy_nonoverlapping(at, into.as_mut_ptr(), into.len()) }
        }

        /// Appends a copy of bytes from `place`.
        pub fn append(&self, place: usize, len: usize, into: &mut Vec<u8>) {
            let Some(at) = self.at(place, len) else { return };
            into.reserve(len);
            // SAFETY: as in `read`: room for `len` bytes was just made, and they are initialised
            // when the length says so.
            unsafe {
                core::ptr::copy_nonoverlapping(at, into.as_mut_ptr().add(into.len()), len);
                into.set_len(into.len() + len);
            }
        }
    }
}

/// Memory for models. Bytes are kept in words too, so that loom sees every access.
#[cfg(all(test, loom))]
pub(super) use modelled::Memory;

#[cfg(all(test, loom))]
mod modelled {
    use super::{Ordering, Part};
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;

    #[derive(Clone, Debug)]
    pub(in crate::shm) struct Memory(Arc<Vec<AtomicU64>>);

    impl Memory {
        pub fn of(len: usize) -> Memory {
            Memory(Arc::new((0..len / 8).map(|_| AtomicU64::new(0)).collect()))
        }
        pub fn load(&self, place: usize, order: Ordering) -> u64 {
            self.0[place / 8].load(order)
        }
        pub fn store(&self, place: usize, value: u64, order: Ordering) {
            self.0[place / 8].store(value, order);
        }
        pub fn swap(&self, place: usize, value: u64, order: Ordering) -> u64 {
            self.0[place / 8].swap(value, order)
        }
        pub fn exchange(&self, place: usize, old: u64, new: u64) -> bool {
            let (done, failed) = (Ordering::SeqCst, Ordering::Relaxed);
            self.0[place / 8].compare_exchange(old, new, done, failed).is_ok()
        }
        pub fn or(&self, place: usize, bits: u64) {
            self.0[place / 8].fetch_or(bits, Ordering::SeqCst);
        }
        pub fn and(&self, place: usize, bits: u64) -> u64 {
            self.0[place / 8].fetch_and(bits, Ordering::SeqCst)
        }
        pub fn claim(&self, _: usize) {}
        pub fn add(&self, place: usize, value: u64) {
            self.0[place / 8].fetch_add(value, Ordering::Relaxed);
        }
        pub fn subtract(&self, place: usize, value: u64) {
            self.0[place / 8].fetch_sub(value, Ordering::Release);
        }
        pub fn write(&self, place: usize, part: &Part<'_>) {
            let Part::Bytes(bytes) = part else { return };
            for (at, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                self.store(place + 8 * at, u64::from_le_bytes(*word), Ordering::Relaxed);
            }
        }
        pub fn read(&self, place: usize, into: &mut [u8]) {
            for (at, word) in into.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                *word = self.load(place + 8 * at, Ordering::Relaxed).to_le_bytes();
            }
        }
        pub fn append(&self, place: usize, len: usize, into: &mut Vec<u8>) {
            let start = into.len();
            into.resize(start + len, 0);
            self.read(place, &mut into[start..]);
        }
    }
}
