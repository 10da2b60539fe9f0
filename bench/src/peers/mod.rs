//! The systems that are measured, each in a file of its own behind one trait.

mod ends;
pub mod floor;
mod memory;
pub mod ofi;
pub mod oikaze;
pub mod tcp;
pub mod ucx;
pub mod udp;

use crate::error::Error;
use crate::lab::Lab;
use crate::suite::case::{Case, Figure};

/// How much is done in one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Single operations that are timed.
    pub exchanges: u32,
    /// Small operations in flight, for rates.
    pub operations: u32,
    /// Bytes moved, for bandwidth; caches hold less.
    pub volume: usize,
    /// Bytes moved to find out what a GiB costs.
    pub costly: usize,
}

impl Effort {
    /// The full bench.
    pub const THOROUGH: Self =
        Self { exchanges: 50_000, operations: 1_000_000, volume: 2 << 30, costly: 4 << 30 };
    /// For a first impression: every byte of cold memory once.
    pub const QUICK: Self =
        Self { exchanges: 5_000, operations: 200_000, volume: 512 << 20, costly: 1 << 30 };
}

/// Figures that one measurement has found. Most cases have one figure, some more.
pub type Found = Vec<(Figure, f64)>;

/// The figure of a case that has one.
///
/// # Errors
/// There is none.
pub fn only(found: Found) -> Result<f64, Error> {
    found.first().map(|&(_, value)| value).ok_or_else(|| Error::new("a system has found nothing"))
}

/// A system.
pub trait System {
    /// As in the records.
    fn name(&self) -> &'static str;

    /// Is all there that it needs?
    ///
    /// # Errors
    /// What is missing, and the package that has it.
    fn present(&self) -> Result<(), Error>;

    /// Has it such a case?
    fn has(&self, case: Case) -> bool;

    /// Is it worth while in a bench that is to be quick?
    fn is_quick(&self, _case: Case) -> bool {
        true
    }

    /// Measures a case that it has, once, in the lab.
    ///
    /// # Errors
    /// It failed, or printed what was not expected.
    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error>;

    /// Returns a note that a reader of the system's figures must know, if there is one.
    fn note(&self) -> Option<&'static str> {
        None
    }
}

/// Those that are measured between two hosts, floors first.
pub const WIRE: [&dyn System; 8] = [
    &floor::Floor { checked: false },
    &floor::Floor { checked: true },
    &tcp::Tcp,
    &ucx::Ucx::TCP,
    &ofi::Ofi::TCP,
    &ofi::Ofi::UDP,
    &oikaze::Oikaze { checked: true, class: "ordered" },
    &oikaze::Oikaze { checked: false, class: "ordered" },
];

/// Those that are measured between two processes of one machine.
pub const HERE: [&dyn System; 2] =
    [&ucx::Ucx::SHARED, &oikaze::Oikaze { checked: true, class: "ordered" }];

/// The names of all.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = WIRE.iter().chain(&HERE).map(|system| system.name()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A program of a peer, found or not.
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
