//! Forecast of the bytes of running messages that will most likely come next, so that they can be
//! received directly into their place (MEM-3.7).
//!
//! The forecast is a guess on which no decision depends. It imitates the sender (WIND-3.6): the
//! message that has its turn goes on until the turn is over or the message is whole. Then the
//! messages follow that have waited longest.

use crate::limits::{BULK_ACTIVE, BULK_RUN, BULK_RUN_OVER, FORESEEN_MAX};
use crate::wind::Connection;
use crate::wind::recv::reassembly::{Assembly, BodyDestination};
use crate::wire::{Frame, View, open_frame_len};
use alloc::collections::VecDeque;
use arrayvec::ArrayVec;
use core::hash::{Hash, Hasher};
use core::ops::Range;

/// Bytes of a body that is being placed, none of which has arrived, and how the sender will likely
/// fragment them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Number of the message.
    pub message: u64,
    /// Offset of the bytes in its body.
    pub offset: u64,
    /// Number of datagrams that bring the bytes.
    pub pieces: usize,
    /// Payload of each datagram, in bytes.
    pub piece: usize,
    /// Bytes of the frame with the message's beginning in each datagram (WIND-2.6), or 0.
    pub opening: usize,
}

impl Expected {
    /// Returns `true` if the datagram brings the piece with this index, and nothing else.
    fn is(&self, index: usize, view: &View<'_>) -> bool {
        let mut frames = view.frames();
        let Some(Ok(Frame::Fragment(fragment))) = frames.next() else { return false };
        let opens = match frames.next() {
            None => false,
            Some(Ok(Frame::Open(open))) if open.number == self.message => true,
            Some(_) => return false,
        };
        let offset = (index as u64)
            .checked_mul(self.piece as u64)
            .and_then(|ahead| self.offset.checked_add(ahead));
        frames.next().is_none()
            && opens == (self.opening > 0)
            && view.payload().len() == self.piece
            && fragment.message_low == self.message as u32
            && Some(fragment.offset) == offset
    }
}

/// Forecast of what comes next, in datagrams of equal length.
#[derive(Clone, Debug)]
pub struct Forecast {
    each: ArrayVec<Expected, FORESEEN_MAX>,
    piece: usize,
    /// Number of pieces for which there is room.
    room: usize,
}

impl Forecast {
    /// Creates an empty forecast with room for `bytes` bytes.
    fn new(piece: usize, bytes: usize) -> Forecast {
        Forecast { each: ArrayVec::new(), piece, room: bytes.checked_div(piece).unwrap_or(0) }
    }

    /// Returns the expected ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = &Expected> {
        self.each.iter()
    }

    /// Returns `true` if this is the datagram that was expected as the `index`-th (from 0), with
    /// that fragment and nothing else in it.
    #[must_use]
    pub fn is(&self, mut index: usize, view: &View<'_>) -> bool {
        for expected in &self.each {
            match index.checked_sub(expected.pieces) {
                None => return expected.is(index, view),
                Some(later) => index = later,
            }
        }
        false
    }

    /// Returns how far the message will have come after the forecast so far.
    fn end_of(&self, turn: &Turn) -> u64 {
        let told = self.each.iter().rev().find(|expected| expected.message == turn.message);
        told.map_or(turn.end, |expected| {
            expected.offset + (expected.pieces * expected.piece) as u64
        })
    }

    /// Adds at most `most` fragments of a message, from its missing bytes. If `tail` is set, these
    /// reach to the end of its body, otherwise up to bytes that have arrived already. Returns
    /// `true` if the forecast can go on behind them.
    fn add(
        &mut self,
        message: u64,
        opening: usize,
        missing: Range<u64>,
        tail: bool,
        most: usize,
    ) -> bool {
        if most == 0 {
            return true;
        }
        let (piece, len) = (self.piece, missing.end - missing.start);
        let whole =
            usize::try_from(len.checked_div(piece as u64).unwrap_or(0)).unwrap_or(usize::MAX);
        let pieces = whole.min(most).min(self.room);
        let expected = Expected { message, offset: missing.start, pieces, piece, opening };
        let alike = self.each.first().is_none_or(|first| first.opening == opening);
        if pieces == 0 || !alike || self.each.try_push(expected).is_err() {
            return false;
        }
        self.room -= pieces;
        // Nothing can be forecast behind a shorter last piece.
        pieces == most || (tail && (pieces * piece) as u64 == len)
    }
}

/// Progress of a message when its latest fragment arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub message: u64,
    /// Offset at which that fragment ended.
    pub end: u64,
    /// Whether the fragment came with the message's beginning.
    pub opens: bool,
}

/// History from which the forecast is made. It is no part of a connection's state: connections that
/// differ only in it behave alike.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guess {
    /// Messages in the order of their turns, the latest last. Some may be over.
    turns: VecDeque<Turn>,
    /// Number of fragments that the latest message has brought in this turn.
    run: u32,
    /// Bytes in a fragment that is not the last of its message.
    piece: usize,
}

impl Guess {
    /// Records a fragment of `bytes` bytes that has brought something new.
    pub fn learn(&mut self, turn: Turn, bytes: usize, last: bool) {
        match self.turns.back_mut() {
            Some(latest) if latest.message == turn.message => {
                *latest = turn;
                self.run = self.run % BULK_RUN + 1;
            }
            _ => {
                self.turns.retain(|other| other.message != turn.message);
                if self.turns.len() >= BULK_ACTIVE {
                    self.turns.pop_front();
                }
                self.turns.push_back(turn);
                self.run = 1;
            }
        }
        if !last || self.piece == 0 {
            self.piece = bytes;
        }
    }

    /// Returns what comes next, up to `bytes` bytes, of the messages that are being reassembled.
    pub fn forecast<'a>(
        &self,
        bytes: usize,
        gathered: impl Fn(u64) -> Option<&'a Assembly>,
    ) -> Forecast {
        let mut forecast = Forecast::new(self.piece, bytes);
        for (turn, most) in self.turns() {
            let Some(assembly) = gathered(turn.message) else { continue };
            let Some(missing) = assembly.missing(forecast.end_of(&turn)) else { continue };
            if assembly.destination != BodyDestination::Place {
                break;
            }
            let opening = if turn.opens { open_frame_len(assembly.head.len()) } else { 0 };
            let tail = missing.end == assembly.len;
            // A turn goes on to the message's end if that is near.
            let left =
                usize::try_from((missing.end - missing.start).div_ceil(self.piece.max(1) as u64))
                    .unwrap_or(usize::MAX);
            let most =
                if tail && left <= most + BULK_RUN_OVER as usize { most.max(left) } else { most };
            if !forecast.add(turn.message, opening, missing, tail, most) {
                break;
            }
        }
        forecast
    }

    /// Returns the coming turns and their fragment counts: the latest message goes on, then all
    /// others follow in order, and the latest is again the last.
    fn turns(&self) -> impl Iterator<Item = (Turn, usize)> {
        let rest =
            self.turns.back().map(|latest| (*latest, BULK_RUN.saturating_sub(self.run) as usize));
        rest.into_iter().chain(self.turns.iter().map(|turn| (*turn, BULK_RUN as usize)))
    }
}

impl Hash for Guess {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Connection {
    /// Returns what will probably come next by the bulk lane, up to `bytes` bytes of payload.
    #[must_use]
    pub fn expected(&self, bytes: usize) -> Forecast {
        self.inbox.expected(bytes)
    }
}
