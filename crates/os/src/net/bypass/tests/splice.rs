//! Splicing over a veth pair.

use super::veth::{Cable, cable};
use crate::net::bypass::socket_link::SocketLink;
use crate::net::bypass::splice::tests as splice_tests;
use crate::net::{Link, ReceiveEach};
use crate::testing::namespaces::{go_to, in_a_thread, ip};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

/// Sends batches of bulk from the first end until all have come, each datagram whole.
fn bulk(cable: &mut Cable, batches: std::ops::Range<u32>) {
    let to = SocketAddr::new(cable.ends[1].0.ip(), cable.ends[1].1.properties().bulk_port.unwrap());
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
    let Some(()) = splice_tests::splicing() else { return };
    in_a_thread(|| {
        let Some(mut cable) = cable(["10.7.0.1/24", "10.7.0.2/24"], ["", ""]) else { return };
        bulk(&mut cable, 0..100);
        let spliced = |cable: &Cable| cable.ends[0].1.statistics().spliced;
        let before = spliced(&cable);
        assert!(before > 0);
        go_to(&cable.namespaces[0]);
        ip("link set here mtu 5000");
        let to =
            SocketAddr::new(cable.ends[1].0.ip(), cable.ends[1].1.properties().bulk_port.unwrap());
        let (_region, payloads) = splice_tests::payloads(0);
        let ends = splice_tests::ends(0);
        assert_eq!(
            cable.at(0).send(&splice_tests::outgoing(&to, &ends, &payloads)).unwrap(),
            ends.len()
        );
        assert_eq!(cable.ends[0].1.statistics().too_big, ends.len() as u64);
        assert_eq!(spliced(&cable), before);
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
        for connected in &cable.ends[0].1.0.udp().sockets.connected.bulk.sockets {
            rustix::net::sockopt::set_socket_send_buffer_size(&connected.socket.fd, 1 << 15)
                .unwrap();
        }
        let before = spliced(&cable);
        bulk(&mut cable, 0..40);
        assert!(spliced(&cable) > before + 100);
        assert!(cable.ends[0].1.statistics().would_block > 10);
    });
}
