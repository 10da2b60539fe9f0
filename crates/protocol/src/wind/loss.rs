//! When a datagram counts as lost, as a pure function (WIND-5.2, WIND-5.3; RFC 9002, section 6.1).

use crate::limits::REORDERING_THRESHOLD;
use crate::time::Time;
use core::time::Duration;

/// What is to be thought of a datagram that is not acknowledged while a later one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Enough later datagrams have overtaken it.
    LostByReordering,
    /// It was overtaken long enough ago.
    LostByTime,
    /// It may still come; look again then.
    Wait(Time),
}

/// `number` (sent at `sent`) is not acknowledged, `largest_acked` is, and `number < largest_acked`.
pub(crate) fn judge(number: u64, sent: Time, largest_acked: u64, now: Time, overtaken: Duration) -> Verdict {
    if largest_acked.saturating_sub(number) >= REORDERING_THRESHOLD {
        Verdict::LostByReordering
    } else if sent + overtaken <= now {
        Verdict::LostByTime
    } else {
        Verdict::Wait(sent + overtaken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_later_ones_or_time() {
        let ms = Duration::from_millis(1);
        assert_eq!(judge(10, Time(0), 13, Time(1), ms), Verdict::LostByReordering);
        assert_eq!(judge(10, Time(0), 12, Time(1), ms), Verdict::Wait(Time(1_000_000)));
        assert_eq!(judge(10, Time(0), 12, Time(1_000_000), ms), Verdict::LostByTime);
    }
}
