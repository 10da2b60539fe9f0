//! Frames of reliable multicast: GROUP and GROUP_ACK (WIRE-4.12, WIRE-4.13).

use super::prefix::{PREFIX_LEN, kind, put_prefix};
use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::limits::GROUP_MEMBERS_MAX;
use crate::wire::acknowledge::Acknowledgement;
use alloc::vec::Vec;

/// Bytes of the mask of members.
const MASK: usize = 4;
/// Bytes of the number of one member.
const NUMBER: usize = 4;

const _: () = assert!(GROUP_MEMBERS_MAX == 8 * MASK, "each member has one bit of the mask");

/// Kind of datagram that carries a part of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// Datagram of the connection, which only the peer can have written.
    Connection,
    /// Group datagram, which any member of the stream can have written (WIND-12.11).
    Group,
}

/// A checked GROUP frame: the members to which a group datagram is addressed, and the number of its
/// message in the connection to each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addressees<'a> {
    members: u32,
    numbers: &'a [u8],
}

impl<'a> Addressees<'a> {
    /// Returns the length in bytes of a frame with this many message numbers.
    #[must_use]
    pub const fn frame_len(numbers: usize) -> usize {
        PREFIX_LEN + MASK + numbers * NUMBER
    }

    /// Returns `true` if the datagram is addressed to this member.
    #[must_use]
    pub fn has(&self, member: u8) -> bool {
        self.members.checked_shr(u32::from(member)).is_some_and(|rest| rest & 1 == 1)
    }

    /// Returns the member with the least index.
    #[must_use]
    pub fn first(&self) -> u8 {
        self.members.trailing_zeros() as u8
    }

    /// Returns `true` if the datagram has no message, and only asks for an acknowledgement.
    #[must_use]
    pub fn is_probe(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Returns the low half of the number that the message has in the connection to this member.
    #[must_use]
    pub fn number_of(&self, member: u8) -> Option<u32> {
        if !self.has(member) {
            return None;
        }
        let before = self.members & ((1 << member) - 1);
        let (numbers, _) = self.numbers.as_chunks::<NUMBER>();
        numbers.get(before.count_ones() as usize).map(|number| u32::from_le_bytes(*number))
    }

    pub(super) fn parse(body: &mut ByteReader<'a>) -> Result<Addressees<'a>, Invalid> {
        let members = body.u32()?;
        let numbers = body.take(body.0.len())?;
        let one_each = numbers.len() == members.count_ones() as usize * NUMBER;
        if members == 0 || !(one_each || numbers.is_empty()) {
            return Err(Invalid);
        }
        Ok(Addressees { members, numbers })
    }

    /// Writes a frame. `numbers` has one number for each member of the mask, in their order, or
    /// none.
    pub(super) fn write(into: &mut Vec<u8>, members: u32, numbers: impl Iterator<Item = u32>) {
        let start = into.len();
        put_prefix(into, kind::GROUP, 0, 0);
        into.put_u32(members);
        for number in numbers {
            into.put_u32(number);
        }
        let len = u16::try_from(into.len() - start).unwrap_or(0);
        if let Some(place) = into.get_mut(start + 2..start + PREFIX_LEN) {
            place.copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// A checked GROUP_ACK frame: an acknowledgement of group datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub struct GroupAcknowledgement<'a> {
    /// Id of the stream whose datagrams are acknowledged.
    pub stream: u64,
    /// The acknowledgement. Its lane is the bulk lane.
    pub ack: Acknowledgement<'a>,
}
