//! Arena: memory that all nodes of a job map if they are on one machine. Its words say which calls
//! of all nodes each node has come to (COH-6.14). So a barrier costs a store and some loads. Its
//! slots and buffers have what each node gives to collectives of data (COLL-7). Its table of locks
//! says which node has each lock (COH-16.10).
//!
//! The memory is a sealed file, as that of rings is, so that no process can make another's accesses
//! fail.

#[cfg(not(all(test, loom)))]
mod job_locks;
mod locks;
#[cfg(not(all(test, loom)))]
mod member;
#[cfg(all(test, loom))]
mod models;
mod pieces;
pub(super) mod points;
mod slots;
mod words;

#[cfg(not(all(test, loom)))]
pub use job_locks::{JobLocks, LockEntry, LockHost, LockWaiter};
pub use locks::{LockLoss, LockState, LockTicket};
#[cfg(not(all(test, loom)))]
pub use member::{Arena, ArenaEvent, ArenaWait, arena_memory};
pub use pieces::{PIECE_BYTES, PieceNumber};
#[cfg(all(debug_assertions, not(all(test, loom))))]
pub use points::signal_at_point;
pub use slots::{SLOT_BYTES, SlotHead};
pub use words::{CallWay, MEMBERS_MAX};
