//! What the layer above refused, until the peer is known to know (WIND-4.6). One queue for both
//! lanes: the first ACK frame of every datagram tells it.

use crate::limits::REFUSALS_MAX;
use crate::planted::{Bug, planted};
use crate::wire::{Lane, RefusedMessage};
use alloc::collections::VecDeque;
use arrayvec::ArrayVec;

#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Refusals {
    /// Not yet confirmed, oldest first.
    pub queue: VecDeque<RefusedMessage>,
    /// How many were confirmed before these.
    confirmed: u64,
    /// This datagram caused more refusals than one can tell; it is not acknowledged before they are
    /// told.
    withheld: Option<(Lane, u64)>,
    /// They, or what was withheld for them, are to be told now.
    due: bool,
}

impl Refusals {
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Must they be told without waiting for anything else?
    pub fn is_due(&self) -> bool {
        self.due
    }

    /// Must they be told now, and without messages? No message is taken in before they are
    /// confirmed, and of a peer that is in the same case only a datagram without messages is
    /// confirmed.
    pub fn go_alone(&self) -> bool {
        self.due && self.is_withholding()
    }

    /// Are refusals waiting that must be told before any more messages are taken in?
    pub fn is_withholding(&self) -> bool {
        self.withheld.is_some()
    }

    /// The number of this lane that may not be acknowledged yet.
    pub fn withheld(&self, lane: Lane) -> Option<u64> {
        self.withheld.filter(|withheld| withheld.0 == lane).map(|withheld| withheld.1)
    }

    /// A datagram has been read; before it, so many refusals waited. If there are more now than one
    /// datagram tells, this one is withheld, and its refusals are told from the largest number
    /// down: so the sender cannot count the message that all the others waited for as settled
    /// before it knows of them all.
    pub fn withhold(&mut self, lane: Lane, number: u64, before: usize) {
        if self.queue.len() > REFUSALS_MAX && self.queue.len() > before {
            if let Some(new) = self.queue.make_contiguous().get_mut(before..) {
                new.sort_unstable_by_key(|refused| core::cmp::Reverse(refused.number));
            }
            self.withheld.get_or_insert((lane, number));
            self.due = true;
        }
    }

    /// How many a datagram tells.
    pub fn told(&self) -> usize {
        self.queue.len().min(REFUSALS_MAX)
    }

    /// The first of them, so many, and no more than there are; what to remember of it: see
    /// [`confirm`](Self::confirm).
    pub fn tell(&mut self, count: usize, told: &mut ArrayVec<RefusedMessage, REFUSALS_MAX>) -> u64 {
        let count = count.min(self.told());
        told.extend(self.queue.iter().take(count).copied());
        if planted(Bug::TellRefusalsOnce) {
            self.queue.drain(..count);
            self.confirmed += count as u64;
            return self.confirmed;
        }
        self.confirmed + count as u64
    }

    /// ACK frames of both lanes have been written.
    pub fn all_told(&mut self) {
        self.due = false;
    }

    /// The datagram with an ACK frame was acknowledged: the peer knows what it told.
    pub fn confirm(&mut self, through: u64) {
        while self.confirmed < through && self.queue.pop_front().is_some() {
            self.confirmed += 1;
        }
        if self.queue.len() <= REFUSALS_MAX {
            // What was withheld may be acknowledged now.
            self.due |= self.withheld.take().is_some();
        } else {
            self.due = true;
        }
    }

    /// That datagram was lost: refusals must be told again.
    pub fn tell_again(&mut self) {
        self.due |= !self.queue.is_empty();
    }
}
