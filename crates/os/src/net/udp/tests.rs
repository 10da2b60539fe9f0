//! Properties of UDP links: ports, fallbacks, paths with a small MTU.

use super::super::conformance::{port_of, take};
use super::*;
use crate::features::Without;
use crate::testing::{skip, skipped};
use oikaze_protocol::wire::Lane;
use rustix::fd::AsRawFd;
use std::net::{IpAddr, Ipv4Addr};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn bind(ports: Ports) -> Result<UdpLink, BindError> {
    UdpLink::bind(&Bind { addresses: vec![HERE], ports, ..Bind::default() })
}

#[test]
fn a_port_in_use_is_an_error_that_says_what_to_do() {
    let first = bind(Ports::ANY).unwrap();
    let ports = Ports::range(first.port(), first.port()).unwrap();
    let error = bind(ports).unwrap_err();
    assert_eq!(error, BindError::InUse { ports, address: HERE });
    let text = error.to_string();
    assert!(
        text.contains(&format!("port {}", first.port()))
            && text.contains("--ports")
            && text.contains("127.0.0.1"),
        "{text}"
    );
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
    assert!(both.bulk_port().is_some_and(|port| port != both.port()));
    let without = Without::parse("lanes").unwrap();
    let mut one =
        UdpLink::bind(&Bind { addresses: vec![HERE], without, ..Bind::default() }).unwrap();
    assert_eq!(
        (one.bulk_port(), one.notice().filter(|notice| notice.contains("bulk"))),
        (None, None)
    );
    // A link keeps to its range. A later link finds its first port before the second ports of the
    // others.
    let Some(ports) = Ports::range(both.port().max(2000) - 500, both.port().max(2000) - 1) else {
        return;
    };
    let (first, second) = (bind(ports).unwrap(), bind(ports).unwrap());
    let bulk = [&first, &second].map(|link| link.bulk_port().unwrap());
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
    assert!(
        link.bulk_port().is_none() && notice.contains("bulk") && notice.contains("two for each"),
        "{notice}"
    );
}

/// Either end may have a mechanism switched off.
#[test]
fn a_link_without_lanes_speaks_with_one_that_has_them() {
    let without = |words| Bind {
        addresses: vec![HERE],
        without: Without::parse(words).unwrap(),
        ..Bind::default()
    };
    let (mut with, mut none) =
        (UdpLink::bind(&without("")).unwrap(), UdpLink::bind(&without("lanes")).unwrap());
    let (to_none, port, bulk) = (none.bound()[0], with.port(), with.bulk_port().unwrap());
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
        none.connected.small.sockets.iter().map(|one| one.to.port()).collect::<Vec<_>>(),
        [bulk, port]
    );
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
    let without = Without::parse("gso,gro").unwrap();
    let none = UdpLink::bind(&Bind { addresses: vec![HERE], without, ..Bind::default() })
        .unwrap()
        .statistics();
    assert_eq!((none.gso, none.gro), (Offload::Off, Offload::Off));
}

/// Sends `count` datagrams of `len` bytes, of which `arrive` arrive, and returns their lengths.
fn send_to(
    sender: &mut UdpLink,
    receiver: &mut UdpLink,
    count: usize,
    len: usize,
    arrive: usize,
) -> Vec<usize> {
    let (to, bytes) = (receiver.bound()[0], vec![1; len]);
    let batch: Vec<Outgoing<'_>> =
        (0..count).map(|_| Outgoing::new(&to, Lane::Small, &bytes)).collect();
    assert_eq!(sender.send(&batch).unwrap(), count);
    take(receiver, arrive).iter().map(|(_, bytes)| bytes.len()).collect()
}

#[test]
fn a_run_is_one_call() {
    let (mut sender, mut receiver) = (bind(Ports::ANY).unwrap(), bind(Ports::ANY).unwrap());
    assert_eq!(send_to(&mut sender, &mut receiver, 60, 1000, 60), vec![1000; 60]);
    if sender.statistics().gso == Offload::On {
        assert_eq!(sender.statistics().calls_out, 1);
        assert_eq!((receiver.statistics().calls_in, receiver.statistics().datagrams_in), (1, 60));
    }
}

/// The kernel refuses `UDP_SEGMENT` on a socket that writes no checksums, as it does for devices
/// without checksum offload.
#[test]
fn a_refusal_at_run_time_is_remembered_told_once_and_tried_again() {
    let (mut sender, mut receiver) = (bind(Ports::ANY).unwrap(), bind(Ports::ANY).unwrap());
    if sender.statistics().gso != Offload::On {
        return skipped("no UDP_SEGMENT here");
    }
    let no_checksums = |sender: &UdpLink, no: libc::c_int| {
        let fd = sender.sockets[0].fd.as_raw_fd();
        // SAFETY: the kernel reads one int.
        let set = unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_NO_CHECK, (&raw const no).cast(), 4)
        };
        assert_eq!(set, 0);
    };
    no_checksums(&sender, 1);
    while sender.notice().is_some() {}
    assert_eq!(send_to(&mut sender, &mut receiver, 20, 1000, 20), vec![1000; 20]);
    assert_eq!(sender.statistics().gso, Offload::Refused);
    assert_eq!(sender.statistics().calls_out, 20);
    let notice = sender.notice().unwrap();
    assert!(notice.contains("UDP_SEGMENT") && notice.contains("ethtool"), "{notice}");
    assert_eq!(send_to(&mut sender, &mut receiver, 20, 1000, 20), vec![1000; 20]);
    assert_eq!(sender.notice(), None);
    assert_eq!((sender.statistics().unreachable, sender.statistics().too_big), (0, 0));
    // The device works again, which the link finds out in time.
    no_checksums(&sender, 0);
    let sent =
        |sender: &mut UdpLink, receiver: &mut UdpLink| send_to(sender, receiver, 20, 100, 20);
    assert!((0..600).any(|_| sent(&mut sender, &mut receiver) == vec![100; 20]
        && sender.statistics().gso == Offload::On));
    let calls = sender.statistics().calls_out;
    sent(&mut sender, &mut receiver);
    assert_eq!((sender.statistics().calls_out - calls, sender.notice()), (1, None));
}

#[test]
fn what_a_full_receive_buffer_drops_is_counted() {
    let small = Bind { addresses: vec![HERE], buffer: 1, ..Bind::default() };
    let without = Without::parse("gso").unwrap();
    let mut sender =
        UdpLink::bind(&Bind { addresses: vec![HERE], without, ..Bind::default() }).unwrap();
    let mut receiver = UdpLink::bind(&small).unwrap();
    let bytes = [1; 1000];
    let to = receiver.bound()[0];
    let out = Outgoing::new(&to, Lane::Small, &bytes);
    for _ in 0..100 {
        assert_eq!(sender.send(std::slice::from_ref(&out)).unwrap(), 1);
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    let mut came = 0;
    while came + receiver.statistics().overflowed < 100 && Instant::now() < deadline {
        came += receiver.receive(&mut |_| ()).unwrap() as u64;
    }
    let overflowed = receiver.statistics().overflowed;
    assert_eq!(came + overflowed, 100);
    assert!(overflowed > 0);
}

#[test]
fn a_full_buffer_asks_to_be_tried_again() {
    let (mut sender, mut receiver) = (bind(Ports::ANY).unwrap(), bind(Ports::ANY).unwrap());
    assert_eq!(sender.next_wakeup(), None);
    // Loopback takes everything, so the test invents the kernel's answer.
    let to = receiver.bound()[0];
    let refused = |lane| [Outgoing::new(&to, lane, b"later")];
    assert_eq!(sender.settle(&refused(Lane::Small), Sent::NoRoom).unwrap(), ControlFlow::Break(()));
    assert!(sender.next_wakeup().is_some());
    assert_eq!(sender.statistics().would_block, 1);
    // A link with nothing left to send asks for no wakeup.
    assert_eq!(sender.receive(&mut |_| ()).unwrap(), 0);
    assert_eq!(sender.next_wakeup(), None);
    assert_eq!(sender.settle(&refused(Lane::Small), Sent::NoRoom).unwrap(), ControlFlow::Break(()));
    assert_eq!(send_to(&mut sender, &mut receiver, 1, 10, 1), vec![10]);
    assert_eq!(sender.next_wakeup(), None);
    // Small datagrams go; bulk still has to be tried again.
    assert_eq!(sender.settle(&refused(Lane::Bulk), Sent::NoRoom).unwrap(), ControlFlow::Break(()));
    assert_eq!(sender.send(&refused(Lane::Small)).unwrap(), 1);
    assert!(sender.next_wakeup().is_some());
}

/// Runs in a network namespace of its own, whose loopback carries 1500 bytes. Segments that do not
/// fit their path are reported, and are not mistaken for a refusal of `UDP_SEGMENT`.
#[test]
fn segments_too_big_for_their_path_are_told() {
    let tested = std::thread::spawn(|| {
        if !narrow_namespace(1500) {
            return false;
        }
        let (mut sender, mut receiver) = (bind(Ports::ANY).unwrap(), bind(Ports::ANY).unwrap());
        let to = receiver.bound()[0];
        assert_eq!(sender.datagram_max_to(to), 1472);
        assert!(send_to(&mut sender, &mut receiver, 5, 2000, 0).is_empty());
        assert_eq!(sender.poll_too_big(), Some(TooBig { to, tried: 2000, fits: 1472 }));
        assert_eq!(sender.statistics().too_big, 5);
        assert_eq!(send_to(&mut sender, &mut receiver, 5, 1472, 5), vec![1472; 5]);
        assert_ne!(sender.statistics().gso, Offload::Refused);
        assert_eq!(sender.notice().filter(|notice| notice.contains("UDP_SEGMENT")), None);
        true
    });
    if !tested.join().unwrap() {
        skip("it needs root, for a network namespace");
    }
}

/// WIND-8.8: whatever a router (or somebody in its name) reports of a path, datagrams that every
/// path must carry are sent.
#[test]
fn a_path_that_is_said_to_carry_next_to_nothing() {
    let tested = std::thread::spawn(|| {
        if !narrow_namespace(9000) {
            return false;
        }
        // Errors that the kernel would have learned from ICMP.
        let told = [
            "-4",
            "route",
            "change",
            "table",
            "local",
            "local",
            "127.0.0.1",
            "dev",
            "lo",
            "mtu",
            "600",
        ];
        if !std::process::Command::new("ip")
            .args(told)
            .status()
            .is_ok_and(|status| status.success())
        {
            return false;
        }
        let (mut sender, mut receiver) = (bind(Ports::ANY).unwrap(), bind(Ports::ANY).unwrap());
        let to = receiver.bound()[0];
        assert_eq!(sender.datagram_max_to(to), 572);
        assert!(send_to(&mut sender, &mut receiver, 2, 8000, 0).is_empty());
        assert_eq!(sender.poll_too_big(), Some(TooBig { to, tried: 8000, fits: 572 }));
        assert_eq!(send_to(&mut sender, &mut receiver, 3, DATAGRAM_MIN, 3), vec![DATAGRAM_MIN; 3]);
        assert_eq!((sender.statistics().too_big, sender.poll_too_big()), (2, None));
        true
    });
    if !tested.join().unwrap() {
        skip("it needs root, for a network namespace, and the ip command");
    }
}

/// Moves this thread into a new network namespace with a loopback interface of `mtu` bytes. Returns
/// `false` if that is not permitted.
fn narrow_namespace(mtu: libc::c_int) -> bool {
    // SAFETY: concerns this thread alone, which ends with the test.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return false;
    }
    // SAFETY: plain system calls; `request` is plain data for which zeros are valid, and is named
    // and large enough.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let mut request: libc::ifreq = core::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_mtu = mtu;
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFMTU, &raw mut request), 0);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw mut request), 0);
        libc::close(socket);
    }
    true
}

/// Exchanges enough datagrams for a connected socket. All arrive from the one port, before and
/// after.
#[test]
fn a_peer_that_is_talked_to_often_gets_a_socket_of_its_own() {
    for address in [HERE, IpAddr::V6(std::net::Ipv6Addr::LOCALHOST)] {
        let everywhere = |without: &str| {
            UdpLink::bind(&Bind { without: Without::parse(without).unwrap(), ..Bind::default() })
        };
        let (mut one, mut other) = (everywhere("").unwrap(), everywhere("connect").unwrap());
        if address.is_ipv6()
            && !local_addresses().unwrap().iter().any(|local| local.address.ip() == address)
        {
            continue;
        }
        // Bulk gets a connected socket on its own port, and its datagrams come from that port.
        assert!(one.bulk_port().is_some() && other.bulk_port().is_some());
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
                one.connected[lane]
                    .sockets
                    .iter()
                    .map(|connected| connected.to)
                    .collect::<Vec<_>>(),
                [other_at]
            );
            assert!(other.connected[lane].sockets.is_empty(), "switched off");
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
            if !link.sockets.iter().any(|socket| socket.serves(home)) {
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
        for socket in link.sockets.iter().chain(&link.bulk) {
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
        sockopt::ip_recvtos(&link.connected[Lane::Small].sockets[0].socket.fd).unwrap()
    };
    assert!(!own(&one));
    // A router that marks everything: one datagram of the burst or of the next must report the
    // mark.
    sockopt::set_ip_tos(&other.connected[Lane::Small].sockets[0].socket.fd, 3).unwrap();
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
            without: Without::parse("gro").unwrap(),
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
    let own = &one.connected[Lane::Bulk].sockets[0].socket;
    assert_eq!((own.gro, rustix::net::sockopt::ip_recvtos(&own.fd)), (false, Ok(true)));
}
