//! Shared arrays: the same memory on every node, read and written with plain loads and stores.

mod array;
mod guard;
mod lock;

pub use array::{Element, SharedArray};
pub use guard::{ReadGuard, WriteGuard};
pub use lock::LockGuard;
