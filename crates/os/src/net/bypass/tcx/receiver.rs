//! Receives small datagrams before the kernel processes them in IP, UDP and sockets.
//!
//! A BPF program of this link (tcx, Linux 6.6) runs at each interface where packets come in. It
//! puts packets for the link's port into a ring that this process has mapped. A poll thus reads a
//! word instead of making a system call. The program needs CAP_BPF and CAP_NET_ADMIN. Without them,
//! and for everything that the program leaves alone, the link uses its sockets. The program is
//! removed with the link, however the process (and its forked children) ends.
//!
//! While a thread sleeps, the gate is shut, and everything goes to the sockets, which wake the
//! thread up. Dekker's algorithm ensures that nothing is left behind in the ring. The sleeper shuts
//! the gate and then checks whether the ring is empty. The program reserves its place in the ring
//! and then checks whether the gate is open.
//!
//! Datagrams from the ring have bypassed the firewall's input rules. They have also bypassed the
//! kernel's check of the UDP checksum, which this module does where nothing else covers the bytes.

use super::program::{self, RECORD_HEAD, program};
use super::ring::BpfRing;
use crate::interfaces::{self, Interface, Probe};
use crate::memory::MemoryError;
use crate::memory::mapping::Mapping;
use crate::net::bypass::bpf::{self, Loaded, Map};
use crate::net::datagram::Arrival;
use crate::net::datagram::is_handshake;
use crate::net::ip;
use crate::net::udp::recv::cut;
use core::sync::atomic::{AtomicU32, Ordering, fence};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Bytes of the ring. A packet that finds no room goes to the sockets. So do all later packets,
/// until the link has found both the ring and the socket empty.
pub(super) const RING_BYTES: u32 = 512 << 10;
/// Maximum number of addresses that the program matches. Packets for other addresses go to the
/// sockets.
const ADDRESSES_MAX: usize = 16;

/// Bytes of an Ethernet header: destination, source, type.
pub(crate) const ETHERNET_LEN: usize = program::ETHERNET as usize;

/// Route by which a peer's datagram came here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceivedRoute {
    /// Index of the local interface.
    pub(crate) interface: u32,
    /// Ethernet header of the frame.
    pub(crate) ethernet: [u8; ETHERNET_LEN],
    /// Local address and port that the datagram was sent to.
    pub(crate) ours: SocketAddr,
}

/// Result of taking datagrams from the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingBurst {
    pub(crate) datagrams: usize,
    /// Bytes of the datagrams.
    pub(crate) bytes: usize,
    /// Records that hold no datagram.
    pub(crate) malformed: usize,
}

/// Programs at this machine's interfaces, and the ring that they fill.
#[derive(Debug)]
pub(crate) struct TcxReceiver {
    pub(super) ring: BpfRing,
    gate: Mapping,
    /// Attachments of the program, one for each interface; they are dropped with the rest.
    attachments: Vec<bpf::Attachment>,
    /// Is `true` if nothing but the UDP checksum covers the bytes of a datagram.
    checked: bool,
}

impl TcxReceiver {
    /// Attaches programs for this port, at the local addresses that are `served`. `checked` makes
    /// this module verify the UDP checksum.
    ///
    /// # Errors
    /// EPERM and the like: not permitted. EINVAL: the kernel is too old. ENODEV: no Ethernet
    /// interface has such an address.
    pub(crate) fn open(
        port: u16,
        served: impl Fn(IpAddr) -> bool,
        at: InterfaceFilter,
        checked: bool,
    ) -> Result<TcxReceiver, Errno> {
        let (ips, numbers) = interfaces_of(served, at)?;
        if numbers.is_empty() {
            return Err(Errno::NODEV);
        }
        let (mut receiver, program) = TcxReceiver::at_no_interface(port, &ips, checked)?;
        receiver.attachments = numbers
            .into_iter()
            .map(|number| bpf::attach_to_ingress(&program, number))
            .collect::<Result<_, _>>()?;
        Ok(receiver)
    }

    /// Makes the ring, the gate and the program, to which no packet comes yet.
    pub(super) fn at_no_interface(
        port: u16,
        ips: &[IpAddr],
        checked: bool,
    ) -> Result<(TcxReceiver, Loaded), Errno> {
        let gate_map = Map::shared(core::mem::size_of::<u32>() as u32)?;
        let ring = BpfRing::new(RING_BYTES)?;
        let gate = Mapping::of_part_of_file(gate_map.as_fd(), 0, rustix::param::page_size(), true);
        let gate = gate.map_err(|_: MemoryError| Errno::NOMEM)?;
        let program =
            program(port, ips, !checked, ring.fd(), gate_map.as_fd()).ok_or(Errno::TOOBIG)?;
        let program = bpf::load_classifier(&program)?;
        let receiver = TcxReceiver { ring, gate, attachments: Vec::new(), checked };
        receiver.set_gate(true);
        Ok((receiver, program))
    }

    /// Makes the program fill a ring that nobody reads.
    #[cfg(test)]
    pub(crate) fn read_another_ring(&mut self) {
        self.ring = BpfRing::new(RING_BYTES).unwrap();
    }

    fn gate(&self) -> &AtomicU32 {
        // SAFETY: the first word of a mapped page, aligned; the kernel reads and writes it as one.
        unsafe { self.gate.base().cast::<AtomicU32>().as_ref() }
    }

    fn set_gate(&self, open: bool) {
        self.gate().store(open.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Returns `true` if datagrams come into the ring. They do not while a thread sleeps, nor after
    /// the ring was full.
    pub(crate) fn is_open(&self) -> bool {
        self.gate().load(Ordering::Relaxed) != 0
    }

    /// Lets datagrams into the ring, because no thread sleeps.
    pub(crate) fn open_gate(&mut self) {
        self.set_gate(true);
    }

    /// Makes datagrams go to the sockets from here on. Records that came before make the descriptor
    /// readable until they are taken.
    pub(crate) fn shut_gate(&mut self) -> BorrowedFd<'_> {
        self.set_gate(false);
        self.ring.report();
        self.ring.fd()
    }

    /// Called while a thread sleeps, so that the descriptor of [`TcxReceiver::shut_gate`] is not
    /// readable for records that were taken.
    pub(crate) fn settle(&mut self) {
        self.ring.report();
    }

    /// Returns the descriptor of [`TcxReceiver::shut_gate`].
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }

    /// Returns `true` if nothing has come. Costs one load.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Takes datagrams, each with the route by which it came, until there are `most`. The last
    /// record may hold more.
    pub(crate) fn take(
        &mut self,
        most: usize,
        take: &mut dyn FnMut(Arrival<'_>, &ReceivedRoute),
    ) -> RingBurst {
        let checked = self.checked;
        let mut burst = RingBurst::default();
        self.ring.take(most, &mut |record| match read(record, checked) {
            Some((arrival, route, size)) => {
                cut(arrival.bytes, size, &mut |bytes| {
                    // The program has seen the first of joined datagrams only. A handshake behind
                    // it is repeated, and comes alone then.
                    if is_handshake(bytes) {
                        burst.malformed += 1;
                        return;
                    }
                    burst.datagrams += 1;
                    burst.bytes += bytes.len();
                    take(Arrival { bytes, ..arrival }, &route);
                })
            }
            None => {
                burst.malformed += 1;
                1
            }
        });
        burst
    }
}

/// Parses the datagrams in a record, and the route by which they came. Returns the size of each if
/// there may be several.
fn read(record: &[u8], checked: bool) -> Option<(Arrival<'_>, ReceivedRoute, Option<usize>)> {
    let Record { interface, size, frame } = Record::parse(record)?;
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_LEN>()?;
    let ip::Received { arrival, to } = ip::datagram(packet, checked)?;
    Some((arrival, ReceivedRoute { interface, ethernet: *ethernet, ours: to }, size))
}

/// Record of the ring.
#[derive(Debug)]
pub(super) struct Record<'a> {
    /// Index of the interface.
    interface: u32,
    /// Size of each datagram, if the kernel has joined several.
    size: Option<usize>,
    pub(super) frame: &'a [u8],
}

impl Record<'_> {
    pub(super) fn parse(record: &[u8]) -> Option<Record<'_>> {
        let (head, frame) = record.split_first_chunk::<RECORD_HEAD>()?;
        let (words, _) = head.as_chunks::<4>();
        let [len, interface, size] = *words.as_array::<3>()?;
        let number = u32::from_ne_bytes;
        let size = Some(number(size) as usize).filter(|size| *size > 0);
        let frame = frame.get(..number(len) as usize)?;
        Some(Record { interface: number(interface), size, frame })
    }
}

/// Returns `true` if programs are to be attached to an interface.
pub(super) type InterfaceFilter = fn(&Interface, &Probe) -> bool;

/// Returns `true` if frames at this interface begin with an Ethernet header.
pub(super) fn is_ethernet(interface: &Interface, probe: &Probe) -> bool {
    probe.is_ethernet(&interface.name) == Some(true)
}

/// Returns the addresses that are served at such interfaces, and the indices of those interfaces.
fn interfaces_of(
    served: impl Fn(IpAddr) -> bool,
    at: InterfaceFilter,
) -> Result<(Vec<IpAddr>, BTreeSet<u32>), Errno> {
    let why = |why| Errno::from_io_error(&why).unwrap_or(Errno::IO);
    let (all, probe) = (interfaces::list().map_err(why)?, Probe::open().map_err(why)?);
    let ours = |one: &Interface| one.is_usable() && served(one.address) && at(one, &probe);
    Ok(all.into_iter().filter(ours).take(ADDRESSES_MAX).map(|one| (one.address, one.index)).unzip())
}
