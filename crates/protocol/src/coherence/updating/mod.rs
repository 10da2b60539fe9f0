//! Updates: written bytes that travel to readers with the barrier (COH-10).
//!
//! - `send`: a writer sends what its guards and its diffs have written to the subscribers of each
//!   page, and counts the messages.
//! - `shares`: which nodes got everything that was written to pages.
//! - `delivery`: the five ways in which a transfer ends at its receiver.
//! - `receive`: a reader applies the bytes to valid pages, counts the messages, and holds those
//!   that come too early.
//! - `pending`: a reader knows which updates a notification tells of.
//! - `subscribe`: a reader begins and ends its subscriptions.
//! - `subscribers`: a home learns who reads which page after each update, and tells remote writers.

pub(crate) mod delivery;
pub(crate) mod head;
pub(crate) mod page_sets;
pub(crate) mod pending;
pub(crate) mod readers;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod shares;
pub(crate) mod subscribe;
pub(crate) mod subscribers;
pub(crate) mod updates;
