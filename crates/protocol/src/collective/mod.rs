//! Collective operations as plans (spec/collective.md).
//!
//! A [`Plan`] is what one rank does in one collective: a list of steps in rounds (COLL-2.1). A step
//! sends a part of the work buffer, receives into a part, combines two parts, or copies one. Plans
//! are pure: they know neither element types nor time. The node runs them, and the tests of this
//! module run the plans of all ranks on one thread.
//!
//! | operation | algorithms |
//! |---|---|
//! | broadcast | binomial tree; scatter and ring all-gather; multicast |
//! | gather, scatter | binomial tree |
//! | reduce | binomial tree; Rabenseifner |
//! | all_reduce | recursive doubling; ring; Rabenseifner |
//! | all_gather | recursive doubling; ring; Bruck |
//! | reduce_scatter | ring; reduce and scatter |
//! | scan, exclusive_scan | recursive doubling |
//! | all_to_all | Bruck; pairwise exchange |
//!
//! Sources: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
//! MPICH", 2005; Bruck et al., "Efficient Algorithms for All-to-All Communications", 1997.

mod bruck;
pub(crate) mod call;
mod choice;
mod doubling;
mod hierarchy;
mod memory;
mod pairwise;
mod plan;
mod rabenseifner;
mod request;
mod ring;
mod sequence;
mod shrink;
mod tree;

#[cfg(test)]
mod tests;

pub use call::{
    CollectiveCall, CollectiveKind, ElementCode, ElementNames, NamedCall, Operator, PARCEL_HEAD,
    ParcelHead, ParcelPurpose, hash_of_lengths,
};
pub use choice::{CollectiveAlgorithm, Facts, choose};
pub use memory::{CombineSteps, MemoryFacts, MemoryPlan, PIECES_MAX, PieceRoom, ReadOperand};
pub use plan::{Arrival, Order, Part, Plan, PlanStep, RoundNumber, WHOLE};
pub use request::{Lengths, PlanError, PlanRequest, may_send_whole, plan};
pub use sequence::{CallCounts, DataCallPosition, OrderMistake, OrderPart};
pub use shrink::{Agreed, Agreement, GoneView};
