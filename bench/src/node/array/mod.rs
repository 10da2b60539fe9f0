//! Nodes that share an array: a lock with an element that passes between them, and the memory of
//! nodes that all read the array.

pub(super) mod lock;
pub(super) mod memory;
