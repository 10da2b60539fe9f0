//! Mail of a node: messages and puts with notice that have arrived and are not read.

pub(super) mod arrivals;
pub(super) mod mailbox;
mod read_credit;
