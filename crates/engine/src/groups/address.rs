//! Addresses of the groups of a job. They follow from the job's secret, so that jobs of one subnet
//! have different ones. A collision costs the members a look-up for each foreign datagram.

use oikaze_os::secrets::secret::Secret;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Administratively scoped addresses for the use of an organisation, 239.192.0.0/14 (RFC 2365).
const IPV4_PREFIX: u32 = 0xefc0_0000;
const IPV4_PREFIX_LEN: u32 = 14;
/// First bytes of transient groups of a site, ff15::/16 (RFC 4291, section 2.7). With groups of a
/// link, the source of datagrams would be a link-local address, which peers do not know.
const IPV6_PREFIX: u16 = 0xff15;
/// First of the ports that nobody assigns (RFC 6335, section 6).
const PORTS_FIRST: u16 = 49_152;

/// Addresses of the job's groups, one of each family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupAddresses {
    pub ipv4: SocketAddr,
    pub ipv6: SocketAddr,
}

impl GroupAddresses {
    /// Returns the addresses of the job with this secret.
    pub fn of_job(secret: &Secret) -> Self {
        let mac = secret.mac(&[b"oikaze group"]);
        let [a, b, c, d, e, f, ..] = mac;
        let low = u32::from_le_bytes([a, b, c, d]);
        let port = PORTS_FIRST | (u16::from_le_bytes([e, f]) & !PORTS_FIRST);
        let v4 = Ipv4Addr::from(IPV4_PREFIX | (low & (u32::MAX >> IPV4_PREFIX_LEN)));
        let v6 = Ipv6Addr::from(u128::from(IPV6_PREFIX) << 112 | u128::from(low));
        Self { ipv4: SocketAddr::new(v4.into(), port), ipv6: SocketAddr::new(v6.into(), port) }
    }

    /// Returns the address for peers of the family of this one.
    pub fn for_peer(&self, peer: SocketAddr) -> SocketAddr {
        if peer.is_ipv4() { self.ipv4 } else { self.ipv6 }
    }
}

/// Returns `true` if a peer may ask this node to join this group: it is of the prefixes for jobs,
/// so no peer makes the node join groups of other programs.
pub(crate) fn may_be_joined(group: SocketAddr) -> bool {
    let is_of_prefix = match group.ip() {
        IpAddr::V4(v4) => (u32::from(v4) ^ IPV4_PREFIX).leading_zeros() >= IPV4_PREFIX_LEN,
        IpAddr::V6(v6) => v6.segments().first() == Some(&IPV6_PREFIX),
    };
    is_of_prefix && group.port() >= PORTS_FIRST
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WIND-13.2.
    #[test]
    fn groups_of_jobs_differ_and_lie_in_their_prefixes() {
        let addresses: Vec<GroupAddresses> =
            (0..100).map(|seed| GroupAddresses::of_job(&Secret::from_bytes([seed; 32]))).collect();
        for GroupAddresses { ipv4, ipv6 } in &addresses {
            assert!(may_be_joined(*ipv4) && may_be_joined(*ipv6), "{ipv4} {ipv6}");
            assert!(ipv4.ip().is_multicast() && ipv6.ip().is_multicast());
        }
        let mut distinct: Vec<String> = addresses.iter().map(|of| of.ipv4.to_string()).collect();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), addresses.len());
    }

    #[test]
    fn groups_of_others_are_not_joined() {
        for text in [
            "239.191.255.255:50000",
            "239.196.0.0:50000",
            "224.0.0.1:50000",
            "10.0.0.1:50000",
            "239.192.0.1:49151",
            "[ff02::1]:50000",
            "[ff12::1]:50000",
            "[fd00::1]:50000",
        ] {
            assert!(!may_be_joined(text.parse().unwrap()), "{text}");
        }
        for text in ["239.192.0.0:49152", "239.195.255.255:65535", "[ff15::1]:50000"] {
            assert!(may_be_joined(text.parse().unwrap()), "{text}");
        }
    }
}
