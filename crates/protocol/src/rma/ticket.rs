//! Requests that wait for an answer (MEM-4).

use super::head::TicketId;
use super::{Destination, RmaError, Width};
use crate::Rank;
use crate::limits::TICKETS_MAX;
use crate::wind::Token;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// What the answer must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Bytes for this place.
    Data(Destination),
    /// The old value of a word of this width.
    Old(Width),
    /// The region of this name.
    Name(String),
}

/// One request.
///
/// Unless it is taken back, two things must happen before it is forgotten, in either order: its
/// user is told the end, and Wind settles the message that carried it. (The answer often comes
/// before the acknowledgement of the request is read, and a token that is not known here is taken
/// for a put's.)
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    serial: u64,
    pub to: Rank,
    pub asked: Asked,
    /// Number of the message that brings the answer, once it has begun: a second one is refused.
    pub answering: Option<u64>,
    told: bool,
    settled: bool,
    /// Parts of the answer that have come, modulo 2³².
    parts: u32,
}

/// All of them, bounded.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    open: BTreeMap<Token, Ticket>,
    serial: u64,
}

impl Tickets {
    /// A new one.
    pub fn open(&mut self, to: Rank, asked: Asked, token: Token) -> Result<TicketId, RmaError> {
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
            told: false,
            settled: false,
            parts: 0,
        };
        self.open.insert(token, ticket);
        Ok(TicketId { token: token.0, serial: self.serial })
    }

    /// The ticket that `from` may answer with `id`, if somebody still waits for that (MEM-4.2).
    pub fn answerable(&mut self, from: Rank, id: TicketId) -> Option<&mut Ticket> {
        let ticket = self.open.get_mut(&Token(id.token))?;
        (ticket.serial == id.serial && ticket.to == from && !ticket.told).then_some(ticket)
    }

    /// A part of the answer has come.
    pub fn part_came(&mut self, id: TicketId) {
        if let Some(ticket) = self.open.get_mut(&Token(id.token)) {
            ticket.parts = ticket.parts.wrapping_add(1);
        }
    }

    /// Its user is being told the end now. `false`: was told before, or there is none.
    pub fn tell(&mut self, token: Token) -> bool {
        let Some(ticket) = self.open.get_mut(&token) else { return false };
        let first = !ticket.told;
        ticket.told = true;
        if ticket.settled {
            self.open.remove(&token);
        }
        first
    }

    /// Wind has settled the request. `None`: not a request of ours; else whether somebody still
    /// waits for the answer.
    pub fn settle(&mut self, token: Token) -> Option<bool> {
        let ticket = self.open.get_mut(&token)?;
        ticket.settled = true;
        let waiting = !ticket.told;
        if !waiting {
            self.open.remove(&token);
        }
        Some(waiting)
    }

    /// Nobody is told any more, and nothing follows from Wind either. Did somebody still wait?
    pub fn forget(&mut self, token: Token) -> bool {
        self.open.remove(&token).is_some_and(|ticket| !ticket.told)
    }

    /// Who still waits for this node.
    pub fn waiting_for(&self, node: Rank) -> Vec<Token> {
        self.open
            .iter()
            .filter(|(_, ticket)| ticket.to == node && !ticket.told)
            .map(|(token, _)| *token)
            .collect()
    }

    /// Of each peer the oldest request that it has acknowledged and not answered: its serial, and
    /// how many parts of the answer have come.
    pub fn oldest_unanswered(&self) -> BTreeMap<Rank, (u64, u32)> {
        let mut oldest = BTreeMap::new();
        for ticket in self.open.values().filter(|ticket| ticket.settled && !ticket.told) {
            let found = (ticket.serial, ticket.parts);
            oldest.entry(ticket.to).and_modify(|known| *known = found.min(*known)).or_insert(found);
        }
        oldest
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.open.len()
    }
}
