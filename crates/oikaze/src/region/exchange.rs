//! A region whose pages are about to change place with those of a local peer's.

use super::LocalRegion;
use crate::Result;
use crate::engine::{Request, Swap, Value};
use oikaze_protocol::Rank;

impl LocalRegion {
    /// Have the end of the registration wait for this exchange, whatever its steps: between two of
    /// them no operation is under way. `None`: it is registered no more.
    pub(crate) fn exchanging<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if self.inner.node.is_forked() {
            return None;
        }
        let inside = self.inner.direct.enter()?;
        let outcome = work();
        drop(inside);
        if self.inner.direct.is_over() {
            self.inner.node.tell_waiters();
        }
        Some(outcome)
    }

    /// No local peer reaches the memory by itself any more, now or later: it would not see what has
    /// changed place (MEM-20.4).
    pub(crate) fn keep_local_peers_out(&self) {
        let (node, region) = (&self.inner.node, &self.inner.region);
        node.with_engine(|engine| engine.keep_local_peers_out(region));
        self.wait_for_local_peers();
    }

    /// Exchange as many as `len` bytes of whole units with a local peer's region, as far as they
    /// are found in one piece; how many. Waits for the local peer's answer, or its end: an exchange
    /// is not left half done.
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
