//! Sockets of a link, and which of them reaches a peer.

pub(super) mod address;
pub(super) mod bind;
pub(super) mod connected;
pub(super) mod group;
pub(crate) mod socket;

use crate::features::DisabledFeatures;
use connected::{ConnectedSet, PeerSocket};
use group::{GroupRoute, JoinedGroup};
use oikaze_protocol::wind::PerLane;
use oikaze_protocol::wire::Lane;
use socket::Socket;
use std::net::{IpAddr, SocketAddr};

/// Number of sockets for flows that could not be opened, after which no more are tried.
const FLOW_FAILURES_MAX: u8 = 4;

/// Sockets of a link. Without own sockets for bulk, bulk goes through the small ones.
#[derive(Debug)]
pub(in crate::net) struct Sockets {
    /// The link's own sockets, one for each address and lane. Bulk may have none.
    pub(in crate::net) own: PerLane<Vec<Socket>>,
    /// Sockets connected to single peers, on either port.
    pub(in crate::net) connected: PerLane<ConnectedSet>,
    /// Sockets that only send, for flows of bulk beyond the first (WIND-14.1).
    pub(in crate::net) flows: Vec<FlowSocket>,
    /// Number of sockets for flows that could not be opened.
    pub(in crate::net) flow_failures: u8,
    /// Sockets of joined groups, which are polled as bulk sockets.
    pub(in crate::net) joined: Vec<JoinedGroup>,
    /// Groups to which an own socket is prepared to send.
    pub(in crate::net) group_routes: Vec<GroupRoute>,
    /// `true` if datagrams to groups come back to this host, too.
    pub(in crate::net) loops_groups: bool,
}

/// Socket from which a flow of bulk beyond the first is sent. Nothing is received by it, because no
/// peer sends there.
#[derive(Debug)]
pub(in crate::net) struct FlowSocket {
    /// Index of the link's own socket for bulk at the same address.
    own: usize,
    flow: u8,
    pub(in crate::net) socket: Socket,
}

/// Socket to send from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Route {
    /// The peer's connected socket for this lane.
    Connected(Lane, usize),
    /// The link's own socket for this lane.
    Own(Lane, usize),
    /// The socket of a flow beyond the first, at this index.
    Flow(usize),
    /// The link's own socket for bulk, by the interface of this route to a group.
    Group(GroupRoute),
    /// None: the link has no address of the peer's family.
    None,
}

impl Route {
    /// Returns the route to a group, if it is one.
    pub(super) fn of_group(&self) -> Option<&GroupRoute> {
        match self {
            Self::Group(route) => Some(route),
            _ => None,
        }
    }
}

impl Sockets {
    pub(super) fn all(&self) -> impl Iterator<Item = &Socket> {
        let connected = self.connected.both().into_iter().flat_map(|set| &set.sockets);
        let own = self.own.both().into_iter().flatten();
        let joined = self.joined.iter().map(|joined| &joined.socket);
        connected.map(|connected| &connected.socket).chain(own).chain(joined)
    }

    /// Returns the joined groups whose sockets are polled among those of a lane.
    fn joined_of(&self, lane: Lane) -> &[JoinedGroup] {
        if lane == Lane::Bulk { &self.joined } else { &[] }
    }

    /// Returns the lane whose sockets carry this lane.
    pub(in crate::net) fn lane_of(&self, lane: Lane) -> Lane {
        if self.own.bulk.is_empty() { Lane::Small } else { lane }
    }

    /// Returns `true` if a datagram to this local address comes to a small socket.
    pub(in crate::net) fn serves(&self, ip: IpAddr) -> bool {
        self.own.small.iter().any(|socket| socket.serves(ip))
    }

    /// Returns the peer's connected socket for a lane, if it has one.
    pub(in crate::net) fn of_peer(
        &mut self,
        peer: SocketAddr,
        lane: Lane,
    ) -> Option<PeerSocket<'_>> {
        let lane = self.lane_of(lane);
        self.connected[lane].of_peer(peer)
    }

    /// Returns the number of a lane's sockets.
    pub(super) fn count(&self, lane: Lane) -> usize {
        self.connected[lane].sockets.len() + self.own[lane].len() + self.joined_of(lane).len()
    }

    /// Returns a lane's socket with this index: the connected ones come first, then the link's own,
    /// then those of joined groups.
    pub(super) fn get_mut(&mut self, lane: Lane, index: usize) -> Option<&mut Socket> {
        let connected = &mut self.connected[lane].sockets;
        let Some(index) = index.checked_sub(connected.len()) else {
            return connected.get_mut(index).map(|connected| &mut connected.socket);
        };
        let own = &mut self.own[lane];
        match index.checked_sub(own.len()) {
            None => own.get_mut(index),
            Some(index) if lane == Lane::Bulk => {
                self.joined.get_mut(index).map(|joined| &mut joined.socket)
            }
            Some(_) => None,
        }
    }

    /// Polls at which a lane's sockets had something last, in the order of their indices.
    pub(super) fn last_polls(&self, lane: Lane) -> impl Iterator<Item = usize> {
        let connected = self.connected[lane].sockets.iter().map(|one| one.socket.came);
        let joined = self.joined_of(lane).iter().map(|joined| joined.socket.came);
        connected.chain(self.own[lane].iter().map(|own| own.came)).chain(joined)
    }

    /// Returns the route to a group, or `None` if the address is not of one.
    pub(super) fn group_route(&self, to: SocketAddr) -> Option<Route> {
        self.group_routes.iter().find(|route| route.name == to).copied().map(Route::Group)
    }

    /// Returns the link's own socket that reaches this peer.
    pub(super) fn own_route(&self, to: SocketAddr, lane: Lane) -> Route {
        reaching(&self.own[lane], to).map_or(Route::None, |own| Route::Own(lane, own))
    }

    /// Returns the socket of a flow of bulk beyond the first to this peer, which is opened at first
    /// use. Without one, the flow leaves from the link's own port for bulk.
    pub(super) fn flow_route(
        &mut self,
        to: SocketAddr,
        flow: u8,
        buffer: usize,
        without: &DisabledFeatures,
    ) -> Route {
        let Some(own) = reaching(&self.own.bulk, to) else { return Route::None };
        let is_here = |known: &FlowSocket| known.own == own && known.flow == flow;
        if let Some(index) = self.flows.iter().position(is_here) {
            return Route::Flow(index);
        }
        // A system that has no more ports or descriptors is not asked at every datagram.
        let may_open = self.flow_failures < FLOW_FAILURES_MAX;
        let from = self.own.bulk.get(own).filter(|_| may_open);
        match from.map(|own| own.open_flow(buffer, without)) {
            Some(Ok(socket)) => {
                self.flows.push(FlowSocket { own, flow, socket });
                Route::Flow(self.flows.len() - 1)
            }
            failed => {
                self.flow_failures += u8::from(failed.is_some());
                Route::Own(Lane::Bulk, own)
            }
        }
    }

    pub(super) fn at_route(&mut self, route: Route) -> Option<&mut Socket> {
        match route {
            Route::Connected(lane, index) => {
                self.connected[lane].sockets.get_mut(index).map(|connected| &mut connected.socket)
            }
            Route::Own(lane, index) => self.own[lane].get_mut(index),
            Route::Flow(index) => self.flows.get_mut(index).map(|flow| &mut flow.socket),
            Route::Group(route) => {
                let lane = self.lane_of(Lane::Bulk);
                self.own[lane].get_mut(route.own)
            }
            Route::None => None,
        }
    }
}

/// Chooses the socket to send from, of several that differ by address: one of the peer's family, on
/// loopback if the peer is.
pub(super) fn reaching(sockets: &[Socket], to: SocketAddr) -> Option<usize> {
    let fits = |socket: &Socket| socket.both || socket.local.is_ipv4() == to.is_ipv4();
    let best = |socket: &Socket| {
        fits(socket)
            && (socket.local.ip().is_unspecified()
                || socket.local.ip().is_loopback() == to.ip().is_loopback())
    };
    sockets.iter().position(best).or_else(|| sockets.iter().position(fits))
}
