//! Tests of reliable multicast: one sender and its members, over channels that lose, repeat and
//! reorder datagrams by member.

mod delivery;
mod foreign;
mod forged;
mod members;
#[cfg(feature = "planted-bugs")]
mod planted;
mod world;
