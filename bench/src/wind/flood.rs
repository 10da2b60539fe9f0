//! Floods a node's port with garbage while the node receives bulk, and compares with the same flood
//! at another port of its host.
//!
//! Garbage costs its receiving host in any case, because the kernel takes it from the wire and
//! looks for the socket. A *control* shows what Oikaze adds: the same datagrams, at the same rate,
//! to a port of the same host at which nothing reads. The flooder runs on the receiving host's
//! core, as its network card's interrupts would. Both runs therefore pay for it alike.
//!
//! The flooder acts like an attacker on the same wire. It listens there until it knows the ports,
//! the connection's id and a handshake. It forges source addresses by a raw socket, and therefore
//! needs root, as the whole lab does.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto,
};

use crate::error::{Error, Tried};
use crate::lab::{ADDRESSES, CLIENT, SERVER};
use crate::process::say_ready;

/// Datagrams per second, of up to [`LONGEST`] bytes: 0.2 Gb/s.
pub const RATE: u32 = 50_000;
/// Number of bursts per second in which the flood is sent.
const BURSTS: u32 = 1000;
/// Maximum number of bytes of garbage in a datagram.
const LONGEST: usize = 1024;
/// Port of the control, at which nothing reads.
pub const ELSEWHERE: u16 = 7105;
/// Time limit of a flood.
const LIMIT: Duration = Duration::from_secs(40);
/// Interval at which the flooder prints the number of sent datagrams.
const REPORT: Duration = Duration::from_millis(100);
/// Bytes of the datagram header (WIRE-2). Frames, payload and tag follow the header.
const HEADER: usize = 24;

/// Target of the flood.
#[derive(Args)]
pub struct Aim {
    /// Another port than the node's
    #[arg(long)]
    port: Option<u16>,
}

/// Role of a process in the flood.
#[derive(Subcommand)]
pub enum Role {
    /// Listens on the wire for the job's datagrams, then floods until it is ended
    Send(Aim),
    /// Holds the other port, and reads nothing
    Hold,
}

/// Runs one role.
///
/// # Errors
/// A socket operation fails.
pub fn play(role: &Role) -> Result<(), Error> {
    match role {
        Role::Send(aim) => flood(&overhear()?, aim.port),
        Role::Hold => {
            let address = (ADDRESSES[SERVER], ELSEWHERE);
            let held = std::net::UdpSocket::bind(address).tried(format!("binding {address:?}"))?;
            say_ready()?;
            std::thread::sleep(LIMIT);
            drop(held);
            Ok(())
        }
    }
}

/// Facts about the job that were overheard on the wire.
struct Overheard {
    from: SocketAddrV4,
    to: SocketAddrV4,
    /// Header of a datagram with bulk. `tag` is the length of the tag.
    header: [u8; HEADER],
    tag: usize,
    handshake: Vec<u8>,
}

/// Listens on the client's end of the wire until it has carried a handshake and bulk.
fn overhear() -> Result<Overheard, Error> {
    const EVERYTHING: u16 = 3; // ETH_P_ALL
    let protocol = std::num::NonZeroU32::new(u32::from(EVERYTHING.to_be())).map(Protocol::from_raw);
    let wire = rustix::net::socket_with(
        AddressFamily::PACKET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        protocol,
    );
    let wire = wire.map_err(|why| {
        Error::io("listening on the wire (a packet socket; needs root)", &why.into())
    })?;
    say_ready()?;
    let (begun, mut packet, mut handshake) = (Instant::now(), vec![0; 65_536], None);
    while begun.elapsed() < LIMIT {
        let got = rustix::net::recv(&wire, packet.as_mut_slice(), RecvFlags::empty());
        let (len, _) = got.map_err(|why| Error::io("listening on the wire", &why.into()))?;
        let Some((from, to, bytes)) = datagram(&packet[..len.min(packet.len())]) else { continue };
        if to.ip().to_string() != ADDRESSES[SERVER] || from.ip().to_string() != ADDRESSES[CLIENT] {
            continue;
        }
        let Some(header) = bytes.first_chunk::<HEADER>() else { continue };
        let number = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        if header[..8] == [0; 8] {
            handshake = Some(bytes.to_vec());
        } else if let (Some(handshake), true) = (&handshake, number(20) > 0) {
            let tag = bytes.len().saturating_sub(HEADER + number(18) + number(20));
            return Ok(Overheard { from, to, header: *header, tag, handshake: handshake.clone() });
        }
    }
    Err(Error::new(format!("no bulk was seen on the wire within {LIMIT:?}")))
}

/// Parses the UDP datagram of an IPv4 packet. Returns its source, its destination and its bytes.
fn datagram(packet: &[u8]) -> Option<(SocketAddrV4, SocketAddrV4, &[u8])> {
    const UDP: u8 = 17;
    let first = *packet.first()?;
    let udp = packet
        .get(usize::from(first & 15) * 4..)
        .filter(|_| first >> 4 == 4 && packet.get(9) == Some(&UDP))?;
    let address = |at: usize| {
        packet.get(at..at + 4).and_then(|four| <[u8; 4]>::try_from(four).ok()).map(Ipv4Addr::from)
    };
    let port = |at: usize| {
        udp.get(at..at + 2).and_then(|two| <[u8; 2]>::try_from(two).ok()).map(u16::from_be_bytes)
    };
    Some((
        SocketAddrV4::new(address(12)?, port(0)?),
        SocketAddrV4::new(address(16)?, port(2)?),
        udp.get(8..)?,
    ))
}

/// Sends garbage of four kinds in turn, at [`RATE`], until the end of the process or [`LIMIT`].
fn flood(job: &Overheard, port: Option<u16>) -> Result<(), Error> {
    let raw = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(ipproto::RAW),
    );
    let raw = raw.map_err(|why| Error::io("opening a raw socket (needs root)", &why.into()))?;
    let to = SocketAddrV4::new(*job.to.ip(), port.unwrap_or(job.to.port()));
    let mut garbage = Garbage {
        random: 0x9e37_79b9_7f4a_7c15,
        count: 0,
        packet: Vec::with_capacity(LONGEST + 64),
    };
    let (begun, mut sent, mut told) = (Instant::now(), 0_u64, Duration::ZERO);
    while begun.elapsed() < LIMIT {
        let due = (begun.elapsed().as_secs_f64() * f64::from(RATE)) as u64;
        // After a pause of this process, the flooder sends at most a few bursts at once. It skips
        // the other datagrams, as a full wire would lose them.
        let burst = due.saturating_sub(sent).min(u64::from(RATE / BURSTS) * 4);
        for _ in 0..burst {
            garbage.next(job, to);
            send(&raw, &garbage.packet, to)?;
        }
        sent += burst;
        if begun.elapsed() - told > REPORT {
            told = begun.elapsed();
            println!("{sent} datagrams in {:.3} s", told.as_secs_f64());
        }
        std::thread::sleep(Duration::from_secs(1) / BURSTS);
    }
    Ok(())
}

fn send(raw: &OwnedFd, packet: &[u8], to: SocketAddrV4) -> Result<(), Error> {
    match rustix::net::sendto(raw, packet, SendFlags::empty(), &to) {
        Ok(_) | Err(rustix::io::Errno::NOBUFS) => Ok(()),
        Err(why) => Err(Error::io("sending garbage", &why.into())),
    }
}

/// Generator of garbage.
struct Garbage {
    random: u64,
    count: u64,
    packet: Vec<u8>,
}

impl Garbage {
    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// Makes the next packet: IPv4, UDP and content.
    fn next(&mut self, job: &Overheard, to: SocketAddrV4) {
        let drawn = self.draw();
        let stranger = SocketAddrV4::new(*job.from.ip(), 1024 + (drawn % 60_000) as u16);
        self.count += 1;
        let len = 1 + (drawn >> 32) as usize % LONGEST;
        self.packet.clear();
        self.packet.resize(28, 0);
        let from = match self.count % 4 {
            0 => {
                self.noise(len);
                stranger
            }
            // Garbage with the peer's address, the right id, lengths that fit, and a wrong seal.
            1 => {
                self.bad_seal(job, len);
                job.from
            }
            2 => {
                self.bad_seal(job, len);
                stranger
            }
            // A handshake with a wrong seal, from the peer or from a stranger.
            _ => {
                self.packet.extend(&job.handshake);
                if let Some(last) = self.packet.last_mut() {
                    *last ^= 1 + (drawn >> 8) as u8 % 255;
                }
                if self.count % 8 < 4 { job.from } else { stranger }
            }
        };
        self.address(from, to);
    }

    fn noise(&mut self, len: usize) {
        while self.packet.len() < 28 + len {
            let drawn = self.draw().to_le_bytes();
            self.packet.extend(drawn);
        }
        self.packet.truncate(28 + len);
    }

    /// Adds a frame of padding in a datagram for the right connection.
    fn bad_seal(&mut self, job: &Overheard, len: usize) {
        const PAD: u8 = 10;
        let frames = len.max(4) as u16;
        let mut header = job.header;
        header[8..16].copy_from_slice(&self.draw().to_le_bytes());
        header[16] &= !2; // no payload
        header[18..20].copy_from_slice(&frames.to_le_bytes());
        header[20..22].fill(0);
        self.packet.extend(header);
        self.packet.extend([PAD, 0]);
        self.packet.extend(frames.to_le_bytes());
        self.packet.resize(28 + HEADER + usize::from(frames), 0);
        let drawn = self.draw().to_le_bytes();
        self.packet.extend(drawn.iter().cycle().take(job.tag));
    }

    /// Fills in the headers. The kernel adds lengths and checksum of IPv4. UDP needs no checksum
    /// over IPv4.
    fn address(&mut self, from: SocketAddrV4, to: SocketAddrV4) {
        let udp = (self.packet.len() - 20) as u16;
        self.packet[0] = 0x45;
        self.packet[8] = 64;
        self.packet[9] = 17;
        self.packet[12..16].copy_from_slice(&from.ip().octets());
        self.packet[16..20].copy_from_slice(&to.ip().octets());
        self.packet[20..22].copy_from_slice(&from.port().to_be_bytes());
        self.packet[22..24].copy_from_slice(&to.port().to_be_bytes());
        self.packet[24..26].copy_from_slice(&udp.to_be_bytes());
    }
}

/// Returns datagrams per second from the last line that [`flood`] printed.
pub fn rate(printed: &str) -> Option<f64> {
    let words: Vec<&str> = printed
        .lines()
        .rev()
        .find(|line| line.contains(" datagrams in "))?
        .split_whitespace()
        .collect();
    let [sent, _, _, seconds, _] = words.as_slice() else { return None };
    Some(sent.parse::<f64>().ok()? / seconds.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_sends_it_understands() {
        let [from, to] = [("10.77.0.1:5", 0), ("10.77.0.2:6", 0)]
            .map(|(address, _)| address.parse().expect("an address"));
        let job = Overheard { from, to, header: [7; HEADER], tag: 4, handshake: vec![3; 100] };
        let mut garbage = Garbage { random: 1, count: 0, packet: Vec::new() };
        for _ in 0..1000 {
            garbage.next(&job, to);
            let (source, target, bytes) = datagram(&garbage.packet).expect("a datagram");
            assert_eq!((source.ip(), target), (from.ip(), to));
            assert!(!bytes.is_empty() && bytes.len() <= LONGEST + HEADER + 4);
            if garbage.count % 4 == 1 {
                let number =
                    |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
                assert_eq!((source, HEADER + number(18) + number(20) + 4), (from, bytes.len()));
            }
        }
    }

    #[test]
    fn its_rate_is_read() {
        assert_eq!(rate("ready\n10 datagrams in 1.000 s\n300 datagrams in 1.500 s\n"), Some(200.0));
        assert_eq!(rate("ready\n"), None);
    }
}
