//! Atomic changes of single words of a peer's region. Each takes place at most once, whatever the
//! network does.

use crate::completion::operation::{Operation, Outcome};
use crate::memory::remote::region::RemoteRegion;
use oikaze_engine::OperationKind;
use oikaze_engine::Request;
use oikaze_protocol::rma::{AtomicOp, Word};
use std::marker::PhantomData;

/// A word of 32 or 64 bits in a peer's region; see [`RemoteRegion::word`].
///
/// An operation that fetches returns the previous value, and takes a round trip. An operation that
/// does not fetch needs no answer: it is done when the peer has acknowledged it.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let words = job.publish("words", Region::shared(64)?, Rights::ATOMIC)?;
/// let there = job.peer(0)?.region("words")?;
/// let flags = there.word::<u32>(8);
/// flags.or(1 << (job.rank() % 32)).wait()?;
/// assert_ne!(flags.load().wait()? & 1 << (job.rank() % 32), 0);
/// # job.barrier()?;
/// # drop(words);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct RemoteWord<'r, T> {
    region: &'r RemoteRegion,
    offset: u64,
    of: PhantomData<T>,
}

impl RemoteRegion {
    /// Returns the aligned word at `offset`: `u32`, `i32`, `u64` or `i64`. (A bad offset is
    /// reported when the word is used.)
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::prelude::*;
    /// let job = oikaze::join()?;
    /// let words = job.publish("words", Region::shared(4096)?, Rights::ATOMIC)?;
    /// let there = job.peer(0)?.region("words")?;
    /// let ticket = there.word::<u32>(64).fetch_add(1).wait()?;
    /// assert!(ticket < job.size());
    /// there.word::<i64>(72).max(-5).wait()?; // no answer but the acknowledgement
    /// # job.barrier()?;
    /// # drop(words);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn word<T: Word>(&self, offset: u64) -> RemoteWord<'_, T> {
        RemoteWord { region: self, offset, of: PhantomData }
    }

    /// Adds to the 64-bit word at `offset` (wrapping), and yields the previous value. Takes place
    /// at most once, whatever the network does.
    pub fn fetch_add(&self, offset: u64, add: u64) -> Operation<u64> {
        self.word(offset).fetch_add(add)
    }

    /// Stores `new` into the 64-bit word at `offset` if the word is `expected`, and yields the
    /// previous value. Takes place at most once.
    pub fn compare_exchange(&self, offset: u64, expected: u64, new: u64) -> Operation<u64> {
        self.word(offset).compare_exchange(expected, new)
    }

    /// Stores `new` into the 64-bit word at `offset`, and yields the previous value. Takes place at
    /// most once.
    pub fn swap(&self, offset: u64, new: u64) -> Operation<u64> {
        self.word(offset).swap(new)
    }

    pub(crate) fn atomic<T: Outcome>(
        &self,
        offset: u64,
        op: AtomicOp,
        fetch: bool,
        verb: OperationKind,
    ) -> Operation<T> {
        if let Some(done) = self.atomic_direct(offset, op) {
            return done;
        }
        let request =
            Request::Atomic { at: self.peer.rank, key: self.published.key, offset, op, fetch };
        self.peer.begin(request, None, self.what(verb, offset, op.width().bytes()))
    }
}

impl<T: Word + Outcome> RemoteWord<'_, T> {
    /// Reads the present value.
    pub fn load(self) -> Operation<T> {
        self.fetch(AtomicOp::or(T::from_bits(0)), "load")
    }

    /// Adds `add`, wrapping, and yields the previous value.
    pub fn fetch_add(self, add: T) -> Operation<T> {
        self.fetch(AtomicOp::add(add), "fetch-add")
    }

    /// Stores `new`, and yields the previous value.
    pub fn swap(self, new: T) -> Operation<T> {
        self.fetch(AtomicOp::swap(new), "swap")
    }

    /// Stores `new` if the word is `expected`, and yields the previous value.
    pub fn compare_exchange(self, expected: T, new: T) -> Operation<T> {
        self.fetch(AtomicOp::compare_swap(expected, new), "compare-exchange")
    }

    /// Keeps the bits that are in both, and yields the previous value.
    pub fn fetch_and(self, bits: T) -> Operation<T> {
        self.fetch(AtomicOp::and(bits), "fetch-and")
    }

    /// Sets these bits, and yields the previous value.
    pub fn fetch_or(self, bits: T) -> Operation<T> {
        self.fetch(AtomicOp::or(bits), "fetch-or")
    }

    /// Flips these bits, and yields the previous value.
    pub fn fetch_xor(self, bits: T) -> Operation<T> {
        self.fetch(AtomicOp::xor(bits), "fetch-xor")
    }

    /// Keeps the smaller of both, and yields the previous value.
    pub fn fetch_min(self, other: T) -> Operation<T> {
        self.fetch(AtomicOp::min(other), "fetch-min")
    }

    /// Keeps the greater of both, and yields the previous value.
    pub fn fetch_max(self, other: T) -> Operation<T> {
        self.fetch(AtomicOp::max(other), "fetch-max")
    }

    /// Stores `new` into the word.
    pub fn store(self, new: T) -> Operation<()> {
        self.change(AtomicOp::swap(new), "store")
    }

    /// Adds `add`, wrapping.
    #[allow(clippy::should_implement_trait)] // Not a sum: it is done over there.
    pub fn add(self, add: T) -> Operation<()> {
        self.change(AtomicOp::add(add), "add")
    }

    /// Keeps the bits that are in both.
    pub fn and(self, bits: T) -> Operation<()> {
        self.change(AtomicOp::and(bits), "and")
    }

    /// Sets these bits.
    pub fn or(self, bits: T) -> Operation<()> {
        self.change(AtomicOp::or(bits), "or")
    }

    /// Flips these bits.
    pub fn xor(self, bits: T) -> Operation<()> {
        self.change(AtomicOp::xor(bits), "xor")
    }

    /// Keeps the smaller of both.
    pub fn min(self, other: T) -> Operation<()> {
        self.change(AtomicOp::min(other), "min")
    }

    /// Keeps the greater of both.
    pub fn max(self, other: T) -> Operation<()> {
        self.change(AtomicOp::max(other), "max")
    }

    fn fetch(self, op: AtomicOp, verb: &'static str) -> Operation<T> {
        self.region.atomic(self.offset, op, true, OperationKind::Word(verb))
    }

    fn change(self, op: AtomicOp, verb: &'static str) -> Operation<()> {
        self.region.atomic(self.offset, op, false, OperationKind::Word(verb))
    }
}
