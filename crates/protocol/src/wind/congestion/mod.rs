//! Congestion control: the congestion window and the pacing rate (WIND-9). A new algorithm is a new
//! [`Controller`].

mod competition;
mod cubic;
mod delay;
mod flow_climber;
mod pacer;
mod receive_share;
mod send_gate;
#[cfg(test)]
mod tests;

pub use cubic::Cubic;
pub use delay::Delay;
pub(super) use flow_climber::FlowClimber;
pub use receive_share::Shares;
pub(super) use send_gate::{Gate, Marks};

use crate::time::Time;
use alloc::boxed::Box;
use core::str::FromStr;
use core::time::Duration;

/// Evidence of one acknowledgement about the path. Bytes are bytes on the wire.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Time when the acknowledgement came.
    pub now: Time,
    /// Bytes newly acknowledged.
    pub bytes: u64,
    /// Time when the latest of the acknowledged datagrams was sent.
    pub sent: Time,
    /// Round trip of the latest datagram without the peer's own delay, if this acknowledgement
    /// shows it.
    pub delay: Option<Duration>,
    /// Datagrams newly acknowledged.
    pub datagrams: u32,
    /// Number of these datagrams that came marked CE.
    pub marked: u32,
    /// Whether the window, and not the application, was the limit.
    pub limited: bool,
}

/// Congestion controller: decides the window from the fate of datagrams.
pub trait Controller: Send + Sync {
    /// Returns the number of bytes that may be in flight.
    fn window(&self) -> u64;

    /// Called when datagrams were acknowledged.
    fn acknowledged(&mut self, sample: &Sample);

    /// Called when datagrams were lost, the latest of them sent at `sent`.
    fn lost(&mut self, sent: Time, now: Time);

    /// Called when everything that was lost since the last reduction of the window
    /// ([`lost`](Self::lost) or [`stalled`](Self::stalled)) has arrived after all. The reduction
    /// was wrong (WIND-5.6).
    fn spurious(&mut self, now: Time);

    /// Called when nothing was acknowledged through several probe timeouts.
    fn stalled(&mut self, now: Time);

    /// Called when the size of a full datagram changes to this many bytes (WIND-8).
    fn resized(&mut self, _datagram: u64) {}

    /// Returns the pace (WIND-9.8): bytes per smoothed round trip, in percent of the window.
    fn pacing_gain(&self) -> u64 {
        PACING_GAIN
    }
}

/// Pace in percent of the window per round trip. It is enough to use the whole window although
/// timers are late. The second value applies while the window doubles.
const PACING_GAIN: u64 = 125;
const HASTE_DOUBLING: u64 = 200;

/// Congestion control algorithm of a node (WIND-9.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// [`Delay`]: for data centres.
    #[default]
    Delay,
    /// [`Cubic`]: the common algorithm of the Internet.
    Cubic,
}

impl Algorithm {
    /// Creates a controller for datagrams of at most `datagram` bytes and a window of at most
    /// `most` bytes.
    #[must_use]
    pub fn controller(self, datagram: u64, most: u64) -> Box<dyn Controller> {
        let limits = Limits::new(datagram, most);
        match self {
            Algorithm::Delay => Box::new(Delay::new(limits)),
            Algorithm::Cubic => Box::new(Cubic::new(limits)),
        }
    }
}

/// Error for a name that is not an algorithm.
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

/// Bounds of a window, in bytes (WIND-6.2).
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a full datagram.
    pub datagram: u64,
    /// Smallest window in bytes.
    pub least: u64,
    /// Initial window in bytes.
    pub first: u64,
    /// Largest window in bytes.
    pub most: u64,
}

impl Limits {
    /// Returns the bounds for datagrams of at most `datagram` bytes. `most` is what the peer can
    /// buffer.
    #[must_use]
    pub fn new(datagram: u64, most: u64) -> Limits {
        let datagram = datagram.max(1);
        let least = (2 * datagram).min(most).max(datagram);
        let most = most.max(least);
        Limits { datagram, least, first: (32 * datagram).clamp(least, most), most }
    }

    /// Returns the same bounds for datagrams of another size.
    fn resized(&self, datagram: u64) -> Limits {
        Limits::new(datagram, self.most)
    }

    fn clamp(&self, window: u64) -> u64 {
        window.clamp(self.least, self.most)
    }
}
