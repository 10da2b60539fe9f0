//! Chooses the quickest way.

use super::calibration::Crossovers;
use super::huge_moves;
use crate::memory::placement::chunk::Act;
use crate::memory::placement::range::Span;
use crate::memory::placement::strategy::PlacementMethod;
use core::ops::Range;

/// Bytes below which any machine copies, because a call into the kernel costs more.
pub(super) const LEAST: usize = 16 << 10;
/// Bytes from which trying a transfer's destination costs little: the kernel refuses at once if it
/// is not empty.
const TRY_FROM: usize = 128 << 10;

/// The chosen way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChosenStrategy {
    /// Bytes from the start that are moved. The bytes around them are copied.
    pub moved: Range<usize>,
    /// Exchange pages with a transfer's destination that has some, rather than copying over them.
    pub take_by_exchange: bool,
}

/// Chooses how to act. `huge` is the page size of both ranges, if their pages are huge.
/// `crossovers` is called only if the sizes matter.
pub(super) fn choose(
    act: Act,
    way: PlacementMethod,
    (to, from): (&Span<'_>, &Span<'_>),
    huge: Option<usize>,
    crossovers: impl FnOnce() -> Crossovers,
) -> ChosenStrategy {
    let nothing = ChosenStrategy { moved: 0..0, take_by_exchange: false };
    let all = ChosenStrategy { moved: 0..to.len, take_by_exchange: true };
    let pays = |from: Option<usize>| from.is_some_and(|from| to.len >= from);
    match (way, huge) {
        (PlacementMethod::Copy, _) => nothing,
        (PlacementMethod::Move, _) => all,
        (PlacementMethod::Auto, Some(size)) => {
            let moved = huge_moves::whole(to.at.addr().get(), from.at.addr().get(), to.len, size);
            if !moved.is_empty() && crossovers().huge.is_some() {
                ChosenStrategy { moved, ..all }
            } else {
                nothing
            }
        }
        (PlacementMethod::Auto, None) => {
            let crossovers = crossovers();
            match act {
                Act::Exchange if pays(crossovers.exchange) => all,
                Act::Transfer if pays(crossovers.taking) => all,
                Act::Transfer if to.len >= TRY_FROM && pays(crossovers.moving) => {
                    ChosenStrategy { take_by_exchange: false, ..all }
                }
                _ => nothing,
            }
        }
    }
}
