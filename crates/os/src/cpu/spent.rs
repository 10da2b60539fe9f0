//! Processor time of this process, for measurements.

use super::topology::Topology;
use rustix::time::{ClockId, clock_gettime};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Counts the processor time of this process: all threads, in user and system mode.
///
/// If the process has exactly one core, the time of that core's `ksoftirqd` counts too. On that
/// thread the kernel does work for the process that it has deferred (mostly receiving), which
/// otherwise would be charged to no process.
#[derive(Debug)]
pub struct Meter {
    softirq: Option<PathBuf>,
}

impl Meter {
    /// Creates a meter, and finds the one core of this process if it has exactly one.
    #[must_use]
    pub fn new() -> Self {
        let machine = Topology::detect().ok();
        let own = machine
            .and_then(|machine| if let [core] = machine.cpus[..] { Some(core) } else { None });
        Self { softirq: own.and_then(|core| find_softirq_thread(Path::new("/proc"), core)) }
    }

    /// Returns the time spent so far. Only differences are meaningful.
    #[must_use]
    pub fn spent(&self) -> Duration {
        let process = clock_gettime(ClockId::ProcessCPUTime);
        let own = Duration::new(
            u64::try_from(process.tv_sec).unwrap_or(0),
            u32::try_from(process.tv_nsec).unwrap_or(0),
        );
        let softirq =
            self.softirq.as_deref().and_then(|thread| std::fs::read_to_string(thread).ok());
        own + softirq.as_deref().and_then(run_time).unwrap_or_default()
    }
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

/// Finds the `schedstat` of the thread `ksoftirqd/CORE`. A container does not show that thread.
fn find_softirq_thread(proc: &Path, core: usize) -> Option<PathBuf> {
    let name = format!("ksoftirqd/{core}");
    let threads = std::fs::read_dir(proc).ok()?.filter_map(Result::ok).map(|entry| entry.path());
    let named = |thread: &PathBuf| {
        std::fs::read_to_string(thread.join("comm")).is_ok_and(|comm| comm.trim() == name)
    };
    threads.into_iter().find(named).map(|thread| thread.join("schedstat"))
}

/// Parses the first number of a `schedstat`: nanoseconds on a processor (Linux,
/// Documentation/scheduler/sched-stats.rst).
fn run_time(schedstat: &str) -> Option<Duration> {
    schedstat.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_takes_time() {
        let meter = Meter::new();
        let before = meter.spent();
        while meter.spent() == before {
            std::hint::spin_loop();
        }
        assert!(meter.spent() > before);
    }

    #[test]
    fn schedstat_is_understood() {
        assert_eq!(
            run_time("2466687035 60854184296 55709\n"),
            Some(Duration::from_nanos(2_466_687_035))
        );
        assert_eq!(run_time(""), None);
    }
}
