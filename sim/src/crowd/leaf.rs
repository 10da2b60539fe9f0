//! A peer of the hub: one connection and nothing else, so that there can be a thousand peers.

use super::{Sent, address_of};
use crate::net::address_of as hub_address;
use oikaze_engine::seal::{Checksum, HandshakeSeal};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::TAG_MAX;
use oikaze_protocol::rma::Rma;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{
    Admission, Body, Class, Connection, Delivered, Handler, Introduction, Message, Refusal,
    Settings, Token, Transmit,
};
use oikaze_protocol::wire::{Seal, SealKind, View};

/// A peer of the hub.
pub struct Leaf {
    /// Rank of the peer.
    pub rank: Rank,
    /// The peer's end of the connection.
    pub connection: Connection,
    /// Deliveries to this leaf.
    pub heard: Heard,
    pub(super) turn_at: Option<Time>,
    seals: (HandshakeSeal, Checksum),
}

/// Counts of messages delivered to a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of the messages' bodies.
    pub bytes: u64,
    /// Time at which the last message of at most [`SHORT`] bytes was delivered.
    pub short_at: Option<Time>,
    /// Time of the datagram that is being read.
    now: Time,
}

/// Maximum number of bytes of a message whose delivery is timed.
pub const SHORT: u64 = 64;

impl Handler for Heard {
    fn admit(&mut self, _: Rank, _: u64, _: Class, _: &[u8], _: u64) -> Admission {
        Admission::Place
    }

    fn place(&mut self, _: Rank, _: u64, _: u64, _: &[u8]) {}

    fn deliver(
        &mut self,
        _: Rank,
        _: u64,
        _: Class,
        _: &[u8],
        body: Delivered<'_>,
    ) -> Result<(), Refusal> {
        let len = match body {
            Delivered::Bytes(bytes) => bytes.len() as u64,
            Delivered::Owned(bytes) => bytes.len() as u64,
            Delivered::Placed(len) => len,
        };
        self.messages += 1;
        self.bytes += len;
        if len <= SHORT {
            self.short_at = Some(self.now);
        }
        Ok(())
    }

    fn abandon(&mut self, _: Rank) {}
}

impl Leaf {
    /// Makes the peer of this rank, which connects to no node by itself.
    pub(super) fn new(
        rank: Rank,
        nodes: u32,
        id: u64,
        settings: Settings,
        seal: &HandshakeSeal,
    ) -> Leaf {
        let me = Introduction::here(rank, nodes, 1, id);
        let checksum = Checksum::of(SealKind::EndToEnd).expect("a kind with a checksum");
        Leaf {
            rank,
            connection: Connection::new(settings, me, 0, 1, Time(0)),
            heard: Heard::default(),
            turn_at: None,
            seals: (seal.clone(), checksum),
        }
    }

    /// Receives a datagram.
    pub(super) fn receive(&mut self, now: Time, bytes: &[u8]) {
        let Ok(view) = View::parse(bytes) else { return };
        let (parts, tag) = ((view.covered(), view.payload()), view.tag());
        let right = if view.is_handshake() {
            self.seals.0.verify(parts.0, parts.1, tag)
        } else {
            self.seals.1.verify(parts.0, parts.1, tag)
        };
        if right {
            self.heard.now = now;
            let (messages, bytes) = (self.heard.messages, self.heard.bytes);
            self.connection.receive(now, &view, 0, &mut self.heard);
            // Reading makes room at once.
            let (messages, bytes) = (self.heard.messages - messages, self.heard.bytes - bytes);
            self.connection.consumed(messages, bytes);
        }
    }

    /// Sends this many bytes to the hub.
    pub fn say(&mut self, now: Time, bytes: usize) {
        let message = Rma::user(
            Class::Ordered,
            u64::from(self.rank),
            Body::Inline(vec![7; bytes]),
            Token::NONE,
        );
        let message: Message = message.expect("of a length that fits");
        self.connection.post(now, message).expect("room");
    }

    /// Sends everything that is due.
    pub(super) fn turn(&mut self, now: Time) -> Vec<Sent> {
        if self.connection.next_timeout().is_some_and(|at| at <= now) {
            self.connection.timeout(now);
        }
        let mut sent = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let Some(Transmit { handshake, .. }) = self.connection.transmit(now, &mut bytes) else {
                break;
            };
            let mut tag = [0; TAG_MAX];
            let len = if handshake { self.seals.0.len() } else { self.seals.1.len() };
            if handshake {
                self.seals.0.tag(&[&bytes], &mut tag[..len]);
            } else {
                // Leaves send no segments. All of a datagram's bytes are here, and the checksum
                // covers them all.
                self.seals.1.tag(&[&bytes], &mut tag[..len]);
            }
            bytes.extend_from_slice(&tag[..len]);
            sent.push(Sent { from: address_of(self.rank), to: hub_address(0), bytes });
        }
        while self.connection.poll_event().is_some() {}
        sent
    }
}
