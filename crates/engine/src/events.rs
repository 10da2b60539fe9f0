//! Turns events of connections, remote memory and coherence into outcomes of operations.

use super::{Arrived, Body, Engine, Failure, Value};
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{self, Coherence, CoherenceEvent, Pages};
use oikaze_protocol::limits::{BODIES_REST, BODY_KEPT};
use oikaze_protocol::rma::{self, Rma, RmaError, RmaEvent};
use oikaze_protocol::wind::{Death, Event, Nonsense, Refusal, Token};

/// Layer for which a message was posted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
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

impl<L: Link, P: Pages> Engine<L, P> {
    /// Settles all pending events. Returns `true` if this began something that had waited for them.
    pub(super) fn settle_events(&mut self) -> bool {
        let mut at = 0;
        while let Some(rank) = self.peers.active.get(at) {
            while let Some(event) =
                self.peers.get_mut(rank).and_then(|peer| peer.connection.poll_event())
            {
                self.wind_event(rank, event);
            }
            at += 1;
        }
        self.peers.visits += at as u64;
        self.rma_events();
        self.coherence_events();
        let ended = self.finish_fences();
        self.begin_to_leave() || ended
    }

    fn wind_event(&mut self, peer: Rank, event: Event) {
        match event {
            Event::Established => {}
            Event::Acknowledged(token) => self.acknowledged(token),
            Event::Returned => {
                if let Some(message) =
                    self.peers.get_mut(peer).and_then(|peer| peer.connection.take_returned())
                {
                    self.returned(peer, message);
                }
            }
            Event::Refused(token, refusal) => self.refused(token, refusal),
            Event::Failed(token, _) => self.lost(peer, token),
            Event::Dead(death) => self.peer_died(peer, death),
            Event::Fallback(fallback) => {
                let warning = format!("towards node {peer}, {fallback}");
                self.notices.push(warning.clone());
                self.warnings.push_back(warning);
            }
            Event::Unheard => {
                if let Some(address) = self.address_of(peer) {
                    self.link.unheard(address);
                }
            }
            Event::Restarted { .. } => {
                // The new process uses another connection id; the state of the old one is lost.
                self.peers.renamed(peer);
                self.peer_died(peer, Death::Restarted);
            }
        }
    }

    pub(super) fn acknowledged(&mut self, token: Token) {
        self.retry.forget(token);
        match Owner::of(token) {
            Owner::Nobody => {}
            Owner::Operation | Owner::Remote => self.rma.acknowledged(token),
            Owner::Coherence => self.coherence.acknowledged(token, &mut self.pages),
        }
    }

    pub(super) fn refused(&mut self, token: Token, refusal: Refusal) {
        self.retry.forget(token);
        match Owner::of(token) {
            Owner::Nobody => {}
            Owner::Operation | Owner::Remote => self.rma.refused(token, refusal),
            Owner::Coherence => self.coherence.refused(token, refusal, &mut self.pages),
        }
    }

    pub(super) fn lost(&mut self, peer: Rank, token: Token) {
        self.retry.forget(token);
        match Owner::of(token) {
            Owner::Nobody => {}
            Owner::Operation | Owner::Remote => self.rma.failed(token, peer),
            Owner::Coherence => self.coherence.failed(token, &mut self.pages),
        }
    }

    fn peer_died(&mut self, peer: Rank, death: Death) {
        // Operations that fail because of this death report its cause.
        if let Some(known) = self.peers.touch(peer) {
            known.held.clear();
            known.death = Some(death);
        }
        self.abandon_retries(peer);
        self.rma.node_died(peer);
        self.coherence.node_died(peer, &mut self.pages);
        for token in self.detach_local_peer(peer, death) {
            self.lost(peer, token);
        }
        self.deaths.push_back((peer, death));
        self.news += 1;
    }

    fn rma_events(&mut self) {
        while let Some(event) = self.rma.poll_event() {
            match event {
                RmaEvent::Done { token, value } => {
                    let value = match value {
                        rma::OperationValue::Nothing => Value::Done,
                        rma::OperationValue::Old(word) => Value::Word(word),
                        rma::OperationValue::Found(published) => Value::Region(published),
                    };
                    self.operations.settle(token, Ok(value));
                }
                RmaEvent::Failed { token, error } => {
                    let failure = match error {
                        RmaError::PeerDead(peer) => {
                            Failure::PeerLost { peer, death: self.death_of(peer) }
                        }
                        other => Failure::Remote(other),
                    };
                    self.operations.settle(token, Err(failure));
                }
                RmaEvent::Unanswered { by } => {
                    // A stopped local peer answers when it resumes; the kernel reports its end.
                    if self.peers.local_peer(by).is_none() {
                        self.give_up(by, Nonsense::Unanswered);
                    }
                }
                RmaEvent::Arrived { from, class, tag, body } => {
                    let body = Body::new(body, &self.buffer_pool);
                    if body.len() >= BODY_KEPT {
                        self.long_body = Some(self.now);
                    }
                    self.arrived.push_back(Arrived { from, class, tag, body });
                    self.news += 1;
                }
            }
        }
    }

    /// Ends the connection to a peer that broke the protocol.
    fn give_up(&mut self, rank: Rank, nonsense: Nonsense) {
        let now = self.now;
        if let Some(peer) = self.peers.touch(rank) {
            peer.connection.give_up(now, nonsense);
        }
    }

    /// Frees the memory for long bodies after `BODIES_REST` without one.
    pub(super) fn rest_buffer_pool(&mut self) {
        if self.long_body.take_if(|latest| self.now - *latest > BODIES_REST).is_some() {
            self.buffer_pool.rest();
        }
    }

    pub(super) fn death_of(&self, rank: Rank) -> Death {
        self.peers.get(rank).and_then(|peer| peer.death).unwrap_or(Death::Silent)
    }

    fn coherence_events(&mut self) {
        while let Some(event) = self.coherence.poll_event() {
            match event {
                CoherenceEvent::Done { token, value } => {
                    let value = match value {
                        coherence::Value::None => Value::Done,
                        coherence::Value::Array(array) => Value::Array(array),
                        coherence::Value::Reduced(values) => Value::Reduced(values),
                    };
                    self.operations.settle(token, Ok(value));
                }
                CoherenceEvent::Contradiction { rank, nonsense } => self.give_up(rank, nonsense),
                CoherenceEvent::Leaving { rank, silent } => {
                    self.leaving.told.push_back((rank, silent));
                    self.news += 1;
                }
                CoherenceEvent::Failed { token, error } => {
                    self.operations.settle(token, Err(Failure::Coherence(error)));
                }
            }
        }
    }
}
