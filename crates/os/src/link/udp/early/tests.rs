//! The program run on frames, and links at both ends of a cable. All of it as root only.

use super::super::super::ip::tests::packet;
use super::super::{Bind, UdpLink};
use super::program::{PASSED, TAKEN};
use super::*;
use crate::bpf::run_on;
use crate::link::conformance::take;
use crate::link::{Link, Offload, Outgoing};
use crate::memory::Gather;
use crate::without::Without;
use oikaze_protocol::wire::Lane;
use proptest::prelude::*;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// Seen and counted by `cargo xtask test`; where all must run (OIKAZE_TEST_ALL), a failure.
fn skip(why: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
    assert!(std::env::var_os("OIKAZE_TEST_ALL").is_none(), "skipped: {why}");
}

const PORTS: Ports = Ports { small: 7, bulk: 9 };
const OURS: [&str; 4] = ["10.1.2.3", "192.168.7.1", "fd00::1:2:3", "fd00::1:2:4"];

fn ours() -> Vec<IpAddr> {
    OURS.map(|ip| ip.parse().unwrap()).to_vec()
}

fn program_of(ips: &[IpAddr]) -> Option<(Early, Loaded)> {
    match Early::at_no_interface(PORTS, ips, false) {
        Err(Errno::PERM | Errno::ACCESS) => {
            skip("programs in the kernel take CAP_BPF and CAP_NET_ADMIN");
            None
        }
        made => Some(made.unwrap()),
    }
}

/// As a virtual device without an address of its own hands it on: for this host.
fn frame(packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] };
    [&[0; 12], &kind[..], packet].concat()
}

/// What the program shall do, told otherwise.
fn is_ours(frame: &[u8]) -> bool {
    if frame[..6] != [0; 6] || frame.len() > 9216 - 8 {
        return false;
    }
    let (kind, ip) = (&frame[12..14], &frame[14..]);
    let (header, to) = match (kind, ip.len()) {
        ([0x08, 0x00], 36..) if ip[0] == 0x45 && ip[9] == 17 && ip[6] & 0x3f == 0 && ip[7] == 0 => {
            (20, IpAddr::from(<[u8; 4]>::try_from(&ip[16..20]).unwrap()))
        }
        ([0x86, 0xdd], 56..) if ip[0] >> 4 == 6 && ip[6] == 17 => (40, IpAddr::from(<[u8; 16]>::try_from(&ip[24..40]).unwrap())),
        _ => return false,
    };
    let whose = &ip[header + 8..header + 16];
    let port = u16::from_be_bytes([ip[header + 2], ip[header + 3]]);
    let wanted = port == PORTS.small || port == PORTS.bulk && frame.len() <= 256 - 8;
    wanted && ours().contains(&to) && whose != [0; 8]
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let to = (prop::sample::select(ours()), prop_oneof![6 => Just(PORTS.small), 3 => Just(PORTS.bulk), 1 => any::<u16>()]);
    let whose = prop_oneof![1 => Just(0_u8), 5 => any::<u8>()];
    let body = prop_oneof![4 => 0_usize..150, 2 => 150_usize..350, 1 => 1990_usize..2040, 1 => 2040_usize..3000];
    let change = prop_oneof![3 => Just(None), 1 => (0_usize..70, any::<u8>()).prop_map(Some)];
    let cut = prop_oneof![9 => Just(usize::MAX), 1 => 15_usize..70];
    (to, whose, body, change, cut).prop_map(|((ip, port), whose, len, change, cut)| {
        let from = if ip.is_ipv4() { "10.9.9.9:1" } else { "[fd00::9]:1" }.parse().unwrap();
        let body: Vec<u8> = (0..len).map(|at| if at < 8 { whose } else { at as u8 }).collect();
        let mut frame = frame(&packet(from, SocketAddr::new(ip, port), 0, &body));
        if let Some((at, byte)) = change {
            let at = at % frame.len();
            frame[at] = byte;
        }
        frame.truncate(cut);
        frame
    })
}

#[test]
fn what_is_for_the_port_is_taken_whole_and_all_else_passes() {
    let Some((mut early, program)) = program_of(&ours()) else { return };
    let mut taken = [0, 0];
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 4000, ..ProptestConfig::default() });
    let early = std::cell::RefCell::new(&mut early);
    let counts = std::cell::RefCell::new(&mut taken);
    runner
        .run(&frames(), |frame| {
            let mine = is_ours(&frame);
            let result = match run_on(&program, &frame) {
                // The kernel does not try what has no whole IP header.
                Err(Errno::INVAL) if frame.len() < 14 + 40 => return Ok(()),
                result => result.unwrap(),
            };
            counts.borrow_mut()[usize::from(mine)] += 1;
            prop_assert_eq!(result, if mine { TAKEN } else { PASSED });
            let mut records = Vec::new();
            early.borrow_mut().ring.take(9, &mut |record| records.push(record.to_vec()));
            let frames: Vec<Vec<u8>> = records.iter().map(|record| frame_of(record).unwrap().1.to_vec()).collect();
            prop_assert_eq!(frames, if mine { vec![frame] } else { Vec::new() });
            Ok(())
        })
        .unwrap();
    assert!(taken.iter().all(|count| *count > 400), "{taken:?}");
}

#[test]
fn what_is_too_much_for_the_ring_passes_and_nothing_is_overwritten() {
    let Some((mut early, program)) = program_of(&ours()) else { return };
    for round in 0..3 {
        let (mut taken, mut next) = (0_u32, 0_u32);
        let mut send = || {
            let mut body = [taken.to_le_bytes(), [1; 4]].concat();
            body.resize(100 + taken as usize * 37 % 2500, round);
            let it = frame(&packet("10.9.9.9:1".parse().unwrap(), "10.1.2.3:7".parse().unwrap(), 0, &body));
            let took = run_on(&program, &it).unwrap() == TAKEN;
            taken += u32::from(took);
            took
        };
        while send() {}
        assert!(taken > RING / 2500 / 2);
        let mut statistics = Statistics::default();
        let mut check = |arrival: Arrival<'_>, _: &Way| {
            assert_eq!(arrival.bytes[..4], next.to_le_bytes());
            assert!(arrival.bytes[8..].iter().all(|byte| *byte == round));
            next += 1;
        };
        assert_eq!(early.take(1, &mut statistics, &mut check), 1);
        while early.take(16, &mut statistics, &mut check) > 0 {}
        assert_eq!((next, statistics.early), (taken, taken.into()));
        early.ring.tell();
    }
}

/// While somebody sleeps all goes to the sockets; what came before is announced.
#[test]
fn a_shut_gate_lets_pass_and_what_is_left_makes_the_descriptor_readable() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some((mut early, program)) = program_of(&ours()) else { return };
    let readable = |fd: BorrowedFd<'_>| poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&Timespec::default())).unwrap() == 1;
    let it = frame(&packet("[fd00::9]:1".parse().unwrap(), "[fd00::1:2:4]:7".parse().unwrap(), 0, b"some body"));
    for _ in 0..1000 {
        assert_eq!(run_on(&program, &it).unwrap(), TAKEN);
        assert!(readable(early.shut_gate()));
        assert_eq!(run_on(&program, &it).unwrap(), PASSED);
        assert_eq!(early.take(9, &mut Statistics::default(), &mut |_, _| ()), 1);
        assert!(!readable(early.shut_gate()), "all was taken");
        early.open_gate();
    }
}

#[test]
fn a_record_that_is_no_datagram_is_counted() {
    let Some((mut early, program)) = program_of(&ours()) else { return };
    let mut it = frame(&packet("10.9.9.9:1".parse().unwrap(), "10.1.2.3:7".parse().unwrap(), 0, b"some body"));
    // The header's checksum.
    it[14 + 10] ^= 1;
    assert_eq!(run_on(&program, &it).unwrap(), TAKEN);
    let mut statistics = Statistics::default();
    assert_eq!(early.take(9, &mut statistics, &mut |_, _| panic!("altered")), 0);
    assert_eq!((statistics.truncated, statistics.early, early.is_empty()), (1, 0, true));
}

/// Two links, each in a network namespace of its own, a cable between them. `None`: not permitted.
struct Cable {
    ends: [(SocketAddr, UdpLink); 2],
    _namespaces: [File; 2],
}

/// This thread is left in the second one's namespace, so that neither may open sockets later (`connect`).
fn cable(addresses: [&str; 2], without: [&str; 2]) -> Option<Cable> {
    let ip = |line: &str| {
        assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "ip {line}");
    };
    let namespace = || {
        // SAFETY: concerns this thread alone, which ends with the test.
        (unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0).then(|| File::open("/proc/thread-self/ns/net").unwrap())
    };
    let Some(first) = namespace() else {
        skip("network namespaces take root");
        return None;
    };
    let second = namespace().unwrap();
    let home = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&first));
    ip(&format!("link add there type veth peer name here netns {home}"));
    let mut ends = Vec::new();
    for ((namespace, device), (address, without)) in [(&first, "here"), (&second, "there")].into_iter().zip(addresses.into_iter().zip(without)) {
        move_into_link_name_space(std::os::fd::AsFd::as_fd(namespace), Some(LinkNameSpaceType::Network)).unwrap();
        ip(&format!("address add {address} dev {device} {}", if address.contains(':') { "nodad" } else { "broadcast +" }));
        ip(&format!("link set {device} mtu 9000 up"));
        let without = Without::parse(without).unwrap();
        let link = UdpLink::bind(&Bind { without, ..Bind::default() }).unwrap();
        let at = SocketAddr::new(address.split('/').next().unwrap().parse().unwrap(), link.port());
        ends.push((at, link));
    }
    let ends = ends.try_into().ok().unwrap();
    Some(Cable { ends, _namespaces: [first, second] })
}

fn in_a_thread(test: impl FnOnce() + Send + 'static) {
    // Which may be anywhere afterwards.
    std::thread::spawn(test).join().unwrap();
}

/// Sends so many bytes and returns how they came.
fn across(from: &mut UdpLink, to: &mut (SocketAddr, UdpLink), lane: Lane, body: &[u8]) -> (SocketAddr, Vec<u8>) {
    let at = SocketAddr::new(to.0.ip(), if lane == Lane::Bulk { to.1.bulk_port().unwrap() } else { to.0.port() });
    let one = Outgoing { to: &at, lane, head: body, payload: &Gather::EMPTY, tag: &[] };
    assert_eq!(from.send(&[one]).unwrap(), 1);
    let begun = Instant::now();
    let mut came = None;
    while came.is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} bytes never came", body.len());
        to.1.receive(&mut |arrival| came = Some((arrival.from, arrival.bytes.to_vec()))).unwrap();
    }
    came.unwrap()
}

#[test]
fn links_on_a_cable_receive_early_what_is_small() {
    for addresses in [["10.7.0.1/24", "10.7.0.2/24"], ["fd00:7::1/64", "fd00:7::2/64"]] {
        in_a_thread(move || {
            let Some(Cable { ends: [mut one, mut other], _namespaces }) = cable(addresses, ["connect", "connect,early"]) else { return };
            assert_eq!([&one, &other].map(|(_, link)| link.statistics().early_receive), [Offload::On, Offload::Off]);
            for len in (0..600).chain([2000, 2001, 5000, 8000, 8900]) {
                let body: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8 | 1).collect();
                assert_eq!(across(&mut other.1, &mut one, Lane::Small, &body), (other.0, body.clone()));
                assert_eq!(across(&mut one.1, &mut other, Lane::Small, &body), (one.0, body.clone()));
            }
            let early = |link: &UdpLink| link.statistics().early;
            // But for those too short to say whose they are.
            assert_eq!((early(&one.1), early(&other.1)), (605 - 8, 0));
            let bulk_from = SocketAddr::new(other.0.ip(), other.1.bulk_port().unwrap());
            assert_eq!(across(&mut other.1, &mut one, Lane::Bulk, &[7; 300]).0, bulk_from);
            assert_eq!(early(&one.1), 605 - 8);
            assert_eq!(across(&mut other.1, &mut one, Lane::Bulk, b"acknowledged").0, bulk_from);
            assert_eq!(early(&one.1), 606 - 8);
            // Who sleeps is woken, by what came before and by what comes then.
            for asleep in [false, true] {
                if asleep {
                    one.1.watch(true).unwrap();
                }
                let to = Outgoing { to: &one.0, lane: Lane::Small, head: b"wake up!", payload: &Gather::EMPTY, tag: &[] };
                assert_eq!(other.1.send(&[to]).unwrap(), 1);
                assert_eq!(take(&mut one.1, 1), [(other.0, b"wake up!".to_vec())]);
            }
            assert_eq!(early(&one.1), 607 - 8);
            one.1.watch(false).unwrap();
            across(&mut other.1, &mut one, Lane::Small, b"is awake");
            assert_eq!(early(&one.1), 608 - 8);
        });
    }
}

/// Sockets have what the ring had no room for, and all of it is heard.
#[test]
fn nothing_is_lost_that_fits_into_ring_and_socket() {
    in_a_thread(|| {
        let Some(Cable { ends: [(at, mut one), (_, mut other)], _namespaces }) = cable(["10.7.0.1/24", "10.7.0.2/24"], ["connect", "connect,gso"]) else {
            return;
        };
        const COUNT: u32 = 300;
        for number in 0..COUNT {
            let body = [&number.to_le_bytes()[..], &[1; 4000]].concat();
            let datagram = Outgoing { to: &at, lane: Lane::Small, head: &body, payload: &Gather::EMPTY, tag: &[] };
            assert_eq!(other.send(&[datagram]).unwrap(), 1);
        }
        let mut came = std::collections::BTreeSet::new();
        let begun = Instant::now();
        while came.len() < COUNT as usize {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} of {COUNT}", came.len());
            let mut take = |arrival: Arrival<'_>| assert!(came.insert(arrival.bytes[..4].to_vec()));
            one.receive(&mut take).unwrap();
            one.receive_again(&mut super::super::Plain(&mut take)).unwrap();
        }
        let early = one.statistics().early;
        assert!(early > 40 && early < COUNT.into(), "{early} early: the rest by the socket");
    });
}
