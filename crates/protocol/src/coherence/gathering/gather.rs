//! Gathering of arrivals (COH-6). Two nodes exchange them, otherwise they travel up a tree to rank
//! 0. The node that has all of them computes the departure.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::Coherence;
use crate::coherence::clock::notices::{Interval, OwnedBytes};
use crate::coherence::codec::Headline;
use crate::coherence::failure::Doing;
use crate::coherence::mailbox::Purpose;
use crate::coherence::number_set::NumberSet;
use crate::coherence::sync::agreement;
use crate::coherence::sync::agreement::Call;
use crate::coherence::sync::collective::Outcome;
use crate::coherence::sync::departure::{Departure, UpdateCount};
use crate::coherence::sync::tree::{Ranks, TreePlace};
use crate::planted::{Bug, planted};
use crate::time::{Rounds, Time};
use crate::wind::{Class, Refusal};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

/// Length of the calls in one arrival, in bytes, from which on further calls go into another one.
/// Only long reductions of many nodes reach it.
const CALLS_BODY: usize = 4 << 20;

/// Part of the failure time after which a node tells its parent an incomplete subtree, so that rank
/// 0 can say who is missing (COH-6.13).
const REPORT_PART: u32 = 8;

/// Calls of several nodes, with what these nodes have written.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Arrivals {
    calls: Vec<(Call, Ranks)>,
    intervals: Vec<Interval>,
    counts: Vec<UpdateCount>,
    /// Numbers of the arrays that all these nodes have dropped (COH-14.2).
    dropped: NumberSet,
}

impl Arrivals {
    /// Returns the arrival of one node, which has dropped no array.
    pub fn new(rank: Rank, call: Call, intervals: Vec<Interval>, counts: Vec<UpdateCount>) -> Self {
        let calls = vec![(call, Ranks::one(rank))];
        Arrivals { calls, intervals, counts, dropped: NumberSet::default() }
    }

    /// Adds the arrays that the node has dropped.
    pub fn dropping(self, dropped: NumberSet) -> Self {
        Arrivals { dropped, ..self }
    }

    fn ranks(&self) -> Ranks {
        let mut all = Ranks::default();
        self.calls.iter().for_each(|(_, ranks)| all.merge(ranks));
        all
    }

    /// Adds other arrivals. Nodes that called the same share one entry.
    fn merge(&mut self, other: Arrivals) {
        self.dropped = match self.calls.is_empty() {
            true => other.dropped,
            false => self.dropped.intersection(&other.dropped),
        };
        for (call, ranks) in other.calls {
            match self.calls.iter_mut().find(|(known, _)| known.is_identical(&call)) {
                Some((_, known)) => known.merge(&ranks),
                None => self.calls.push((call, ranks)),
            }
        }
        self.intervals.extend(other.intervals);
        self.counts.extend(other.counts);
    }

    /// Replaces the call of one node.
    fn replace(&mut self, rank: Rank, call: Call) {
        self.calls.iter_mut().for_each(|(_, ranks)| ranks.remove(rank));
        self.calls.retain(|(_, ranks)| !ranks.is_empty());
        self.dropped = NumberSet::default();
        self.merge(Arrivals::new(rank, call, Vec::new(), Vec::new()));
    }

    /// Returns bodies of messages, and the ranks that each tells of. There is more than one if the
    /// calls are long.
    fn write(mut self) -> Vec<(Vec<u8>, Ranks)> {
        self.counts.sort_unstable();
        let mut parts: Vec<(u64, Vec<u8>, Ranks)> = Vec::new();
        for (call, ranks) in &self.calls {
            let is_full = parts.last().is_none_or(|(_, calls, _)| calls.len() >= CALLS_BODY);
            if is_full {
                parts.push((0, Vec::new(), Ranks::default()));
            }
            if let Some((count, calls, told)) = parts.last_mut() {
                *count += 1;
                call.write(calls);
                ranks.write(calls);
                told.merge(ranks);
            }
        }
        let last = parts.len().saturating_sub(1);
        let intervals = merged(self.intervals);
        let bodies = parts.into_iter().enumerate().map(|(number, (count, calls, ranks))| {
            let mut body = Vec::new();
            body.put_leb128(count).put(&calls);
            let told =
                if number == last { (&*intervals, &*self.counts) } else { (&[][..], &[][..]) };
            Interval::write_all(told.0.iter(), &mut body);
            UpdateCount::write_all(told.1, &mut body);
            self.dropped.write(&mut body);
            (body, ranks)
        });
        bodies.collect()
    }
}

/// Sorts intervals by writer. A late interval that several nodes told stays once.
pub(crate) fn merged(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_by_key(|interval| (interval.writer, interval.last));
    let mut out: Vec<Interval> = Vec::with_capacity(intervals.len());
    for interval in intervals {
        match out.last_mut() {
            Some(last) if (last.writer, last.last) == (interval.writer, interval.last) => {
                if *last != interval {
                    // Nodes may have joined different intervals into it (COH-4.5).
                    *last = Interval::join(last.writer, [&*last, &interval].into_iter());
                }
            }
            _ => out.push(interval),
        }
    }
    out
}

/// Arrivals at one collective that this node knows of.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
struct Gathering {
    arrived: Ranks,
    /// Number of ranks that this node has told its parent.
    told: usize,
    /// Arrivals that this node has not told its parent.
    kept: Arrivals,
}

/// Collectives that this node gathers.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Gather {
    pub place: TreePlace,
    /// By epoch: the collective that this node is in or will call next, and perhaps the one after
    /// it.
    epochs: BTreeMap<u64, Gathering>,
    /// Epoch of the last collective that a death has ended here.
    doomed: Option<u64>,
    /// Rounds in which this node tells its parent an incomplete subtree.
    pub reports: Rounds,
}

/// Leaves out the times of reports, because the model has no time.
#[cfg(test)]
impl core::hash::Hash for Gather {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Gather { place, epochs, doomed, reports: _ } = self;
        (place, epochs, doomed).hash(state);
    }
}

impl Gather {
    pub fn new(me: Rank, nodes: u32) -> Gather {
        let place = TreePlace::new(me, nodes);
        Gather { place, epochs: BTreeMap::new(), doomed: None, reports: Rounds::default() }
    }

    /// Returns how many arrivals this node has told its parent at this collective.
    pub fn told(&self, epoch: u64) -> usize {
        self.epochs.get(&epoch).map_or(0, |gathering| gathering.told)
    }

    /// Returns how many arrivals at this collective this node knows from that child's subtree.
    pub fn known_of(&self, child: Rank, epoch: u64) -> usize {
        let gathering = self.epochs.get(&epoch).zip(self.place.told_by(child));
        gathering.map_or(0, |(gathering, subtree)| gathering.arrived.count_in(&subtree))
    }

    /// Called when a departure is here, so that the collective is gathered.
    pub fn end(&mut self, epoch: u64) {
        self.epochs.retain(|kept, _| *kept > epoch);
    }
}

impl Coherence {
    /// Called with the arrivals of another node and its subtree. All their writes are at their
    /// homes.
    pub(crate) fn gather_arrival(
        &mut self,
        from: Rank,
        epoch: u64,
        body: &[u8],
    ) -> Result<(), Refusal> {
        let subtree = self.gather.place.told_by(from).ok_or(Refusal::Malformed)?;
        let arrivals = self.read_arrivals(&subtree, body)?;
        if planted(Bug::ReleaseBarrierEarly) && epoch < self.epoch {
            if !self.gather.place.is_pair {
                let outcome = Outcome::Agreed(None);
                self.post_departure(
                    epoch,
                    &Departure { outcome, ..Departure::default() },
                    &[subtree],
                );
            }
            return Ok(());
        }
        if !self.may_arrive(epoch) {
            return Err(Refusal::Malformed);
        }
        if planted(Bug::ForgetEarlyArrival) && epoch > self.epoch {
            return Ok(());
        }
        let gathering = self.gather.epochs.entry(epoch).or_default();
        let ranks = arrivals.ranks();
        if gathering.arrived.overlaps(&ranks) {
            return Err(Refusal::Malformed);
        }
        gathering.arrived.merge(&ranks);
        gathering.kept.merge(arrivals);
        if let Some(dead) = self.doomed_by(epoch) {
            // The other children were told when the death became known.
            self.post_departure(epoch, &Departure::of_dead(dead), &[subtree]);
            self.gather.epochs.remove(&epoch);
            return Ok(());
        }
        self.advance_gather();
        Ok(())
    }

    fn read_arrivals(&self, subtree: &Range<Rank>, body: &[u8]) -> Result<Arrivals, Refusal> {
        let mut reader = ByteReader(body);
        let count = reader.count(4)?;
        let (mut calls, mut seen) = (Vec::new(), Ranks::default());
        for _ in 0..count {
            let call = Call::read(&mut reader)?;
            let ranks = Ranks::read(&mut reader, subtree)?;
            if seen.overlaps(&ranks) {
                return Err(Refusal::Malformed);
            }
            seen.merge(&ranks);
            calls.push((call, ranks));
        }
        let intervals = self.knowledge.read_intervals(&mut reader, &self.arrays)?;
        let counts = UpdateCount::read_all(&mut reader, self.nodes)?;
        let dropped = NumberSet::read(&mut reader)?;
        reader.end()?;
        let is_told = |interval: &Interval| subtree.contains(&interval.writer) || interval.late;
        let is_counted = |count: &UpdateCount| subtree.contains(&count.from);
        if calls.is_empty() || !intervals.iter().all(is_told) || !counts.iter().all(is_counted) {
            return Err(Refusal::Malformed);
        }
        Ok(Arrivals { calls, intervals, counts, dropped })
    }

    /// Returns `true` if another node may have arrived at this collective. A node can be one
    /// collective ahead. In a pair it then has this node's arrival. In the tree it has a departure
    /// that this node has, too (COH-9.1).
    fn may_arrive(&self, epoch: u64) -> bool {
        let current = self.collective.current.as_ref();
        let has_departure = current.is_some_and(|current| current.departure.is_some());
        let has_arrived = current.is_some_and(|current| current.arrived);
        if epoch == self.epoch {
            return !has_departure;
        }
        let may_be_over = has_departure || (self.gather.place.is_pair && has_arrived);
        epoch.checked_sub(1) == Some(self.epoch) && may_be_over
    }

    /// Adds this node's own arrival.
    pub(crate) fn gather_own(&mut self, arrivals: Arrivals) {
        let gathering = self.gather.epochs.entry(self.epoch).or_default();
        gathering.arrived.merge(&arrivals.ranks());
        gathering.kept.merge(arrivals);
        self.advance_gather();
    }

    /// Goes on once all arrivals that this node gathers are here.
    fn advance_gather(&mut self) {
        let Some(gathering) = self.gather.epochs.get(&self.epoch) else { return };
        let all = self.gather.place.gathers().len();
        let enough = if planted(Bug::ReleaseBarrierEarly) { all.max(2) - 1 } else { all };
        if gathering.arrived.len() < enough {
            return;
        }
        if self.gather.place.concludes() {
            self.conclude_gathering();
        } else {
            self.send_up();
        }
    }

    /// Computes the departure from the arrivals of all nodes, and sends it to the children. In a
    /// pair, the other node computes it as well. Only rank 0 tells it, and only when it leaves
    /// itself (COH-6.11).
    fn conclude_gathering(&mut self) {
        let epoch = self.epoch;
        let Some(gathering) = self.gather.epochs.remove(&epoch) else { return };
        let Arrivals { calls, intervals, mut counts, dropped } = gathering.kept;
        let mut by_rank: Vec<(Rank, &Call)> =
            calls.iter().flat_map(|(call, ranks)| ranks.iter().map(move |r| (r, call))).collect();
        if !planted(Bug::CombineOutOfOrder) {
            by_rank.sort_unstable_by_key(|(rank, _)| *rank);
        }
        let outcome = match agreement::agree(by_rank.iter().copied()) {
            Ok(values) => Outcome::Agreed(values),
            Err(text) => {
                let unfit = calls.iter().any(|(call, _)| matches!(call, Call::Unfit(_)));
                Outcome::Mismatch { text: agreement::cut(&text).to_string(), unfit }
            }
        };
        counts.sort_unstable();
        let intervals = merged(intervals);
        let outcome = match self.write_conflict(&intervals) {
            Some(text) if matches!(outcome, Outcome::Agreed(_)) => {
                Outcome::Mismatch { text: agreement::cut(&text).to_string(), unfit: false }
            }
            _ => outcome,
        };
        let departure = Departure { outcome, intervals, counts, freed: dropped };
        let current = self.collective.current.as_ref();
        let leaves = current.is_some_and(|current| current.call == Call::Leave);
        if !self.gather.place.is_pair || (self.gather.place.me == 0 && leaves) {
            let children = self.gather.place.children.clone();
            self.post_departure(epoch, &departure, &children);
        }
        self.store_departure(departure);
    }

    /// Returns the error of a barrier between whose releases guards of two nodes owned one byte
    /// (COH-10.14).
    fn write_conflict(&self, intervals: &[Interval]) -> Option<String> {
        let (array, bytes, one, other) = OwnedBytes::conflict(intervals.iter())?;
        let name = self.arrays.get(array).map_or("", |array| array.name.as_str());
        Some(format!(
            "nodes {one} and {other} both wrote bytes {}..{} of array \"{name}\" under guards since the last barrier: cut the ranges so \
             that they do not overlap, order the writes by a lock, or use write_merged",
            bytes.start, bytes.end
        ))
    }

    /// Sends a departure to children, or a doomed one to the parent as well.
    fn post_departure(&mut self, epoch: u64, departure: &Departure, children: &[Range<Rank>]) {
        if !children.is_empty() {
            self.forward_departure(epoch, &departure.write(), departure, children);
        }
    }

    /// Sends the body of a departure to children. A node that leaves waits for the acknowledgements
    /// (COH-6.6).
    pub(crate) fn forward_departure(
        &mut self,
        epoch: u64,
        body: &[u8],
        departure: &Departure,
        children: &[Range<Rank>],
    ) {
        let current = self.collective.current.as_ref();
        let call = current.map(|current| &current.call);
        let is_doomed = matches!(departure.outcome, Outcome::Dead(_));
        let is_repeated = departure.is_repeated_for(&Call::Leave);
        let last = call == Some(&Call::Leave) && !is_repeated && !is_doomed;
        let doing = call.map_or(Doing::Barrier, Call::doing);
        for child in children {
            let purpose = if last {
                Purpose::LastDeparture
            } else {
                Purpose::Departure { doing: doing.clone(), epoch }
            };
            let head = Headline::Depart { epoch };
            self.post(child.start, Class::Unordered, head, body.to_vec(), purpose);
        }
    }

    /// Tells the parent the arrivals that it has not been told.
    fn send_up(&mut self) {
        let epoch = self.epoch;
        let Some(parent) = self.gather.place.parent else { return };
        let Some(gathering) = self.gather.epochs.get_mut(&epoch) else { return };
        let mut kept = core::mem::take(&mut gathering.kept);
        gathering.told += kept.ranks().len();
        if planted(Bug::ForgetSubtree) {
            kept.intervals.retain(|interval| interval.writer == self.me);
        }
        for (body, ranks) in kept.write() {
            self.post_arrival(parent, epoch, ranks, body);
        }
    }

    /// Posts an arrival of this node or its subtree.
    pub(crate) fn post_arrival(&mut self, to: Rank, epoch: u64, ranks: Ranks, body: Vec<u8>) {
        let current = self.collective.current.as_ref();
        let doing = current.map_or(Doing::Barrier, |current| current.call.doing());
        let says_why = self.broken.is_some();
        let purpose = Purpose::Arrival { doing, says_why, epoch, ranks };
        self.post(to, Class::Unordered, Headline::Arrive { epoch }, body, purpose);
    }

    /// Sends this node's own arrival to the other node of a pair. The arrival of rank 0 at *leave*
    /// is not sent, because rank 0 answers with a departure (COH-6.11).
    pub(crate) fn send_across(&mut self, own: Arrivals) {
        let Some(other) = self.gather.place.asked().filter(|_| self.gather.place.is_pair) else {
            return;
        };
        for (body, ranks) in own.write() {
            self.post_arrival(other, self.epoch, ranks, body);
        }
    }

    /// Called when a node has refused an arrival of this node and so has not counted it. This node
    /// arrives again with nothing but the reason. If that is refused too, the call fails here and
    /// below (COH-8.4).
    pub(crate) fn arrival_refused(&mut self, to: Rank, epoch: u64, ranks: Ranks, said_why: bool) {
        let Some(broken) = self.broken.clone() else { return };
        let (me, is_current) = (self.me, epoch == self.epoch);
        let waits = |current: &&mut crate::coherence::sync::collective::Current| {
            is_current && current.arrived && current.departure.is_none()
        };
        if !said_why {
            let call = Call::Unfit(broken.to_string());
            if let Some(current) = self.collective.current.as_mut().filter(waits) {
                current.call = call.clone();
            }
            if let Some(gathering) = self.gather.epochs.get_mut(&epoch)
                && self.gather.place.is_pair
            {
                gathering.kept.replace(me, call.clone());
            }
            let reason = Arrivals { calls: vec![(call, ranks)], ..Arrivals::default() };
            for (body, ranks) in reason.write() {
                self.post_arrival(to, epoch, ranks, body);
            }
            return;
        }
        if let Some(current) = self.collective.current.take_if(|current| waits(&current)) {
            self.fail(current.token, broken);
        }
        self.end_gathering(epoch, to);
    }

    /// Returns a dead node because of which this collective cannot end: an arrival or the departure
    /// would have to come from it. With a dead node, this node itself arrives no more (COH-8.10).
    fn doomed_by(&self, epoch: u64) -> Option<Rank> {
        let first = self.dead.first().copied()?;
        let gathering = self.gather.epochs.get(&epoch);
        let has_arrived =
            |rank: Rank| gathering.is_some_and(|gathering| gathering.arrived.contains(rank));
        let (all, parent) = (self.gather.place.gathers(), self.gather.place.parent);
        let is_cause =
            |rank: &&Rank| (all.contains(*rank) && !has_arrived(**rank)) || Some(**rank) == parent;
        let cause = self.dead.iter().find(is_cause).copied();
        cause.or((!has_arrived(self.me)).then_some(first))
    }

    /// Ends the collectives that a death has doomed. The nodes around this one are told, because
    /// they may wait for a node that will not arrive.
    pub(crate) fn gather_death(&mut self) {
        for epoch in [self.epoch, self.epoch.saturating_add(1)] {
            let current = self.collective.current.as_ref();
            let is_over =
                epoch == self.epoch && current.is_some_and(|current| current.departure.is_some());
            let is_gathered = epoch == self.epoch || self.gather.epochs.contains_key(&epoch);
            if let Some(dead) = self.doomed_by(epoch).filter(|_| is_gathered && !is_over) {
                self.end_gathering(epoch, dead);
            }
        }
    }

    /// Ends a collective that failed because of a dead node, here, above and below. It is not
    /// passed (COH-8.2). Parent and children are told once.
    pub(crate) fn end_gathering(&mut self, epoch: u64, dead: Rank) {
        if self.left || self.gather.doomed >= Some(epoch) {
            return;
        }
        self.gather.doomed = Some(epoch);
        let mut around = self.gather.place.children.clone();
        around.extend(self.gather.place.parent.map(|parent| parent..parent.saturating_add(1)));
        self.post_departure(epoch, &Departure::of_dead(dead), &around);
        self.gather.epochs.remove(&epoch);
        if epoch == self.epoch {
            self.fail_current_by_death(dead);
        }
    }

    /// Tells the parent about an incomplete subtree now and then (COH-6.13).
    pub(crate) fn report_incomplete(&mut self, now: Time, failure_time: Duration) {
        let kept = self.gather.epochs.get(&self.epoch).map(|gathering| &gathering.kept);
        let is_due = !self.gather.place.concludes()
            && self.dead.is_empty()
            && kept.is_some_and(|kept| !kept.calls.is_empty());
        if self.gather.reports.is_due(is_due, now, failure_time / REPORT_PART) {
            self.send_up();
        }
    }

    /// Returns the collective that other nodes wait in, if this node knows all that have arrived.
    fn gathered_by_all(&self) -> Option<&Gathering> {
        let place = &self.gather.place;
        let current = self.collective.current.as_ref();
        // Node 1 of a pair is not told that rank 0 leaves.
        let is_blind = place.me != 0 && current.is_some_and(|current| current.call == Call::Leave);
        let gathering = self.gather.epochs.values().next()?;
        (place.concludes() && !is_blind).then_some(gathering)
    }

    /// Returns the nodes that are missing in the collective that other nodes have arrived at. Rank
    /// 0 knows, and with two nodes both know. Of nodes below other nodes, rank 0 hears within the
    /// failure time (COH-6.13). It is empty on other ranks.
    #[must_use]
    pub fn late(&self) -> Vec<Rank> {
        let Some(gathering) = self.gathered_by_all() else { return Vec::new() };
        (0..self.nodes).filter(|rank| !gathering.arrived.contains(*rank)).collect()
    }

    /// Returns the nodes that have arrived at the collective being gathered, in rank order, as far
    /// as this node knows (see [`Self::late`]).
    #[must_use]
    pub fn gathered(&self) -> Vec<Rank> {
        self.gathered_by_all().map_or_else(Vec::new, |gathering| gathering.arrived.iter().collect())
    }
}
