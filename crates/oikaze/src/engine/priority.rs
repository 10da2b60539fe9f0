//! How much bulk a turn sends (WIND-3.10): little while small messages come and go, for what the kernel has cannot be overtaken, and
//! nothing is heard meanwhile.

use oikaze_protocol::limits::{BULK_A_TURN, BULK_AMONG_SMALL, SMALL_LATELY};
use oikaze_protocol::time::Time;

/// What is known of small messages.
#[derive(Default)]
pub(super) struct Priority {
    /// When one was delivered last.
    latest: Time,
    /// One was since bulk was asked for.
    came: bool,
    /// The last turn left bulk to the next one.
    waited: bool,
}

impl Priority {
    /// A small message was delivered.
    pub fn small_came(&mut self, now: Time) {
        (self.latest, self.came) = (now, true);
    }

    /// Bytes of bulk that this turn may send. None after it has brought something small, for which somebody may wait; but not twice in
    /// a row.
    pub fn bulk_share(&mut self, now: Time) -> usize {
        self.waited = std::mem::take(&mut self.came) && !self.waited;
        if self.waited {
            0
        } else if self.latest != Time(0) && now - self.latest < SMALL_LATELY {
            BULK_AMONG_SMALL
        } else {
            BULK_A_TURN
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_gives_way_to_small_messages_and_is_not_stopped_by_them() {
        let mut priority = Priority::default();
        let mut now = Time(5);
        assert_eq!(priority.bulk_share(now), BULK_A_TURN);
        for _ in 0..3 {
            priority.small_came(now);
            assert_eq!(priority.bulk_share(now), 0);
            priority.small_came(now);
            assert_eq!(priority.bulk_share(now), BULK_AMONG_SMALL);
        }
        now += SMALL_LATELY - core::time::Duration::from_nanos(1);
        assert_eq!(priority.bulk_share(now), BULK_AMONG_SMALL);
        now += SMALL_LATELY;
        assert_eq!(priority.bulk_share(now), BULK_A_TURN);
    }
}
