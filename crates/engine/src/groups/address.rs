//! Addresses of the groups of a job. They follow from the job's secret, so that jobs of one subnet
//! have different ones. A collision costs the members a look-up for each foreign datagram.

use oikaze_os::secrets::secret::Secret;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

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

    /// Returns `true` if this is the address of one of the job's groups. A node joins no other, so
    /// no peer makes it join groups of other programs.
    pub fn contain(&self, group: SocketAddr) -> bool {
        group == self.ipv4 || group == self.ipv6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn of_job(seed: u8) -> GroupAddresses {
        GroupAddresses::of_job(&Secret::from_bytes([seed; 32]))
    }

    /// WIND-13.2.
    #[test]
    fn groups_of_jobs_differ_and_lie_in_their_prefixes() {
        let addresses: Vec<GroupAddresses> = (0..100).map(of_job).collect();
        for GroupAddresses { ipv4, ipv6 } in &addresses {
            let (IpAddr::V4(v4), IpAddr::V6(v6)) = (ipv4.ip(), ipv6.ip()) else {
                panic!("{ipv4} {ipv6}")
            };
            assert_eq!((v4.octets()[0], v4.octets()[1] & 0xfc), (239, 192), "{ipv4}");
            assert_eq!(v6.segments()[0], 0xff15, "{ipv6}");
            assert!(ipv4.port() >= PORTS_FIRST && ipv6.port() >= PORTS_FIRST);
        }
        let mut distinct: Vec<String> = addresses.iter().map(|of| of.ipv4.to_string()).collect();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), addresses.len());
    }

    /// WIND-13.3.
    #[test]
    fn groups_of_others_are_not_of_the_job() {
        let (mine, other) = (of_job(1), of_job(2));
        assert!(mine.contain(mine.ipv4) && mine.contain(mine.ipv6));
        let mut other_port = mine.ipv4;
        other_port.set_port(mine.ipv4.port() ^ 1);
        for group in [other.ipv4, other.ipv6, other_port, ([224, 0, 0, 1], 50_000).into()] {
            assert!(!mine.contain(group), "{group}");
        }
    }
}
