//! Keys of a connection, agreed upon in the handshake (SEAL-2).

use crate::Rank;
use crate::seal::{
    Binding, FirstMessage, Identity, KeyExchange, KeyStep, SecondMessage, SessionSecrets,
};
use crate::wire::hello::{Hello, Introduction};
use alloc::boxed::Box;
use core::fmt;

/// Progress of the key exchange with one peer.
pub(super) struct Keys {
    exchange: Box<dyn KeyExchange>,
    peer: Rank,
    /// Latest first message, sent or answered.
    first: Option<FirstMessage>,
    /// Answer of this node to it.
    second: Option<SecondMessage>,
    /// Is `true` if this node has received the answer to its first message.
    is_done: bool,
    /// Secrets that the owner has not taken yet.
    pub secrets: Option<SessionSecrets>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("is_done", &self.is_done).finish_non_exhaustive()
    }
}

impl Keys {
    pub fn new(exchange: Box<dyn KeyExchange>, me: &Introduction, peer: Rank) -> Keys {
        let (first, second, is_done, secrets) = (None, None, false, None);
        let mut keys = Keys { exchange, peer, first, second, is_done, secrets };
        keys.begin_anew(me);
        keys
    }

    /// Begins an exchange for this node's new connection id (SEAL-2.2).
    pub fn begin_anew(&mut self, me: &Introduction) {
        (self.second, self.is_done, self.secrets) = (None, false, None);
        self.first = if me.rank < self.peer {
            self.exchange.first(&binding(me, me.rank, self.peer, identity(me)))
        } else {
            None
        };
    }

    /// Returns what the next HELLO says.
    pub fn step(&self) -> KeyStep {
        match (self.is_done, self.second, self.first) {
            (true, ..) => KeyStep::Done,
            (false, Some(second), _) => KeyStep::Second(second),
            (false, None, Some(first)) => KeyStep::First(first),
            (false, None, None) => KeyStep::Nothing,
        }
    }

    /// Processes the peer's HELLO. Returns `true` if both ends have the secrets (SEAL-2.4).
    pub fn heard(&mut self, me: &Introduction, hello: &Hello) -> bool {
        match hello.key {
            KeyStep::First(first) if me.rank > self.peer => {
                if self.second.is_none() || self.first != Some(first) {
                    let theirs = identity(&hello.mine);
                    let binding = binding(me, self.peer, me.rank, theirs);
                    let answer = self.exchange.second(&binding, &first, identity(me));
                    if let Some((second, secrets)) = answer {
                        (self.first, self.second) = (Some(first), Some(second));
                        self.secrets = Some(secrets);
                    }
                }
                false
            }
            KeyStep::Second(second) if me.rank < self.peer && !self.is_done => {
                if let Some((theirs, secrets)) = self.exchange.finish(&second) {
                    self.is_done = theirs == identity(&hello.mine);
                    self.secrets = self.is_done.then_some(secrets);
                    if !self.is_done {
                        // The answer was for another process. It has used up the first message.
                        self.begin_anew(me);
                    }
                }
                self.is_done
            }
            KeyStep::Done => me.rank > self.peer && self.second.is_some(),
            _ => self.is_done,
        }
    }

    /// Returns `true` if this node can open what the peer seals.
    pub fn are_known(&self) -> bool {
        self.is_done || self.second.is_some()
    }
}

fn identity(of: &Introduction) -> Identity {
    Identity { incarnation: of.incarnation, connection: of.connection }
}

fn binding(me: &Introduction, first: Rank, second: Rank, identity: Identity) -> Binding {
    Binding { nodes: me.nodes, seal: me.seal, first, second, identity }
}
