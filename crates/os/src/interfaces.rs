//! Network interfaces of this host, and their addresses.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Commands of `<linux/ethtool.h>`: lengths of sets of names, a set of names, and the counters.
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
/// The set of the counters' names.
const ETH_SS_STATS: u32 = 1;
/// Bytes of one name (`ETH_GSTRING_LEN`).
const NAME_LEN: usize = 32;
/// Maximum number of counters of one driver that are read.
const DRIVER_COUNTERS_MAX: u32 = 1 << 16;

/// One address of one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Number of the interface, which is the scope of its link-local addresses. It is 0 if the
    /// interface has gone away.
    pub index: u32,
    /// Address of the interface.
    pub address: IpAddr,
    /// Length of the subnet prefix in bits.
    pub prefix: u8,
    /// `true` if the interface is switched on. The carrier is not checked, because the kernel's
    /// answer lags by up to a second.
    pub up: bool,
    /// `true` if the interface carries multicast.
    pub multicast: bool,
}

impl Interface {
    /// Returns `true` if the interface is switched on and its address is meaningful to other hosts.
    /// A link-local IPv6 address is meaningful only with the peer's own number of its interface.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.up && !matches!(self.address, IpAddr::V6(v6) if v6.is_unicast_link_local())
    }
}

/// A socket through which the kernel answers questions about the interfaces of the socket's network
/// namespace.
#[derive(Debug)]
pub struct Probe(OwnedFd);

impl Probe {
    /// Opens a probe in this thread's network namespace.
    ///
    /// # Errors
    /// No socket can be opened.
    pub fn open() -> io::Result<Probe> {
        let open = |family| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        Ok(Probe(open(AddressFamily::INET).or_else(|_| open(AddressFamily::INET6))?))
    }

    /// Returns `true` if this interface carries Ethernet frames, and `None` if there is no
    /// interface of that name.
    #[must_use]
    pub fn is_ethernet(&self, name: &str) -> Option<bool> {
        let answer = self.ask(name, libc::SIOCGIFHWADDR)?;
        // SAFETY: the call succeeded, so the kernel has written a socket address.
        Some(unsafe { answer.ifr_ifru.ifru_hwaddr.sa_family } == libc::ARPHRD_ETHER)
    }

    /// Returns the size in bytes of the largest IP packet that this interface takes. Returns `None`
    /// if there is no interface of that name.
    #[must_use]
    pub fn mtu(&self, name: &str) -> Option<usize> {
        let answer = self.ask(name, libc::SIOCGIFMTU)?;
        // SAFETY: the call succeeded, so the kernel has written this member.
        usize::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).ok()
    }

    /// Returns the counters that this interface's driver has of its own, each with its name, as
    /// `ethtool -S` shows them. Returns `None` if there is no interface of that name, or its driver
    /// has no counters.
    #[must_use]
    pub fn driver_counters(&self, name: &str) -> Option<Vec<(String, u64)>> {
        let (command, mask) =
            (ETHTOOL_GSSET_INFO.to_ne_bytes(), (1_u64 << ETH_SS_STATS).to_ne_bytes());
        // `struct ethtool_sset_info`: command, reserved, mask of sets, and a length for each.
        let mut info = [command.as_slice(), &[0; 4], &mask, &[0; 8]].concat();
        let request = self.ethtool(name, &mut info)?;
        let count = u32::from_ne_bytes(*request.get(16..)?.first_chunk()?);
        if count == 0 || count > DRIVER_COUNTERS_MAX {
            return None;
        }
        // The kernel writes as many as the driver has at the time of the call, and some kernels do
        // not look at the number that is given.
        let room = DRIVER_COUNTERS_MAX as usize;
        let set = [ETHTOOL_GSTRINGS.to_ne_bytes(), ETH_SS_STATS.to_ne_bytes(), count.to_ne_bytes()];
        // `struct ethtool_gstrings`: command, set, number of names, and the names.
        let mut names = set.concat();
        names.resize(names.len() + room * NAME_LEN, 0);
        // `struct ethtool_stats`: command, number of counters, and the counters.
        let mut values = [ETHTOOL_GSTATS.to_ne_bytes(), count.to_ne_bytes()].concat();
        values.resize(values.len() + room * size_of::<u64>(), 0);
        let names = self.ethtool(name, &mut names)?.get(12..)?;
        let values = self.ethtool(name, &mut values)?.get(8..)?;
        Some(named_counters(names, values, count as usize))
    }

    /// Passes one command of `<linux/ethtool.h>`, and returns it with its answer.
    fn ethtool<'a>(&self, name: &str, command: &'a mut [u8]) -> Option<&'a [u8]> {
        self.ask_with(name, libc::SIOCETHTOOL as libc::Ioctl, command.as_mut_ptr())?;
        Some(command)
    }

    fn ask(&self, name: &str, what: libc::Ioctl) -> Option<libc::ifreq> {
        self.ask_with(name, what, core::ptr::null_mut())
    }

    /// Asks by ioctl and not from /sys, which may show another network namespace. The command at
    /// `data`, if any, has room for its answer.
    fn ask_with(&self, name: &str, what: libc::Ioctl, data: *mut u8) -> Option<libc::ifreq> {
        // SAFETY: `ifreq` is plain data for which zeros are valid.
        let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
        request.ifr_ifru.ifru_data = data.cast();
        // One byte less than the array, so that the last byte stays the terminating zero.
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        // SAFETY: what is asked reads the name and writes its answer in the one `ifreq` it is
        // given, or at `data`, where there is room.
        (unsafe { libc::ioctl(self.0.as_raw_fd(), what, &raw mut request) } == 0).then_some(request)
    }
}

/// Pairs the first `count` names of a set of names with their counters.
fn named_counters(names: &[u8], values: &[u8], count: usize) -> Vec<(String, u64)> {
    let text = |name: &[u8; NAME_LEN]| {
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_LEN);
        String::from_utf8_lossy(&name[..end]).into_owned()
    };
    let both = names.as_chunks::<NAME_LEN>().0.iter().zip(values.as_chunks().0);
    let both = both.take(count);
    both.map(|(name, value)| (text(name), u64::from_ne_bytes(*value))).collect()
}

/// Returns all addresses of all interfaces in this network namespace, in the kernel's order.
///
/// # Errors
/// Those of `getifaddrs`.
pub fn list() -> io::Result<Vec<Interface>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: `first` is a valid place for the list's head.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or an element of the list, which lives until `freeifaddrs` below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        // SAFETY: the element's address and mask are null or socket addresses of the family they
        // name; its name is a C string.
        let (address, mask, name) = unsafe {
            (
                ip_address(entry.ifa_addr),
                ip_address(entry.ifa_netmask),
                CStr::from_ptr(entry.ifa_name),
            )
        };
        let Some(address) = address else { continue };
        // SAFETY: `name` is a C string.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        let up = entry.ifa_flags & libc::IFF_UP as u32 != 0;
        found.push(Interface {
            name: name.to_string_lossy().into_owned(),
            index,
            address,
            prefix: mask.map_or(0, ones),
            up,
            multicast: entry.ifa_flags & libc::IFF_MULTICAST as u32 != 0,
        });
    }
    // SAFETY: `first` came from `getifaddrs`, nothing borrowed from it is left.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Returns the IP address in a socket address, or `None` if it is of another family.
///
/// # Safety
/// `at` is null or points to a socket address as long as its family says.
unsafe fn ip_address(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: by the caller's promise; the family's structure is read without relying on its
    // alignment.
    unsafe {
        match i32::from(at.as_ref()?.sa_family) {
            libc::AF_INET => {
                let v4 = at.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => Some(
                Ipv6Addr::from(at.cast::<libc::sockaddr_in6>().read_unaligned().sin6_addr.s6_addr)
                    .into(),
            ),
            _ => None,
        }
    }
}

/// Returns the number of leading ones of a mask.
fn ones(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(v4) => u32::from(v4).leading_ones(),
        IpAddr::V6(v6) => u128::from(v6).leading_ones(),
    };
    u8::try_from(ones).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there() {
        let all = list().unwrap();
        let lo = all
            .iter()
            .find(|interface| interface.address == IpAddr::from([127, 0, 0, 1]))
            .expect("127.0.0.1 in this namespace");
        assert!(lo.up && lo.prefix == 8 && lo.index > 0, "{lo:?}");
    }

    #[test]
    fn counters_of_drivers_have_names() {
        let mut names = [b"peer_ifindex".as_slice(), &[0; 20]].concat();
        // A name may fill its field, and the room behind the last name is left as it was.
        names.extend([&[b'x'; NAME_LEN][..], &[0; NAME_LEN]].concat());
        let values = [7_u64, u64::MAX, 0].map(u64::to_ne_bytes).concat();
        let named = named_counters(&names, &values, 2);
        assert_eq!(named, [("peer_ifindex".into(), 7), ("x".repeat(NAME_LEN), u64::MAX)]);
        assert!(named_counters(&names[..NAME_LEN - 1], &values, 2).is_empty());
    }

    #[test]
    fn interfaces_without_a_driver_have_no_counters() {
        let probe = Probe::open().unwrap();
        for name in ["lo", "no interface of this name"] {
            assert_eq!(probe.driver_counters(name), None, "{name}");
        }
    }

    #[test]
    fn masks() {
        assert_eq!(ones("255.255.240.0".parse().unwrap()), 20);
        assert_eq!(ones("ffff:ffff::".parse().unwrap()), 32);
        assert_eq!(ones("0.0.0.0".parse().unwrap()), 0);
    }
}
