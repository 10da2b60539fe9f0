//! Groups between hosts on a bridge, and on the loopback interface.

use super::*;
use crate::features::DisabledFeatures;
use crate::net::conformance::take;
use crate::net::{Bind, Link, Outgoing, ReceiveEach};
use crate::testing::namespaces::{go_to, in_a_thread, ip, namespace, path_of};
use std::fs::File;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A host of its own, with its link.
struct Host {
    namespace: File,
    /// Namespace of the bridge, which the kernel removes when nobody has it open.
    _bridge: Arc<File>,
    ip: IpAddr,
    link: UdpLink,
}

impl Host {
    /// Moves this thread to the host.
    fn at(&mut self) -> &mut UdpLink {
        go_to(&self.namespace);
        &mut self.link
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.link.port())
    }

    fn bulk_address(&self) -> SocketAddr {
        let port = self.link.properties().bulk_port.unwrap_or(self.link.port());
        SocketAddr::new(self.ip, port)
    }
}

/// Makes hosts on one bridge, with these addresses. Returns `None` if that is not permitted.
fn hosts(addresses: &[&str], without: &str) -> Option<Vec<Host>> {
    let bridge = Arc::new(namespace()?);
    ip("link add name bridge type bridge mcast_snooping 0");
    ip("link set bridge up");
    let mut hosts = Vec::new();
    for (index, address) in addresses.iter().enumerate() {
        let own = namespace()?;
        go_to(&bridge);
        let home = path_of(&own);
        ip(&format!("link add port{index} type veth peer name here netns {home}"));
        ip(&format!("link set port{index} master bridge up"));
        go_to(&own);
        let flag = if address.contains(':') { "nodad" } else { "broadcast +" };
        ip(&format!("address add {address} dev here {flag}"));
        ip("link set here up");
        wait_for_carrier();
        // Sockets that are opened later would be in the namespace of this thread.
        let without = DisabledFeatures::parse(&format!("connect,{without}")).unwrap();
        let link = UdpLink::bind(&Bind { without, ..Bind::default() }).unwrap();
        let ip = address.split('/').next().unwrap().parse().unwrap();
        hosts.push(Host { namespace: own, _bridge: Arc::clone(&bridge), ip, link });
    }
    wait_for_ports(&mut hosts);
    Some(hosts)
}

/// Waits until the kernel has noticed that this host's device has a carrier. Before, IPv6 has no
/// route to groups.
fn wait_for_carrier() {
    let begun = Instant::now();
    loop {
        let shown = Command::new("ip").args(["-o", "link", "show", "dev", "here"]).output();
        if String::from_utf8_lossy(&shown.unwrap().stdout).contains("state UP") {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no carrier");
        std::thread::yield_now();
    }
}

/// Waits until the bridge forwards at all ports. The kernel enables a port some time after it has
/// a carrier.
fn wait_for_ports(hosts: &mut [Host]) {
    let Some((first, others)) = hosts.split_first_mut() else { return };
    let begun = Instant::now();
    for other in others {
        let (to, mut came) = (other.bulk_address(), 0);
        while came == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "a port is not enabled");
            send(&mut first.link, to, b"port");
            // Floods would fill the queue of the processor, which all namespaces share.
            std::thread::sleep(Duration::from_millis(1));
            for _ in 0..100 {
                came += other.link.receive(&mut |_| {}).unwrap();
            }
        }
        // Datagrams that are still on their way come before this.
        send(&mut first.link, to, b"last");
        let mut is_last = false;
        while !is_last {
            other.link.receive(&mut |arrival| is_last |= arrival.bytes == b"last").unwrap();
        }
    }
}

const V4: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 192, 7, 9)), 50_123);
const V6: SocketAddr =
    SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 7, 9)), 50_123);

/// Three hosts of a family, and the group that they use.
fn of_family(is_ipv4: bool, without: &str) -> Option<(Vec<Host>, SocketAddr)> {
    let addresses = match is_ipv4 {
        true => ["10.9.0.1/24", "10.9.0.2/24", "10.9.0.3/24"],
        false => ["fd00:9::1/64", "fd00:9::2/64", "fd00:9::3/64"],
    };
    Some((hosts(&addresses, without)?, if is_ipv4 { V4 } else { V6 }))
}

/// Sends one datagram to `to`, which the link has room for.
fn send(link: &mut UdpLink, to: SocketAddr, bytes: &[u8]) {
    let before = link.statistics().unreachable;
    assert_eq!(link.send(&[Outgoing::new(&to, Lane::Bulk, bytes)]).unwrap(), 1);
    assert_eq!(link.statistics().unreachable, before, "{to} has no route");
}

/// Polls often enough that everything that has come would be found.
fn nothing_comes(link: &mut UdpLink) {
    for _ in 0..200 {
        link.receive(&mut |arrival| panic!("{arrival:?}")).unwrap();
    }
}

#[test]
fn datagrams_to_a_group_reach_all_members_and_nobody_else() {
    for is_ipv4 in [true, false] {
        in_a_thread(move || {
            let Some((mut hosts, address)) = of_family(is_ipv4, "") else { return };
            let [first, second, third] = &mut hosts[..] else { panic!("three hosts") };
            let group = |peer| Group { address, peer };
            second.at().join_group(&group(first.address())).unwrap();
            // Joining again changes nothing.
            second.at().join_group(&group(third.address())).unwrap();
            let to = first.at().route_group(&group(second.address())).unwrap();
            assert_eq!((to.port(), to.ip().to_canonical()), (address.port(), address.ip()));
            send(&mut first.link, to, b"one");
            assert_eq!(take(&mut second.link, 1), [(first.bulk_address(), b"one".to_vec())]);
            nothing_comes(&mut first.link);
            nothing_comes(&mut third.link);
            third.at().join_group(&group(first.address())).unwrap();
            send(&mut first.link, to, b"two");
            for host in [&mut *second, &mut *third] {
                assert_eq!(take(&mut host.link, 1), [(first.bulk_address(), b"two".to_vec())]);
            }
            // A sender may be a member, and does not hear itself.
            first.at().join_group(&group(second.address())).unwrap();
            let back = third.at().route_group(&group(first.address())).unwrap();
            send(&mut third.link, back, b"three");
            for host in [&mut *first, &mut *second] {
                assert_eq!(take(&mut host.link, 1), [(third.bulk_address(), b"three".to_vec())]);
            }
            nothing_comes(&mut third.link);
            second.at().leave_group(address);
            second.at().leave_group(address);
            send(&mut first.link, to, b"four");
            assert_eq!(take(&mut third.link, 1), [(first.bulk_address(), b"four".to_vec())]);
            nothing_comes(&mut second.link);
            nothing_comes(&mut first.link);
            // Datagrams that are not for the group come as before.
            send(&mut first.link, second.bulk_address(), b"five");
            assert_eq!(take(&mut second.link, 1), [(first.bulk_address(), b"five".to_vec())]);
            assert_eq!(first.link.statistics().unreachable, 0);
        });
    }
}

/// The kernel cuts and joins datagrams to a group as it does others.
#[test]
fn long_runs_to_a_group_arrive_whole() {
    for (is_ipv4, without) in [(true, ""), (false, ""), (true, "gso,gro"), (true, "lanes")] {
        in_a_thread(move || {
            let Some((mut hosts, address)) = of_family(is_ipv4, without) else { return };
            let [first, members @ ..] = &mut hosts[..] else { panic!("three hosts") };
            let peer = members[0].address();
            for member in &mut *members {
                member.at().join_group(&Group { address, peer: first.address() }).unwrap();
            }
            let to = first.at().route_group(&Group { address, peer }).unwrap();
            let bodies: Vec<Vec<u8>> = (0..60_u8).map(|number| vec![number; 1400]).collect();
            let batch: Vec<Outgoing<'_>> =
                bodies.iter().map(|body| Outgoing::new(&to, Lane::Bulk, body)).collect();
            let before = first.link.statistics().calls_out;
            assert_eq!(first.link.send(&batch).unwrap(), batch.len());
            let cut = first.link.statistics().calls_out - before < 10;
            assert_eq!(cut, !without.contains("gso"), "{:?}", first.link.statistics());
            for member in members {
                let came = take(&mut member.link, bodies.len());
                assert!(came.iter().all(|(from, _)| *from == first.bulk_address()));
                assert!(came.into_iter().map(|(_, bytes)| bytes).eq(bodies.iter().cloned()));
            }
        });
    }
}

/// A host between two networks, and one host in each of them with the address of the former there.
fn between_networks(is_ipv4: bool) -> Option<(Host, Vec<(Host, IpAddr)>)> {
    let home = Arc::new(namespace()?);
    let set_up = |address: IpAddr, device: &str| {
        let (length, flag) = if is_ipv4 { (24, "broadcast +") } else { (64, "nodad") };
        ip(&format!("address add {address}/{length} dev {device} {flag}"));
        ip(&format!("link set {device} up"));
    };
    let open = |namespace: File, ip: IpAddr| {
        let without = DisabledFeatures::parse("connect").unwrap();
        let link = UdpLink::bind(&Bind { without, ..Bind::default() }).unwrap();
        Host { namespace, _bridge: Arc::clone(&home), ip, link }
    };
    let mut far = Vec::new();
    for network in 0..2_u8 {
        let [near, there]: [IpAddr; 2] = [1_u8, 2].map(|host| match is_ipv4 {
            true => Ipv4Addr::new(10, 9, network, host).into(),
            false => Ipv6Addr::new(0xfd00, network.into(), 0, 0, 0, 0, 0, host.into()).into(),
        });
        let own = namespace()?;
        go_to(&home);
        let path = path_of(&own);
        ip(&format!("link add to{network} type veth peer name here netns {path}"));
        set_up(near, &format!("to{network}"));
        go_to(&own);
        set_up(there, "here");
        wait_for_carrier();
        far.push((open(own, there), near));
    }
    go_to(&home);
    let middle = open(home.try_clone().unwrap(), far[0].1);
    Some((middle, far))
}

/// Groups at several interfaces do not depend on each other, although their address is the same.
#[test]
fn each_group_is_sent_to_by_its_own_interface() {
    for is_ipv4 in [true, false] {
        in_a_thread(move || {
            let Some((mut middle, mut far)) = between_networks(is_ipv4) else { return };
            let address = if is_ipv4 { V4 } else { V6 };
            let mut routes = Vec::new();
            for (host, near) in &mut far {
                let peer = SocketAddr::new(*near, middle.address().port());
                host.at().join_group(&Group { address, peer }).unwrap();
                let peer = host.address();
                routes.push(middle.at().route_group(&Group { address, peer }).unwrap());
            }
            for (to, number) in routes.iter().zip(0_u8..) {
                // One datagram alone, and a run that the kernel cuts.
                send(&mut middle.link, *to, &[number]);
                let bodies = [[number; 1000]; 5];
                let batch = bodies.each_ref().map(|body| Outgoing::new(to, Lane::Bulk, body));
                assert_eq!(middle.link.send(&batch).unwrap(), batch.len());
            }
            let port = middle.bulk_address().port();
            for ((host, near), number) in far.iter_mut().zip(0_u8..) {
                for (from, bytes) in take(&mut host.link, 6) {
                    assert_eq!((from, bytes[0]), (SocketAddr::new(*near, port), number));
                }
                nothing_comes(&mut host.link);
            }
        });
    }
}

/// A thread that sleeps is woken by datagrams of a group that is joined meanwhile, too.
#[test]
fn sleepers_are_woken_by_groups() {
    in_a_thread(|| {
        let Some((mut hosts, address)) = of_family(true, "") else { return };
        let [first, second, _] = &mut hosts[..] else { panic!("three hosts") };
        second.link.watch(true).unwrap();
        let peer = first.address();
        second.at().join_group(&Group { address, peer }).unwrap();
        let to = first.at().route_group(&Group { address, peer: second.address() }).unwrap();
        send(&mut first.link, to, b"wake");
        let fd = second.link.properties().fd.unwrap();
        let events = rustix::event::PollFlags::IN;
        let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
        let mut polled = [rustix::event::PollFd::new(&fd, events)];
        assert_eq!(rustix::event::poll(&mut polled, Some(&limit)), Ok(1));
        second.link.watch(false).unwrap();
        second.at().leave_group(address);
    });
}

/// Several nodes of one host are members by the loopback interface.
#[test]
fn nodes_of_one_host_hear_each_other() {
    let here = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let open = || UdpLink::bind(&Bind::default()).unwrap();
    let (mut one, mut other) = (open(), open());
    // The port is of this test process alone, so that tests at the same time do not meet.
    let mut address = V4;
    address.set_port(49_152 + (std::process::id() % 16_000) as u16);
    one.join_group(&Group { address, peer: here(other.port()) }).unwrap();
    other.join_group(&Group { address, peer: here(one.port()) }).unwrap();
    let to = one.route_group(&Group { address, peer: here(other.port()) }).unwrap();
    send(&mut one, to, b"all");
    let from = here(one.properties().bulk_port.unwrap());
    for link in [&mut other, &mut one] {
        assert_eq!(take(link, 1), [(from, b"all".to_vec())]);
    }
}

#[test]
fn what_is_no_group_is_refused() {
    let mut link = UdpLink::bind(&Bind::default()).unwrap();
    let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let group = |text: &str| Group { address: text.parse().unwrap(), peer };
    for text in ["10.0.0.1:5000", "238.255.0.1:0", "255.255.255.255:5000"] {
        for refused in [
            link.join_group(&group(text)).unwrap_err(),
            link.route_group(&group(text)).unwrap_err(),
        ] {
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{text}");
        }
    }
    let other_family = group("[ff15::1]:5000");
    assert!(link.join_group(&other_family).is_err() && link.route_group(&other_family).is_err());
    for number in 0..GROUPS_MAX as u16 {
        link.join_group(&group(&format!("239.192.0.1:{}", 5000 + number))).unwrap();
    }
    assert!(link.join_group(&group("239.192.0.1:6000")).is_err(), "the number is bounded");
    link.leave_group("239.192.0.1:5000".parse().unwrap());
    link.join_group(&group("239.192.0.1:6000")).unwrap();
    // Links without groups say so.
    struct Bare;
    impl Link for Bare {
        fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
            Ok(batch.len())
        }
        fn receive_into(&mut self, _: &mut dyn crate::net::Sink) -> io::Result<usize> {
            Ok(0)
        }
        fn local_addresses(&self) -> io::Result<Vec<crate::net::LocalAddress>> {
            Ok(Vec::new())
        }
        fn properties(&self) -> crate::net::LinkProperties<'_> {
            crate::net::LinkProperties::within_process(1200, 1 << 16)
        }
        fn statistics(&self) -> crate::net::Statistics {
            crate::net::Statistics::default()
        }
    }
    let refused = Bare.join_group(&group("239.192.0.1:5000")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}
