//! Requests that wait for an answer (MEM-4).

use super::head::TicketId;
use crate::Rank;
use crate::limits::TICKETS_MAX;
use crate::rma::destination::Destination;
use crate::rma::event::RmaError;
use crate::rma::ops::atomic::Width;
use crate::wind::Token;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Answer that a request expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpectedAnswer {
    /// Bytes for this destination.
    Data(Destination),
    /// The old value of a word of this width.
    Old(Width),
    /// The region of this name.
    Name(String),
}

/// One request that waits for its answer.
///
/// Unless the request is cancelled, two things must happen, in either order, before it is
/// forgotten. Its user is told the outcome, and Wind settles the message that carried it. The
/// answer often comes before the acknowledgement of the request is read. A token that is not known
/// here is taken for a put's.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    serial: u64,
    pub to: Rank,
    pub asked: ExpectedAnswer,
    /// Number of the message that brings the answer, once it has begun. A second answer is refused.
    pub answering: Option<u64>,
    reported: bool,
    settled: bool,
    /// Number of parts of the answer that have arrived, modulo 2³².
    parts: u32,
}

/// All open requests, bounded in number.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    open: BTreeMap<Token, Ticket>,
    serial: u64,
}

impl Tickets {
    /// Opens a new request.
    pub fn open(
        &mut self,
        to: Rank,
        asked: ExpectedAnswer,
        token: Token,
    ) -> Result<TicketId, RmaError> {
        if token == Token::NONE || self.open.contains_key(&token) {
            return Err(RmaError::BadToken(token));
        }
        if self.open.len() >= TICKETS_MAX {
            return Err(RmaError::TooMany);
        }
        self.serial += 1;
        let ticket = Ticket {
            serial: self.serial,
            to,
            asked,
            answering: None,
            reported: false,
            settled: false,
            parts: 0,
        };
        self.open.insert(token, ticket);
        Ok(TicketId { token: token.0, serial: self.serial })
    }

    /// Returns the ticket that `from` may answer with `id`, if somebody still waits for that
    /// (MEM-4.2).
    pub fn answerable(&mut self, from: Rank, id: TicketId) -> Option<&mut Ticket> {
        let ticket = self.open.get_mut(&Token(id.token))?;
        (ticket.serial == id.serial && ticket.to == from && !ticket.reported).then_some(ticket)
    }

    /// Counts a part of the answer that has arrived.
    pub fn part_came(&mut self, id: TicketId) {
        if let Some(ticket) = self.open.get_mut(&Token(id.token)) {
            ticket.parts = ticket.parts.wrapping_add(1);
        }
    }

    /// Records that the user is being told the outcome. Returns `false` if it was told before, or
    /// if there is no such request.
    pub fn report(&mut self, token: Token) -> bool {
        let Some(ticket) = self.open.get_mut(&token) else { return false };
        let first = !ticket.reported;
        ticket.reported = true;
        if ticket.settled {
            self.open.remove(&token);
        }
        first
    }

    /// Records that Wind has settled the request. Returns whether somebody still waits for the
    /// answer, or `None` if it is not a request of this node.
    pub fn settle(&mut self, token: Token) -> Option<bool> {
        let ticket = self.open.get_mut(&token)?;
        ticket.settled = true;
        let waiting = !ticket.reported;
        if !waiting {
            self.open.remove(&token);
        }
        Some(waiting)
    }

    /// Forgets a request that will get no outcome and no further event from Wind. Returns `true` if
    /// somebody still waited.
    pub fn forget(&mut self, token: Token) -> bool {
        self.open.remove(&token).is_some_and(|ticket| !ticket.reported)
    }

    /// Returns the tokens of requests that still wait for this node.
    pub fn waiting_for(&self, node: Rank) -> Vec<Token> {
        self.open
            .iter()
            .filter(|(_, ticket)| ticket.to == node && !ticket.reported)
            .map(|(token, _)| *token)
            .collect()
    }

    /// Returns each peer's oldest request that it has acknowledged and not answered: the serial,
    /// and the number of parts of the answer that have arrived.
    pub fn oldest_unanswered(&self) -> BTreeMap<Rank, (u64, u32)> {
        let mut oldest = BTreeMap::new();
        for ticket in self.open.values().filter(|ticket| ticket.settled && !ticket.reported) {
            let found = (ticket.serial, ticket.parts);
            oldest.entry(ticket.to).and_modify(|known| *known = found.min(*known)).or_insert(found);
        }
        oldest
    }

    /// Returns how many requests are known.
    pub fn len(&self) -> usize {
        self.open.len()
    }
}
