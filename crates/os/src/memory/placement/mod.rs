//! Moves pages instead of copying bytes (spec/memory.md, MEM-17).
//!
//! - [`Placement::exchange`]: exchanges the contents of two ranges of whole pages. Addresses stay.
//! - [`Placement::transfer`]: one range takes the pages of another, whose content is undefined
//!   afterwards.
//! - [`install`]: maps pages of a shared region that were written through its alias for the
//!   program, before the program touches them.
//!
//! The way depends on the memory, on the size, and on the machine's speed at each
//! ([`calibration`]):
//!
//! | kind | exchange | transfer |
//! |---|---|---|
//! | private | three moves (`UFFDIO_MOVE`) via a spare; copy | move if empty, else exchange; copy |
//! | shared | copy, through the aliases | copy |
//! | borrowed, different kinds | copy | copy |
//! | alias of a shared array | refused: coherence keeps account of these pages | refused |
//!
//! ## What the program promises, and what happens if it does not
//!
//! No thread touches the two ranges meanwhile. Between two moves a page is unmapped for a moment,
//! and a thread that touches the page then sees zeros. No page is lost by such a touch: the kernel
//! refuses to move onto the page that the touch has made, and the mover copies the bytes over it. A
//! touch in the middle therefore sees one range, the other, or zeros, and a store there may be
//! lost. Afterwards both ranges are what they should be, and memory outside them is never affected.
//! An address is never without a mapping, as it would be between two calls of `mremap`.
//!
//! ## What the kernel does not move
//!
//! The kernel does not move pages that are pinned (by an io_uring), were shared by a fork, or are
//! locked in memory. Such pages are copied one by one. A forked child copies everything, because
//! the descriptor that it inherits would move its parent's pages.
//!
//! The link finds the memory that it gathers from or scatters into by address, for each datagram
//! anew. To the link, an exchange is as if all bytes of both ranges had been written.
//! [`Job::exchange`](../../../oikaze/struct.Job.html) goes through the engine, between two turns,
//! so that no system call of ours is using the pages.
//!
//! Bench cases: all cases of `bench exchange`.

pub mod calibration;
mod choice;
mod chunk;
mod copy;
mod error;
mod huge_moves;
pub(super) mod mover;
mod range;
mod scratch;
mod self_test;
mod strategy;
#[cfg(test)]
mod tests;
mod view;

pub use super::mapping::page_size;
pub use error::PlacementError;
pub use huge_moves::whole as whole_units;
pub use mover::Placed;
pub use range::{PageRange, check};
pub use strategy::{Placement, PlacementMethod};
pub use view::{install, retract};
