//! Exchange of values in the slots of an arena (COLL-7), in place of parcels.

use oikaze_os::shm::{Arena, SLOT_BYTES, SlotHead};
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{CollectiveCall, CollectiveKind};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Number of latest calls that a rank remembers: more than a rank has slots.
const CALLS: usize = 8;
/// Bit of the first word of a head: the values are in the slot.
const IN_SLOT: u64 = 1 << 63;

/// The slots of a team's ranks, as one rank uses them. Collectives are numbered from 0, as in the
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
    /// A rank has called something else.
    Contradiction(Contradiction),
    /// This rank gives another number of elements than it says.
    Broken(Rank),
}

impl Exchange {
    /// Makes the exchange of `ranks` ranks, of which this one is `me`, before the first collective.
    pub fn new(arena: Arc<Arena>, me: Rank, ranks: usize) -> Exchange {
        let (compared, calls) = (vec![0; ranks], VecDeque::with_capacity(CALLS + 1));
        Exchange { arena, me, compared, next: 0, calls }
    }

    /// Returns the rank of this node.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Comes to a collective, with values if there are any. They fit a slot.
    ///
    /// # Errors
    /// A rank may still read the slot; or a rank has called something else before (COLL-7.4).
    pub fn give(
        &mut self,
        number: u64,
        call: CollectiveCall,
        values: Option<&[u8]>,
    ) -> Result<(), Obstacle> {
        let place = number + 1;
        // First, because others may wait for it.
        self.pass_over(number);
        while let Some(reader) = self.arena.first_reader(place) {
            // The rank must come to the collective after the one whose slot this is.
            if self.arena.wait_for(reader, Arena::number_of_release(place)) {
                return Err(Obstacle::Waits(reader));
            }
        }
        self.arena.end_wait();
        // Heads that are about to be overwritten.
        for rank in (0..).take(self.compared.len()) {
            self.compare(rank, (number + 1).saturating_sub(Arena::SLOTS))?;
        }
        let head = head_of(&call, values.is_some());
        self.arena.give(place, head, values.unwrap_or_default());
        self.next = place;
        self.calls.push_back((number, call));
        if self.calls.len() > CALLS {
            self.calls.pop_front();
        }
        Ok(())
    }

    /// Passes over all collectives below `number`, which this rank does not come to (COLL-7.5).
    pub fn pass_over(&mut self, number: u64) {
        if self.next < number {
            self.arena.pass_over(number);
            self.next = number;
        }
    }

    /// Returns the call of a rank that has come to a collective, and whether its values are in its
    /// slot.
    ///
    /// # Errors
    /// The rank has not come, or has called something else in this collective or before.
    pub fn call_of(&mut self, rank: Rank, number: u64) -> Result<(CollectiveCall, bool), Obstacle> {
        let place = number + 1;
        if !self.arena.has_given(rank, place) && self.arena.wait_for(rank, place) {
            return Err(Obstacle::Waits(rank));
        }
        self.compare(rank, place)?;
        self.arena.end_wait();
        let head = self.arena.head(rank, place);
        // A rank that has passed over the collective says why in a parcel.
        head.and_then(|head| call_of(&head)).ok_or(Obstacle::Waits(rank))
    }

    /// Compares a rank's calls below `end` with this rank's, as far as they are in slots.
    fn compare(&mut self, rank: Rank, end: u64) -> Result<(), Obstacle> {
        let Some(compared) = self.compared.get_mut(rank as usize) else { return Ok(()) };
        if *compared >= end || rank == self.me {
            return Ok(());
        }
        let from = std::mem::replace(compared, end).max(end.saturating_sub(Arena::SLOTS));
        for &(number, mine) in self.calls.iter().filter(|call| (from..end).contains(&call.0)) {
            let head = self.arena.head(rank, number + 1);
            if let Some((theirs, _)) = head.and_then(|head| call_of(&head))
                && mine.contradicts(&theirs)
            {
                *compared = number + 1;
                let contradiction = Contradiction { number, from: rank, theirs, mine };
                return Err(Obstacle::Contradiction(contradiction));
            }
        }
        Ok(())
    }

    /// Copies values of a rank that has come, from byte `at` on.
    pub fn read(&self, rank: Rank, number: u64, at: usize, into: &mut [u8]) {
        self.arena.read(rank, number + 1, at, into);
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

/// Returns `true` if the values that one rank gives to a collective fit a slot. All ranks that know
/// the count get the same answer.
pub(super) fn fits_slot(kind: CollectiveKind, count: usize, size: usize, ranks: usize) -> bool {
    if size == 0 {
        return false;
    }
    let blocks = match kind {
        CollectiveKind::Scatter | CollectiveKind::AllToAll | CollectiveKind::ReduceScatter => ranks,
        CollectiveKind::Shrink => return false,
        _ => 1,
    };
    count.saturating_mul(blocks).saturating_mul(size) <= SLOT_BYTES
}

/// Returns the ranks for which a rank waits in a collective, in their order. In a scan that is all
/// of them, so that each rank finds a call that differs.
pub(super) fn sources(kind: CollectiveKind, me: Rank, root: Rank, ranks: usize) -> Range<Rank> {
    let all = 0..Rank::try_from(ranks).unwrap_or(Rank::MAX);
    match kind {
        CollectiveKind::Broadcast | CollectiveKind::Scatter => root..root.saturating_add(1),
        CollectiveKind::Gather | CollectiveKind::Reduce if me != root => 0..0,
        CollectiveKind::Shrink => 0..0,
        _ => all,
    }
}

fn head_of(call: &CollectiveCall, is_in_slot: bool) -> SlotHead {
    let mut words = call.to_words();
    words[0] |= if is_in_slot { IN_SLOT } else { 0 };
    words
}

fn call_of(head: &SlotHead) -> Option<(CollectiveCall, bool)> {
    let [first, second, third] = *head;
    let call = CollectiveCall::from_words([first & !IN_SLOT, second, third])?;
    Some((call, first & IN_SLOT != 0))
}
