//! Exchange of values in the memory of a machine (COLL-7), in place of parcels.

use oikaze_os::shm::{Arena, ArenaEvent, PieceNumber, SlotHead};
use oikaze_protocol::Rank;
use oikaze_protocol::collective::CollectiveCall;
use oikaze_runtime::node::WordPolls;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Number of latest calls that a rank remembers: more than a rank has slots.
const CALLS: usize = 8;

/// The memory of a team's ranks, as one rank uses it. Collectives are numbered from 0, as in the
/// team.
pub(super) struct Exchange {
    arena: Arc<Arena>,
    me: Rank,
    /// For each rank, the number below which this rank has compared all calls with its own.
    compared: Vec<u64>,
    /// Number below which this rank has come to all collectives, or passed over them.
    next: u64,
    /// The latest calls of this rank.
    calls: VecDeque<(u64, CollectiveCall)>,
    /// Number below which this rank reads no piece.
    read: PieceNumber,
    /// Polls for an event before this rank notes that it waits.
    polls: WordPolls,
    /// Pieces that this rank still gives and reads before it pauses.
    pieces: usize,
    /// Memory for values that are combined.
    pub scratch: Vec<u8>,
}

/// Call of another rank that contradicts this rank's of the same number (COLL-7.4).
pub(super) struct Contradiction {
    pub number: u64,
    pub from: Rank,
    pub theirs: CollectiveCall,
    pub mine: CollectiveCall,
}

/// Reason for which a rank cannot go on in an exchange.
pub(super) enum Obstacle {
    /// It waits for this rank.
    Waits(Rank),
    /// It can go on, and looks first whether anything else is to be done.
    Pauses,
    /// A rank has called something else.
    Contradiction(Contradiction),
    /// This rank gives another number of elements than it says.
    Broken(Rank),
    /// There is not enough memory for a result of so many bytes.
    NoMemory(usize),
}

impl Exchange {
    /// Makes the exchange of `ranks` ranks, of which this one is `me`, before the first collective.
    pub fn new(arena: Arc<Arena>, me: Rank, ranks: usize) -> Exchange {
        let (compared, calls) = (vec![0; ranks], VecDeque::with_capacity(CALLS + 1));
        let (read, scratch) = (PieceNumber::default(), Vec::new());
        Exchange {
            arena,
            me,
            compared,
            next: 0,
            calls,
            read,
            polls: WordPolls::NONE,
            pieces: 0,
            scratch,
        }
    }

    /// Sets how often this rank polls for an event before it notes that it waits, and how many
    /// pieces it gives and reads before it pauses.
    pub fn limit(&mut self, polls: WordPolls, pieces: usize) {
        (self.polls, self.pieces) = (polls, pieces);
    }

    /// Counts a piece of a collective that is given or read.
    ///
    /// # Errors
    /// This rank pauses first.
    pub fn count_piece(&mut self, number: u64) -> Result<(), Obstacle> {
        if let Some(left) = self.pieces.checked_sub(1) {
            self.pieces = left;
            return Ok(());
        }
        // An event that has happened: no thread of this node sleeps until the rank goes on.
        _ = self.arena.wait_for(ArenaEvent::Comes(self.me, number + 1));
        Err(Obstacle::Pauses)
    }

    /// Waits for an event, as long as the polls last.
    fn wait_for(&mut self, event: ArenaEvent, of: Rank) -> Result<(), Obstacle> {
        self.polls.renew();
        while !self.arena.has_happened(event) && self.polls.wait() {}
        if !self.arena.has_happened(event) && self.arena.wait_for(event) {
            return Err(Obstacle::Waits(of));
        }
        self.arena.end_wait();
        Ok(())
    }

    /// Comes to a collective, with values if there are any. They fit a slot.
    ///
    /// # Errors
    /// A rank may still read the slot; or a rank has called something else before (COLL-7.4).
    pub fn give(
        &mut self,
        number: u64,
        call: CollectiveCall,
        values: &[u8],
    ) -> Result<(), Obstacle> {
        let place = number + 1;
        // First, because others may wait for it.
        self.pass_over(number);
        while let Some(reader) = self.arena.first_reader(place) {
            // The rank must come to the collective after the one whose slot this is.
            let event = ArenaEvent::Comes(reader, Arena::number_of_release(place));
            self.wait_for(event, reader)?;
        }
        // Heads that are about to be overwritten.
        for rank in (0..).take(self.compared.len()) {
            self.compare(rank, (number + 1).saturating_sub(Arena::SLOTS))?;
        }
        self.arena.give(place, call.to_words(), values);
        self.next = place;
        self.calls.push_back((number, call));
        if self.calls.len() > CALLS {
            self.calls.pop_front();
        }
        Ok(())
    }

    /// Passes over all collectives below `number`, which this rank does not come to (COLL-7.5).
    fn pass_over(&mut self, number: u64) {
        if self.next < number {
            self.arena.pass_over(number);
            self.next = number;
            // Other ranks may have given pieces.
            self.note_read(PieceNumber::after(number));
        }
    }

    /// Leaves all collectives below `number`, which have ended here or failed. The rank reads none
    /// of their values any more, and waits for none.
    pub fn leave(&mut self, number: u64) {
        self.pass_over(number);
        self.note_read(PieceNumber::after(number));
        self.arena.end_wait();
    }

    /// Returns the call of a rank that has come to a collective.
    ///
    /// # Errors
    /// The rank has not come, or has called something else in this collective or before.
    pub fn call_of(&mut self, rank: Rank, number: u64) -> Result<CollectiveCall, Obstacle> {
        let place = number + 1;
        self.wait_for(ArenaEvent::Comes(rank, place), rank)?;
        self.compare(rank, place)?;
        let head = self.arena.head(rank, place);
        // A rank that has passed over the collective says why in a parcel.
        head.and_then(CollectiveCall::from_words).ok_or(Obstacle::Waits(rank))
    }

    /// Compares a rank's calls below `end` with this rank's, as far as they are in slots.
    fn compare(&mut self, rank: Rank, end: u64) -> Result<(), Obstacle> {
        let Some(compared) = self.compared.get_mut(rank as usize) else { return Ok(()) };
        if *compared >= end || rank == self.me {
            return Ok(());
        }
        let from = std::mem::replace(compared, end).max(end.saturating_sub(Arena::SLOTS));
        // The latest calls are compared, so look at those first.
        let latest = self.calls.iter().rev().take_while(|call| call.0 >= from);
        let mut found = None;
        for &(number, mine) in latest.filter(|call| call.0 < end) {
            let words: Option<SlotHead> = self.arena.head(rank, number + 1);
            if let Some(theirs) = words.and_then(CollectiveCall::from_words)
                && mine.contradicts(&theirs)
            {
                found = Some(Contradiction { number, from: rank, theirs, mine });
            }
        }
        match found {
            Some(contradiction) => {
                *compared = contradiction.number + 1;
                Err(Obstacle::Contradiction(contradiction))
            }
            None => Ok(()),
        }
    }

    /// Copies short values of a rank that has come, from byte `at` on.
    pub fn read(&self, rank: Rank, number: u64, at: usize, into: &mut [u8]) {
        self.arena.read(rank, number + 1, at, into);
    }

    /// Writes parts of this rank's values into its piece, but for the part of number `kept` if
    /// there are several, and gives it. No rank reads its buffer any more.
    pub fn give_piece(
        &self,
        (number, piece): (u64, u64),
        values: &[u8],
        ranges: impl ExactSizeIterator<Item = Range<usize>>,
        kept: Option<usize>,
    ) {
        let place = PieceNumber::of(number + 1, piece);
        let kept = kept.filter(|_| ranges.len() > 1);
        let mut at = 0;
        for (part, range) in ranges.enumerate() {
            let values = values.get(range).unwrap_or_default();
            if kept != Some(part) {
                self.arena.write_piece(place, at, values);
            }
            at += values.len();
        }
        self.arena.give_piece(place);
    }

    /// Returns `true` if the buffer of this rank's piece is free.
    pub fn is_piece_free(&self, (number, piece): (u64, u64)) -> bool {
        self.arena.first_piece_reader(PieceNumber::of(number + 1, piece)).is_none()
    }

    /// Waits until the buffer of this rank's piece is free.
    ///
    /// # Errors
    /// A rank may still read it.
    pub fn wait_for_buffer(&mut self, (number, piece): (u64, u64)) -> Result<(), Obstacle> {
        let place = PieceNumber::of(number + 1, piece);
        while let Some((reader, event)) = self.arena.first_piece_reader(place) {
            self.wait_for(event, reader)?;
        }
        Ok(())
    }

    /// Waits for a piece of a rank.
    ///
    /// # Errors
    /// The rank has not given it.
    pub fn wait_for_piece(&mut self, from: Rank, of: (u64, u64)) -> Result<(), Obstacle> {
        self.wait_for(ArenaEvent::GivesPiece(from, PieceNumber::of(of.0 + 1, of.1)), from)
    }

    /// Copies a part of a piece that a rank has given.
    pub fn read_piece(&self, from: Rank, of: (u64, u64), at: usize, into: &mut [u8]) {
        self.arena.read_piece(from, PieceNumber::of(of.0 + 1, of.1), at, into);
    }

    /// Notes that this rank reads no pieces of a collective below this one.
    pub fn note_piece_read(&mut self, (number, piece): (u64, u64)) {
        self.note_read(PieceNumber::of(number + 1, piece));
    }

    /// Notes that this rank reads no pieces of a collective.
    pub fn note_all_read(&mut self, number: u64) {
        self.note_read(PieceNumber::after(number + 1));
    }

    fn note_read(&mut self, before: PieceNumber) {
        if self.read < before {
            self.read = before;
            self.arena.note_read(before);
        }
    }

    /// Returns `true` if this rank waits for one that has come meanwhile.
    pub fn may_go_on(&self) -> bool {
        self.arena.is_awaited_here()
    }

    /// Notes that this rank waits for none.
    pub fn end_wait(&self) {
        self.arena.end_wait();
    }
}
