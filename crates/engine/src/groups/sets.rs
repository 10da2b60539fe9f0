//! Sets of receivers for which a stream was of no use, and when the next one is tried.

use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum number of sets that are remembered.
const SETS_MAX: usize = 32;
/// Time after which receivers are tried again for the first time. It doubles with each try in vain.
const PAUSE_MIN: Duration = Duration::from_secs(10);
/// Maximum time after which receivers are tried again. Networks change, and a try costs a message
/// to each receiver and a few probes.
const PAUSE_MAX: Duration = Duration::from_secs(320);

/// Receivers for which a stream was of no use.
struct UselessSet {
    receivers: Vec<Rank>,
    pause: Duration,
    until: Time,
}

/// Sets of receivers for which a stream was of no use (WIND-13.3).
#[derive(Default)]
pub(super) struct UselessSets {
    sets: VecDeque<UselessSet>,
    /// Earliest end of a pause after the latest call of [`UselessSets::expire`].
    next_end: Option<Time>,
}

impl UselessSets {
    /// Begins a pause for these receivers, which is twice as long as their latest one.
    pub fn insert(&mut self, receivers: Vec<Rank>, now: Time) {
        let known = self.sets.iter().position(|set| set.receivers == receivers);
        let latest = known.and_then(|index| self.sets.remove(index)).map(|set| set.pause);
        let pause = latest.map_or(PAUSE_MIN, |pause| (pause * 2).min(PAUSE_MAX));
        if self.sets.len() >= SETS_MAX {
            self.sets.pop_front();
        }
        let until = now + pause;
        self.next_end = self.next_end.into_iter().chain([until]).min();
        self.sets.push_back(UselessSet { receivers, pause, until });
    }

    /// Returns `true` if no stream is to be opened for these receivers now.
    pub fn are_in_force(&self, receivers: &[Rank], now: Time) -> bool {
        self.in_force(now).any(|set| set == receivers)
    }

    /// Returns the sets whose pause has not ended.
    pub fn in_force(&self, now: Time) -> impl Iterator<Item = &[Rank]> {
        self.sets.iter().filter(move |set| now < set.until).map(|set| &set.receivers[..])
    }

    /// Returns `true` if a pause has ended since the latest call.
    pub fn expire(&mut self, now: Time) -> bool {
        let has_ended = self.next_end.is_some_and(|at| at <= now);
        if has_ended {
            self.next_end = self.sets.iter().map(|set| set.until).filter(|at| *at > now).min();
        }
        has_ended
    }

    /// Forgets this set, because a stream was of use.
    pub fn remove(&mut self, receivers: &[Rank]) {
        self.sets.retain(|set| set.receivers != receivers);
    }

    /// Forgets all sets with this node.
    pub fn forget(&mut self, rank: Rank) {
        self.sets.retain(|set| !set.receivers.contains(&rank));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIND-13.3.
    #[test]
    fn pauses_double_until_a_stream_is_of_use() {
        let (mut sets, mut now) = (UselessSets::default(), Time(5));
        for pause in [10, 20, 40, 80, 160, 320, 320] {
            sets.insert(vec![1, 2], now);
            let end = now + Duration::from_secs(pause);
            let before = Time(end.0 - 1);
            assert!(!sets.expire(before) && sets.are_in_force(&[1, 2], before));
            assert!(!sets.are_in_force(&[1, 2], end) && !sets.are_in_force(&[1, 3], now));
            assert!(sets.expire(end) && !sets.expire(end), "after {pause} s");
            now = end;
        }
        sets.remove(&[1, 2]);
        sets.insert(vec![1, 2], now);
        assert!(!sets.are_in_force(&[1, 2], now + PAUSE_MIN), "the pause is a first one again");
    }

    #[test]
    fn memory_of_sets_is_bounded() {
        let mut sets = UselessSets::default();
        for rank in 0..2 * SETS_MAX as Rank {
            sets.insert(vec![rank, rank + 1], Time(0));
        }
        assert_eq!(sets.sets.len(), SETS_MAX);
        sets.forget(2 * SETS_MAX as Rank);
        assert_eq!(sets.sets.len(), SETS_MAX - 1);
    }
}
