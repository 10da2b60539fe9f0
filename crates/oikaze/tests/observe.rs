//! Nodes publish their activity, and no node is asked.

mod support;

use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze::observe::page::{BOARD, State, layout};
use oikaze::observe::{NodeView, nodes};
use oikaze_launch::Settings;
use oikaze_os::stats_page::{Board, RecordLayout};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::process::id;
use std::time::{Duration, Instant};

/// Returns the nodes of this process, once they show the wanted values.
fn shown(wanted: impl Fn(&[NodeView]) -> bool) -> Vec<NodeView> {
    let begun = Instant::now();
    loop {
        let (all, unreadable) = nodes().unwrap();
        assert!(unreadable.iter().all(|process| process.pid != id()), "{unreadable:?}");
        let own: Vec<NodeView> = all.into_iter().filter(|view| view.pid == id()).collect();
        if wanted(&own) {
            return own;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "never shown; the last was {own:#?}");
        std::thread::yield_now();
    }
}

/// Tests boards of another release, and of a process that shows nonsense under the right name.
fn what_is_not_understood_is_said() {
    let layout = layout(2);
    let mut other =
        Board::new(BOARD, RecordLayout { version: layout.version ^ 1, ..layout }).unwrap();
    other.write(0, &[1; 20]);
    let mut nonsense = Board::new(BOARD, layout).unwrap();
    nonsense.write(0, &[u64::MAX; 99]);
    // This board claims many nodes, but has room for two.
    let mut larger = Board::new(BOARD, layout).unwrap();
    larger.write(0, &[7, 0, 4000]);
    // This board has records of another size. It must not be read, or it would be reported as
    // stopped in the middle of a write.
    let longer = memfd_create(BOARD, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    let heading = [u64::from_le_bytes(*b"oikboard"), layout.version, 3, 1 << 12, 0, 0, 0, 0, 3];
    rustix::io::write(&longer, &heading.map(u64::to_le_bytes).concat()).unwrap();
    ftruncate(&longer, 1 << 20).unwrap();
    fcntl_add_seals(&longer, SealFlags::SHRINK | SealFlags::GROW).unwrap();
    // A node that is just starting has nothing to show.
    let _starting = Board::new(BOARD, layout).unwrap();
    let (all, unreadable) = nodes().unwrap();
    assert!(all.iter().all(|view| view.pid != id()));
    let mut why: Vec<&str> = unreadable
        .iter()
        .filter(|process| process.pid == id())
        .map(|process| process.why)
        .collect();
    why.sort_unstable();
    assert_eq!(why.len(), 4, "{why:?}");
    assert!(why[0].contains("another release"), "{why:?}");
    assert!(why[1..].iter().all(|why| why.contains("makes no sense")), "{why:?}");
}

/// The only test of this file, so that the nodes of this process are those of its job.
#[test]
fn a_jobs_nodes_and_peers_are_shown_while_it_runs() {
    // Over the network, so that datagrams are shown, too.
    support::cluster(3, &support::over_the_network(&Settings::default()), |job| {
        let inbox = job.publish("inbox", Region::zeroed(8192).unwrap(), Rights::WRITE).unwrap();
        job.barrier().unwrap();
        let next = job.peer((job.rank() + 1) % 3).unwrap();
        let there = next.region("inbox").unwrap();
        for turn in 0..20 {
            there.put_copy(0, &[turn; 4000]).unwrap().wait().unwrap();
        }
        next.send(Class::Ordered, 7, b"hello").wait().unwrap();
        job.barrier().unwrap();
        if job.rank() == 0 {
            let busy = |view: &NodeView| {
                view.node.mail == 1
                    && view.peers.iter().any(|(_, peer)| peer.counters.messages_posted > 20)
            };
            let all = shown(|all| all.len() == 3 && all.iter().all(busy));
            let ranks: Vec<u32> = all.iter().map(|view| view.node.rank).collect();
            assert_eq!(ranks, [0, 1, 2]);
            assert!(
                all.iter().all(|view| view.job() == all[0].job() && view.node.nodes == 3),
                "one job"
            );
            for view in &all {
                assert!(view.node.program.starts_with("observe"), "{}", view.node.program);
                assert!(view.node.engine.turns > 0 && view.node.link.datagrams_out > 0);
                assert!(view.node.coherence.barriers >= 1);
                assert_eq!(view.peers.len(), 2);
                for (rank, peer) in &view.peers {
                    assert_ne!(*rank, view.node.rank);
                    assert_eq!((peer.state, peer.address.is_some()), (State::Established, true));
                    assert!(peer.gauges.window > 0 && peer.gauges.datagram_max > 1000);
                }
                let (_, peer) =
                    view.peers.iter().find(|(rank, _)| *rank == (view.node.rank + 1) % 3).unwrap();
                assert!(peer.settle.len() > 20 && !peer.round_trip.is_empty());
                assert!(peer.settle.percentile(9900) >= peer.settle.percentile(5000));
                assert!(peer.counters.bytes_sent > 80_000, "{:?}", peer.counters);
            }
        }
        job.barrier().unwrap();
        drop(inbox);
    });
    assert!(shown(|all| all.is_empty()).is_empty(), "gone with the job");
    what_is_not_understood_is_said();
}
