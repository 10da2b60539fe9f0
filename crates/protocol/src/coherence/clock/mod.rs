//! Vector clock, intervals and write notices.

pub(crate) mod epoch;
pub(crate) mod notices;
pub(crate) mod vector;
