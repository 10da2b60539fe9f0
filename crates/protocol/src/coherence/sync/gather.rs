//! Rank 0's part in a collective (COH-6). It gathers the arrivals, checks that all nodes called the
//! same, and sends the departures.

use super::agreement::{self, Call};
use super::collective::Outcome;
use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::clock::notices::{Interval, OwnedBytes, Runs, TOLD_MAX};
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::Headline;
use crate::coherence::mailbox::Purpose;
use crate::coherence::{Coherence, Pages};
use crate::planted::{Bug, planted};
use crate::wind::{Class, Refusal};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Content of one node's arrival.
#[derive(Debug)]
struct Arrival {
    call: Call,
    vector: Vector,
    intervals: Vec<Interval>,
    /// Number of updates that this node sent to each other node in the epoch.
    counts: BTreeMap<Rank, u64>,
}

/// The collective that rank 0 gathers.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    epoch: u64,
    arrivals: BTreeMap<Rank, Arrival>,
}

pub(crate) fn write_counts(counts: &BTreeMap<Rank, u64>, out: &mut Vec<u8>) {
    out.put_leb128(counts.len() as u64);
    for (rank, count) in counts {
        out.put_leb128(u64::from(*rank)).put_leb128(*count);
    }
}

pub(crate) fn read_counts(
    reader: &mut ByteReader<'_>,
    nodes: u32,
) -> Result<BTreeMap<Rank, u64>, Refusal> {
    let mut counts = BTreeMap::new();
    for _ in 0..reader.count(2)? {
        let (rank, count) = (reader.leb128_u32()?, reader.leb128()?);
        if rank >= nodes || counts.insert(rank, count).is_some() {
            return Err(Refusal::Malformed);
        }
    }
    Ok(counts)
}

impl Coherence {
    /// Called when a node has arrived, with all its writes at their homes.
    pub(crate) fn gather_arrival(
        &mut self,
        from: Rank,
        epoch: u64,
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let mut reader = ByteReader(body);
        let call = Call::read(&mut reader)?;
        let (vector, intervals) = self.knowledge.read(&mut reader, &self.arrays)?;
        let counts = read_counts(&mut reader, self.nodes)?;
        reader.end()?;
        if self.me != 0
            || intervals.iter().any(|interval| interval.writer != from && !interval.late)
        {
            return Err(Refusal::Malformed);
        }
        let known = self.gather.arrivals.contains_key(&from);
        if planted(Bug::ReleaseBarrierEarly) && epoch < self.gather.epoch {
            self.send_departure(
                from,
                epoch,
                &call,
                &Outcome::Agreed(None),
                &vector,
                &Runs::default(),
                &BTreeMap::new(),
            );
            return Ok(());
        }
        if epoch != self.gather.epoch || known {
            return Err(Refusal::Malformed);
        }
        self.gather.arrivals.insert(from, Arrival { call, vector, intervals, counts });
        self.gather_death();
        let enough =
            if planted(Bug::ReleaseBarrierEarly) { self.nodes.max(2) - 1 } else { self.nodes };
        if self.gather.arrivals.len() >= enough as usize {
            self.let_go();
        }
        let _ = pages;
        Ok(())
    }

    /// Returns `true` if `rank` has arrived at the collective being gathered and `epoch` names that
    /// collective.
    pub(crate) fn is_gathered(&self, rank: Rank, epoch: u64) -> bool {
        self.gather.epoch == epoch && self.gather.arrivals.contains_key(&rank)
    }

    /// Returns the nodes that are missing in the collective that other nodes have arrived at, as
    /// rank 0 knows it. It is empty on other ranks.
    #[must_use]
    pub fn late(&self) -> Vec<Rank> {
        let arrivals = &self.gather.arrivals;
        (0..self.nodes)
            .filter(|rank| !arrivals.is_empty() && !arrivals.contains_key(rank))
            .collect()
    }

    /// Returns the nodes that have arrived at the collective that rank 0 gathers, in rank order. It
    /// is empty on other ranks.
    #[must_use]
    pub fn gathered(&self) -> Vec<Rank> {
        self.gather.arrivals.keys().copied().collect()
    }

    /// Sends the departures once all nodes are here. Each tells what every node knows from now on,
    /// and the pages that its receiver does not know to be old (COH-6.4).
    fn let_go(&mut self) {
        let arrivals = core::mem::take(&mut self.gather.arrivals);
        let epoch = self.gather.epoch;
        self.gather.epoch += 1;
        let mut base = Vector::new(self.nodes);
        for (rank, arrival) in &arrivals {
            base.raise(*rank, arrival.vector.get(*rank));
            arrival
                .intervals
                .iter()
                .for_each(|interval| base.raise(interval.writer, interval.last));
        }
        let outcome =
            match agreement::agree(arrivals.iter().map(|(rank, arrival)| (*rank, &arrival.call))) {
                Ok(values) => Outcome::Agreed(values),
                Err(text) => Outcome::Mismatch(text),
            };
        let all = arrivals.values().flat_map(|arrival| &arrival.intervals);
        let outcome = match self.write_conflict(all) {
            Some(text) if matches!(outcome, Outcome::Agreed(_)) => Outcome::Mismatch(text),
            _ => outcome,
        };
        // Leaving nodes go on leaving, whatever the other nodes called (COH-6.9). All nodes are
        // told of a node that cannot go on (COH-8.4).
        let unfit = arrivals.values().any(|arrival| matches!(arrival.call, Call::Unfit(_)));
        for (rank, arrival) in &arrivals {
            let again =
                !unfit && arrival.call == Call::Leave && matches!(outcome, Outcome::Mismatch(_));
            let outcome = if again { &Outcome::Again } else { &outcome };
            let news = arrivals.values().flat_map(|other| &other.intervals);
            let news = news.filter(|i| i.writer != *rank && i.last > arrival.vector.get(i.writer));
            let runs = Runs::named(news, *rank).at_most(TOLD_MAX);
            let counts = arrivals.iter().filter_map(|(writer, arrival)| {
                arrival.counts.get(rank).map(|count| (*writer, *count))
            });
            let counts = counts.collect();
            self.send_departure(*rank, epoch, &arrival.call, outcome, &base, &runs, &counts);
        }
    }

    /// Returns the error of a barrier between whose releases guards of two nodes owned one byte
    /// (COH-10.14).
    fn write_conflict<'a>(&self, intervals: impl Iterator<Item = &'a Interval>) -> Option<String> {
        let (array, bytes, one, other) = OwnedBytes::conflict(intervals)?;
        let name = self.arrays.get(array as usize).map_or("", |array| array.name.as_str());
        Some(format!(
            "nodes {one} and {other} both wrote bytes {}..{} of array \"{name}\" under guards since the last barrier: cut the ranges so \
             that they do not overlap, order the writes by a lock, or use write_merged",
            bytes.start, bytes.end
        ))
    }

    #[allow(clippy::too_many_arguments)]
    fn send_departure(
        &mut self,
        to: Rank,
        epoch: u64,
        call: &Call,
        outcome: &Outcome,
        base: &Vector,
        runs: &Runs,
        counts: &BTreeMap<Rank, u64>,
    ) {
        let mut body = Vec::new();
        match outcome {
            Outcome::Agreed(values) => {
                body.put_u8(0).put_u8(u8::from(values.is_some()));
                values.iter().fold(&mut body, |body, values| agreement::write_values(values, body))
            }
            Outcome::Mismatch(text) => agreement::write_text(text, body.put_u8(1)),
            Outcome::Dead(rank) => body.put_u8(2).put_leb128(u64::from(*rank)),
            Outcome::Again => body.put_u8(3),
        };
        base.write(&mut body);
        runs.write(&mut body);
        write_counts(counts, &mut body);
        let last = *call == Call::Leave && !matches!(outcome, Outcome::Again);
        let purpose = if last { Purpose::LastDeparture } else { Purpose::Control(call.doing()) };
        self.post(to, Class::Unordered, Headline::Depart { epoch }, body, purpose);
    }

    /// Tells the nodes that have arrived if a node that has not arrived is dead, because they wait
    /// in vain.
    pub(crate) fn gather_death(&mut self) {
        let missing =
            self.dead.iter().find(|rank| !self.gather.arrivals.contains_key(rank)).copied();
        let Some(dead) = missing.filter(|_| self.me == 0) else { return };
        let (epoch, zero) = (self.gather.epoch, Vector::new(self.nodes));
        for (rank, arrival) in core::mem::take(&mut self.gather.arrivals) {
            self.send_departure(
                rank,
                epoch,
                &arrival.call,
                &Outcome::Dead(dead),
                &zero,
                &Runs::default(),
                &BTreeMap::new(),
            );
        }
    }
}
