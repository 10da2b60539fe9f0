//! The choice of a way, and the calls.

use super::super::RegionKind;
use super::super::huge::{PageSize, huge_page};
use super::mover::Mover;
use super::span::Span;
use super::spare::CHUNK;
use super::{Pages, Placed, PlacementError, copy, huge_moves};
use crate::without::Without;
use core::ops::Range;
use core::ptr::NonNull;
use rustix::mm::{Advice, madvise};
use std::sync::OnceLock;

/// How bytes are to come to their place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Way {
    /// What is quickest here, for this memory and this size.
    #[default]
    Auto,
    /// Moved, whatever the size; pages that the kernel refuses are copied.
    Move,
    /// Copied.
    Copy,
}

/// What is done with two ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Exchange,
    Transfer,
}

/// What pages are moved with, and from which size on that pays.
#[derive(Debug)]
pub struct Placement {
    mover: Result<Mover, String>,
}

impl Placement {
    /// With what the kernel offers and the user has not switched off.
    #[must_use]
    pub fn new(without: &Without) -> Placement {
        let switched_off = [("uffd", without.uffd), ("move", without.page_move)].into_iter().find(|(_, off)| *off);
        let mover = match switched_off {
            Some((word, _)) => Err(format!("switched off by OIKAZE_WITHOUT={word}")),
            None => Mover::open().map_err(|why| format!("the kernel does not offer it here: {why}")),
        };
        Placement { mover }
    }

    /// That of this process, opened at the first call, without what `OIKAZE_WITHOUT` names (nothing, if it cannot be read).
    #[must_use]
    pub fn of_this_process() -> &'static Placement {
        static PLACEMENT: OnceLock<Placement> = OnceLock::new();
        PLACEMENT.get_or_init(|| Placement::new(&Without::from_env().unwrap_or_default()))
    }

    /// Why no pages are moved here; `None` if they are.
    #[must_use]
    pub fn why_not(&self) -> Option<&str> {
        self.mover.as_ref().err().map(String::as_str)
    }

    /// Exchange the contents of two ranges of `pages` pages each (MEM-14.1). Nobody may touch them meanwhile; see [the module](super).
    ///
    /// # Errors
    /// [`PlacementError`], with nothing changed.
    pub fn exchange(&self, a: Pages<'_>, b: Pages<'_>, pages: u64, way: Way) -> Result<Placed, PlacementError> {
        self.exchange_in_steps(a, b, pages, way, &mut |step| step())
    }

    /// As [`Placement::exchange`], a few MiB at a time: `each` is given the steps, and runs each of them where it wants.
    ///
    /// # Errors
    /// As [`Placement::exchange`].
    pub fn exchange_in_steps(
        &self,
        a: Pages<'_>,
        b: Pages<'_>,
        pages: u64,
        way: Way,
        each: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<Placed, PlacementError> {
        let (a, b) = (Span::check(a, pages)?, Span::check(b, pages)?);
        self.act(Act::Exchange, &a, &b, way, each)
    }

    /// Bring the contents of `pages` pages at `from` to `to` (MEM-14.3); what is at `from` afterwards is not said. As for
    /// [`Placement::exchange`], nobody may touch either range meanwhile.
    ///
    /// # Errors
    /// As [`Placement::exchange`].
    pub fn transfer(&self, from: Pages<'_>, to: Pages<'_>, pages: u64, way: Way) -> Result<Placed, PlacementError> {
        self.transfer_in_steps(from, to, pages, way, &mut |step| step())
    }

    /// As [`Placement::transfer`], in steps as [`Placement::exchange_in_steps`].
    ///
    /// # Errors
    /// As [`Placement::exchange`].
    pub fn transfer_in_steps(
        &self,
        from: Pages<'_>,
        to: Pages<'_>,
        pages: u64,
        way: Way,
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
        way: Way,
        each: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<Placed, PlacementError> {
        to.check_apart(from)?;
        let mover = match (way, self.mover_for(to, from)) {
            (Way::Copy, _) => None,
            (Way::Auto, mover) => mover.ok(),
            (Way::Move, mover) => Some(mover.map_err(|why| {
                let (from, to) = (from.region.kind(), to.region.kind());
                PlacementError::NotMovable { from, to, why }
            })?),
        };
        let moved = mover.map_or(0..0, |_| movable(act, to, from, way));
        let huge = huge_page().filter(|_| to.region.page_size() == PageSize::Huge);
        let step = CHUNK.max(huge.unwrap_or(0));
        let mut placed = Placed::default();
        for (part, mover) in [(0..moved.start, None), (moved.clone(), mover), (moved.end..to.len, None)] {
            for first in part.clone().step_by(step) {
                let len = step.min(part.end - first);
                // SAFETY: the step is inside both spans.
                let (to, from) = unsafe { (to.at.add(first), from.at.add(first)) };
                // SAFETY: spans are mapped, writable, held, and apart; a mover was given only for private memory, which it watches.
                each(&mut || placed += unsafe { one_step(act, mover, to, from, len, huge) });
            }
        }
        Ok(placed)
    }

    /// What moves pages between these two, or why nothing does.
    fn mover_for(&self, to: &Span<'_>, from: &Span<'_>) -> Result<&Mover, String> {
        let mover = self.mover.as_ref().map_err(Clone::clone)?;
        if !mover.is_of_this_process() {
            return Err("this process was forked, and would move its parent's pages".into());
        }
        for span in [to, from] {
            let (memory, watched) = span.region.private_memory().ok_or("only private regions can be moved within a process")?;
            if !mover.watch(memory, watched) {
                return Err("the kernel does not let this region be registered".into());
            }
        }
        if to.region.page_size() == from.region.page_size() {
            Ok(mover)
        } else {
            Err("one has huge pages and the other small ones".into())
        }
    }
}

/// Which part, in bytes from the start, is moved.
fn movable(act: Act, to: &Span<'_>, from: &Span<'_>, way: Way) -> Range<usize> {
    let huge = huge_page().filter(|_| to.region.page_size() == PageSize::Huge);
    match (huge, way) {
        (Some(size), Way::Auto) if to.region.len() >= size && from.region.len() >= size => {
            huge_moves::whole(to.at.addr().get(), from.at.addr().get(), to.len, size)
        }
        (_, Way::Auto) if to.len < pays_from(act) => 0..0,
        _ => 0..to.len,
    }
}

/// Bytes from which on an act is quicker by moving pages.
fn pays_from(act: Act) -> usize {
    match act {
        Act::Exchange => 256 << 10,
        Act::Transfer => 128 << 10,
    }
}

/// # Safety
/// `len` bytes at both places are mapped, writable, held, and apart, without references to them; with a mover they are whole pages of
/// private regions that it watches.
unsafe fn one_step(
    act: Act,
    mover: Option<&Mover>,
    to: NonNull<u8>,
    from: NonNull<u8>,
    len: usize,
    huge: Option<usize>,
) -> Placed {
    let copied = Placed { moved: 0, copied: len as u64 };
    match (act, mover) {
        (Act::Exchange, Some(mover)) => {
            let huge = huge.is_some_and(|size| to.addr().get().is_multiple_of(size));
            // SAFETY: the caller vouches.
            unsafe { mover.exchange(to, from, len, huge) }
        }
        (Act::Transfer, Some(mover)) => {
            // SAFETY: whole pages of private anonymous memory, whose bytes are about to be replaced. Locked ones stay, and are copied over.
            let _ = unsafe { madvise(to.as_ptr().cast(), len, Advice::LinuxDontNeed) };
            // SAFETY: the caller vouches.
            unsafe { mover.carry(to, from, len) }
        }
        (Act::Exchange, None) => {
            // SAFETY: the caller vouches.
            unsafe { copy::exchange(to, from, len) };
            copied
        }
        (Act::Transfer, None) => {
            // SAFETY: the caller vouches.
            unsafe { copy::copy(to, from, len) };
            copied
        }
    }
}

/// A checked range of the program's view of a shared region.
fn view_of(place: Pages<'_>, pages: u64) -> Result<(*mut u8, usize), PlacementError> {
    let span = Span::check(place, pages)?;
    match place.region.kind() {
        // SAFETY: the offset is inside the region, whose view is as long as its alias.
        RegionKind::Shared => Ok((unsafe { place.region.view_ptr().add(place.offset as usize) }, span.len)),
        kind => Err(PlacementError::NoView { kind }),
    }
}

/// Map pages of a shared region, whose bytes came through the alias, into the program's view, so that it takes no fault there (MEM-14.6).
/// By one read a run of pages, for the kernel maps those around it: that is quicker than the calls that ask for it.
///
/// # Errors
/// [`PlacementError`]: bad pages, or a region without a view.
pub fn install(place: Pages<'_>, pages: u64) -> Result<(), PlacementError> {
    /// Bytes that the kernel maps around a page that is read, from a multiple of it on (`fault_around_bytes`).
    const AROUND: usize = 64 << 10;
    let (at, len) = view_of(place, pages)?;
    let mut done = 0;
    while done < len {
        let next = at.wrapping_add(done);
        // SAFETY: inside the view; the file has all its pages. Others may write there: the byte is read for its page's sake.
        unsafe { next.read_volatile() };
        done += AROUND - next.addr() % AROUND;
    }
    Ok(())
}

/// Take pages out of the program's view; their bytes stay, and come back by [`install`] or at the next touch.
///
/// # Errors
/// As [`install`].
pub fn retract(place: Pages<'_>, pages: u64) -> Result<(), PlacementError> {
    let (at, len) = view_of(place, pages)?;
    // SAFETY: inside the view, a shared file mapping of ours: unmapping its pages loses no byte, and any touch maps them again.
    let _ = unsafe { madvise(at.cast(), len, Advice::LinuxDontNeed) };
    Ok(())
}
