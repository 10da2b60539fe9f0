//! Which bytes of running messages will most likely come next, so that they can be received
//! directly into their place (MEM-3.7).
//!
//! A guess: nothing that is decided depends on it. It plays the sender's part (WIND-3.6): the
//! message that has its turn goes on until that is over or it is whole, then those have theirs that
//! have waited longest.

use super::Connection;
use super::assembly::{Assembly, Destination};
use crate::limits::{BULK_ACTIVE, BULK_RUN, BULK_RUN_OVER, FORESEEN_MAX};
use crate::wire::{Frame, View, open_frame_len};
use alloc::collections::VecDeque;
use arrayvec::ArrayVec;
use core::hash::{Hash, Hasher};
use core::ops::Range;

/// Bytes of a body that is being placed, none of which has come, and how they are likely to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The message's number.
    pub message: u64,
    /// Where in its body they begin.
    pub offset: u64,
    /// How many datagrams bring them.
    pub pieces: usize,
    /// Payload of each.
    pub piece: usize,
    /// Bytes of the frame with the message's beginning in each (WIND-2.6), or 0.
    pub opening: usize,
}

impl Expected {
    /// Is this the datagram that brings the piece with this index, and nothing else?
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

/// What comes next, in datagrams that are equally long.
#[derive(Clone, Debug)]
pub struct Forecast {
    each: ArrayVec<Expected, FORESEEN_MAX>,
    piece: usize,
    /// For so many pieces there is room.
    room: usize,
}

impl Forecast {
    /// Nothing, with room for so many bytes.
    fn new(piece: usize, bytes: usize) -> Forecast {
        Forecast { each: ArrayVec::new(), piece, room: bytes.checked_div(piece).unwrap_or(0) }
    }

    /// One behind the other.
    pub fn iter(&self) -> impl Iterator<Item = &Expected> {
        self.each.iter()
    }

    /// Is this the datagram that was expected as the `index`-th (from 0), with this fragment and
    /// nothing else in it?
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

    /// How far a message will have come then.
    fn end_of(&self, turn: &Turn) -> u64 {
        let told = self.each.iter().rev().find(|expected| expected.message == turn.message);
        told.map_or(turn.end, |expected| {
            expected.offset + (expected.pieces * expected.piece) as u64
        })
    }

    /// A message has a turn for at most so many fragments, of these missing bytes: the `tail` of
    /// its body, or up to what is here already. Can be told what follows?
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
        // Not behind a last piece that is shorter.
        pieces == most || (tail && (pieces * piece) as u64 == len)
    }
}

/// How far a message had come when its latest fragment did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub message: u64,
    /// Where that fragment ended.
    pub end: u64,
    /// It came with the message's beginning.
    pub opens: bool,
}

/// What is remembered to guess by. It is no part of a connection's state: two that differ in it
/// alone behave alike.
#[derive(Clone, Debug, Default)]
pub(super) struct Guess {
    /// Messages in the order in which they had their turns, the latest last; some may be over.
    turns: VecDeque<Turn>,
    /// Fragments that the latest has brought in this turn.
    run: u32,
    /// What a fragment holds that is not a message's last.
    piece: usize,
}

impl Guess {
    /// A fragment of so many bytes has brought something new.
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

    /// What comes next, up to so many bytes, of the messages that are being gathered.
    pub fn forecast<'a>(
        &self,
        bytes: usize,
        gathered: impl Fn(u64) -> Option<&'a Assembly>,
    ) -> Forecast {
        let mut forecast = Forecast::new(self.piece, bytes);
        for (turn, most) in self.turns() {
            let Some(assembly) = gathered(turn.message) else { continue };
            let Some(missing) = assembly.missing(forecast.end_of(&turn)) else { continue };
            if assembly.destination != Destination::Place {
                break;
            }
            let opening = if turn.opens { open_frame_len(assembly.head.len()) } else { 0 };
            let tail = missing.end == assembly.len;
            // A turn goes on to a message's end if that is near.
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

    /// Who has a turn for how many fragments: the latest goes on, then all in their order, it again
    /// as the last.
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
    /// What will probably come next by the bulk lane, up to so many bytes of payload.
    #[must_use]
    pub fn expected(&self, bytes: usize) -> Forecast {
        self.inbox.expected(bytes)
    }
}
