//! Measures, once and on the machine itself, from which size on moving pages is quicker than
//! copying bytes.
//!
//! The size depends on the processor, the kernel and the hypervisor. It also depends on whether
//! other threads of the process run meanwhile, because taking a page away from them interrupts
//! their cores. So both cases are measured, alone and beside a busy thread, in less than 50 ms,
//! when first needed. The result is kept in a file until the machine reboots.

mod cache;
mod measure;
mod running;

use running::machine_is_crowded;
pub(super) use running::others_run;

use super::mover::Mover;

/// Sizes in bytes from which on an alternative beats a copy, or `None` if it never does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crossovers {
    /// Size from which moving small pages into an empty place pays.
    pub moving: Option<usize>,
    /// Size from which it pays to take pages by exchanging them with those at the destination.
    pub taking: Option<usize>,
    /// Size from which exchanging pages beats exchanging by copies.
    pub exchange: Option<usize>,
    /// Size from which installing pages of a shared region in the program's view beats copying into
    /// present pages.
    pub install: Option<usize>,
    /// Size from which exchanging whole huge pages pays.
    pub huge: Option<usize>,
}

/// Crossovers measured on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Crossovers while no other thread of the process runs.
    pub alone: Crossovers,
    /// Crossovers while another thread runs.
    pub beside: Crossovers,
}

impl Calibration {
    /// Values for a machine that could not be measured: those of a small machine, on the safe side.
    pub const GUESS: Calibration = {
        const FROM: Option<usize> = Some(1 << 20);
        let guess =
            Crossovers { moving: FROM, taking: FROM, exchange: FROM, install: FROM, huge: FROM };
        Calibration { alone: guess, beside: guess }
    };

    /// Returns the calibration from the file of an earlier run on this machine, or else measures it
    /// now and writes the file. Also returns which file was not believed, and why.
    pub(super) fn of_this_machine(mover: &Mover) -> (Calibration, Option<String>) {
        let file = cache::file();
        let known = file.as_deref().map_or(Ok(None), cache::read);
        let doubt =
            known.err().zip(file.as_ref()).map(|(why, file)| format!("{}: {why}", file.display()));
        let found = known.ok().flatten().unwrap_or_else(|| match measure::all(mover) {
            Some(found) => {
                // Do not keep a result that other programs have disturbed; without a file, the next
                // run measures again.
                let file = file.filter(|_| !machine_is_crowded());
                let _ = file.map(|file| cache::write(&file, &found));
                found
            }
            None => Calibration::GUESS,
        });
        (found, doubt)
    }
}
