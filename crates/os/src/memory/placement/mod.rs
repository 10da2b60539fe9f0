//! Pages that change place instead of bytes (spec/memory.md, MEM-17).
//!
//! - [`Placement::exchange`]: two ranges of whole pages change their contents; addresses stay.
//! - [`Placement::transfer`]: one range takes the pages of another, which is worth nothing
//!   afterwards.
//! - [`install`]: pages of a shared region, written through its alias, are mapped for the program
//!   ahead of its touch.
//!
//! How it is done depends on the memory, on the size, and on what the machine is good at
//! ([`calibration`]):
//!
//! | kind | exchange | transfer |
//! |---|---|---|
//! | private | three moves (`UFFDIO_MOVE`) through a spare place; copy | one move into an empty place, an exchange with a full one; copy |
//! | shared | copy, through the aliases | copy |
//! | borrowed, different kinds | copy | copy |
//! | alias of a shared array | refused: coherence keeps account of these pages | refused |
//!
//! ## What the program promises, and what happens if it does not
//! Nobody touches the two ranges meanwhile. Between two moves a page is nowhere for a moment, and a
//! thread that touches it then sees zeros. No page is lost by that: the kernel refuses to move onto
//! a page that has appeared, and its bytes are copied over it. So a touch in the middle sees one
//! range, the other, or zeros; what it stores there may be gone; afterwards both ranges are what
//! they should be, and memory outside them is never concerned. Never is an address without a
//! mapping, as it would be between two calls of `mremap`.
//!
//! ## What the kernel does not move
//! Pages that are pinned (by an io_uring), were shared by a fork, or are locked in memory; they are
//! copied one by one. A forked child copies everything: the descriptor that it inherits would move
//! its parent's pages.
//!
//! What the link gathers from or scatters into is found by address, and each datagram anew: an
//! exchange is to it as if all bytes of both ranges had been written.
//! [`Job::exchange`](../../../oikaze/struct.Job.html) goes through the engine, between two turns,
//! so that no system call of ours has the pages in hand.

pub mod calibration;
mod choice;
mod copy;
mod error;
mod huge_moves;
mod mover;
mod place;
mod self_test;
mod span;
mod spare;
mod step;
#[cfg(test)]
mod tests;
mod view;

pub use error::PlacementError;
pub use huge_moves::whole as whole_units;
pub use mover::Placed;
pub(super) use mover::Watched;
pub use place::{Placement, Way};
pub use span::{Pages, check, page_size};
pub use view::{install, retract};
