//! Messages of programs: their kinds, their heads, and which posted receive takes one.

pub(crate) mod kind;
pub(in crate::rma) mod matching;
pub(in crate::rma) mod stream;
pub(in crate::rma) mod user;
