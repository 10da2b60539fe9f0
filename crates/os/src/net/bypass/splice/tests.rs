use super::*;
use crate::features::DisabledFeatures;
use crate::memory::mapping::Mapping;
use crate::memory::{Gather, Region, RegionTable};
use crate::net::conformance::take;
use crate::net::udp::UdpLink;
use crate::net::{Bind, Link, Offload};
use crate::testing::skipped;
use oikaze_protocol::wind::Segment;
use oikaze_protocol::wire::Lane;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

const PAGE: usize = oikaze_protocol::limits::PAGE;
/// Payload bytes of a datagram at MTU 9000.
const PAYLOAD: usize = 2 * PAGE;
/// Number of datagrams that a turn hands over.
const RUN: usize = 14;

/// Memory for one batch, and its payloads, which begin at `offset`.
pub(in crate::net) fn payloads(offset: u64) -> (Region, Vec<Gather>) {
    let region = Region::private(RUN * PAYLOAD + PAGE).unwrap();
    let mut table = RegionTable::new();
    let slot = table.insert_local(region.clone()).unwrap();
    let one =
        |at| Segment { region: slot, offset: offset + (at * PAYLOAD) as u64, len: PAYLOAD as u64 };
    (region, (0..RUN).map(|at| table.gather(&one(at)).unwrap()).collect())
}

/// Fills all payloads of a batch with the batch's byte.
pub(in crate::net) fn fill(region: &Region, batch: u32) {
    region.fill(0, region.len() as u64, batch as u8 | 1).unwrap();
}

/// Heads and tags of a batch's payloads.
pub(in crate::net) fn ends(batch: u32) -> Vec<([u8; 40], [u8; 4])> {
    let head = |at| std::array::from_fn(|byte| (batch * 31 + at * 7 + byte as u32) as u8);
    (0..RUN as u32).map(|at| (head(at), (batch ^ at << 24).to_le_bytes())).collect()
}

pub(in crate::net) fn outgoing<'a>(
    to: &'a SocketAddr,
    ends: &'a [([u8; 40], [u8; 4])],
    payloads: &'a [Gather],
) -> Vec<Outgoing<'a>> {
    let one = |((head, tag), payload): (&'a ([u8; 40], [u8; 4]), &'a Gather)| Outgoing {
        payload,
        tag,
        ..Outgoing::new(to, Lane::Bulk, head)
    };
    ends.iter().zip(payloads).map(one).collect()
}

/// Datagrams of a batch as they should arrive.
pub(in crate::net) fn whole(batch: u32) -> Vec<Vec<u8>> {
    let one =
        |(head, tag): ([u8; 40], [u8; 4])| [&head[..], &[batch as u8 | 1; PAYLOAD], &tag].concat();
    ends(batch).into_iter().map(one).collect()
}

fn links(without: &str) -> (Splice<UdpLink>, UdpLink, SocketAddr) {
    let bind = |without| Bind {
        addresses: vec![Ipv4Addr::LOCALHOST.into()],
        without: DisabledFeatures::parse(without).unwrap(),
        ..Bind::default()
    };
    let plain = |without| UdpLink::bind(&bind(without)).unwrap();
    let (from, to) = (Splice::open(plain(without), &bind(without)), plain(""));
    let at = (Ipv4Addr::LOCALHOST, to.properties().bulk_port.unwrap()).into();
    (from, to, at)
}

/// Returns `None` if the kernel cannot splice, and reports that the test is skipped.
pub(in crate::net) fn splicing() -> Option<()> {
    let report = |why| skipped(&format!("nothing is spliced here (Linux 6.5): {why}"));
    SplicePipe::open().map(drop).map_err(report).ok()
}

/// Sends and receives `batches` batches, and returns how many datagrams were spliced.
fn exchange(batches: u32, without: &str, offset: u64) -> u64 {
    let (mut from, mut to, at) = links(without);
    let (region, payloads) = payloads(offset);
    for batch in 0..batches {
        fill(&region, batch);
        let ends = ends(batch);
        assert_eq!(from.send(&outgoing(&at, &ends, &payloads)).unwrap(), RUN);
        let came: Vec<_> = take(&mut to, RUN).into_iter().map(|(_, bytes)| bytes).collect();
        assert!(came == whole(batch), "batch {batch}");
    }
    from.statistics().spliced
}

/// Sends enough batches to replace the pages for heads several times.
#[test]
fn whole_pages_are_spliced_and_arrive_as_they_are() {
    let Some(()) = splicing() else { return };
    let heads = 3 * pipe::HEADS_BYTES / (RUN * 44);
    let spliced = exchange(heads as u32, "", 0);
    // Except for those before the peer earned a socket.
    assert!(spliced > (heads - 100) as u64 * RUN as u64, "{spliced} of {heads} batches");
}

/// Memory with payloads of other lengths, none of which is whole pages.
#[test]
fn only_whole_pages_are_spliced() {
    assert_eq!(exchange(200, "", 64), 0);
    for (offset, len) in [(0, PAGE - 64), (0, PAGE + 64), (PAGE as u64 - 64, PAGE)] {
        let (mut from, mut to, at) = links("");
        let region = Region::private(2 * PAGE).unwrap();
        let mut table = RegionTable::new();
        let region = table.insert_local(region).unwrap();
        let payload = table.gather(&Segment { region, offset, len: len as u64 }).unwrap();
        let one = || Outgoing {
            payload: &payload,
            tag: b"tag",
            ..Outgoing::new(&at, Lane::Bulk, b"head")
        };
        for _ in 0..200 {
            assert_eq!(from.send(&[one(), one(), one(), one(), one()]).unwrap(), 5);
            assert!(take(&mut to, 5).into_iter().all(|(_, bytes)| bytes.len() == len + 7));
        }
        assert_eq!(from.statistics().spliced, 0, "{len} bytes at {offset}");
    }
}

/// Sends runs of five payloads, filled with another byte each time, and returns how many datagrams
/// were spliced.
fn runs_of(region: Region, len: usize) -> u64 {
    let (mut from, mut to, at) = links("");
    let mut table = RegionTable::new();
    let slot = table.insert_local(region.clone()).unwrap();
    let gather = |at: usize| {
        table.gather(&Segment { region: slot, offset: (at * len) as u64, len: len as u64 }).unwrap()
    };
    let payloads: Vec<_> = (0..5).map(gather).collect();
    for batch in 0..200_u8 {
        region.fill(0, region.len() as u64, batch).unwrap();
        let one =
            |payload| Outgoing { payload, tag: b"tag", ..Outgoing::new(&at, Lane::Bulk, b"head") };
        let run: Vec<_> = payloads.iter().map(one).collect();
        assert_eq!(from.send(&run).unwrap(), 5);
        let want = [b"head", &vec![batch; len][..], b"tag"].concat();
        assert!(take(&mut to, 5).into_iter().all(|(_, bytes)| bytes == want), "batch {batch}");
    }
    from.statistics().spliced
}

/// WIND-5.5: the end of a scope has to end all reads of what it lent, and a shared array's pages
/// are written at any time.
#[test]
fn what_is_lent_and_what_is_shared_by_an_array_is_copied() {
    let Some(()) = splicing() else { return };
    for len in [PAGE, PAYLOAD] {
        assert!(runs_of(Region::private(5 * len).unwrap(), len) > 0);
        let array = Arc::new(Mapping::anonymous(5 * len).unwrap());
        // SAFETY: all bytes of the mapping, which the region keeps.
        let alias = unsafe { Region::from_alias(array.clone(), array.base(), 5 * len) };
        assert_eq!(runs_of(alias, len), 0, "an array's pages of {len} bytes");
        let mut memory = vec![0_u8; 6 * len];
        let begin = memory.as_ptr().align_offset(PAGE);
        let pages = &mut memory[begin..begin + 5 * len];
        assert_eq!(
            crate::memory::scope(|scope| runs_of(scope.borrow_mut(pages), len)),
            0,
            "{len} bytes that were lent"
        );
    }
}

#[test]
fn what_is_switched_off_is_copied() {
    for off in ["splice", "connect", "gso"] {
        assert_eq!(exchange(200, off, 0), 0, "{off}");
        assert_eq!(links(off).0.statistics().splice, Offload::Off);
    }
}

/// Like a probe of the path's size: the socket must not cut it, although it is longer than the
/// segments of earlier runs.
#[test]
fn a_long_datagram_behind_spliced_ones_stays_whole() {
    let Some(()) = splicing() else { return };
    let (mut from, mut to, at) = links("");
    let (_region, payloads) = payloads(0);
    let (ends, long) = (ends(0), [7; 20_000]);
    for _ in 0..100 {
        assert_eq!(from.send(&outgoing(&at, &ends, &payloads)).unwrap(), RUN);
        take(&mut to, RUN);
        let lone = Outgoing::new(&at, Lane::Bulk, &long);
        assert_eq!(from.send(&[lone]).unwrap(), 1);
        assert_eq!(take(&mut to, 1).pop().unwrap().1, long);
    }
    assert!(from.statistics().spliced > 0);
}

/// The pipe is as small as that of a user with many pipes.
#[test]
fn a_pipe_without_room_is_tried_a_few_times() {
    let Some(()) = splicing() else { return };
    let (mut from, mut to, at) = links("");
    let (region, payloads) = payloads(0);
    let mut small = false;
    for batch in 0..200 {
        fill(&region, batch);
        let ends = ends(batch);
        assert_eq!(from.send(&outgoing(&at, &ends, &payloads)).unwrap(), RUN);
        assert!(
            take(&mut to, RUN).into_iter().map(|(_, bytes)| bytes).eq(whole(batch)),
            "batch {batch}"
        );
        if !small && from.statistics().spliced > 0 {
            small =
                rustix::pipe::fcntl_setpipe_size(&from.pipe().unwrap().ends.1, 2 * PAGE).is_ok();
        }
    }
    assert!(small);
    assert_eq!(from.statistics().spliced, RUN as u64);
    assert_eq!(from.statistics().splice, Offload::Refused);
    assert!(!from.prefers(at, PayloadForm::WholePages));
}

/// The network reads payloads in place. Heads, which change with every datagram, are copied.
#[test]
fn the_network_reads_payloads_where_they_are_and_heads_as_they_were() {
    let Some(()) = splicing() else { return };
    let (mut from, mut to, at) = links("");
    let (region, payloads) = payloads(0);
    let mut ends_then = ends(0);
    for batch in 0..100 {
        fill(&region, 0);
        assert_eq!(from.send(&outgoing(&at, &ends_then, &payloads)).unwrap(), RUN);
        let spliced = from.statistics().spliced;
        fill(&region, 2);
        ends_then = ends(batch + 1);
        let came = take(&mut to, RUN);
        if spliced > 0 && batch > 80 {
            for ((_, bytes), (head, tag)) in came.iter().zip(ends(batch)) {
                assert_eq!(bytes[..], [&head[..], &[3; PAYLOAD], &tag].concat());
            }
        }
    }
    assert!(from.statistics().spliced > 0);
}

/// Heads that were not read yet stay as they were written.
#[test]
fn heads_that_wait_are_not_written_over() {
    let Some(()) = splicing() else { return };
    let to = (Ipv4Addr::LOCALHOST, 1).into();
    let (_region, payloads) = payloads(0);
    let mut splice = SplicePipe::open().unwrap();
    let first = ends(0);
    let run = outgoing(&to, &first, &payloads);
    let pieces = splice.heads.pieces(&run[..5]).unwrap();
    assert_eq!(splice.fill(&pieces), Ok(5 * (PAYLOAD + 44)));
    let (mut used, mut changed) = (splice.heads.used, 0);
    for batch in 1.. {
        let ends = ends(batch);
        splice.heads.pieces(&outgoing(&to, &ends, &payloads)).unwrap();
        changed += u32::from(splice.heads.used < used);
        used = splice.heads.used;
        if changed == 3 {
            break;
        }
    }
    let mut bytes = vec![0; 5 * (PAYLOAD + 44)];
    assert_eq!(rustix::io::read(&splice.ends.0, &mut bytes).unwrap(), bytes.len());
    let want = first[..5].iter().flat_map(|(head, tag)| [&head[..], &[0; PAYLOAD], tag].concat());
    assert!(bytes.into_iter().eq(want));
}
