//! State of one peer: its connection and the addresses at which it may be reached.

use crate::sealing::session;
use crate::sealing::session::Session;
use oikaze_os::secrets::key_log::KeyLog;
use oikaze_os::secrets::protected::Protected;
use oikaze_protocol::Rank;
use oikaze_protocol::seal::KeyExchange;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Connection, Death, Introduction, Lane, Message, Settings};
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Maximum number of addresses kept for one peer, including learned ones.
const ADDRESSES_MAX: usize = 32;

/// Connection to one peer, and its addresses.
pub(crate) struct Peer {
    pub connection: Connection,
    /// Id by which the connection of this peer is found.
    pub id: u64,
    /// Cause of the peer's death, if it is dead.
    pub death: Option<Death>,
    /// Is `true` if the peer had unsettled work when a turn last visited it.
    pub busy: bool,
    /// Is `true` if bytes for the peer waited to be sent when a turn last visited it.
    pub has_unsent: bool,
    pub addresses: Vec<SocketAddr>,
    /// Messages of coherence, in order, for which the connection has no room yet. The state of
    /// coherence bounds their number.
    pub held: VecDeque<Message>,
    /// Latest keys of a connection to the peer. They are for datagrams of the id in them only.
    pub session: Option<Protected<Session>>,
}

impl Peer {
    pub fn new(
        settings: Settings,
        me: Introduction,
        rank: Rank,
        mut addresses: Vec<SocketAddr>,
        key_exchange: Option<Box<dyn KeyExchange>>,
        now: Time,
    ) -> Self {
        addresses.truncate(ADDRESSES_MAX);
        let paths = u8::try_from(addresses.len()).unwrap_or(u8::MAX);
        let mut connection = Connection::new(settings, me, rank, paths, now);
        if let Some(exchange) = key_exchange {
            connection = connection.with_key_exchange(exchange);
        }
        Self {
            id: connection.id(),
            connection,
            death: None,
            busy: false,
            has_unsent: false,
            addresses,
            held: VecDeque::new(),
            session: None,
        }
    }

    /// Takes new keys from the connection, if there are any, and writes them to the log, if there
    /// is one. Called after each handshake datagram.
    pub fn take_secrets(&mut self, log: Option<&KeyLog>) {
        let Some(secrets) = self.connection.take_secrets() else { return };
        let (mine, theirs) = (self.connection.id(), self.connection.peer_introduction());
        if let Some(log) = log {
            session::write_down(&secrets, mine, theirs.map(|them| them.connection), log);
        }
        self.session = Some(Protected::new(Session::new(mine, &secrets)));
    }

    /// Returns the keys of the connection, if both ends have agreed on them.
    pub fn session_mut(&mut self) -> Option<&mut Session> {
        Session::of(&mut self.session, self.connection.id())
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

    /// Returns the index of the address from which a datagram of a lane came. Bulk may come from
    /// any port of the peer's addresses, because each flow has its own (WIND-14.1).
    pub fn path_from(&self, address: SocketAddr, lane: Lane) -> Option<u8> {
        self.path_of(address).or_else(|| {
            let is_bulk = lane == Lane::Bulk;
            let at =
                self.addresses.iter().position(|known| is_bulk && known.ip() == address.ip())?;
            u8::try_from(at).ok()
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// WIND-10.1, WIND-14.1: only bulk may come from any port, and only from the peer's addresses.
    #[test]
    fn bulk_comes_from_any_port_of_the_peers_addresses() {
        let known = [SocketAddr::from(([10, 0, 0, 1], 7)), SocketAddr::from(([10, 0, 1, 1], 7))];
        let me = Introduction::here(0, 2, 1, 5);
        let peer = Peer::new(Settings::default(), me, 1, known.to_vec(), None, Time(0));
        let other_port = SocketAddr::from(([10, 0, 1, 1], 4000));
        assert_eq!(peer.path_from(known[1], Lane::Small), Some(1));
        assert_eq!(peer.path_from(other_port, Lane::Bulk), Some(1));
        assert_eq!(peer.path_from(other_port, Lane::Small), None);
        let stranger = SocketAddr::from(([10, 0, 2, 1], 7));
        assert_eq!(peer.path_from(stranger, Lane::Bulk), None);
    }
}
