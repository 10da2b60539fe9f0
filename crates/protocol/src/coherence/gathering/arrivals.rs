//! Arrivals at collectives, as messages tell them and as a node keeps them (COH-6).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::base::Base;
use crate::coherence::clock::moves::Moves;
use crate::coherence::clock::notices::Interval;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::gathering::departure::UpdateCount;
use crate::coherence::gathering::holding::{CopyChanges, HeldCopies};
use crate::coherence::gathering::tree::{Ranks, TreePlace};
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::short_list::ShortList;
use crate::coherence::updating::page_sets::PageSets;
use crate::time::Rounds;
use crate::wind::Refusal;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum length of the calls in one arrival that has more than one, in bytes. Only long
/// reductions of many nodes reach it.
const CALLS_BODY: usize = 4 << 20;

/// Calls of several nodes, with what these nodes have written.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Arrivals {
    pub calls: ShortList<(Call, Ranks)>,
    pub intervals: Vec<Interval>,
    pub counts: Vec<UpdateCount>,
    /// Numbers of the arrays that all these nodes have dropped (COH-14.2).
    pub dropped: NumberSet,
    /// Changes of the copies that these nodes may hold (COH-6.19).
    pub copies: CopyChanges,
    /// Pages for which nodes ask to be the home (COH-11.1).
    pub asks: Moves,
}

/// Part of arrivals that one message tells.
pub(crate) struct ArrivalPart<'a> {
    calls: &'a [(Call, Ranks)],
    /// Intervals, counts and changes of all calls, in the last part.
    intervals: &'a [Interval],
    counts: &'a [UpdateCount],
    copies: Option<&'a CopyChanges>,
    dropped: &'a NumberSet,
    /// Asks of all calls, in the last part.
    asks: Option<&'a Moves>,
}

impl ArrivalPart<'_> {
    pub fn ranks(&self) -> Ranks {
        ranks_of(self.calls)
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(self.calls.len() as u64);
        for (call, ranks) in self.calls {
            call.write(out);
            ranks.write(out);
        }
        Interval::write_all(self.intervals.iter(), out);
        UpdateCount::write_all(self.counts.iter(), out);
        self.dropped.write(out);
        self.copies.unwrap_or(&CopyChanges::default()).write(out);
        self.asks.into_iter().for_each(|asks| asks.write(out));
    }
}

fn ranks_of(calls: &[(Call, Ranks)]) -> Ranks {
    if let [(_, ranks)] = calls {
        return ranks.clone();
    }
    let mut all = Ranks::default();
    calls.iter().for_each(|(_, ranks)| all.merge(ranks));
    all
}

impl Arrivals {
    /// Returns the arrival of one node, which has dropped no array.
    pub fn new(rank: Rank, call: Call, intervals: Vec<Interval>, counts: Vec<UpdateCount>) -> Self {
        let calls = ShortList::one((call, Ranks::one(rank)));
        Arrivals { calls, intervals, counts, ..Arrivals::default() }
    }

    /// Adds the pages for which the node asks.
    pub fn asking(self, asks: Moves) -> Self {
        Arrivals { asks, ..self }
    }

    pub fn ranks(&self) -> Ranks {
        ranks_of(&self.calls)
    }

    /// Returns `true` if any of these nodes is one of `ranks`.
    pub fn are_any_of(&self, ranks: &Ranks) -> bool {
        self.calls.iter().any(|(_, those)| ranks.overlaps(those))
    }

    /// Adds other arrivals. Nodes that called the same share one entry.
    pub fn merge(&mut self, other: Arrivals) {
        self.dropped = match self.calls.is_empty() {
            true => other.dropped,
            false => self.dropped.intersection(&other.dropped),
        };
        other.calls.for_each(|(call, ranks)| {
            match self.calls.iter_mut().find(|(known, _)| known.is_identical(&call)) {
                Some((_, known)) => known.merge(&ranks),
                None => self.calls.push((call, ranks)),
            }
        });
        self.intervals.extend(other.intervals);
        self.counts.extend(other.counts);
        self.copies.merge(&other.copies);
        self.asks.merge(other.asks);
    }

    /// Replaces the call of one node.
    pub fn replace(&mut self, rank: Rank, call: Call) {
        self.calls.iter_mut().for_each(|(_, ranks)| ranks.remove(rank));
        self.calls.retain(|(_, ranks)| !ranks.is_empty());
        self.dropped = NumberSet::default();
        self.merge(Arrivals::new(rank, call, Vec::new(), Vec::new()));
    }

    /// Puts intervals, counts and asks in order after arrivals were added.
    pub fn sort(&mut self) {
        self.counts.sort_unstable();
        self.asks.sort();
        self.intervals = Interval::merged(core::mem::take(&mut self.intervals));
    }

    /// Returns the parts that messages tell. There is more than one if the calls are long.
    pub fn parts(&self) -> impl Iterator<Item = ArrivalPart<'_>> {
        let mut rest = &*self.calls;
        core::iter::from_fn(move || {
            let mut len = 0;
            let fits = |(call, ranks): &&(Call, Ranks)| {
                len += call.len_max() + ranks.len_max();
                len <= CALLS_BODY
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (calls, later) = rest.split_at_checked(count)?;
            rest = later;
            let (intervals, counts, copies, asks) = match later {
                [] => (&*self.intervals, &*self.counts, Some(&self.copies), Some(&self.asks)),
                _ => Default::default(),
            };
            Some(ArrivalPart { calls, intervals, counts, copies, dropped: &self.dropped, asks })
        })
    }

    /// Reads arrivals of nodes of a subtree, and checks them.
    pub fn read(subtree: &Range<Rank>, body: &[u8], base: &Base<'_>) -> Result<Arrivals, Refusal> {
        let mut reader = ByteReader(body);
        let count = reader.count(4)?;
        let (mut calls, mut seen) = (ShortList::default(), Ranks::default());
        for _ in 0..count {
            let call = Call::read(&mut reader)?;
            let ranks = Ranks::read(&mut reader, subtree)?;
            if count > 1 {
                if seen.overlaps(&ranks) {
                    return Err(Refusal::Malformed);
                }
                seen.merge(&ranks);
            }
            calls.push((call, ranks));
        }
        let intervals = base.clock.knowledge.read_intervals(&mut reader, base.arrays)?;
        let counts = UpdateCount::read_all(&mut reader, base.mail.nodes)?;
        let dropped = NumberSet::read(&mut reader)?;
        let copies = CopyChanges::read(&mut reader, base.arrays)?;
        let asks = Moves::read(&mut reader, subtree, base.arrays)?;
        reader.end()?;
        let is_covered = |interval: &Interval| subtree.contains(&interval.writer) || interval.late;
        let is_counted = |count: &UpdateCount| subtree.contains(&count.from);
        if calls.is_empty() || !intervals.iter().all(is_covered) || !counts.iter().all(is_counted) {
            return Err(Refusal::Malformed);
        }
        Ok(Arrivals { calls, intervals, counts, dropped, copies, asks })
    }
}

/// Arrivals at one collective that this node knows of.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Gathering {
    pub arrived: Ranks,
    /// Number of ranks that this node has reported to its parent.
    pub reported: usize,
    /// Arrivals that this node has not reported to its parent.
    pub kept: Arrivals,
    /// Intervals that this node has reported, and counts of updates inside of its subtree. The
    /// departure for this node leaves them out.
    pub told: (Vec<Interval>, Vec<UpdateCount>),
}

/// Collectives by epoch, in order. There are at most two (COH-9.1), so a search is short and the
/// memory of an earlier one serves the next.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct GatheredEpochs(Vec<(u64, Gathering)>);

impl GatheredEpochs {
    pub fn get(&self, epoch: u64) -> Option<&Gathering> {
        self.0.iter().find(|(of, _)| *of == epoch).map(|(_, gathering)| gathering)
    }

    pub fn get_mut(&mut self, epoch: u64) -> Option<&mut Gathering> {
        self.0.iter_mut().find(|(of, _)| *of == epoch).map(|(_, gathering)| gathering)
    }

    /// Returns the collective of the lowest epoch.
    pub fn first(&self) -> Option<&Gathering> {
        self.0.first().map(|(_, gathering)| gathering)
    }

    /// Adds arrivals at a collective.
    pub fn add(&mut self, epoch: u64, arrivals: Arrivals) {
        let place = self.0.iter().position(|(of, _)| *of >= epoch).unwrap_or(self.0.len());
        match self.0.get_mut(place) {
            Some((of, gathering)) if *of == epoch => {
                arrivals.calls.iter().for_each(|(_, ranks)| gathering.arrived.merge(ranks));
                gathering.kept.merge(arrivals);
            }
            _ => {
                let arrived = arrivals.ranks();
                let told = Default::default();
                let gathering = Gathering { arrived, reported: 0, kept: arrivals, told };
                self.0.insert(place, (epoch, gathering));
            }
        }
    }

    pub fn remove(&mut self, epoch: u64) -> Option<Gathering> {
        let place = self.0.iter().position(|(of, _)| *of == epoch)?;
        Some(self.0.remove(place).1)
    }
}

/// Collectives that this node gathers.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Gather {
    pub place: TreePlace,
    /// The collective that this node is in or will call next, and perhaps the one after it.
    pub epochs: GatheredEpochs,
    pub held: HeldCopies,
    /// Epoch of the last collective that a death has ended here.
    pub doomed: Option<u64>,
    /// Rounds in which this node tells its parent an incomplete subtree.
    pub reports: Rounds,
}

/// Leaves out the times of reports, because the model has no time.
#[cfg(test)]
impl core::hash::Hash for Gather {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Gather { place, epochs, held, doomed, reports: _ } = self;
        (place, epochs, held, doomed).hash(state);
    }
}

impl Gather {
    pub fn new(me: Rank, nodes: u32) -> Gather {
        let place = TreePlace::new(me, nodes);
        // A pair tells everything.
        let held = HeldCopies::new(if place.is_pair { 0 } else { place.children.len() });
        Gather {
            place,
            epochs: GatheredEpochs::default(),
            held,
            doomed: None,
            reports: Rounds::default(),
        }
    }

    /// Returns how many arrivals this node has told its parent at this collective.
    pub fn reported(&self, epoch: u64) -> usize {
        self.epochs.get(epoch).map_or(0, |gathering| gathering.reported)
    }

    /// Returns how many arrivals at this collective this node knows from that child's subtree.
    pub fn known_of(&self, child: Rank, epoch: u64) -> usize {
        let gathering = self.epochs.get(epoch).zip(self.place.subtree_of(child));
        gathering.map_or(0, |(gathering, subtree)| gathering.arrived.count_in(&subtree))
    }

    /// Returns the pages that the nodes of a child's subtree may hold.
    pub fn held_below(&self, child: Rank) -> Option<&PageSets> {
        let at = self.place.children.iter().position(|part| part.start == child)?;
        self.held.of(at)
    }

    /// Learns what pages the nodes of a child's subtree may hold from now on.
    pub fn learn(&mut self, child: Rank, changes: &CopyChanges) {
        if let Some(at) = self.place.children.iter().position(|part| part.start == child) {
            self.held.learn(at, changes);
        }
    }

    /// Called when a departure is here, so that the collective is gathered.
    pub fn end(&mut self, epoch: u64) {
        self.epochs.0.retain(|(kept, _)| *kept > epoch);
    }
}
