//! Rectangular blocks of a shared array, and guards of them.

pub(crate) mod array_block;
pub(super) mod guard;

pub use array_block::ArrayBlock;
pub use guard::{BlockReadGuard, BlockWriteGuard};
