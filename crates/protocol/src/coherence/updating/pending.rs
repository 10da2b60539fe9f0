//! Updates that have come in intervals that this node does not know (COH-15.6 to 15.9).

use crate::Rank;
use crate::coherence::clock::notices::Runs;
use crate::coherence::clock::vector::Vector;
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::page::{bytes_of_pages, pages_of};
use crate::coherence::updating::page_sets::PageSets;
use crate::planted::{Bug, planted};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of intervals of one writer that are kept apart. Beyond it the oldest ones are
/// joined (COH-15.9).
const PENDING_MAX: usize = 256;

/// Update that comes: its writer, its epoch, and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpdateOrigin {
    pub from: Rank,
    pub epoch: u64,
    pub interval: u64,
}

/// Updates of one interval, or of several that were joined.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Pending {
    /// First interval. The last one is in the key.
    first: u64,
    /// Number of updates that have come, applied or dropped.
    count: u64,
    /// `true` if intervals were joined. All pages of their updates are in doubt.
    is_joined: bool,
    bytes: BTreeMap<ArrayId, NumberSet>,
    /// Pages that lack bytes of these updates, or that a fetch may have made older.
    doubt: PageSets,
    /// Pages of which updates of another writer have brought the same bytes.
    crossed: PageSets,
}

impl Pending {
    fn new(first: u64) -> Pending {
        Pending {
            first,
            count: 0,
            is_joined: false,
            bytes: BTreeMap::new(),
            doubt: PageSets::default(),
            crossed: PageSets::default(),
        }
    }

    /// Records that an update is for these bytes.
    fn add(&mut self, array: ArrayId, bytes: Range<u64>) {
        if self.is_joined {
            self.doubt.insert(array, pages_of(&bytes));
        }
        self.bytes.entry(array).or_default().insert(bytes);
    }

    /// Adds the updates of a later interval. Many are added to the same first one, in turn.
    fn join(&mut self, later: Pending) {
        self.count = self.count.saturating_add(later.count);
        if !core::mem::replace(&mut self.is_joined, true) {
            for (array, set) in &self.bytes {
                set.iter().for_each(|range| self.doubt.insert(*array, pages_of(&range)));
            }
        }
        for (array, set) in later.bytes {
            set.iter().for_each(|range| self.add(array, range));
        }
        later.doubt.runs().iter().for_each(|(array, pages)| {
            self.doubt.insert(*array, pages.clone());
        });
    }

    /// Returns the pages of which these updates are for some of these bytes.
    fn pages_within(&self, array: ArrayId, bytes: &Range<u64>) -> Vec<Range<u64>> {
        let set = self.bytes.get(&array).into_iter();
        set.flat_map(|set| set.overlaps(bytes.clone())).map(|part| pages_of(&part)).collect()
    }
}

/// Updates that have come in intervals that this node does not know.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct PendingUpdates {
    /// Updates of each writer by epoch and last interval.
    writers: BTreeMap<Rank, BTreeMap<(u64, u64), Pending>>,
    /// Bytes of all these updates, and perhaps of some whose interval is known by now. Most new
    /// updates are for none of these bytes.
    all: BTreeMap<ArrayId, NumberSet>,
}

impl PendingUpdates {
    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        for one in self.writers.values_mut().flat_map(BTreeMap::values_mut) {
            one.bytes.remove(&array);
            one.doubt.forget(array);
            one.crossed.forget(array);
        }
        self.all.remove(&array);
    }

    fn entry(&mut self, of: UpdateOrigin) -> &mut Pending {
        let intervals = self.writers.entry(of.from).or_default();
        let mut key = key_of(of, intervals);
        if intervals.len() >= PENDING_MAX && !intervals.contains_key(&key) {
            join_oldest(intervals);
            key = key_of(of, intervals);
        }
        intervals.entry(key).or_insert_with(|| Pending::new(of.interval))
    }

    /// Counts an update that was applied or dropped.
    pub fn count(&mut self, of: UpdateOrigin) {
        let one = self.entry(of);
        one.count = one.count.saturating_add(1);
    }

    /// Records that an update is for these bytes. Pages on which another writer's update is for the
    /// same bytes are crossed for both.
    pub fn add(&mut self, of: UpdateOrigin, array: ArrayId, bytes: Range<u64>) {
        self.entry(of).add(array, bytes.clone());
        let all = self.all.entry(array).or_default();
        let is_new = all.overlaps(bytes.clone()).next().is_none();
        all.insert(bytes.clone());
        if is_new || planted(Bug::IgnoreCrossedUpdates) {
            return;
        }
        let others = self.writers.iter_mut().filter(|(writer, _)| **writer != of.from);
        let mut crossed: Vec<Range<u64>> = Vec::new();
        for other in others.flat_map(|(_, intervals)| intervals.values_mut()) {
            let parts = other.pages_within(array, &bytes);
            parts.iter().for_each(|pages| other.crossed.insert(array, pages.clone()));
            crossed.extend(parts);
        }
        let mine = &mut self.entry(of).crossed;
        crossed.into_iter().for_each(|pages| mine.insert(array, pages));
    }

    /// Puts pages in doubt, because they lack bytes of an update.
    pub fn doubt(&mut self, of: UpdateOrigin, array: ArrayId, pages: Range<u64>) {
        self.entry(of).doubt.insert(array, pages);
    }

    /// Puts pages in doubt that are fetched. The answer may hold bytes from before an update that
    /// has come (COH-10.6).
    pub fn doubt_fetched(&mut self, array: ArrayId, pages: &Range<u64>) {
        let bytes = bytes_of_pages(pages);
        for one in self.writers.values_mut().flat_map(BTreeMap::values_mut) {
            let parts = one.pages_within(array, &bytes);
            parts.into_iter().for_each(|pages| one.doubt.insert(array, pages));
        }
    }

    /// Returns how many updates of a writer have come in this epoch and in intervals after this
    /// one; `None` if intervals on both sides of it were joined.
    pub fn after(&self, from: Rank, epoch: u64, interval: u64) -> Option<u64> {
        let Some(intervals) = self.writers.get(&from) else { return Some(0) };
        if planted(Bug::CountLaterIntervals) {
            return Some(0);
        }
        let later = intervals.range((epoch, interval.saturating_add(1))..=(epoch, u64::MAX));
        let mut count = 0_u64;
        for (_, one) in later {
            if one.first <= interval {
                return None;
            }
            count = count.saturating_add(one.count);
        }
        Some(count)
    }

    /// Returns the pages that are in doubt for intervals of this vector clock, or are crossed there
    /// (COH-15.8).
    pub fn doubtful(&self, vector: &Vector) -> Runs {
        let mut doubtful: Vec<Runs> = Vec::new();
        for (writer, intervals) in &self.writers {
            let told = intervals.values().filter(|one| one.first <= vector.get(*writer));
            doubtful.extend(told.flat_map(|one| [one.doubt.runs(), one.crossed.runs()]));
        }
        Runs::union(&doubtful)
    }

    /// Returns the pages of updates that have come in intervals other than these.
    pub fn pages_beside(&self, are_meant: impl Fn(Rank, u64) -> bool) -> PageSets {
        let mut sets = PageSets::default();
        for (writer, intervals) in &self.writers {
            let others = intervals
                .iter()
                .filter(|((_, last), one)| one.is_joined || !are_meant(*writer, *last));
            for (_, one) in others {
                for (array, bytes) in &one.bytes {
                    bytes.iter().for_each(|range| sets.insert(*array, pages_of(&range)));
                }
                for (array, pages) in one.doubt.runs().iter() {
                    sets.insert(*array, pages.clone());
                }
            }
        }
        sets
    }

    /// Ends epochs up to this one. Returns the pages that lack bytes of their updates.
    pub fn end_epoch(&mut self, epoch: u64) -> Vec<Runs> {
        let mut lacking = Vec::new();
        for intervals in self.writers.values_mut() {
            let later = intervals.split_off(&(epoch.saturating_add(1), 0));
            let ended = core::mem::replace(intervals, later);
            let doubts = ended.values().filter(|one| !one.doubt.is_empty());
            lacking.extend(doubts.map(|one| one.doubt.runs()));
        }
        self.drop_empty();
        lacking
    }

    /// Forgets the updates of intervals that this node knows from now on.
    pub fn forget_known(&mut self, vector: &Vector) {
        if self.writers.is_empty() {
            return;
        }
        for (writer, intervals) in &mut self.writers {
            let known = vector.get(*writer);
            if intervals.first_key_value().is_some_and(|((_, last), _)| *last <= known) {
                intervals.retain(|(_, last), _| *last > known);
            }
        }
        self.drop_empty();
    }

    fn drop_empty(&mut self) {
        self.writers.retain(|_, intervals| !intervals.is_empty());
        if self.writers.is_empty() {
            self.all.clear();
        }
    }
}

/// Returns the key of an interval. One that was joined is found by the last one of those that it
/// was joined with.
fn key_of(of: UpdateOrigin, intervals: &BTreeMap<(u64, u64), Pending>) -> (u64, u64) {
    let key = (of.epoch, of.interval);
    let next = intervals.range(key..).next();
    let joined = next.filter(|((epoch, _), one)| *epoch == of.epoch && one.first <= of.interval);
    joined.map_or(key, |(key, _)| *key)
}

/// Joins the two oldest intervals of a writer that are of one epoch.
fn join_oldest(intervals: &mut BTreeMap<(u64, u64), Pending>) {
    let keys = intervals.keys().zip(intervals.keys().skip(1));
    let of_one_epoch = keys.map(|(one, next)| (*one, *next)).find(|(one, next)| one.0 == next.0);
    let Some((one, next)) = of_one_epoch else { return };
    if let (Some(mut oldest), Some(mut later)) = (intervals.remove(&one), intervals.remove(&next)) {
        // The smaller one is added to one that has been joined, and never the other way round.
        if later.is_joined && !oldest.is_joined {
            later.first = oldest.first;
            core::mem::swap(&mut oldest, &mut later);
        }
        oldest.join(later);
        intervals.insert(next, oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const EPOCH: u64 = 7;

    fn origin(from: Rank, interval: u64) -> UpdateOrigin {
        UpdateOrigin { from, epoch: EPOCH, interval }
    }

    fn known(numbers: [u64; 2]) -> Vector {
        let mut vector = Vector::new(2);
        (0..).zip(numbers).for_each(|(rank, number)| vector.raise(rank, number));
        vector
    }

    /// COH-15.7, COH-15.9: counts are those of a list of all updates, unless their intervals were
    /// joined.
    #[test]
    fn counts_are_those_of_a_list_of_all_updates() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut pending, mut list) = (PendingUpdates::default(), Vec::new());
            let (mut last, mut told, mut was_full) = ([1_u64; 2], [0; 2], false);
            // Some runs have more unknown intervals than are kept apart.
            let (count, learns) = (200 + random.below(1500), [0.001, 0.05][random.below(2)]);
            for _ in 0..count {
                let writer = random.below(2);
                last[writer] += u64::from(random.chance(0.6));
                // An update may be a few intervals late.
                let late = random.below(3) as u64;
                let interval = last[writer].saturating_sub(late).max(told[writer] + 1);
                pending.count(origin(writer as Rank, interval));
                list.push((writer, interval));
                if random.chance(learns) {
                    let known_now = last[writer].saturating_sub(random.below(3) as u64);
                    told[writer] = told[writer].max(known_now);
                    pending.forget_known(&known(told));
                }
                last[writer] = last[writer].max(told[writer] + 1);
                let from = told[writer] + random.below(2 * PENDING_MAX) as u64;
                let later = list.iter().filter(|(of, number)| *of == writer && *number > from);
                let kept = pending.writers.get(&(writer as Rank)).map_or(0, BTreeMap::len);
                was_full |= kept == PENDING_MAX;
                match pending.after(writer as Rank, EPOCH, from) {
                    Some(counted) => assert_eq!(counted, later.count() as u64, "seed {seed}"),
                    None => assert!(was_full, "seed {seed}: there was nothing to join"),
                }
            }
            let lengths = pending.writers.values().map(BTreeMap::len);
            assert!(lengths.max().unwrap_or(0) <= PENDING_MAX, "seed {seed}");
        }
    }

    /// COH-15.9: a writer may be an epoch ahead of a reader, which has kept one interval of its own
    /// epoch.
    #[test]
    fn intervals_of_each_epoch_are_joined() {
        let mut pending = PendingUpdates::default();
        pending.count(origin(0, 1));
        for interval in 2..2000 {
            pending.count(UpdateOrigin { epoch: EPOCH + 1, ..origin(0, interval) });
        }
        assert_eq!(pending.writers.values().map(BTreeMap::len).max(), Some(PENDING_MAX));
        assert_eq!(pending.after(0, EPOCH, 0), Some(1));
        assert_eq!(pending.after(0, EPOCH + 1, 1998), Some(1));
    }

    /// COH-15.9: pages of updates before and after the joining are in doubt, and no others.
    #[test]
    fn pages_of_joined_intervals_are_in_doubt() {
        let (mut pending, extra) = (PendingUpdates::default(), 10);
        let last = PENDING_MAX as u64 + extra;
        for interval in 1..=last {
            pending.add(origin(0, interval), 1, bytes_of_pages(&(interval..interval + 1)));
        }
        let doubtful = |pending: &PendingUpdates| pending.doubtful(&known([1, 0]));
        let joined = 1..=extra + 1;
        assert_eq!(doubtful(&pending), Runs::from_pages(joined.clone().map(|page| (1, page))));
        pending.add(origin(0, 2), 1, bytes_of_pages(&(last..last + 1)));
        let joined = joined.chain([last]);
        assert_eq!(doubtful(&pending), Runs::from_pages(joined.map(|page| (1, page))));
    }

    /// COH-15.8: updates of the same bytes by two writers cross, those of others do not.
    #[test]
    fn pages_are_crossed_by_two_unknown_writers_of_the_same_bytes() {
        let mut pending = PendingUpdates::default();
        pending.add(origin(0, 3), 1, 0..100);
        pending.add(origin(1, 5), 1, 100..200);
        pending.add(origin(1, 5), 2, 0..100);
        pending.add(origin(0, 4), 1, 50..60);
        assert!(pending.doubtful(&known([9, 9])).is_empty());
        pending.add(origin(1, 6), 1, 9..10);
        let crossed = Runs::from_pages([(1, 0)]);
        assert_eq!(pending.doubtful(&known([3, 0])), crossed);
        assert_eq!(pending.doubtful(&known([0, 6])), crossed);
        assert!(pending.doubtful(&known([2, 5])).is_empty());
        pending.forget_known(&known([4, 6]));
        assert!(pending.writers.is_empty() && pending.all.is_empty());
    }

    /// COH-10.6: a fetch puts the pages in doubt that updates of unknown intervals were for.
    #[test]
    fn fetched_pages_are_in_doubt_until_the_interval_is_known() {
        let mut pending = PendingUpdates::default();
        pending.add(origin(0, 3), 1, 4096..3 * 4096);
        pending.doubt_fetched(1, &(2..9));
        assert_eq!(pending.doubtful(&known([3, 0])), Runs::from_pages([(1, 2)]));
        assert!(pending.doubtful(&known([2, 9])).is_empty());
        pending.forget_known(&known([3, 0]));
        assert!(pending.end_epoch(EPOCH).is_empty());
        pending.add(origin(0, 4), 1, 0..8);
        pending.doubt(origin(0, 4), 1, 0..1);
        pending.doubt(UpdateOrigin { epoch: EPOCH + 1, ..origin(0, 5) }, 1, 8..9);
        assert_eq!(pending.end_epoch(EPOCH), [Runs::from_pages([(1, 0)])]);
        assert_eq!(pending.end_epoch(EPOCH + 1), [Runs::from_pages([(1, 8)])]);
    }
}
