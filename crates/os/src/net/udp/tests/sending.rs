//! Sending: runs, full buffers, paths with a small MTU.

use super::super::send::Sent;
use super::{HERE, bind};
use crate::features::DisabledFeatures;
use crate::net::conformance::{narrow_namespace, take};
use crate::net::{
    Bind, Link, Offload, Outgoing, Ports, ReceiveEach, TooBig, UdpLink, datagram_max_to,
};
use crate::testing::{skip, skipped};
use core::ops::ControlFlow;
use oikaze_protocol::limits::DATAGRAM_MIN;
use oikaze_protocol::wire::Lane;
use rustix::fd::AsRawFd;
use std::time::{Duration, Instant};

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
        let fd = sender.sockets.own.small[0].fd.as_raw_fd();
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
    let without = DisabledFeatures::parse("gso").unwrap();
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
        assert_eq!(datagram_max_to(to), 1472);
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
        assert_eq!(datagram_max_to(to), 572);
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
