//! Checks that every link must pass.

use super::{
    DEADLINE, Make, Plan, V4, V6, address_of, carries, carries_by, port_of, send_all, take,
    wait_readable,
};
use crate::net::{Arrival, Link, Outgoing, ReceiveEach, Sink, datagram_max_to, local_addresses};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::random::Random;
use oikaze_protocol::wire::Lane;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

/// Bytes of bulk that one poll may take: four buffers, and the rest of the last datagram.
const AHEAD_MAX: usize = (4 + 1) * (64 << 10);

fn pair(make: Make<'_>, ip: IpAddr) -> (Box<dyn Link>, Vec<Box<dyn Link>>) {
    (make(ip), vec![make(ip)])
}

/// Sends datagrams of all sizes, from empty ones to the largest.
pub fn all_sizes(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let max = datagram_max_to(address_of(&*receivers[0], V4));
    let plan = [0, 1, 2, 24, 1232, 1366 + 44, 1472, 4096, 8192 + 44, 9000, 30_000, max];
    let plan = plan
        .into_iter()
        .filter(|len| *len <= max)
        .map(|len| (0, [len.min(24), len.saturating_sub(40), len.clamp(24, 40) - 24]));
    carries(&mut *sender, &mut receivers, V4, &plan.collect());
}

/// Sends runs of equal datagrams that end with shorter ones.
pub fn runs_and_odd_tails(make: Make<'_>) {
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

/// Sends datagrams that become longer, and then shorter.
pub fn growing_and_shrinking(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let up = (1..80).map(|len| (0, [24, len * 17, 4]));
    let down = (1..80).rev().map(|len| (0, [24, len * 17, 4]));
    carries(&mut *sender, &mut receivers, V4, &up.chain(down).collect());
}

/// Sends to several peers in turn, in blocks and in no order.
pub fn several_peers(make: Make<'_>) {
    let mut sender = make(V4);
    let mut receivers: Vec<Box<dyn Link>> = (0..4).map(|_| make(V4)).collect();
    let mut plan: Plan = (0..100).map(|number| (number % 4, [24, 800, 4])).collect();
    plan.extend((0..100).map(|number| (number / 25, [24, 800, 4])));
    plan.extend((0..100).map(|number| (number * number % 4, [24, number * 13 % 300, 4])));
    carries(&mut *sender, &mut receivers, V4, &plan);
}

/// Sends arbitrary plans: mostly runs, as in bulk transfers, with anything in between.
pub fn anything(make: Make<'_>) {
    let mut sender = make(V4);
    let mut receivers: Vec<Box<dyn Link>> = (0..3).map(|_| make(V4)).collect();
    let max = datagram_max_to(address_of(&*receivers[0], V4)).min(9000) - 100;
    let mut random = Random::new(1);
    let mut random = |below| random.below(below);
    let mut plan = Plan::new();
    while plan.len() < 600 {
        let (to, lens) = (random(3), [random(60), random(max) >> random(8), random(17)]);
        let count = if random(2) == 0 { 1 } else { 1 + random(90) };
        plan.extend(vec![(to, lens); count]);
    }
    carries(&mut *sender, &mut receivers, V4, &plan);
}

/// Sends from each of two links to the other.
pub fn both_directions(make: Make<'_>) {
    let (mut one, mut two) = (make(V4), vec![make(V4)]);
    let plan: Plan = (0..20).map(|number| (0, [24, number * 50, 4])).collect();
    carries(&mut *one, &mut two, V4, &plan);
    let (mut one, mut two) = (two.pop().unwrap(), vec![one]);
    carries(&mut *one, &mut two, V4, &plan);
}

/// Sends by IPv6, where this machine has it.
pub fn ipv6(make: Make<'_>) {
    if local_addresses().unwrap().iter().all(|local| local.address.ip() != V6) {
        return crate::testing::skipped("no IPv6 here");
    }
    let (mut sender, mut receivers) = pair(make, V6);
    let mut plan = vec![(0, [24, 1200, 4]); 70];
    plan.extend([(0, [24, 0, 0]), (0, [0, 0, 0]), (0, [24, 9000, 4])]);
    carries(&mut *sender, &mut receivers, V6, &plan);
}

/// Runs of whole pages in both lanes.
pub(crate) fn page_plan() -> Plan {
    let runs = [(7, 2 * PAGE), (1, PAGE), (5, PAGE), (1, 100), (3, 2 * PAGE)];
    let plan = runs.into_iter().flat_map(|(count, len)| vec![(0, [40, len, 4]); count]);
    plan.cycle().take(1500).collect()
}

/// Sends runs of whole pages in both lanes.
pub fn whole_pages(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    carries(&mut *sender, &mut receivers, V4, &page_plan());
}

/// A sink that keeps the last datagram, and accepts it as a peer's.
#[derive(Default)]
struct FromPeer(Option<(SocketAddr, Vec<u8>)>);

impl Sink for FromPeer {
    fn take(&mut self, arrival: Arrival<'_>) {
        self.0 = Some((arrival.from, arrival.bytes.to_vec()));
    }

    fn was_a_peers(&self) -> bool {
        true
    }
}

/// Sends small datagrams to and fro, between links that know each other and never sleep.
pub(crate) fn exchange<'l>(one: &mut (dyn Link + 'l), other: &mut (dyn Link + 'l), ip: IpAddr) {
    let ends = [&*one, &*other].map(|link| address_of(link, ip));
    for number in 0..400_usize {
        for to_other in [true, false] {
            let (from, to) =
                if to_other { (&mut *one, &mut *other) } else { (&mut *other, &mut *one) };
            let [source, target] = if to_other { ends } else { [ends[1], ends[0]] };
            let body = vec![number as u8 | 1; 8 + number * 7 % 1500];
            send_all(from, &[Outgoing::new(&target, Lane::Small, &body)]);
            let (mut sink, deadline) = (FromPeer::default(), Instant::now() + DEADLINE);
            while sink.0.is_none() {
                assert!(Instant::now() < deadline, "{number} never came");
                if to.receive_into(&mut sink).unwrap() == 0 {
                    to.receive_again(&mut sink).unwrap();
                }
            }
            assert_eq!(sink.0, Some((source, body)));
        }
    }
}

/// Sends small datagrams to and fro, one at a time.
pub fn back_and_forth(make: Make<'_>) {
    exchange(&mut *make(V4), &mut *make(V4), V4);
}

/// A link to which nobody has sent receives nothing.
pub fn nothing_comes_from_nothing(make: Make<'_>) {
    let mut link = make(V4);
    assert_eq!(link.send(&[]).unwrap(), 0);
    assert_eq!(link.receive(&mut |_| panic!("nobody sent anything")).unwrap(), 0);
    assert!(!wait_readable(&mut *link, Instant::now()));
    assert_eq!(link.next_wakeup(), None);
    assert_eq!(link.poll_too_big(), None);
}

/// A datagram that cannot be sent does not drop any other.
pub fn too_big_is_told_and_the_rest_goes(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let to = address_of(&*receivers[0], V4);
    let bytes = vec![9; datagram_max_to(to) + 1];
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
pub fn a_dead_peer_disturbs_nobody(make: Make<'_>) {
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

/// Datagrams, bytes and calls are counted.
pub fn counts_what_it_carries(make: Make<'_>) {
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
    assert!(sender.properties().receive_room(1000) > sender.properties().receive_room(100));
}

/// Each local address has a port and an MTU.
pub fn says_where_it_is(make: Make<'_>) {
    let link = make(V4);
    let all = link.local_addresses().unwrap();
    assert!(all.iter().all(|local| local.address.port() != 0 && local.mtu > 0));
    assert!(datagram_max_to(address_of(&*link, V4)) <= link.properties().datagram_max);
}

/// Small datagrams are received before bulk that was sent earlier, whether or not bulk is being
/// received already. A link whose server receives ahead may have one poll of bulk before them,
/// which the server took before the small datagram was sent.
pub fn small_passes_bulk(make: Make<'_>) {
    let (mut sender, mut receivers) = pair(make, V4);
    let Some(receiver) = receivers.first_mut() else { return };
    if receiver.properties().bulk_port.is_none() {
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
            let mut look = |arrival: Arrival<'_>| match arrival.bytes.len() {
                5 => came = true,
                len => before += if came { 0 } else { len },
            };
            receiver.receive(&mut look).unwrap();
        }
        most = most.max(before);
        // A part of the bulk stays in the buffer, and the next round adds more.
    }
    assert!(most <= AHEAD_MAX, "{most} bytes were received first");
}

/// No port stays in use after its link is dropped.
pub fn leaves_its_ports(make: Make<'_>) {
    let link = make(V4);
    let ports = Lane::BOTH.map(|lane| port_of(&*link, V4, lane));
    assert!(ports.iter().all(|port| std::net::UdpSocket::bind(port).is_err()));
    drop(link);
    assert!(ports.iter().all(|port| std::net::UdpSocket::bind(port).is_ok()));
}
