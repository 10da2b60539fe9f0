//! Tests of the wrappers between two hosts.

mod frames;
mod plain_only;
mod splice;
mod tcx;
pub(in crate::net) mod veth;
