//! Reliable multicast (WIND-12): the bytes of a message to several nodes go once, as datagrams to
//! an IP multicast address.
//!
//! The message is an ordinary message of the connection to each receiver, and only its first flight
//! is shared. Numbers, order, credit, settlement and deaths are those of the connections. What a
//! member of the group lacks comes by its own connection as ordinary fragments. So nothing depends
//! on multicast, not even on its arriving anywhere.

mod flight;
mod follow;
pub(in crate::wind) mod groups;
mod member;
mod post;
mod repair;
mod stream;
mod transmit;

pub use member::MemberState;
pub use stream::{GroupStatistics, GroupStream, Members};
pub use transmit::GroupTransmit;

use crate::limits::{GROUP_BODY_MIN, GROUP_RECEIVERS_MIN};

/// Returns `true` if a body of `len` bytes to this many receivers over the network is worth group
/// datagrams (WIND-12.3).
#[must_use]
pub const fn is_worthwhile(len: u64, receivers: usize) -> bool {
    len >= GROUP_BODY_MIN && receivers >= GROUP_RECEIVERS_MIN
}
