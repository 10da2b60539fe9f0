//! Tests of reliable multicast: one sender and its members, over channels that lose, repeat and
//! reorder datagrams by member.

mod delivery;
mod foreign;
mod members;
mod world;
