//! One-sided operations and messages (spec/memory.md), as segments, never bytes.
//!
//! An [`Rma`] is both ends at once. As *requester* it turns a call into one message for Wind ([`Rma::put`], [`Rma::get`],
//! [`Rma::atomic`], [`Rma::lookup`], [`Rma::user`]); as *target* it serves what arrives ([`Rma::admit`], [`Rma::place`],
//! [`Rma::deliver`]) and queues answers ([`Rma::poll_answer`]). It never transmits and never keeps a pointer: memory is whatever the
//! caller hands in as [`Memory`].
//!
//! | operation | message | complete when |
//! |---|---|---|
//! | put, put with signal | head + data | Wind has the acknowledgement, which the peer sends after it has placed (and signalled) |
//! | get | head, then an answer with data | the answer has been delivered into the destination |
//! | atomic | head, then an answer with the old value | the answer has been delivered |
//! | lookup | head + name, then an answer | the answer has been delivered |
//! | user message | head + data | Wind has the acknowledgement |

mod answer;
mod event;
mod head;
mod memory;
mod names;
mod request;
mod serve;
mod ticket;

pub use event::{RmaError, RmaEvent, Value};
pub use head::{Kind, Operation, Published, Signal, TicketId, kind};
pub use memory::{AtomicOp, Memory, Rights};

use crate::Rank;
use crate::limits::{ANSWERS_PER_PEER, TRANSFERS_PER_PEER};
use crate::wind::{Body, Class, Message, Refusal, Token};
use alloc::collections::{BTreeMap, VecDeque};
use names::Names;
use ticket::Tickets;

/// A fragmented message whose bytes go straight to their place: where that is.
///
/// A put names its region by key at every fragment, not by slot, so that a region which is removed in the middle, and a slot that is
/// then given to another region, can never be hit (MEM-3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    Put { key: u64, offset: u64, len: u64 },
    Data { ticket: TicketId },
}

/// What is known of one peer. Empty when nothing is in flight.
#[derive(Debug, Default)]
struct Peer {
    /// By message number.
    transfers: BTreeMap<u64, Transfer>,
    /// Waiting in `Rma::answers`.
    answers: usize,
}

/// Remote memory: requester and target.
#[derive(Debug, Default)]
pub struct Rma {
    tickets: Tickets,
    names: Names,
    peers: BTreeMap<Rank, Peer>,
    answers: VecDeque<(Rank, Message)>,
    events: VecDeque<RmaEvent>,
    /// By region slot: answers that read from it and are not settled.
    serving: BTreeMap<u32, u64>,
}

/// Tokens with this top byte are ours: answers to gets, whose source must stay until they are settled. The slot is in the low half.
const SERVING: u64 = 0xFD << 56;

impl Rma {
    /// Nothing published, nothing under way.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Give a region of this node a name, by which peers find it (MEM-6.1).
    ///
    /// # Errors
    /// Not a name, taken, or too many.
    pub fn publish(&mut self, name: &str, published: Published) -> Result<(), RmaError> {
        self.names.publish(name, published)
    }

    /// Take a name back. The region's key stays valid until the region is removed.
    pub fn withdraw(&mut self, name: &str) -> Option<Published> {
        self.names.withdraw(name)
    }

    /// The next answer to post to a peer; if Wind cannot take it now, give it back with [`Rma::defer_answer`].
    pub fn poll_answer(&mut self) -> Option<(Rank, Message)> {
        let (to, message) = self.answers.pop_front()?;
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.answers = peer.answers.saturating_sub(1);
        }
        Some((to, message))
    }

    /// Wind had no room: the answer waits behind the others.
    pub fn defer_answer(&mut self, to: Rank, message: Message) {
        self.peers.entry(to).or_default().answers += 1;
        self.answers.push_back((to, message));
    }

    /// How many answers wait to be posted.
    #[must_use]
    pub fn answers(&self) -> usize {
        self.answers.len()
    }

    /// What the application is told next.
    pub fn poll_event(&mut self) -> Option<RmaEvent> {
        self.events.pop_front()
    }

    /// Do answers in flight still read from the region in this slot? A region is taken away only when none does (MEM-4.6).
    #[must_use]
    pub fn is_serving(&self, region: u32) -> bool {
        self.serving.contains_key(&region)
    }

    /// Is this token, in an event of Wind's, of this layer's own making? Then it goes to [`Rma::acknowledged`] and its like, too.
    #[must_use]
    pub fn owns(token: Token) -> bool {
        token != Token::NONE && token.0 >> 56 == SERVING >> 56
    }

    /// Requests that are not forgotten yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.tickets.len()
    }

    /// Upper's `abandon`: the connection has failed, or another process has come up at this rank. What it had begun here will not be
    /// finished, what we asked it will not be answered (MEM-7.4).
    pub fn abandon(&mut self, from: Rank) {
        self.peers.remove(&from);
        let serving = &mut self.serving;
        self.answers.retain(|(to, message)| {
            if *to == from {
                release(serving, message.token);
            }
            *to != from
        });
        for token in self.tickets.waiting_for(from) {
            self.fail(token, RmaError::PeerDead(from));
        }
    }

    /// The job says that this node is dead: as [`Rma::abandon`]. Doing both is harmless.
    pub fn node_died(&mut self, node: Rank) {
        self.abandon(node);
    }

    /// Queue an answer.
    fn answer(&mut self, to: Rank, operation: &Operation, body: Body, token: Token) {
        if let Some(slot) = serving_slot(token) {
            *self.serving.entry(slot).or_default() += 1;
        }
        self.peers.entry(to).or_default().answers += 1;
        let message = Message { class: Class::Unordered, urgent: false, credited: false, head: operation.encode(), body, token };
        self.answers.push_back((to, message));
    }

    /// Is there room for one more answer to this peer? Asked before anything is done for it.
    fn room_for_answer(&self, to: Rank) -> Result<(), Refusal> {
        match self.peers.get(&to) {
            Some(peer) if peer.answers >= ANSWERS_PER_PEER => Err(Refusal::NoRoom),
            _ => Ok(()),
        }
    }

    /// Remember where a fragmented message goes.
    fn begin(&mut self, from: Rank, number: u64, transfer: Transfer) -> Result<(), Refusal> {
        let peer = self.peers.entry(from).or_default();
        if peer.transfers.len() >= TRANSFERS_PER_PEER {
            return Err(Refusal::NoRoom);
        }
        peer.transfers.insert(number, transfer);
        Ok(())
    }

    /// A fragmented message is whole.
    fn end(&mut self, from: Rank, number: u64) -> Option<Transfer> {
        let peer = self.peers.get_mut(&from)?;
        let transfer = peer.transfers.remove(&number);
        if peer.transfers.is_empty() && peer.answers == 0 {
            self.peers.remove(&from);
        }
        transfer
    }

    fn done(&mut self, token: Token, value: Value) {
        self.events.push_back(RmaEvent::Done { token, value });
    }

    /// Tell a ticket's holder, once.
    fn fail(&mut self, token: Token, error: RmaError) {
        if self.tickets.tell(token) {
            self.events.push_back(RmaEvent::Failed { token, error });
        }
    }
}

/// The region that an answer with this token reads from.
fn serving_slot(token: Token) -> Option<u32> {
    Rma::owns(token).then(|| u32::try_from(token.0 & u64::from(u32::MAX)).ok()).flatten()
}

/// An answer is settled.
fn release(serving: &mut BTreeMap<u32, u64>, token: Token) {
    let Some(slot) = serving_slot(token) else { return };
    if let Some(count) = serving.get_mut(&slot) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            serving.remove(&slot);
        }
    }
}
