//! Lists that several languages have, each written once. All other lists are made from them.

#[macro_use]
mod kinds;
#[macro_use]
mod operators;

mod element_kind;

pub use element_kind::{ElementKind, KindClass};
pub(crate) use element_kind::{named, numpy_of};
