//! How far a vector clock has risen: what all nodes know by a collective (COH-6.18), or what a
//! notifier knows since its last notification (COH-15.5).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::clock::notices::Interval;
use crate::coherence::clock::vector::Vector;
use crate::coherence::short_list::ShortList;
use crate::wind::Refusal;
use alloc::vec::Vec;
use core::ops::Range;

/// Increment for each run of ranks that have the same one. Runs are in order. In most programs,
/// every node closes one interval between two barriers, so there is one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Rise(ShortList<(Range<Rank>, u64)>);

impl Rise {
    /// Returns the rise above `base` by these intervals, which are in the order of their writers.
    pub fn by(intervals: &[Interval], base: &Vector) -> Rise {
        let mut rise = Rise::default();
        for intervals in intervals.chunk_by(|one, other| one.writer == other.writer) {
            let last = intervals.iter().map(|interval| interval.last).max().unwrap_or(0);
            if let Some(first) = intervals.first() {
                rise.add(first.writer, last.saturating_sub(base.get(first.writer)));
            }
        }
        rise
    }

    /// Returns the rise from one vector clock to a later one.
    pub fn between(low: &Vector, high: &Vector) -> Rise {
        let mut rise = Rise::default();
        for rank in 0..high.nodes() {
            rise.add(rank, high.get(rank).saturating_sub(low.get(rank)));
        }
        rise
    }

    /// Raises a vector clock. Returns `None` if a number would be too large.
    pub fn above(&self, mut vector: Vector) -> Option<Vector> {
        for (rank, more) in self.iter() {
            vector.raise(rank, vector.get(rank).checked_add(more)?);
        }
        Some(vector)
    }

    fn add(&mut self, rank: Rank, more: u64) {
        match self.0.last_mut() {
            _ if more == 0 => {}
            Some((ranks, last)) if ranks.end == rank && *last == more => ranks.end += 1,
            _ => self.0.push((rank..rank.saturating_add(1), more)),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the ranks whose numbers rise, with their increments.
    pub fn iter(&self) -> impl Iterator<Item = (Rank, u64)> + '_ {
        self.0.iter().flat_map(|(ranks, more)| ranks.clone().map(move |rank| (rank, *more)))
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(self.0.len() as u64);
        let mut end = 0;
        for (ranks, more) in self.0.iter() {
            out.put_leb128(u64::from(ranks.start - end)).put_leb128(ranks.len() as u64);
            out.put_leb128(*more);
            end = ranks.end;
        }
    }

    /// Reads runs of ranks below `nodes`, in order, each with an increment.
    pub fn read(reader: &mut ByteReader<'_>, nodes: u32) -> Result<Rise, Refusal> {
        let (mut rise, mut end) = (Rise::default(), 0u32);
        for _ in 0..reader.count(3)? {
            let (gap, len, more) = (reader.leb128_u32()?, reader.leb128_u32()?, reader.leb128()?);
            let start = end.checked_add(gap).ok_or(Refusal::Malformed)?;
            end = start.checked_add(len).ok_or(Refusal::Malformed)?;
            if len == 0 || more == 0 || end > nodes {
                return Err(Refusal::Malformed);
            }
            rise.0.push((start..end, more));
        }
        Ok(rise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: u32 = 300;

    /// COH-6.18: nodes that rise alike need one run.
    #[test]
    fn a_rise_of_all_nodes_is_short() {
        let low = Vector::new(NODES);
        let mut high = low.clone();
        (0..NODES).for_each(|rank| high.raise(rank, 1));
        high.raise(7, 40);
        let mut body = Vec::new();
        Rise::between(&low, &high).write(&mut body);
        assert_eq!(body, [3, 0, 7, 1, 0, 1, 40, 0, 0xa4, 2, 1]);
        let read = Rise::read(&mut ByteReader(&body), NODES).expect("it is sound");
        assert_eq!(read.above(low), Some(high.clone()));
        assert!(Rise::read(&mut ByteReader(&body), NODES - 1).is_err(), "there is no such node");
        assert!(Rise::default().is_empty() && Rise::between(&high, &high).is_empty());
    }

    #[test]
    fn a_rise_beyond_all_numbers_is_none() {
        let mut low = Vector::new(2);
        low.raise(1, u64::MAX - 1);
        let rise = |more| Rise([(1..2, more)].into_iter().collect());
        assert!(rise(1).above(low.clone()).is_some());
        assert!(rise(2).above(low).is_none());
    }
}
