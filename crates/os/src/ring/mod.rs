//! Lock-free submission and completion rings, which carry requests to an engine and outcomes back.
//!
//! Entries are a fixed number of 64-bit words. All shared data is atomic words in `repr(C)`
//! structures, without pointers or destructors. So nothing that the other side writes causes
//! undefined behaviour, and the rings can lie in memory shared by processes that do not trust each
//! other. A process that breaks the rules receives nonsense or nothing, and harms no other process.
//!
//! - [`submission`]: bounded, many submitters, one consumer (the engine, on any driver thread).
//! - [`completion`]: bounded, one producer, one consumer.
//!
//! Neither ring blocks. A full ring refuses an entry, and the caller decides: the application
//! drives a turn, the engine keeps the outcome for later. A thread that sleeps must first mark
//! itself as asleep, make a sequentially consistent fence, and poll once more.

mod completion;
mod slot;
mod submission;
mod sync;

#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, not(loom)))]
mod tests;

pub use completion::{Completer, Outcomes, completion};
pub use submission::{Requests, Submitter, submission};

/// The ring is full: nothing was put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring is full")]
pub struct Full;

/// Maximum number of entries of a ring.
pub const CAPACITY_MAX: usize = 1 << 20;

/// Rounds a capacity up to a power of two, so that positions may wrap. The capacity is at least
/// two, so that full and empty differ in every slot.
fn round(capacity: usize) -> usize {
    capacity.clamp(2, CAPACITY_MAX).next_power_of_two()
}
