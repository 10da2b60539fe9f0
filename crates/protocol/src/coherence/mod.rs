//! Shared arrays (spec/coherence.md): home-based lazy release consistency (COH-1.1).

mod base;
mod clock;
pub(crate) mod codec;
mod failing;
mod fetching;
mod gathering;
mod locking;
mod mailbox;
#[cfg(test)]
mod model;
mod order;
mod pages;
mod questions;
mod releasing;
mod short_list;
mod statistics;
mod types;
mod updating;
mod writes;

pub use codec::{KIND, purpose};
pub use fetching::limits::{FETCH_PAGES_MAX, FETCH_RUNS_MAX, PREFETCH_PAGES_MAX};
pub use fetching::target_op::TargetOp;
pub use gathering::agreement::{AXES_MAX, REDUCE_MAX, SAME_CALLS, remedy_of};
pub use gathering::gather::both_wrote;
pub use gathering::tree::BarrierLinks;
pub use locking::lock_manager::LockView;
pub use mailbox::CONTROL_MAX;
pub use order::Coherence;
pub use pages::array::ARRAY_PAGES_MAX;
pub use pages::homes::{AxisHomes, Homes, Spread};
pub use pages::machine::{Access, ArrayId, Pages};
pub use releasing::guards::{Ownership, Spans, WriteId};
pub use statistics::{ArrayStatistics, CoherenceStatistics};
pub use types::{
    CallStep, CoherenceError, CoherenceEvent, Declaration, Element, Field, LockMode, ReduceOp,
    Reduction, Replacement, Value, Values,
};
pub use updating::delivery::Delivery;
