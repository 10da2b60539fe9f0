//! Lists that several languages have, each written once. All other lists are made from them.

#[macro_use]
mod kinds;
#[macro_use]
mod operators;

pub(crate) mod element_kind;

pub use element_kind::{ElementKind, KindClass};
