//! Small datagrams received before the kernel has gone through IP, UDP and sockets with them.
//!
//! A program of ours (tcx, Linux 6.6) stands at each interface where packets come in, and puts
//! those for the link's port into a ring that this process has mapped: who looks for a datagram
//! reads a word instead of making a system call. It takes CAP_BPF and CAP_NET_ADMIN; without, and
//! for all that the program leaves alone, there are the sockets. It leaves with the link, however
//! the process ends (and those that it forked).
//!
//! While somebody sleeps the gate is shut, and all goes to the sockets, which wake. That nothing is
//! left behind in the ring is Dekker's: who sleeps shuts the gate and then looks whether the ring
//! is empty; the program claims its place in the ring and then looks whether the gate is open.
//!
//! What is taken so has not passed the firewall's rules for what comes in, nor the kernel's check
//! of the UDP checksum, which is made here where nothing else covers the bytes.

mod program;
mod ring;
#[cfg(test)]
mod tests;

use super::super::{Arrival, Statistics, ip};
use crate::bpf::{self, Loaded, Map};
use crate::interfaces::{self, Interface, Probe};
use crate::memory::MemoryError;
use crate::memory::mapping::Mapping;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use program::{RECORD_HEAD, program};
use ring::Ring;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Bytes of the ring. What finds no room in it goes to the sockets, with all that follows until
/// both were found empty.
const RING: u32 = 512 << 10;
/// Addresses that the program looks for; at others all goes to the sockets.
const ADDRESSES_MAX: usize = 16;
/// Links of one machine that have programs at its interfaces: each costs every packet that comes
/// in.
pub(super) const SHARERS_MAX: usize = 8;

/// Bytes of an Ethernet header: to whom, from whom, what kind.
pub(super) const ETHERNET_LEN: usize = program::ETHERNET as usize;

/// How a peer's datagram came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// The number of our interface.
    pub(super) interface: u32,
    /// The header of the frame.
    pub(super) ethernet: [u8; ETHERNET_LEN],
    /// The address and port of ours that it was sent to.
    pub(super) ours: SocketAddr,
}

/// Programs at this machine's interfaces, and the ring that they fill.
#[derive(Debug)]
pub(super) struct Early {
    ring: Ring,
    gate: Mapping,
    /// One for each interface; dropped with the rest.
    links: Vec<bpf::Link>,
    /// The bytes of a datagram are covered by its UDP checksum alone.
    checked: bool,
}

impl Early {
    /// Programs for this port, at those addresses of ours that are `served`; `checked`: the UDP
    /// checksum is looked at.
    ///
    /// # Errors
    /// EPERM and the like: not permitted. EINVAL: the kernel is too old. ENODEV: no Ethernet
    /// interface has such an address.
    pub(super) fn open(
        port: u16,
        served: impl Fn(IpAddr) -> bool,
        checked: bool,
    ) -> Result<Early, Errno> {
        let (ips, numbers) = ethernet(served)?;
        if numbers.is_empty() {
            return Err(Errno::NODEV);
        }
        let (mut early, program) = Early::at_no_interface(port, &ips, checked)?;
        early.links = numbers
            .into_iter()
            .map(|number| bpf::attach_to_ingress(&program, number))
            .collect::<Result<_, _>>()?;
        Ok(early)
    }

    /// And the program, which nothing comes to yet.
    fn at_no_interface(port: u16, ips: &[IpAddr], checked: bool) -> Result<(Early, Loaded), Errno> {
        let gate_map = Map::shared(core::mem::size_of::<u32>() as u32)?;
        let ring = Ring::new(RING)?;
        let gate = Mapping::of_part_of_file(gate_map.as_fd(), 0, rustix::param::page_size(), true);
        let gate = gate.map_err(|_: MemoryError| Errno::NOMEM)?;
        let program = program(port, ips, ring.fd(), gate_map.as_fd()).ok_or(Errno::TOOBIG)?;
        let program = bpf::load_classifier(&program)?;
        let early = Early { ring, gate, links: Vec::new(), checked };
        early.set_gate(true);
        Ok((early, program))
    }

    /// From now on the program fills a ring that nobody reads.
    #[cfg(test)]
    pub(super) fn read_another_ring(&mut self) {
        self.ring = Ring::new(RING).unwrap();
    }

    fn gate(&self) -> &AtomicU32 {
        // SAFETY: the first word of a mapped page, aligned; the kernel reads and writes it as one.
        unsafe { self.gate.base().cast::<AtomicU32>().as_ref() }
    }

    fn set_gate(&self, open: bool) {
        self.gate().store(open.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Do datagrams come into the ring? Not while somebody sleeps, nor after there was no room.
    pub(super) fn is_open(&self) -> bool {
        self.gate().load(Ordering::Relaxed) != 0
    }

    /// Nobody sleeps: datagrams come into the ring.
    pub(super) fn open_gate(&mut self) {
        self.set_gate(true);
    }

    /// From here on they go to the sockets; what came before makes the descriptor readable, until
    /// it is taken.
    pub(super) fn shut_gate(&mut self) -> BorrowedFd<'_> {
        self.set_gate(false);
        self.ring.tell();
        self.ring.fd()
    }

    /// Somebody sleeps: the descriptor of [`Early::shut_gate`] is not readable for what was taken.
    pub(super) fn settle(&mut self) {
        self.ring.tell();
    }

    /// The descriptor of [`Early::shut_gate`].
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// Has nothing come? A load.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Take `most` datagrams at most, each with the way that it came; how many there were.
    pub(super) fn take(
        &mut self,
        most: usize,
        statistics: &mut Statistics,
        take: &mut dyn FnMut(Arrival<'_>, &Way),
    ) -> usize {
        let checked = self.checked;
        let mut datagrams = 0;
        self.ring.take(most, &mut |record| match read(record, checked) {
            Some((arrival, way)) => {
                datagrams += 1;
                statistics.bytes_in += arrival.bytes.len() as u64;
                take(arrival, &way);
            }
            None => statistics.truncated += 1,
        });
        statistics.datagrams_in += datagrams as u64;
        statistics.early += datagrams as u64;
        datagrams
    }
}

/// The datagram in a record, and how it came.
fn read(record: &[u8], checked: bool) -> Option<(Arrival<'_>, Way)> {
    let (interface, frame) = frame_of(record)?;
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_LEN>()?;
    let ip::Received { arrival, to } = ip::datagram(packet, checked)?;
    Some((arrival, Way { interface, ethernet: *ethernet, ours: to }))
}

/// The interface's number, and the frame.
fn frame_of(record: &[u8]) -> Option<(u32, &[u8])> {
    let (len, _) = record.split_first_chunk::<4>()?;
    let (interface, _) = record.get(4..)?.split_first_chunk::<4>()?;
    let frame = record.get(RECORD_HEAD..)?.get(..u32::from_ne_bytes(*len) as usize)?;
    Some((u32::from_ne_bytes(*interface), frame))
}

/// The addresses that are served at Ethernet interfaces, and the numbers of these.
fn ethernet(served: impl Fn(IpAddr) -> bool) -> Result<(Vec<IpAddr>, BTreeSet<u32>), Errno> {
    let why = |why| Errno::from_io_error(&why).unwrap_or(Errno::IO);
    let (all, probe) = (interfaces::list().map_err(why)?, Probe::open().map_err(why)?);
    let ours = |one: &Interface| {
        one.is_usable() && served(one.address) && probe.is_ethernet(&one.name) == Some(true)
    };
    Ok(all.into_iter().filter(ours).take(ADDRESSES_MAX).map(|one| (one.address, one.index)).unzip())
}
