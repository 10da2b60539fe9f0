//! Operations in flight: from the token that travels through the protocol to the completion.

use super::outstanding::Outstanding;
use crate::client::completion::{Completion, Keep, Value};
use crate::failure::Failure;
use oikaze_os::memory::Holder;
use oikaze_protocol::Rank;
use oikaze_protocol::planted::{Bug, planted};
use oikaze_protocol::wind::Token;
use std::sync::Arc;

struct PendingOperation {
    completion: Arc<Completion>,
    /// Peer of the operation, and the epoch of the peer; [`NOBODY`] for no single peer.
    peer: Rank,
    epoch: u32,
    /// Is `true` for access to a peer's memory. Its end does not depend on when a program reads
    /// messages or calls a collective.
    is_one_sided: bool,
    /// Number of bytes that were copied for the operation.
    copied: u64,
    /// Memory that must stay while the operation is in flight.
    keep: Keep,
}

/// Peer of operations that concern no single peer: collectives, locks and pages.
const NOBODY: Rank = Rank::MAX;

/// All operations in flight, by token: a slab whose slots carry a generation, so that a late event
/// finds nothing.
#[derive(Default)]
pub(crate) struct InFlight {
    slots: Vec<(u32, Option<PendingOperation>)>,
    free: Vec<u32>,
    live: usize,
    /// Number of one-sided operations.
    one_sided: usize,
    /// Number of operations settled since the last [`InFlight::take_settled`].
    settled: usize,
    /// Operations in flight to each peer.
    pub(crate) outstanding: Outstanding,
    /// Number of bytes copied for operations in flight, by peer; grown as needed.
    copied: Vec<u64>,
}

impl InFlight {
    /// Adds an operation and returns its token. Counts the operation for its peer, if it concerns a
    /// single peer.
    pub fn insert(
        &mut self,
        completion: Arc<Completion>,
        keep: Keep,
        peer: Option<Rank>,
        copied: u64,
        is_message: bool,
    ) -> Token {
        let is_one_sided = peer.is_some() && !is_message;
        let epoch = peer.map_or(0, |peer| self.outstanding.begin(peer));
        if let Some(peer) = peer.filter(|_| copied > 0) {
            let at = peer as usize;
            self.copied.resize(self.copied.len().max(at + 1), 0);
            self.copied.get_mut(at).into_iter().for_each(|bytes| *bytes += copied);
        }
        let pending = Some(PendingOperation {
            completion,
            peer: peer.unwrap_or(NOBODY),
            epoch,
            is_one_sided,
            copied,
            keep,
        });
        self.live += 1;
        self.one_sided += usize::from(is_one_sided);
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push((0, None));
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let generation = self.slots.get_mut(slot as usize).map_or(0, |entry| {
            entry.1 = pending;
            entry.0
        });
        // Two bits stay free for the engine's own marks.
        Token((u64::from(generation & 0x0fff_ffff) << 32) | u64::from(slot))
    }

    /// Settles an operation and forgets it. Returns `false` if it is not pending.
    pub fn settle(&mut self, token: Token, outcome: Result<Value, Failure>) -> bool {
        let slot = token.0 as u32;
        let Some(entry) = self.slots.get_mut(slot as usize) else { return false };
        if u64::from(entry.0 & 0x0fff_ffff) != token.0 >> 32 {
            return false;
        }
        let Some(pending) = entry.1.take() else { return false };
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(slot);
        self.live -= 1;
        self.one_sided -= usize::from(pending.is_one_sided);
        self.settled += 1;
        if pending.peer != NOBODY && !(planted(Bug::HoldForFailed) && outcome.is_err()) {
            self.outstanding.end(pending.peer, pending.epoch);
        }
        if pending.copied > 0
            && let Some(bytes) = self.copied.get_mut(pending.peer as usize)
        {
            *bytes = bytes.saturating_sub(pending.copied);
        }
        pending.completion.settle(outcome);
        true
    }

    /// Counts bytes that were copied for an operation after it had begun.
    pub fn add_copied(&mut self, token: Token, copied: u64) {
        let Some((generation, Some(pending))) = self.slots.get_mut(token.0 as u32 as usize) else {
            return;
        };
        if u64::from(*generation & 0x0fff_ffff) != token.0 >> 32 || pending.peer == NOBODY {
            return;
        }
        pending.copied += copied;
        let at = pending.peer as usize;
        self.copied.resize(self.copied.len().max(at + 1), 0);
        self.copied.get_mut(at).into_iter().for_each(|bytes| *bytes += copied);
    }

    /// Returns the number of bytes copied for operations to this peer that have not ended.
    #[must_use]
    pub fn copied(&self, peer: Rank) -> u64 {
        self.copied.get(peer as usize).copied().unwrap_or(0)
    }

    /// Returns the tokens of the operations whose completion is this one, or a part of it. Slow,
    /// and used for cancellation only.
    pub fn tokens_of(&self, completion: &Arc<Completion>) -> impl Iterator<Item = Token> {
        self.tokens_where(|pending| pending.completion.is_of(completion))
    }

    /// Returns the operations in flight that keep `holder`. Slow, and used for deregistration only.
    pub fn keeping(&self, holder: &Holder) -> impl Iterator<Item = Token> {
        self.tokens_where(|pending| {
            pending.keep.as_ref().is_some_and(|keep| Arc::ptr_eq(keep, holder))
        })
    }

    fn tokens_where(
        &self,
        wanted: impl Fn(&PendingOperation) -> bool,
    ) -> impl Iterator<Item = Token> {
        self.slots.iter().enumerate().filter_map(move |(slot, (generation, pending))| {
            let is_wanted = pending.as_ref().is_some_and(&wanted);
            is_wanted.then_some(Token((u64::from(generation & 0x0fff_ffff) << 32) | slot as u64))
        })
    }

    /// Settles everything, at the end of a job.
    pub fn settle_all(&mut self, failure: &Failure) {
        for (generation, slot) in &mut self.slots {
            if let Some(pending) = slot.take() {
                *generation = generation.wrapping_add(1);
                pending.completion.settle(Err(failure.clone()));
            }
        }
        self.live = 0;
        self.one_sided = 0;
        self.outstanding = Outstanding::default();
        self.copied.clear();
        self.free = (0..u32::try_from(self.slots.len()).unwrap_or(0)).collect();
    }

    /// Returns the number of operations settled since the last call, so that their waiters are
    /// woken.
    pub fn take_settled(&mut self) -> usize {
        std::mem::take(&mut self.settled)
    }

    /// Returns the number of operations in flight.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// Returns the number of one-sided operations in flight, to any peer.
    #[must_use]
    pub fn one_sided(&self) -> usize {
        self.one_sided
    }
}
