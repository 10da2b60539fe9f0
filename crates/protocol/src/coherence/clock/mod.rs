//! Vector clock, intervals and write notices.

pub(crate) mod epoch;
pub(crate) mod knowledge;
pub(crate) mod moves;
pub(crate) mod notices;
pub(crate) mod rise;
pub(crate) mod stable;
pub(crate) mod vector;
