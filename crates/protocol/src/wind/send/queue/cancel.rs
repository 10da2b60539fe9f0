//! Messages that end without the peer: they are cancelled, or the connection has ended.

use super::super::outgoing::{Stage, report};
use super::Outbox;
use crate::wind::death::Death;
use crate::wind::event::Event;
use crate::wind::send::message::{Body, Token};
use alloc::collections::VecDeque;

impl Outbox {
    /// Cancels the messages with these tokens, so that their sources are never read again.
    pub fn cancel(&mut self, cancelled: impl Fn(Token) -> bool) {
        for at in 0..self.messages.len() {
            let Some(message) = self.messages.get_mut(at) else { break };
            if message.token == Token::NONE || !cancelled(message.token) {
                continue;
            }
            message.token = Token::NONE;
            message.body = Body::Empty;
            self.shared -= usize::from(core::mem::take(&mut message.shared));
            if !matches!(
                message.stage,
                Stage::Acknowledged | Stage::Settled | Stage::Withdrawn { .. }
            ) {
                message.stage = Stage::Withdrawn { queued: true };
                if self.sizes.is_some() {
                    self.small.push_back(self.first + at as u64);
                }
            }
        }
        self.returned.retain(|message| !cancelled(message.token));
        self.unblock();
        self.drop_stale();
    }

    /// Fails all unsettled messages and all returned ones that were not taken (WIND-4.5). Called
    /// when the connection has ended or the peer is a new process. Numbers begin anew.
    pub fn fail(&mut self, death: Death, events: &mut VecDeque<Event>) {
        for message in self.messages.drain(..) {
            if message.stage != Stage::Settled {
                report(events, message.token, |token| Event::Failed(token, death));
            }
        }
        for message in self.returned.drain(..) {
            report(events, message.token, |token| Event::Failed(token, death));
        }
        let settle_times = core::mem::take(&mut self.settle_times);
        *self = Outbox { settle_times, ..Outbox::new() };
    }
}
