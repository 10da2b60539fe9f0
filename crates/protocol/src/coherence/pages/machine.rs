//! Interface of coherence to the machine: one tracked view and one untracked alias of each array's
//! pages.

use crate::Rank;
use core::ops::Range;

/// Number of an array in this job, the same on every node.
pub type ArrayId = u32;

/// Mapping of a page into the application's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Loads work, a store traps.
    Read,
    /// Loads and stores work, nothing traps.
    Write,
}

/// Pages of all arrays on this node. `oikaze-os` has the real implementation (userfaultfd or
/// mprotect), and the simulator has a model.
///
/// Ranges are in pages. Every call is about the *view*, except that `read` and `write` go through
/// the *alias*, which never traps. A change that the machine cannot make is reported by
/// [`failure`](Pages::failure), and not by the call.
pub trait Pages {
    /// Maps pages whose bytes are in place, and wakes up threads that wait for them.
    fn install(&mut self, array: ArrayId, pages: Range<u64>, access: Access);
    /// Changes mapped pages to `access`. Threads that wait to write are woken up if it is `Write`.
    fn set_access(&mut self, array: ArrayId, pages: Range<u64>, access: Access);
    /// Unmaps pages, so that the next touch traps. The bytes stay in the alias.
    fn invalidate(&mut self, array: ArrayId, pages: Range<u64>);
    /// Copies one page out, through the alias.
    fn read(&self, array: ArrayId, page: u64, into: &mut [u8]);
    /// Copies bytes in at a byte offset from the array's start, through the alias.
    fn write(&mut self, array: ArrayId, offset: u64, bytes: &[u8]);
    /// Called before bytes of these pages come by several calls of `write`, so that the machine can
    /// find memory for all of them by one call.
    fn expect_writes(&mut self, _array: ArrayId, _pages: Range<u64>) {}
    /// Merges another node's changes into a valid page: a diff at its home, or an update elsewhere.
    /// It is like `write`, but bytes under live guards wait until those guards end (COH-3.9,
    /// COH-10.12).
    fn merge(&mut self, array: ArrayId, offset: u64, bytes: &[u8]) {
        self.write(array, offset, bytes);
    }
    /// Returns `true` if the network may receive bytes of a fetch directly into these pages of the
    /// alias, which are not mapped. It may not if guards show bytes of them (COH-3.9).
    fn may_receive(&mut self, _array: ArrayId, _pages: Range<u64>) -> bool {
        false
    }
    /// Returns `true` if bytes that were merged into these pages wait for the end of guards.
    fn has_pending(&self, _array: ArrayId, _pages: Range<u64>) -> bool {
        false
    }
    /// Copies one page out, including merged bytes that wait.
    fn read_newest(&self, array: ArrayId, page: u64, into: &mut [u8]) {
        self.read(array, page, into);
    }
    /// Called when a page is mapped with old bytes because its home is dead (COH-8.3). Guards over
    /// the page report that (COH-8.8).
    fn lost(&mut self, _array: ArrayId, _page: u64, _home: Rank) {}
    /// Gives back the memory of an array that no node uses any more (COH-14.3).
    fn free(&mut self, _array: ArrayId) {}
    /// Returns why a change could not be made, from the first such failure on. All views are
    /// untracked then. Threads that wait in a view go on, and nothing is changed any more
    /// (COH-8.5).
    fn failure(&self) -> Option<&str> {
        None
    }
}
