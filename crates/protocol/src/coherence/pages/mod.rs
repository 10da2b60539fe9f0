//! Shared arrays of this node: homes, states and bytes of their pages.

pub(crate) mod array;
pub(crate) mod change_homes;
pub(crate) mod copies;
pub(crate) mod diff;
pub(crate) mod homes;
pub(crate) mod machine;
pub(crate) mod moving;
pub(crate) mod number_set;
pub(crate) mod page;
pub(crate) mod run_map;
pub(crate) mod table;
