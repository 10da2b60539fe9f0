//! Queues of a node's mail.

use super::arrivals::ArrivalQueue;
use super::mailbox::{Mailbox, Receives};
use std::sync::Arc;

/// Mail of a node.
#[derive(Default)]
pub struct MailQueues {
    pub mailbox: Arc<Mailbox>,
    pub arrivals: ArrivalQueue,
}

impl MailQueues {
    /// Returns the posted receives, as the engine sees them.
    pub fn posted(&self) -> Arc<Receives> {
        Arc::new(Receives(Arc::clone(&self.mailbox)))
    }
}
