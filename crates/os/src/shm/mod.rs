//! Shared memory between two nodes of one machine, and the Unix socket between them
//! (spec/memory.md, MEM-16).
//!
//! - [`Listener`]: accepts connections of local peers. [`ControlSocket`] is one such connection,
//!   the control socket, which carries descriptors. A byte on it is the doorbell that wakes a
//!   sleeping peer, and its end is the end of the peer's process.
//! - [`Pair`]: one side of two rings ([`Writer`], [`Reader`]) in memory that both processes map.
//! - [`Mapped`]: a local peer's region that is accessed without asking its owner. [`Grants`] is the
//!   owner's side.
//! - [`Arena`]: words that all nodes of a job map if they are on one machine.
//! - [`Segment`]: the guards of all nodes of a machine over an array that they share.
//! - [`Watch`]: one descriptor for all control sockets of a node.
//!
//! The memory is a sealed file, so that neither process can make the other's accesses fail.
//! Everything read from it is copied before it is checked, and no reference into it is ever made. A
//! local peer that writes nonsense, or writes at any moment, damages only what it sends.

mod arena;
#[cfg(not(all(test, loom)))]
mod control_socket;
#[cfg(not(all(test, loom)))]
mod copy;
#[cfg(not(all(test, loom)))]
mod lease;
mod lease_marks;
#[cfg(not(all(test, loom)))]
mod listener;
mod memory;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(all(test, loom)))]
mod pair;
pub(crate) mod planted;
mod ring;
mod segment;
#[cfg(not(all(test, loom)))]
mod watch;

#[cfg(all(debug_assertions, not(all(test, loom))))]
#[doc(hidden)]
pub use arena::signal_at_point;
#[cfg(not(all(test, loom)))]
pub use arena::{Arena, ArenaEvent, ArenaWait, arena_memory};
pub use arena::{CallWay, MEMBERS_MAX};
#[cfg(not(all(test, loom)))]
pub use arena::{JobLocks, LockEntry, LockHost, LockWaiter};
pub use arena::{LockLoss, LockState, LockTicket};
pub use arena::{PIECE_BYTES, PieceNumber, SLOT_BYTES, SlotHead};
#[cfg(not(all(test, loom)))]
pub use control_socket::{CONTROL_MESSAGE_MAX, ControlMessage, ControlSocket, WrongUser};
#[cfg(not(all(test, loom)))]
pub use lease::{Bell, Grants, Mapped, RegionGrant, to_give};
#[cfg(not(all(test, loom)))]
pub use listener::{CALLERS_MAX, Listener};
pub use memory::Part;
#[cfg(not(all(test, loom)))]
pub use pair::{Pair, PairRole, shared_memory};
pub use ring::{Full, Reader, RingView, STEP_BODY, Writer};
pub use segment::{ArrayForm, Extent, GuardEntry};
#[cfg(not(all(test, loom)))]
pub use segment::{
    OtherGuard, OwnedInterval, OwnedOverlap, Segment, SegmentMembers, SegmentNotes, SegmentTable,
    segment_file_len,
};
#[cfg(not(all(test, loom)))]
pub use watch::Watch;
