//! Ports and fallbacks.

use super::{HERE, bind};
use crate::features::DisabledFeatures;
use crate::net::Outgoing;
use crate::net::conformance::take;
use crate::net::{Bind, BindError, Link, Offload, Ports, ReceiveEach, UdpLink};
use oikaze_protocol::limits::FLOWS_MAX;
use oikaze_protocol::wire::Lane;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

#[test]
fn a_port_in_use_is_an_error_that_says_what_to_do() {
    let first = bind(Ports::ANY).unwrap();
    let ports = Ports::range(first.port(), first.port()).unwrap();
    let error = bind(ports).unwrap_err();
    assert_eq!(error, BindError::InUse { ports, address: HERE });
    let text = error.to_string();
    assert!(text.contains(&format!("port {}", first.port())) && text.contains("--ports"), "{text}");
    assert!(text.contains("127.0.0.1"), "{text}");
    // A wildcard collides with the address, too.
    let everywhere = Bind { ports, ..Bind::default() };
    assert!(matches!(UdpLink::bind(&everywhere), Err(BindError::InUse { .. })));
}

#[test]
fn a_range_gives_the_next_free_port() {
    let first = bind(Ports::ANY).unwrap();
    let Some(ports) = Ports::range(first.port(), first.port().saturating_add(20)) else { return };
    let second = bind(ports).unwrap();
    assert!(second.port() > first.port() && ports.iter().any(|port| port == second.port()));
}

#[test]
fn bulk_has_a_port_of_its_own() {
    let both = bind(Ports::ANY).unwrap();
    assert!(both.properties().bulk_port.is_some_and(|port| port != both.port()));
    let without = DisabledFeatures::parse("lanes").unwrap();
    let mut one =
        UdpLink::bind(&Bind { addresses: vec![HERE], without, ..Bind::default() }).unwrap();
    assert_eq!(one.properties().bulk_port, None);
    assert_eq!(one.notice().filter(|notice| notice.contains("bulk")), None);
    // A link keeps to its range. A later link finds its first port before the second ports of the
    // others.
    let Some(ports) = Ports::range(both.port().max(2000) - 500, both.port().max(2000) - 1) else {
        return;
    };
    let (first, second) = (bind(ports).unwrap(), bind(ports).unwrap());
    let bulk = [&first, &second].map(|link| link.properties().bulk_port.unwrap());
    assert!(
        bulk.iter().all(|bulk| ports.iter().any(|port| port == *bulk) && *bulk > second.port()),
        "{bulk:?} {second:?}"
    );
}

#[test]
fn a_range_with_one_port_for_each_has_none_for_bulk_and_says_so() {
    let free = bind(Ports::ANY).unwrap().port();
    let Some(ports) = Ports::range(free, free) else { return };
    let mut link = bind(ports).unwrap();
    let notice = link.notice().unwrap();
    assert!(link.properties().bulk_port.is_none() && notice.contains("bulk"), "{notice}");
    assert!(notice.contains("two for each"), "{notice}");
}

/// Either end may have a mechanism switched off.
#[test]
fn a_link_without_lanes_speaks_with_one_that_has_them() {
    let without = |words| Bind {
        addresses: vec![HERE],
        without: DisabledFeatures::parse(words).unwrap(),
        ..Bind::default()
    };
    let (mut with, mut none) =
        (UdpLink::bind(&without("")).unwrap(), UdpLink::bind(&without("lanes")).unwrap());
    let (to_none, port, bulk) =
        (none.bound()[0], with.port(), with.properties().bulk_port.unwrap());
    for _ in 0..100 {
        let to = |port| SocketAddr::new(HERE, port);
        let sent = |to: [_; 2], from: &mut UdpLink| {
            let out = |to, lane, head| Outgoing::new(to, lane, head);
            assert_eq!(
                from.send(&[out(&to[0], Lane::Bulk, b"bulk"), out(&to[1], Lane::Small, b"small")])
                    .unwrap(),
                2
            );
        };
        sent([to_none; 2], &mut with);
        let mut came = take(&mut none, 2);
        came.sort();
        let mut expected = [(to(bulk), b"bulk".to_vec()), (to(port), b"small".to_vec())];
        expected.sort();
        assert_eq!(came, expected);
        sent([to(bulk), to(port)], &mut none);
        assert!(take(&mut with, 2).iter().all(|(from, _)| *from == to_none));
    }
    // Each of the peer's ports can earn a socket, whichever lane it belongs to.
    assert_eq!(
        none.sockets.connected.small.sockets.iter().map(|one| one.to.port()).collect::<Vec<_>>(),
        [bulk, port]
    );
}

/// WIND-14.1: each flow of bulk leaves from a port of its own, and comes to the one port for bulk.
#[test]
fn flows_of_bulk_leave_from_ports_of_their_own() {
    let (mut from, mut to) = (bind(Ports::ANY).unwrap(), bind(Ports::ANY).unwrap());
    let at = SocketAddr::new(HERE, to.properties().bulk_port.unwrap());
    assert_eq!(from.properties().flows, FLOWS_MAX);
    let batch: Vec<_> = (0..200u8)
        .map(|n| Outgoing { flow: n / 5 % 4, ..Outgoing::new(&at, Lane::Bulk, b"bulk") })
        .collect();
    let mut came = Vec::new();
    for part in batch.chunks(20) {
        assert_eq!(from.send(part).unwrap(), part.len());
        came.extend(take(&mut to, part.len()).into_iter().map(|(from, _)| from.port()));
    }
    let own = from.properties().bulk_port.unwrap();
    assert_eq!(came.iter().filter(|port| **port == own).count(), 50, "the first flow");
    came.sort_unstable();
    came.dedup();
    assert_eq!(came.len(), 4, "{came:?}");
    assert_eq!(from.sockets.flows.len(), 3, "opened once");
    // Nothing is received at the other ports.
    for flow in &from.sockets.flows {
        assert_eq!(to.send(&[Outgoing::new(&flow.socket.local, Lane::Bulk, b"?")]).unwrap(), 1);
    }
    assert_eq!(from.receive(&mut |_| panic!("it came")).unwrap(), 0);
}

#[test]
fn an_address_that_is_not_ours_is_an_error() {
    // TEST-NET-1 (RFC 5737), which nobody has.
    let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    let error = UdpLink::bind(&Bind { addresses: vec![address], ..Bind::default() }).unwrap_err();
    assert_eq!(error, BindError::NotOurs { address });
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
}

#[test]
fn offloads_can_be_switched_off() {
    let both = bind(Ports::ANY).unwrap().statistics();
    assert_ne!(both.gso, Offload::Off);
    let without = DisabledFeatures::parse("gso,gro").unwrap();
    let none = UdpLink::bind(&Bind { addresses: vec![HERE], without, ..Bind::default() })
        .unwrap()
        .statistics();
    assert_eq!((none.gso, none.gro), (Offload::Off, Offload::Off));
}
