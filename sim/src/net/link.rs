//! Link of a simulated node: a mailbox that the network fills and empties between turns.

use super::flows::{BULK_PORT, port_of};
use crate::random::Random;
use oikaze_os::net::{
    Arrival, Group, Link, LinkProperties, LocalAddress, Outgoing, PayloadForm, Predicted,
    Scattered, Sink, Statistics, TooBig,
};
use oikaze_protocol::wire::Lane;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of datagrams of one call of [`Link::receive`], as of a real link.
const BURST: usize = 64;
/// Bytes of a buffer in which a socket joins equal datagrams.
const BUFFER: usize = 64 << 10;
/// Fill byte for memory that a sink offers for direct placement. A socket may write anything there,
/// so the link overwrites the memory before it places datagrams.
const SPOILT: u8 = 0x33;
/// Bytes that the kernel charges for a datagram beyond its own length.
const CHARGE: usize = 256;

/// Sender of a datagram, its bytes, and `true` if it is marked CE.
pub type Datagram = (SocketAddr, Vec<u8>, bool);

/// Datagram that a node sends.
#[derive(Debug)]
pub struct Departure {
    /// Port from which the datagram leaves.
    pub port: u16,
    /// Address of the receiver.
    pub to: SocketAddr,
    /// Content of the datagram.
    pub bytes: Vec<u8>,
}

/// Queues between a node and the network.
#[derive(Debug, Default)]
pub struct Mailbox {
    /// Datagrams that have arrived and are not received yet.
    pub inbox: VecDeque<Datagram>,
    /// Datagrams that the node has sent and the network has not taken yet.
    pub outbox: Vec<Departure>,
    /// Multicast groups that the node has joined.
    pub groups: Vec<SocketAddr>,
    /// Datagrams that were too large for the path, and are not reported yet.
    pub too_big: VecDeque<TooBig>,
    charged: usize,
}

/// Mailbox that the network and a node's link share.
pub type SharedMailbox = Arc<Mutex<Mailbox>>;

/// Locks a mailbox.
pub fn open(mailbox: &SharedMailbox) -> MutexGuard<'_, Mailbox> {
    mailbox.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    /// Delivers a datagram. Returns `false` if the buffer is full and the datagram is lost.
    pub fn deliver(&mut self, from: SocketAddr, bytes: Vec<u8>, marked: bool, room: usize) -> bool {
        let charge = bytes.len() + CHARGE;
        if self.charged + charge > room {
            return false;
        }
        self.charged += charge;
        self.inbox.push_back((from, bytes, marked));
        true
    }
}

/// Link of one node.
#[derive(Debug)]
pub struct SimLink {
    mailbox: SharedMailbox,
    address: SocketAddr,
    /// Number of flows of bulk. With one, bulk has no port of its own.
    flows: u8,
    datagram_max: usize,
    receive_buffer: usize,
    /// Fraction of the calls to `send` that take only some of the datagrams, as a full socket does.
    refusing: f64,
    random: Random,
    statistics: Statistics,
}

impl SimLink {
    /// Makes a link at `address`.
    #[must_use]
    pub fn new(
        address: SocketAddr,
        datagram_max: usize,
        receive_buffer: usize,
        refusing: f64,
        random: Random,
    ) -> SimLink {
        let statistics = Statistics::default();
        SimLink {
            mailbox: SharedMailbox::default(),
            address,
            flows: 1,
            datagram_max,
            receive_buffer,
            refusing,
            random,
            statistics,
        }
    }

    /// Lets the link have this many flows of bulk.
    #[must_use]
    pub fn with_flows(self, flows: u8) -> SimLink {
        SimLink { flows, ..self }
    }

    /// Returns the network's side of the link.
    #[must_use]
    pub fn mailbox(&self) -> SharedMailbox {
        Arc::clone(&self.mailbox)
    }

    /// Takes the next datagram that has arrived.
    fn next(&mut self) -> Option<Datagram> {
        let mut mailbox = open(&self.mailbox);
        let datagram = mailbox.inbox.pop_front()?;
        let len = datagram.1.len();
        mailbox.charged = mailbox.charged.saturating_sub(len + CHARGE);
        self.statistics.datagrams_in += 1;
        self.statistics.bytes_in += len as u64;
        Some(datagram)
    }

    /// Delivers one run of equal datagrams as a socket does, with the first payloads in their
    /// predicted places (MEM-3.7).
    fn give(&mut self, run: &[Datagram], sink: &mut dyn Sink) {
        let mut placed = 0;
        if let Some(Predicted { head, payload, tag, mut place }) = sink.predict() {
            (0..place.len() / payload)
                .for_each(|slot| place.fill(slot * payload, &vec![SPOILT; payload]));
            let fits = |(_, bytes, _): &&Datagram| bytes.len() == head + payload + tag;
            let slots = run.iter().take(place.len() / payload).take_while(fits).enumerate();
            slots.clone().for_each(|(at, (_, bytes, _))| {
                place.fill(at * payload, &bytes[head..head + payload])
            });
            let scattered = slots.filter_map(|(at, (from, bytes, congested))| {
                let payload_there = place.part(at * payload, payload)?;
                let (head, tag) = (&bytes[..head], &bytes[head + payload..]);
                Some(Scattered {
                    from: *from,
                    head,
                    payload: payload_there,
                    tag,
                    congested: *congested,
                })
            });
            placed = scattered
                .clone()
                .enumerate()
                .take_while(|(at, one)| sink.confirm(*at, one))
                .count();
            scattered.take(placed).for_each(|one| sink.take_scattered(one));
        }
        self.statistics.in_place += placed as u64;
        run[placed..].iter().for_each(|datagram| sink.take(arrival(datagram)));
    }
}

fn arrival((from, bytes, congested): &Datagram) -> Arrival<'_> {
    Arrival { congested: *congested, ..Arrival::new(*from, bytes) }
}

impl Link for SimLink {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let take = if self.random.chance(self.refusing) {
            self.random.index(batch.len() + 1)
        } else {
            batch.len()
        };
        let mut mailbox = open(&self.mailbox);
        for datagram in batch.iter().take(take) {
            if datagram.len() > self.datagram_max {
                self.statistics.too_big += 1;
                continue;
            }
            let mut bytes = Vec::with_capacity(datagram.len());
            bytes.extend_from_slice(datagram.head);
            datagram.payload.with_bytes(|payload| bytes.extend_from_slice(payload));
            bytes.extend_from_slice(datagram.tag);
            self.statistics.datagrams_out += 1;
            self.statistics.bytes_out += bytes.len() as u64;
            let port = match datagram.lane {
                Lane::Bulk if self.flows > 1 => port_of(datagram.flow),
                _ => self.address.port(),
            };
            mailbox.outbox.push(Departure { port, to: *datagram.to, bytes });
        }
        self.statistics.would_block += u64::from(take < batch.len());
        Ok(take)
    }

    /// Receives a burst. Half of the bursts come as from a socket with GRO, which joins datagrams
    /// of one sender, length and mark.
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        let is_joined = !self.random.chance(0.5);
        let burst: Vec<Datagram> = std::iter::from_fn(|| self.next()).take(BURST).collect();
        if !is_joined {
            burst.iter().for_each(|datagram| sink.take(arrival(datagram)));
            return Ok(burst.len());
        }
        let alike = |(from, bytes, congested): &Datagram| (*from, bytes.len(), *congested);
        for run in burst.chunk_by(|one, other| alike(one) == alike(other)) {
            let len = run.first().map_or(1, |(_, bytes, _)| bytes.len().max(1));
            run.chunks((BUFFER / len).max(1)).for_each(|buffer| self.give(buffer, sink));
        }
        Ok(burst.len())
    }

    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        let (interface, mtu) = ("sim0".to_owned(), self.datagram_max + 28);
        Ok(vec![LocalAddress { address: self.address, interface, mtu, loopback: false }])
    }

    fn properties(&self) -> LinkProperties<'_> {
        let within = LinkProperties::within_process(self.datagram_max, self.receive_buffer);
        let bulk_port = (self.flows > 1).then_some(BULK_PORT);
        LinkProperties { bulk_port, flows: self.flows, ..within }
    }

    /// Returns `true` for hosts with an even address, so that tests cover both answers.
    fn prefers(&mut self, to: SocketAddr, _: PayloadForm) -> bool {
        matches!(to.ip(), IpAddr::V4(to) if to.octets()[3] % 2 == 0)
    }

    fn poll_too_big(&mut self) -> Option<TooBig> {
        open(&self.mailbox).too_big.pop_front()
    }

    fn join_group(&mut self, group: &Group) -> io::Result<()> {
        let groups = &mut open(&self.mailbox).groups;
        if !groups.contains(&group.address) {
            groups.push(group.address);
        }
        Ok(())
    }

    fn leave_group(&mut self, address: SocketAddr) {
        open(&self.mailbox).groups.retain(|group| *group != address);
    }

    fn route_group(&mut self, group: &Group) -> io::Result<SocketAddr> {
        Ok(group.address)
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}
