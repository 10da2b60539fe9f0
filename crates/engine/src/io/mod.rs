//! Datagrams in and out: what a turn receives, and what it transmits.

pub(crate) mod bulk_quota;
pub(crate) mod cookies;
pub(crate) mod direct_placement;
pub(crate) mod egress;
pub(crate) mod ingress;
pub(crate) mod token_bucket;
