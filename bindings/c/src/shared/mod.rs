//! Barriers, locks, notifications, and arrays of all nodes.

pub mod sync;

pub mod array;
