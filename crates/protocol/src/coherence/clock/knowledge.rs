//! Knowledge of this node: its vector clock, and the intervals since the last collective (COH-4.3).

use crate::Rank;
use crate::bytes::ByteReader;
use crate::coherence::clock::notices::{
    FORGET_EVERY, INTERVALS_APART_MAX, Interval, JOIN_EVERY, NOTICES_MAX, OwnedBytes, Runs, Shared,
};
use crate::coherence::clock::rise::Rise;
use crate::coherence::clock::stable::Stable;
use crate::coherence::clock::vector::Vector;
use crate::coherence::pages::table::Arrays;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::vec::Vec;

/// Vector time, the known intervals, and what each manager was told.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Knowledge {
    me: Rank,
    /// Intervals known and applied here.
    pub vector: Vector,
    /// Intervals that every node has known since the last collective.
    pub base: Vector,
    /// Intervals by writer and last number. It also holds intervals that this node knows only as
    /// the manager of a lock.
    store: BTreeMap<(Rank, u64), Interval>,
    inserted: u64,
    /// Number of intervals that were put into the store.
    stored: u64,
    /// Sum of [`Interval::size`] of what was put into the store since this sum was last bounded.
    added: usize,
    /// Intervals that all nodes know, which are forgotten (COH-4.6).
    pub stable: Stable,
    /// Vector time that each manager was told in unlocks. Unlocks are ordered, so the manager knows
    /// all of it when the next one comes.
    reported: BTreeMap<Rank, Vector>,
    /// Number up to which this node's own intervals were told at the last collective at which it
    /// arrived.
    pub arrived: u64,
}

/// Leaves out what only says when intervals are joined or forgotten.
#[cfg(test)]
impl core::hash::Hash for Knowledge {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Knowledge { me, vector, base, store, reported, arrived, .. } = self;
        (me, vector, base, store, reported, arrived).hash(state);
    }
}

impl Knowledge {
    pub fn new(me: Rank, nodes: u32) -> Knowledge {
        let zero = Vector::new(nodes);
        Knowledge {
            me,
            vector: zero.clone(),
            base: zero,
            store: BTreeMap::new(),
            inserted: 0,
            stored: 0,
            added: 0,
            stable: Stable::new(me, nodes),
            reported: BTreeMap::new(),
            arrived: 0,
        }
    }

    /// Returns the number of this node's open interval.
    pub fn open_interval(&self) -> u64 {
        self.vector.get(self.me).saturating_add(1)
    }

    /// Closes this node's interval.
    pub fn close(
        &mut self,
        runs: Runs,
        shared: Shared,
        owned: OwnedBytes,
        late: bool,
        unlocked: bool,
    ) {
        let number = self.open_interval();
        self.vector.raise(self.me, number);
        let (writer, first, last) = (self.me, number, number);
        self.insert(Interval { writer, first, last, late, unlocked, runs, shared, owned });
    }

    /// Keeps an interval for nodes that may need to be told. If it differs from the one that is
    /// kept, both are joined. One of them may come from another node than the writer (COH-4.5).
    pub fn insert(&mut self, interval: Interval) {
        let writer = interval.writer;
        if interval.last > self.base.get(writer) {
            self.added += interval.size();
            match self.store.entry((writer, interval.last)) {
                Entry::Vacant(entry) => {
                    entry.insert(interval);
                    self.stored += 1;
                }
                Entry::Occupied(mut entry) if *entry.get() != interval => {
                    entry.insert(Interval::join(writer, [entry.get(), &interval].into_iter()));
                }
                Entry::Occupied(_) => {}
            }
            self.inserted += 1;
            if self.inserted.is_multiple_of(FORGET_EVERY) {
                self.forget_known();
            }
            if self.inserted.is_multiple_of(JOIN_EVERY) {
                (0..self.nodes()).for_each(|writer| self.join_old(writer, INTERVALS_APART_MAX));
            }
            if self.added > NOTICES_MAX {
                self.bound_size();
            }
        }
    }

    /// Learns what all nodes know, from a node whose intervals this one has learnt.
    pub fn hear(&mut self, stable: &Stable) {
        self.stable.merge(stable, self.me, &self.vector);
    }

    /// Returns the number of intervals that were ever kept, and of those that were forgotten
    /// or joined with others.
    pub fn kept_and_forgotten(&self) -> (u64, u64) {
        (self.stored, self.stored - self.store.len() as u64)
    }

    /// Forgets the intervals that all nodes know (COH-4.6). Those that a barrier closes stay until
    /// it has compared what guards owned in them (COH-10.14).
    fn forget_known(&mut self) {
        let known = &self.stable.known;
        let is_known =
            |interval: &Interval| interval.unlocked && interval.last <= known.get(interval.writer);
        let own: Vec<Interval> = self
            .store
            .range((self.me, 0)..=(self.me, u64::MAX))
            .filter(|(_, interval)| is_known(interval))
            .map(|(_, interval)| Interval { runs: Runs::default(), ..interval.clone() })
            .collect();
        self.store.retain(|_, interval| !is_known(interval));
        // The next collective raises the base by an interval that names nothing.
        if !own.is_empty() {
            let told = Interval::join(self.me, own.iter());
            self.store.insert((self.me, told.last), told);
        }
    }

    /// Joins the intervals of each writer if all together name too much (COH-4.5). The newest ones
    /// of this node stay apart, because their writes may be on their way home (COH-5.4).
    fn bound_size(&mut self) {
        self.added = 0;
        if self.store.values().map(Interval::size).sum::<usize>() > NOTICES_MAX {
            for writer in 0..self.nodes() {
                self.join_old(writer, if writer == self.me { INTERVALS_APART_MAX } else { 0 });
            }
        }
    }

    /// Joins a writer's intervals into one if they are more than `apart`, except for the newest
    /// half of this number.
    fn join_old(&mut self, writer: Rank, apart: usize) {
        let kept: Vec<u64> = self
            .store
            .range((writer, 0)..=(writer, u64::MAX))
            .map(|((_, last), _)| *last)
            .collect();
        if kept.len() <= apart {
            return;
        }
        let old: Vec<Interval> = kept
            .iter()
            .take(kept.len() - apart / 2)
            .filter_map(|last| self.store.remove(&(writer, *last)))
            .collect();
        let mut joined = Interval::join(writer, old.iter());
        joined.runs = joined.runs.at_most(NOTICES_MAX / self.nodes().max(1) as usize);
        self.store.insert((writer, joined.last), joined);
    }

    /// Returns the intervals that `high` knows and `low` does not. Where intervals were joined it
    /// may return a few more, never fewer.
    pub fn between<'a>(
        &'a self,
        low: &'a Vector,
        high: &'a Vector,
    ) -> impl Iterator<Item = &'a Interval> + Clone {
        let writers = if self.store.is_empty() { 0 } else { self.nodes() };
        (0..writers).flat_map(move |writer| {
            let unknown = (writer, low.get(writer).saturating_add(1))..=(writer, u64::MAX);
            self.store
                .range(unknown)
                .map(|(_, interval)| interval)
                .filter(move |interval| interval.first <= high.get(writer))
        })
    }

    /// Reads what another node knows. No node can know more of this one than this one has done.
    pub fn read_vector(&self, reader: &mut ByteReader<'_>) -> Result<Vector, Refusal> {
        let vector = Vector::read(reader, self.nodes())?;
        if self.may_know(&vector) { Ok(vector) } else { Err(Refusal::Malformed) }
    }

    /// Returns `true` if another node can know this. None can know more of this node than this node
    /// has done.
    pub fn may_know(&self, vector: &Vector) -> bool {
        vector.get(self.me) <= self.vector.get(self.me)
    }

    /// Reads what another node knows, and the intervals that it tells.
    pub fn read(
        &self,
        reader: &mut ByteReader<'_>,
        arrays: &Arrays,
    ) -> Result<(Vector, Vec<Interval>), Refusal> {
        Ok((self.read_vector(reader)?, self.read_others(reader, arrays)?))
    }

    /// Reads intervals that another node tells. Only this node says what its own ones name
    /// (COH-4.5).
    pub fn read_others(
        &self,
        reader: &mut ByteReader<'_>,
        arrays: &Arrays,
    ) -> Result<Vec<Interval>, Refusal> {
        let mut intervals = self.read_intervals(reader, arrays)?;
        intervals.retain(|interval| interval.writer != self.me);
        Ok(intervals)
    }

    /// Reads intervals that another node tells. None of this node's own can be newer than the last
    /// one that this node has closed.
    pub fn read_intervals(
        &self,
        reader: &mut ByteReader<'_>,
        arrays: &Arrays,
    ) -> Result<Vec<Interval>, Refusal> {
        let intervals = Interval::read_all(reader, self.nodes(), arrays)?;
        let own = self.vector.get(self.me);
        if intervals.iter().any(|interval| interval.writer == self.me && interval.last > own) {
            return Err(Refusal::Malformed);
        }
        Ok(intervals)
    }

    fn nodes(&self) -> u32 {
        self.base.nodes()
    }

    /// Writes what an unlock tells `manager` when this node knew `vector`, and counts it as told.
    pub fn report(&mut self, manager: Rank, vector: &Vector, out: &mut Vec<u8>) {
        let mut reported = self.reported.remove(&manager).unwrap_or_else(|| self.base.clone());
        Interval::write_all(self.between(&reported, vector), out);
        reported.merge(vector);
        self.reported.insert(manager, reported);
    }

    /// Returns the intervals that this node tells at a collective: its own since the last one, and
    /// late ones that it has learnt (COH-6.5).
    pub fn arrival<'a>(&'a self, vector: &'a Vector) -> impl Iterator<Item = &'a Interval> + Clone {
        self.between(&self.base, vector).filter(|i| {
            (i.writer == self.me && i.last > self.arrived)
                || (i.late && !planted(Bug::LoseLateInterval))
        })
    }

    /// Returns `true` if a collective can raise what all nodes know so. None can know more of this
    /// node than this node has done.
    pub fn may_rise(&self, rise: &Rise) -> bool {
        rise.above(self.base.clone()).is_some_and(|base| self.may_know(&base))
    }

    /// Called when a collective is over, whose intervals every node knows (COH-6.18). They are
    /// forgotten, with all earlier ones of their writers.
    pub fn raise_base(&mut self, rise: &Rise) {
        if rise.is_empty() {
            return; // nothing that is kept has become known to all
        }
        let Some(base) = rise.above(self.base.clone()) else { return };
        self.base = base;
        let base = &self.base;
        self.vector.merge(base);
        self.store.retain(|(writer, last), _| *last > base.get(*writer));
        self.reported.values_mut().for_each(|reported| reported.merge(base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrote(writer: Rank, number: u64, pages: impl Iterator<Item = u64>) -> Interval {
        Interval {
            writer,
            first: number,
            last: number,
            late: false,
            unlocked: true,
            runs: Runs::from_pages(pages.map(|page| (0, page))),
            shared: Shared::default(),
            owned: OwnedBytes::default(),
        }
    }

    fn all_runs(knowledge: &Knowledge) -> Vec<&Runs> {
        knowledge.store.values().map(|interval| &interval.runs).collect()
    }

    /// COH-4.5.
    #[test]
    fn intervals_that_differ_are_joined() {
        let mut knowledge = Knowledge::new(0, 3);
        knowledge.insert(wrote(1, 4, [].into_iter()));
        knowledge.insert(wrote(1, 4, [7].into_iter()));
        knowledge.insert(wrote(1, 4, [8].into_iter()));
        assert_eq!(all_runs(&knowledge), [&Runs::from_pages([(0, 7), (0, 8)])]);
    }

    /// COH-4.5: what another node says of this node's intervals is ignored.
    #[test]
    fn only_this_node_says_what_it_wrote() {
        let mut knowledge = Knowledge::new(0, 2);
        knowledge.vector.raise(0, 5);
        let told = [wrote(0, 5, [].into_iter()), wrote(1, 5, [].into_iter())];
        let mut bytes = Vec::new();
        knowledge.vector.write(&mut bytes);
        Interval::write_all(told.iter(), &mut bytes);
        let (_, read) = knowledge.read(&mut ByteReader(&bytes), &Arrays::default()).unwrap();
        assert_eq!(read.iter().map(|interval| interval.writer).collect::<Vec<_>>(), [1]);
    }

    /// COH-4.5: kept runs are bounded, and no page is left out.
    #[test]
    fn kept_runs_are_bounded() {
        const RUNS: u64 = NOTICES_MAX as u64 / 4;
        let mut knowledge = Knowledge::new(0, 3);
        for number in 1..=12 {
            for writer in 1..3 {
                let pages = (0..RUNS).map(|run| 5 * run + number % 3);
                knowledge.insert(wrote(writer, number, pages));
            }
        }
        let kept: usize = knowledge.store.values().map(Interval::size).sum();
        assert!(kept <= 2 * NOTICES_MAX + RUNS as usize, "{kept} runs");
        let wanted = Runs::from_pages((0..5 * RUNS).filter(|page| page % 5 < 3).map(|p| (0, p)));
        assert!(wanted.without(&Runs::union(all_runs(&knowledge))).is_empty());
    }
}
