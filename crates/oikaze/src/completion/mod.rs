//! Completion queues and counters: ways besides handles to learn that operations have ended. A
//! queue reports each operation, and a counter reports their number.
//!
//! The turn that settles an operation informs queue and counter, whichever thread runs it.
//! Attaching to an operation that has already ended misses nothing. A queue holds a number that the
//! caller chose, so that a binding for another language needs no object of this crate.

mod counter;
mod queue;

pub use counter::{Counter, Counts};
pub use queue::{Completed, CompletionQueue};
