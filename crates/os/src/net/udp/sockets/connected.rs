//! Connected sockets for the few peers with the most traffic.
//!
//! A connected UDP socket keeps its route, and the kernel finds what arrives for the socket
//! together with the route. On two hosts joined by a veth pair an exchange of 8 bytes takes 4.6 µs
//! each way instead of 5.9. Bulk is faster by a twentieth, half of it by the sender's socket and
//! half by the receiver's. Connected sockets are bound to the link's own port, so a peer does not
//! notice. The kernel matches the pair of addresses before it considers the link's own socket. Each
//! lane has its own set.
//!
//! Bench cases: `message_lat` and `put_bw` without root (`bench wind`).

use super::socket::Socket;
use crate::features::DisabledFeatures;
use arrayvec::ArrayVec;
use rustix::io::Errno;
use std::net::{IpAddr, SocketAddr};

/// Maximum number of peers with a connected socket. Each socket costs one poll in every few.
pub(in crate::net) const CONNECTED_MAX: usize = 4;
/// Maximum number of peers that are counted as candidates.
const CANDIDATES_MAX: usize = 16;
/// Calls after which a candidate gets a connected socket.
const CONNECT_CALLS: u32 = 64;
/// Calls after which candidates and failures are forgotten, and sockets without use in that time
/// are closed.
const PERIOD_CALLS: u32 = 1 << 16;
/// Sockets that could not be made or used, after which no more are tried in this period.
const FAILURES_MAX: u32 = 3;

/// Connected socket of a peer.
#[derive(Debug)]
pub(in crate::net) struct Connected {
    pub(in crate::net) to: SocketAddr,
    pub(in crate::net) socket: Socket,
    /// Number of the socket among all that the set has opened.
    number: u64,
    /// Calls in this period.
    used: u32,
}

impl Drop for Connected {
    /// A child of a fork may hold the socket, too, for long, and would receive what the peer sends.
    /// Connected to itself, the socket receives nothing. With sharing allowed, the socket does not
    /// keep the next one from the port.
    fn drop(&mut self) {
        let _ = self.socket.share(true);
        let _ = rustix::net::connect(&self.socket.fd, &self.socket.local);
    }
}

/// Connected sockets of a lane, and candidates for one.
#[derive(Debug, Default)]
pub(in crate::net) struct ConnectedSet {
    pub(in crate::net) sockets: ArrayVec<Connected, CONNECTED_MAX>,
    candidates: ArrayVec<(SocketAddr, u32), CANDIDATES_MAX>,
    calls: u32,
    failures: u32,
    /// Number of sockets that were opened.
    opened: u64,
}

/// A peer's connected socket, as a wrapper of the link uses it.
#[derive(Debug)]
pub(in crate::net) struct PeerSocket<'s> {
    pub(in crate::net) socket: &'s mut Socket,
    /// Number that no other socket of the lane has, also not one that is opened to the same peer
    /// later.
    pub(in crate::net) number: u64,
    used: &'s mut u32,
    calls: &'s mut u32,
}

impl PeerSocket<'_> {
    /// Counts a call for the peer that the wrapper has made.
    pub(in crate::net) fn count_call(self) {
        *self.used += 1;
        *self.calls += 1;
    }
}

impl ConnectedSet {
    /// Counts a call for this peer. Returns the index of its connected socket, if it has one, and
    /// otherwise whether the peer is worth one.
    pub(in crate::net) fn count_call(&mut self, peer: SocketAddr) -> (Option<usize>, bool) {
        self.calls += 1;
        if self.calls >= PERIOD_CALLS {
            (self.calls, self.failures) = (0, 0);
            self.candidates.clear();
            self.sockets.retain(|connected| std::mem::take(&mut connected.used) > 0);
        }
        if let Some((own, connected)) =
            self.sockets.iter_mut().enumerate().find(|(_, connected)| connected.to == peer)
        {
            connected.used += 1;
            return (Some(own), false);
        }
        (
            None,
            !self.sockets.is_full()
                && self.failures < FAILURES_MAX
                && self.count_candidate(peer) >= CONNECT_CALLS,
        )
    }

    /// Returns the socket of this peer, if it has one.
    pub(in crate::net) fn of_peer(&mut self, peer: SocketAddr) -> Option<PeerSocket<'_>> {
        let calls = &mut self.calls;
        let found = self.sockets.iter_mut().find(|connected| connected.to == peer)?;
        let Connected { socket, number, used, .. } = found;
        Some(PeerSocket { socket, number: *number, used, calls })
    }

    /// Returns `true` if the socket with this number is still open.
    pub(in crate::net) fn has_number(&self, number: u64) -> bool {
        self.sockets.iter().any(|connected| connected.number == number)
    }

    /// Returns `true` if a peer on this host has a connected socket, or if one is left.
    pub(in crate::net) fn may_have(&self, host: IpAddr) -> bool {
        !self.sockets.is_full() || self.sockets.iter().any(|connected| connected.to.ip() == host)
    }

    /// Counts a call for a candidate and returns its calls so far.
    fn count_candidate(&mut self, peer: SocketAddr) -> u32 {
        let Some((_, calls)) = self.candidates.iter_mut().find(|(candidate, _)| *candidate == peer)
        else {
            // With more candidates than places, the others wait for the end of the period.
            let _ = self.candidates.try_push((peer, 1));
            return 1;
        };
        *calls += 1;
        *calls
    }

    /// Connects a socket to this peer, on the port of `own`. A failure is not an error, because the
    /// link's own socket serves as well.
    pub(in crate::net) fn connect(
        &mut self,
        to: SocketAddr,
        own: &Socket,
        buffer: usize,
        without: &DisabledFeatures,
    ) -> Option<&Socket> {
        self.candidates.retain(|(candidate, _)| *candidate != to);
        match self.open(to, own, buffer, without) {
            Ok(socket) => {
                self.opened += 1;
                let connected = Connected { to, socket, number: self.opened, used: 0 };
                let _ = self.sockets.try_push(connected);
                self.sockets.last().map(|connected| &connected.socket)
            }
            Err(_) => {
                self.failures += 1;
                None
            }
        }
    }

    /// Opens the socket. All sockets on the port must allow sharing while the new one takes the
    /// port. At other times none does, so that two programs that are given one port notice it.
    fn open(
        &self,
        to: SocketAddr,
        own: &Socket,
        buffer: usize,
        without: &DisabledFeatures,
    ) -> Result<Socket, Errno> {
        let share = |yes| {
            self.sockets
                .iter()
                .map(|connected| &connected.socket)
                .chain([own])
                .try_for_each(|one| one.share(yes))
        };
        let opened = share(true).and_then(|()| Socket::connect(own, to, buffer, without));
        share(false).and(opened)
    }

    /// Closes the socket at this index, which may receive nothing that its peer sends (WIND-8.13).
    pub(in crate::net) fn close(&mut self, index: usize) {
        if index < self.sockets.len() {
            self.sockets.remove(index);
        }
    }

    /// Removes a socket that does not reach its peer, or no longer (the peer may have ended). A
    /// socket that was of use says nothing about those of other peers.
    pub(in crate::net) fn give_up(&mut self, index: usize) {
        if index < self.sockets.len() {
            let given_up = self.sockets.remove(index);
            self.failures += u32::from(given_up.used <= 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::udp::{BindError, UdpLink};

    use crate::net::conformance::take;
    use crate::net::{Bind, Link, Outgoing, Ports};

    use oikaze_protocol::wire::Lane;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::time::Timespec;

    fn peer(number: u16) -> SocketAddr {
        ([127, 0, 0, 1], number).into()
    }

    #[test]
    fn who_is_talked_to_often_is_worth_a_socket() {
        let mut set = ConnectedSet::default();
        for _ in 1..CONNECT_CALLS {
            assert_eq!([peer(1), peer(2)].map(|peer| set.count_call(peer)), [(None, false); 2]);
        }
        assert_eq!([peer(1), peer(2)].map(|peer| set.count_call(peer)), [(None, true); 2]);
    }

    #[test]
    fn a_period_forgets_those_who_were_talked_to_seldom() {
        let mut set = ConnectedSet::default();
        (1..PERIOD_CALLS)
            .for_each(|call| assert_eq!(set.count_call(peer(call as u16)), (None, false)));
        assert!(set.candidates.is_full());
        set.count_call(peer(1));
        assert_eq!(set.candidates.as_slice(), [(peer(1), 1)]);
    }

    /// Sockets behind a closed one move up by one index.
    #[test]
    fn at_a_periods_end_nobody_is_given_the_socket_of_another() {
        let mut set = ConnectedSet::default();
        for number in 1..4 {
            let socket = Socket::open(
                ([127, 0, 0, 1], 0).into(),
                false,
                1 << 16,
                &DisabledFeatures::default(),
            )
            .unwrap();
            let number = number as u64;
            set.sockets.push(Connected { to: peer(number as u16), socket, number, used: 0 });
        }
        for call in 1..2 * PERIOD_CALLS {
            let to = peer(2 + call as u16 % 2);
            let (own, _) = set.count_call(to);
            assert_eq!(set.sockets[own.unwrap()].to, to, "call {call}");
        }
        assert_eq!(set.sockets.len(), 2);
    }

    fn link(ports: Ports) -> Result<UdpLink, BindError> {
        UdpLink::bind(&Bind { addresses: vec![[127, 0, 0, 1].into()], ports, ..Bind::default() })
    }

    fn say(link: &mut UdpLink, to: SocketAddr) {
        let one = Outgoing::new(&to, Lane::Small, b"anyone?");
        assert_eq!(link.send(&[one]).unwrap(), 1);
    }

    fn socket_of(link: &UdpLink, to: SocketAddr) -> Option<&Socket> {
        link.sockets.connected.small.sockets.iter().find(|one| one.to == to).map(|one| &one.socket)
    }

    /// Address of a peer that had a connected socket and is gone. The kernel does not know yet.
    fn one_that_is_gone(link_to: &mut UdpLink) -> SocketAddr {
        let to = link(Ports::ANY).unwrap();
        let at = to.bound()[0];
        (0..2 * CONNECT_CALLS).for_each(|_| say(link_to, at));
        assert!(socket_of(link_to, at).is_some());
        at
    }

    #[test]
    fn peers_that_end_take_no_sockets_from_others() {
        let mut link = link(Ports::ANY).unwrap();
        for _ in 0..2 * FAILURES_MAX {
            let gone = one_that_is_gone(&mut link);
            while socket_of(&link, gone).is_some() {
                say(&mut link, gone);
            }
        }
    }

    /// The kernel reports that the previous datagram found no receiver, and does not send this one.
    #[test]
    fn what_is_sent_to_a_peer_that_is_back_arrives() {
        let mut one = link(Ports::ANY).unwrap();
        let gone = one_that_is_gone(&mut one);
        say(&mut one, gone);
        let told = &socket_of(&one, gone).unwrap().fd;
        poll(
            &mut [PollFd::new(told, PollFlags::empty())],
            Some(&Timespec { tv_sec: 60, tv_nsec: 0 }),
        )
        .unwrap();
        // Another program may have the port by now.
        let Ok(mut back) = link(Ports::range(gone.port(), gone.port()).unwrap()) else { return };
        say(&mut one, gone);
        assert_eq!(take(&mut back, 1).len(), 1);
    }

    #[test]
    fn what_cannot_be_made_is_not_tried_each_time() {
        let mut set = ConnectedSet { failures: FAILURES_MAX, ..ConnectedSet::default() };
        assert!((0..2 * CONNECT_CALLS).all(|_| set.count_call(peer(1)) == (None, false)));
    }
}
