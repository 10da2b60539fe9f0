//! Nodes that share an array: the times to declare it and to take a guard, a lock with an element
//! that passes between them, and the memory of nodes that all read the array.

pub(super) mod declare;
pub(super) mod guard;
pub(super) mod lock;
pub(super) mod memory;
