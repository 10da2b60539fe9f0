//! One peer.

use super::{Event, Introduction, Message, PostError, Settings, Statistics, Token, Transmit, Upper};
use crate::Rank;
use crate::time::Time;
use crate::wire::View;
use alloc::vec::Vec;

/// One peer, reliably: the state machine of spec/wind.md. It does nothing by itself and knows no clock.
///
/// # Contract
///
/// In one turn the owner calls, in this order:
///
/// 1. [`receive`](Self::receive) for each datagram for this connection whose seal is right. It calls up through [`Upper`] and
///    marks what is due; it never emits.
/// 2. [`timeout`](Self::timeout) if [`next_timeout`](Self::next_timeout) has come.
/// 3. [`post`](Self::post), [`consumed`](Self::consumed), [`cancel`](Self::cancel), [`close`](Self::close) as wanted.
/// 4. [`transmit`](Self::transmit) while it yields something (it does when [`has_due`](Self::has_due)); stopping early is fine.
/// 5. [`poll_event`](Self::poll_event) until it is empty.
///
/// Any other order is sound too; it only costs time.
pub struct Connection {
    settings: Settings,
    me: Introduction,
    peer: Rank,
    statistics: Statistics,
}

impl Connection {
    /// A connection to `peer`, which has `paths` candidate addresses (numbered from 0). Nothing is sent before
    /// [`connect`](Self::connect) or before the peer calls.
    #[must_use]
    pub fn new(settings: Settings, me: Introduction, peer: Rank, paths: u8, now: Time) -> Connection {
        let _ = (paths, now);
        Connection { settings, me, peer, statistics: Statistics::default() }
    }

    /// Start calling the peer: HELLOs go to every candidate path in rotation until one answers.
    pub fn connect(&mut self, now: Time) {
        let _ = (now, self.settings, self.peer);
    }

    /// The id by which the peer names this connection. Changes when the peer restarts ([`Event::Restarted`]).
    #[must_use]
    pub fn id(&self) -> u64 {
        self.me.connection
    }

    /// Do both ends know each other?
    #[must_use]
    pub fn is_established(&self) -> bool {
        false
    }

    /// The candidate path in use, once the peer was heard.
    #[must_use]
    pub fn path(&self) -> Option<u8> {
        None
    }

    /// Is nothing waiting to be sent or acknowledged, in either direction?
    #[must_use]
    pub fn is_idle(&self) -> bool {
        true
    }

    /// Queue a message, at any time, also before establishment. Its number.
    ///
    /// # Errors
    /// [`PostError`]; the message is dropped.
    pub fn post(&mut self, message: Message) -> Result<u64, PostError> {
        let _ = message;
        Err(PostError::Full)
    }

    /// A datagram for this connection arrived on `path`; its seal was verified. Never transmits.
    pub fn receive(&mut self, now: Time, view: &View<'_>, path: u8, upper: &mut impl Upper) {
        let _ = (now, view, path, upper);
    }

    /// When [`timeout`](Self::timeout) wants to be called at the latest.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Time> {
        None
    }

    /// Mark what has become due. Calling it early is harmless.
    pub fn timeout(&mut self, now: Time) {
        let _ = now;
    }

    /// Would [`transmit`](Self::transmit) yield something? O(1).
    #[must_use]
    pub fn has_due(&self, now: Time) -> bool {
        let _ = now;
        false
    }

    /// One datagram: header, frames and inline payload are appended to `into`; a segment payload follows it on the wire; the
    /// engine writes the tag after that. `None`: nothing is due, `into` is as it was.
    pub fn transmit(&mut self, now: Time, into: &mut Vec<u8>) -> Option<Transmit> {
        let _ = (now, into);
        None
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        None
    }

    /// The body (of `body_len` bytes) of one *credited* message delivered earlier has been read: its credit goes back to the peer.
    /// Once for each such message that was delivered and not refused.
    pub fn consumed(&mut self, body_len: u64) {
        let _ = body_len;
    }

    /// Forget the source of the messages with this token: it is never gathered again. No event follows for it.
    pub fn cancel(&mut self, token: Token) {
        let _ = token;
    }

    /// Say goodbye. Messages not settled fail; [`Event::Dead`] follows at once, the CLOSE at the next `transmit`.
    pub fn close(&mut self, now: Time) {
        let _ = now;
    }

    /// Counters.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }
}
