//! Memory of an array that all nodes of a job map, and what they tell each other about it: live
//! guards, marks, bytes that guards owned, and groups of elements (spec/coherence.md, COH-16).
//!
//! - [`Extent`]: the exact bytes of a guard.
//! - `area`: the live guards of one node.
//! - `owned`: the bytes that guards of one node owned between two collectives.
//! - `groups`: operations on elements.
//! - [`Segment`]: all of them for one array, as one node uses them. [`SegmentTable`]: the segments
//!   of a node.

mod area;
#[cfg(not(all(test, loom)))]
mod entries;
mod extent;
mod groups;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(all(test, loom)))]
mod notes;
#[cfg(not(all(test, loom)))]
mod owned;
#[cfg(not(all(test, loom)))]
mod places;
#[cfg(not(all(test, loom)))]
mod shared;
#[cfg(not(all(test, loom)))]
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

pub use area::GuardEntry;
pub use extent::{ArrayForm, Extent};
#[cfg(not(all(test, loom)))]
pub use notes::SegmentNotes;
#[cfg(not(all(test, loom)))]
pub use shared::{OtherGuard, Segment, SegmentMembers, segment_file_len};
#[cfg(not(all(test, loom)))]
pub use table::{OwnedInterval, OwnedOverlap, SegmentTable};
