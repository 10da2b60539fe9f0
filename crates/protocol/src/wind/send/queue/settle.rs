//! Settling of messages by the peer's acknowledgements and refusals (WIND-4).

use super::super::outgoing::{Outgoing, Stage, report};
use super::Outbox;
use crate::limits::SETTLED_DELAY;
use crate::planted::{Bug, planted};
use crate::wind::event::Event;
use crate::wind::handler::Refusal;
use crate::wind::send::message::{Body, Class, Message, Token};
use crate::wire::group::Carrier;
use alloc::collections::VecDeque;
use core::ops::Range;

impl Outbox {
    /// Called when the peer has accepted the message, or has learned of its withdrawal.
    pub fn acked_small(&mut self, number: u64, withdrawal: bool, events: &mut VecDeque<Event>) {
        match self.get_mut(number).map(|message| &mut message.stage) {
            // A message in bulk had been sent whole, and was to be sent again in fragments.
            Some(Stage::Small { .. } | Stage::Bulk(_)) if !withdrawal => {
                self.arrived(number, events)
            }
            // The message was withdrawn, but had arrived already, which settles it as well.
            Some(Stage::Withdrawn { .. }) => self.settle(number),
            _ => {}
        }
    }

    /// Called when the peer has these bytes in their place, which `carrier` brought. A peer that
    /// accepts fragments knows the message.
    pub fn acked_fragment(
        &mut self,
        carrier: Carrier,
        number: u64,
        bytes: Range<u64>,
        events: &mut VecDeque<Event>,
    ) {
        let Some(message) = self.get_mut(number) else { return };
        let Stage::Bulk(progress) = &mut message.stage else { return };
        match carrier {
            Carrier::Connection => progress.opened = true,
            Carrier::Group => message.by_group = true,
        }
        progress.lost.remove(bytes.clone());
        progress.acked.insert(bytes);
        if progress.acked.covers(&(0..message.len)) {
            self.arrived(number, events);
        }
    }

    /// Called when the whole message has arrived. An unordered message is settled at once, the
    /// others in their turn (WIND-4.2, WIND-4.4).
    fn arrived(&mut self, number: u64, events: &mut VecDeque<Event>) {
        let Some(message) = self.get_mut(number) else { return };
        message.body = Body::Empty;
        if message.class == Class::Unordered || planted(Bug::SettleOutOfTurn) {
            report(events, message.token, Event::Acknowledged);
            message.stage = Stage::Settled;
            let posted = message.posted;
            self.settle_times.record_between(posted, self.now);
        } else {
            message.stage = Stage::Acknowledged;
        }
    }

    /// Called when the peer's upper layer refused the message (WIND-4.5). Returns `true` if the
    /// message was not settled before.
    pub fn refused(&mut self, number: u64, refusal: Refusal, events: &mut VecDeque<Event>) -> bool {
        let Some(message) = self.get_mut(number) else { return false };
        // No correct peer refuses what was not sent.
        if message.stage == Stage::Waiting {
            return false;
        }
        let news = message.stage != Stage::Settled;
        let is_reported = matches!(message.stage, Stage::Settled | Stage::Withdrawn { .. });
        if !is_reported && refusal == Refusal::NotPresent && message.token != Token::NONE {
            let Outgoing { class, urgent, charge, head, token, .. } = message;
            let (class, urgent, charge, head, token) =
                (*class, *urgent, *charge, head.clone(), *token);
            let body = core::mem::replace(&mut message.body, Body::Empty);
            self.returned.push_back(Message { class, urgent, charge, head, body, token });
            events.push_back(Event::Returned);
        } else if !is_reported {
            report(events, message.token, |token| Event::Refused(token, refusal));
        }
        self.settle(number);
        news
    }

    fn settle(&mut self, number: u64) {
        if let Some(message) = self.get_mut(number) {
            message.body = Body::Empty;
            message.stage = Stage::Settled;
            self.end_sharing(number);
        }
    }

    /// Called after acknowledgements. Reports ordered messages whose turn has come, forgets what is
    /// settled, and tidies the queues (WIND-4.8).
    pub fn advance(&mut self, events: &mut VecDeque<Event>) {
        while let Some(message) = self.messages.front() {
            match message.stage {
                Stage::Acknowledged => {
                    self.settle_times.record_between(message.posted, self.now);
                    report(events, message.token, Event::Acknowledged);
                }
                Stage::Settled => {}
                _ => break,
            }
            let by_group = message.by_group;
            self.messages.pop_front();
            self.first += 1;
            if by_group && self.untold_settled.replace(self.first).is_none() {
                self.tell_settled = self.now + SETTLED_DELAY;
            }
        }
        self.drop_stale();
    }
}
