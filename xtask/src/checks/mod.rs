//! Checks of the text of the tree, which need no build.

pub mod clauses;
pub mod folders;
pub mod imports;
pub mod names;
pub mod prose;
pub mod ratchet;
