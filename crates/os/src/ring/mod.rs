//! Submission and completion rings: how requests reach an engine and outcomes come back, without a
//! lock.
//!
//! Entries are a fixed number of 64-bit words, and all that is shared is atomic words in `repr(C)`
//! structures: no pointer, no destructor, nothing that could be undefined whatever the other side
//! writes. So the same rings can lie in memory shared by processes that do not trust each other:
//! who breaks the rules gets nonsense or nothing, and harms nobody else.
//!
//! - [`submission`]: bounded, many submitters, one taker (the engine, whoever drives it).
//! - [`completion`]: bounded, one completer, one taker.
//!
//! Neither blocks. A full ring refuses, and the caller decides: the application drives a turn, the
//! engine keeps the outcome for later. Whoever sleeps must look once more after it has said that it
//! sleeps, with a sequentially consistent fence between the two.

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

/// Entries of the largest ring.
pub const CAPACITY_MAX: usize = 1 << 20;

/// Rounded up to a power of two, so that positions may wrap; at least two, so that full and empty
/// differ in every slot.
fn round(capacity: usize) -> usize {
    capacity.clamp(2, CAPACITY_MAX).next_power_of_two()
}
