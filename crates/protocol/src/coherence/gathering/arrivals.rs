//! Arrivals at collectives, as messages tell them and as a node keeps them (COH-6).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::notices::Interval;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::gathering::departure::UpdateCount;
use crate::coherence::gathering::tree::{Ranks, TreePlace};
use crate::coherence::pages::number_set::NumberSet;
use crate::time::Rounds;
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Length of the calls in one arrival, in bytes, from which on further calls go into another one.
/// Only long reductions of many nodes reach it.
const CALLS_BODY: usize = 4 << 20;

/// Calls of several nodes, with what these nodes have written.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Arrivals {
    pub calls: Vec<(Call, Ranks)>,
    pub intervals: Vec<Interval>,
    pub counts: Vec<UpdateCount>,
    /// Numbers of the arrays that all these nodes have dropped (COH-14.2).
    pub dropped: NumberSet,
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

    pub fn ranks(&self) -> Ranks {
        let mut all = Ranks::default();
        self.calls.iter().for_each(|(_, ranks)| all.merge(ranks));
        all
    }

    /// Adds other arrivals. Nodes that called the same share one entry.
    pub fn merge(&mut self, other: Arrivals) {
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
    pub fn replace(&mut self, rank: Rank, call: Call) {
        self.calls.iter_mut().for_each(|(_, ranks)| ranks.remove(rank));
        self.calls.retain(|(_, ranks)| !ranks.is_empty());
        self.dropped = NumberSet::default();
        self.merge(Arrivals::new(rank, call, Vec::new(), Vec::new()));
    }

    /// Returns bodies of messages, and the ranks that each tells of. There is more than one if the
    /// calls are long.
    pub fn write(mut self) -> Vec<(Vec<u8>, Ranks)> {
        self.counts.sort_unstable();
        let mut parts: Vec<(u64, Vec<u8>, Ranks)> = Vec::new();
        for (call, ranks) in &self.calls {
            let is_full = parts.last().is_none_or(|(_, calls, _)| calls.len() >= CALLS_BODY);
            if is_full {
                parts.push((0, Vec::new(), Ranks::default()));
            }
            if let Some((count, calls, reported)) = parts.last_mut() {
                *count += 1;
                call.write(calls);
                ranks.write(calls);
                reported.merge(ranks);
            }
        }
        let last = parts.len().saturating_sub(1);
        let intervals = Interval::merged(self.intervals);
        let bodies = parts.into_iter().enumerate().map(|(number, (count, calls, ranks))| {
            let mut body = Vec::new();
            body.put_leb128(count).put(&calls);
            let reported =
                if number == last { (&*intervals, &*self.counts) } else { (&[][..], &[][..]) };
            Interval::write_all(reported.0.iter(), &mut body);
            UpdateCount::write_all(reported.1, &mut body);
            self.dropped.write(&mut body);
            (body, ranks)
        });
        bodies.collect()
    }

    /// Reads arrivals of nodes of a subtree, and checks them.
    pub fn read(subtree: &Range<Rank>, body: &[u8], base: &Base<'_>) -> Result<Arrivals, Refusal> {
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
        let intervals = base.clock.knowledge.read_intervals(&mut reader, base.arrays)?;
        let counts = UpdateCount::read_all(&mut reader, base.mail.nodes)?;
        let dropped = NumberSet::read(&mut reader)?;
        reader.end()?;
        let is_covered = |interval: &Interval| subtree.contains(&interval.writer) || interval.late;
        let is_counted = |count: &UpdateCount| subtree.contains(&count.from);
        if calls.is_empty() || !intervals.iter().all(is_covered) || !counts.iter().all(is_counted) {
            return Err(Refusal::Malformed);
        }
        Ok(Arrivals { calls, intervals, counts, dropped })
    }
}

/// Arrivals at one collective that this node knows of.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Gathering {
    pub arrived: Ranks,
    /// Number of ranks that this node has reported to its parent.
    pub reported: usize,
    /// Arrivals that this node has not reported to its parent.
    pub kept: Arrivals,
}

/// Collectives that this node gathers.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Gather {
    pub place: TreePlace,
    /// By epoch: the collective that this node is in or will call next, and perhaps the one after
    /// it.
    pub epochs: BTreeMap<u64, Gathering>,
    /// Epoch of the last collective that a death has ended here.
    pub doomed: Option<u64>,
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
    pub fn reported(&self, epoch: u64) -> usize {
        self.epochs.get(&epoch).map_or(0, |gathering| gathering.reported)
    }

    /// Returns how many arrivals at this collective this node knows from that child's subtree.
    pub fn known_of(&self, child: Rank, epoch: u64) -> usize {
        let gathering = self.epochs.get(&epoch).zip(self.place.subtree_of(child));
        gathering.map_or(0, |(gathering, subtree)| gathering.arrived.count_in(&subtree))
    }

    /// Called when a departure is here, so that the collective is gathered.
    pub fn end(&mut self, epoch: u64) {
        self.epochs.retain(|kept, _| *kept > epoch);
    }
}
