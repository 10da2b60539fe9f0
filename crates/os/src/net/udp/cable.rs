//! Links at both ends of a cable between two network namespaces: early receive and frames. Only as
//! root.

use super::{Bind, UdpLink};
use crate::features::Without;
use crate::net::bypass::splice::tests as splice_tests;
use crate::net::conformance::take;
use crate::net::{Arrival, Link, Offload, Outgoing, Sink};
use crate::testing::{skip, skipped};
use oikaze_protocol::wire::Lane;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// Two hosts with a link each, and a cable between them.
pub(super) struct Cable {
    pub(super) ends: [(SocketAddr, UdpLink); 2],
    namespaces: [File; 2],
}

impl Cable {
    /// Moves this thread to the host at this end, where its link may open further sockets.
    fn at(&mut self, end: usize) -> &mut UdpLink {
        go_to(&self.namespaces[end]);
        &mut self.ends[end].1
    }
}

fn go_to(namespace: &File) {
    move_into_link_name_space(
        std::os::fd::AsFd::as_fd(namespace),
        Some(LinkNameSpaceType::Network),
    )
    .unwrap();
}

fn ip(line: &str) {
    assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "ip {line}");
}

/// Makes a cable and leaves this thread at its second end. Neither link may open sockets later
/// without moving the thread (`connect`). Returns `None` if that is not permitted.
pub(super) fn cable(addresses: [&str; 2], without: [&str; 2]) -> Option<Cable> {
    let namespace = || {
        // SAFETY: concerns this thread alone, which ends with the test.
        (unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0)
            .then(|| File::open("/proc/thread-self/ns/net").unwrap())
    };
    let Some(first) = namespace() else {
        skip("network namespaces take root");
        return None;
    };
    let second = namespace().unwrap();
    let home =
        format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&first));
    ip(&format!("link add there type veth peer name here netns {home}"));
    let mut ends = Vec::new();
    let devices = [(&first, "here"), (&second, "there")];
    for ((namespace, device), (address, without)) in
        devices.into_iter().zip(addresses.into_iter().zip(without))
    {
        go_to(namespace);
        ip(&format!(
            "address add {address} dev {device} {}",
            if address.contains(':') { "nodad" } else { "broadcast +" }
        ));
        ip(&format!("link set {device} mtu 9000 up"));
        let without = Without::parse(without).unwrap();
        let link = UdpLink::bind(&Bind { without, ..Bind::default() }).unwrap();
        let at = SocketAddr::new(address.split('/').next().unwrap().parse().unwrap(), link.port());
        ends.push((at, link));
    }
    let ends = ends.try_into().ok().unwrap();
    Some(Cable { ends, namespaces: [first, second] })
}

/// A sink that keeps the last datagram, and accepts it as a peer's or not.
struct Taken {
    came: Option<(SocketAddr, Vec<u8>)>,
    peers: bool,
}

impl Sink for Taken {
    fn take(&mut self, arrival: Arrival<'_>) {
        self.came = Some((arrival.from, arrival.bytes.to_vec()));
    }

    fn was_a_peers(&self) -> bool {
        self.peers
    }
}

pub(super) fn in_a_thread(test: impl FnOnce() + Send + 'static) {
    // The thread may be in another network namespace afterwards.
    std::thread::spawn(test).join().unwrap();
}

/// Sends `body` and returns what arrived, with its sender.
fn across(
    from: &mut UdpLink,
    to: &mut (SocketAddr, UdpLink),
    lane: Lane,
    body: &[u8],
) -> (SocketAddr, Vec<u8>) {
    let at = SocketAddr::new(
        to.0.ip(),
        if lane == Lane::Bulk { to.1.bulk_port().unwrap() } else { to.0.port() },
    );
    let one = Outgoing::new(&at, lane, body);
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
            let Some(Cable { ends: [mut one, mut other], .. }) =
                cable(addresses, ["connect", "connect,early"])
            else {
                return;
            };
            let early = [&one, &other].map(|(_, link)| link.statistics().early_receive);
            if early == [Offload::Refused, Offload::Off] {
                return skipped("this kernel has no tcx (Linux 6.6)");
            }
            assert_eq!(early, [Offload::On, Offload::Off]);
            for len in (0..600).chain([2000, 2001, 5000, 8000, 8900]) {
                let body: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8 | 1).collect();
                assert_eq!(
                    across(&mut other.1, &mut one, Lane::Small, &body),
                    (other.0, body.clone())
                );
                assert_eq!(
                    across(&mut one.1, &mut other, Lane::Small, &body),
                    (one.0, body.clone())
                );
            }
            let early = |link: &UdpLink| link.statistics().early;
            // Except for those too short to name a connection.
            assert_eq!((early(&one.1), early(&other.1)), (605 - 8, 0));
            let bulk_from = SocketAddr::new(other.0.ip(), other.1.bulk_port().unwrap());
            assert_eq!(across(&mut other.1, &mut one, Lane::Bulk, b"bulk it is").0, bulk_from);
            assert_eq!(early(&one.1), 605 - 8);
            // A sleeping thread is woken up by datagrams that came before and by those that come
            // then.
            for asleep in [false, true] {
                if asleep {
                    one.1.watch(true).unwrap();
                }
                let to = Outgoing::new(&one.0, Lane::Small, b"wake up!");
                assert_eq!(other.1.send(&[to]).unwrap(), 1);
                assert_eq!(take(&mut one.1, 1), [(other.0, b"wake up!".to_vec())]);
            }
            assert_eq!(early(&one.1), 606 - 8);
            one.1.watch(false).unwrap();
            // The link gives no wakeup for a datagram that was taken, though it came before the
            // sleep.
            let to = Outgoing::new(&one.0, Lane::Small, b"before sleep");
            assert_eq!(other.1.send(&[to]).unwrap(), 1);
            one.1.watch(true).unwrap();
            let readable = |link: &UdpLink| {
                poll(
                    &mut [PollFd::from_borrowed_fd(link.fd().unwrap(), PollFlags::IN)],
                    Some(&Timespec::default()),
                )
                .unwrap()
                    > 0
            };
            assert!(readable(&one.1));
            while one.1.receive(&mut |_| ()).unwrap() == 0 {}
            assert!(!readable(&one.1));
            one.1.watch(false).unwrap();
            across(&mut other.1, &mut one, Lane::Small, b"is awake");
            assert_eq!(early(&one.1), 608 - 8);
        });
    }
}

/// The sockets receive what the ring had no room for, and nothing is lost.
#[test]
fn nothing_is_lost_that_fits_into_ring_and_socket() {
    in_a_thread(|| {
        let Some(Cable { ends: [(at, mut one), (_, mut other)], .. }) =
            cable(["10.7.0.1/24", "10.7.0.2/24"], ["connect", "connect,gso"])
        else {
            return;
        };
        const COUNT: u32 = 300;
        for number in 0..COUNT {
            let body = [&number.to_le_bytes()[..], &[1; 4000]].concat();
            let datagram = Outgoing::new(&at, Lane::Small, &body);
            assert_eq!(other.send(&[datagram]).unwrap(), 1);
        }
        let mut came = std::collections::BTreeSet::new();
        let begun = Instant::now();
        while came.len() < COUNT as usize {
            assert!(begun.elapsed() < Duration::from_secs(20), "{} of {COUNT}", came.len());
            let mut take = |arrival: Arrival<'_>| assert!(came.insert(arrival.bytes[..4].to_vec()));
            one.receive(&mut take).unwrap();
            one.receive_again(&mut super::Plain(&mut take)).unwrap();
        }
        let early = one.statistics().early;
        assert!(early > 40 && early < COUNT.into(), "{early} early: the rest by the socket");
    });
}

/// Sends to and fro, `count` times, numbered from `first`.
fn ping_pong(cable: &mut Cable, first: u32, count: u32) {
    ping_pong_of(cable, first, count, true);
}

/// As [`ping_pong`]; `peers` says whether the datagrams count as a peer's, which only the layer
/// above the link can know.
fn ping_pong_of(cable: &mut Cable, first: u32, count: u32, peers: bool) {
    for number in first..first + count {
        for (from, to) in [(0, 1), (1, 0)] {
            let [source, target] = [from, to].map(|end| cable.ends[end].0);
            let body =
                [number.to_le_bytes().as_slice(), &vec![7; 4 + number as usize % 1500]].concat();
            let one = Outgoing::new(&target, Lane::Small, &body);
            assert_eq!(cable.at(from).send(&[one]).unwrap(), 1);
            let begun = Instant::now();
            let mut taken = Taken { came: None, peers };
            while taken.came.is_none() {
                assert!(begun.elapsed() < Duration::from_secs(20), "{number} never came to {to}");
                cable.at(to).receive_into(&mut taken).unwrap();
            }
            assert_eq!(taken.came, Some((source, body)));
        }
    }
}

fn frames(cable: &Cable) -> [u64; 2] {
    [0, 1].map(|end| cable.ends[end].1.statistics().frames_out)
}

#[test]
fn peers_that_are_heard_early_are_sent_frames() {
    for addresses in [["10.7.0.1/24", "10.7.0.2/24"], ["fd00:7::1/64", "fd00:7::2/64"]] {
        in_a_thread(move || {
            let Some(mut cable) = cable(addresses, ["", ""]) else { return };
            ping_pong_of(&mut cable, 0, 200, false);
            assert_eq!(frames(&cable), [0, 0], "anybody could have sent that");
            ping_pong(&mut cable, 0, 1000);
            assert!(
                frames(&cable).iter().all(|frames| (900..=1000).contains(frames)),
                "{:?}",
                frames(&cable)
            );
            // A sender that hears nothing goes through the socket before long.
            let (target, before) = (cable.ends[1].0, frames(&cable)[0]);
            for _ in 0..100 {
                let one = Outgoing::new(&target, Lane::Small, b"into the void");
                assert_eq!(cable.at(0).send(&[one]).unwrap(), 1);
            }
            assert!((1..=8).contains(&(frames(&cable)[0] - before)));
            let mut came = 0;
            while came < 100 {
                came += cable.at(1).receive(&mut |_| ()).unwrap();
            }
            ping_pong(&mut cable, 0, 2);
            assert!(frames(&cable)[0] > before + 8, "heard again");
            // Handshakes never go as frames (WIND-10.5).
            let before = frames(&cable);
            let hello = Outgoing::new(&target, Lane::Small, &[0; 64]);
            assert_eq!(cable.at(0).send(&[hello]).unwrap(), 1);
            assert_eq!(frames(&cable), before);
        });
    }
}

/// A few datagrams at once go as frames, too, after attempts through the socket now and then. The
/// kernel cuts larger runs.
#[test]
fn a_few_datagrams_have_a_short_way() {
    in_a_thread(|| {
        let Some(mut cable) = cable(["10.7.0.1/24", "10.7.0.2/24"], ["", ""]) else { return };
        let ends = [0, 1].map(|end| cable.ends[end].0);
        let asked = |cable: &mut Cable| {
            (0..1000).filter(|_| cable.at(0).has_short_way(ends[1], 1400)).count()
        };
        let tried = asked(&mut cable);
        assert!((50..100).contains(&tried), "{tried} of 1000, and nothing was heard");
        ping_pong(&mut cable, 0, 200);
        assert_eq!(asked(&mut cable), 1000);
        assert!(!cable.at(0).has_short_way(ends[1], 2048), "too long for a frame");
        for (count, by_frames) in [(1, true), (4, true), (5, false)] {
            let before = frames(&cable)[0];
            let bytes = [7; 1400];
            let one = |_| Outgoing::new(&ends[1], Lane::Small, &bytes);
            assert_eq!(cable.at(0).send(&(0..count).map(one).collect::<Vec<_>>()).unwrap(), count);
            let (mut came, begun) = (0, Instant::now());
            while came < count {
                assert!(begun.elapsed() < Duration::from_secs(20), "{came} of {count} came");
                came +=
                    cable.at(1).receive(&mut |arrival| assert_eq!(arrival.bytes, bytes)).unwrap();
            }
            assert_eq!(
                frames(&cable)[0] - before,
                if by_frames { count as u64 } else { 0 },
                "{count}"
            );
            ping_pong(&mut cable, 0, 1);
        }
    });
}

/// Only arrivals from the new card reveal it. Frames to the previous one are lost meanwhile, as on
/// a bad wire.
#[test]
fn a_host_that_has_another_card_is_found_again() {
    in_a_thread(|| {
        let Some(mut cable) = cable(["10.7.0.1/24", "10.7.0.2/24"], ["", ""]) else { return };
        ping_pong(&mut cable, 0, 200);
        go_to(&cable.namespaces[1]);
        ip("link set there address 02:00:00:00:00:07");
        let ends = [0, 1].map(|end| cable.ends[end].0);
        let (mut arrived, mut tries) = ([false; 2], 0);
        while arrived != [true; 2] {
            tries += 1;
            assert!(tries < 20, "{arrived:?}");
            for (from, to) in [(1, 0), (0, 1)] {
                let one = Outgoing::new(&ends[to], Lane::Small, b"are you there?");
                cable.at(from).send(&[one]).unwrap();
                // On a cable within this machine the datagram is there by now, or when a kernel
                // thread has had its turn.
                let mut taken = Taken { came: None, peers: true };
                (0..2000).for_each(|_| {
                    arrived[to] |= cable.at(to).receive_into(&mut taken).unwrap() > 0
                });
            }
        }
        // Ways are checked at most ten times a second.
        let (before, begun) = (frames(&cable), Instant::now());
        while frames(&cable).iter().zip(before).any(|(now, before)| *now < before + 90) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{before:?}, {:?}", frames(&cable));
            ping_pong(&mut cable, 0, 100);
        }
    });
}

/// As over a tunnel or IPsec, which a frame would bypass.
#[test]
fn where_the_kernel_would_go_another_way_no_frames_are_sent() {
    in_a_thread(|| {
        let Some(mut cable) = cable(["10.7.0.1/24", "10.7.0.2/24"], ["", ""]) else { return };
        go_to(&cable.namespaces[0]);
        ip("route change 10.7.0.0/24 dev here mtu 8000");
        ping_pong(&mut cable, 0, 300);
        let [narrow, wide] = frames(&cable);
        assert!(narrow == 0 && wide > 200, "{narrow}, {wide}");
    });
}

#[test]
fn frames_and_early_receive_can_be_switched_off() {
    for (without, expected) in [("early", [false, true]), ("frames", [false, true])] {
        in_a_thread(move || {
            let Some(mut cable) = cable(["10.7.0.1/24", "10.7.0.2/24"], [without, ""]) else {
                return;
            };
            ping_pong(&mut cable, 0, 200);
            assert_eq!(frames(&cable).map(|frames| frames > 100), expected);
        });
    }
}

/// Sends batches of bulk from the first end until all have come, each datagram whole.
fn bulk(cable: &mut Cable, batches: std::ops::Range<u32>) {
    let to = SocketAddr::new(cable.ends[1].0.ip(), cable.ends[1].1.bulk_port().unwrap());
    let (region, payloads) = splice_tests::payloads(0);
    let begun = Instant::now();
    for batch in batches {
        splice_tests::fill(&region, batch);
        let ends = splice_tests::ends(batch);
        let (mut rest, mut came) = (&splice_tests::outgoing(&to, &ends, &payloads)[..], Vec::new());
        while came.len() < ends.len() {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "batch {batch}: {} to go, {} came",
                rest.len(),
                came.len()
            );
            rest = &rest[cable.at(0).send(rest).unwrap()..];
            cable.at(1).receive(&mut |arrival| came.push(arrival.bytes.to_vec())).unwrap();
        }
        assert!(came == splice_tests::whole(batch), "batch {batch}");
    }
}

/// A refused splice leaves nothing in the pipe that would precede what is sent next.
#[test]
fn spliced_bulk_outlives_full_queues_and_narrow_paths() {
    if !splice_tests::can_splice() {
        return;
    }
    in_a_thread(|| {
        let Some(mut cable) = cable(["10.7.0.1/24", "10.7.0.2/24"], ["", ""]) else { return };
        bulk(&mut cable, 0..100);
        let spliced = |cable: &Cable| cable.ends[0].1.statistics().spliced;
        let before = spliced(&cable);
        assert!(before > 0);
        go_to(&cable.namespaces[0]);
        ip("link set here mtu 5000");
        let to = SocketAddr::new(cable.ends[1].0.ip(), cable.ends[1].1.bulk_port().unwrap());
        let (_region, payloads) = splice_tests::payloads(0);
        let ends = splice_tests::ends(0);
        assert_eq!(
            cable.at(0).send(&splice_tests::outgoing(&to, &ends, &payloads)).unwrap(),
            ends.len()
        );
        assert_eq!(
            (cable.ends[0].1.statistics().too_big, spliced(&cable)),
            (ends.len() as u64, before)
        );
        ip("link set here mtu 9000");
        bulk(&mut cable, 0..100);
        go_to(&cable.namespaces[0]);
        assert!(spliced(&cable) > before + 1000);
        // A line that is slower than the sender, with a queue that holds more than the socket may
        // have in flight.
        let tbf = [
            "qdisc", "add", "dev", "here", "root", "tbf", "rate", "400mbit", "burst", "64kb",
            "limit", "500mb",
        ];
        assert!(Command::new("tc").args(tbf).status().unwrap().success());
        for connected in &cable.ends[0].1.connected.bulk.sockets {
            rustix::net::sockopt::set_socket_send_buffer_size(&connected.socket.fd, 1 << 15)
                .unwrap();
        }
        let before = spliced(&cable);
        bulk(&mut cable, 0..40);
        assert!(spliced(&cable) > before + 100);
        assert!(cable.ends[0].1.statistics().would_block > 10);
    });
}
