//! Other ways to learn that operations have ended than their handles: queues, which tell each, and
//! counters, which tell how many.
//!
//! Both are told by the turn that settles the operation, whoever runs it; attaching after the fact
//! misses nothing. What a queue is told is a number that the caller chose, so that a face in
//! another language needs nothing that lives here.

mod counter;
mod queue;

pub use counter::{Counter, Counts};
pub use queue::{Completed, CompletionQueue};
