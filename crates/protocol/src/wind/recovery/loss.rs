//! Loss detection for one datagram, as a pure function (WIND-5.2; RACK: RFC 8985, section 6.2).

use crate::time::Time;
use core::time::Duration;

/// Verdict on a datagram that is not acknowledged while a later one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    /// Lost, because enough later datagrams have overtaken it.
    LostByReordering,
    /// Lost, because it was overtaken long enough ago.
    LostByTime,
    /// It may still arrive; judge it again at this time.
    Wait(Time),
}

/// The acknowledged datagram that was sent last, which has overtaken others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Overtaker {
    pub number: u64,
    /// Time between sending and acknowledgement.
    pub round_trip: Duration,
}

/// Judges datagram `number`, which was sent at `sent` before `overtaker` and is not acknowledged. A
/// longer `window` tolerates more reordering. If reordering is not expected, `threshold` later
/// datagrams prove the loss at once.
pub(crate) fn judge(
    (number, sent): (u64, Time),
    overtaker: Overtaker,
    window: Duration,
    threshold: Option<u64>,
    now: Time,
) -> Verdict {
    let until = sent + overtaker.round_trip + window;
    if threshold.is_some_and(|threshold| overtaker.number.saturating_sub(number) >= threshold) {
        Verdict::LostByReordering
    } else if until <= now {
        Verdict::LostByTime
    } else {
        Verdict::Wait(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIND-5.2, 5.3.
    #[test]
    fn three_later_ones_or_time() {
        let overtaker = Overtaker { number: 13, round_trip: Duration::from_nanos(100) };
        let window = Duration::from_nanos(25);
        assert_eq!(
            judge((10, Time(0)), overtaker, window, Some(3), Time(1)),
            Verdict::LostByReordering
        );
        assert_eq!(
            judge((11, Time(0)), overtaker, window, Some(3), Time(1)),
            Verdict::Wait(Time(125))
        );
        assert_eq!(
            judge((10, Time(0)), overtaker, window, None, Time(124)),
            Verdict::Wait(Time(125))
        );
        assert_eq!(judge((10, Time(0)), overtaker, window, None, Time(125)), Verdict::LostByTime);
    }
}
