//! Addresses as nodes publish and choose them, and the errors about them.

use super::*;
use proptest::prelude::*;
use std::net::Ipv4Addr;

fn host(boot_id: &str, network: u64) -> HostIdentity {
    HostIdentity { boot_id: boot_id.into(), network, name: boot_id.into() }
}

fn node(boot_id: &str, list: &[(&str, u32, &str, u8)]) -> Reachable {
    let address = |&(interface, index, address, prefix): &(&str, u32, &str, u8)| Address {
        interface: interface.into(),
        index,
        address: address.parse().unwrap(),
        prefix,
    };
    Reachable {
        host: host(boot_id, 1),
        port: 4000,
        addresses: list.iter().map(address).collect(),
        callable: None,
        processors: None,
        left_out: 0,
        machine: None,
    }
}

const LO: (&str, u32, &str, u8) = ("lo", 1, "127.0.0.1", 8);
const DOCKER: (&str, u32, &str, u8) = ("docker0", 3, "172.17.0.1", 16);

fn order(mine: &Reachable, theirs: &Reachable) -> Vec<(String, Likelihood)> {
    candidates(mine, theirs).into_iter().map(|c| (c.to.to_string(), c.likelihood)).collect()
}

#[test]
fn one_host_uses_loopback_first() {
    let a = node("x", &[("eth0", 2, "10.0.0.1", 24), LO]);
    let found = order(&a, &a);
    assert_eq!(found[0], ("127.0.0.1:4000".into(), Likelihood::Loopback));
    assert_eq!(found[1], ("10.0.0.1:4000".into(), Likelihood::SameSubnet));
}

#[test]
fn two_namespaces_of_one_host_do_not_share_loopback() {
    let a = node("x", &[LO, ("eth0", 2, "10.77.0.1", 16)]);
    let mut b = node("x", &[LO, ("eth0", 2, "10.77.0.2", 16)]);
    b.host.network = 2;
    assert_eq!(order(&a, &b), [("10.77.0.2:4000".into(), Likelihood::SameSubnet)]);
}

#[test]
fn whose_processors_are_shared_is_told_by_the_nodes_of_this_machine() {
    let on = |boot_id, processors: Option<&str>| {
        Some(Reachable { processors: processors.map(Into::into), ..node(boot_id, &[LO]) })
    };
    let others = [
        on("x", Some("1,4-5")),
        None,
        on("y", Some("0")),
        on("x", None),
        on("x", Some("5-")),
        on("x", Some("0-99999999")),
    ];
    let found: Vec<_> = processors_here(&node("x", &[LO]), &others, &[0, 1]).collect();
    assert_eq!(found, [vec![1, 4, 5], vec![0, 1], vec![0, 1], vec![0, 1]]);
}

#[test]
fn the_classic_trap_of_equal_bridges() {
    // Both hosts have docker0 172.17.0.1. A datagram to that address would reach its own sender, so
    // the address is not a candidate at all. The address of another container network comes last,
    // also behind a routed one.
    let a = node("x", &[DOCKER, ("eth0", 2, "10.0.0.1", 24)]);
    let b = node(
        "y",
        &[
            DOCKER,
            ("br-1f", 4, "172.18.0.1", 16),
            ("eth1", 5, "192.168.9.2", 24),
            ("eth0", 2, "10.0.0.2", 24),
        ],
    );
    let found = order(&a, &b);
    let expected = [
        ("10.0.0.2:4000".to_owned(), Likelihood::SameSubnet),
        ("192.168.9.2:4000".to_owned(), Likelihood::Routed),
        ("172.18.0.1:4000".to_owned(), Likelihood::Virtual),
    ];
    assert_eq!(found, expected);
}

/// WIND-14.8: one address for each cable that both hosts are attached to, and no other one.
#[test]
fn networks_are_those_that_both_hosts_are_attached_to() {
    let eth1 = ("eth1", 4, "10.0.1.1", 24);
    let mine =
        node("x", &[LO, DOCKER, ("eth0", 2, "10.0.0.1", 24), eth1, ("eth2", 5, "fd00::1", 64)]);
    let theirs = [
        DOCKER,
        ("docker1", 3, "172.17.0.2", 16),
        ("eth0", 2, "10.0.0.2", 24),
        ("eth1", 4, "10.0.1.2", 24),
        ("eth1", 4, "10.0.1.3", 24),
        ("eth2", 5, "10.0.2.2", 24),
        ("eth2", 5, "fd00::2", 64),
    ];
    let theirs = node("y", &theirs);
    let found = candidates(&mine, &theirs);
    let networks = super::networks(&mine, &found);
    let addresses = |paths: &Vec<u8>| -> Vec<String> {
        paths.iter().map(|path| found[usize::from(*path)].to.ip().to_string()).collect()
    };
    assert_eq!(networks.iter().map(addresses).collect::<Vec<_>>(), [["10.0.0.2", "10.0.1.2"]]);
    assert!(super::networks(&mine, &candidates(&mine, &mine)).is_empty(), "of one host");
    let one = node("x", &[LO, ("eth0", 2, "10.0.0.1", 24)]);
    assert!(super::networks(&one, &candidates(&one, &theirs)).is_empty());
}

#[test]
fn link_local_gets_our_scope_or_nothing() {
    let a = node("x", &[("eth0", 7, "fe80::1", 64), ("veth9", 9, "fe80::9", 64)]);
    let b = node("y", &[("eth0", 3, "fe80::2", 64)]);
    assert_eq!(order(&a, &b), [("[fe80::2%7]:4000".into(), Likelihood::LinkLocal)]);
    let without = node("x", &[("eth0", 7, "10.0.0.1", 24)]);
    assert_eq!(order(&without, &b), []);
}

#[test]
fn published_and_read_back() {
    let job = crate::SingleNode::new(Default::default()).unwrap();
    let here = Reachable::here(4000, true, true).unwrap();
    here.publish(&job).unwrap();
    assert_eq!(Reachable::of(&job, 0, Duration::from_secs(1)).unwrap(), here);
    assert!(here.host.shares_loopback(&HostIdentity::here().unwrap()));
    job.put("reachable/1", b"{}").unwrap();
    assert!(matches!(
        Reachable::of(&job, 1, Duration::from_secs(1)),
        Err(JobError::Malformed { rank: 1, .. })
    ));
}

#[test]
fn the_matrix_says_what_was_tried_and_what_to_do() {
    let tried = |to, address: &str, interface: &str| Tried {
        from: 0,
        to,
        address: address.parse().unwrap(),
        interface: interface.into(),
        result: "no answer in 3 s".into(),
    };
    let remedy = "let it through".to_owned();
    let tried = vec![tried(1, "10.0.0.2:4000", "eth0"), tried(2, "[fd00::3]:4000", "eth0")];
    let text = Unreachable { peers: vec![1, 2], tried, remedy, left_out: 3 }.to_string();
    assert!(text.starts_with("joining the job: nodes 1, 2 cannot be reached"), "{text}");
    assert!(text.contains("     0     1  10.0.0.2:4000   eth0       no answer in 3 s"), "{text}");
    assert!(text.contains("3 addresses more"), "{text}");
    assert!(text.ends_with("What to do: let it through"), "{text}");
    assert!(Unreachable::default().to_string().contains("no address"));
}

/// WIND-11.6.
#[test]
fn cable_that_comes_after_many_bridges_is_a_candidate() {
    let bridges = |third: u32| {
        (0..70).map(move |at| (format!("foo{at}"), at + 10, format!("172.{third}.{at}.1")))
    };
    let host = |boot_id: &str, third: u32, cables: &[(&str, u32, &str, u8)]| {
        let list: Vec<_> = bridges(third).collect();
        let list =
            list.iter().map(|(name, index, address)| (name.as_str(), *index, address.as_str(), 24));
        let mut node = node(boot_id, &list.chain(cables.iter().copied()).collect::<Vec<_>>());
        node = Reachable::publishing(node.host, 4000, node.addresses);
        node
    };
    // Routed: no subnet in common. Equal bridges lead back to the host itself.
    for third in [17, 18] {
        let a = host("x", 17, &[("wg0", 99, "10.88.1.1", 24), ("wg0", 99, "fd00:1::1", 64)]);
        let b = host("y", third, &[("wg0", 99, "10.88.2.1", 24), ("wg0", 99, "fd00:2::1", 64)]);
        let (found, left_out) = choose(&a, &b);
        let has =
            |address: &str| found.iter().any(|candidate| candidate.to.ip().to_string() == address);
        assert!(has("10.88.2.1") && has("fd00:2::1"), "{found:?}");
        assert_eq!(left_out > 0, third == 18);
    }
}

/// Oracle of `same_subnet`: bit by bit.
fn same_subnet_slowly(a: u32, b: u32, bits: u8) -> bool {
    (1..=32).contains(&bits) && (0..bits).all(|bit| (a ^ b) >> (31 - bit) & 1 == 0)
}

proptest! {
    #[test]
    fn subnets(a in any::<u32>(), flip in 0u32..33, bits in 0u8..=32) {
        let b = a ^ 1u32.checked_shl(flip).unwrap_or(0);
        prop_assert_eq!(same_subnet(Ipv4Addr::from(a).into(), Ipv4Addr::from(b).into(), bits), same_subnet_slowly(a, b, bits));
    }

    #[test]
    fn candidates_are_bounded_sorted_and_distinct(
        mine in proptest::collection::vec((0u32..6, any::<u16>(), 0u8..33), 0..20),
        theirs in proptest::collection::vec((0u32..6, any::<u16>(), 0u8..33), 0..40),
        together in any::<bool>(),
    ) {
        let names = ["lo", "eth0", "eth1", "docker0", "virbr0", "fe"];
        let make = |list: &[(u32, u16, u8)], boot_id: &str| Reachable {
            host: host(boot_id, 1),
            port: 5,
            callable: None,
            processors: None,
        left_out: 0,
        machine: None,
            addresses: list.iter().map(|&(which, low, prefix)| {
                let [high, low8] = low.to_be_bytes();
                let address = match which {
                    0 => IpAddr::from([127, 0, high, low8]),
                    5 => IpAddr::from([0xfe80, 0, 0, 0, 0, 0, 0, low]),
                    _ => IpAddr::from([10, 0, high, low8]),
                };
                Address { interface: names[which as usize].into(), index: which + 1, address, prefix }
            }).collect(),
        };
        let (mine, theirs) = (make(&mine, "a"), make(&theirs, if together { "a" } else { "b" }));
        let found = candidates(&mine, &theirs);
        prop_assert!(found.len() <= CANDIDATES_MAX);
        prop_assert!(found.windows(2).all(|pair| pair[0].likelihood <= pair[1].likelihood));
        for (at, candidate) in found.iter().enumerate() {
            prop_assert!(found[..at].iter().all(|other| other.to != candidate.to));
            prop_assert!(together || !candidate.to.ip().is_loopback());
            prop_assert!(together || is_link_local(candidate.to.ip()) || mine.addresses.iter().all(|own| own.address != candidate.to.ip()));
        }
    }
}
