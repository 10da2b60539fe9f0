//! Collectives: calls that all nodes make, in the same order.
//!
//! | call | result | makes writes to arrays visible |
//! |---|---|---|
//! | [`Job::barrier`](crate::Job::barrier), [`Job::barrier_reduce`](crate::Job::barrier_reduce) | nothing; combined numbers of 64 bits | yes |
//! | [`Team::barrier`] | nothing | yes, among its ranks |
//! | [`Job::notify`](crate::Job::notify) with [`Job::wait_notify`](crate::Job::wait_notify), of two nodes | nothing | yes, of one to the other |
//! | [`Collectives`] of a job or a [`Team`] | moved and combined elements | no |
//!
//! [`Collectives`] move data only. They take no notice of guards of shared arrays.

mod barrier;
pub(crate) mod begin;
pub(crate) mod calls;
mod exact;
pub(crate) mod notify;
pub mod operator;
pub(crate) mod pending;
mod reducible;
pub(crate) mod run;
pub(crate) mod team;
pub(crate) mod untyped;

pub use begin::Start;
pub use calls::Collectives;
#[doc(hidden)]
pub use exact::Accumulator;
pub use exact::Float;
pub use pending::{Pending, PendingFuture};
pub use reducible::Reducible;
pub use team::Team;
