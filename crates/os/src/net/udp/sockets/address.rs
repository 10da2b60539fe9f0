//! Socket addresses in the kernel's format.

use core::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address of either family, in the kernel's format, with its length.
pub(crate) struct SocketName {
    storage: MaybeUninit<libc::sockaddr_storage>,
    len: libc::socklen_t,
}

impl SocketName {
    /// Room for the kernel to write an address.
    pub(crate) const fn empty() -> SocketName {
        SocketName {
            storage: MaybeUninit::uninit(),
            len: size_of::<libc::sockaddr_storage>() as libc::socklen_t,
        }
    }

    /// Address for a socket of both families (`both`) or of the address's own family.
    pub(crate) fn of(address: SocketAddr, both: bool) -> SocketName {
        let mut name = SocketName::empty();
        let address = match address {
            // A socket of both families takes IPv4 addresses as mapped IPv6 ones (RFC 3493, section
            // 3.7).
            SocketAddr::V4(v4) if both => {
                SocketAddr::V6(SocketAddrV6::new(v4.ip().to_ipv6_mapped(), v4.port(), 0, 0))
            }
            own => own,
        };
        match address {
            SocketAddr::V4(v4) => name.put(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => name.put(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
        name
    }

    fn put<T: Copy>(&mut self, address: T) {
        const { assert!(size_of::<T>() <= size_of::<libc::sockaddr_storage>()) };
        // SAFETY: the storage is larger (checked above) and aligned for every socket address; `T`
        // is plain data.
        unsafe { self.storage.as_mut_ptr().cast::<T>().write(address) };
        self.len = size_of::<T>() as libc::socklen_t;
    }

    /// Pointer for the kernel to read from.
    pub(crate) fn as_ptr(&self) -> *const libc::sockaddr_storage {
        self.storage.as_ptr()
    }

    /// Pointer for the kernel to write to.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr_storage {
        self.storage.as_mut_ptr()
    }

    pub(crate) fn len(&self) -> libc::socklen_t {
        self.len
    }

    /// Reads the address, if it is of a known family.
    ///
    /// # Safety
    /// The kernel (or [`SocketName::of`]) has written its first `len` bytes.
    pub(crate) unsafe fn read(&self, len: libc::socklen_t) -> Option<SocketAddr> {
        let len = len as usize;
        if len < size_of::<libc::sa_family_t>() {
            return None;
        }
        // SAFETY: the family comes first, and `len` bytes are written (the caller's promise);
        // aligned for every address.
        let family = unsafe { self.as_ptr().cast::<libc::sa_family_t>().read() };
        if libc::c_int::from(family) == libc::AF_INET && len >= size_of::<libc::sockaddr_in>() {
            // SAFETY: of this family, and as many bytes as it has are written.
            let v4 = unsafe { self.as_ptr().cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(v4.sin_port))))
        } else if libc::c_int::from(family) == libc::AF_INET6
            && len >= size_of::<libc::sockaddr_in6>()
        {
            // SAFETY: of this family, and as many bytes as it has are written.
            let v6 = unsafe { self.as_ptr().cast::<libc::sockaddr_in6>().read() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            if let Some(v4) = ip.to_ipv4_mapped() {
                return Some(SocketAddr::V4(SocketAddrV4::new(v4, port)));
            }
            // The flow label is chosen by the sender, and would make two addresses of one peer.
            Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id)))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_kernels_form() {
        for text in ["127.0.0.1:80", "255.1.2.3:65535", "[::1]:7", "[fe80::1%3]:9"] {
            let address: SocketAddr = text.parse().unwrap();
            for both in [false, true] {
                let name = SocketName::of(address, both);
                // SAFETY: written by `of`.
                assert_eq!(unsafe { name.read(name.len()) }, Some(address));
                for len in [0, 1, 4, 15] {
                    // SAFETY: less than was written.
                    assert_eq!(unsafe { name.read(len) }, None);
                }
            }
        }
    }
}
