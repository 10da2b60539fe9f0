//! One peer as the engine keeps it: its connection and where it may be reached.

use super::shm::{LocalPeer, RingCounters};
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Connection, Death, Introduction, Message, Settings, Token};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Addresses kept for one peer, those it was learned to use included.
const ADDRESSES_MAX: usize = 32;

pub(super) struct Peer {
    pub connection: Connection,
    /// The rings that its messages go through instead, if it shares memory with this node.
    pub local_peer: Option<Box<LocalPeer>>,
    /// What had gone through them, when there are none any more.
    pub rings: RingCounters,
    /// By which id its connection is found.
    pub id: u64,
    /// How it was lost, if it was.
    pub death: Option<Death>,
    /// Something was unsettled when it was looked at last.
    pub busy: bool,
    pub addresses: Vec<SocketAddr>,
    /// Coherence's messages for which the connection has no room yet, in their order. As many as
    /// its own state makes, no more.
    pub held: VecDeque<Message>,
}

impl Peer {
    pub fn new(
        settings: Settings,
        me: Introduction,
        rank: Rank,
        mut addresses: Vec<SocketAddr>,
        now: Time,
    ) -> Self {
        addresses.truncate(ADDRESSES_MAX);
        let paths = u8::try_from(addresses.len()).unwrap_or(u8::MAX);
        let connection = Connection::new(settings, me, rank, paths, now);
        Self {
            id: connection.id(),
            connection,
            local_peer: None,
            rings: RingCounters::default(),
            death: None,
            busy: false,
            addresses,
            held: VecDeque::new(),
        }
    }

    /// Is there no room for a further message, whichever way it goes?
    pub fn is_full(&self) -> bool {
        self.local_peer
            .as_ref()
            .map_or_else(|| self.connection.is_full(), |local_peer| local_peer.is_full())
    }

    /// Number of messages that have been posted to the peer and not been settled.
    pub fn open_messages(&self) -> usize {
        self.local_peer.as_ref().map_or_else(
            || self.connection.open_messages(),
            |local_peer| local_peer.open_messages(),
        )
    }

    /// Forget the sources of the messages with such tokens.
    pub fn cancel(&mut self, cancelled: &impl Fn(Token) -> bool) {
        match &mut self.local_peer {
            Some(local_peer) => local_peer.cancel(cancelled),
            None => self.connection.cancel_all(cancelled),
        }
    }

    /// So many messages, of so many bytes, have been read.
    pub fn consumed(&mut self, messages: u64, bytes: u64) {
        match &mut self.local_peer {
            Some(local_peer) => local_peer.consumed(messages, bytes),
            None => self.connection.consumed(messages, bytes),
        }
    }

    /// Say goodbye, by both ways.
    pub fn close(&mut self, now: Time) {
        if let Some(local_peer) = &mut self.local_peer {
            local_peer.close();
        }
        self.connection.close(now);
    }

    /// The number of this address among the peer's, if it is one of them, or would be but for the
    /// port, which is that of its bulk lane.
    pub fn path_of(&self, address: SocketAddr) -> Option<u8> {
        let at = self.addresses.iter().position(|&known| known == address).or_else(|| {
            let bulk_port = self.connection.peer_introduction().map_or(0, |them| them.bulk_port);
            let of_bulk = bulk_port != 0 && address.port() == bulk_port;
            self.addresses.iter().position(|known| of_bulk && known.ip() == address.ip())
        });
        at.and_then(|at| u8::try_from(at).ok())
    }

    /// As [`Peer::path_of`]; a new address is remembered, if there is room (a peer behind a
    /// translator is seen at an address it did not publish). Only for authenticated handshakes.
    pub fn learn_path(&mut self, address: SocketAddr) -> Option<u8> {
        self.path_of(address).or_else(|| {
            if self.addresses.len() >= ADDRESSES_MAX {
                return None;
            }
            self.addresses.push(address);
            u8::try_from(self.addresses.len() - 1).ok()
        })
    }
}
