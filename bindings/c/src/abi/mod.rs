//! How calls and values of C enter, and how results leave.

pub mod call;
pub mod objects;
pub mod place;
pub mod pointers;
