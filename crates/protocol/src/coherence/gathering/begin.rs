//! The begin of a collective on this node (COH-6.1). Every collective is a barrier.

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::clock::epoch::CollectiveProgress;
use crate::coherence::clock::notices::Interval;
use crate::coherence::clock::vector::Vector;
use crate::coherence::fetching::runs::Fetches;
use crate::coherence::fetching::targets::Targets;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::gathering::arrivals::Arrivals;
use crate::coherence::gathering::departure::UpdateCount;
use crate::coherence::gathering::freeing::arrays_to_free;
use crate::coherence::gathering::holding::CopyChanges;
use crate::coherence::gathering::state::{Collectives, CurrentCollective};
use crate::coherence::pages::machine::Pages;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::releasing::release::AfterRelease;
use crate::coherence::types::CoherenceError;
use crate::coherence::writes::Writes;
use crate::wind::Token;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

impl Collectives {
    /// Begins the next collective if none is under way. Returns `true` if something happened.
    pub fn begin(
        &mut self,
        fetches: &Fetches,
        targets: &Targets,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> bool {
        let has_dead = !w.base.mail.dead().is_empty();
        // With a dead node, the end of the current collective may never come.
        if self.current.is_some() && !has_dead {
            return false;
        }
        // Pages of an array that is freed are waited for, unless a dead node would send them.
        if let Some((Call::Free { number, .. }, _)) = self.queue.front()
            && !has_dead
            && fetches.arrays().chain(targets.arrays()).any(|array| array == *number)
        {
            return false;
        }
        if self.waits_for_targets(targets) && !has_dead {
            return false;
        }
        let Some((call, token)) = self.queue.pop_front() else { return false };
        let repeats = core::mem::take(&mut self.repeats);
        let call = match w.base.collective_impediment(&call.doing()) {
            // The other nodes do not know the error, so tell them at the collective in which they
            // wait.
            Some(error @ (CoherenceError::Refused { .. } | CoherenceError::Machine(_)))
                if !has_dead =>
            {
                Call::Unfit(error.to_string())
            }
            Some(error) => {
                w.base.mail.fail(token, error);
                // Others may have arrived at the second round before they heard of the death.
                if let Some(dead) = w.base.mail.first_dead().filter(|_| repeats) {
                    self.end_gathering(w.base.clock.epoch, dead, &mut w.base);
                }
                return true;
            }
            None => call,
        };
        if let Some(error) = self.leaving_impediment(&call, &w.base).filter(|_| !repeats) {
            w.base.mail.fail(token, error);
            return true;
        }
        self.current = Some(CurrentCollective {
            call,
            token,
            reported: 0,
            known: None,
            counts: BTreeMap::new(),
            dropped: arrays_to_free(fetches, targets, w.base.arrays),
            departure: None,
        });
        w.release(AfterRelease::Arrive, pages);
        w.base.clock.progress = CollectiveProgress::Closed;
        if let Some(current) = &mut self.current {
            current.counts = w.updates.sending.take_counts();
            current.reported = w.base.clock.knowledge.vector.get(w.base.mail.me);
        }
        true
    }

    /// Arrives with what was known when the diffs were written, now that they are at their homes
    /// (COH-6.1).
    pub fn arrive(&mut self, known: Vector, base: &mut Base<'_>) {
        let Some(current) = &mut self.current else { return };
        if !base.mail.dead().is_empty() || base.failing.lost_diff().is_some() {
            let (doing, token) = (current.call.doing(), current.token);
            self.take_current(base.clock);
            if let Some(error) = base.collective_impediment(&doing) {
                base.mail.fail(token, error);
            }
            return;
        }
        base.clock.progress = CollectiveProgress::Arrived;
        let me = base.mail.me;
        let counts = UpdateCount::of(me, &current.counts);
        let own = if let Some(broken) = base.failing.broken() {
            // This collective was called before something of this node was refused. Intervals that
            // this node would report may not be at their homes (COH-8.4).
            current.call = Call::Unfit(broken.to_string());
            current.reported = base.clock.knowledge.base.get(me);
            current.dropped = NumberSet::default();
            Arrivals::new(me, current.call.clone(), Vec::new(), counts)
        } else {
            let knowledge = &mut base.clock.knowledge;
            let intervals = Interval::bounded(knowledge.arrival(&known).cloned().collect());
            knowledge.arrived = known.get(me);
            current.known = Some(known);
            let (dropped, copies) = (current.dropped.clone(), CopyChanges::take(base.arrays));
            let own = Arrivals::new(me, current.call.clone(), intervals, counts);
            Arrivals { dropped, copies, ..own }
        };
        let own = if base.failing.broken().is_some() { own } else { own.asking(self.asks(base)) };
        let Some(current) = &self.current else { return };
        if me != 0 || !current.call.is_leave() {
            self.send_across(&own, base);
        }
        self.gather_own(own, base);
    }

    /// Fails the collectives that wait here, because a node has died. A node that has arrived at
    /// *leave* still waits, because the dead node may just have left (COH-6.6). If the departure
    /// cannot come, [`Self::gather_death`] fails it.
    pub fn fail_by_death(&mut self, rank: Rank, base: &mut Base<'_>) {
        let leaves = self.current.as_ref().is_some_and(|current| current.call.is_leave());
        if !(leaves && base.clock.has_arrived()) {
            self.fail(&CoherenceError::NodeDead { doing: String::new(), rank }, base);
        }
    }

    /// Fails all called collectives. A call stays without a waiter here, because other nodes may
    /// wait for this node in it (COH-8.4).
    pub fn fail(&mut self, error: &CoherenceError, base: &mut Base<'_>) {
        let current = self.current.as_mut().map(|current| (&current.call, &mut current.token));
        let queued = self.queue.iter_mut().map(|(call, token)| (&*call, token));
        for (call, token) in current.into_iter().chain(queued) {
            let said = match error {
                CoherenceError::Refused { .. } | CoherenceError::Machine(_) => None,
                _ => base.collective_impediment(&call.doing()),
            };
            let token = core::mem::replace(token, Token::NONE);
            base.mail.fail(token, said.unwrap_or_else(|| error.clone()));
        }
    }
}
