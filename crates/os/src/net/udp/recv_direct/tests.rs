//! Arbitrary arrivals while something is predicted: each datagram comes whole and once, and only
//! offered bytes change.

use super::super::{Bind, UdpLink};
use super::*;
use crate::memory::{Region, RegionTable, nameless_file};
use crate::net::{Fault, FaultSettings, Link, Outgoing, ReceiveEach};
use oikaze_protocol::random::Random;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::Segment;
use oikaze_protocol::wire::Lane;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const HEAD: usize = 40;
const TAG: usize = 4;
/// Contents of memory that must not be written to.
const UNTOUCHED: u8 = 0xEE;
/// Offset of the first offered byte.
const OFFERED: u64 = 100;

/// Datagram `number`, with `len` bytes.
fn datagram(number: u8, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|at| number ^ (at * 7) as u8).collect();
    bytes[0] = number;
    bytes
}

/// A sink that predicts `offered` bytes in payloads of `payload`, and confirms datagrams that are
/// numbered in order of arrival.
struct Taker {
    memory: RegionTable,
    slot: u32,
    payload: usize,
    offered: u64,
    next: u8,
    /// Flow that the sender uses.
    flow: u8,
    scattered: usize,
    came: Vec<Vec<u8>>,
}

impl Taker {
    fn new(payload: usize, offered: u64) -> Taker {
        let region = Region::private(1 << 20).unwrap();
        region.fill(0, 1 << 20, UNTOUCHED).unwrap();
        Taker::of(region, payload, offered)
    }

    fn of(region: Region, payload: usize, offered: u64) -> Taker {
        let mut memory = RegionTable::new();
        let slot = memory.insert(region, Rights::ALL).unwrap().slot;
        Taker { memory, slot, payload, offered, next: 0, flow: 0, scattered: 0, came: Vec::new() }
    }

    fn memory(&self, offset: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; len as usize];
        self.memory.region(self.slot).unwrap().read(offset, &mut bytes).unwrap();
        bytes
    }

    fn outside_is_untouched(&self) -> bool {
        let after = OFFERED + self.offered;
        self.memory(0, OFFERED)
            .iter()
            .chain(&self.memory(after, (1 << 20) - after))
            .all(|byte| *byte == UNTOUCHED)
    }
}

impl Sink for Taker {
    fn take(&mut self, arrival: Arrival<'_>) {
        self.came.push(arrival.bytes.to_vec());
    }
    fn predict(&mut self) -> Option<Predicted> {
        let offered = Segment { region: self.slot, offset: OFFERED, len: self.offered };
        let place = self.memory.scatter(offered)?;
        Some(Predicted { head: HEAD, payload: self.payload, tag: TAG, place })
    }
    fn confirm(&mut self, index: usize, scattered: &Scattered<'_>) -> bool {
        scattered.head.first() == Some(&self.next.wrapping_add(index as u8))
    }
    fn is_first_flow(&self, _: SocketAddr) -> bool {
        self.flow == 0
    }
    fn take_scattered(&mut self, one: Scattered<'_>) {
        self.came.push([one.head, one.payload, one.tag].concat());
        self.next = self.next.wrapping_add(1);
        self.scattered += 1;
    }
}

fn link() -> UdpLink {
    UdpLink::bind(&Bind { addresses: vec![HERE], ..Bind::default() }).unwrap()
}

/// Sends and receives 300 pairs of datagrams, each pair as predicted.
fn exchange_bulk(sender: &mut UdpLink, receiver: &mut impl Link) {
    for _ in 0..300 {
        let mut taker = Taker::new(1366, 2 * 1366);
        let pair = [0, 1].map(|number| datagram(number, HEAD + 1366 + TAG));
        exchange(sender, receiver, &mut taker, &pair);
    }
}

/// Sends datagrams in the bulk lane, as one call, and receives them.
fn exchange(
    sender: &mut UdpLink,
    receiver: &mut impl Link,
    taker: &mut Taker,
    datagrams: &[Vec<u8>],
) {
    let to = SocketAddr::new(HERE, receiver.properties().bulk_port.unwrap());
    let batch: Vec<Outgoing<'_>> = datagrams
        .iter()
        .map(|bytes| Outgoing { flow: taker.flow, ..Outgoing::new(&to, Lane::Bulk, bytes) })
        .collect();
    assert_eq!(sender.send(&batch).unwrap(), batch.len());
    let (before, deadline) = (taker.came.len(), Instant::now() + Duration::from_secs(20));
    while taker.came.len() < before + datagrams.len() {
        receiver.receive_into(taker).unwrap();
        assert!(
            Instant::now() < deadline,
            "{} of {} came",
            taker.came.len() - before,
            datagrams.len()
        );
    }
    for (at, (came, sent)) in taker.came[before..].iter().zip(datagrams).enumerate() {
        let differ = came.iter().zip(sent).position(|(a, b)| a != b);
        assert!(
            came == sent,
            "{at}: {} of {} bytes, different from {differ:?} on",
            came.len(),
            sent.len()
        );
    }
    assert!(taker.outside_is_untouched());
}

#[test]
fn what_is_predicted_comes_to_its_place_and_what_follows_beside_it() {
    for (payload, count, slots) in
        [(8192, 7, 7), (8192, 7, 3), (8192, 3, 7), (8192, 1, 7), (1366, 44, 47), (1366, 44, 1)]
    {
        let (mut sender, mut receiver) = (link(), link());
        let mut taker = Taker::new(payload, (slots * payload + 5) as u64);
        let datagrams: Vec<_> =
            (0..count).map(|number| datagram(number as u8, HEAD + payload + TAG)).collect();
        exchange(&mut sender, &mut receiver, &mut taker, &datagrams);
        let joined = receiver.statistics().calls_in == 1;
        assert!(
            !joined || taker.scattered == count.min(slots),
            "{payload} {count} {slots}: {}",
            taker.scattered
        );
        assert_eq!(receiver.statistics().in_place, taker.scattered as u64);
        if joined {
            let payloads: Vec<u8> = datagrams
                .iter()
                .take(slots)
                .flat_map(|bytes| bytes[HEAD..HEAD + payload].to_vec())
                .collect();
            assert_eq!(taker.memory(OFFERED, payloads.len() as u64), payloads);
        }
        assert_eq!(receiver.statistics().datagrams_in, count as u64);
        assert_eq!(receiver.statistics().truncated, 0);
    }
}

/// A peer that sends bulk as predicted earns a connected socket at the receiver, too, although the
/// receiver sends none.
#[test]
fn bulk_that_keeps_coming_as_predicted_gets_a_socket_of_its_own() {
    let (mut sender, mut receiver) = (link(), link());
    exchange_bulk(&mut sender, &mut receiver);
    let from = SocketAddr::new(HERE, sender.properties().bulk_port.unwrap());
    assert_eq!(
        receiver
            .sockets
            .connected
            .bulk
            .sockets
            .iter()
            .map(|connected| connected.to)
            .collect::<Vec<_>>(),
        [from]
    );
    assert!(receiver.statistics().in_place > 0);
}

/// Tests over the network without faults therefore use the same path as programs.
#[test]
fn a_link_without_faults_brings_bulk_to_its_place() {
    let (mut sender, mut receiver) =
        (link(), Fault::new(link(), FaultSettings { seed: 1, ..FaultSettings::default() }));
    exchange_bulk(&mut sender, &mut receiver);
    assert!(receiver.statistics().in_place > 0);
}

/// WIND-14.1: a socket connected to the port of a later flow would take one of few places, and
/// nothing is sent there.
#[test]
fn only_the_first_flow_of_a_peer_earns_a_connected_socket() {
    let (mut sender, mut receiver) = (link(), link());
    for flow in [1, 2, 0] {
        let before = receiver.statistics().in_place;
        for _ in 0..100 {
            let mut taker = Taker { flow, ..Taker::new(1366, 2 * 1366) };
            let pair = [0, 1].map(|number| datagram(number, HEAD + 1366 + TAG));
            exchange(&mut sender, &mut receiver, &mut taker, &pair);
        }
        assert!(receiver.statistics().in_place > before, "flow {flow} is placed directly");
        let connected = receiver.sockets.connected.bulk.sockets.len();
        assert_eq!(connected, usize::from(flow == 0), "flow {flow}");
    }
}

/// Each peer has a connected socket. No peer waits until the sockets of the others are empty, or
/// until an idle socket is polled.
#[test]
fn several_peers_that_send_bulk_are_heard_in_turn() {
    let (mut senders, mut receiver) = ([link(), link(), link()], link());
    for sender in &mut senders {
        for _ in 0..100 {
            let mut taker = Taker::new(1366, 2 * 1366);
            exchange(
                sender,
                &mut receiver,
                &mut taker,
                &[datagram(0, HEAD + 1366 + TAG), datagram(1, HEAD + 1366 + TAG)],
            );
        }
    }
    assert_eq!(receiver.sockets.connected.bulk.sockets.len(), senders.len());
    let to = SocketAddr::new(HERE, receiver.properties().bulk_port.unwrap());
    let mut waiting = senders
        .each_ref()
        .map(|sender| (SocketAddr::new(HERE, sender.properties().bulk_port.unwrap()), 0));
    for look in 0..1000 {
        for sender in &mut senders {
            let bulk = Outgoing::new(&to, Lane::Bulk, &[7; 100]);
            assert_eq!(sender.send(&[bulk]).unwrap(), 1);
        }
        waiting.iter_mut().for_each(|(_, polls)| *polls += 1);
        let mut heard = |from: SocketAddr| {
            waiting
                .iter_mut()
                .filter(|(sender, _)| *sender == from)
                .for_each(|(_, polls)| *polls = 0)
        };
        receiver.receive(&mut |arrival| heard(arrival.from)).unwrap();
        // Sockets that were idle while the others got theirs are found by polls of idle sockets.
        assert!(
            look < 100 || waiting.iter().all(|(_, polls)| *polls <= 2 * senders.len()),
            "{look}: {waiting:?}"
        );
    }
}

#[test]
fn from_the_first_that_is_not_as_predicted_a_run_is_taken_out() {
    for wrong in 0..7 {
        let (mut sender, mut receiver) = (link(), link());
        let mut taker = Taker::new(8192, 7 * 8192);
        let datagrams: Vec<_> = (0..7)
            .map(|at| datagram(if at == wrong { 99 } else { at }, HEAD + 8192 + TAG))
            .collect();
        exchange(&mut sender, &mut receiver, &mut taker, &datagrams);
        assert!(
            receiver.statistics().calls_in > 1 || taker.scattered == usize::from(wrong),
            "{wrong}"
        );
    }
}

/// Lengths that do not fit, among some that do.
#[test]
fn whatever_comes() {
    let (mut sender, mut receiver) = (link(), link());
    let mut random = Random::new(1);
    let mut random = |below| random.below(below);
    let mut scattered = 0;
    for round in 0..400 {
        let payload = [1, 100, 1366, 8192][random(4)];
        let mut taker = Taker::new(payload, random(80_000) as u64);
        let full = HEAD + payload + TAG;
        let len = match random(4) {
            0 => 1 + random(9000),
            1 => full + random(3) - 1,
            _ => full,
        };
        let count = 1 + random(60_000 / len.max(1000));
        let first = if random(3) == 0 { 1 } else { 0 };
        let mut datagrams: Vec<_> =
            (0..count).map(|number| datagram((number + first) as u8, len)).collect();
        if random(3) == 0 {
            datagrams.push(datagram(count as u8, 1 + random(len)));
        }
        receiver.pool.prediction = PredictionBackoff::default();
        exchange(&mut sender, &mut receiver, &mut taker, &datagrams);
        scattered += taker.scattered;
        assert_eq!(receiver.statistics().truncated, 0, "{round}");
    }
    assert!(scattered > 0);
}

/// A wrong prediction costs a copy, so after some of them few predictions are made.
#[test]
fn predictions_are_rare_after_wrong_ones() {
    let mut backoff = PredictionBackoff::default();
    let mut made = 0;
    for _ in 0..1000 {
        if backoff.allows() {
            made += 1;
            backoff.learn(false);
        }
    }
    assert!((10..40).contains(&made), "{made}");
    while !backoff.allows() {}
    backoff.learn(true);
    assert!((0..100).all(|_| backoff.allows()));
}

#[test]
fn a_guess_that_cannot_be_laid_out_keeps_nothing_from_coming() {
    for (payload, offered) in [(0, 8192), (8192, 8191), (9000, 100)] {
        let (mut sender, mut receiver) = (link(), link());
        let mut taker = Taker::new(payload, offered);
        exchange(&mut sender, &mut receiver, &mut taker, &[datagram(0, 500), datagram(1, 500)]);
        assert_eq!(taker.scattered, 0);
    }
}

/// No bulk is lost for good because of one place (MEM-3.7).
#[test]
fn where_a_place_cannot_be_written_to_few_datagrams_are_lost() {
    let path = std::env::temp_dir().join(format!("oikaze-predicted-{}", std::process::id()));
    let file = nameless_file(&path).unwrap();
    file.set_len(1 << 20).unwrap();
    let mut taker =
        Taker::of(Region::of_file(file.as_fd(), 0, 1 << 20, true).unwrap(), 1366, 2 * 1366);
    file.set_len(0).unwrap();
    let (mut sender, mut receiver) = (link(), link());
    let to = SocketAddr::new(HERE, receiver.properties().bulk_port.unwrap());
    let sent = datagram(0, HEAD + 1366 + TAG);
    for round in 0..100 {
        let one = Outgoing::new(&to, Lane::Bulk, &sent);
        assert_eq!(sender.send(&[one]).unwrap(), 1);
        let deadline = Instant::now() + Duration::from_secs(20);
        while receiver.statistics().datagrams_in + receiver.statistics().truncated == round {
            receiver.receive_into(&mut taker).unwrap();
            assert!(Instant::now() < deadline, "{round}");
        }
    }
    assert!(taker.came.iter().all(|came| *came == sent));
    let lost = receiver.statistics().truncated;
    assert!((1..40).contains(&lost), "{lost}");
}

#[test]
fn it_can_be_switched_off() {
    let without = crate::features::DisabledFeatures::parse("direct-placement").unwrap();
    let mut receiver =
        UdpLink::bind(&Bind { addresses: vec![HERE], without, ..Bind::default() }).unwrap();
    let mut taker = Taker::new(100, 1000);
    exchange(
        &mut link(),
        &mut receiver,
        &mut taker,
        &[datagram(0, HEAD + 100 + TAG), datagram(1, HEAD + 100 + TAG)],
    );
    assert_eq!((taker.scattered, receiver.statistics().in_place), (0, 0));
}
