//! Measured systems, each in a file of its own behind one trait.

mod ends;
pub mod floor;
mod memory;
pub mod ofi;
pub mod oikaze;
pub mod quic;
pub mod tcp;
pub mod ucx;
pub mod udp;
pub mod wireguard;

use crate::error::Error;
use crate::lab::Lab;
use crate::suite::case::{Case, Figure, Test};

/// Number of exchanges of [`Test::FirstMessages`]. They end within a millisecond, in which a thread
/// that polls keeps its core for itself. Oikaze connects a socket to a peer after 64 calls. Its 5
/// exchanges before them do not count.
const FIRST: u32 = 50;

/// Amount of work in one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of single operations that are timed.
    pub exchanges: u32,
    /// Number of small operations in flight, for rates.
    pub operations: u32,
    /// Bytes moved for bandwidth, which exceed any cache.
    pub volume: usize,
    /// Bytes moved to measure the processor time of a GiB.
    pub costly: usize,
}

impl Effort {
    /// Returns the number of exchanges of a test of messages.
    pub fn exchanges_of(self, test: Test) -> u32 {
        if test == Test::FirstMessages { FIRST } else { self.exchanges }
    }

    /// Effort of the full bench.
    pub const THOROUGH: Self =
        Self { exchanges: 50_000, operations: 1_000_000, volume: 2 << 30, costly: 4 << 30 };
    /// Effort of a quick bench, which moves every byte of cold memory once.
    pub const QUICK: Self =
        Self { exchanges: 5_000, operations: 200_000, volume: 512 << 20, costly: 1 << 30 };
}

/// Figures that one measurement has found. Most cases have one figure, some more.
pub type Found = Vec<(Figure, f64)>;

/// Returns the figure of a case that has one figure.
///
/// # Errors
/// There is no figure.
pub fn only(found: Found) -> Result<f64, Error> {
    found.first().map(|&(_, value)| value).ok_or_else(|| Error::new("a system has found nothing"))
}

/// System that the bench measures.
pub trait System {
    /// Returns the name in the records.
    fn name(&self) -> &'static str;

    /// Checks that everything that the system needs is installed.
    ///
    /// # Errors
    /// Something is missing. The error names it and its package.
    fn present(&self) -> Result<(), Error>;

    /// Returns `true` if the system has this case.
    fn has(&self, case: Case) -> bool;

    /// Returns `true` if a quick bench should measure this case.
    fn is_quick(&self, _case: Case) -> bool {
        true
    }

    /// Measures one of the system's cases once, in the lab.
    ///
    /// # Errors
    /// The system failed, or printed something unexpected.
    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error>;

    /// Returns a note that a reader of the system's figures must know, if there is one.
    fn note(&self) -> Option<&'static str> {
        None
    }
}

/// Systems that are measured between two hosts, floors first.
pub const WIRE: [&dyn System; 9] = [
    &floor::Floor { checked: false },
    &floor::Floor { checked: true },
    &tcp::Tcp,
    &ucx::Ucx::TCP,
    &ofi::Ofi::TCP,
    &ofi::Ofi::UDP,
    &oikaze::Oikaze { seal: oikaze::Seal::Full, class: "ordered" },
    &oikaze::Oikaze { seal: oikaze::Seal::Crc, class: "ordered" },
    &oikaze::Oikaze { seal: oikaze::Seal::Header, class: "ordered" },
];

/// Systems that are measured between two processes of one machine.
pub const HERE: [&dyn System; 2] =
    [&ucx::Ucx::SHARED, &oikaze::Oikaze { seal: oikaze::Seal::Crc, class: "ordered" }];

/// Ways to protect what travels between two hosts, and none.
pub const SEALED: [&dyn System; 7] = [
    &tcp::Tcp,
    &quic::Quic,
    &wireguard::WireGuard,
    &oikaze::Oikaze { seal: oikaze::Seal::Header, class: "ordered" },
    &oikaze::Oikaze { seal: oikaze::Seal::Crc, class: "ordered" },
    &oikaze::Oikaze { seal: oikaze::Seal::Integrity, class: "ordered" },
    &oikaze::Oikaze { seal: oikaze::Seal::Full, class: "ordered" },
];

/// Returns the names of all systems.
pub fn names() -> Vec<&'static str> {
    let all = WIRE.iter().chain(&HERE).chain(&SEALED);
    let mut names: Vec<&str> = all.map(|system| system.name()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Checks that a program of a peer is installed.
fn installed(program: &str, version: &str, package: &str, system: &str) -> Result<(), Error> {
    let found = std::process::Command::new(program)
        .arg(version)
        .stdin(std::process::Stdio::null())
        .output();
    found.map(drop).map_err(|why| {
        Error::new(format!(
            "{program}: {why}; install the Debian package {package}, or pass --without {system}"
        ))
    })
}
