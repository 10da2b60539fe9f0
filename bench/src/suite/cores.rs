//! Measures the distance between the hosts' two cores. A hypervisor moves a virtual machine's
//! processors now and then. If one core reads what the kernel has copied on another core, the copy
//! costs up to twice as much where the cores share no cache. A measurement therefore counts only if
//! the distance was the same before and after it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use oikaze_os::cpu::pin_to_core;

use crate::error::Error;
use crate::lab::{CLIENT, SERVER};

/// Round trips of one probe, which take some milliseconds.
const TRIPS: u64 = 20_000;
/// Maximum time between cores with a common cache. Other cores are farther apart.
const NEAR_MAX: Duration = Duration::from_nanos(80);
/// Time limit to wait for cores at the wanted distance.
const PATIENCE: Duration = Duration::from_secs(900);
/// Pause between two probes of such a wait.
const PAUSE: Duration = Duration::from_secs(2);
/// Maximum number of measurements of one case. The last one counts although the cores were moved.
const TRIES: u32 = 4;

/// Distance that the user wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// Cores at any distance.
    #[default]
    Any,
    /// Cores with a common cache.
    Near,
    /// Cores without a common cache.
    Far,
}

/// Distances of the cores during a bench.
#[derive(Default)]
pub struct Cores {
    wanted: Wanted,
    /// Nanoseconds before every measurement that counts.
    seen: Vec<u64>,
    moved: u32,
}

impl Cores {
    pub fn new(wanted: Wanted) -> Cores {
        Cores { wanted, ..Cores::default() }
    }

    /// Measures while the cores stay where they are, at the wanted distance.
    ///
    /// # Errors
    /// The measurement fails, or the cores do not reach the wanted distance in time.
    pub fn steady<T>(&mut self, mut measure: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
        let mut tries = 0;
        loop {
            let before = self.wait()?;
            let found = measure()?;
            let after = line_time()?;
            tries += 1;
            let moved = is_near(before) != is_near(after);
            if !moved || tries == TRIES {
                self.moved += u32::from(moved);
                self.seen.push(u64::try_from(before.as_nanos()).unwrap_or(u64::MAX));
                return Ok(found);
            }
            eprintln!(
                "measuring again: the hypervisor has moved the cores ({} ns before, {} ns after)",
                before.as_nanos(),
                after.as_nanos()
            );
        }
    }

    /// Waits until the cores are at the wanted distance.
    fn wait(&self) -> Result<Duration, Error> {
        let begun = Instant::now();
        let mut told = false;
        loop {
            let time = line_time()?;
            if self.wanted == Wanted::Any || is_near(time) == (self.wanted == Wanted::Near) {
                return Ok(time);
            }
            let wanted = if self.wanted == Wanted::Near { "near" } else { "far" };
            if begun.elapsed() > PATIENCE {
                let text = format!(
                    "waiting for cores {CLIENT} and {SERVER} to be {wanted}: for {} minutes a cache line has taken some {} ns from one to the \
                     other ({} is the limit); leave --cores out to measure them as they are",
                    PATIENCE.as_secs() / 60,
                    time.as_nanos(),
                    NEAR_MAX.as_nanos()
                );
                return Err(Error::new(text));
            }
            if !told {
                eprintln!(
                    "waiting for the hypervisor to make the two cores {wanted} (now {} ns)",
                    time.as_nanos()
                );
                told = true;
            }
            thread::sleep(PAUSE);
        }
    }
}

/// Returns the time in ns that a cache line takes from one core of the hosts to the other, and
/// `true` if they share a cache.
///
/// # Errors
/// A thread cannot be bound to one of the cores.
pub fn distance() -> Result<(u64, bool), Error> {
    let time = line_time()?;
    Ok((u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), is_near(time)))
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Some(least), Some(most)) = (self.seen.iter().min(), self.seen.iter().max()) else {
            return write!(
                f,
                "How far apart the hosts' cores were is not known, as no measurement came to its end."
            );
        };
        let near = self.seen.iter().filter(|time| is_near(Duration::from_nanos(**time))).count();
        write!(f, "A cache line took {least} to {most} ns from one host's core to the other's; ")?;
        write!(
            f,
            "{near} measurements with a cache in common, {} without",
            self.seen.len() - near
        )?;
        match self.moved {
            0 => write!(f, "."),
            moved => write!(
                f,
                ", and during {moved} of them the hypervisor moved the cores, {TRIES} times in a row."
            ),
        }
    }
}

fn is_near(time: Duration) -> bool {
    time < NEAR_MAX
}

/// A word in a cache line of its own.
#[repr(align(128))]
struct Line(AtomicU64);

/// Value by which an end reports that it could not be pinned.
const GIVEN_UP: u64 = u64::MAX;

/// Measures how long a cache line takes from one host's core to the other's: half a round trip.
fn line_time() -> Result<Duration, Error> {
    let line = Line(AtomicU64::new(0));
    let ended = thread::scope(|scope| {
        let ends = [(CLIENT, 0), (SERVER, 1)].map(|(core, turn)| {
            scope.spawn({
                let line = &line;
                move || bounce(line, core, turn)
            })
        });
        ends.map(|end| {
            end.join().unwrap_or_else(|_| {
                Err(Error::new("looking how far apart the cores are: a thread panicked"))
            })
        })
    });
    let [client, server] = ended;
    server?;
    Ok(client? / u32::try_from(2 * TRIPS).unwrap_or(u32::MAX))
}

/// Runs one end, which adds 1 whenever the line is even (`turn` 0) or odd (1).
fn bounce(Line(line): &Line, core: usize, turn: u64) -> Result<Duration, Error> {
    let failed = |why: &dyn fmt::Display| {
        Error::new(format!("looking how far apart the two cores are: {why}"))
    };
    if let Err(why) = pin_to_core(core) {
        line.store(GIVEN_UP, Ordering::Release);
        return Err(failed(&why));
    }
    let begun = Instant::now();
    for at in (0..TRIPS).map(|trip| 2 * trip + turn) {
        // Waits by reads only, because an attempt to write would take the line away from the other
        // end.
        while line.load(Ordering::Acquire) != at
            || line.compare_exchange(at, at + 1, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            if line.load(Ordering::Relaxed) == GIVEN_UP {
                return Err(failed(&"the other end has given up"));
            }
            std::hint::spin_loop();
        }
    }
    Ok(begun.elapsed())
}
