//! Releases: this node's writes go to their homes. Guards tell what was written.

pub(crate) mod guards;
pub(crate) mod release;
