//! Layers above Wind: remote memory and coherence, and the memory that both work on.

use crate::buffer_pool::BufferPool;
use crate::client::posted::{MessagePlacement, PostedMemory};
use crate::inbox::Parcel;
use oikaze_os::memory::RegionTable;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{Coherence, Pages};
use oikaze_protocol::rma::{Rma, StreamStep};
use oikaze_protocol::time::Time;
use oikaze_protocol::traffic::Traffic;
use oikaze_protocol::wind::Token;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Remote memory and coherence, with the memory of this node.
pub(crate) struct Layers<P> {
    pub rma: Rma,
    pub coherence: Coherence,
    /// Pages of the shared arrays.
    pub pages: P,
    /// Table of regions.
    pub memory: RegionTable,
    pub buffer_pool: Arc<BufferPool>,
    /// Messages to other nodes.
    pub traffic: Traffic,
    /// Posted receives, once the node's threads have any.
    pub posted: Option<Arc<dyn PostedMemory>>,
    /// Messages and parcels that are being placed into memory that waits for them, by sender and
    /// number.
    pub placing: BTreeMap<(Rank, u64), Box<dyn MessagePlacement>>,
    /// Number of users' messages that were delivered and that no posted receive has been offered.
    /// They come before all later ones (MEM-26.2).
    pub unoffered: usize,
    /// Number of messages that were placed into posted memory since the start.
    pub placed_messages: u64,
    /// Messages that were placed into posted memory lately: sender and length.
    pub received: Vec<(Rank, u64)>,
    /// Messages about multicast streams that came lately: sender, id of the stream, and step.
    pub stream_steps: Vec<(Rank, u64, StreamStep)>,
    /// Parcels that were placed lately.
    pub placed_parcels: Vec<Parcel>,
    /// Number of receives lately whose messages will not be placed. Each may have ended by that.
    pub unplaced: usize,
    /// Number of messages since the last turn whose senders may wait for this node.
    pub requests: usize,
    /// Number of messages since the start to which bulk gives way (WIND-3.10).
    pub urgent: u64,
    /// Time without a sign of life after which a peer counts as dead.
    pub failure_time: Duration,
}

impl<P: Pages> Layers<P> {
    pub fn new(me: Rank, nodes: u32, pages: P, failure_time: Duration) -> Self {
        Self {
            rma: Rma::new(),
            coherence: Coherence::new(me, nodes),
            pages,
            memory: RegionTable::new(),
            buffer_pool: Arc::default(),
            traffic: Traffic::default(),
            posted: None,
            placing: BTreeMap::new(),
            unoffered: 0,
            placed_messages: 0,
            received: Vec::new(),
            stream_steps: Vec::new(),
            placed_parcels: Vec::new(),
            unplaced: 0,
            requests: 0,
            urgent: 0,
            failure_time,
        }
    }

    /// Runs the timers of both layers: asks peers that are silent about what is awaited from them.
    pub fn timers(&mut self, now: Time) {
        self.coherence.ask(now, self.failure_time);
        self.rma.check_unanswered(now, self.failure_time);
    }

    /// Returns the time at which [`Layers::timers`] has something to do at the latest.
    pub fn next_timeout(&self) -> Option<Time> {
        [self.coherence.next_question(), self.rma.next_check()].into_iter().flatten().min()
    }

    /// Returns `true` if a layer has a message to post.
    pub fn has_messages(&self) -> bool {
        self.coherence.owes() || self.rma.answers() > 0
    }

    /// Called when a message that is being placed will never be whole.
    pub fn abort_placement(&mut self, from: Rank, number: u64) {
        if let Some(placement) = self.placing.remove(&(from, number)) {
            placement.abort();
            self.unplaced += 1;
        }
    }

    /// Called when messages of these senders that have begun will never be whole.
    pub fn abort_placements(&mut self, of: impl Fn(Rank) -> bool) {
        while let Some(&(from, number)) = self.placing.keys().find(|(from, _)| of(*from)) {
            self.abort_placement(from, number);
        }
    }

    /// Called when a peer is dead.
    pub fn node_died(&mut self, peer: Rank) {
        self.abort_placements(|from| from == peer);
        self.rma.node_died(peer);
        self.coherence.node_died(peer, &mut self.pages);
    }

    /// Forgets an operation: nothing of it is read, sent or placed any more.
    pub fn cancel(&mut self, token: Token) {
        self.rma.cancel(token);
        self.coherence.cancel(token, &mut self.pages);
    }
}

/// Layer for which a message was posted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// No layer; nobody waits for the outcome of the message.
    Nobody,
    /// An operation that a thread began and that remote memory tracks.
    Operation,
    /// Remote memory itself, for example for an answer.
    Remote,
    /// Coherence made the request.
    Coherence,
}

impl Owner {
    pub fn of(token: Token) -> Self {
        if token == Token::NONE {
            Owner::Nobody
        } else if Rma::owns(token) {
            Owner::Remote
        } else if Coherence::owns(token) {
            Owner::Coherence
        } else {
            Owner::Operation
        }
    }
}
