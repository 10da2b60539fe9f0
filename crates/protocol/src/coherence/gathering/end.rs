//! The end of a collective on this node (COH-6.4).

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::clock::notices::{Interval, NOTICES_MAX, Runs};
use crate::coherence::clock::vector::Vector;
use crate::coherence::fetching::runs::Fetches;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::gathering::departure::{Departure, Outcome, UpdateCount};
use crate::coherence::gathering::freeing::{free_arrays, remove_array};
use crate::coherence::gathering::state::{Collectives, CurrentCollective};
use crate::coherence::locking::state::Locking;
use crate::coherence::mailbox::{Mailbox, Posted, Purpose};
use crate::coherence::pages::machine::Pages;
use crate::coherence::types::{CoherenceError, Value};
use crate::coherence::updating::receive::UpdateReceiver;
use crate::coherence::writes::Writes;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;

/// A death of which a departure told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DoomedCollective {
    pub epoch: u64,
    /// Rank of the dead node.
    pub dead: Rank,
}

impl Collectives {
    /// Takes the departure that this node's parent sent, or that of a doomed collective. A doomed
    /// one ends after the death has been noted.
    pub fn depart(
        &mut self,
        from: Rank,
        epoch: u64,
        body: &[u8],
        base: &mut Base<'_>,
    ) -> Result<Option<DoomedCollective>, Refusal> {
        let mut departure = Departure::read(&self.gather.place.subtree, body, base)?;
        let is_parent = self.gather.place.parent == Some(from);
        // A child tells that a death has doomed the collective (COH-8.10).
        let is_doomed = matches!(departure.outcome, Outcome::Dead(_));
        let is_child = self.gather.place.subtree_of(from).is_some();
        if !(is_parent || (is_doomed && is_child)) {
            return Err(Refusal::Malformed);
        }
        if base.mail.is_dead(from) {
            // A process that has taken the place of a dead node knows nothing of this job's deaths.
            return Ok(None);
        }
        if let Outcome::Dead(rank) = departure.outcome {
            // A node that takes this one for dead does not answer it any more (COH-8.1).
            let dead = if rank == base.mail.me { from } else { rank };
            return Ok(Some(DoomedCollective { epoch, dead }));
        }
        if epoch != base.clock.epoch || !self.waits_for_departure(base.clock) {
            // After a death this node may have given up already.
            let is_late = !base.mail.dead().is_empty();
            return if is_late { Ok(None) } else { Err(Refusal::Malformed) };
        }
        // Nothing is freed that this node has not dropped.
        let dropped = self.current.as_ref().map(|current| &current.dropped);
        if dropped.is_none_or(|dropped| departure.freed.intersection(dropped) != departure.freed) {
            return Err(Refusal::Malformed);
        }
        self.check_moves(&departure, base)?;
        if let Some(gathering) = self.gather.epochs.remove(epoch) {
            departure.add(gathering.told);
        }
        self.post_departure(epoch, &departure, &self.gather.place.children, base.mail);
        self.store_departure(departure);
        Ok(None)
    }

    /// Keeps the departure of the collective that this node is in. [`Self::end`] does the rest.
    pub fn store_departure(&mut self, departure: Departure) {
        if let Some(current) = &mut self.current {
            current.departure = Some(departure);
        }
    }

    /// Ends the collective once its departure and all updates of the epoch are here (COH-10.7).
    /// Returns `true` if it did.
    pub fn end(
        &mut self,
        locking: &mut Locking,
        fetches: &mut Fetches,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) -> bool {
        let Some(current) = &self.current else { return false };
        let Some(departure) = &current.departure else { return false };
        // A node that leaves reads nothing any more.
        let leaves = current.call.is_leave() && !departure.is_repeated_for(&current.call);
        let mut missing = self.writers_waited_for(&w.updates.receiving, &w.base).peekable();
        if !leaves && !planted(Bug::LeaveUncounted) && missing.peek().is_some() {
            let Some(rank) = missing.find(|from| w.base.mail.is_dead(*from)) else { return false };
            drop(missing);
            // Not all bytes are here, and they will not come (COH-10.16).
            let (doing, token) = (current.call.doing().to_string(), current.token);
            self.take_current(w.base.clock);
            w.base.mail.fail(token, CoherenceError::NodeDead { doing, rank });
            return true;
        }
        drop(missing);
        let Some(current) = &mut self.current else { return false };
        let Some(departure) = current.departure.take() else { return false };
        let known = current.known.take();
        self.note_moves(&departure.moves, &mut w.base);
        self.apply_notices(&departure, known, w, pages);
        let Some(current) = self.take_current(w.base.clock) else { return false };
        self.gather.end(w.base.clock.epoch);
        w.base.clock.epoch += 1;
        free_arrays(&departure.freed, fetches, w);
        self.gather.held.forget(&departure.freed);
        self.end_round(&departure, &current.call, w, pages);
        w.updates.receiving.begin_epoch(&mut w.updates.feeds, &mut w.base, pages);
        locking.managed.forget_known(&w.base.clock.knowledge.base);
        w.base.arrays.untrack(current.reported, pages);
        locking.take_ready(w, pages);
        if departure.is_repeated_for(&current.call) || self.repeats {
            self.queue.push_front((current.call, current.token));
        } else {
            self.conclude(current, departure.outcome, fetches, w);
        }
        self.fail_by_leaving(&mut w.base);
        true
    }

    /// Returns the nodes whose updates the departure counts and that are not here.
    pub fn writers_waited_for<'a>(
        &'a self,
        receiving: &'a UpdateReceiver,
        base: &'a Base<'_>,
    ) -> impl Iterator<Item = Rank> + 'a {
        let counts = self.departure().map_or(&[][..], |departure| &departure.counts);
        let is_missing = |count: &&UpdateCount| {
            count.to == base.mail.me
                && receiving.arrived(base.clock.epoch, count.from) < count.count
        };
        counts.iter().filter(is_missing).map(|count| count.from)
    }

    /// Applies the write notices that this node did not know when it arrived, and raises its
    /// knowledge to the base (COH-6.4).
    fn apply_notices(
        &mut self,
        departure: &Departure,
        known: Option<Vector>,
        w: &mut Writes<'_>,
        pages: &mut dyn Pages,
    ) {
        let me = w.base.mail.me;
        let known = known.as_ref().unwrap_or(&w.base.clock.knowledge.base);
        let news: Vec<&Interval> =
            departure.intervals.iter().filter(|interval| interval.is_news(me, known)).collect();
        let mut named = match planted(Bug::SkipInvalidation) {
            true => Runs::default(),
            false => Runs::named(news.iter().copied(), me).at_most(NOTICES_MAX),
        };
        // The parent did not know of these copies (COH-6.20).
        let late = match departure.rise.iter().all(|(rank, _)| rank == me) {
            true => BTreeMap::new(),
            false => w.base.arrays.untold_copies(),
        };
        if !late.is_empty() && !planted(Bug::KeepLateCopies) {
            named = Runs::union([&named, &Runs::of_sets(&late)]);
        }
        let mut lacking = w.updates.receiving.take_lacking(w.base.clock.epoch, named);
        if w.base.clock.moves_homes {
            lacking = lacking.without(&departure.moves.runs_to(me)); // nobody has written them
        }
        // This drops the kept bytes of pages, too.
        w.invalidate(&lacking, pages);
        let listed = |id| news.iter().any(|interval| interval.shared.lists(id, me));
        w.updates.receiving.end_epoch(listed, &mut w.base, pages);
        // A page that could not be unmapped is old. In that case this collective has failed before
        // it ends.
        let was_sound = w.base.failing.broken().is_none();
        w.base.failing.check_machine(pages);
        if let Some(error) = w.base.failing.broken().filter(|_| was_sound).cloned() {
            self.fail(&error, &mut w.base);
        }
        let others = departure.intervals.iter().filter(|interval| interval.writer != me);
        for (array, run) in others.flat_map(|interval| interval.runs.iter()) {
            w.base.arrays.change(*array, |array| array.moving.note_other_writer(run));
        }
        w.base.clock.knowledge.raise_base(&departure.rise);
        w.updates.receiving.forget_known(&w.base.clock.knowledge.vector);
    }

    fn conclude(
        &mut self,
        current: CurrentCollective,
        outcome: Outcome,
        fetches: &mut Fetches,
        w: &mut Writes<'_>,
    ) {
        let value = match (outcome, current.call) {
            (Outcome::Dead(_), _) => return,
            (Outcome::Mismatch { text, .. }, call) => {
                if let Call::Declare(declared) = &call {
                    remove_array(declared.number(), fetches, w);
                }
                return w.base.mail.fail(current.token, CoherenceError::Mismatch(text));
            }
            (Outcome::Agreed(_), Call::Leave) => {
                self.leaving = Some(current.token);
                w.base.failing.left = true;
                return self.end_leaving(w.base.mail);
            }
            (Outcome::Agreed(_), Call::Declare(declared)) => {
                let number = declared.number();
                if let Some(array) = w.base.arrays.get_mut(number) {
                    array.agreed = true;
                }
                Value::Array(number)
            }
            (Outcome::Agreed(values), call) => {
                match call {
                    Call::Reduce(_) => w.base.statistics.reductions += 1,
                    _ => w.base.statistics.barriers += 1,
                }
                values.map_or(Value::None, Value::Reduced)
            }
        };
        w.base.mail.done(current.token, value);
    }

    /// Completes the leave once the nodes below this one have the last departure. This node may
    /// fall silent then.
    pub fn end_leaving(&mut self, mail: &mut Mailbox) {
        let is_last = |posted: &Posted| matches!(posted.purpose, Purpose::LastDeparture);
        if let Some(token) = self.leaving.take_if(|_| !mail.has_posted(is_last)) {
            mail.done(token, Value::None);
        }
    }

    /// Fails the collective that this node is in, if it has arrived, because of a dead node.
    pub fn fail_current(&mut self, rank: Rank, base: &mut Base<'_>) {
        if self.waits_for_departure(base.clock)
            && let Some(current) = self.take_current(base.clock)
        {
            let doing = current.call.doing().to_string();
            base.mail.fail(current.token, CoherenceError::NodeDead { doing, rank });
        }
    }
}
