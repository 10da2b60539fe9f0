//! Lines about refused nodes. A flood of refusals prints few lines.

use std::time::{Duration, Instant};

/// Time in which a limited number of lines is printed.
const INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of lines in an interval.
const LINES_MAX: u32 = 10;

/// Lines that were printed and left out in the current interval.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// End of the interval, which begins with a line.
    end: Option<Instant>,
    printed: u32,
    left_out: u64,
}

impl RefusalLog {
    /// Prints a line, unless the interval has had its lines.
    pub fn log(&mut self, line: &str) {
        let now = Instant::now();
        self.end_of_interval(now).iter().for_each(|line| log(line));
        if self.admit(now) {
            log(line);
        }
    }

    /// Returns `true` if a line may be printed. Otherwise the line counts as left out.
    fn admit(&mut self, now: Instant) -> bool {
        self.end.get_or_insert(now + INTERVAL);
        let is_admitted = self.printed < LINES_MAX;
        if is_admitted {
            self.printed += 1;
        } else {
            self.left_out += 1;
        }
        is_admitted
    }

    /// Returns the time at which the interval ends, if one has begun.
    pub fn interval_end(&self) -> Option<Instant> {
        self.end
    }

    /// Ends the interval if its time is over. Returns a line about those that were left out.
    pub fn end_of_interval(&mut self, now: Instant) -> Option<String> {
        if self.end.is_none_or(|end| now < end) {
            return None;
        }
        let left_out = std::mem::take(self).left_out;
        (left_out > 0).then(|| {
            format!("{left_out} more refusals in {} s were not printed", INTERVAL.as_secs())
        })
    }
}

/// Prints a line under the name of the command. Never waits for whoever reads the output.
pub(super) fn log(text: &str) {
    oikaze_os::signals::print_line(&format!("oikaze serve: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SERVE-2.5.
    #[test]
    fn flood_of_refusals_prints_few_lines_and_their_number() {
        let (mut log, begin) = (RefusalLog::default(), Instant::now());
        assert_eq!((log.interval_end(), log.end_of_interval(begin)), (None, None));
        let admitted = (0..1000).filter(|_| log.admit(begin)).count();
        assert_eq!(admitted, LINES_MAX as usize);
        let end = begin + INTERVAL;
        assert_eq!(log.interval_end(), Some(end));
        assert_eq!(log.end_of_interval(end - Duration::from_nanos(1)), None);
        let line = log.end_of_interval(end).unwrap();
        assert_eq!(line, "990 more refusals in 10 s were not printed");
        assert!(log.admit(end), "a new interval");
        assert_eq!(log.end_of_interval(end + INTERVAL), None, "none was left out");
        assert_eq!(log.interval_end(), None, "nothing is to be said any more");
    }
}
