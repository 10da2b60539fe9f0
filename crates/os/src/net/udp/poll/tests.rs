//! Sockets that are polled seldom are not forgotten.

use super::super::drain::{BULK_POLL_BYTES, DATAGRAM_BYTES_MIN};
use super::super::recv::BUFFERS;
use super::*;
use crate::net::Outgoing;
use crate::net::sink::Plain;
use crate::net::{Arrival, Bind, Link, ReceiveEach};
use oikaze_protocol::wire::Lane;
use std::net::SocketAddr;

/// A link with two sockets, their addresses, and a link that sends to them.
fn two_sockets() -> (UdpLink, [SocketAddr; 2], UdpLink) {
    let bind = |addresses| UdpLink::bind(&Bind { addresses, ..Bind::default() }).unwrap();
    let here = bind([[127, 0, 0, 1], [127, 0, 0, 2]].map(Into::into).to_vec());
    let at = here.bound().try_into().unwrap();
    (here, at, bind(vec![[127, 0, 0, 1].into()]))
}

/// A socket that always has something does not keep others from being heard.
#[test]
fn a_quiet_socket_is_heard_beside_a_busy_one() {
    let (mut here, [busy, quiet], mut there) = two_sockets();
    let mut send = |to, head: &[u8]| {
        assert_eq!(there.send(&[Outgoing::new(&to, Lane::Small, head)]).unwrap(), 1);
    };
    let (mut heard, mut idle) = (0, 0);
    for poll in 1..=4000 {
        send(busy, b"busy");
        if poll % 100 == 1 {
            send(quiet, b"quiet");
        }
        let before = heard;
        let taken =
            here.receive(&mut |arrival| heard += usize::from(arrival.bytes == b"quiet")).unwrap();
        idle += usize::from(taken == heard - before);
    }
    // The kernel may deliver a few of them late, when the machine is loaded.
    assert!(heard >= 30, "{heard} of 40, {idle} polls without a datagram of the busy one");
    assert!(idle < 1000, "{heard} of 40, {idle} polls without a datagram of the busy one");
}

/// Small datagrams do not starve bulk, which has a port of its own.
#[test]
fn bulk_is_heard_beside_small_datagrams_that_come_without_end() {
    let bind = || {
        UdpLink::bind(&Bind { addresses: vec![[127, 0, 0, 1].into()], ..Bind::default() }).unwrap()
    };
    let (mut here, mut there) = (bind(), bind());
    let small = here.bound()[0];
    let bulk = SocketAddr::new(small.ip(), here.properties().bulk_port.unwrap());
    let mut heard = 0;
    for poll in 1..=4000 {
        assert_eq!(there.send(&[Outgoing::new(&small, Lane::Small, b"small")]).unwrap(), 1);
        if poll % 200 == 1 {
            assert_eq!(there.send(&[Outgoing::new(&bulk, Lane::Bulk, b"bulk")]).unwrap(), 1);
        }
        here.receive(&mut |arrival| heard += usize::from(arrival.bytes == b"bulk")).unwrap();
    }
    assert!(heard >= 15, "{heard} of 20");
}

/// Anybody may send empty datagrams to the port, and a poll ends although they keep coming.
#[test]
fn a_poll_ends_although_empty_datagrams_come() {
    let mut here =
        UdpLink::bind(&Bind { addresses: vec![[127, 0, 0, 1].into()], ..Bind::default() }).unwrap();
    let bulk = SocketAddr::new(here.bound()[0].ip(), here.properties().bulk_port.unwrap());
    let anybody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    (0..2000).for_each(|_| assert_eq!(anybody.send_to(&[], bulk).unwrap(), 0));
    let polls: Vec<usize> = (0..100).map(|_| here.receive(&mut |_| ()).unwrap()).collect();
    let most = BULK_POLL_BYTES / DATAGRAM_BYTES_MIN + 2 * BUFFERS;
    assert!(polls.iter().all(|taken| *taken <= most), "{polls:?}");
    assert!(polls.iter().sum::<usize>() > most, "{polls:?}");
}

/// A repeated poll receives from the hot socket, and leaves the rest to a full poll.
#[test]
fn repeated_poll_is_of_the_hot_socket_alone() {
    let (mut here, [hot, quiet], mut there) = two_sockets();
    assert_eq!(there.send(&[Outgoing::new(&hot, Lane::Small, b"hot")]).unwrap(), 1);
    while here.receive(&mut |_| ()).unwrap() == 0 {}
    for to in [quiet, hot] {
        assert_eq!(there.send(&[Outgoing::new(&to, Lane::Small, b"more")]).unwrap(), 1);
    }
    let mut heard = 0;
    let mut take = |_: Arrival<'_>| heard += 1;
    while here.receive_again(&mut Plain(&mut take)).unwrap() == 0 {}
    for _ in 0..100 {
        assert_eq!(here.receive_again(&mut Plain(&mut take)).unwrap(), 0);
    }
    while here.receive(&mut take).unwrap() == 0 {}
    assert_eq!(heard, 2);
}
