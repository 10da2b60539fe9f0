//! Exchange of a region's pages with those of a local peer's region, at this node.

use super::LocalRegion;
use crate::error::Result;
use oikaze_engine::{Request, Swap, Value};
use oikaze_protocol::Rank;

impl LocalRegion {
    /// Runs `work`, and has the end of the registration wait for it, because no operation is under
    /// way between two steps of an exchange. Returns `None` if the region is no longer registered.
    pub(crate) fn exchanging<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.inner.node.enter()?;
        let inside = self.inner.direct.enter()?;
        let outcome = work();
        drop(inside);
        if self.inner.direct.is_closed() {
            self.inner.node.tell_waiters();
        }
        Some(outcome)
    }

    /// Keeps local peers from mapping the memory, now and later, because a mapping would not see
    /// the pages that have changed place (MEM-20.4).
    pub(crate) fn keep_local_peers_out(&self) {
        let (node, region) = (&self.inner.node, &self.inner.region);
        node.with_engine(|engine| engine.shm().keep_out(region));
        self.wait_for_local_peers();
    }

    /// Exchanges up to `len` bytes of whole units with a local peer's region, as far as they are in
    /// one piece. Returns the number of bytes. Waits for the local peer's answer or its end,
    /// because an exchange must not stay half done.
    #[track_caller]
    pub(crate) fn swap_pages(
        &self,
        own_offset: u64,
        at: Rank,
        key: u64,
        offset: u64,
        len: u64,
    ) -> Result<u64> {
        let swap = Swap { at, key, offset, own: self.inner.registered.slot, own_offset, len };
        let asked = self.inner.node.submit(Request::Swap(Box::new(swap)), None);
        match self.inner.node.outcome(
            &format_args!("exchanging pages with node {at}"),
            &asked,
            None,
        )? {
            Value::Swapped(len) => Ok(len),
            _ => Ok(0),
        }
    }
}
