//! Runs a node's protocol in turns, whose stages are bounded and always in the same order.
//!
//! [`Engine::turn`] is the whole contract. A turn runs these stages:
//!
//! 1. *Ingress*: receives a burst from the link and passes it up through Wind to remote memory and
//!    coherence.
//! 2. *Events*: settles the operations that the burst has completed.
//! 3. *Timers*: runs the timers whose deadlines have come.
//! 4. *Submissions*: takes what threads asked for, and what the layers above owe their peers.
//! 5. *Egress*: transmits. No other stage does.
//! 6. *Completions*: settles the operations that the later stages have completed.
//!
//! Callers must call a turn again when [`Engine::next_timeout`] has come, the link has something,
//! or a submission was made.
//!
//! The engine knows neither threads nor locks nor clocks. Crate `oikaze` and the simulator each
//! give it their own.

mod buffer_pool;
mod client;
mod control;
mod counters;
mod engine;
pub mod failure;
mod flow;
mod groups;
mod inbox;
mod io;
mod layers;
mod leaving;
mod ops;
mod outcome;
mod peers;
mod regions;
mod sealing;
mod setup;
mod shm;
#[cfg(test)]
mod tests;
mod turn;
mod work;

pub use buffer_pool::Body;
pub use client::completion::{Completion, Keep, Outcome, Sink, Value};
pub use client::compound::Compound;
pub use client::fence_watch::Fences;
pub use client::label::{ANY_PEER, OperationKind, OperationLabel};
pub use client::posted::{MessagePlacement, PostedMemory};
pub use client::shm_channel::{ShmChannel, ShmChannels};
pub use client::shown_groups::{GroupState, ShownGroups};
pub use client::submission::{Request, Submission, Swap, tracked, tracked_by};
pub use client::untaken::UnreportedFailures;
pub use counters::Counters;
pub use engine::Engine;
pub use failure::Failure;
pub use groups::counters::GroupCounters;
pub use inbox::{Arrived, Inbox, Parcel, ParcelBody, Placed};
pub use ops::Ops;
pub use peers::Peers;
pub use sealing::seal;
pub use setup::{KeyOptions, Setup};
pub use shm::table::ShmPeers;
pub use work::Work;
