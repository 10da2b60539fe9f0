//! Slots of an arena: what each member gives to collectives of data (COLL-7). No system calls.
//!
//! A member has a few slots, which its collectives take in turn. Only the member writes them. Every
//! word is read once and checked.

use super::points::pass_point;
use crate::shm::memory::{Memory, Ordering, Part, fence};
use crate::shm::planted::{Bug, planted};

/// Slots of a member. Few in models, so that they are used again.
pub(super) const SLOTS: u64 = if cfg!(all(test, loom)) { 2 } else { 4 };
/// Maximum number of bytes that a slot has room for.
pub const SLOT_BYTES: usize = if cfg!(all(test, loom)) { 8 } else { 4096 };
/// Words by which the members compare their calls.
pub type SlotHead = [u64; 3];
/// Offset in a slot of the latest number for which its member has begun to write it.
const BEGUN: usize = 8 * (1 + size_of::<SlotHead>() / 8);
/// Offset of the bytes in a slot. A short value is in one cache line with the head.
const BYTES: usize = BEGUN + 8;
/// Bytes from one slot to the next: whole pairs of cache lines.
const STRIDE: usize = (BYTES + SLOT_BYTES).next_multiple_of(128);

/// Returns the bytes of the slots of this many members, behind a line for each.
pub(super) const fn len_of(members: usize) -> usize {
    members * (LINE + SLOTS as usize * STRIDE)
}

/// Bytes of a member's line, which has the latest number that the member has passed over.
const LINE: usize = 128;

/// Returns the number of the collective to which all members must come before the slot of
/// collective `number` may be written: the one after the earlier user of the slot.
pub(super) const fn number_of_release(number: u64) -> u64 {
    (number + 1).saturating_sub(SLOTS)
}

/// The slots of an arena, as one member sees them. Collectives are numbered from 1.
#[derive(Clone, Debug)]
pub(super) struct Slots {
    memory: Memory,
    me: usize,
    members: usize,
}

impl Slots {
    /// Takes zeroed slots of `members` members.
    pub fn new(memory: Memory, me: usize, members: usize) -> Slots {
        Slots { memory, me, members }
    }

    #[inline]
    fn slot(&self, member: usize, number: u64) -> usize {
        let slot = member * SLOTS as usize + (number % SLOTS) as usize;
        self.members * LINE + slot * STRIDE
    }

    /// Returns `true` if a member has come to this collective, or to a later one.
    #[inline]
    pub fn has_come(&self, member: usize, number: u64) -> bool {
        self.memory.load(self.slot(member, number), Ordering::Acquire) >= number
            || self.memory.load(member * LINE, Ordering::Acquire) >= number
    }

    /// Returns the first member that may still read the slot of this collective, which is that of
    /// an earlier one, if any may. A member reads it until the member comes to the one after that.
    #[inline]
    pub fn first_reader(&self, number: u64) -> Option<usize> {
        let release = number_of_release(number);
        if planted(Bug::UseSlotEarly) {
            return None;
        }
        // The first collectives find their slots free.
        let is_read = |member: &usize| *member != self.me && !self.has_come(*member, release);
        (0..self.members).find(|member| release > 1 && is_read(member))
    }

    /// Comes to this collective with a head and bytes. No member reads the slot any more
    /// ([`Slots::first_reader`]). Bytes beyond the room of a slot are left out.
    #[inline]
    pub fn give(&self, number: u64, head: SlotHead, bytes: &[u8]) {
        let slot = self.slot(self.me, number);
        pass_point();
        // A member that compares the head of the earlier collective sees that it is gone.
        self.memory.store(slot + BEGUN, number, Ordering::Relaxed);
        fence(Ordering::Release);
        pass_point();
        if planted(Bug::NumberSlotFirst) {
            self.memory.store(slot, number, Ordering::Release);
        }
        for (at, word) in head.into_iter().enumerate() {
            self.memory.store(slot + 8 * (at + 1), word, Ordering::Relaxed);
        }
        self.memory.write(slot + BYTES, &Part::Bytes(bytes.get(..SLOT_BYTES).unwrap_or(bytes)));
        pass_point();
        let unordered = planted(Bug::NumberSlotUnordered);
        let order = if unordered { Ordering::Relaxed } else { Ordering::Release };
        self.memory.store(slot, number, order);
    }

    /// Passes over all collectives up to this one, without a slot.
    pub fn pass_over(&self, number: u64) {
        self.memory.store(self.me * LINE, number, Ordering::Release);
    }

    /// Returns a member's head of this collective. It is `None` if the member has not come to the
    /// collective, has passed over it, or uses the slot again. Before it does that, it has compared
    /// the head with those of all members.
    #[inline]
    pub fn head(&self, member: usize, number: u64) -> Option<SlotHead> {
        let slot = self.slot(member, number);
        if self.memory.load(slot, Ordering::Acquire) != number {
            return None;
        }
        let head = [1, 2, 3].map(|at| self.memory.load(slot + 8 * at, Ordering::Relaxed));
        fence(Ordering::Acquire);
        let begun = self.memory.load(slot + BEGUN, Ordering::Relaxed);
        (begun == number || planted(Bug::ReadTornHead)).then_some(head)
    }

    /// Copies a member's bytes of this collective from `at` on, which has a head.
    #[inline]
    pub fn read(&self, member: usize, number: u64, at: usize, into: &mut [u8]) {
        if at.checked_add(into.len()).is_some_and(|end| end <= SLOT_BYTES) {
            self.memory.read(self.slot(member, number) + BYTES + at, into);
        }
    }
}
