//! IP packets that hold a UDP datagram and bypass the kernel's IP stack. This module does the
//! kernel's checks and builds its headers.

use crate::net::datagram::Arrival;
use arrayvec::ArrayVec;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes of the headers: IPv4 without options, IPv6 without extensions, UDP.
const IPV4: usize = 20;
const IPV6: usize = 40;
const UDP: usize = 8;
/// Values of the ECN field (RFC 3168, section 5). `ECT_0` permits marking instead of dropping.
/// `CE`, with both bits set, is Congestion Experienced.
pub(crate) const ECT_0: u8 = 2;
pub(crate) const CE: u8 = 3;

/// A datagram and the address it was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received<'a> {
    /// Datagram that was found.
    pub arrival: Arrival<'a>,
    /// Address and port of this node.
    pub to: SocketAddr,
}

/// Parses the datagram in an IP packet (version 4 without options, or 6 without extensions).
/// Returns `None` if the packet contradicts itself, or if it is `checked` and its UDP checksum is
/// wrong. Bytes after the datagram are padding of the frame.
#[must_use]
pub fn datagram(packet: &[u8], checked: bool) -> Option<Received<'_>> {
    let ([ip, to], mark, udp, addresses) = match packet.first()? >> 4 {
        4 => v4(packet)?,
        6 => v6(packet)?,
        _ => return None,
    };
    let (header, _) = udp.split_first_chunk::<UDP>()?;
    let [from, from_low, port, port_low, len, len_low, sum, sum_low] = *header;
    let len = usize::from(u16::from_be_bytes([len, len_low]));
    let datagram = udp.get(..len)?;
    let bytes = datagram.get(UDP..)?;
    if checked
        && !is_unaltered(datagram, addresses, u16::from_ne_bytes([sum, sum_low]), ip.is_ipv4())
    {
        return None;
    }
    let from = SocketAddr::new(ip, u16::from_be_bytes([from, from_low]));
    let to = SocketAddr::new(to, u16::from_be_bytes([port, port_low]));
    let arrival = Arrival { congested: mark & CE == CE, ..Arrival::new(from, bytes) };
    Some(Received { arrival, to })
}

/// Sender and receiver, the byte with the ECN field, the bytes after the header, and both addresses
/// as they lie in the header.
type Parts<'a> = ([IpAddr; 2], u8, &'a [u8], &'a [u8]);

fn v4(packet: &[u8]) -> Option<Parts<'_>> {
    let (header, _) = packet.split_first_chunk::<IPV4>()?;
    // RFC 1122, section 3.2.1.2: a packet with a wrong header checksum is dropped.
    if header[0] != 0x45 || folded(sum(header)) != u16::MAX {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let addresses = packet.get(12..IPV4)?;
    let ends = [
        Ipv4Addr::from(*addresses.first_chunk::<4>()?),
        Ipv4Addr::from(*addresses.last_chunk::<4>()?),
    ];
    Some((ends.map(IpAddr::from), header[1], packet.get(IPV4..total)?, addresses))
}

fn v6(packet: &[u8]) -> Option<Parts<'_>> {
    let (header, _) = packet.split_first_chunk::<IPV6>()?;
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let addresses = packet.get(8..IPV6)?;
    let ends = [
        Ipv6Addr::from(*addresses.first_chunk::<16>()?),
        Ipv6Addr::from(*addresses.last_chunk::<16>()?),
    ];
    // The traffic class spans two bytes (RFC 8200, section 3). Its last two bits are in the second.
    Some((ends.map(IpAddr::from), header[1] >> 4, packet.get(IPV6..)?.get(..payload)?, addresses))
}

/// Maximum bytes of the headers that [`headers`] writes.
pub const HEADERS_MAX: usize = IPV6 + UDP;

/// Headers for datagrams between two addresses of one family. The datagrams may be marked instead
/// of dropped (ECT(0), RFC 3168) and are never fragmented. [`finish`] fills in what depends on the
/// datagram. Returns `None` if the families differ.
#[must_use]
pub fn headers(from: SocketAddr, to: SocketAddr) -> Option<ArrayVec<u8, HEADERS_MAX>> {
    const DONT_FRAGMENT: u8 = 0x40;
    const HOPS: u8 = 64;
    const PROTOCOL: u8 = 17;
    let mut headers = ArrayVec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            headers.extend([0x45, ECT_0, 0, 0, 0, 0, DONT_FRAGMENT, 0, HOPS, PROTOCOL, 0, 0]);
            headers.extend([from.octets(), to.octets()].into_iter().flatten());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            headers.extend([0x60, ECT_0 << 4, 0, 0, 0, 0, PROTOCOL, HOPS]);
            headers.extend([from.octets(), to.octets()].into_iter().flatten());
        }
        _ => return None,
    }
    headers.extend([from.port(), to.port(), 0, 0].into_iter().flat_map(u16::to_be_bytes));
    Some(headers)
}

/// Writes the lengths and checksums of a packet that begins with [`headers`]. Returns `None` if the
/// packet does not begin so, or is too long.
pub fn finish(packet: &mut [u8]) -> Option<()> {
    let (beside, datagram) = finish_ip(packet, 0)?;
    // RFC 768: a sum of zero is sent as all ones, because zero means no checksum.
    let sum = match !folded(beside + sum(datagram)) {
        0 => u16::MAX,
        sum => sum,
    };
    datagram.get_mut(6..8)?.copy_from_slice(&sum.to_ne_bytes());
    Some(())
}

/// Writes the lengths of a packet, of which only the [`headers`] are here and `len` bytes follow.
/// The checksum covers the pseudo-header: the kernel or the card adds the rest. Returns `None` if
/// the headers are not those, or the packet is too long.
pub fn finish_headers(headers: &mut [u8], len: usize) -> Option<()> {
    let (beside, udp) = finish_ip(headers, len)?;
    udp.get_mut(6..8)?.copy_from_slice(&folded(beside).to_ne_bytes());
    Some(())
}

/// Writes all of a packet's headers but the UDP checksum, which becomes 0. `more` bytes follow the
/// packet elsewhere. Returns the sum of the pseudo-header, and the datagram.
fn finish_ip(packet: &mut [u8], more: usize) -> Option<(u64, &mut [u8])> {
    let is_v4 = packet.first()? >> 4 == 4;
    let (ip, addresses_at) = if is_v4 { (IPV4, 12) } else { (IPV6, 8) };
    let all = u16::try_from(packet.len() + more).ok()?;
    let (header, datagram) = packet.split_at_mut_checked(ip)?;
    let len = u16::try_from(datagram.len() + more).ok()?;
    if is_v4 {
        header.get_mut(2..4)?.copy_from_slice(&all.to_be_bytes());
        header.get_mut(10..12)?.fill(0);
        let sum = !folded(sum(header));
        header.get_mut(10..12)?.copy_from_slice(&sum.to_ne_bytes());
    } else {
        header.get_mut(4..6)?.copy_from_slice(&len.to_be_bytes());
    }
    datagram.get_mut(4..6)?.copy_from_slice(&len.to_be_bytes());
    datagram.get_mut(6..8)?.fill(0);
    Some((beside(header.get(addresses_at..)?, len.into()), datagram))
}

/// Sum of the pseudo-header that the UDP checksum covers: addresses, protocol, length (RFC 768, RFC
/// 8200, section 8.1).
fn beside(addresses: &[u8], len: usize) -> u64 {
    const PROTOCOL: u16 = 17;
    sum(addresses) + u64::from((len as u16).to_be()) + u64::from(PROTOCOL.to_be())
}

/// Returns `true` if the UDP checksum (RFC 768) holds. A sender on a virtual device of this machine
/// leaves the checksum to a card that does not exist. Then only the pseudo-header is summed up,
/// which is accepted because the datagram was on no wire.
fn is_unaltered(datagram: &[u8], addresses: &[u8], checksum: u16, may_be_none: bool) -> bool {
    if checksum == 0 {
        return may_be_none;
    }
    let beside = beside(addresses, datagram.len());
    folded(beside + sum(datagram)) == u16::MAX || folded(beside) == checksum
}

/// Sum of the 16-bit words in memory order (RFC 1071). An odd byte is padded with zero.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let rest_as_word =
        rest.iter().enumerate().map(|(at, byte)| u64::from(*byte) << (8 * at)).sum::<u64>();
    words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum::<u64>() + rest_as_word
}

/// Folds the sum into one word by adding carries at the other end.
fn folded(sum: u64) -> u16 {
    let mut sum = sum;
    while sum > u64::from(u16::MAX) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
pub(in crate::net) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Packet as a kernel would send it.
    pub(in crate::net) fn packet(
        from: SocketAddr,
        to: SocketAddr,
        mark: u8,
        body: &[u8],
    ) -> Vec<u8> {
        let len = (UDP + body.len()) as u16;
        let (mut packet, addresses) = match (from.ip(), to.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let mut header = vec![0x45, mark];
                header.extend((IPV4 as u16 + len).to_be_bytes());
                header.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
                let addresses = [a.octets(), b.octets()].concat();
                header.extend(&addresses);
                let sum = !slow_sum(&[&header]);
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                (header, addresses)
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let mut header = vec![0x60, mark << 4, 0, 0];
                header.extend(len.to_be_bytes());
                header.extend([17, 64]);
                let addresses = [a.octets(), b.octets()].concat();
                header.extend(&addresses);
                (header, addresses)
            }
            _ => unreachable!("one family"),
        };
        let mut udp: Vec<u8> =
            [from.port(), to.port(), len, 0].into_iter().flat_map(u16::to_be_bytes).collect();
        udp.extend(body);
        let sum = match !slow_sum(&[&addresses, &[0, 17], &len.to_be_bytes(), &udp]) {
            0 => 0xffff,
            sum => sum,
        };
        udp[6..8].copy_from_slice(&sum.to_be_bytes());
        packet.extend(udp);
        packet
    }

    /// Plain form of the checksum in RFC 1071.
    fn slow_sum(parts: &[&[u8]]) -> u16 {
        let bytes = parts.concat();
        let mut sum: u32 = bytes
            .chunks(2)
            .map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)))
            .sum();
        while sum >> 16 > 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    fn ends() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
        let ports = (any::<u16>(), any::<u16>());
        let v4 = (any::<[u8; 4]>(), any::<[u8; 4]>())
            .prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        let v6 = (any::<[u8; 16]>(), any::<[u8; 16]>())
            .prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b)));
        (prop_oneof![v4, v6], ports)
            .prop_map(|((a, b), (p, q))| (SocketAddr::new(a, p), SocketAddr::new(b, q)))
    }

    proptest! {
        #[test]
        fn what_was_sent_is_read(
            (from, to) in ends(),
            mark in 0_u8..4,
            body in proptest::collection::vec(any::<u8>(), 0..300),
            padding in 0_usize..20,
        ) {
            let mut packet = packet(from, to, mark, &body);
            packet.resize(packet.len() + padding, 0);
            for checked in [false, true] {
                let Received { arrival, to: ours } = datagram(&packet, checked).unwrap();
                prop_assert_eq!((arrival.from, arrival.bytes, arrival.congested, ours), (from, &body[..], mark == 3, to));
            }
        }

        /// Headers are as a kernel would write them, apart from the mark, which is always ECT(0).
        #[test]
        fn headers_are_right((from, to) in ends(), body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut ours = headers(from, to).unwrap().to_vec();
            ours.extend(&body);
            finish(&mut ours).unwrap();
            prop_assert_eq!(&ours, &packet(from, to, 2, &body));
            finish(&mut ours).unwrap();
            prop_assert_eq!(ours, packet(from, to, 2, &body), "what was there before does not matter");
        }

        /// Headers of a body that lies elsewhere, as a kernel leaves them to a card.
        #[test]
        fn headers_of_a_body_elsewhere_are_right((from, to) in ends(), body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut head = headers(from, to).unwrap();
            finish_headers(&mut head, body.len()).unwrap();
            let whole = [&head[..], &body].concat();
            let (addresses, sum_at) = if from.is_ipv4() { (&whole[12..20], 26) } else { (&whole[8..40], 46) };
            let partial = slow_sum(&[addresses, &[0, 17], &((UDP + body.len()) as u16).to_be_bytes()]);
            let mut wanted = packet(from, to, 2, &body);
            wanted[sum_at..sum_at + 2].copy_from_slice(&partial.to_be_bytes());
            prop_assert_eq!(whole, wanted);
        }

        /// A flipped bit is noticed if the checksum is verified.
        #[test]
        fn what_was_altered_is_not_read((from, to) in ends(), body in proptest::collection::vec(any::<u8>(), 1..300), bit: usize) {
            let mut altered = packet(from, to, 0, &body);
            let (addresses, udp) = if from.is_ipv4() { (12..IPV4, IPV4) } else { (8..IPV6, IPV6) };
            let checksum = u16::from_ne_bytes([altered[udp + 6], altered[udp + 7]]);
            // One checksum in 65,536 is also that of the addresses alone, which is not checked
            // further.
            prop_assume!(checksum != folded(beside(&altered[addresses], UDP + body.len())));
            let bits = 8 * body.len();
            let at = 8 * altered.len() - bits + bit % bits;
            altered[at / 8] ^= 1 << (at % 8);
            prop_assert!(datagram(&altered, true).is_none());
            prop_assert_eq!(datagram(&altered, false).unwrap().arrival.bytes.len(), body.len());
        }

        #[test]
        fn nonsense_is_survived(first in prop_oneof![Just(0x45_u8), Just(0x60), any::<u8>()], rest in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut bytes = [&[first][..], &rest].concat();
            for checked in [false, true] {
                if let Some(received) = datagram(&bytes, checked) {
                    prop_assert!(received.arrival.bytes.len() < bytes.len());
                }
            }
            if finish(&mut bytes).is_some() && first == 0x45 {
                prop_assert!(datagram(&bytes, true).is_some(), "lengths and sums are right now");
            }
        }
    }

    /// The kernel leaves the checksum of a virtual device's packets unfinished.
    #[test]
    fn a_sum_of_the_addresses_alone_is_believed() {
        let (from, to) = ("10.1.2.3:7".parse().unwrap(), "10.1.2.4:9".parse().unwrap());
        let mut packet = packet(from, to, 0, b"body");
        let len = (UDP + 4) as u16;
        let partial = slow_sum(&[&packet[12..20], &[0, 17], &len.to_be_bytes()]);
        packet[26..28].copy_from_slice(&partial.to_be_bytes());
        assert_eq!(datagram(&packet, true).unwrap().arrival.bytes, b"body");
        packet[26..28].fill(0);
        assert_eq!(datagram(&packet, true).unwrap().arrival.bytes, b"body");
        packet[26] = 1;
        assert!(datagram(&packet, true).is_none());
    }
}
