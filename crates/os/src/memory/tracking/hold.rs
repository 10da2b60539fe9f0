//! Parts of a live guard: its loan in this process, its entry for other nodes, and its private
//! copy, if it has one.

use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use super::error::{END_GUARD, SharedError};
use super::others::{Begun, GuardBytes, GuardKind};
use super::private_copy::PrivateCopy;
use super::shared_memory::SharedMemory;

/// Loan, entry and copy of a live guard, until [`SharedMemory::end_hold`].
#[derive(Debug)]
pub(super) struct GuardHold {
    ticket: u64,
    /// Bytes from the first one to the last one.
    pub bytes: Range<usize>,
    entry: Option<usize>,
    pub copy: Option<Arc<PrivateCopy>>,
    taken_at: Option<&'static Location<'static>>,
    is_over: bool,
}

/// Bytes that a guard is to cover.
pub(super) struct WantedGuard {
    /// Bytes from the first one to the last one.
    pub hull: Range<usize>,
    /// Rows of a guard that is not one range, in order and disjoint. It is empty for one range.
    pub rows: Vec<Range<usize>>,
    pub kind: GuardKind,
    /// Is `true` if the guard lends a reference, and not an address.
    pub lends: bool,
    /// Line of the program, unless the caller is not written in Rust.
    pub taken_at: Option<&'static Location<'static>>,
}

impl SharedMemory {
    /// Lends bytes to a guard, unless another guard of this process or of another node is in the
    /// way.
    pub(super) fn hold(&self, wanted: WantedGuard) -> Result<GuardHold, SharedError> {
        let WantedGuard { hull, rows, kind, lends, taken_at } = wanted;
        let is_block = rows.len() > 1;
        let mut copied = rows.clone();
        let ticket = self.borrows().borrow_rows(self.name(), hull.clone(), rows, kind, taken_at)?;
        let mut hold =
            GuardHold { ticket, bytes: hull, entry: None, copy: None, taken_at, is_over: false };
        if let Some(others) = self.others() {
            let begun = match kind {
                GuardKind::Merge => Ok(Begun::Copies),
                kind => {
                    let bytes = hold.bytes.start as u64..hold.bytes.end as u64;
                    others.begin(&GuardBytes { kind, bytes, is_block, lends, taken_at })
                }
            };
            let copy = match begun {
                Ok(Begun::InPlace(entry)) => {
                    hold.entry = Some(entry);
                    return Ok(hold);
                }
                Ok(Begun::Copies) => {
                    if copied.is_empty() {
                        copied.push(hold.bytes.clone());
                    }
                    PrivateCopy::of(self, hold.bytes.clone(), copied, kind != GuardKind::Read)
                }
                Err(other) => Err(self.refusal(kind, &hold.bytes, other)),
            };
            match copy {
                Ok(copy) => hold.copy = Some(Arc::new(copy)),
                Err(why) => {
                    self.end_hold(&mut hold);
                    return Err(why);
                }
            }
        }
        Ok(hold)
    }

    /// Returns the address at which a guard shows this byte of the array.
    pub(super) fn shown_at(&self, hold: &GuardHold, at: usize) -> usize {
        hold.copy.as_ref().map_or_else(|| self.view().base() + at, |copy| copy.address(at))
    }

    /// Ends what a guard holds. Returns the race that it has found, if any: bytes that have changed
    /// under the guard are not stored where a guard of another node is in the way (COH-16.7).
    pub(super) fn end_hold(&self, hold: &mut GuardHold) -> Option<SharedError> {
        // A child of fork ends nothing of its parent's.
        if std::mem::replace(&mut hold.is_over, true) || !self.is_own_process() {
            return None;
        }
        let mut race = None;
        if let Some(others) = self.others() {
            if let Some(copy) = &hold.copy {
                let mut store = |elements: &Range<u64>| {
                    copy.changes_in(elements, |at, bytes| self.store_beside_guards(at, bytes));
                };
                let changed = copy.changed(others.element_len());
                let other = others.merge(&changed, hold.taken_at, &mut store);
                race = other.map(|other| self.refusal(GuardKind::Merge, &hold.bytes, other));
            }
            if let Some(entry) = hold.entry {
                others.end(entry);
            }
        }
        self.end_loan(hold.ticket);
        race
    }

    /// Ends what a guard holds that nobody ends. The next collective of this node reports a race.
    pub(super) fn drop_hold(&self, hold: &mut GuardHold) {
        if let (Some(race), Some(others)) = (self.end_hold(hold), self.others()) {
            others.keep_race(race.reason());
        }
    }

    /// Returns the error of a guard of another node that is in the way.
    #[cold]
    pub(super) fn refusal(
        &self,
        kind: GuardKind,
        bytes: &Range<usize>,
        other: String,
    ) -> SharedError {
        let doing = match kind {
            GuardKind::Read => "reading",
            GuardKind::Write => "writing",
            GuardKind::Merge => "merging",
            GuardKind::ReadOperation | GuardKind::Operation => "an operation on",
        };
        SharedError::invalid(
            format!("{doing} bytes {}..{} of array {:?}", bytes.start, bytes.end, self.name()),
            other,
            format!(
                "{END_GUARD}, and synchronise the nodes: two of them use these bytes at the same time, and one writes."
            ),
        )
    }
}
