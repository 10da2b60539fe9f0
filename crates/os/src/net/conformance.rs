//! Conformance tests that every link must pass, whatever carries its datagrams. A new link is added
//! at the end, as one line.
//!
//! Links may lose datagrams in general, but not here: over loopback and with few bytes in flight
//! nothing is dropped.

use super::{Bind, Fault, FaultSettings, Link, Outgoing, Pcapng, Tap, Trace, UdpLink};
use crate::features::Without;
use crate::memory::{Gather, Region, RegionTable};
use oikaze_protocol::wind::Segment;
use oikaze_protocol::wire::Lane;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Maximum time that a datagram may take. Only a failing test waits so long.
const DEADLINE: Duration = Duration::from_secs(20);
/// Datagrams in flight at a time, which fit into the smallest usual receive buffer.
const DATAGRAMS_ON_THE_WAY: usize = 70;
const BYTES_ON_THE_WAY: usize = 70_000;

/// Makes a link for an address of this machine.
type Make<'a> = &'a dyn Fn(IpAddr) -> Box<dyn Link>;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Bytes that differ from datagram to datagram and from place to place.
fn pattern(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ number.wrapping_mul(167)) as u8).collect()
}

/// Address at which a link is reached.
fn address_of(link: &dyn Link, ip: IpAddr) -> SocketAddr {
    let all = link.local_addresses().unwrap();
    all.iter().map(|local| local.address).find(|address| address.ip() == ip).unwrap()
}

/// Address at which a link is reached, and from which it sends, in this lane.
pub(super) fn port_of(link: &dyn Link, ip: IpAddr, lane: Lane) -> SocketAddr {
    let small = address_of(link, ip);
    link.bulk_port().filter(|_| lane == Lane::Bulk).map_or(small, |port| SocketAddr::new(ip, port))
}

fn wait_readable(link: &mut dyn Link, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    link.watch(true).unwrap();
    let fd = link.fd().unwrap();
    let readable = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)).unwrap() > 0;
    link.watch(false).unwrap();
    readable
}

/// Takes `count` datagrams.
pub(super) fn take(link: &mut dyn Link, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
    let deadline = Instant::now() + DEADLINE;
    let mut taken = Vec::new();
    while taken.len() < count {
        assert!(wait_readable(link, deadline), "{} of {count} datagrams came", taken.len());
        let before = taken.len();
        let told = link
            .receive(&mut |arrival| taken.push((arrival.from, arrival.bytes.to_vec())))
            .unwrap();
        assert_eq!(told, taken.len() - before, "what receive says is what it hands over");
    }
    assert_eq!(taken.len(), count);
    taken
}

/// Sends the whole batch, however many calls that takes.
fn send_all(link: &mut dyn Link, mut batch: &[Outgoing<'_>]) {
    let deadline = Instant::now() + DEADLINE;
    while !batch.is_empty() {
        let gone = link.send(batch).unwrap();
        batch = &batch[gone..];
        assert!(Instant::now() < deadline, "{} datagrams never went", batch.len());
        if gone == 0 {
            std::thread::yield_now();
        }
    }
}

/// Datagrams to be sent: index of the receiver, and lengths of head, payload and tag.
type Plan = Vec<(usize, [usize; 3])>;

/// Sends a plan's datagrams in each lane. Checks that each receiver gets its own, whole, each once,
/// from the right address.
fn carries(sender: &mut dyn Link, receivers: &mut [Box<dyn Link>], ip: IpAddr, plan: &Plan) {
    carries_by(Lane::Small, sender, receivers, ip, plan);
    carries_by(Lane::Bulk, sender, receivers, ip, plan);
}

fn carries_by(
    lane: Lane,
    sender: &mut dyn Link,
    receivers: &mut [Box<dyn Link>],
    ip: IpAddr,
    plan: &Plan,
) {
    let from = port_of(sender, ip, lane);
    let to: Vec<SocketAddr> =
        receivers.iter().map(|receiver| port_of(&**receiver, ip, lane)).collect();
    let mut rest: &[(usize, [usize; 3])] = plan;
    let mut number = 0;
    while !rest.is_empty() {
        let mut bytes = 0;
        let fits = |(_, [head, payload, tag]): &&(usize, [usize; 3])| {
            bytes += head + payload + tag;
            bytes <= BYTES_ON_THE_WAY
        };
        let (part, later) =
            rest.split_at(rest.iter().take(DATAGRAMS_ON_THE_WAY).take_while(fits).count().max(1));
        rest = later;
        // Head, payload and tag are pieces of one pattern; payloads lie in a region of their own.
        let whole: Vec<Vec<u8>> = part
            .iter()
            .enumerate()
            .map(|(at, (_, lens))| pattern(number + at, lens.iter().sum()))
            .collect();
        number += part.len();
        let payloads: Vec<Gather> =
            part.iter().zip(&whole).map(|((_, lens), bytes)| in_region(bytes, lens)).collect();
        let mut batch = Vec::new();
        for (((receiver, [head, payload, _]), bytes), gather) in
            part.iter().zip(&whole).zip(&payloads)
        {
            let (head, tag) = (&bytes[..*head], &bytes[head + payload..]);
            batch.push(Outgoing {
                payload: gather,
                tag,
                ..Outgoing::new(&to[*receiver], lane, head)
            });
        }
        send_all(sender, &batch);
        for (index, receiver) in receivers.iter_mut().enumerate() {
            let mut want: Vec<&Vec<u8>> = part
                .iter()
                .zip(&whole)
                .filter(|((to, _), _)| *to == index)
                .map(|(_, bytes)| bytes)
                .collect();
            let mut got = take(&mut **receiver, want.len());
            assert!(got.iter().all(|(who, _)| *who == from), "every datagram says who sent it");
            got.sort();
            want.sort();
            assert!(got.iter().map(|(_, bytes)| bytes).eq(want), "every datagram came whole");
        }
    }
}

fn in_region(bytes: &[u8], [head, payload, _]: &[usize; 3]) -> Gather {
    if *payload == 0 {
        return Gather::EMPTY;
    }
    let region = Region::private(*payload + 8).unwrap();
    region.write(5, &bytes[*head..head + payload]).unwrap();
    let mut table = RegionTable::new();
    let region = table.insert_local(region).unwrap();
    table.gather(&Segment { region, offset: 5, len: *payload as u64 }).unwrap()
}

fn pair(make: Make<'_>, ip: IpAddr) -> (Box<dyn Link>, Vec<Box<dyn Link>>) {
    (make(ip), vec![make(ip)])
}

fn all_sizes(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let max = sender.datagram_max_to(address_of(&*receivers[0], V4)).min(sender.datagram_max());
    let plan = [0, 1, 2, 24, 1232, 1366 + 44, 1472, 4096, 8192 + 44, 9000, 30_000, max];
    let plan = plan
        .into_iter()
        .filter(|len| *len <= max)
        .map(|len| (0, [len.min(24), len.saturating_sub(40), len.clamp(24, 40) - 24]));
    carries(&mut *sender, &mut receivers, V4, &plan.collect());
}

fn runs_and_odd_tails(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let mut plan = Plan::new();
    for (count, len) in
        [(1, 1000), (2, 1000), (64, 1000), (65, 1000), (130, 500), (7, 8192), (200, 1)]
    {
        plan.extend(vec![(0, [40, len, 4]); count]);
        plan.push((0, [40, len / 2, 4]));
        plan.push((0, [40, 0, 0]));
        plan.push((0, [0, 0, 0]));
    }
    carries(&mut *sender, &mut receivers, V4, &plan);
}

fn growing_and_shrinking(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let up = (1..80).map(|len| (0, [24, len * 17, 4]));
    let down = (1..80).rev().map(|len| (0, [24, len * 17, 4]));
    carries(&mut *sender, &mut receivers, V4, &up.chain(down).collect());
}

fn several_peers(make: Make<'_>) {
    let mut sender = make(V4);
    let mut receivers: Vec<Box<dyn Link>> = (0..4).map(|_| make(V4)).collect();
    let mut plan: Plan = (0..100).map(|number| (number % 4, [24, 800, 4])).collect();
    plan.extend((0..100).map(|number| (number / 25, [24, 800, 4])));
    plan.extend((0..100).map(|number| (number * number % 4, [24, number * 13 % 300, 4])));
    carries(&mut *sender, &mut receivers, V4, &plan);
}

/// Sends arbitrary plans: mostly runs, as in bulk transfers, with anything in between.
fn anything(make: Make<'_>) {
    let mut sender = make(V4);
    let mut receivers: Vec<Box<dyn Link>> = (0..3).map(|_| make(V4)).collect();
    let max = sender.datagram_max_to(address_of(&*receivers[0], V4)).min(9000) - 100;
    let mut state = 1_u64;
    let mut random = move |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut plan = Plan::new();
    while plan.len() < 600 {
        let (to, lens) = (random(3), [random(60), random(max) >> random(8), random(17)]);
        let count = if random(2) == 0 { 1 } else { 1 + random(90) };
        plan.extend(vec![(to, lens); count]);
    }
    carries(&mut *sender, &mut receivers, V4, &plan);
}

fn both_directions(make: Make<'_>) {
    let (mut one, mut two) = (make(V4), vec![make(V4)]);
    let plan: Plan = (0..20).map(|number| (0, [24, number * 50, 4])).collect();
    carries(&mut *one, &mut two, V4, &plan);
    let (mut one, mut two) = (two.pop().unwrap(), vec![one]);
    carries(&mut *one, &mut two, V4, &plan);
}

fn ipv6(make: Make<'_>) {
    if super::local_addresses().unwrap().iter().all(|local| local.address.ip() != V6) {
        return crate::testing::skipped("no IPv6 here");
    }
    let (mut sender, mut receivers) = pair(make, V6);
    let mut plan = vec![(0, [24, 1200, 4]); 70];
    plan.extend([(0, [24, 0, 0]), (0, [0, 0, 0]), (0, [24, 9000, 4])]);
    carries(&mut *sender, &mut receivers, V6, &plan);
}

fn nothing_comes_from_nothing(make: Make<'_>) {
    let mut link = make(V4);
    assert_eq!(link.send(&[]).unwrap(), 0);
    assert_eq!(link.receive(&mut |_| panic!("nobody sent anything")).unwrap(), 0);
    assert!(!wait_readable(&mut *link, Instant::now()));
    assert_eq!(link.next_wakeup(), None);
    assert_eq!(link.poll_too_big(), None);
}

/// A datagram that cannot be sent does not drop any other.
fn too_big_is_told_and_the_rest_goes(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let to = address_of(&*receivers[0], V4);
    let bytes = vec![9; sender.datagram_max_to(to) + 1];
    let outgoing = |len: usize| Outgoing::new(&to, Lane::Small, &bytes[..len]);
    send_all(
        &mut *sender,
        &[
            outgoing(100),
            outgoing(bytes.len()),
            outgoing(bytes.len()),
            outgoing(200),
            outgoing(200),
        ],
    );
    let got: Vec<usize> =
        take(&mut *receivers[0], 3).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(got, [100, 200, 200]);
    let told = sender.poll_too_big().unwrap();
    assert_eq!((told.to, told.tried), (to, bytes.len()));
    assert!(told.fits < told.tried && told.fits > 0, "{told:?}");
    assert_eq!(sender.poll_too_big(), None);
    assert_eq!(sender.statistics().too_big, 2);
}

/// A peer that is gone, or of a family without a local address, does not disturb the others.
fn a_dead_peer_disturbs_nobody(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    // The kernel gives this port to no link, including those of concurrent tests.
    let nobody = SocketAddr::new(V4, 1);
    let to = address_of(&*receivers[0], V4);
    let other_family = SocketAddr::new(V6, to.port());
    for _ in 0..3 {
        let send = [nobody, other_family, nobody, to, nobody, other_family, to];
        let batch = send
            .each_ref()
            .map(|to| Outgoing { tag: b"!", ..Outgoing::new(to, Lane::Small, b"hello") });
        send_all(&mut *sender, &batch);
        assert!(take(&mut *receivers[0], 2).iter().all(|(_, bytes)| bytes == b"hello!"));
        assert_eq!(sender.receive(&mut |_| panic!("nobody answered")).unwrap(), 0);
    }
    assert!(sender.statistics().unreachable >= 6);
}

fn counts_what_it_carries(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let plan: Plan = (0..50).map(|number| (0, [24, 100 * (number % 3), 4])).collect();
    let bytes: usize = plan.iter().map(|(_, lens)| lens.iter().sum::<usize>()).sum();
    carries_by(Lane::Small, &mut *sender, &mut receivers, V4, &plan[..25].to_vec());
    carries_by(Lane::Bulk, &mut *sender, &mut receivers, V4, &plan[25..].to_vec());
    let (out, into) = (sender.statistics(), receivers[0].statistics());
    assert_eq!((out.datagrams_out, out.bytes_out), (50, bytes as u64));
    assert_eq!((into.datagrams_in, into.bytes_in), (50, bytes as u64));
    assert!((1..=50).contains(&out.calls_out) && (1..=50).contains(&into.calls_in));
    assert_eq!((into.overflowed, into.truncated, out.unreachable, out.too_big), (0, 0, 0, 0));
    assert!(sender.receive_buffer(1000) > sender.receive_buffer(100));
}

fn says_where_it_is(make: Make<'_>) {
    let link = make(V4);
    let all = link.local_addresses().unwrap();
    assert!(all.iter().all(|local| local.address.port() != 0 && local.mtu > 0));
    assert!(link.datagram_max_to(address_of(&*link, V4)) <= link.datagram_max());
}

/// Small datagrams are received before bulk that was sent earlier, whether or not bulk is being
/// received already.
fn small_passes_bulk(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let Some(receiver) = receivers.first_mut() else { return };
    if receiver.bulk_port().is_none() {
        return;
    }
    let bytes = vec![7; 60_000];
    let (small, bulk) =
        (port_of(&**receiver, V4, Lane::Small), port_of(&**receiver, V4, Lane::Bulk));
    let mut most = 0;
    for _ in 0..3 {
        let big = Outgoing::new(&bulk, Lane::Bulk, &bytes);
        // Bulk that does not fit into the buffer is lost; the buffer is full before the small
        // datagram all the same.
        (0..70).for_each(|_| send_all(&mut *sender, std::slice::from_ref(&big)));
        send_all(&mut *sender, &[Outgoing::new(&small, Lane::Small, b"small")]);
        let (mut before, mut came) = (0, false);
        let deadline = Instant::now() + DEADLINE;
        while !came {
            assert!(wait_readable(&mut **receiver, deadline), "the small one never came");
            let mut look = |arrival: super::Arrival<'_>| match arrival.bytes.len() {
                5 => came = true,
                len => before += if came { 0 } else { len },
            };
            receiver.receive(&mut look).unwrap();
        }
        most = most.max(before);
        // A part of the bulk stays in the buffer, and the next round adds more.
    }
    assert!(most <= 64 << 10, "{most} bytes were received first");
}

/// No port stays in use after its link is dropped.
fn leaves_its_ports(make: Make<'_>) {
    let link = make(V4);
    let ports = Lane::BOTH.map(|lane| port_of(&*link, V4, lane));
    assert!(ports.iter().all(|port| std::net::UdpSocket::bind(port).is_err()));
    drop(link);
    assert!(ports.iter().all(|port| std::net::UdpSocket::bind(port).is_ok()));
}

macro_rules! conformance {
    ($($link:ident: $make:expr;)*) => { $(
        mod $link {
            conformance!(@tests $make; all_sizes runs_and_odd_tails growing_and_shrinking several_peers anything both_directions ipv6
                nothing_comes_from_nothing too_big_is_told_and_the_rest_goes a_dead_peer_disturbs_nobody counts_what_it_carries
                says_where_it_is small_passes_bulk leaves_its_ports);
        }
    )* };
    (@tests $make:expr; $($test:ident)*) => { $(
        #[test]
        fn $test() {
            use super::*;
            super::$test(&$make);
        }
    )* };
}

fn udp(ip: IpAddr, without: &str) -> UdpLink {
    let without = Without::parse(without).unwrap();
    UdpLink::bind(&Bind { addresses: vec![ip], without, ..Bind::default() }).unwrap()
}

fn tapped(ip: IpAddr) -> Tap<UdpLink> {
    let mut tap = Tap::new(udp(ip, ""));
    tap.record(
        "capture".into(),
        Box::new(Pcapng::new("test")),
        Box::new(std::io::sink()),
        u64::MAX,
    )
    .unwrap();
    tap.record("trace".into(), Box::<Trace>::default(), Box::new(std::io::sink()), u64::MAX)
        .unwrap();
    tap
}

fn everywhere() -> UdpLink {
    UdpLink::bind(&Bind::default()).unwrap()
}

conformance! {
    udp_by_address: |ip| Box::new(udp(ip, "")) as Box<dyn Link>;
    udp_without_gso: |ip| Box::new(udp(ip, "gso")) as Box<dyn Link>;
    udp_without_gro: |ip| Box::new(udp(ip, "gro")) as Box<dyn Link>;
    udp_without_lanes: |ip| Box::new(udp(ip, "lanes")) as Box<dyn Link>;
    udp_without_both: |ip| Box::new(udp(ip, "gso,gro")) as Box<dyn Link>;
    tap: |ip| Box::new(tapped(ip)) as Box<dyn Link>;
    fault_without_faults: |ip| Box::new(Fault::new(udp(ip, ""), FaultSettings::default())) as Box<dyn Link>;
}

/// A link bound to the wildcard reaches both families. An answer from its loopback address comes
/// from there.
#[test]
fn a_wildcard_link_carries_both_families() {
    let (mut sender, mut receivers) = (everywhere(), vec![Box::new(everywhere()) as Box<dyn Link>]);
    let plan: Plan = (0..40).map(|number| (0, [24, number, 4])).collect();
    carries(&mut sender, &mut receivers, V4, &plan);
    if sender.bound().iter().any(SocketAddr::is_ipv6)
        && super::local_addresses().unwrap().iter().any(|local| local.address.ip() == V6)
    {
        carries(&mut sender, &mut receivers, V6, &plan);
    }
}
