//! Attacker on the network of a job: sees every datagram there and sends any, but does not know the
//! job's secret. It has a packet socket (packet(7)) and a raw IP socket (raw(7)) in a network
//! namespace, and therefore needs root.
#![allow(dead_code)]

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size_force, set_socket_timeout};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto, recv, sendto,
    socket_with,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::collections::HashSet;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Protocol number of a packet socket that receives everything (`ETH_P_ALL`).
const EVERYTHING: u16 = 3;
/// Protocol number of UDP in an IPv4 header.
const UDP: u8 = 17;
/// Length of the headers of IPv4 and UDP together in bytes.
const HEADERS: usize = 28;
/// Time after which a wait for a datagram looks whether it should go on.
const PATIENCE: Duration = Duration::from_millis(20);
/// Bytes that the packet socket buffers.
const BUFFER: usize = 64 << 20;
/// Maximum number of datagrams that are drained at once, because traffic may not end.
const DRAINED_MAX: usize = 100_000;
/// Number of datagrams that are sent at once at a limited rate.
const BURST: u32 = 32;

/// Datagram with its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    pub from: SocketAddrV4,
    pub to: SocketAddrV4,
    pub bytes: Vec<u8>,
}

impl Datagram {
    /// Parses an IPv4 packet. Returns `None` unless it holds a whole UDP datagram.
    fn parse(packet: &[u8]) -> Option<Datagram> {
        let first = *packet.first()?;
        let is_udp = first >> 4 == 4 && packet.get(9) == Some(&UDP);
        let udp = packet.get(usize::from(first & 15) * 4..).filter(|_| is_udp)?;
        let ip = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
        let port = |at: usize| Some(u16::from_be_bytes(*udp.get(at..)?.first_chunk::<2>()?));
        let bytes = udp.get(8..usize::from(port(4)?))?.to_vec();
        let from = SocketAddrV4::new(ip(12)?, port(0)?);
        Some(Datagram { from, to: SocketAddrV4::new(ip(16)?, port(2)?), bytes })
    }

    /// Returns the IPv4 packet. The kernel fills in lengths and the checksum of IPv4. The checksum
    /// of UDP may be missing over IPv4.
    fn packet(&self) -> Vec<u8> {
        let mut packet = vec![0; HEADERS];
        packet[0] = 0x45;
        packet[8] = 64;
        packet[9] = UDP;
        packet[12..16].copy_from_slice(&self.from.ip().octets());
        packet[16..20].copy_from_slice(&self.to.ip().octets());
        packet[20..22].copy_from_slice(&self.from.port().to_be_bytes());
        packet[22..24].copy_from_slice(&self.to.port().to_be_bytes());
        packet[24..26].copy_from_slice(&(self.bytes.len() as u16 + 8).to_be_bytes());
        packet.extend(&self.bytes);
        packet
    }

    /// Returns the datagram with other bytes.
    pub fn with(&self, bytes: Vec<u8>) -> Datagram {
        Datagram { bytes, ..*self }
    }

    /// Returns `true` for a HELLO or REFUSE (WIRE-2.1).
    pub fn is_handshake(&self) -> bool {
        self.bytes.len() > 24 && self.bytes.starts_with(&[0; 8])
    }

    /// Returns `true` for a datagram of the bulk lane (WIRE-2.7).
    pub fn is_bulk(&self) -> bool {
        !self.is_handshake() && self.bytes.get(16).is_some_and(|flags| flags & 4 != 0)
    }
}

/// Sockets of the attacker.
pub struct Attacker {
    tap: OwnedFd,
    raw: OwnedFd,
    /// Ends of all datagrams that were seen or sent. A packet socket shows a forwarded packet when
    /// it comes in and again when it goes out.
    seen: HashSet<Vec<u8>>,
}

impl Attacker {
    /// Begins to listen in the network namespace of this name.
    pub fn in_namespace(name: &str) -> Attacker {
        let path = format!("/run/netns/{name}");
        // A thread of its own enters the namespace and ends there. The sockets stay.
        let enter = move || {
            let namespace = File::open(&path).unwrap();
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            Attacker::here()
        };
        std::thread::spawn(enter).join().unwrap()
    }

    /// Begins to listen in this thread's network namespace.
    pub fn here() -> Attacker {
        let all = NonZeroU32::new(u32::from(EVERYTHING.to_be())).map(Protocol::from_raw);
        let open = |family, kind, protocol| {
            socket_with(family, kind, SocketFlags::CLOEXEC, protocol).unwrap()
        };
        let tap = open(AddressFamily::PACKET, SocketType::DGRAM, all);
        set_socket_recv_buffer_size_force(&tap, BUFFER).unwrap();
        set_socket_timeout(&tap, Timeout::Recv, Some(PATIENCE)).unwrap();
        let raw = open(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW));
        Attacker { tap, raw, seen: HashSet::new() }
    }

    /// Returns the next datagram on the network that was not seen before and that the attacker did
    /// not send, or `None` if there is none for a while.
    pub fn next(&mut self) -> Option<Datagram> {
        self.receive(RecvFlags::empty())
    }

    /// Returns all such datagrams that have come by now.
    pub fn drain(&mut self) -> Vec<Datagram> {
        std::iter::from_fn(|| self.receive(RecvFlags::DONTWAIT)).take(DRAINED_MAX).collect()
    }

    fn receive(&mut self, flags: RecvFlags) -> Option<Datagram> {
        let mut packet = vec![0; 1 << 16];
        loop {
            let (len, _) = match recv(&self.tap, packet.as_mut_slice(), flags) {
                Ok(received) => received,
                Err(Errno::AGAIN) => return None,
                Err(Errno::INTR) => continue,
                Err(why) => panic!("the packet socket fails: {why}"),
            };
            let Some(datagram) = Datagram::parse(&packet[..len]) else { continue };
            if self.seen.insert(mark(&datagram)) {
                return Some(datagram);
            }
        }
    }

    /// Returns the next datagrams that satisfy `wanted`.
    pub fn capture(
        &mut self,
        count: usize,
        patience: Duration,
        wanted: impl Fn(&Datagram) -> bool,
    ) -> Vec<Datagram> {
        let (begun, mut captured) = (Instant::now(), Vec::new());
        while captured.len() < count {
            assert!(begun.elapsed() < patience, "{} of {count} datagrams seen", captured.len());
            captured.extend(self.next().filter(&wanted));
        }
        captured
    }

    /// Sends a datagram, from any address.
    pub fn send(&mut self, datagram: &Datagram) {
        self.seen.insert(mark(datagram));
        match sendto(&self.raw, &datagram.packet(), SendFlags::empty(), &datagram.to) {
            // The network is full, or its devices are gone with the job.
            Ok(_) | Err(Errno::NOBUFS | Errno::NETUNREACH | Errno::NETDOWN | Errno::NODEV) => {}
            Err(why) => panic!("the raw socket fails: {why}"),
        }
    }

    /// Sends datagrams, at most `rate` in a second.
    pub fn send_at(&mut self, rate: u32, datagrams: impl IntoIterator<Item = Datagram>) {
        let begun = Instant::now();
        for (sent, datagram) in (0u32..).zip(datagrams) {
            let due = Duration::from_secs(1) * sent / rate;
            let early = due.saturating_sub(begun.elapsed());
            if sent % BURST == 0 && !early.is_zero() {
                std::thread::sleep(early);
            }
            self.send(&datagram);
        }
    }
}

/// Returns what tells a datagram from others: addresses, and the end, which is its tag.
fn mark(datagram: &Datagram) -> Vec<u8> {
    let end = &datagram.bytes[datagram.bytes.len().saturating_sub(16)..];
    let Datagram { from, to, .. } = datagram;
    [&from.ip().octets()[..], &to.ip().octets(), &(datagram.bytes.len() as u32).to_le_bytes(), end]
        .concat()
}
