//! Collectives: calls that all nodes make, in the same order.
//!
//! | call | result | makes writes to arrays visible |
//! |---|---|---|
//! | [`Job::barrier`](crate::Job::barrier), [`Job::barrier_reduce`](crate::Job::barrier_reduce) | nothing; combined values | yes |
//! | [`Collectives`] of a job or a [`Team`] | moved and combined elements | no |
//!
//! [`Collectives`] move data only. They take no notice of guards of shared arrays.

mod barrier;
mod calls;
mod exact;
mod operator;
mod pending;
mod run;
mod start;
mod team;

pub use barrier::{ReduceOp, Reducible};
pub use calls::Collectives;
#[doc(hidden)]
pub use exact::Accumulator;
pub use exact::Float;
pub use operator::{
    And, Function, Item, Max, MaxLocation, Min, MinLocation, Operator, Or, Product, Sum, Xor,
    commuting, ordered,
};
pub use pending::{Pending, PendingFuture};
pub(crate) use run::Registry;
pub use start::Start;
pub use team::Team;
