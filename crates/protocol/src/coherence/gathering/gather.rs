//! Gathering of arrivals (COH-6). Two nodes exchange them, otherwise they travel up a tree to rank
//! 0. The node that has all of them computes the departure.

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::clock::epoch::Clock;
use crate::coherence::clock::notices::{Interval, OwnedBytes, Runs};
use crate::coherence::clock::rise::Rise;
use crate::coherence::codec::Headline;
use crate::coherence::failing::doing::Doing;
use crate::coherence::gathering::agreement;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::gathering::arrivals::{ArrivalPart, Arrivals, Gathering};
use crate::coherence::gathering::departure::{Departure, Outcome, UpdateCount};
use crate::coherence::gathering::state::Collectives;
use crate::coherence::gathering::tree::Ranks;
use crate::coherence::mailbox::{Mailbox, Purpose};
use crate::coherence::pages::table::Arrays;
use crate::coherence::short_list::ShortList;
use crate::coherence::types::Values;
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::{Class, Refusal};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

/// Part of the failure time after which a node tells its parent an incomplete subtree, so that rank
/// 0 can say who is missing (COH-6.13).
const REPORT_PART: u32 = 8;

impl Collectives {
    /// Called with the arrivals of another node and its subtree. All their writes are at their
    /// homes.
    pub fn take_arrival(
        &mut self,
        from: Rank,
        epoch: u64,
        body: &[u8],
        base: &mut Base<'_>,
    ) -> Result<(), Refusal> {
        let subtree = self.gather.place.subtree_of(from).ok_or(Refusal::Malformed)?;
        let mut arrivals = Arrivals::read(&subtree, body, base)?;
        if planted(Bug::ReleaseBarrierEarly) && epoch < base.clock.epoch {
            if !self.gather.place.is_pair {
                let outcome = Outcome::Agreed(None);
                let departure = Departure { outcome, ..Departure::default() };
                self.post_departure(epoch, &departure, &[subtree], base.mail);
            }
            return Ok(());
        }
        if !self.may_arrive(epoch, base.clock) {
            return Err(Refusal::Malformed);
        }
        if planted(Bug::ForgetEarlyArrival) && epoch > base.clock.epoch {
            return Ok(());
        }
        let gathering = self.gather.epochs.get(epoch);
        if gathering.is_some_and(|gathering| arrivals.are_any_of(&gathering.arrived)) {
            return Err(Refusal::Malformed);
        }
        self.gather.learn(from, &arrivals.copies);
        if planted(Bug::HideSubtree) {
            arrivals.copies.gained = Runs::default();
        }
        self.gather.epochs.add(epoch, arrivals);
        if let Some(dead) = self.doomed_by(epoch, base.mail) {
            // The other children were told when the death became known.
            self.post_departure(epoch, &Departure::of_dead(dead), &[subtree], base.mail);
            self.gather.epochs.remove(epoch);
            return Ok(());
        }
        self.advance_gather(base);
        Ok(())
    }

    /// Returns `true` if another node may have arrived at this collective. A node can be one
    /// collective ahead. In a pair it then has this node's arrival. In the tree it has a departure
    /// that this node has, too (COH-9.1).
    fn may_arrive(&self, epoch: u64, clock: &Clock) -> bool {
        let has_departure = self.departure().is_some();
        let has_arrived = self.current.is_some() && clock.has_arrived();
        if epoch == clock.epoch {
            return !has_departure;
        }
        let may_be_over = has_departure || (self.gather.place.is_pair && has_arrived);
        epoch.checked_sub(1) == Some(clock.epoch) && may_be_over
    }

    /// Adds this node's own arrival.
    pub fn gather_own(&mut self, arrivals: Arrivals, base: &mut Base<'_>) {
        self.gather.epochs.add(base.clock.epoch, arrivals);
        self.advance_gather(base);
    }

    /// Goes on once all arrivals that this node gathers are here.
    fn advance_gather(&mut self, base: &mut Base<'_>) {
        let Some(gathering) = self.gather.epochs.get(base.clock.epoch) else { return };
        let all = self.gather.place.gathers().len();
        let enough = if planted(Bug::ReleaseBarrierEarly) { all.max(2) - 1 } else { all };
        if gathering.arrived.len() < enough {
            return;
        }
        if self.gather.place.concludes() {
            self.conclude_gathering(base);
        } else {
            self.send_up(base);
        }
    }

    /// Computes the departure from the arrivals of all nodes, and sends it to the children. In a
    /// pair, the other node computes it as well. Only rank 0 tells it, and only when it leaves
    /// itself (COH-6.11).
    fn conclude_gathering(&mut self, base: &mut Base<'_>) {
        let epoch = base.clock.epoch;
        let Some(gathering) = self.gather.epochs.remove(epoch) else { return };
        let Arrivals { calls, intervals, mut counts, dropped, copies: _, asks } = gathering.kept;
        let outcome = match agree(&calls) {
            Ok(values) => Outcome::Agreed(values),
            Err(text) => {
                let unfit = calls.iter().any(|(call, _)| matches!(call, Call::Unfit(_)));
                Outcome::Mismatch { text: agreement::cut(&text).to_string(), unfit }
            }
        };
        counts.sort_unstable();
        let mut intervals = Interval::merged(intervals);
        let outcome = match write_conflict(&intervals, base.arrays) {
            Some(text) if matches!(outcome, Outcome::Agreed(_)) => {
                Outcome::Mismatch { text: agreement::cut(&text).to_string(), unfit: false }
            }
            _ => outcome,
        };
        intervals.iter_mut().for_each(|interval| interval.owned = OwnedBytes::default());
        let rise = Rise::by(&intervals, &base.clock.knowledge.base);
        let moves = self.moves(asks, &outcome, &intervals, base);
        let departure = Departure { outcome, rise, intervals, counts, freed: dropped, moves };
        let current = self.current.as_ref();
        let leaves = current.is_some_and(|current| current.call.is_leave());
        if !self.gather.place.is_pair || (self.gather.place.me == 0 && leaves) {
            self.post_departure(epoch, &departure, &self.gather.place.children, base.mail);
        }
        self.store_departure(departure);
    }

    /// Sends a departure to children, or a doomed one to the parent as well. A node that leaves
    /// waits for the acknowledgements (COH-6.6).
    pub fn post_departure(
        &self,
        epoch: u64,
        departure: &Departure,
        receivers: &[Range<Rank>],
        mail: &mut Mailbox,
    ) {
        let current = self.current.as_ref();
        let call = current.map(|current| &current.call);
        let is_doomed = matches!(departure.outcome, Outcome::Dead(_));
        let is_repeated = departure.is_repeated_for(&Call::Leave);
        let last = call.is_some_and(Call::is_leave) && !is_repeated && !is_doomed;
        let doing = call.map_or(Doing::Barrier, Call::doing);
        for subtree in receivers {
            let purpose = if last {
                Purpose::LastDeparture
            } else {
                Purpose::Departure { doing: doing.clone(), epoch }
            };
            let held = self.gather.held_below(subtree.start);
            let body = mail.body(|out| departure.write(subtree, held, out));
            let head = Headline::Depart { epoch };
            mail.post(subtree.start, Class::Unordered, head, body, purpose);
        }
    }

    /// Tells the parent the arrivals that it has not been told.
    fn send_up(&mut self, base: &mut Base<'_>) {
        let epoch = base.clock.epoch;
        let Some(parent) = self.gather.place.parent else { return };
        let Some(gathering) = self.gather.epochs.get_mut(epoch) else { return };
        let mut kept = core::mem::take(&mut gathering.kept);
        gathering.reported += kept.ranks().len();
        let place = &self.gather.place;
        if gathering.arrived.len() < place.gathers().len() {
            // A page that one node has lost may be one that a missing node has gained.
            gathering.kept.copies.lost = core::mem::take(&mut kept.copies.lost);
        }
        if !place.children.is_empty() {
            kept.copies.lost = self.gather.held.lost_by_all(&kept.copies.lost, base.arrays);
            let is_inside = |count: &mut UpdateCount| place.subtree.contains(&count.to);
            gathering.told.0.extend(kept.intervals.iter().cloned());
            gathering.told.1.extend(kept.counts.extract_if(.., is_inside));
        }
        kept.copies.bound();
        if planted(Bug::ForgetSubtree) {
            kept.intervals.retain(|interval| interval.writer == base.mail.me);
        }
        kept.sort();
        kept.parts().for_each(|part| self.post_arrival(parent, epoch, &part, base));
    }

    /// Posts an arrival of this node or its subtree.
    fn post_arrival(&self, to: Rank, epoch: u64, part: &ArrivalPart<'_>, base: &mut Base<'_>) {
        let current = self.current.as_ref();
        let doing = current.map_or(Doing::Barrier, |current| current.call.doing());
        let says_why = base.failing.broken().is_some();
        let purpose = Purpose::Arrival { doing, says_why, epoch, ranks: part.ranks() };
        let body = base.mail.body(|out| part.write(out));
        base.mail.post(to, Class::Unordered, Headline::Arrive { epoch }, body, purpose);
    }

    /// Sends this node's own arrival to the other node of a pair. The arrival of rank 0 at *leave*
    /// is not sent, because rank 0 answers with a departure (COH-6.11).
    pub fn send_across(&self, own: &Arrivals, base: &mut Base<'_>) {
        let Some(other) = self.gather.place.asked().filter(|_| self.gather.place.is_pair) else {
            return;
        };
        own.parts().for_each(|part| self.post_arrival(other, base.clock.epoch, &part, base));
    }

    /// Called when a node has refused an arrival of this node and so has not counted it. This node
    /// arrives again with nothing but the reason. If that is refused too, the call fails here and
    /// below (COH-8.4).
    pub fn arrival_refused(
        &mut self,
        to: Rank,
        epoch: u64,
        ranks: Ranks,
        said_why: bool,
        base: &mut Base<'_>,
    ) {
        let Some(broken) = base.failing.broken().cloned() else { return };
        let (me, is_current) = (base.mail.me, epoch == base.clock.epoch);
        let waits = is_current && self.waits_for_departure(base.clock);
        if !said_why {
            let call = Call::Unfit(broken.to_string());
            if let Some(current) = self.current.as_mut().filter(|_| waits) {
                current.call = call.clone();
            }
            if let Some(gathering) = self.gather.epochs.get_mut(epoch)
                && self.gather.place.is_pair
            {
                gathering.kept.replace(me, call.clone());
            }
            let calls = ShortList::one((call, ranks));
            let reason = Arrivals { calls, ..Arrivals::default() };
            reason.parts().for_each(|part| self.post_arrival(to, epoch, &part, base));
            return;
        }
        if waits && let Some(current) = self.take_current(base.clock) {
            base.mail.fail(current.token, broken);
        }
        self.end_gathering(epoch, to, base);
    }

    /// Returns a dead node because of which this collective cannot end: an arrival or the departure
    /// would have to come from it. With a dead node, this node itself arrives no more (COH-8.10).
    fn doomed_by(&self, epoch: u64, mail: &Mailbox) -> Option<Rank> {
        let first = mail.first_dead()?;
        let gathering = self.gather.epochs.get(epoch);
        let has_arrived =
            |rank: Rank| gathering.is_some_and(|gathering| gathering.arrived.contains(rank));
        let (all, parent) = (self.gather.place.gathers(), self.gather.place.parent);
        let is_cause =
            |rank: &&Rank| (all.contains(*rank) && !has_arrived(**rank)) || Some(**rank) == parent;
        let cause = mail.dead().iter().find(is_cause).copied();
        cause.or((!has_arrived(mail.me)).then_some(first))
    }

    /// Ends the collectives that a death has doomed. The nodes around this one are told, because
    /// they may wait for a node that will not arrive.
    pub fn gather_death(&mut self, base: &mut Base<'_>) {
        for epoch in [base.clock.epoch, base.clock.epoch.saturating_add(1)] {
            let is_over = epoch == base.clock.epoch && self.departure().is_some();
            let is_gathered = epoch == base.clock.epoch || self.gather.epochs.get(epoch).is_some();
            if let Some(dead) = self.doomed_by(epoch, base.mail).filter(|_| is_gathered && !is_over)
            {
                self.end_gathering(epoch, dead, base);
            }
        }
    }

    /// Ends a collective that failed because of a dead node, here, above and below. It is not
    /// passed (COH-8.2). Parent and children are told once.
    pub fn end_gathering(&mut self, epoch: u64, dead: Rank, base: &mut Base<'_>) {
        if base.failing.left || self.gather.doomed >= Some(epoch) {
            return;
        }
        self.gather.doomed = Some(epoch);
        let mut around = self.gather.place.children.clone();
        around.extend(self.gather.place.parent.map(|parent| parent..parent.saturating_add(1)));
        self.post_departure(epoch, &Departure::of_dead(dead), &around, base.mail);
        self.gather.epochs.remove(epoch);
        if epoch == base.clock.epoch {
            self.fail_current(dead, base);
        }
    }

    /// Tells the parent about an incomplete subtree now and then (COH-6.13).
    pub fn report_incomplete(&mut self, now: Time, failure_time: Duration, base: &mut Base<'_>) {
        let kept = self.gather.epochs.get(base.clock.epoch).map(|gathering| &gathering.kept);
        let is_due = !self.gather.place.concludes()
            && base.mail.dead().is_empty()
            && kept.is_some_and(|kept| !kept.calls.is_empty());
        if self.gather.reports.is_due(is_due, now, failure_time / REPORT_PART) {
            self.send_up(base);
        }
    }

    /// Returns the collective that other nodes wait in, if this node knows all that have arrived.
    fn gathered_by_all(&self) -> Option<&Gathering> {
        let place = &self.gather.place;
        let current = self.current.as_ref();
        // Node 1 of a pair is not told that rank 0 leaves.
        let is_blind = place.me != 0 && current.is_some_and(|current| current.call.is_leave());
        let gathering = self.gather.epochs.first()?;
        (place.concludes() && !is_blind).then_some(gathering)
    }

    /// Returns the nodes that are missing in the collective that other nodes have arrived at. Rank
    /// 0 knows, and with two nodes both know. Of nodes below other nodes, rank 0 hears within the
    /// failure time (COH-6.13). It is empty on other ranks.
    pub fn late(&self, nodes: u32) -> Vec<Rank> {
        let Some(gathering) = self.gathered_by_all() else { return Vec::new() };
        (0..nodes).filter(|rank| !gathering.arrived.contains(*rank)).collect()
    }

    /// Returns the nodes that have arrived at the collective being gathered, in rank order, as far
    /// as this node knows (see [`Self::late`]).
    pub fn gathered(&self) -> Vec<Rank> {
        self.gathered_by_all().map_or_else(Vec::new, |gathering| gathering.arrived.iter().collect())
    }
}

/// Returns the ranks of one entry, with their call.
fn by_rank((call, ranks): &(Call, Ranks)) -> impl Iterator<Item = (Rank, &Call)> + Clone {
    ranks.iter().map(move |rank| (rank, call))
}

/// Checks that all nodes called the same, as [`agreement::agree`] does. It needs the calls in rank
/// order.
fn agree(calls: &[(Call, Ranks)]) -> Result<Option<Values>, String> {
    if let [one] = calls {
        return match one.0 {
            // Any number of identical calls agree.
            Call::Barrier | Call::Leave | Call::Free { .. } | Call::Declare(_) => Ok(None),
            _ => agreement::agree(by_rank(one)),
        };
    }
    let mut all: Vec<(Rank, &Call)> = calls.iter().flat_map(by_rank).collect();
    if !planted(Bug::CombineOutOfOrder) {
        all.sort_unstable_by_key(|(rank, _)| *rank);
    }
    agreement::agree(all.into_iter())
}

/// Returns the error of a barrier between whose releases guards of two nodes owned one byte
/// (COH-10.14).
fn write_conflict(intervals: &[Interval], arrays: &Arrays) -> Option<String> {
    let (array, bytes, one, other) = OwnedBytes::conflict(intervals.iter())?;
    let name = arrays.get(array).map_or("", |array| array.name.as_str());
    Some(both_wrote([one, other], &bytes, name))
}

/// Returns the text of a barrier between whose releases guards of two nodes owned one byte of an
/// array (COH-10.14).
#[must_use]
pub fn both_wrote([one, other]: [Rank; 2], bytes: &Range<u64>, array: &str) -> String {
    format!(
        "nodes {one} and {other} both wrote bytes {}..{} of array \"{array}\" under guards since the last barrier; cut the ranges so \
             that they do not overlap, order the writes by a lock, or use write_merged",
        bytes.start, bytes.end
    )
}
