//! Registrations that change and end while operations are under way: what that means for each of
//! the places where something of a region may still be (MEM-1.7, MEM-1.8).

#[cfg(test)]
mod tests;

use super::{Completion, Engine, Failure};
use crate::tx_batch::Batch;
use oikaze_os::memory::{Holder, MemoryError, Region, Registered};
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::planted::{Bug, planted};
use oikaze_protocol::rma::{Published, RefusalCounts, Refused, Rights, RmaError};
use oikaze_protocol::wind::Token;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

impl<L: Link, P: Pages> Engine<L, P> {
    /// Nothing can touch the region afterwards: neither peers, nor answers in flight, nor datagrams
    /// that wait for the link. (None is being handed to the kernel or received into the region now:
    /// that happens inside turns. What the kernel has already: WIND-5.5.) The region, if there was
    /// one. Operations of ours that still use it are for the caller to wait for, or to cancel.
    pub fn remove_region(&mut self, slot: u32) -> Option<Region> {
        if planted(Bug::KeepRegion) {
            return self.memory.region(slot).cloned();
        }
        let region = self.memory.remove(slot)?;
        self.take_back(slot);
        self.cut_off(slot);
        Some(region)
    }

    /// As [`Engine::remove_region`], and the same memory has the place again, under another number
    /// and key.
    ///
    /// # Errors
    /// As [`RegionTable::renew`](oikaze_os::memory::RegionTable::renew).
    pub fn renew_region(&mut self, slot: u32, rights: Rights) -> Result<Registered, MemoryError> {
        let registered = self.memory.renew(slot, rights)?;
        self.take_back(slot);
        self.cut_off(slot);
        Ok(registered)
    }

    /// Peers are shut out, operations of ours go on. `false`: that was so already.
    pub fn close_region(&mut self, slot: u32) -> bool {
        if self.memory.is_closed(slot) {
            return false;
        }
        if planted(Bug::KeepRegion) {
            return true;
        }
        self.memory.close(slot);
        self.take_back(slot);
        let ended = self.rma.region_removed(slot);
        self.withdraw(slot, &ended);
        true
    }

    /// Other rights, on every page or on some of them.
    ///
    /// # Errors
    /// As [`RegionTable::protect`](oikaze_os::memory::RegionTable::protect).
    pub fn set_rights(
        &mut self,
        slot: u32,
        pages: Option<Range<u64>>,
        rights: Rights,
    ) -> Result<(), MemoryError> {
        match pages {
            None => self.memory.set_rights(slot, rights)?,
            Some(_) if planted(Bug::IgnorePages) => {}
            Some(pages) => self.memory.protect(slot, pages, rights)?,
        }
        self.take_back(slot);
        let ended = self.rma.rights_changed(slot, &self.memory);
        self.withdraw(slot, &ended);
        Ok(())
    }

    /// Give a region a name, by which peers find it.
    ///
    /// # Errors
    /// Not a name, taken, or too many.
    pub fn publish(&mut self, name: &str, published: Published) -> Result<(), Failure> {
        self.rma.publish(name, published).map_err(Failure::from)
    }

    /// Withdraws a published name.
    pub fn unpublish(&mut self, name: &str) {
        self.rma.withdraw(name);
    }

    /// Updates the region that a published name stands for.
    pub fn republish(&mut self, name: &str, published: Published) {
        self.rma.republish(name, published);
    }

    /// Returns the accesses refused to peers, and the name of each named region.
    #[must_use]
    pub fn refusals(&self) -> Vec<(Refused, Option<String>)> {
        let (_, latest) = self.rma.refusals();
        latest
            .iter()
            .map(|refused| (*refused, self.rma.name_of(refused.access.key).map(str::to_owned)))
            .collect()
    }

    /// How often something was refused to peers, by reasons.
    #[must_use]
    pub fn refusal_counters(&self) -> RefusalCounts {
        *self.rma.refusals().0
    }

    /// The slot means nothing any more.
    fn cut_off(&mut self, slot: u32) {
        let ended = self.rma.region_removed(slot);
        self.withdraw(slot, &ended);
        self.egress.both_mut().into_iter().for_each(|batch| batch.forget(slot));
    }

    /// Answers from a region that will not be finished: neither their messages nor their datagrams
    /// are sent any more.
    fn withdraw(&mut self, slot: u32, ended: &[(Rank, Token)]) {
        if planted(Bug::KeepAnswering) {
            return;
        }
        if ended.is_empty() {
            return;
        }
        // However many they are, what waits is looked through once.
        let tokens: HashSet<Token> = ended.iter().map(|&(_, token)| token).collect();
        let is_ended = |token: Token| tokens.contains(&token);
        let peers: BTreeSet<Rank> = ended.iter().map(|&(to, _)| to).collect();
        for to in peers {
            if let Some(peer) = self.peers.touch(to) {
                peer.cancel(&is_ended);
            }
        }
        self.loopback.forget(&is_ended);
        // What else waits there, of puts under way, is lost as on a bad wire, and gathered again.
        self.egress.both_mut().into_iter().for_each(|batch| batch.forget(slot));
        // The requesters are to be told.
        self.more = true;
    }

    /// Returns `true` if an operation in flight keeps this reference.
    #[must_use]
    pub fn is_kept(&self, holder: &Holder) -> bool {
        self.operations.keeping(holder).next().is_some()
    }

    /// Cut every operation in flight that keeps this off from its memory; each ends as cancelled.
    pub fn cancel_keeping(&mut self, holder: &Holder) {
        self.end_keeping(holder, &Failure::Cancelled);
    }

    fn end_keeping(&mut self, holder: &Holder, failure: &Failure) {
        if planted(Bug::ForgetKept) {
            return;
        }
        self.settle_events();
        let tokens: Vec<Token> = self.operations.keeping(holder).collect();
        self.end_operations(&tokens, failure);
    }

    /// Ends operations whose source file has lost the bytes to send, even if some were sent
    /// (MEM-1.12).
    pub(super) fn end_broken(&mut self) {
        let Some(slot) = self.memory.take_broken() else { return };
        let ended = self.rma.source_lost(slot);
        self.withdraw(slot, &ended);
        let Some(holder) = self.memory.holder(slot) else { return };
        self.end_keeping(&holder, &Failure::Remote(RmaError::Absent));
    }

    pub(super) fn cancel(&mut self, completion: &Arc<Completion>) {
        // It may be done already (a lock may be held): then there is nothing to cancel, and the
        // completion says so.
        self.settle_events();
        // All parts, if it is a list.
        let tokens: Vec<Token> = self.operations.tokens_of(completion).collect();
        self.end_operations(&tokens, &Failure::Cancelled);
    }

    /// Nothing of these operations is read, sent or placed any more. However many they are, what
    /// waits is looked through once.
    fn end_operations(&mut self, tokens: &[Token], failure: &Failure) {
        if tokens.is_empty() {
            return;
        }
        let ended: HashSet<Token> = tokens.iter().copied().collect();
        let is_ended = |token: Token| ended.contains(&token);
        self.peers.touch_all().for_each(|peer| peer.cancel(&is_ended));
        self.loopback.forget(&is_ended);
        self.order.cancel(&is_ended);
        self.retry.forget_all(&is_ended);
        self.egress.both_mut().into_iter().for_each(Batch::discard);
        for &token in tokens {
            self.rma.cancel(token);
            self.coherence.cancel(token, &mut self.pages);
            self.operations.settle(token, Err(failure.clone()));
        }
        // Peers are told of what was withdrawn, and what fences held back may begin.
        self.more = true;
    }
}
