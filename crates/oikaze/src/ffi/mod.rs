//! Objects by number, for bindings of languages that have neither ownership nor lifetimes.
//!
//! This module exists with the cargo feature `ffi`. A binding keeps each object that Rust would own
//! ([`Job::keep`](crate::Job::keep), or a [`HandleTable`] of its own) and hands out its [`Handle`].
//! Types that Rust knows at compile time are given as values: [`AtomicOp`], [`Accumulation`],
//! [`ElementType`]. Arrays and collectives of such types are the ones of Rust programs:
//! [`UntypedArray`], [`Untyped`].

mod calls;
mod class;
mod handles;
mod interruption;
mod jobs;
mod leave;
mod parts;
mod readiness;
mod regions;
mod words;

pub use crate::collective::untyped::{Untyped, UntypedOperator, UntypedResult};
pub use crate::node::{PlaceFinder, find_places_by};
pub use crate::shared::untyped::{
    ElementKind, ElementType, PlainMemory, UntypedArray, UntypedArrayBuilder, UntypedReadGuard,
    UntypedWriteGuard,
};
pub use calls::{CallCounter, CallCounts};
pub use class::ErrorClass;
pub use handles::{Handle, HandleTable, Keepable};
pub(crate) use interruption::Interruption;
pub use interruption::{InterruptionCheck, interruptible};
#[doc(inline)]
pub use oikaze_os::memory::RegionId;
#[doc(inline)]
pub use oikaze_protocol::collective::CollectiveKind;
#[doc(inline)]
pub use oikaze_protocol::rma::{Accumulation, AtomicOp, Change, NumberKind, Width};
pub use parts::ErrorParts;
