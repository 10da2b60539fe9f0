//! Tests of every way of placing pages, for each kind of memory, with each mechanism switched off
//! in turn.

mod cells;
mod errors;
mod model;
mod refusals;
mod together;

use super::super::{PageSize, Region, RegionKind};
use super::calibration::{Calibration, Crossovers};
use super::{PageRange, Placed, Placement, PlacementMethod, huge_moves, page_size};
use crate::features::DisabledFeatures;
use crate::testing::skipped;
use core::ptr::NonNull;
use rustix::mm::{Advice, madvise};
use std::os::unix::process::ExitStatusExt;

/// Mechanisms that are switched off, one after the other.
const WITHOUT: [&str; 3] = ["", "move", "uffd"];

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    PrivateSmall,
    PrivateHuge,
    SharedSmall,
    SharedHuge,
    Borrowed,
}

const ALL: [Memory; 5] = [
    Memory::PrivateSmall,
    Memory::PrivateHuge,
    Memory::SharedSmall,
    Memory::SharedHuge,
    Memory::Borrowed,
];

impl Memory {
    /// Returns `true` if its pages can be moved.
    fn moves(self) -> bool {
        matches!(self, Memory::PrivateSmall | Memory::PrivateHuge)
    }
}

/// A region, and the memory that was lent for it.
struct Fixture {
    region: Region,
    _lent: Vec<u8>,
}

/// Makes memory that children of fork do not inherit. Other tests of this process may fork at any
/// moment, and pages shared by a fork do not move.
fn make(memory: Memory, len: usize) -> Fixture {
    let fixture = make_for_all(memory, len);
    if memory.moves() {
        let at = fixture.region.view_ptr().cast();
        // SAFETY: the whole mapping of the region; the advice changes none of its bytes.
        unsafe { madvise(at, len, Advice::LinuxDontFork) }.unwrap();
    }
    fixture
}

fn make_for_all(memory: Memory, len: usize) -> Fixture {
    let own = |region: Result<Region, _>| Fixture { region: region.unwrap(), _lent: Vec::new() };
    match memory {
        Memory::PrivateSmall => own(Region::private_of(len, PageSize::Small)),
        Memory::PrivateHuge => own(Region::private_of(len, PageSize::Huge)),
        Memory::SharedSmall => own(Region::shared_of(len, PageSize::Small)),
        Memory::SharedHuge => own(Region::shared_of(len, PageSize::Huge)),
        Memory::Borrowed => {
            let mut lent = vec![0; len];
            let at = NonNull::new(lent.as_mut_ptr()).unwrap();
            Fixture { region: Region::borrowed(at, len, true), _lent: lent }
        }
    }
}

/// Returns a placement that moves pages from half a MiB on, whatever this machine's calibration.
fn placement(without: &str) -> Placement {
    const FROM: Option<usize> = Some(512 << 10);
    let all = Crossovers { moving: FROM, taking: FROM, exchange: FROM, install: FROM, huge: FROM };
    Placement::calibrated(
        &DisabledFeatures::parse(without).unwrap(),
        Calibration { alone: all, beside: all },
    )
}

/// Returns a placement that moves pages, or `None`, with a message, where the kernel does not.
fn moving() -> Option<Placement> {
    let placement = placement("");
    if let Some(why) = placement.why_not() {
        skipped(&format!("pages are not moved here: {why}"));
        return None;
    }
    Some(placement)
}

/// Returns bytes that identify their origin.
fn pattern(len: usize, which: u64) -> Vec<u8> {
    (0..len as u64)
        .map(|at| (at.wrapping_mul(31) ^ (at >> 9) ^ which.wrapping_mul(0x9e37)) as u8)
        .collect()
}

fn filled(memory: Memory, len: usize, which: u64) -> (Fixture, Vec<u8>) {
    let (fixture, bytes) = (make(memory, len), pattern(len, which));
    fixture.region.write(0, &bytes).unwrap();
    (fixture, bytes)
}

fn bytes(region: &Region) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}

fn at(region: &Region, offset: u64) -> PageRange<'_> {
    PageRange { region, offset }
}

/// Runs the named test of this module again in a process of its own, where no other test runs.
/// Returns `true` in that process.
fn alone(module: &str, test: &str) -> bool {
    const ROLE: &str = "OIKAZE_TEST_ALONE";
    if std::env::var_os(ROLE).is_some() {
        return true;
    }
    let name = format!("{}::{test}", module.split_once("::").unwrap().1);
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    let output = child
        .args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .output()
        .unwrap();
    assert!(output.status.success() && output.status.signal().is_none(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    false
}

/// Returns a filled region of small pages.
fn small(pages: usize, which: u64) -> (Region, Vec<u8>) {
    let (fixture, bytes) = filled(Memory::PrivateSmall, pages * page_size(), which);
    (fixture.region, bytes)
}
