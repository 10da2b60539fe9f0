//! State of updates on one node.

use crate::coherence::pages::machine::ArrayId;
use crate::coherence::updating::receive::UpdateReceiver;
use crate::coherence::updating::send::UpdateSender;
use crate::coherence::updating::subscribe::Feeds;

/// All state of updates on one node.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Updates {
    pub sending: UpdateSender,
    pub receiving: UpdateReceiver,
    pub feeds: Feeds,
}

impl Updates {
    /// Forgets a freed array. No update of it is under way, because the departure that frees it
    /// counts them all.
    pub fn forget(&mut self, array: ArrayId) {
        self.sending.forget(array);
        self.receiving.forget(array);
        self.feeds.forget(array);
    }
}
