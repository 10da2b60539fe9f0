//! Wake-ups of a thread that waits for several messages (paper 000: one wake-up for k inputs).

use std::time::{Duration, Instant};

use clap::Args;
use oikaze::Job;

use super::pair::{PATIENCE, Pair, finish};
use super::{failed, tell};
use crate::error::{Error, Tried};

/// Time in which a receiver falls asleep, before the first message comes.
pub const ASLEEP: Duration = Duration::from_millis(3);

/// Settings of the measurement.
#[derive(Args)]
pub struct Settings {
    /// Messages of a turn.
    #[arg(long)]
    pub count: usize,
    /// Number of turns.
    #[arg(long)]
    pub turns: u32,
    /// Time between two messages, in µs.
    #[arg(long)]
    pub apart: u64,
    /// Wait for each message, instead of once for all.
    #[arg(long)]
    pub one_by_one: bool,
}

/// Prints what a turn took on average: `own`, the sleeps of the waiting thread, and `all`, those of
/// all threads of its process.
pub fn run(job: &Job, settings: &Settings) -> Result<(), Error> {
    let pair = Pair::new(job, 8)?;
    let (mut own, mut all) = (0, 0);
    for _ in 0..settings.turns {
        if job.rank() == 0 {
            let (own_before, all_before) = (own_sleeps()?, all_sleeps()?);
            finish(&pair.send(0))?;
            let posted = own_sleeps()? - own_before;
            take(&pair, settings)?;
            // The cost of the request itself does not count.
            own += own_sleeps()? - own_before - posted;
            all += all_sleeps()? - all_before - posted;
        } else {
            pair.receive()?;
            send(&pair, settings)?;
        }
    }
    job.barrier().map_err(failed)?;
    if job.rank() == 0 {
        let turns = f64::from(settings.turns);
        tell(&[("own", own as f64 / turns), ("all", all as f64 / turns)]);
    }
    Ok(())
}

fn take(pair: &Pair<'_>, settings: &Settings) -> Result<(), Error> {
    if settings.one_by_one {
        for _ in 0..settings.count {
            pair.receive()?;
        }
        return Ok(());
    }
    let taken = pair.job.receive_batch_for(settings.count, PATIENCE).len();
    if taken == settings.count { Ok(()) } else { Err(Error::new("messages are missing")) }
}

fn send(pair: &Pair<'_>, settings: &Settings) -> Result<(), Error> {
    spin(ASLEEP);
    let mut sent = Vec::with_capacity(settings.count);
    for _ in 0..settings.count {
        sent.push(pair.send(1));
        spin(Duration::from_micros(settings.apart));
    }
    sent.iter().try_for_each(finish)
}

/// Computes for a time.
pub fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Returns how often the calling thread has gone to sleep.
pub fn own_sleeps() -> Result<u64, Error> {
    let status = std::fs::read_to_string("/proc/thread-self/status").tried("reading /proc")?;
    Ok(sleeps(&status))
}

/// Returns how often the threads of this process have gone to sleep.
pub fn all_sleeps() -> Result<u64, Error> {
    let tasks = std::fs::read_dir("/proc/self/task").tried("reading /proc/self/task")?;
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("status")).ok()
    };
    Ok(tasks.filter_map(of).map(|status| sleeps(&status)).sum())
}

/// Returns the voluntary context switches of a thread (proc_pid_status(5)).
fn sleeps(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_are_read() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t15\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!((sleeps(status), sleeps("")), (15, 0));
    }

    /// A thread that sleeps is counted, alone and with all threads.
    #[test]
    fn a_sleep_counts() {
        let (own, all) = (own_sleeps().expect("a count"), all_sleeps().expect("a count"));
        let (say, hear) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            spin(Duration::from_millis(20));
            say.send(())
        });
        hear.recv().expect("a message");
        other.join().expect("an end").expect("a receiver");
        assert!(own_sleeps().expect("a count") > own && all_sleeps().expect("a count") > all);
    }
}
