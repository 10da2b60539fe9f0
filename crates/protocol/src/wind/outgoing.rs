//! One message on its way out: where it stands, and how far its bytes are.

use super::ranges::RangeSet;
use super::{Body, Class, Event, Head, Token};
use crate::limits::{
    BODY_MAX, BULK_FRAME_LEN, CREDIT_OVERHEAD, FRAGMENT_STEP, HEADER_LEN, MESSAGE_MAX, PAGE,
};
use crate::time::Time;
use crate::wire::{SealKind, message_frame_len, open_frame_len};
use alloc::collections::VecDeque;

/// Where a message stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The connection is not established, or the peer's credit does not suffice.
    Waiting,
    /// Goes in one frame; it is in the small queue, or in flight.
    Small { queued: bool },
    /// Goes in fragments.
    Bulk(Progress),
    /// Taken back; the peer must learn that its number is done.
    Withdrawn { queued: bool },
    /// The peer has it; it is told once all before it are settled.
    Acknowledged,
    /// Nothing more to be told.
    Settled,
}

/// How far a message in fragments is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Progress {
    /// Bytes before this have been sent at least once.
    pub next: u64,
    /// Of those, the ones to be sent again.
    pub lost: RangeSet,
    /// Of those, the ones that have arrived (WIND-4.3).
    pub acked: RangeSet,
    /// The peer knows the beginning.
    pub opened: bool,
    /// It is in the rotation.
    pub active: bool,
}

/// A message on its way.
#[derive(Clone, Debug, Hash)]
pub(super) struct Outgoing {
    pub class: Class,
    pub urgent: bool,
    pub credited: bool,
    /// It was counted against the peer's credit.
    pub charged: bool,
    pub head: Head,
    pub body: Body,
    pub len: u64,
    pub posted: Time,
    pub token: Token,
    /// Its body is cut between pages.
    pub pages: bool,
    pub stage: Stage,
}

/// A piece of a body to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub number: u64,
    pub offset: u64,
    pub len: u32,
    /// Nothing of this message waits to be sent after this.
    pub last: bool,
    /// It was sent before, and lost.
    pub again: bool,
}

/// What fits into a datagram to this peer, known once established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sizes {
    /// Bytes of frames at most.
    pub frames: usize,
    /// Bytes of a fragment at most.
    pub fragment: usize,
}

impl Sizes {
    /// Of datagrams of at most `size` bytes that end with this seal's tag.
    pub fn within(size: usize, seal: SealKind) -> Sizes {
        let frames = size.saturating_sub(HEADER_LEN + seal.tag_len());
        Sizes { frames, fragment: frames.saturating_sub(BULK_FRAME_LEN) }
    }

    /// Bytes that a fragment holds at most of a body of so many, in rows of so many if it is one of
    /// rows, with the beginning of the message beside it, if that has a head here (WIND-2.5).
    pub fn fragment(self, body: u64, row: Option<u32>, head: Option<&[u8]>) -> u64 {
        let beside = head.map_or(0, |head| open_frame_len(head.len()));
        let room = self.fragment.min(self.frames.saturating_sub(BULK_FRAME_LEN + beside));
        // A row in two datagrams costs both ends more than some bytes that stay empty.
        let row = row.map(|row| row as usize).filter(|row| *row > 0);
        let between = row.map(|row| room % row).filter(|left| *left <= room / 8);
        let whole = room - between.unwrap_or(room % FRAGMENT_STEP);
        // A datagram more costs a short body more than that gives it.
        let short = room.max(PAGE) as u64;
        if body <= short || whole == 0 { room as u64 } else { whole as u64 }
    }

    /// May this message travel whole (WIND-2.4)?
    pub fn hold(self, message: &Outgoing) -> bool {
        let elsewhere = matches!(message.body, Body::Segment(_) | Body::Rows(_)) && message.len > 0;
        !elsewhere && self.fit(message.head.len(), message.len)
    }

    /// Do a head and a body fit into one frame?
    pub fn fit(self, head: usize, body: u64) -> bool {
        message_frame_len(head, body).is_some_and(|len| len <= self.frames)
    }
}

/// Maximum length of a message: of a credited one the receiver must hold the body (WIND-6.7).
pub(super) fn body_max(credited: bool) -> u64 {
    if credited { MESSAGE_MAX } else { BODY_MAX }
}

/// What a credited message takes of the receiver's credit (WIND-6.3).
pub(super) fn cost(len: u64) -> u64 {
    len.saturating_add(CREDIT_OVERHEAD)
}

/// Post an event, if somebody wants it.
pub(super) fn tell(events: &mut VecDeque<Event>, token: Token, event: impl FnOnce(Token) -> Event) {
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
            assert_eq!(
                (fragment(datagram, None), fragment(datagram, Some(&[0; HEAD_MAX]))),
                (alone, beside)
            );
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
