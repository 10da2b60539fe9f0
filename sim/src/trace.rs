//! Trace of a run's events in order. The events always go into a hash, by which two runs of a seed
//! are compared. They go into text only on request.
//!
//! The trace must not contain anything random from outside the seed (such as a region's key, which
//! the system draws).

use oikaze_protocol::time::Time;
use std::fmt::{self, Write};

/// Events of one run.
#[derive(Debug)]
pub struct Trace {
    hash: u64,
    events: u64,
    print: bool,
}

impl Trace {
    /// Makes an empty trace. With `print`, each event is a line on standard output.
    #[must_use]
    pub fn new(print: bool) -> Trace {
        Trace { hash: 0xcbf2_9ce4_8422_2325, events: 0, print }
    }

    /// Notes an event at a node.
    pub fn event(&mut self, now: Time, node: u32, what: fmt::Arguments<'_>) {
        self.events += 1;
        // Writing to a hash cannot fail.
        let _ = writeln!(Hashing(&mut self.hash), "{} {node} {what}", now.0);
        if self.print {
            println!("{} node {node}: {what}", Stamp(now));
        }
    }

    /// Returns FNV-1a of all events so far, and their number.
    #[must_use]
    pub fn digest(&self) -> (u64, u64) {
        (self.hash, self.events)
    }
}

struct Hashing<'a>(&'a mut u64);

impl Write for Hashing<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            *self.0 = (*self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}

/// A time in milliseconds with six decimal places.
pub struct Stamp(pub Time);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7}.{:06} ms", self.0.0 / 1_000_000, self.0.0 % 1_000_000)
    }
}
