//! Choice among many addresses. The best come first, every kind is kept, and only then the rest is
//! cut (WIND-11.6).

use super::{Address, is_scoped, is_virtual, scopes};
use crate::error::JobError;
use oikaze_os::interfaces::{self, Interface};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// Maximum number of the launcher's addresses that nodes get, because an environment variable must
/// hold them.
const STORE_ADDRESSES_MAX: usize = 128;

/// Keeps `max` of these items, in their order. Kinds take turns, so that many items of one kind
/// displace none of another kind.
pub(super) fn spread<T, K: PartialEq>(items: Vec<T>, max: usize, kind: impl Fn(&T) -> K) -> Vec<T> {
    if items.len() <= max {
        return items;
    }
    let mut kinds: Vec<(K, usize)> = Vec::new();
    let mut turns: Vec<(usize, usize)> = Vec::with_capacity(items.len());
    for (at, item) in items.iter().enumerate() {
        let kind = kind(item);
        let turn = match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, turn)) => {
                *turn += 1;
                *turn
            }
            None => {
                kinds.push((kind, 0));
                0
            }
        };
        turns.push((turn, at));
    }
    turns.sort_unstable();
    turns.truncate(max);
    let mut kept: Vec<usize> = turns.into_iter().map(|(_, at)| at).collect();
    kept.sort_unstable();
    items
        .into_iter()
        .enumerate()
        .filter(|(at, _)| kept.binary_search(at).is_ok())
        .map(|(_, item)| item)
        .collect()
}

/// Returns the number of leading bits that two addresses have in common; 0 for different families.
pub(super) fn common_bits(a: IpAddr, b: IpAddr) -> u32 {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u32::from(a) ^ u32::from(b)).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (u128::from(a) ^ u128::from(b)).leading_zeros(),
        _ => 0,
    }
}

/// Returns the addresses at which nodes on other hosts can reach a store on `port`. Bridges of
/// containers come after cables, then link-local IPv6 addresses, and loopback comes last.
/// Link-local addresses have no scope, because this host's means nothing there (WIND-11.7).
///
/// # Errors
/// The system does not list its interfaces.
pub fn of_store(port: u16) -> Result<Vec<SocketAddr>, JobError> {
    let all =
        interfaces::list().map_err(JobError::system("list this host's network interfaces"))?;
    Ok(choose_store(all, port))
}

fn choose_store(all: Vec<Interface>, port: u16) -> Vec<SocketAddr> {
    let order = |one: &Interface| {
        let ip = one.address;
        (ip.is_loopback(), is_scoped(ip), is_virtual(&one.name), ip.is_ipv6())
    };
    let mut found: Vec<Interface> = all.into_iter().filter(|one| one.up).collect();
    found.sort_by_key(order);
    let chosen = spread(found, STORE_ADDRESSES_MAX, order);
    chosen.into_iter().map(|one| SocketAddr::new(one.address, port)).collect()
}

/// Returns the addresses to try for one of a store. A link-local address without scope is tried on
/// each interface of this host (WIND-11.7).
pub fn scoped_store(address: SocketAddr) -> Vec<SocketAddr> {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            let mine: Vec<Address> = interfaces::list()
                .into_iter()
                .flatten()
                .filter(|one| one.up)
                .map(Into::into)
                .collect();
            let scoped = scopes(&mine, *v6.ip());
            scoped.map(|scope| SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into()).collect()
        }
        _ => vec![address],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_keeps_every_kind_and_the_order() {
        let items: Vec<u32> = (0..100).map(|at| if at == 99 { 7 } else { at % 2 }).collect();
        let kept = spread(items, 9, |kind| *kind);
        assert_eq!(kept, [0, 1, 0, 1, 0, 1, 0, 1, 7]);
        assert_eq!(spread(vec![3, 3, 1], 3, |kind| *kind), [3, 3, 1]);
    }

    /// WIND-11.6.
    #[test]
    fn store_of_a_host_with_many_bridges_is_found_at_its_cable() {
        let interface = |name: String, address: String| Interface {
            name,
            index: 1,
            address: address.parse().unwrap(),
            prefix: 24,
            up: true,
            multicast: true,
        };
        let bridges = (0..250).map(|at| interface(format!("br-{at}"), format!("172.17.{at}.1")));
        let last =
            [("lo", "127.0.0.1"), ("wg0", "10.88.0.1"), ("wg0", "fd00::1"), ("wg0", "fe80::1")];
        let all = bridges
            .chain(last.map(|(name, address)| interface(name.into(), address.into())))
            .collect();
        let chosen = choose_store(all, 9);
        assert_eq!(chosen.len(), STORE_ADDRESSES_MAX);
        assert_eq!(chosen[..2], ["10.88.0.1:9".parse().unwrap(), "[fd00::1]:9".parse().unwrap()]);
        let last: Vec<String> = chosen[126..].iter().map(ToString::to_string).collect();
        assert_eq!(last, ["[fe80::1]:9", "127.0.0.1:9"]);
    }
}
