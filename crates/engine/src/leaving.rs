//! Leaving the job: this node's own leave waits for its one-sided operations, and other nodes'
//! notices are passed up.

use super::Engine;
use oikaze_os::net::Link;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::Pages;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Death, Token};
use std::collections::VecDeque;
use std::time::Duration;

/// Time from the launcher's report that a process has ended until its peers count it as dead. It is
/// longer than datagrams stay on a network or in a socket's buffer.
const ENDED_GRACE: Duration = Duration::from_millis(50);

/// State of leaving, for this node and for other nodes.
#[derive(Default)]
pub(super) struct Leaving {
    /// Token of this node's leave, until its one-sided operations have ended.
    waiting: Option<Token>,
    /// Notices of others that nobody has taken yet; true: the node sends no more messages either.
    pub told: VecDeque<(Rank, bool)>,
}

impl<L: Link, P: Pages> Engine<L, P> {
    /// Leaves once this node's one-sided operations have ended. A node that is told that this one
    /// leaves gives up waiting for words that only this one could still change (COH-6.7), so
    /// nothing may be on its way to them.
    pub(super) fn leave_after_operations(&mut self, token: Token) {
        self.leaving.waiting = Some(token);
        self.begin_to_leave();
    }

    /// Begins to leave if this was requested and no one-sided operation is in flight. Returns
    /// `true` if it began.
    pub(super) fn begin_to_leave(&mut self) -> bool {
        let Some(token) = self.leaving.waiting.take_if(|_| self.operations.one_sided() == 0) else {
            return false;
        };
        self.coherence.leave(token, &mut self.pages);
        true
    }

    /// Called when the launcher reports that the process of a peer has ended. The peer is dead
    /// unless it has left in order (END-1.4, END-1.5).
    pub(super) fn process_ended(&mut self, peer: Rank, success: bool, now: Time) {
        let has_left = success && (self.coherence.is_leaving(peer) || self.coherence.has_left());
        if has_left || peer == self.me {
            return;
        }
        if let Some(peer) = self.peers.touch(peer) {
            // Its last datagrams may still be on the way.
            peer.connection.end_by(now + ENDED_GRACE, Death::Ended);
        }
        self.more = true;
    }

    /// Takes the oldest notice of another node that has begun to leave. The flag is `true` if all
    /// its messages have arrived, too.
    pub fn take_leaving(&mut self) -> Option<(Rank, bool)> {
        self.leaving.told.pop_front()
    }
}
