//! Polls of words in shared memory, which other nodes of this machine write.

use crate::node::driver::limits::YIELD_TIME;
use crate::node::driver::wait_policy::WaitMode;
use oikaze_os::cpu::yield_core;
use std::time::Instant;

/// Number of polls where the thread spins. They take some microseconds.
const SPINS: u32 = 256;
/// Number of polls where nodes share cores: each hands the core over, to the node that is waited
/// for or to one that it waits for. Where few nodes share a core, each has it several times.
const YIELDS: u32 = 16;

/// Polls of a thread that waits for other nodes of this machine, before it runs turns or sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordPolls {
    count: u32,
    left: u32,
    yields: bool,
    /// Time of the first yield.
    begun: Option<Instant>,
}

impl WordPolls {
    /// No poll but the first.
    pub const NONE: WordPolls = WordPolls::new(0, false);

    const fn new(count: u32, yields: bool) -> WordPolls {
        WordPolls { count, left: count, yields, begun: None }
    }

    /// Returns the polls that pay in this mode. `has_room` says whether the machine has cores to
    /// spin on.
    pub(super) fn of(mode: WaitMode, has_room: bool) -> WordPolls {
        match (mode, has_room) {
            (WaitMode::Spin, _) | (WaitMode::Adaptive, true) => WordPolls::new(SPINS, false),
            (WaitMode::Adaptive, false) => WordPolls::new(YIELDS, true),
            (WaitMode::Poll(_) | WaitMode::Block, _) => WordPolls::NONE,
        }
    }

    /// Waits until the next poll. Returns `false` at once if there is to be none.
    #[inline]
    pub fn wait(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        if !self.yields {
            std::hint::spin_loop();
            return true;
        }
        let begun = *self.begun.get_or_insert_with(Instant::now);
        if !yield_core() || begun.elapsed() >= YIELD_TIME {
            // Another thread computes on this core. What is waited for may have come meanwhile.
            self.left = 0;
        }
        true
    }

    /// Restores the number of polls. Polls that yield still end `YIELD_TIME` after the first one.
    #[inline]
    pub fn renew(&mut self) {
        if self.begun.is_none_or(|begun| begun.elapsed() < YIELD_TIME) {
            self.left = self.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn polls_are_as_many_as_the_mode_and_the_cores_permit() {
        let interval = WaitMode::Poll(Duration::from_micros(10));
        for (mode, has_room, polls) in [
            (WaitMode::Spin, true, SPINS),
            (WaitMode::Spin, false, SPINS),
            (WaitMode::Adaptive, true, SPINS),
            (WaitMode::Block, true, 0),
            (WaitMode::Block, false, 0),
            (interval, true, 0),
        ] {
            let mut word_polls = WordPolls::of(mode, has_room);
            let made = (0..=SPINS).take_while(|_| word_polls.wait()).count();
            assert_eq!(made, polls as usize, "{mode:?}, {has_room}");
        }
    }

    /// A slow yield ends them early.
    #[test]
    fn threads_that_share_cores_yield_some_times_at_most() {
        let mut polls = WordPolls::of(WaitMode::Adaptive, false);
        let made = (0..=YIELDS).take_while(|_| polls.wait()).count();
        assert!((1..=YIELDS as usize).contains(&made), "{made}");
        assert!(!polls.wait());
    }
}
