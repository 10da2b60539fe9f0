//! The requester's receipt of answers. An answer counts only if its ticket is outstanding, was
//! given to the node that answers, and asks for exactly this kind and length (MEM-4.3). A forged
//! answer changes nothing.

use super::ticket::ExpectedAnswer;
use super::{Rma, Transfer, names};
use crate::Rank;
use crate::planted::{Bug, planted};
use crate::rma::destination::Destination;
use crate::rma::event::{OperationValue, RmaError, RmaEvent};
use crate::rma::head::{Published, TicketId};
use crate::rma::memory::Memory;
use crate::rma::ops::body::{bytes_of, length};
use crate::wind::{Admission, Delivered, Refusal, Token};
use alloc::string::String;

impl Rma {
    /// Called when a fragmented answer to a get begins.
    pub(super) fn admit_data(
        &mut self,
        from: Rank,
        number: u64,
        id: TicketId,
        len: u64,
        memory: &impl Memory,
    ) -> Result<Admission, Refusal> {
        self.expect_data(from, id, len, memory)?;
        self.begin(from, number, Transfer::Data { ticket: id })?;
        if let Some(ticket) = self.tickets.answerable(from, id) {
            ticket.answering = Some(number);
        }
        if planted(Bug::CompleteBeforePlaced) {
            self.done(Token(id.token), OperationValue::Nothing);
        }
        Ok(Admission::Place)
    }

    /// Returns where the answer in message `number` goes, while somebody waits for it.
    pub(super) fn destination(
        &mut self,
        from: Rank,
        number: u64,
        id: TicketId,
    ) -> Option<&Destination> {
        match self.tickets.answerable(from, id) {
            Some(ticket) if ticket.answering == Some(number) => match &ticket.asked {
                ExpectedAnswer::Data(into) => Some(into),
                _ => None,
            },
            _ => None,
        }
    }

    /// Called when the data of a get is whole.
    pub(super) fn deliver_data(
        &mut self,
        from: Rank,
        number: u64,
        id: TicketId,
        transfer: Option<Transfer>,
        body: &Delivered<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        let token = Token(id.token);
        match bytes_of(body) {
            Some(bytes) => {
                let into = self.expect_data(from, id, bytes.len() as u64, memory)?;
                into.write(0, bytes, memory);
            }
            None => {
                let into = self.destination(from, number, id).ok_or(Refusal::NotAsked)?.clone();
                if transfer != Some(Transfer::Data { ticket: id }) || length(body) != into.len() {
                    return Err(Refusal::Malformed);
                }
                self.still_there(&into, token, memory)?;
                if planted(Bug::CompleteBeforePlaced) {
                    self.tickets.report(token);
                    return Ok(());
                }
            }
        }
        self.succeed(token, OperationValue::Nothing);
        Ok(())
    }

    /// Takes the old value of a word.
    pub(super) fn deliver_old(
        &mut self,
        from: Rank,
        id: TicketId,
        old: u64,
    ) -> Result<(), Refusal> {
        match self.asked(from, id)? {
            ExpectedAnswer::Old(width) if old & !width.mask() == 0 => {
                self.succeed(Token(id.token), OperationValue::Old(old))
            }
            _ => return Err(self.bad_answer(from, id)),
        }
        Ok(())
    }

    /// Takes the region of the name that was looked up.
    pub(super) fn deliver_found(
        &mut self,
        from: Rank,
        id: TicketId,
        published: Published,
    ) -> Result<(), Refusal> {
        match self.asked(from, id)? {
            ExpectedAnswer::Name(_) => {
                self.succeed(Token(id.token), OperationValue::Found(published))
            }
            _ => return Err(self.bad_answer(from, id)),
        }
        Ok(())
    }

    /// Takes the answer that there is no such name, with some names that are there.
    pub(super) fn deliver_missing(
        &mut self,
        from: Rank,
        id: TicketId,
        count: u32,
        list: &[u8],
    ) -> Result<(), Refusal> {
        let name = match self.asked(from, id)? {
            ExpectedAnswer::Name(name) => String::clone(name),
            _ => return Err(self.bad_answer(from, id)),
        };
        let error = RmaError::UnknownName { node: from, name, there: names::listed(list), count };
        self.fail(Token(id.token), error);
        Ok(())
    }

    /// Takes the answer that the data of a get will not come, because its region was removed after
    /// the get was served. Some of the data may have been placed.
    pub(super) fn deliver_gone(
        &mut self,
        from: Rank,
        id: TicketId,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        match self.asked(from, id)? {
            ExpectedAnswer::Data(_) => self.fail(Token(id.token), RmaError::Refused(refusal)),
            _ => return Err(self.bad_answer(from, id)),
        }
        Ok(())
    }

    /// Checks that data of this length may come now as the answer to this get. Returns its
    /// destination.
    fn expect_data(
        &mut self,
        from: Rank,
        id: TicketId,
        len: u64,
        memory: &impl Memory,
    ) -> Result<Destination, Refusal> {
        let ticket = self.tickets.answerable(from, id).ok_or(Refusal::NotAsked)?;
        if ticket.answering.is_some() {
            return Err(Refusal::NotAsked);
        }
        match &ticket.asked {
            ExpectedAnswer::Data(into) if into.len() == len => {
                let into = into.clone();
                self.still_there(&into, Token(id.token), memory)?;
                Ok(into)
            }
            _ => Err(self.bad_answer(from, id)),
        }
    }

    fn asked(&mut self, from: Rank, id: TicketId) -> Result<&ExpectedAnswer, Refusal> {
        self.tickets.answerable(from, id).map(|ticket| &ticket.asked).ok_or(Refusal::NotAsked)
    }

    fn still_there(
        &mut self,
        into: &Destination,
        token: Token,
        memory: &impl Memory,
    ) -> Result<(), Refusal> {
        if into.is_there(memory) {
            return Ok(());
        }
        self.fail(token, RmaError::DestinationGone);
        Err(Refusal::NotAsked)
    }

    /// Ends a request that the right node answered wrongly with the right ticket. Another answer
    /// will not come (MEM-4.4).
    fn bad_answer(&mut self, from: Rank, id: TicketId) -> Refusal {
        self.fail(Token(id.token), RmaError::BadAnswer(from));
        Refusal::Malformed
    }

    fn succeed(&mut self, token: Token, value: OperationValue) {
        if self.tickets.report(token) {
            self.events.push_back(RmaEvent::Done { token, value });
        }
    }
}
