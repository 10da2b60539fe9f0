//! State of one peer: its connection and the addresses at which it may be reached.

use crate::shm::{LocalPeer, RingCounters};
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Connection, Death, Introduction, Message, Settings, Token};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Maximum number of addresses kept for one peer, including learned ones.
const ADDRESSES_MAX: usize = 32;

pub(crate) struct Peer {
    pub connection: Connection,
    /// Rings that carry its messages instead, if the peer shares memory with this node.
    pub local_peer: Option<Box<LocalPeer>>,
    /// Final counters of the rings, after the rings are gone.
    pub rings: RingCounters,
    /// Id by which the connection of this peer is found.
    pub id: u64,
    /// Cause of the peer's death, if it is dead.
    pub death: Option<Death>,
    /// Is `true` if the peer had unsettled work when a turn last visited it.
    pub busy: bool,
    pub addresses: Vec<SocketAddr>,
    /// Messages of coherence, in order, for which the connection has no room yet. The state of
    /// coherence bounds their number.
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

    /// Returns `true` if there is no room for another message, in the rings or the connection.
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

    /// Drops the sources of the messages whose tokens `cancelled` selects.
    pub fn cancel(&mut self, cancelled: &impl Fn(Token) -> bool) {
        match &mut self.local_peer {
            Some(local_peer) => local_peer.cancel(cancelled),
            None => self.connection.cancel_all(cancelled),
        }
    }

    /// Called when this number of messages, with this number of bytes, has been read.
    pub fn consumed(&mut self, messages: u64, bytes: u64) {
        match &mut self.local_peer {
            Some(local_peer) => local_peer.consumed(messages, bytes),
            None => self.connection.consumed(messages, bytes),
        }
    }

    /// Closes the rings and the connection.
    pub fn close(&mut self, now: Time) {
        if let Some(local_peer) = &mut self.local_peer {
            local_peer.close();
        }
        self.connection.close(now);
    }

    /// Returns the index of this address among the peer's addresses. An address whose port is that
    /// of the peer's bulk lane matches by its IP address.
    pub fn path_of(&self, address: SocketAddr) -> Option<u8> {
        let at = self.addresses.iter().position(|&known| known == address).or_else(|| {
            let bulk_port = self.connection.peer_introduction().map_or(0, |them| them.bulk_port);
            let of_bulk = bulk_port != 0 && address.port() == bulk_port;
            self.addresses.iter().position(|known| of_bulk && known.ip() == address.ip())
        });
        at.and_then(|at| u8::try_from(at).ok())
    }

    /// Returns the same index as [`Peer::path_of`], and adds a new address if there is room (a peer
    /// behind a translator is seen at an address it did not publish). Only for authenticated
    /// handshakes.
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
