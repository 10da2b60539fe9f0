//! State of one message that is being sent, and the progress of its bytes.

use crate::limits::{
    BODY_MAX, BULK_FRAME_LEN, CREDIT_OVERHEAD, FRAGMENT_STEP, HEADER_LEN, MESSAGE_MAX, PAGE,
};
use crate::time::Time;
use crate::wind::ack::ranges::RangeSet;
use crate::wind::event::Event;
use crate::wind::send::message::{Body, Charge, Class, Head, Token};
use crate::wire::frame::{message_frame_len, open_frame_len};
use crate::wire::seal::SealKind;
use alloc::collections::VecDeque;

/// State of a message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// The message waits for establishment or for the peer's credit.
    Waiting,
    /// The message goes in one frame, and is in the small queue or in flight.
    Small { queued: bool },
    /// The message goes in fragments.
    Bulk(SendProgress),
    /// The message was withdrawn, and the peer must learn that its number is done.
    Withdrawn { queued: bool },
    /// The message has arrived. Its event follows once all messages before it are settled.
    Acknowledged,
    /// The message needs no more events.
    Settled,
}

/// State of a shared message towards one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedStage {
    /// The message waits for the member's credit.
    Waiting,
    /// Bytes from here on wait for group datagrams.
    Sending { next: u64 },
    /// Nothing of the message waits for group datagrams any more.
    Ended,
}

/// Progress of a fragmented message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SendProgress {
    /// Offset before which all bytes have been sent at least once.
    pub next: u64,
    /// Bytes before `next` that are to be sent again.
    pub lost: RangeSet,
    /// Bytes before `next` that have arrived (WIND-4.3).
    pub acked: RangeSet,
    /// Whether the connection has told the peer the message's beginning.
    pub opened: bool,
    /// Whether the message is in the rotation.
    pub active: bool,
}

/// Message that is being sent.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Outgoing {
    pub class: Class,
    pub urgent: bool,
    pub charge: Charge,
    /// Whether the message was counted against the peer's credit.
    pub charged: bool,
    pub head: Head,
    pub body: Body,
    pub len: u64,
    pub posted: Time,
    pub token: Token,
    /// Whether the body is cut at page boundaries.
    pub pages: bool,
    /// Whether the bytes that were never sent go by group datagrams (WIND-12.3).
    pub shared: bool,
    /// Whether group datagrams of the message were acknowledged, of which another member can have
    /// forged some (WIND-12.11).
    pub by_group: bool,
    pub stage: Stage,
}

/// Piece of a body to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyPiece {
    pub number: u64,
    pub offset: u64,
    pub len: u32,
    /// Whether nothing of this message waits to be sent after this piece.
    pub last: bool,
    /// Whether the piece was sent before.
    pub was_sent: bool,
}

/// Bytes that fit into a datagram to this peer, known once established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sizes {
    /// Maximum bytes of frames.
    pub frames: usize,
    /// Maximum bytes of a fragment.
    pub fragment: usize,
}

impl Sizes {
    /// Returns the sizes for datagrams of at most `size` bytes that end with this seal's tag.
    pub fn within(size: usize, seal: SealKind) -> Sizes {
        let frames = size.saturating_sub(HEADER_LEN + seal.tag_len());
        Sizes { frames, fragment: frames.saturating_sub(BULK_FRAME_LEN) }
    }

    /// Returns the maximum bytes of a fragment of a body with `body` bytes (WIND-2.5). `row` is the
    /// length of its rows, if it has rows. If `head` is given, the fragment shares its datagram
    /// with the message's beginning.
    pub fn fragment(self, body: u64, row: Option<u32>, head: Option<&[u8]>) -> u64 {
        let beside = head.map_or(0, |head| open_frame_len(head.len()));
        let room = self.fragment.min(self.frames.saturating_sub(BULK_FRAME_LEN + beside));
        // A row that is split across two datagrams costs both ends more than a few unused bytes.
        let row = row.map(|row| row as usize).filter(|row| *row > 0);
        let between = row.map(|row| room % row).filter(|left| *left <= room / 8);
        let whole = room - between.unwrap_or(room % FRAGMENT_STEP);
        // For a short body, one more datagram costs more than the alignment gains.
        let short = room.max(PAGE) as u64;
        if body <= short || whole == 0 { room as u64 } else { whole as u64 }
    }

    /// Returns `true` if this message may be sent whole (WIND-2.4).
    pub fn hold(self, message: &Outgoing) -> bool {
        let elsewhere = matches!(message.body, Body::Segment(_) | Body::Rows(_)) && message.len > 0;
        !elsewhere && self.fit(message.head.len(), message.len)
    }

    /// Returns `true` if a head and a body fit into one frame.
    pub fn fit(self, head: usize, body: u64) -> bool {
        message_frame_len(head, body).is_some_and(|len| len <= self.frames)
    }
}

/// Returns the maximum length of a message. The receiver must hold a body that costs credit
/// (WIND-6.7).
pub(crate) fn body_max(charge: Charge) -> u64 {
    if charge == Charge::Body { MESSAGE_MAX } else { BODY_MAX }
}

/// Returns the receive credit that a credited message uses of whose body `len` bytes cost credit
/// (WIND-6.3).
pub(crate) fn cost(len: u64) -> u64 {
    len.saturating_add(CREDIT_OVERHEAD)
}

/// Posts an event, unless the token is [`Token::NONE`].
pub(crate) fn report(
    events: &mut VecDeque<Event>,
    token: Token,
    event: impl FnOnce(Token) -> Event,
) {
    if token != Token::NONE {
        events.push_back(event(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{DATAGRAM_ETHERNET, DATAGRAM_MIN, HEAD_MAX};
    use crate::wire::SealKind;

    /// WIND-2.5.
    #[test]
    fn a_full_fragment_is_what_fits_in_whole_cache_lines() {
        let fragment = |datagram, head| {
            Sizes::within(datagram, SealKind::EndToEnd).fragment(1 << 20, None, head)
        };
        let ethernet = usize::from(DATAGRAM_ETHERNET);
        for (datagram, alone, beside) in
            [(8972, 8896, 8832), (ethernet, 1408, 1280), (DATAGRAM_MIN, 1152, 1088)]
        {
            assert_eq!(fragment(datagram, None), alone);
            assert_eq!(fragment(datagram, Some(&[0; HEAD_MAX])), beside);
        }
        let sizes = Sizes::within(ethernet, SealKind::EndToEnd);
        let whole = (ethernet - HEADER_LEN - BULK_FRAME_LEN - 4) as u64;
        for (body, full) in [(whole, whole), (PAGE as u64, whole), (PAGE as u64 + 1, 1408)] {
            assert_eq!(
                sizes.fragment(body, None, None),
                full,
                "a short body needs as few datagrams as can be"
            );
        }
        let jumbo = Sizes::within(8972, SealKind::EndToEnd);
        let rows = [8, 1000, 1024, 3000, 9000].map(|row| jumbo.fragment(1 << 20, Some(row), None));
        assert_eq!(rows, [8928, 8000, 8192, 8896, 8896], "whole rows, if that leaves little empty");
    }
}
