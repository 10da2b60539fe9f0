//! Exchange and transfer of pages, and the choice between moving and copying.

use super::calibration::{Calibration, Crossovers, others_run};
use super::choice::{ChosenStrategy, LEAST, choose};
use super::error::PlacementError;
use super::mover::Mover;
use super::mover::Placed;
use super::range::PageRange;
use crate::features::{DisabledFeatures, Feature};
use crate::memory::placement::chunk::{self, Act, Moves};
use crate::memory::placement::range::Span;
use crate::memory::placement::scratch::CHUNK;
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::OnceLock;

/// Number of decisions between two checks whether other threads run. A check takes as long as
/// copying some 100 KiB.
const REMEASURE_INTERVAL: u32 = 256;

/// Way in which bytes are brought to their place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PlacementMethod {
    /// The quickest way on this machine, for this memory and this size.
    #[default]
    Auto,
    /// By moving pages, whatever the size. Pages that the kernel refuses to move are copied.
    Move,
    /// By copying bytes.
    Copy,
}

/// Moves pages, and knows from which size on that pays.
#[derive(Debug)]
pub struct Placement {
    mover: Result<Mover, String>,
    /// The calibration, and which earlier file was not believed, and why.
    calibration: OnceLock<(Calibration, Option<String>)>,
    /// Number of decisions so far. The highest bit is set if other threads ran at the last check.
    decisions: AtomicU32,
}

impl Placement {
    /// Returns a placement with what the kernel offers and the user has not switched off. Its
    /// calibration is measured when first needed.
    #[must_use]
    pub fn new(without: &DisabledFeatures) -> Placement {
        let needed = [Feature::Uffd, Feature::Move];
        let switched_off = needed.into_iter().find(|feature| without.contains(*feature));
        let mover = match switched_off {
            Some(off) => Err(format!("switched off by OIKAZE_WITHOUT={off}")),
            None => {
                Mover::open().map_err(|why| format!("the kernel does not offer it here: {why}"))
            }
        };
        Placement { mover, calibration: OnceLock::new(), decisions: AtomicU32::new(0) }
    }

    /// As [`Placement::new`], with a known calibration.
    #[must_use]
    pub fn calibrated(without: &DisabledFeatures, calibration: Calibration) -> Placement {
        Placement { calibration: (calibration, None).into(), ..Placement::new(without) }
    }

    /// Returns the placement of this process, opened at the first call, without what
    /// `OIKAZE_WITHOUT` names. If the kernel does not move pages, prints that once.
    #[must_use]
    pub fn of_this_process() -> &'static Placement {
        static PLACEMENT: OnceLock<Placement> = OnceLock::new();
        PLACEMENT.get_or_init(|| {
            // An unreadable value was refused when the job began.
            let without = DisabledFeatures::of_process().unwrap_or_default();
            let placement = Placement::new(&without);
            if let Some(why) = placement.why_not().filter(|_| !without.uffd && !without.page_move) {
                eprintln!("oikaze: pages are copied instead of moved: {why} (docs/KERNELS.md)");
            }
            placement
        })
    }

    /// Returns the sizes from which on moving pages pays, from a file or measured now (less than 50
    /// ms). Returns `None` if pages are not moved here.
    #[must_use]
    pub fn calibration(&self) -> Option<&Calibration> {
        let mover = self.mover.as_ref().ok()?;
        Some(&self.calibration.get_or_init(|| Calibration::of_this_machine(mover)).0)
    }

    /// Returns which earlier calibration file was not believed, and why. The calibration was then
    /// measured anew.
    #[must_use]
    pub fn doubted(&self) -> Option<&str> {
        self.calibration.get()?.1.as_deref()
    }

    /// Returns the crossovers for the current load.
    fn crossovers(&self) -> Crossovers {
        const BUSY: u32 = 1 << 31;
        let Some(calibration) = self.calibration() else { return Crossovers::default() };
        let seen = self.decisions.load(Ordering::Relaxed);
        let count = seen & !BUSY;
        let busy =
            if count.is_multiple_of(REMEASURE_INTERVAL) { others_run() } else { seen & BUSY != 0 };
        // Threads that race here merely check a little more or less often.
        self.decisions.store(
            ((count + 1) % REMEASURE_INTERVAL) | if busy { BUSY } else { 0 },
            Ordering::Relaxed,
        );
        if busy { calibration.beside } else { calibration.alone }
    }

    /// Returns the reason why no pages are moved here, or `None` if they are.
    #[must_use]
    pub fn why_not(&self) -> Option<&str> {
        self.mover.as_ref().err().map(String::as_str)
    }

    /// Exchanges the contents of two ranges of `pages` pages each (MEM-17.1). No thread may touch
    /// them meanwhile; see [the module](super).
    ///
    /// # Errors
    /// [`PlacementError`], with nothing changed.
    pub fn exchange(
        &self,
        a: PageRange<'_>,
        b: PageRange<'_>,
        pages: u64,
        way: PlacementMethod,
    ) -> Result<Placed, PlacementError> {
        self.exchange_in_steps(a, b, pages, way, &mut |step| step())
    }

    /// As [`Placement::exchange`], a few MiB at a time. `each` receives every step and runs it
    /// where it wants.
    ///
    /// # Errors
    /// As [`Placement::exchange`].
    pub fn exchange_in_steps(
        &self,
        a: PageRange<'_>,
        b: PageRange<'_>,
        pages: u64,
        way: PlacementMethod,
        each: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<Placed, PlacementError> {
        let (a, b) = (Span::check(a, pages)?, Span::check(b, pages)?);
        self.act(Act::Exchange, &a, &b, way, each)
    }

    /// Transfers the contents of `pages` pages at `from` to `to` (MEM-17.3). The content of `from`
    /// is undefined afterwards. As for [`Placement::exchange`], no thread may touch either range
    /// meanwhile.
    ///
    /// # Errors
    /// As [`Placement::exchange`].
    pub fn transfer(
        &self,
        from: PageRange<'_>,
        to: PageRange<'_>,
        pages: u64,
        way: PlacementMethod,
    ) -> Result<Placed, PlacementError> {
        self.transfer_in_steps(from, to, pages, way, &mut |step| step())
    }

    /// As [`Placement::transfer`], in steps as [`Placement::exchange_in_steps`].
    ///
    /// # Errors
    /// As [`Placement::exchange`].
    pub fn transfer_in_steps(
        &self,
        from: PageRange<'_>,
        to: PageRange<'_>,
        pages: u64,
        way: PlacementMethod,
        each: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<Placed, PlacementError> {
        let (to, from) = (Span::check(to, pages)?, Span::check(from, pages)?);
        self.act(Act::Transfer, &to, &from, way, each)
    }

    fn act(
        &self,
        act: Act,
        to: &Span<'_>,
        from: &Span<'_>,
        way: PlacementMethod,
        each: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<Placed, PlacementError> {
        to.check_apart(from)?;
        // Below this size a copy is always quickest, so no further checks are needed.
        let way = if way == PlacementMethod::Auto && to.len < LEAST {
            PlacementMethod::Copy
        } else {
            way
        };
        let mover = match way {
            PlacementMethod::Copy => None,
            PlacementMethod::Auto => self.mover_for(to, from).ok(),
            PlacementMethod::Move => Some(self.mover_for(to, from).map_err(|why| {
                let (from, to) = (from.region.kind(), to.region.kind());
                PlacementError::NotMovable { from, to, why }
            })?),
        };
        let huge = to.region.huge_pages();
        let way = if mover.is_some() { way } else { PlacementMethod::Copy };
        let ChosenStrategy { moved, take_by_exchange } =
            choose(act, way, (to, from), huge, || self.crossovers());
        // A demanded move may begin anywhere. Huge pages are then split.
        let huge = huge.filter(|size| {
            [to, from].iter().all(|span| (span.at.addr().get() + moved.start).is_multiple_of(*size))
        });
        let moves = mover.map(|mover| Moves { mover, huge: huge.is_some(), take_by_exchange });
        let most = CHUNK.max(huge.unwrap_or(0));
        let mut placed = Placed::default();
        for (part, moves) in
            [(0..moved.start, None), (moved.clone(), moves), (moved.end..to.len, None)]
        {
            for first in part.clone().step_by(most) {
                let len = most.min(part.end - first);
                // SAFETY: the step is inside both spans.
                let (to, from) = unsafe { (to.at.add(first), from.at.add(first)) };
                // SAFETY: spans are mapped, writable, held, and apart; a mover was given only for
                // private memory, which it watches.
                each(&mut || placed += unsafe { chunk::run(act, moves, to, from, len) });
            }
        }
        Ok(placed)
    }

    /// Returns the mover for these two ranges, or the reason why there is none.
    fn mover_for(&self, to: &Span<'_>, from: &Span<'_>) -> Result<&Mover, String> {
        let mover = self.mover.as_ref().map_err(Clone::clone)?;
        if !mover.is_of_this_process() {
            return Err("this process was forked, and would move its parent's pages".into());
        }
        for span in [to, from] {
            let (memory, watched) = span
                .region
                .private_memory()
                .ok_or("only private regions can be moved within a process")?;
            if !mover.watch(memory, watched) {
                return Err("the kernel does not let this region be registered".into());
            }
        }
        if to.region.huge_pages() == from.region.huge_pages() {
            Ok(mover)
        } else {
            Err("one has huge pages and the other small ones".into())
        }
    }
}
