//! Writer of one datagram.

use super::frame::CloseReason;
use super::prefix::{PREFIX_LEN, kind, put_prefix};
use crate::bytes::ByteWriter;
use crate::limits::{BULK_FRAME_LEN, HEADER_LEN};
use crate::wire::acknowledge::{AckFields, Acknowledgement, RefusedMessage};
use crate::wire::frame::{Fragment, Open, SETTLED_FRAME_LEN, SmallMessage, Withdrawal};
use crate::wire::group::Addressees;
use crate::wire::header::{Flags, Header};
use crate::wire::hello::{CookieReply, Hello, Refuse};
use crate::wire::seal::SealKind;
use alloc::vec::Vec;
use core::ops::RangeInclusive;

/// Appends one datagram to a buffer: header, frames, and (unless it lies in a segment) the payload.
/// The caller keeps within [`Builder::room`]. The engine writes the tag after the payload.
#[derive(Debug)]
pub struct Builder<'b> {
    into: &'b mut Vec<u8>,
    start: usize,
    limit: usize,
    header: Header,
}

impl<'b> Builder<'b> {
    /// Begins a datagram of at most `datagram_max` bytes, tag included.
    pub fn new(
        into: &'b mut Vec<u8>,
        connection: u64,
        number: u64,
        seal: SealKind,
        datagram_max: usize,
    ) -> Builder<'b> {
        let start = into.len();
        into.extend_from_slice(&[0; HEADER_LEN]);
        let header =
            Header { connection, number, flags: Flags(0), seal, frames_len: 0, payload_len: 0 };
        Builder { into, start, limit: datagram_max.saturating_sub(seal.tag_len()), header }
    }

    /// Sets another limit, tag included.
    #[must_use]
    pub fn limited(mut self, datagram_max: usize) -> Builder<'b> {
        self.limit = datagram_max.saturating_sub(self.header.seal.tag_len());
        self
    }

    /// Returns how many bytes may still be written.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit
            .saturating_sub(self.into.len() - self.start + usize::from(self.header.payload_len))
    }

    /// Returns the length so far in bytes, with the reserved payload and the tag.
    #[must_use]
    pub fn len(&self) -> usize {
        self.into.len() - self.start
            + usize::from(self.header.payload_len)
            + self.header.seal.tag_len()
    }

    /// Returns `true` if there is no frame yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.into.len() - self.start == HEADER_LEN
    }

    /// Sets flag bits.
    pub fn flag(&mut self, flags: Flags) {
        self.header.flags = self.header.flags.with(flags);
    }

    /// Returns `true` if these flag bits are set.
    #[must_use]
    pub fn has(&self, flags: Flags) -> bool {
        self.header.flags.has(flags)
    }

    /// Writes the bulk frame and reserves room for `len` bytes of payload. It must be the first
    /// frame (WIRE-3.3).
    pub fn fragment(&mut self, fragment: Fragment, len: u16) {
        debug_assert!(self.is_empty() && len > 0);
        self.flag(Flags::BULK);
        fragment.write(self.into);
        self.header.payload_len = len;
    }

    /// Writes an OPEN frame, the beginning of a message.
    pub fn open(&mut self, open: &Open<'_>) {
        open.write(self.into);
    }

    /// Writes a MESSAGE frame, a whole message.
    pub fn message(&mut self, message: &SmallMessage<'_>) {
        message.write(self.into);
    }

    /// Writes a WITHDRAW frame.
    pub fn withdraw(&mut self, withdrawal: Withdrawal) {
        withdrawal.write(self.into);
    }

    /// Writes an ACK frame with at least one range, largest first.
    pub fn acknowledge(
        &mut self,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        told: AckFields,
        refusals: &[RefusedMessage],
    ) {
        Acknowledgement::write(self.into, None, ranges, told, refusals);
    }

    /// Writes a GROUP_ACK frame: an ACK frame for the datagrams of this stream.
    pub fn group_acknowledge(
        &mut self,
        stream: u64,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        told: AckFields,
        refusals: &[RefusedMessage],
    ) {
        Acknowledgement::write(self.into, Some(stream), ranges, told, refusals);
    }

    /// Writes a GROUP frame. `numbers` are the low halves of the message's numbers, one for each
    /// bit of the mask, in their order. A probe has none.
    pub fn group(&mut self, members: u32, numbers: impl Iterator<Item = u32>) {
        Addressees::write(self.into, members, numbers);
    }

    /// Writes a SETTLED frame: all messages below this number are settled.
    pub fn settled(&mut self, number: u64) {
        put_prefix(self.into, kind::SETTLED, 0, SETTLED_FRAME_LEN);
        self.into.put_u64(number);
    }

    /// Writes a PING frame, which asks for an acknowledgement.
    pub fn ping(&mut self) {
        put_prefix(self.into, kind::PING, 0, PREFIX_LEN);
    }

    /// Fills the datagram up to its limit with a PAD frame, if there is room for a frame at all
    /// (WIRE-4.10).
    pub fn pad(&mut self) {
        let len = self.room();
        if len >= PREFIX_LEN {
            put_prefix(self.into, kind::PAD, 0, len);
            self.into.resize(self.into.len() + len - PREFIX_LEN, 0);
        }
    }

    /// Writes a CLOSE frame.
    pub fn close(&mut self, reason: CloseReason) {
        put_prefix(self.into, kind::CLOSE, reason as u8, PREFIX_LEN);
    }

    /// Writes a HELLO frame.
    pub fn hello(&mut self, hello: &Hello) {
        hello.write(self.into);
    }

    /// Writes a REFUSE frame.
    pub fn refuse(&mut self, refuse: &Refuse) {
        refuse.write(self.into);
    }

    /// Writes a COOKIE frame.
    pub fn cookie(&mut self, reply: &CookieReply) {
        reply.write(self.into);
    }

    /// Writes the header and returns the datagram's length in bytes, tag included. `inline` is the
    /// payload if it is to be copied behind the frames. Its length must be the reserved one.
    pub fn finish(&mut self, inline: Option<&[u8]>) -> usize {
        let frames = self.into.len() - self.start - HEADER_LEN;
        self.header.frames_len = u16::try_from(frames).unwrap_or(u16::MAX);
        if let Some(place) = self.into.get_mut(self.start..) {
            self.header.write(place);
        }
        if let Some(payload) = inline {
            debug_assert_eq!(payload.len(), usize::from(self.header.payload_len));
            self.into.extend_from_slice(payload);
        }
        HEADER_LEN + frames + usize::from(self.header.payload_len) + self.header.seal.tag_len()
    }

    /// Removes everything that was appended.
    pub fn discard(self) {
        self.into.truncate(self.start);
    }
}

const _: () = assert!(BULK_FRAME_LEN == PREFIX_LEN + 4 + 8);
