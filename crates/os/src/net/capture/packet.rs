//! Makes IP and UDP headers for the datagrams of a capture. The link does not see the real headers,
//! and some datagrams have none.

use super::recorder::CapturedDatagram;
use std::net::IpAddr;

/// Congestion Experienced, in the two lowest bits of IPv4's and IPv6's traffic class (RFC 3168).
const CONGESTION_EXPERIENCED: u8 = 3;
const UDP: u8 = 17;
const UDP_LEN: usize = 8;
const HOPS: u8 = 64;

/// Appends the IP header, the UDP header and the datagram.
pub(super) fn write(datagram: &CapturedDatagram<'_>, into: &mut Vec<u8>) {
    let class = if datagram.congested { CONGESTION_EXPERIENCED } else { 0 };
    // Longer datagrams cannot be sent, so the length field suffices.
    let len = |more: usize| u16::try_from(datagram.len() + more).unwrap_or(u16::MAX).to_be_bytes();
    // Both addresses have one family, because an IPv4 peer never sees an IPv6 address of this node.
    let addresses: Vec<u8> = match (datagram.from.ip(), datagram.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let [high, low] = len(20 + UDP_LEN);
            let start = into.len();
            // Version and header length, class, length, identification, don't fragment, hops,
            // protocol, checksum.
            into.extend([0x45, class, high, low, 0, 0, 0x40, 0, HOPS, UDP, 0, 0]);
            into.extend(from.octets().into_iter().chain(to.octets()));
            let sum = checksum(&[into.get(start..).unwrap_or_default()]).to_be_bytes();
            if let Some(place) = into.get_mut(start + 10..start + 12) {
                place.copy_from_slice(&sum);
            }
            from.octets().into_iter().chain(to.octets()).collect()
        }
        (from, to) => {
            let octets = |ip| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            let ([high, low], addresses) = (len(UDP_LEN), [octets(from), octets(to)].concat());
            into.extend([0x60, class << 4, 0, 0, high, low, UDP, HOPS]);
            into.extend(&addresses);
            addresses
        }
    };
    let ([high, low], ports) = (
        len(UDP_LEN),
        [datagram.from.port().to_be_bytes(), datagram.to.port().to_be_bytes()].concat(),
    );
    let [first, second, third] = datagram.parts;
    let sum = checksum(&[
        &addresses,
        &[0, UDP, high, low],
        &ports,
        &[high, low, 0, 0],
        first,
        second,
        third,
    ]);
    into.extend(ports);
    into.extend([high, low]);
    // A checksum of 0 would mean that there is none (RFC 768).
    into.extend(if sum == 0 { [0xff, 0xff] } else { sum.to_be_bytes() });
    datagram.parts.iter().for_each(|part| into.extend_from_slice(part));
}

/// Internet checksum (RFC 1071) of consecutive parts of any length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let (mut sum, mut odd) = (0u64, false);
    for byte in parts.iter().flat_map(|part| part.iter()) {
        sum += if odd { u64::from(*byte) } else { u64::from(*byte) << 8 };
        odd = !odd;
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071() {
        // Section 3: the sum is ddf2.
        assert_eq!(checksum(&[&[0x00, 0x01, 0xf2], &[0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(
            checksum(&[&[0x00, 0x01, 0xf2], &[], &[0x03, 0xf4, 0xf5, 0xf6], &[0xf7]]),
            !0xddf2
        );
    }
}
