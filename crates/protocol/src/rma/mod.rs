//! One-sided operations and messages (spec/memory.md), as segments, never bytes.
//!
//! An [`Rma`] is both ends at once. As *requester* it turns a call into one message for Wind
//! ([`Rma::put`], [`Rma::get`], [`Rma::atomic`], [`Rma::lookup`], [`Rma::user`]); as *target* it
//! serves what arrives ([`Rma::admit`], [`Rma::place`], [`Rma::deliver`]) and queues answers
//! ([`Rma::poll_answer`]). It never transmits and never keeps a pointer: memory is whatever the
//! caller hands in as [`Memory`].
//!
//! | operation | message | complete when |
//! |---|---|---|
//! | put, put with signal | head + data | Wind has the acknowledgement, which the peer sends after it has placed (and signalled) |
//! | accumulate | head + elements | as a put |
//! | push | head + element | as a put |
//! | put of a block, with signal or without | head + packed rows | as put |
//! | get, also of a block | head, then an answer with data | the answer has been delivered into the destination |
//! | atomic, fetching | head, then an answer with the old value | the answer has been delivered |
//! | atomic, not fetching | head | Wind has the acknowledgement |
//! | lookup | head + name, then an answer | the answer has been delivered |
//! | user message | head + data | Wind has the acknowledgement |

mod accumulate;
mod answer;
mod atomic;
mod destination;
mod element;
mod event;
mod head;
mod kind;
mod memory;
mod names;
mod refusals;
mod request;
mod serve;
mod strided;
mod ticket;
mod unanswered;
mod user;

pub use atomic::{AtomicOp, Change, Width, Word};
pub use destination::{Destination, read_rows};
pub use element::{Accumulation, Combine, Element, Number};
pub use event::{RmaError, RmaEvent, Value};
pub use head::{Operation, Published, Signal, TicketId};
pub use kind::{Kind, costs_credit, kind, places};
pub use memory::{Memory, Rights};
pub use refusals::{Access, Refusals, Refused};
pub use user::{USER_HEAD, user_head, user_tag};

use crate::Rank;
use crate::block::Block;
use crate::limits::{ANSWERS_PER_PEER, TRANSFERS_PER_PEER};
use crate::planted::{Bug, planted};
use crate::wind::{Body, Class, Message, Refusal, Token};
use accumulate::{Accumulate, Cuts};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use names::Names;
use ticket::Tickets;
use unanswered::Unanswered;

/// A fragmented message whose bytes go directly to their place: where that is.
///
/// A put names its region by key at every fragment, not by slot, so that a region which is removed
/// in the middle, and a slot that is then given to another region, can never be hit (MEM-3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transfer {
    Put {
        key: u64,
        offset: u64,
        len: u64,
        /// Why some of it was not placed: the whole is refused for that, whatever is permitted by
        /// then (MEM-3.8).
        missed: Option<Refusal>,
    },
    Rows {
        key: u64,
        block: Block,
        /// As of a put.
        missed: Option<Refusal>,
    },
    Data {
        ticket: TicketId,
    },
    /// `missed`: why some of it was not combined.
    Accumulate {
        asked: Accumulate,
        missed: Option<Refusal>,
    },
}

/// What is known of one peer. Empty when nothing is in flight.
#[derive(Debug, Default)]
struct Peer {
    /// By message number.
    transfers: BTreeMap<u64, Transfer>,
    /// Elements of accumulates of which not all bytes have come.
    cuts: Cuts,
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
    /// Answers that are gathered from a region at each transmission, and are not settled.
    serving: BTreeMap<Token, Serving>,
    served: u64,
    refusals: refusals::Log,
    unanswered: Unanswered,
}

/// Whom an answer in flight serves, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Serving {
    region: u32,
    key: u64,
    offset: u64,
    len: u64,
    to: Rank,
    ticket: TicketId,
}

/// Tokens with this top byte are ours: answers to gets, whose source must stay until they are
/// settled.
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

    /// Take a name back. The region's key stays valid until the region is removed (MEM-6.3).
    pub fn withdraw(&mut self, name: &str) -> Option<Published> {
        self.names.withdraw(name)
    }

    /// What a name stands for has changed; nothing happens if it is not published (MEM-6.5).
    pub fn republish(&mut self, name: &str, published: Published) {
        self.names.change(name, published);
    }

    /// The name under which the region with this key is published here.
    #[must_use]
    pub fn name_of(&self, key: u64) -> Option<&str> {
        self.names.name_of(key)
    }

    /// What was refused to peers: counted by reasons, and the latest one by one.
    #[must_use]
    pub fn refusals(&self) -> (&Refusals, &VecDeque<Refused>) {
        self.refusals.look()
    }

    /// The next answer to post to a peer; if Wind cannot take it now, give it back with
    /// [`Rma::defer_answer`].
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

    /// Do answers in flight still read from the region in this slot?
    #[must_use]
    pub fn is_serving(&self, region: u32) -> bool {
        self.serving.values().any(|serving| serving.region == region)
    }

    /// The region in this slot is being taken away. Whose gets it was still serving is told so; the
    /// messages that were to bring them the data are returned, to be cancelled at Wind, so that
    /// nothing is gathered from whatever has the slot next (MEM-4.6).
    #[must_use]
    pub fn region_removed(&mut self, region: u32) -> Vec<(Rank, Token)> {
        self.end_serving(|serving| (serving.region == region).then_some(Refusal::UnknownKey))
    }

    /// Pages of the region in this slot cannot be had any more: as [`Rma::region_removed`] for the
    /// gets it was serving (MEM-1.10).
    #[must_use]
    pub fn source_lost(&mut self, region: u32) -> Vec<(Rank, Token)> {
        self.end_serving(|serving| (serving.region == region).then_some(Refusal::Lost))
    }

    /// The bytes of this answer cannot be had any more: as [`Rma::source_lost`], for the one get
    /// that it was to serve.
    pub fn answer_lost(&mut self, token: Token) {
        if let Some(serving) = self.serving.remove(&token) {
            self.tell_gone(&serving, Refusal::Lost);
        }
    }

    /// The region in this slot grants something else from now on: as [`Rma::region_removed`] for
    /// those gets that it does not serve any more (MEM-1.7).
    #[must_use]
    pub fn rights_changed(&mut self, region: u32, memory: &impl Memory) -> Vec<(Rank, Token)> {
        self.end_serving(|serving| {
            let Serving { key, offset, len, .. } = *serving;
            let refusal = || {
                memory
                    .locate(key, offset, len, Rights::READ)
                    .err()
                    .filter(|refusal| *refusal != Refusal::NotPresent)
            };
            (serving.region == region).then(refusal).flatten()
        })
    }

    fn end_serving(&mut self, why: impl Fn(&Serving) -> Option<Refusal>) -> Vec<(Rank, Token)> {
        let ended: Vec<(Token, Serving, Refusal)> = self
            .serving
            .iter()
            .filter_map(|(token, serving)| Some((*token, *serving, why(serving)?)))
            .collect();
        if ended.is_empty() {
            return Vec::new();
        }
        for (token, ..) in &ended {
            self.serving.remove(token);
        }
        // However many they are, what waits is looked through once.
        let Self { answers, serving, .. } = self;
        answers.retain(|(_, message)| {
            !Rma::owns(message.token) || serving.contains_key(&message.token)
        });
        for (_, serving, refusal) in &ended {
            self.tell_gone(serving, *refusal);
        }
        self.recount();
        ended.into_iter().map(|(token, serving, _)| (serving.to, token)).collect()
    }

    fn tell_gone(&mut self, serving: &Serving, refusal: Refusal) {
        self.answer(
            serving.to,
            &Operation::Gone { ticket: serving.ticket, refusal },
            Body::Empty,
            Token::NONE,
        );
    }

    /// Handler's `withdrawn`: the peer took a message back that it may have begun (MEM-7.5).
    pub fn withdrawn(&mut self, from: Rank, number: u64) {
        // The data of a get: the peer says *gone*, too, and that ends the request.
        let _ = self.end(from, number);
    }

    /// Is this token, in an event of Wind's, of this layer's own making? Then it goes to
    /// [`Rma::acknowledged`] and its like, too.
    #[must_use]
    pub fn owns(token: Token) -> bool {
        token != Token::NONE && token.0 >> 56 == SERVING >> 56
    }

    /// May a message with this head be sent again after it was refused as *not present*? Then
    /// nothing has happened, or what has happened may happen again (bytes of a put). An accumulate
    /// is refused so before its first element only.
    #[must_use]
    pub fn may_repeat(head: &[u8]) -> bool {
        !matches!(kind(head), Kind::Coherence | Kind::Unknown)
    }

    /// Requests that are not forgotten yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.tickets.len()
    }

    /// Handler's `abandon`: the connection has failed, or another process has come up at this rank.
    /// What it had begun here will not be finished, what we asked it will not be answered
    /// (MEM-7.4).
    pub fn abandon(&mut self, from: Rank) {
        self.peers.remove(&from);
        self.answers.retain(|(to, _)| *to != from);
        self.serving.retain(|_, serving| serving.to != from);
        if planted(Bug::ForgetPending) {
            return;
        }
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
        self.peers.entry(to).or_default().answers += 1;
        let message = Message {
            class: Class::Unordered,
            urgent: false,
            credited: false,
            head: operation.encode(),
            body,
            token,
        };
        self.answers.push_back((to, message));
    }

    /// A token for an answer that is gathered from a region.
    fn serve(&mut self, serving: Serving) -> Token {
        self.served += 1;
        let token = Token(SERVING | self.served & !(0xFF << 56));
        self.serving.insert(token, serving);
        token
    }

    /// Answers were taken out of the middle of the queue.
    fn recount(&mut self) {
        self.peers.values_mut().for_each(|peer| peer.answers = 0);
        for (to, _) in &self.answers {
            self.peers.entry(*to).or_default().answers += 1;
        }
    }

    /// Is there room for one more answer to this peer? Asked before anything is done for it.
    fn room_for_answer(&self, to: Rank) -> Result<(), Refusal> {
        match self.peers.get(&to) {
            Some(peer) if peer.answers >= ANSWERS_PER_PEER => Err(Refusal::NoRoom),
            _ => Ok(()),
        }
    }

    /// Remember where a fragmented message goes (MEM-9.1).
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
        peer.cuts.forget(number);
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
