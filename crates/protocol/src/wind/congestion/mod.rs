//! Congestion control: the congestion window and the pacing rate (WIND-9). A new algorithm is a new
//! [`Controller`].

mod competition;
mod cubic;
mod delay;
mod gate;
mod pacer;
mod share;
#[cfg(test)]
mod tests;

pub use cubic::Cubic;
pub use delay::Delay;
pub(super) use gate::Gate;
pub use share::Shares;

use crate::time::Time;
use alloc::boxed::Box;
use core::str::FromStr;
use core::time::Duration;

/// What one acknowledgement says of the path. Bytes are bytes on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// When it came.
    pub now: Time,
    /// Newly acknowledged.
    pub bytes: u64,
    /// When the latest of them was sent.
    pub sent: Time,
    /// The round trip of the latest, less the peer's own delay, if this acknowledgement tells it.
    pub delay: Option<Duration>,
    /// Datagrams newly acknowledged.
    pub datagrams: u32,
    /// Of these, so many came marked CE.
    pub marked: u32,
    /// The window, and not the application, was the bound.
    pub limited: bool,
}

/// Decides the window from what happens to datagrams.
pub trait Controller: Send + Sync {
    /// Bytes that may be in flight.
    fn window(&self) -> u64;

    /// Datagrams were acknowledged.
    fn acknowledged(&mut self, sample: &Sample);

    /// Datagrams were lost, the latest of them sent at `sent`.
    fn lost(&mut self, sent: Time, now: Time);

    /// All that was lost since the window was last reduced ([`lost`](Self::lost) or
    /// [`stalled`](Self::stalled)) has arrived after all: the reduction was wrong (WIND-5.6).
    fn spurious(&mut self, now: Time);

    /// Nothing was acknowledged through several probe timeouts.
    fn stalled(&mut self, now: Time);

    /// A full datagram has so many bytes from now on (WIND-8).
    fn resized(&mut self, _datagram: u64) {}

    /// The pace (WIND-9.8): what may go in one smoothed round trip, in percent of the window.
    fn haste(&self) -> u64 {
        HASTE
    }
}

/// Percent of the window a round trip: enough to use all of it although timers are late, and while
/// it doubles.
const HASTE: u64 = 125;
const HASTE_DOUBLING: u64 = 200;

/// Which controller a node uses (WIND-9.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// [`Delay`]: for data centres.
    #[default]
    Delay,
    /// [`Cubic`]: as everybody else does.
    Cubic,
}

impl Algorithm {
    /// A controller for datagrams of at most `datagram` bytes and a window of at most `most`.
    #[must_use]
    pub fn controller(self, datagram: u64, most: u64) -> Box<dyn Controller> {
        let limits = Limits::new(datagram, most);
        match self {
            Algorithm::Delay => Box::new(Delay::new(limits)),
            Algorithm::Cubic => Box::new(Cubic::new(limits)),
        }
    }
}

/// A word that names no algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such congestion control; write delay or cubic")]
pub struct NoSuchAlgorithm;

impl FromStr for Algorithm {
    type Err = NoSuchAlgorithm;

    fn from_str(word: &str) -> Result<Algorithm, NoSuchAlgorithm> {
        match word {
            "delay" => Ok(Algorithm::Delay),
            "cubic" => Ok(Algorithm::Cubic),
            _ => Err(NoSuchAlgorithm),
        }
    }
}

impl core::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Algorithm::Delay => "delay",
            Algorithm::Cubic => "cubic",
        })
    }
}

/// Between which bounds a window moves, in bytes (WIND-6.2).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A full datagram.
    pub datagram: u64,
    /// The smallest window.
    pub least: u64,
    /// The first window.
    pub first: u64,
    /// The largest window.
    pub most: u64,
}

impl Limits {
    /// For datagrams of at most `datagram` bytes; `most`: what the peer can buffer.
    #[must_use]
    pub fn new(datagram: u64, most: u64) -> Limits {
        let datagram = datagram.max(1);
        let least = (2 * datagram).min(most).max(datagram);
        let most = most.max(least);
        Limits { datagram, least, first: (32 * datagram).clamp(least, most), most }
    }

    /// The same for datagrams of another size.
    fn resized(&self, datagram: u64) -> Limits {
        Limits::new(datagram, self.most)
    }

    fn clamp(&self, window: u64) -> u64 {
        window.clamp(self.least, self.most)
    }
}
