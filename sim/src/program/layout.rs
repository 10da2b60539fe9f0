//! Where the threads' parts of every node's regions are.

/// Bytes of each node's read-only region.
pub const FIXED_LEN: usize = 48 * 1024;
/// Words that everybody adds 1 to.
pub const ONES: u64 = 4;
/// Words that everybody adds anything to.
pub const SUMS: u64 = 4;
/// Words whose values are exchanged.
pub const EXCHANGED: u64 = 4;
/// Signals that each thread has at each node.
pub const SIGNALS: u64 = 2;
/// Threads that may have signals.
const THREADS_MAX: u64 = 64;
/// Bytes of each node's region of words.
pub const WORDS_LEN: usize = ((ONES + SUMS + EXCHANGED + SIGNALS * THREADS_MAX) * 8) as usize;

/// The part of one accessing thread: the same at every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Counts the accessing threads of all nodes.
    pub thread: u64,
    /// Bytes of the arena that only this thread writes.
    pub stripe: u64,
}

impl Layout {
    /// Where this thread's stripe begins.
    #[must_use]
    pub fn stripe_at(&self) -> u64 {
        self.thread * self.stripe
    }

    /// Where this thread's signal words are.
    #[must_use]
    pub fn signal_at(&self, signal: u64) -> u64 {
        (ONES + SUMS + EXCHANGED + self.thread * SIGNALS + signal) * 8
    }

    /// Bytes of an arena for so many threads.
    #[must_use]
    pub fn arena_len(threads: u64, stripe: u64) -> usize {
        (threads.max(1) * stripe) as usize
    }
}
