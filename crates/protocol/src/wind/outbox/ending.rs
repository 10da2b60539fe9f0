//! What ends without the peer's word: it is taken back, or nobody is there any more.

use super::super::outgoing::{Stage, tell};
use super::super::{Body, Death, Event, Token};
use super::Outbox;
use alloc::collections::VecDeque;

impl Outbox {
    /// Never read the sources of the messages with these tokens again.
    pub fn cancel(&mut self, cancelled: impl Fn(Token) -> bool) {
        for at in 0..self.messages.len() {
            let Some(message) = self.messages.get_mut(at) else { break };
            if message.token == Token::NONE || !cancelled(message.token) {
                continue;
            }
            message.token = Token::NONE;
            message.body = Body::Empty;
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

    /// The connection has ended, or the peer is a new one: everything unsettled has failed, and
    /// what came back and was not taken by then (WIND-4.5); numbers begin anew.
    pub fn fail(&mut self, death: Death, events: &mut VecDeque<Event>) {
        for message in self.messages.drain(..) {
            if message.stage != Stage::Settled {
                tell(events, message.token, |token| Event::Failed(token, death));
            }
        }
        for message in self.returned.drain(..) {
            tell(events, message.token, |token| Event::Failed(token, death));
        }
        let settle_times = core::mem::take(&mut self.settle_times);
        *self = Outbox { settle_times, ..Outbox::new() };
    }
}
