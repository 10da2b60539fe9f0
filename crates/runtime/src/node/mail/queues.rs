//! Queues of a node's mail.

use super::arrivals::ArrivalQueue;
use super::mailbox::{Mailbox, Receives};
use crate::node::collectives::awaited::AwaitedParcels;
use std::sync::Arc;

/// Mail of a node.
#[derive(Default)]
pub struct MailQueues {
    pub mailbox: Arc<Mailbox>,
    pub arrivals: ArrivalQueue,
    /// Long parcels for which collectives wait.
    pub parcels: Arc<AwaitedParcels>,
}

impl MailQueues {
    /// Returns the posted receives and the awaited parcels, as the engine sees them.
    pub fn posted(&self) -> Arc<Receives> {
        Arc::new(Receives(Arc::clone(&self.mailbox), Arc::clone(&self.parcels)))
    }
}
