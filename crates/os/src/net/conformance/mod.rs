//! Conformance checks that every link must pass, whatever carries its datagrams. The macro
//! [`test_links`](crate::test_links) makes a test of each check.
//!
//! A new link of this crate is added in `links.rs`, as one line. A crate that has a link of its own
//! calls the macro in its tests. Links may lose datagrams in general, but not here: over loopback
//! and with few bytes in flight nothing is dropped.

// A check fails by a panic, as a test does.
#![allow(clippy::unwrap_used, clippy::panic)]

pub mod checks;
#[cfg(test)]
mod links;

use super::{Link, Outgoing, ReceiveEach};
use crate::memory::{Gather, Region, RegionTable};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::wind::{Segment, SendMode};
use oikaze_protocol::wire::Lane;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Maximum time that a datagram may take. Only a failing test waits so long.
const DEADLINE: Duration = Duration::from_secs(20);
/// Datagrams in flight at a time, which fit into the smallest usual receive buffer.
const DATAGRAMS_ON_THE_WAY: usize = 70;
const BYTES_ON_THE_WAY: usize = 70_000;

/// Makes a module of tests for each named link, with one test for each
/// [check](crate::net::conformance::checks). A link is an expression of the type
/// [`Make`](crate::net::conformance::Make).
#[macro_export]
macro_rules! test_links {
    ($($link:ident: $make:expr;)*) => { $(
        mod $link {
            $crate::test_links!(@tests $make; all_sizes runs_and_odd_tails growing_and_shrinking several_peers anything both_directions ipv6 whole_pages back_and_forth
                nothing_comes_from_nothing too_big_is_told_and_the_rest_goes a_dead_peer_disturbs_nobody counts_what_it_carries
                says_where_it_is small_passes_bulk leaves_its_ports);
        }
    )* };
    (@tests $make:expr; $($test:ident)*) => { $(
        #[test]
        fn $test() {
            use super::*;
            $crate::net::conformance::checks::$test(&$make);
        }
    )* };
}

/// Makes a link for an address of this machine.
pub type Make<'a> = &'a dyn Fn(IpAddr) -> Box<dyn Link>;

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
pub(crate) fn port_of(link: &dyn Link, ip: IpAddr, lane: Lane) -> SocketAddr {
    let small = address_of(link, ip);
    link.properties()
        .bulk_port
        .filter(|_| lane == Lane::Bulk)
        .map_or(small, |port| SocketAddr::new(ip, port))
}

fn wait_readable(link: &mut dyn Link, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    link.watch(true).unwrap();
    let fd = link.properties().fd.unwrap();
    let readable = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&left)).unwrap() > 0;
    link.watch(false).unwrap();
    readable
}

/// Takes `count` datagrams.
pub(crate) fn take(link: &mut dyn Link, count: usize) -> Vec<(SocketAddr, Vec<u8>)> {
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
pub(crate) type Plan = Vec<(usize, [usize; 3])>;

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
                to: &to[*receiver],
                lane,
                flow: 0,
                mode: SendMode::Any,
                head,
                payload: gather,
                tag,
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
    // Whole pages may be sent without a copy.
    let offset = if payload.is_multiple_of(PAGE) { 0 } else { 5 };
    region.write(offset, &bytes[*head..head + payload]).unwrap();
    let mut table = RegionTable::new();
    let region = table.insert_local(region).unwrap();
    table.gather(&Segment { region, offset, len: *payload as u64 }).unwrap()
}

/// Moves this thread into a new network namespace with a loopback interface of `mtu` bytes. Returns
/// `false` if that is not permitted.
#[cfg(test)]
pub(super) fn narrow_namespace(mtu: libc::c_int) -> bool {
    // SAFETY: concerns this thread alone, which ends with the test.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return false;
    }
    // SAFETY: plain system calls; `request` is plain data for which zeros are valid, and is named
    // and large enough.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let mut request: libc::ifreq = core::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_mtu = mtu;
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFMTU, &raw mut request), 0);
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        assert_eq!(libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw mut request), 0);
        libc::close(socket);
    }
    true
}
