use super::page::*;
use super::slow::PathStates;
use super::words::{Reader, Row};
use oikaze_engine::{Counters, GroupCounters};
use oikaze_launch::Seal;
use oikaze_protocol::rma::RefusalCounts;
use oikaze_protocol::seal::CipherKind;
use oikaze_protocol::wind::{self, Histogram};
use oikaze_protocol::{coherence, limits};
use proptest::prelude::*;
use std::net::SocketAddr;
use std::time::Duration;

fn counts<const N: usize>() -> impl Strategy<Value = [u64; N]> {
    any::<u64>().prop_map(|seed| std::array::from_fn(|at| seed.wrapping_mul(at as u64 + 1)))
}

fn histogram() -> impl Strategy<Value = Histogram> {
    prop::collection::vec(any::<u64>(), 0..50).prop_map(|spans| {
        let mut histogram = Histogram::default();
        spans.into_iter().for_each(|span| histogram.record(Duration::from_nanos(span)));
        histogram
    })
}

fn node() -> impl Strategy<Value = NodePage> {
    let place = (1..=limits::NODES_MAX).prop_flat_map(|nodes| (0..nodes, Just(nodes)));
    let totals = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (
        any::<u32>(),
        place,
        ("[!-~]{0,40}", "[ -~]{0,500}"),
        totals,
        (counts(), "[ -~]{0,320}", "[ -~]{0,320}", prop::sample::select(Seal::ALL.to_vec())),
        (counts(), counts()),
        counts(),
        (counts(), counts()),
    )
        .prop_map(
            |(
                job,
                (rank, nodes),
                (program, waits),
                (started, at, operations, mail),
                (engine, unshared, unmapped, seal),
                (link, groups),
                coherence,
                (refusals, paths),
            )| NodePage {
                job,
                rank,
                nodes,
                program: program.chars().take(32).collect(),
                started,
                at: Duration::from_nanos(at),
                seal,
                operations,
                mail,
                waits: waits.chars().take(384).collect(),
                engine: Counters::from_values(engine),
                groups: GroupCounters::from_values(groups),
                link: LinkCounters::from_values(link),
                coherence: coherence::CoherenceStatistics::from_values(coherence),
                refusals: RefusalCounts::from_values(refusals),
                paths: PathStates::from_values(paths),
                first_unshared: unshared,
                first_paged: unmapped.chars().rev().collect(),
                first_unmapped: unmapped,
            },
        )
}

fn peer() -> impl Strategy<Value = PeerPage> {
    let state = prop::sample::select(vec![
        State::Connecting,
        State::Established,
        State::Silent,
        State::Unreachable,
    ]);
    let address = any::<Option<(u32, Option<u128>, u16)>>().prop_map(|address| {
        let (v4, v6, port) = address?;
        let ip = v6.map_or(std::net::IpAddr::V4(v4.into()), |v6| {
            std::net::IpAddr::V6(v6.into()).to_canonical()
        });
        Some(SocketAddr::new(ip, port.max(1)))
    });
    let cipher = prop::sample::select(vec![
        None,
        Some(CipherKind::Aes128Gcm),
        Some(CipherKind::ChaCha20Poly1305),
    ]);
    (state, (address, cipher), counts(), counts(), histogram(), histogram()).prop_map(
        |(state, (address, cipher), counters, gauges, round_trip, settle)| PeerPage {
            state,
            address,
            cipher,
            counters: wind::Statistics::from_values(counters),
            gauges: Gauges::from_values(gauges),
            round_trip,
            settle,
        },
    )
}

proptest! {
    #[test]
    fn what_a_node_shows_is_read(page in node(), cut in any::<prop::sample::Index>()) {
        let mut row = Row::default();
        page.write(&mut row);
        prop_assert_eq!(row.0.len(), NODE_WORDS);
        prop_assert_eq!(NodePage::read(Reader(row.0.iter())), Some(page));
        prop_assert_eq!(NodePage::read(Reader(row.0[..cut.index(row.0.len())].iter())), None);
    }

    #[test]
    fn what_a_node_shows_of_a_peer_is_read(page in peer(), cut in any::<prop::sample::Index>()) {
        let mut row = Row::default();
        page.write(&mut row);
        prop_assert!(row.0.len() <= layout(1).words);
        prop_assert_eq!(PeerPage::read(Reader(row.0.iter())), Some(page));
        prop_assert_eq!(PeerPage::read(Reader(row.0[..cut.index(row.0.len())].iter())), None);
    }

    #[test]
    fn what_a_node_shows_of_flows_is_read(
        all in prop::collection::vec((any::<u32>(), any::<Option<(u32, u16)>>(), counts()), 0..=FLOWS_SHOWN),
        left_out in any::<u64>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let flows = all.into_iter().map(|(peer, address, values)| {
            let address = address.map(|(ip, port)| (std::net::Ipv4Addr::from(ip), port.max(1)).into());
            FlowPage { peer, address, gauges: FlowGauges::from_values(values) }
        });
        let page = FlowsPage { flows: flows.collect(), left_out };
        let mut row = Row::default();
        page.write(&mut row);
        prop_assert!(row.0.len() <= layout(1).words);
        prop_assert_eq!(FlowsPage::read(Reader(row.0.iter())), Some(page));
        prop_assert_eq!(FlowsPage::read(Reader(row.0[..cut.index(row.0.len())].iter())), None);
    }

    /// Another process may show any numbers. No number makes the reader fail, and the texts that
    /// the reader takes over are safe to print.
    #[test]
    fn anything_may_be_shown(words in prop::collection::vec(prop_oneof![Just(0), Just(1), any::<u64>()], 0..400)) {
        if let Some(node) = NodePage::read(Reader(words.iter())) {
            prop_assert!(node.rank < node.nodes && node.nodes <= limits::NODES_MAX);
            prop_assert!(node.program.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert!(node.first_unmapped.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
            prop_assert!(node.waits.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
        }
        if let Some(flows) = FlowsPage::read(Reader(words.iter())) {
            prop_assert!(flows.flows.len() <= FLOWS_SHOWN);
        }
        if let Some(peer) = PeerPage::read(Reader(words.iter())) {
            let _ = (peer.settle.percentile(9990), peer.round_trip.since(&peer.settle).len(), peer.state.name());
        }
    }
}

/// The board of the largest possible job fits.
#[test]
fn the_largest_job_fits() {
    let layout = layout(limits::NODES_MAX);
    assert!((layout.words + 8) * 8 * layout.records < oikaze_os::stats_page::BOARD_MAX);
}
