//! Receiving by tcx at the end of a veth pair.

use super::veth::{Cable, cable};
use crate::net::Outgoing;
use crate::net::conformance::take;
use crate::net::sink::Plain;
use crate::net::stack::LinkStack;
use crate::net::{Arrival, Link, Offload, ReceiveEach};
use crate::testing::namespaces::in_a_thread;
use crate::testing::skipped;
use oikaze_protocol::wire::Lane;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Sends `body` and returns what arrived, with its sender.
fn across(
    from: &mut LinkStack,
    to: &mut (SocketAddr, LinkStack),
    lane: Lane,
    body: &[u8],
) -> (SocketAddr, Vec<u8>) {
    let at = SocketAddr::new(
        to.0.ip(),
        if lane == Lane::Bulk { to.1.properties().bulk_port.unwrap() } else { to.0.port() },
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
fn small_datagrams_over_veth_come_by_tcx() {
    for addresses in [["10.7.0.1/24", "10.7.0.2/24"], ["fd00:7::1/64", "fd00:7::2/64"]] {
        in_a_thread(move || {
            let Some(Cable { ends: [mut one, mut other], .. }) =
                cable(addresses, ["connect", "connect,early"])
            else {
                return;
            };
            let by_tcx = [&one, &other].map(|(_, link)| link.statistics().tcx_receive);
            if by_tcx == [Offload::Refused, Offload::Off] {
                return skipped("this kernel has no tcx (Linux 6.6)");
            }
            assert_eq!(by_tcx, [Offload::On, Offload::Off]);
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
            let by_tcx = |link: &LinkStack| link.statistics().by_tcx;
            // Except for those too short to name a connection.
            assert_eq!((by_tcx(&one.1), by_tcx(&other.1)), (605 - 8, 0));
            let bulk_from = SocketAddr::new(other.0.ip(), other.1.properties().bulk_port.unwrap());
            assert_eq!(across(&mut other.1, &mut one, Lane::Bulk, b"bulk it is").0, bulk_from);
            assert_eq!(by_tcx(&one.1), 605 - 8);
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
            assert_eq!(by_tcx(&one.1), 606 - 8);
            one.1.watch(false).unwrap();
            // The link gives no wakeup for a datagram that was taken, though it came before the
            // sleep.
            let to = Outgoing::new(&one.0, Lane::Small, b"before sleep");
            assert_eq!(other.1.send(&[to]).unwrap(), 1);
            one.1.watch(true).unwrap();
            let readable = |link: &LinkStack| {
                poll(
                    &mut [PollFd::from_borrowed_fd(link.properties().fd.unwrap(), PollFlags::IN)],
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
            assert_eq!(by_tcx(&one.1), 608 - 8);
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
            one.receive_again(&mut Plain(&mut take)).unwrap();
        }
        let by_tcx = one.statistics().by_tcx;
        assert!(by_tcx > 40 && by_tcx < COUNT.into(), "{by_tcx} by tcx: the rest by the socket");
    });
}
