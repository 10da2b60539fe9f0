//! One-sided operations and messages (spec/memory.md), as segments, never bytes.
//!
//! An [`Rma`] is both requester and target. As *requester* it turns a call into one message for
//! Wind ([`Rma::put`], [`Rma::get`], [`Rma::atomic`], [`Rma::lookup`], [`Rma::user`]). As *target*
//! it serves arriving messages ([`Rma::admit`], [`Rma::place`], [`Rma::deliver`]) and queues
//! answers ([`Rma::poll_answer`]). It never transmits and never keeps a pointer. The caller passes
//! the memory in as [`Memory`].
//!
//! | operation | message | complete when |
//! |---|---|---|
//! | put, put with signal | head + data | Wind has the ACK, sent after placing (and signalling) |
//! | put with notice | head + data | as a put |
//! | accumulate | head + elements | as a put |
//! | push | head + element | as a put |
//! | put of a block, with signal or without | head + packed rows | as put |
//! | get, also of a block | head, then an answer with data | the answer is in the destination |
//! | atomic, fetching | head, then an answer with the old value | the answer has been delivered |
//! | atomic, not fetching | head | Wind has the acknowledgement |
//! | lookup | head + name, then an answer | the answer has been delivered |
//! | user message | head + data | Wind has the acknowledgement |

mod answer;
mod destination;
mod event;
mod head;
mod memory;
pub(crate) mod messages;
mod names;
pub mod ops;
mod refusals;
mod request;
mod serve;
mod ticket;
mod unanswered;

pub use destination::{Destination, read_rows};
pub use event::{Notice, OperationValue, RmaError, RmaEvent};
pub use head::{Operation, Published, Signal, TicketId, parcel_head};
pub use memory::{Memory, Rights};
pub use messages::kind::{
    MessageKind, charge_of, charges_body, costs_credit, is_handed_up, kind, places,
};
pub use messages::matching::{Pattern, Place as ReceivePlace, PostedReceives};
pub use messages::stream::{StreamOffer, StreamRefusal, StreamStep};
pub use messages::user::{USER_HEAD, user_head, user_tag};
pub use ops::atomic::{AtomicOp, Change, Width, Word};
pub use ops::element::{Accumulation, Combine, Number, NumberKind};
pub use refusals::{RefusalCounts, Refused, RegionAccess};

use crate::Rank;
use crate::block::Block;
use crate::limits::{ANSWERS_PER_PEER, TRANSFERS_PER_PEER};
use crate::planted::{Bug, planted};
use crate::wind::{Body, Class, Message, Refusal, Token};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use names::Names;
use ops::accumulate::{Accumulate, Cuts};
use ticket::Tickets;
use unanswered::Unanswered;

/// Destination of a fragmented message whose bytes go directly to their place.
///
/// A put names its region by key at every fragment, not by slot. So it never hits a region that was
/// removed in the middle, or another region that was given the same slot (MEM-3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Put {
        key: u64,
        offset: u64,
        len: u64,
        /// Reason why some bytes were not placed. The whole message is refused for that reason,
        /// whatever is permitted by then (MEM-3.8).
        missed: Option<Refusal>,
    },
    Rows {
        key: u64,
        block: Block,
        /// Reason why some bytes were not placed, as for a put.
        missed: Option<Refusal>,
    },
    Data {
        ticket: TicketId,
    },
    /// Accumulate. `missed` is the reason why some elements were not combined.
    Accumulate {
        asked: Accumulate,
        missed: Option<Refusal>,
    },
}

/// State of one peer. It is empty when nothing is in flight.
#[derive(Debug, Default)]
struct PeerTickets {
    /// Transfers by message number.
    transfers: BTreeMap<u64, Transfer>,
    /// Elements of accumulates of which not all bytes have arrived.
    cuts: Cuts,
    /// Number of this peer's answers that wait in `Rma::answers`.
    answers: usize,
    /// Different keys that the peer named and no region had (MEM-1.16).
    wrong_keys: Vec<u64>,
}

/// Remote memory: requester and target.
#[derive(Debug, Default)]
pub struct Rma {
    tickets: Tickets,
    names: Names,
    peers: BTreeMap<Rank, PeerTickets>,
    answers: VecDeque<(Rank, Message)>,
    events: VecDeque<RmaEvent>,
    /// Answers that are gathered from a region at each transmission, and are not settled.
    serving: BTreeMap<Token, Serving>,
    served: u64,
    refusals: refusals::Log,
    /// Is `true` if a peer has named too many wrong keys. Requests of other jobs need no look at
    /// their senders.
    has_guessers: bool,
    unanswered: Unanswered,
}

/// Source and receiver of an answer in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Serving {
    region: u32,
    key: u64,
    offset: u64,
    len: u64,
    to: Rank,
    ticket: TicketId,
}

/// Top byte of this layer's own tokens. They belong to answers to gets, whose source must stay
/// until they are settled.
const SERVING: u64 = 0xFD << 56;

impl Rma {
    /// Creates an empty state: nothing published, nothing under way.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Gives a region of this node a name, by which peers find it (MEM-6.1).
    ///
    /// # Errors
    /// The name is invalid or taken, or too many names are published.
    pub fn publish(&mut self, name: &str, published: Published) -> Result<(), RmaError> {
        self.names.publish(name, published)
    }

    /// Withdraws a name. The region's key stays valid until the region is removed (MEM-6.3).
    pub fn withdraw(&mut self, name: &str) -> Option<Published> {
        self.names.withdraw(name)
    }

    /// Changes the region that a name stands for. It does nothing if the name is not published
    /// (MEM-6.5).
    pub fn republish(&mut self, name: &str, published: Published) {
        self.names.change(name, published);
    }

    /// Returns the name under which the region with this key is published here.
    #[must_use]
    pub fn name_of(&self, key: u64) -> Option<&str> {
        self.names.name_of(key)
    }

    /// Returns the refusals to peers: counted by reasons, and the latest ones one by one.
    #[must_use]
    pub fn refusals(&self) -> (&RefusalCounts, &VecDeque<Refused>) {
        self.refusals.summary()
    }

    /// Returns the next answer to post to a peer. If Wind cannot take it now, give it back with
    /// [`Rma::defer_answer`].
    pub fn poll_answer(&mut self) -> Option<(Rank, Message)> {
        let (to, message) = self.answers.pop_front()?;
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.answers = peer.answers.saturating_sub(1);
        }
        Some((to, message))
    }

    /// Queues an answer again, behind the others, because Wind had no room.
    pub fn defer_answer(&mut self, to: Rank, message: Message) {
        self.peers.entry(to).or_default().answers += 1;
        self.answers.push_back((to, message));
    }

    /// Returns how many answers wait to be posted.
    #[must_use]
    pub fn answers(&self) -> usize {
        self.answers.len()
    }

    /// Returns the next event for the application.
    pub fn poll_event(&mut self) -> Option<RmaEvent> {
        self.events.pop_front()
    }

    /// Returns `true` if answers in flight still read from the region in this slot.
    #[must_use]
    pub fn is_serving(&self, region: u32) -> bool {
        self.serving.values().any(|serving| serving.region == region)
    }

    /// Called when the region in this slot is being removed. It tells the requesters whose gets the
    /// region was still serving. It returns the messages that were to bring them the data, for the
    /// caller to cancel at Wind. So nothing is gathered from the next region in the slot (MEM-4.6).
    #[must_use]
    pub fn region_removed(&mut self, region: u32) -> Vec<(Rank, Token)> {
        self.end_serving(|serving| (serving.region == region).then_some(Refusal::UnknownKey))
    }

    /// Called when pages of the region in this slot are lost. It ends the gets that the region was
    /// serving, as [`Rma::region_removed`] does (MEM-1.10).
    #[must_use]
    pub fn source_lost(&mut self, region: u32) -> Vec<(Rank, Token)> {
        self.end_serving(|serving| (serving.region == region).then_some(Refusal::Lost))
    }

    /// Called when the bytes of this answer are lost. It ends the one get that the answer was to
    /// serve, as [`Rma::source_lost`] does.
    pub fn answer_lost(&mut self, token: Token) {
        if let Some(serving) = self.serving.remove(&token) {
            self.report_gone(&serving, Refusal::Lost);
        }
    }

    /// Called when the region in this slot grants other rights from now on. It ends the gets that
    /// the region no longer serves, as [`Rma::region_removed`] does (MEM-1.7).
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
        // One pass over the waiting answers suffices for any number of ended gets.
        let Self { answers, serving, .. } = self;
        answers.retain(|(_, message)| {
            !Rma::owns(message.token) || serving.contains_key(&message.token)
        });
        for (_, serving, refusal) in &ended {
            self.report_gone(serving, *refusal);
        }
        self.recount();
        ended.into_iter().map(|(token, serving, _)| (serving.to, token)).collect()
    }

    fn report_gone(&mut self, serving: &Serving, refusal: Refusal) {
        self.answer(
            serving.to,
            &Operation::Gone { ticket: serving.ticket, refusal },
            Body::Empty,
            Token::NONE,
        );
    }

    /// Handler's `withdrawn`: the peer withdrew a message that may have begun (MEM-7.5).
    pub fn withdrawn(&mut self, from: Rank, number: u64) {
        // If it is the data of a get, the peer also sends *gone*, and that ends the request.
        if let Some(Transfer::Data { ticket }) = self.end(from, number)
            && let Some(ticket) = self.tickets.answerable(from, ticket)
        {
            ticket.answering = None;
        }
    }

    /// Returns `true` if this token, in an event of Wind's, was made by this layer. The event then
    /// also goes to [`Rma::acknowledged`] and its like.
    #[must_use]
    pub fn owns(token: Token) -> bool {
        token != Token::NONE && token.0 >> 56 == SERVING >> 56
    }

    /// Returns `true` if a message with this head may be sent again after it was refused as *not
    /// present*. Then nothing has happened, or it may happen again (bytes of a put). An accumulate
    /// is refused so before its first element only.
    #[must_use]
    pub fn may_repeat(head: &[u8]) -> bool {
        !matches!(kind(head), MessageKind::Coherence | MessageKind::Stream | MessageKind::Unknown)
    }

    /// Returns how many requests are not forgotten yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.tickets.len()
    }

    /// Handler's `abandon`: the connection has failed, or another process has come up at this rank.
    /// The peer's transfers here will not be finished, and this node's requests to it will not be
    /// answered (MEM-7.4).
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

    /// Called when the job reports that this node is dead, as [`Rma::abandon`]. Calling both is
    /// harmless.
    pub fn node_died(&mut self, node: Rank) {
        self.abandon(node);
    }

    /// Queues an answer.
    fn answer(&mut self, to: Rank, operation: &Operation, body: Body, token: Token) {
        self.peers.entry(to).or_default().answers += 1;
        let message = Message::new(Class::Unordered, operation.encode(), body, token);
        self.answers.push_back((to, message));
    }

    /// Returns a token for an answer that is gathered from a region.
    fn serve(&mut self, serving: Serving) -> Token {
        self.served += 1;
        let token = Token(SERVING | self.served & !(0xFF << 56));
        self.serving.insert(token, serving);
        token
    }

    /// Counts each peer's answers again, after some were removed from the middle of the queue.
    fn recount(&mut self) {
        self.peers.values_mut().for_each(|peer| peer.answers = 0);
        for (to, _) in &self.answers {
            self.peers.entry(*to).or_default().answers += 1;
        }
    }

    /// Checks that there is room for one more answer to this peer, before anything is done for it.
    fn room_for_answer(&self, to: Rank) -> Result<(), Refusal> {
        match self.peers.get(&to) {
            Some(peer) if peer.answers >= ANSWERS_PER_PEER => Err(Refusal::NoRoom),
            _ => Ok(()),
        }
    }

    /// Records where a fragmented message goes (MEM-9.1).
    fn begin(&mut self, from: Rank, number: u64, transfer: Transfer) -> Result<(), Refusal> {
        let peer = self.peers.entry(from).or_default();
        if peer.transfers.len() >= TRANSFERS_PER_PEER {
            return Err(Refusal::NoRoom);
        }
        peer.transfers.insert(number, transfer);
        Ok(())
    }

    /// Forgets a fragmented message that is whole, and returns its transfer.
    fn end(&mut self, from: Rank, number: u64) -> Option<Transfer> {
        let peer = self.peers.get_mut(&from)?;
        let transfer = peer.transfers.remove(&number);
        peer.cuts.forget(number);
        if peer.transfers.is_empty() && peer.answers == 0 {
            self.peers.remove(&from);
        }
        transfer
    }

    fn done(&mut self, token: Token, value: OperationValue) {
        self.events.push_back(RmaEvent::Done { token, value });
    }

    /// Reports a failure to a ticket's holder, once.
    fn fail(&mut self, token: Token, error: RmaError) {
        if self.tickets.report(token) {
            self.events.push_back(RmaEvent::Failed { token, error });
        }
    }
}
