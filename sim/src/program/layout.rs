//! Layout of every node's regions: the part that each thread uses.

/// Bytes of each node's read-only region.
pub const FIXED_LEN: usize = 48 * 1024;
/// Number of words to which all threads add 1.
pub const ONES: u64 = 4;
/// Number of words to which all threads add any value.
pub const SUMS: u64 = 4;
/// Number of words whose values are exchanged.
pub const EXCHANGED: u64 = 4;
/// Number of signals that each thread has at each node.
pub const SIGNALS: u64 = 2;
/// Maximum number of threads with signals.
const THREADS_MAX: u64 = 64;
/// Bytes of each node's region of words.
pub const WORDS_LEN: usize = ((ONES + SUMS + EXCHANGED + SIGNALS * THREADS_MAX) * 8) as usize;

/// Part of one accessing thread, which is the same at every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Number of the thread among the accessing threads of all nodes.
    pub thread: u64,
    /// Bytes of the arena that only this thread writes.
    pub stripe: u64,
}

impl Layout {
    /// Returns the offset at which this thread's stripe begins.
    #[must_use]
    pub fn stripe_at(&self) -> u64 {
        self.thread * self.stripe
    }

    /// Returns the offset of one of this thread's signal words.
    #[must_use]
    pub fn signal_at(&self, signal: u64) -> u64 {
        (ONES + SUMS + EXCHANGED + self.thread * SIGNALS + signal) * 8
    }

    /// Returns the bytes of an arena for this many threads.
    #[must_use]
    pub fn arena_len(threads: u64, stripe: u64) -> usize {
        (threads.max(1) * stripe) as usize
    }
}
