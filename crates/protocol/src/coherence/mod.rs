//! Shared arrays (spec/coherence.md): home-based lazy release consistency.

mod pages;
mod statistics;
mod types;

pub use pages::{Access, ArrayId, Pages};
pub use statistics::Statistics;
pub use types::{CoherenceError, CoherenceEvent, Declaration, Element, Homes, ReduceOp, Reduction, Value, Values};

use crate::Rank;
use crate::wind::{Admission, Message, Refusal, Token};
use alloc::collections::VecDeque;
use core::ops::Range;

/// First byte of the head of every message of coherence: tells the engine to bring it here.
pub const KIND: u8 = 0xC0;

/// Tokens of messages that coherence posts have this bit set (and are not [`Token::NONE`]): see [`Coherence::owns`].
pub const TOKEN_BIT: u64 = 1 << 63;

/// One node's view of all shared arrays, its part in locks and collectives, and its duties as a home and as a manager.
#[derive(Debug)]
pub struct Coherence {
    me: Rank,
    nodes: u32,
    arrays: u32,
    statistics: Statistics,
    out: VecDeque<(Rank, Message)>,
    events: VecDeque<CoherenceEvent>,
}

#[allow(unused_variables)]
impl Coherence {
    /// Node `me` of a job of `nodes`.
    #[must_use]
    pub fn new(me: Rank, nodes: u32) -> Self {
        let statistics = Statistics::default();
        Coherence { me, nodes, arrays: 0, statistics, out: VecDeque::new(), events: VecDeque::new() }
    }

    /// Is this the token of a message that coherence posted? Its settling must be told to [`Self::acknowledged`] and the like.
    #[must_use]
    pub fn owns(token: Token) -> bool {
        token != Token::NONE && token.0 & TOKEN_BIT != 0
    }

    /// The number that the next [`Self::declare`] will give. Its memory must stand in `pages`, and its alias must be told by
    /// [`Self::set_alias_region`], before `declare`: others may fetch from it as soon as they have all declared it.
    #[must_use]
    pub fn next_array(&self) -> ArrayId {
        self.arrays
    }

    /// The slot in the engine's region table of an array's alias.
    pub fn set_alias_region(&mut self, array: ArrayId, region: u32) {}

    /// Declare an array together with all other nodes; done (with its number) when all have declared the same. Pages homed
    /// here are writable then, all others invalid.
    pub fn declare(&mut self, declaration: Declaration, token: Token, pages: &mut dyn Pages) -> ArrayId {
        self.arrays
    }

    /// Make pages valid for `access`; done when each has been since this call. (Another thread's acquire may invalidate them
    /// again, or its release may end `Write`: ask [`Self::holds`] in the same turn before relying on it.)
    pub fn touch(&mut self, array: ArrayId, range: Range<u64>, access: Access, token: Token, pages: &mut dyn Pages) {}

    /// Are all these pages valid for `access` at this moment?
    #[must_use]
    pub fn holds(&self, array: ArrayId, range: Range<u64>, access: Access) -> bool {
        false
    }

    /// A thread touched a page and sleeps. `access` is what it wanted if the tracker can tell; otherwise a touch of a readable
    /// page counts as a write.
    pub fn fault(&mut self, array: ArrayId, page: u64, access: Option<Access>, pages: &mut dyn Pages) {}

    /// Wait for all nodes; what each wrote before is visible to all after.
    pub fn barrier(&mut self, token: Token, pages: &mut dyn Pages) {}

    /// Combine one vector of each node, in rank order, so that the result is the same bits on every node and in every run. Also
    /// a barrier.
    pub fn reduce(&mut self, reduction: Reduction, token: Token, pages: &mut dyn Pages) {}

    /// The last collective: a barrier after which this node answers nothing. Its death is no error to others then.
    pub fn leave(&mut self, token: Token, pages: &mut dyn Pages) {}

    /// Acquire a lock (any number); done when held, with everything visible that happened before its last unlock.
    pub fn lock(&mut self, lock: u64, token: Token, pages: &mut dyn Pages) {}

    /// Release a lock; done when all writes of this node are at their homes and the lock is given back.
    pub fn unlock(&mut self, lock: u64, token: Token, pages: &mut dyn Pages) {}

    /// Nobody waits any longer for this lock (a time limit passed): when it is granted it is given back at once. No event comes.
    pub fn cancel(&mut self, token: Token, pages: &mut dyn Pages) {}

    /// A whole message for coherence (its head begins with [`KIND`]), not admitted with [`Admission::Place`].
    ///
    /// # Errors
    /// A refusal, if it makes no sense; nothing has been changed then.
    pub fn receive(&mut self, from: Rank, head: &[u8], body: &[u8], pages: &mut dyn Pages) -> Result<(), Refusal> {
        Ok(())
    }

    /// A message of several fragments has begun.
    pub fn admit(&mut self, from: Rank, number: u64, head: &[u8], len: u64) -> Admission {
        Admission::Refuse(Refusal::Malformed)
    }

    /// Bytes of an admitted message.
    pub fn place(&mut self, from: Rank, number: u64, offset: u64, bytes: &[u8], pages: &mut dyn Pages) {}

    /// A message admitted with [`Admission::Place`] is whole.
    ///
    /// # Errors
    /// A refusal, if no such message was admitted.
    pub fn arrived(&mut self, from: Rank, number: u64, head: &[u8], pages: &mut dyn Pages) -> Result<(), Refusal> {
        Ok(())
    }

    /// A message posted here is settled at its receiver.
    pub fn acknowledged(&mut self, token: Token, pages: &mut dyn Pages) {}

    /// A message posted here was refused.
    pub fn refused(&mut self, token: Token, refusal: Refusal, pages: &mut dyn Pages) {}

    /// A message posted here will never be settled.
    pub fn failed(&mut self, token: Token, pages: &mut dyn Pages) {}

    /// A node is dead (or has restarted, which to us is the same).
    pub fn node_died(&mut self, rank: Rank, pages: &mut dyn Pages) {}

    /// The next message to post.
    pub fn poll_message(&mut self) -> Option<(Rank, Message)> {
        self.out.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<CoherenceEvent> {
        self.events.pop_front()
    }

    /// The counters.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// This node and the number of nodes.
    #[must_use]
    pub fn place_in_job(&self) -> (Rank, u32) {
        (self.me, self.nodes)
    }
}
