//! From which size on it is quicker to move pages than to copy bytes: measured on the machine
//! itself, once.
//!
//! It depends on the processor, the kernel, the hypervisor, and on whether other threads of the
//! process run meanwhile: to take a page away from them interrupts their cores. So it is measured
//! both alone and beside a busy thread, in less than 50 ms, when it is first needed, and kept in a
//! file for as long as the machine is up.

mod cache;
mod measure;
mod running;

use running::machine_is_crowded;
pub(super) use running::others_run;

use super::mover::Mover;

/// Sizes in bytes from which on something beats a copy; `None`: never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crossovers {
    /// Moving small pages into an empty place.
    pub moving: Option<usize>,
    /// Taking pages by exchanging them with those that are at the destination.
    pub taking: Option<usize>,
    /// Exchanging pages, beside exchanging by copying.
    pub exchange: Option<usize>,
    /// Installing pages of a shared region in the program's view, beside copying into pages that
    /// are there.
    pub install: Option<usize>,
    /// Exchanging whole huge pages.
    pub huge: Option<usize>,
}

/// What the machine is good at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// While no other thread of the process runs.
    pub alone: Crossovers,
    /// While another does.
    pub beside: Crossovers,
}

impl Calibration {
    /// For a machine that could not be measured: what a small one showed, on the safe side.
    pub const GUESS: Calibration = {
        const FROM: Option<usize> = Some(1 << 20);
        let guess =
            Crossovers { moving: FROM, taking: FROM, exchange: FROM, install: FROM, huge: FROM };
        Calibration { alone: guess, beside: guess }
    };

    /// From the file of an earlier run on this machine, else measured now and kept there; and which
    /// file was not believed, and why.
    pub(super) fn of_this_machine(mover: &Mover) -> (Calibration, Option<String>) {
        let file = cache::file();
        let known = file.as_deref().map_or(Ok(None), cache::read);
        let doubt =
            known.err().zip(file.as_ref()).map(|(why, file)| format!("{}: {why}", file.display()));
        let found = known.ok().flatten().unwrap_or_else(|| match measure::all(mover) {
            Some(found) => {
                // Without a file it is measured again next time; what others have disturbed is,
                // too.
                let file = file.filter(|_| !machine_is_crowded());
                let _ = file.map(|file| cache::write(&file, &found));
                found
            }
            None => Calibration::GUESS,
        });
        (found, doubt)
    }
}
