//! Polls of words in shared memory, which other nodes of this machine write.

use super::wait_policy::WaitMode;
use oikaze_os::cpu::yield_core;

/// Number of polls where the thread spins. They take some microseconds.
const SPINS: u32 = 256;
/// Number of polls where nodes share cores: each hands the core over, to the node that is waited
/// for or to one that it waits for. Each node of a core then had it several times.
const YIELDS: u32 = 16;

/// Polls of a thread that waits for other nodes of this machine, before it runs turns or sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WordPolls {
    left: u32,
    yields: bool,
}

impl WordPolls {
    /// No poll but the first.
    pub const NONE: WordPolls = WordPolls { left: 0, yields: false };

    /// Returns the polls that pay in this mode. `has_room` says whether the machine has cores to
    /// spin on.
    pub(super) fn of(mode: WaitMode, has_room: bool) -> WordPolls {
        match (mode, has_room) {
            (WaitMode::Spin, _) | (WaitMode::Adaptive, true) => {
                WordPolls { left: SPINS, yields: false }
            }
            (WaitMode::Adaptive, false) => WordPolls { left: YIELDS, yields: true },
            (WaitMode::Poll(_) | WaitMode::Block, _) => WordPolls::NONE,
        }
    }

    /// Waits until the next poll. Returns `false` at once if there is to be none.
    #[inline]
    pub fn next(&mut self) -> bool {
        let Some(left) = self.left.checked_sub(1) else { return false };
        self.left = left;
        if !self.yields {
            std::hint::spin_loop();
        } else if !yield_core() {
            // Another thread computes on this core. What is waited for may have come meanwhile.
            self.left = 0;
        }
        true
    }
}
