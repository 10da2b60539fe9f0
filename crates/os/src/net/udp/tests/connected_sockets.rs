//! Sockets that are connected to single peers, and the ECN marks that sockets report.

use super::{HERE, bind};
use crate::features::DisabledFeatures;
use crate::net::Outgoing;
use crate::net::conformance::{port_of, take};
use crate::net::{Bind, BindError, Link, Ports, ReceiveEach, UdpLink, local_addresses};
use oikaze_protocol::wire::Lane;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// Exchanges enough datagrams for a connected socket. All arrive from the one port, before and
/// after.
#[test]
fn a_peer_that_is_talked_to_often_gets_a_socket_of_its_own() {
    for address in [HERE, IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)] {
        let everywhere = |without: &str| {
            UdpLink::bind(&Bind {
                without: DisabledFeatures::parse(without).unwrap(),
                ..Bind::default()
            })
        };
        let (mut one, mut other) = (everywhere("").unwrap(), everywhere("connect").unwrap());
        if address.is_ipv6()
            && !local_addresses().unwrap().iter().any(|local| local.address.ip() == address)
        {
            continue;
        }
        // Bulk gets a connected socket on its own port, and its datagrams come from that port.
        assert!(one.properties().bulk_port.is_some() && other.properties().bulk_port.is_some());
        for lane in Lane::BOTH {
            let [one_at, other_at] = [&one, &other].map(|link| port_of(link, address, lane));
            for number in 0..200_u32 {
                let bytes = number.to_le_bytes();
                let to = |to| Outgoing::new(to, lane, &bytes);
                assert_eq!(one.send(&[to(&other_at)]).unwrap(), 1);
                assert_eq!(take(&mut other, 1), [(one_at, bytes.to_vec())]);
                assert_eq!(other.send(&[to(&one_at)]).unwrap(), 1);
                assert_eq!(take(&mut one, 1), [(other_at, bytes.to_vec())]);
            }
            assert_eq!(
                one.sockets.connected[lane]
                    .sockets
                    .iter()
                    .map(|connected| connected.to)
                    .collect::<Vec<_>>(),
                [other_at]
            );
            assert!(other.sockets.connected[lane].sockets.is_empty(), "switched off");
        }
        let [one_at, other_at] = [&one, &other].map(|link| port_of(link, address, Lane::Small));
        // A third link is heard at the same time, through the link's own socket.
        let mut third = everywhere("").unwrap();
        let hello = Outgoing::new(&one_at, Lane::Small, b"hello");
        assert_eq!(third.send(&[hello]).unwrap(), 1);
        assert_eq!(
            take(&mut one, 1),
            [(SocketAddr::new(address, third.port()), b"hello".to_vec())]
        );
        // The port is not free for others, and the end of the peer disturbs nobody.
        let ports = Ports::range(one.port(), one.port()).unwrap();
        assert!(matches!(
            UdpLink::bind(&Bind { ports, ..Bind::default() }),
            Err(BindError::InUse { .. })
        ));
        drop(other);
        for _ in 0..3 {
            let bytes = Outgoing::new(&other_at, Lane::Small, b"anyone?");
            assert_eq!(one.send(&[bytes]).unwrap(), 1);
            one.receive(&mut |_| panic!("nobody is there")).unwrap();
        }
    }
}

/// WIND-9.5: marks arrive in either family, at a socket for one family or for both.
#[test]
fn marks_are_told_and_sent() {
    use rustix::net::sockopt;
    let links = [Bind::default(), Bind { addresses: vec![HERE], ..Bind::default() }];
    for mut link in links.map(|ask| UdpLink::bind(&ask).unwrap()) {
        let homes: [IpAddr; 2] = [HERE, std::net::Ipv6Addr::LOCALHOST.into()];
        for home in homes {
            if !link.sockets.serves(home) {
                continue;
            }
            let Ok(peer) = std::net::UdpSocket::bind((home, 0)) else { continue };
            let mut seen = Vec::new();
            for field in [0_u8, 1, 2, 3] {
                match home {
                    IpAddr::V4(_) => sockopt::set_ip_tos(&peer, field).unwrap(),
                    IpAddr::V6(_) => sockopt::set_ipv6_tclass(&peer, field.into()).unwrap(),
                }
                peer.send_to(&[field], (home, link.port())).unwrap();
                let (before, begun) = (seen.len(), Instant::now());
                while seen.len() == before && begun.elapsed() < Duration::from_secs(10) {
                    link.receive(&mut |arrival| {
                        seen.push((arrival.bytes.to_vec(), arrival.congested))
                    })
                    .unwrap();
                }
            }
            let expected: Vec<_> = [0_u8, 1, 2, 3].map(|field| (vec![field], field == 3)).into();
            assert_eq!(seen, expected, "{home}");
        }
        for socket in link.sockets.own.both().into_iter().flatten() {
            assert!(!socket.local.is_ipv4() || sockopt::ip_tos(&socket.fd) == Ok(2));
            assert!(!socket.local.is_ipv6() || sockopt::ipv6_tclass(&socket.fd) == Ok(2));
        }
    }
}

/// WIND-9.5: a connected socket does not request marks while its datagrams come one by one. It does
/// once many come.
#[test]
fn a_peers_own_socket_hears_marks_when_many_come() {
    use rustix::net::sockopt;
    let (mut one, mut other) = (bind(Ports::ANY).unwrap(), bind(Ports::ANY).unwrap());
    let [one_at, other_at] = [&one, &other].map(|link| port_of(link, HERE, Lane::Small));
    let send = |link: &mut UdpLink, to: &SocketAddr| {
        let datagram = Outgoing::new(to, Lane::Small, b"one");
        assert_eq!(link.send(&[datagram]).unwrap(), 1);
    };
    for _ in 0..200 {
        send(&mut one, &other_at);
        take(&mut other, 1);
        send(&mut other, &one_at);
        take(&mut one, 1);
    }
    let own = |link: &UdpLink| {
        sockopt::ip_recvtos(&link.sockets.connected[Lane::Small].sockets[0].socket.fd).unwrap()
    };
    assert!(!own(&one));
    // A router that marks everything: one datagram of the burst or of the next must report the
    // mark.
    sockopt::set_ip_tos(&other.sockets.connected[Lane::Small].sockets[0].socket.fd, 3).unwrap();
    let (mut marked, begun) = (0, Instant::now());
    while marked == 0 && begun.elapsed() < Duration::from_secs(10) {
        (0..32).for_each(|_| send(&mut other, &one_at));
        let mut heard = 0;
        while heard < 32 && begun.elapsed() < Duration::from_secs(10) {
            heard += one.receive(&mut |arrival| marked += usize::from(arrival.congested)).unwrap();
        }
    }
    assert!(own(&one) && marked > 0);
}

/// WIND-9.5: marks of bulk are also reported where the kernel joins no datagrams.
#[test]
fn a_peers_own_socket_for_bulk_hears_marks_without_gro() {
    let link = || {
        UdpLink::bind(&Bind {
            addresses: vec![HERE],
            without: DisabledFeatures::parse("gro").unwrap(),
            ..Bind::default()
        })
        .unwrap()
    };
    let (mut one, mut other) = (link(), link());
    let [one_at, other_at] = [&one, &other].map(|link| port_of(link, HERE, Lane::Bulk));
    for _ in 0..200 {
        let to = |to| Outgoing::new(to, Lane::Bulk, b"bulk");
        assert_eq!(one.send(&[to(&other_at)]).unwrap(), 1);
        take(&mut other, 1);
        assert_eq!(other.send(&[to(&one_at)]).unwrap(), 1);
        take(&mut one, 1);
    }
    let own = &one.sockets.connected[Lane::Bulk].sockets[0].socket;
    assert_eq!((own.gro, rustix::net::sockopt::ip_recvtos(&own.fd)), (false, Ok(true)));
}
