//! The link of a simulated node: a mailbox that the network fills and empties between turns.

use crate::random::Random;
use oikaze_os::link::{Arrival, Link, LocalAddress, Outgoing, Statistics, TooBig};

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Datagrams of one call of [`Link::receive`], as a real link bounds them.
const BURST: usize = 64;
/// What the kernel charges a datagram beyond its bytes.
const CHARGE: usize = 256;

/// What lies between a node and the network.
#[derive(Debug, Default)]
pub struct Mailbox {
    /// Arrived, not yet received: whence, what, and whether it came marked CE.
    pub inbox: VecDeque<(SocketAddr, Vec<u8>, bool)>,
    /// Sent, not yet on its way.
    pub outbox: Vec<(SocketAddr, Vec<u8>)>,
    /// Refused for its size on the way, and not yet told.
    pub too_big: VecDeque<TooBig>,
    charged: usize,
}

/// Shared by the network and a node's link.
pub type SharedMailbox = Arc<Mutex<Mailbox>>;

/// Look into a mailbox.
pub fn open(mailbox: &SharedMailbox) -> MutexGuard<'_, Mailbox> {
    mailbox.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailbox {
    /// A datagram arrives; `false`: the buffer is full and it is lost.
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

/// One node's link.
#[derive(Debug)]
pub struct SimLink {
    mailbox: SharedMailbox,
    address: SocketAddr,
    datagram_max: usize,
    receive_buffer: usize,
    /// Of the calls to `send`, so many take only some of the datagrams.
    stubborn: f64,
    random: Random,
    statistics: Statistics,
}

impl SimLink {
    /// A link at `address`.
    #[must_use]
    pub fn new(address: SocketAddr, datagram_max: usize, receive_buffer: usize, stubborn: f64, random: Random) -> SimLink {
        let statistics = Statistics::default();
        SimLink { mailbox: SharedMailbox::default(), address, datagram_max, receive_buffer, stubborn, random, statistics }
    }

    /// The network's side.
    #[must_use]
    pub fn mailbox(&self) -> SharedMailbox {
        Arc::clone(&self.mailbox)
    }
}

impl Link for SimLink {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let take = if self.random.chance(self.stubborn) { self.random.index(batch.len() + 1) } else { batch.len() };
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
            mailbox.outbox.push((*datagram.to, bytes));
        }
        self.statistics.would_block += u64::from(take < batch.len());
        Ok(take)
    }

    fn receive(&mut self, take: &mut dyn FnMut(Arrival<'_>)) -> io::Result<usize> {
        let mut taken = 0;
        while taken < BURST {
            let Some((from, bytes, congested)) = open(&self.mailbox).inbox.pop_front() else { break };
            let mut mailbox = open(&self.mailbox);
            mailbox.charged = mailbox.charged.saturating_sub(bytes.len() + CHARGE);
            drop(mailbox);
            self.statistics.datagrams_in += 1;
            self.statistics.bytes_in += bytes.len() as u64;
            take(Arrival { from, bytes: &bytes, congested });
            taken += 1;
        }
        Ok(taken)
    }

    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        let (interface, mtu) = ("sim0".to_owned(), self.datagram_max + 28);
        Ok(vec![LocalAddress { address: self.address, interface, mtu, loopback: false }])
    }

    fn datagram_max(&self) -> usize {
        self.datagram_max
    }

    fn receive_buffer(&self) -> usize {
        self.receive_buffer
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn poll_too_big(&mut self) -> Option<TooBig> {
        open(&self.mailbox).too_big.pop_front()
    }

    fn statistics(&self) -> Statistics {
        self.statistics
    }
}
