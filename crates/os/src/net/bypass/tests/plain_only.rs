//! Fast paths that deliver nothing: a connected socket that is deaf, and a tcx program that takes
//! datagrams and delivers none.

use super::veth::{Cable, cable};
use crate::features::DisabledFeatures;
use crate::net::Outgoing;
use crate::net::bypass::socket_link::SocketLink;
use crate::net::stack::{LinkStack, open};
use crate::net::udp::plain_only::{REOPEN_TIME, SILENCES_MAX};
use crate::net::udp::sockets::socket::Socket;
use crate::net::{Bind, Link, Offload, ReceiveEach};
use crate::testing::namespaces::in_a_thread;
use crate::testing::skipped;
use core::mem::size_of;
use oikaze_protocol::wire::Lane;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Longer than a datagram takes on loopback or a veth pair on a busy machine.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(20);

fn say(from: &mut LinkStack, to: SocketAddr) {
    let one = Outgoing::new(&to, Lane::Small, b"here I am");
    assert_eq!(from.send(&[one]).unwrap(), 1);
}

fn hears(link: &mut LinkStack) {
    let begun = Instant::now();
    while link.receive(&mut |_| ()).unwrap() == 0 {
        assert!(begun.elapsed() < ARRIVAL_TIME_MAX, "it never came");
    }
}

/// Polls often enough to poll idle sockets several times.
fn hears_nothing(link: &mut LinkStack) {
    (0..1000).for_each(|_| assert_eq!(link.receive(&mut |_| ()).unwrap(), 0));
}

/// A silence: the peer sends by a fast path that delivers nothing. The engine finds the peer
/// silent, asks, and the answer comes. Then the fast paths are open again.
fn silence(link: &mut LinkStack, peer: &mut LinkStack, [here, there]: [SocketAddr; 2]) {
    say(peer, here);
    hears_nothing(link);
    link.report_silence(there);
    say(peer, here);
    hears(link);
    link.0.udp().plain_only.contains_any(Instant::now() + REOPEN_TIME);
    assert_eq!(link.receive(&mut |_| ()).unwrap(), 0);
}

/// Number of notices of the link about fast paths.
fn told(link: &mut LinkStack) -> usize {
    std::iter::from_fn(|| link.notice())
        .filter(|notice| notice.contains("heard by the plain socket only"))
        .count()
}

/// Attaches a classic BPF program that drops everything that comes to the socket.
fn deafen(socket: &Socket) {
    let drop_all =
        [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: drop_all.as_ptr().cast_mut() };
    // SAFETY: the kernel reads the program, one instruction, and keeps a copy.
    let answer = unsafe {
        libc::setsockopt(
            socket.fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    assert_eq!(answer, 0);
}

/// Sends often enough that the peer gets a connected socket, if it may have one.
fn connected<'l>(
    link: &'l mut LinkStack,
    peer: &mut LinkStack,
    there: SocketAddr,
) -> Option<&'l Socket> {
    for _ in 0..200 {
        say(link, there);
        hears(peer);
    }
    link.0
        .udp()
        .sockets
        .connected
        .small
        .sockets
        .iter()
        .find(|one| one.to == there)
        .map(|one| &one.socket)
}

/// WIND-8.13.
#[test]
fn peer_whose_connected_socket_gets_nothing_is_heard_without_it() {
    let without = DisabledFeatures::parse("tcx").unwrap();
    let open = || {
        open(&Bind { addresses: vec![[127, 0, 0, 1].into()], without, ..Bind::default() }).unwrap()
    };
    let (mut link, mut peer) = (open(), open());
    let ends = [link.0.udp().bound()[0], peer.0.udp().bound()[0]];
    let mut forked = Vec::new();
    for round in 0..usize::from(SILENCES_MAX) {
        assert_eq!(told(&mut link), 0, "round {round}");
        let own = connected(&mut link, &mut peer, ends[1]).unwrap();
        deafen(own);
        // A child of a fork holds the socket in the same way.
        forked.push(own.fd.try_clone().unwrap());
        silence(&mut link, &mut peer, ends);
    }
    assert_eq!((told(&mut link), link.statistics().receive_paths_avoided), (1, 1));
    assert!(connected(&mut link, &mut peer, ends[1]).is_none());
    say(&mut peer, ends[0]);
    hears(&mut link);
    // A peer that is silent for a reason of its own keeps its socket.
    let mut other = open();
    let there = other.0.udp().bound()[0];
    for _ in 0..2 * SILENCES_MAX {
        assert!(connected(&mut link, &mut other, there).is_some());
        link.report_silence(there);
        say(&mut other, ends[0]);
        hears(&mut link);
        link.0.udp().plain_only.contains_any(Instant::now() + REOPEN_TIME);
        assert!(connected(&mut link, &mut other, there).is_some());
        say(&mut other, ends[0]);
        hears(&mut link);
    }
    assert_eq!(told(&mut link), 0);
}

/// WIND-8.13.
#[test]
fn peer_whose_datagrams_a_program_takes_and_nobody_gets_is_heard_without_it() {
    in_a_thread(|| {
        let Some(Cable { ends: [mut link, mut peer], .. }) =
            cable(["10.7.0.1/24", "10.7.0.2/24"], ["connect", "connect,early"])
        else {
            return;
        };
        if link.1.statistics().tcx_receive == Offload::Refused {
            return skipped("this kernel has no tcx (Linux 6.6)");
        }
        let ends = [link.0, peer.0];
        say(&mut peer.1, ends[0]);
        hears(&mut link.1);
        let by_tcx = link.1.statistics().by_tcx;
        assert_eq!(by_tcx, 1);
        link.1.0.receiver_mut().read_another_ring();
        for round in 0..SILENCES_MAX {
            assert_eq!(told(&mut link.1), 0, "round {round}");
            assert!(link.1.0.receiver_mut().is_open());
            silence(&mut link.1, &mut peer.1, ends);
        }
        assert_eq!((told(&mut link.1), link.1.statistics().receive_paths_avoided), (1, 1));
        // The fast path stays closed after a sleep, too.
        link.1.watch(true).unwrap();
        link.1.watch(false).unwrap();
        for _ in 0..100 {
            say(&mut peer.1, ends[0]);
            hears(&mut link.1);
        }
        assert!(!link.1.0.receiver_mut().is_open());
    });
}
