//! Processor time of this process, and of another program that works for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oikaze_os::cpu::Meter;

use crate::error::{Error, Tried};

/// Meter of this process and of the programs that are charged to it.
pub struct Charged {
    own: Meter,
    /// Folders of the other processes in `/proc`.
    others: Vec<PathBuf>,
}

impl Charged {
    /// Charges the programs of this name, as the kernel shows it, in this network namespace.
    ///
    /// # Errors
    /// `/proc` cannot be read, or there is no such program.
    pub fn new(name: Option<&str>) -> Result<Self, Error> {
        let own = Meter::new();
        let Some(name) = name else { return Ok(Self { own, others: Vec::new() }) };
        let namespace = |process: &Path| fs::read_link(process.join("ns/net")).ok();
        let here = namespace(Path::new("/proc/self"));
        let is_charged = |process: &PathBuf| {
            let comm = fs::read_to_string(process.join("comm"));
            comm.is_ok_and(|comm| comm.trim() == name) && namespace(process) == here
        };
        let all = fs::read_dir("/proc").tried("reading /proc")?;
        let others: Vec<PathBuf> =
            all.filter_map(Result::ok).map(|entry| entry.path()).filter(is_charged).collect();
        if others.is_empty() {
            return Err(Error::new(format!("finding the program {name} in /proc: there is none")));
        }
        Ok(Self { own, others })
    }

    /// Returns the time spent so far. Only differences are meaningful.
    pub fn spent(&self) -> Duration {
        self.own.spent() + self.others.iter().map(|process| spent_by(process)).sum::<Duration>()
    }
}

/// Returns the processor time of all threads of a process (Linux,
/// Documentation/scheduler/sched-stats.rst: the first number of `schedstat`, in nanoseconds).
fn spent_by(process: &Path) -> Duration {
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().filter_map(Result::ok);
    let of_thread = |thread: fs::DirEntry| -> Option<u64> {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse().ok()
    };
    Duration::from_nanos(threads.filter_map(of_thread).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that computes is charged. A program that does not run is an error.
    #[test]
    fn time_of_another_program_is_charged() {
        let mut shell = std::process::Command::new("sh");
        let mut child = shell.args(["-c", "while :; do :; done"]).spawn().expect("a shell");
        let folder = PathBuf::from(format!("/proc/{}", child.id()));
        while spent_by(&folder) < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let meter = Charged { own: Meter::new(), others: vec![folder] };
        let alone = Meter::new().spent();
        assert!(meter.spent() >= alone + Duration::from_millis(20));
        child.kill().expect("a running child");
        child.wait().expect("its end");
        assert!(Charged::new(Some("no such program")).is_err());
    }
}
