//! Refuses synchronisation while guards are alive. Synchronisation makes other nodes' writes
//! visible, and the contents that a guard shows must not change.

use crate::Result;
use crate::node::Node;
use oikaze_os::memory::tracking::LiveGuards;
use std::sync::Arc;

impl Node {
    /// Returns the counter of the guards of this node's arrays.
    pub fn guards(&self) -> &Arc<LiveGuards> {
        &self.guards
    }

    /// Refuses a collective while any guard of this node is alive (COH-6.10).
    pub fn check_no_guard(&self, doing: &str) -> Result<()> {
        if self.guards.are_any() { self.refuse_for_guard(doing, false) } else { Ok(()) }
    }

    /// Refuses a lock while a guard that the calling thread took is alive (COH-7.7).
    pub fn check_no_guard_of_this_thread(&self, doing: impl FnOnce() -> String) -> Result<()> {
        // The thread's guards may belong to another node of this process, and then none is found
        // here.
        let may_be = self.guards.are_any() && LiveGuards::are_any_of_this_thread();
        if may_be { self.refuse_for_guard(&doing(), true) } else { Ok(()) }
    }

    #[cold]
    fn refuse_for_guard(&self, doing: &str, of_this_thread: bool) -> Result<()> {
        let refusal =
            self.with_engine(|engine| engine.pages().guard_in_the_way(doing, of_this_thread));
        // A counted guard may have ended since.
        refusal.map_or(Ok(()), |refusal| Err(refusal.into()))
    }
}
