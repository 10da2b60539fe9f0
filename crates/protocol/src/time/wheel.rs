//! Many deadlines, of which few change at a time: a hierarchical timing wheel (Varghese and Lauck, SOSP 1987).
//!
//! Nine levels of 64 slots; a slot of the lowest is a tick of 1024 ns, a slot of each other as long as the whole level below. A deadline
//! lies at the level of the highest digit (of base 64) in which its tick differs from the present one, so everything on a lower
//! level is earlier than anything on a higher one, and nine levels hold every moment there is. Slots are lists through the
//! keys' own records: nothing is allocated once all keys have been seen.

use super::Time;
use alloc::vec::Vec;

const LEVELS: usize = 9;
const DIGIT: u32 = 6;
const SLOTS: usize = 1 << DIGIT;
/// A tick has 2 to this many nanoseconds.
const TICK: u32 = 10;
/// The end of a list.
const NONE: u32 = u32::MAX;

const _: () = assert!(LEVELS as u32 * DIGIT + TICK == u64::BITS, "every moment has its place");

/// One key: where its deadline lies, and its neighbours there.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Time,
    next: u32,
    previous: u32,
    level: u8,
    slot: u8,
    set: bool,
}

impl Entry {
    const UNSET: Entry = Entry { at: Time(0), next: NONE, previous: NONE, level: 0, slot: 0, set: false };
}

#[derive(Clone, Copy, Debug)]
struct Level {
    /// A bit for each slot that is not empty.
    occupied: u64,
    first: [u32; SLOTS],
}

/// Deadlines by key; each key has one at most. Keys are small numbers (ranks): memory grows with the largest.
///
/// [`set`](Self::set), [`cancel`](Self::cancel) and [`next`](Self::next) take constant time; [`pop`](Self::pop) moves each deadline
/// down at most eight levels in its life.
#[derive(Clone, Debug)]
pub struct Wheel {
    /// The present tick: nothing that is set lies before it, but for deadlines that were set late.
    tick: u64,
    levels: [Level; LEVELS],
    entries: Vec<Entry>,
    set: usize,
}

impl Wheel {
    /// Empty, at `now`.
    #[must_use]
    pub fn new(now: Time) -> Wheel {
        let empty = Level { occupied: 0, first: [NONE; SLOTS] };
        Wheel { tick: now.0 >> TICK, levels: [empty; LEVELS], entries: Vec::new(), set: 0 }
    }

    /// Keys with a deadline.
    #[must_use]
    pub fn len(&self) -> usize {
        self.set
    }

    /// No key has a deadline.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// This key's deadline.
    #[must_use]
    pub fn deadline(&self, key: u32) -> Option<Time> {
        self.entries.get(key as usize).filter(|entry| entry.set).map(|entry| entry.at)
    }

    /// Give `key` the deadline `at` (`None`: no more), instead of the one it had. One that has passed already is due at once.
    pub fn set(&mut self, key: u32, at: Option<Time>) {
        if self.deadline(key) == at {
            return;
        }
        self.cancel(key);
        let Some(at) = at else { return };
        if self.entries.len() <= key as usize {
            self.entries.resize(key as usize + 1, Entry::UNSET);
        }
        self.set += 1;
        self.link(key, at);
    }

    /// This key has no deadline any more.
    pub fn cancel(&mut self, key: u32) {
        let Some(entry) = self.entries.get_mut(key as usize).filter(|entry| entry.set) else { return };
        let Entry { next, previous, level, slot, .. } = *entry;
        *entry = Entry::UNSET;
        self.set -= 1;
        if let Some(after) = self.entries.get_mut(next as usize) {
            after.previous = previous;
        }
        if let Some(before) = self.entries.get_mut(previous as usize) {
            before.next = next;
        } else {
            self.begin(usize::from(level), usize::from(slot), next);
        }
    }

    /// A moment at which [`pop`](Self::pop) should be asked again: never later than the earliest deadline, and later than
    /// what `pop` was asked for when it last had nothing. Often earlier than that deadline: then `pop` sorts it more finely and yields nothing.
    #[must_use]
    pub fn next(&self) -> Option<Time> {
        let (level, slot) = self.first_occupied()?;
        if level > 0 {
            return Some(Time(self.start_of(level, slot) << TICK));
        }
        self.list(level, slot).map(|(_, at)| at).min()
    }

    /// Take out a key whose deadline has come by `now`. Which of several comes first is not said. Time does not go back.
    ///
    /// A caller that gives a key a deadline not after `now` gets it again from the next `pop`.
    pub fn pop(&mut self, now: Time) -> Option<u32> {
        let present = now.0 >> TICK;
        while let Some((level, slot)) = self.first_occupied() {
            let start = self.start_of(level, slot);
            if start > present {
                break;
            }
            self.tick = self.tick.max(start);
            if level > 0 {
                self.sort_down(level, slot);
                continue;
            }
            let due = self.list(level, slot).find(|(_, at)| *at <= now).map(|(key, _)| key);
            if let Some(key) = due {
                self.cancel(key);
                return Some(key);
            }
            break;
        }
        self.tick = self.tick.max(present);
        None
    }

    /// The earliest slot that is not empty.
    fn first_occupied(&self) -> Option<(usize, usize)> {
        let (level, found) = self.levels.iter().enumerate().find(|(_, level)| level.occupied != 0)?;
        Some((level, found.occupied.trailing_zeros() as usize))
    }

    /// The first tick of a slot: the present one's digits above it, its own, and zeros.
    fn start_of(&self, level: usize, slot: usize) -> u64 {
        let shift = DIGIT * level as u32;
        let above = self.tick.checked_shr(shift + DIGIT).unwrap_or(0);
        (above << DIGIT | slot as u64) << shift
    }

    /// Keys and deadlines of a slot.
    fn list(&self, level: usize, slot: usize) -> impl Iterator<Item = (u32, Time)> + '_ {
        let mut key = self.levels.get(level).and_then(|level| level.first.get(slot)).copied().unwrap_or(NONE);
        core::iter::from_fn(move || {
            let entry = self.entries.get(key as usize)?;
            let found = (key, entry.at);
            key = entry.next;
            Some(found)
        })
    }

    /// The present has come to this slot: its deadlines go to the levels below.
    fn sort_down(&mut self, level: usize, slot: usize) {
        let mut key = self.begin(level, slot, NONE);
        while let Some(&Entry { at, next, .. }) = self.entries.get(key as usize) {
            self.link(key, at);
            key = next;
        }
    }

    fn link(&mut self, key: u32, at: Time) {
        let tick = (at.0 >> TICK).max(self.tick);
        let level = ((tick ^ self.tick).checked_ilog2().unwrap_or(0) / DIGIT) as usize;
        let slot = (tick >> (DIGIT * level as u32)) as usize % SLOTS;
        let next = self.begin(level, slot, key);
        if let Some(after) = self.entries.get_mut(next as usize) {
            after.previous = key;
        }
        if let Some(entry) = self.entries.get_mut(key as usize) {
            *entry = Entry { at, next, previous: NONE, level: level as u8, slot: slot as u8, set: true };
        }
    }

    /// Let a slot's list begin with `key`; with which it began before.
    fn begin(&mut self, level: usize, slot: usize, key: u32) -> u32 {
        let Some(level) = self.levels.get_mut(level) else { return NONE };
        let bit = 1u64 << (slot % SLOTS);
        level.occupied = if key == NONE { level.occupied & !bit } else { level.occupied | bit };
        level.first.get_mut(slot).map_or(NONE, |first| core::mem::replace(first, key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::vec::Vec;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Cancel(u32),
        Advance(u64),
    }

    /// Spans from nothing to hours, as likely short as long.
    fn span() -> impl Strategy<Value = u64> {
        (0u32..45, any::<u64>()).prop_map(|(bits, word)| word & ((1 << bits) - 1))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0u32..40, span()).prop_map(|(key, after)| Step::Set(key, after)),
            1 => (0u32..40).prop_map(Step::Cancel),
            3 => span().prop_map(Step::Advance),
        ]
    }

    fn pop_all(wheel: &mut Wheel, now: Time) -> BTreeSet<u32> {
        core::iter::from_fn(|| wheel.pop(now)).collect()
    }

    proptest! {
        #[test]
        fn as_a_sorted_map_does(start in span(), steps in proptest::collection::vec(step(), 0..200)) {
            let mut now = Time(start);
            let mut wheel = Wheel::new(now);
            let mut oracle: BTreeMap<u32, Time> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Set(key, after) => {
                        // Some lie in the past.
                        let at = Time((now.0 + after).saturating_sub(100_000));
                        wheel.set(key, Some(at));
                        oracle.insert(key, at);
                    }
                    Step::Cancel(key) => {
                        wheel.set(key, None);
                        oracle.remove(&key);
                    }
                    Step::Advance(span) => {
                        now += Duration::from_nanos(span);
                        let due: BTreeSet<u32> = oracle.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
                        oracle.retain(|_, at| *at > now);
                        prop_assert_eq!(pop_all(&mut wheel, now), due);
                        prop_assert!(wheel.next().is_none_or(|next| next > now), "asked again at once");
                    }
                }
                prop_assert_eq!(wheel.len(), oracle.len());
                prop_assert_eq!(wheel.next().is_some(), !oracle.is_empty());
                let earliest = oracle.values().min().copied().unwrap_or(Time(u64::MAX));
                prop_assert!(wheel.next().is_none_or(|next| next <= earliest), "too late");
                for key in 0..40 {
                    prop_assert_eq!(wheel.deadline(key), oracle.get(&key).copied());
                }
            }
        }
    }

    #[test]
    fn who_sleeps_until_next_wakes_few_times_and_in_order() {
        let mut wheel = Wheel::new(Time(12_345));
        let deadlines: Vec<Time> = (0..1000u64).map(|n| Time(20_000 + n * n * 977)).collect();
        for (key, at) in (0..).zip(&deadlines) {
            wheel.set(key, Some(*at));
        }
        let (mut wakes, mut order) = (0, Vec::new());
        while let Some(now) = wheel.next() {
            wakes += 1;
            while let Some(key) = wheel.pop(now) {
                assert!(deadlines[key as usize] == now, "{key} on time");
                order.push(key);
            }
        }
        assert!(order.is_sorted() && order.len() == 1000);
        assert!(wakes < 3000, "{wakes}");
    }

    #[test]
    fn the_end_of_time_has_a_place() {
        let mut wheel = Wheel::new(Time(0));
        wheel.set(3, Some(Time(u64::MAX)));
        wheel.set(1, Some(Time(0)));
        assert_eq!((wheel.pop(Time(5)), wheel.pop(Time(5))), (Some(1), None));
        assert_eq!(wheel.pop(Time(u64::MAX)), Some(3));
        assert!(wheel.is_empty() && wheel.next().is_none());
    }
}
