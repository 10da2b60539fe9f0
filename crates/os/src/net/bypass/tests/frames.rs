//! Sending frames over a veth pair.

use super::veth::{Cable, cable};
use crate::net::Outgoing;
use crate::net::{Arrival, Link, PayloadForm, ReceiveEach, Sink};
use crate::testing::namespaces::{go_to, in_a_thread, ip};
use oikaze_protocol::wire::Lane;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

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
fn peers_heard_by_tcx_are_sent_frames() {
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
            let unheard = frames(&cable)[0];
            assert!((1..=14).contains(&(unheard - before)));
            let mut came = 0;
            while came < 100 {
                came += cable.at(1).receive(&mut |_| ()).unwrap();
            }
            ping_pong(&mut cable, 0, 2);
            assert!(frames(&cable)[0] > unheard, "heard again");
            // Handshakes never go as frames (WIND-10.5).
            let before = frames(&cable);
            let hello = Outgoing::new(&target, Lane::Small, &[0; 64]);
            assert_eq!(cable.at(0).send(&[hello]).unwrap(), 1);
            assert_eq!(frames(&cable), before);
        });
    }
}

/// A few datagrams at once go as frames, too, after attempts through the socket now and then. They
/// take one call, if the kernel may cut. It cuts larger runs that come through the socket.
#[test]
fn few_contiguous_datagrams_go_as_frames() {
    let v4 = ["10.7.0.1/24", "10.7.0.2/24"];
    few_datagrams(v4, "");
    few_datagrams(["fd00:7::1/64", "fd00:7::2/64"], "");
    few_datagrams(v4, "gso");
}

fn few_datagrams(addresses: [&'static str; 2], without: &'static str) {
    in_a_thread(move || {
        let Some(mut cable) = cable(addresses, [without, ""]) else { return };
        let ends = [0, 1].map(|end| cable.ends[end].0);
        let asked = |cable: &mut Cable| {
            (0..1000)
                .filter(|_| cable.at(0).prefers(ends[1], PayloadForm::Contiguous(1400)))
                .count()
        };
        let tried = asked(&mut cable);
        assert!((50..100).contains(&tried), "{tried} of 1000, and nothing was heard");
        ping_pong(&mut cable, 0, 200);
        assert_eq!(asked(&mut cable), 1000);
        assert!(
            !cable.at(0).prefers(ends[1], PayloadForm::Contiguous(2048)),
            "too long for a frame"
        );
        for (count, by_frames) in [(1, true), (2, true), (7, true), (8, false)] {
            let [before, there] = [0, 1].map(|end| cable.ends[end].1.statistics());
            // The last datagram is shorter, and each has other bytes.
            let bodies: Vec<Vec<u8>> = (1..=count)
                .map(|number| vec![number as u8; if number == count { 700 } else { 1400 }])
                .collect();
            let run: Vec<Outgoing<'_>> =
                bodies.iter().map(|body| Outgoing::new(&ends[1], Lane::Small, body)).collect();
            assert_eq!(cable.at(0).send(&run).unwrap(), count);
            let (mut came, begun) = (0, Instant::now());
            while came < count {
                assert!(begun.elapsed() < Duration::from_secs(20), "{came} of {count} came");
                cable
                    .at(1)
                    .receive(&mut |arrival| {
                        assert_eq!((arrival.from, arrival.bytes), (ends[0], &bodies[came][..]));
                        came += 1;
                    })
                    .unwrap();
            }
            let after = cable.ends[0].1.statistics();
            let calls = if without.is_empty() { 1 } else { count as u64 };
            assert_eq!(after.calls_out - before.calls_out, calls, "{count}");
            assert_eq!(
                after.frames_out - before.frames_out,
                if by_frames { count as u64 } else { 0 },
                "{count}"
            );
            let by_ring = cable.ends[1].1.statistics().by_tcx - there.by_tcx;
            assert!(!by_frames || by_ring == count as u64, "{by_ring} of {count}");
            ping_pong(&mut cable, 0, 1);
        }
    });
}

/// Peers that have lost sight of each other find each other again by few datagrams, although they
/// have nothing else that is small.
#[test]
fn peers_that_hear_nothing_go_on_trying() {
    in_a_thread(|| {
        let Some(mut cable) = cable(["10.7.0.1/24", "10.7.0.2/24"], ["", ""]) else { return };
        ping_pong(&mut cable, 0, 200);
        let ends = [0, 1].map(|end| cable.ends[end].0);
        // Into the void, until frames are given up.
        while cable.at(0).prefers(ends[1], PayloadForm::Contiguous(1400)) {
            let one = Outgoing::new(&ends[1], Lane::Small, b"into the void");
            assert_eq!(cable.at(0).send(&[one]).unwrap(), 1);
        }
        let tried = (0..1000)
            .filter(|_| cable.at(0).prefers(ends[1], PayloadForm::Contiguous(1400)))
            .count();
        assert!((50..100).contains(&tried), "{tried} of 1000");
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
fn no_frames_are_sent_where_the_kernel_takes_another_route() {
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
fn frames_and_tcx_can_be_switched_off() {
    for (without, expected) in [("tcx", [false, true]), ("raw-tx", [false, true])] {
        in_a_thread(move || {
            let Some(mut cable) = cable(["10.7.0.1/24", "10.7.0.2/24"], [without, ""]) else {
                return;
            };
            ping_pong(&mut cable, 0, 200);
            assert_eq!(frames(&cable).map(|frames| frames > 100), expected);
        });
    }
}
