//! What coherence asks of the machine: one tracked view and one untracked alias of each array's
//! pages.

use crate::Rank;
use core::ops::Range;

/// An array's number in this job, the same on every node.
pub type ArrayId = u32;

/// How a page is mapped into the application's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Loads work, a store traps.
    Read,
    /// Loads and stores work, nothing traps.
    Write,
}

/// The pages of all arrays on this node. `oikaze-os` has the real one (userfaultfd or mprotect);
/// the simulator has a model.
///
/// Ranges are in pages. Every call is about the *view*; `read` and `write` go through the *alias*,
/// which never traps. A change that the machine cannot make is told by [`failure`](Pages::failure),
/// and not by the call.
pub trait Pages {
    /// Map pages whose bytes are in place; threads that wait for them go on.
    fn install(&mut self, array: ArrayId, pages: Range<u64>, access: Access);
    /// Change mapped pages to `access`; threads that wait to write go on if it is `Write`.
    fn set_access(&mut self, array: ArrayId, pages: Range<u64>, access: Access);
    /// Unmap: the next touch traps. The bytes stay in the alias.
    fn invalidate(&mut self, array: ArrayId, pages: Range<u64>);
    /// Copy one page out, through the alias.
    fn read(&self, array: ArrayId, page: u64, into: &mut [u8]);
    /// Copy bytes in at a byte offset from the array's start, through the alias.
    fn write(&mut self, array: ArrayId, offset: u64, bytes: &[u8]);
    /// Merge another node's changes into a page whose home is here: as `write`, but bytes under
    /// live guards wait until those end (COH-3.9).
    fn merge(&mut self, array: ArrayId, offset: u64, bytes: &[u8]) {
        self.write(array, offset, bytes);
    }
    /// Do bytes that were merged into these pages wait for the end of guards?
    fn has_pending(&self, _array: ArrayId, _pages: Range<u64>) -> bool {
        false
    }
    /// Copy one page out, with the merged bytes that wait.
    fn read_newest(&self, array: ArrayId, page: u64, into: &mut [u8]) {
        self.read(array, page, into);
    }
    /// A page is mapped with old bytes, because its home is dead (COH-8.3). Guards are to know
    /// (COH-8.8).
    fn lost(&mut self, _array: ArrayId, _page: u64, _home: Rank) {}
    /// Why a change could not be made, from the first such on. All views are untracked then:
    /// whoever waits in one goes on, and nothing is changed any more (COH-8.5).
    fn failure(&self) -> Option<&str> {
        None
    }
}
