//! Requests larger than a limit are refused before the first byte goes, and the error names the
//! limit (docs/LIMITS.md).

mod support;

use oikaze::collective::operator::Sum;
use oikaze::limits::{
    ARRAY_PAGES_MAX, FIFO_ELEMENT_MAX, FIFO_SLOTS_MAX, LIST_MAX, NAME_MAX, REDUCE_MAX,
};
use oikaze::memory::{Region, Rights};
use oikaze::shared::builder::Homes;
use oikaze_launch::Settings;
use std::time::Duration;
use support::{cluster_once, over_the_network};

const PATIENCE: Duration = Duration::from_secs(60);

/// COH-6: a reduction at the limit works. One value more fails on all nodes, and the next
/// collective works.
#[test]
fn reduction_of_too_many_values_is_refused_everywhere_with_the_limit() {
    cluster_once(2, &Settings::default(), |job| {
        let values = vec![1_u64; REDUCE_MAX + 1];
        let sums = job.barrier_reduce_all(&values[..REDUCE_MAX], Sum).unwrap();
        assert!(sums.len() == REDUCE_MAX && sums.iter().all(|sum| *sum == 2));
        let error = job.barrier_reduce_all(&values, Sum).unwrap_err().to_string();
        assert!(error.contains("65537 values") && error.contains("limit is 65536"), "{error}");
        job.barrier().unwrap();
    });
}

#[test]
fn names_fifos_and_arrays_beyond_their_limits_are_refused_with_the_limit() {
    cluster_once(2, &Settings::default(), |job| {
        let (fits, long) = ("n".repeat(NAME_MAX), "n".repeat(NAME_MAX + 1));
        let publish = |name: &str| job.publish(name, Region::zeroed(8).unwrap(), Rights::ALL);
        let published = publish(&fits).unwrap();
        let told = |error: oikaze::Error, words: &[&str]| {
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{words:?} in {text}");
        };
        told(publish(&long).map(drop).unwrap_err(), &["48 bytes"]);
        told(job.fifo(&long, 4, 8).map(drop).unwrap_err(), &["48 bytes"]);
        job.barrier().unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        peer.region(&fits).unwrap();
        told(peer.region(&long).map(drop).unwrap_err(), &["48 bytes"]);
        let limits = ["16777216 slots", "1048576 bytes"];
        told(job.fifo("long", 4, FIFO_ELEMENT_MAX + 1).map(drop).unwrap_err(), &limits);
        told(job.fifo("many", FIFO_SLOTS_MAX + 1, 8).map(drop).unwrap_err(), &limits);
        let fifo = job.fifo("longest", 1, FIFO_ELEMENT_MAX).unwrap();
        job.barrier().unwrap();
        let there = peer.fifo("longest").unwrap();
        told(
            there.push_for(&vec![1; FIFO_ELEMENT_MAX as usize + 1], PATIENCE).unwrap_err(),
            &["1048576"],
        );
        there.push_for(&vec![1; FIFO_ELEMENT_MAX as usize], PATIENCE).unwrap();
        let mut element = Vec::new();
        fifo.pop_for(&mut element, PATIENCE).unwrap();
        assert_eq!(element.len() as u64, FIFO_ELEMENT_MAX);
        // A refused request takes no memory.
        let error = job
            .array_with_homes::<u8>("vast", ARRAY_PAGES_MAX as usize * 4096 + 1, Homes::Block)
            .map(drop)
            .unwrap_err();
        told(error, &["1099511627776"]);
        told(job.array::<u8>(&long, 8).map(drop).unwrap_err(), &["1 to 48"]);
        job.barrier().unwrap();
        drop(published);
    });
}

/// MEM-27.1: a list at the limit takes place over every transport. A longer one does nothing at
/// all, although only the entries at its end exceed the limit.
#[test]
fn list_of_too_many_entries_is_refused_as_a_whole_with_the_limit() {
    for settings in [Settings::default(), over_the_network(&Settings::default())] {
        cluster_once(2, &settings, |job| {
            let mine =
                job.publish("mine", Region::zeroed(8 * LIST_MAX).unwrap(), Rights::ALL).unwrap();
            job.barrier().unwrap();
            let there = job.peer(1 - job.rank()).unwrap().region("mine").unwrap();
            let local = job.register(Region::zeroed(8 * LIST_MAX).unwrap()).unwrap();
            local.fill(0, 8 * LIST_MAX as u64, 7).unwrap();
            let entry = |at: usize| (8 * at as u64, local.slice(8 * at..8 * at + 8).unwrap());
            let mut list: Vec<_> = (0..LIST_MAX).map(entry).collect();
            list.push(entry(0));
            for refused in [there.put_list(&list), there.get_list(&list)] {
                let error = refused.wait_for(PATIENCE).unwrap_err().to_string();
                assert!(error.contains("16385 entries") && error.contains("(16384)"), "{error}");
            }
            let all = |region: &oikaze::memory::LocalRegion, byte| {
                let mut bytes = vec![0; 8 * LIST_MAX];
                region.read(0, &mut bytes).unwrap();
                bytes.iter().all(|at| *at == byte)
            };
            job.barrier().unwrap();
            assert!(all(&mine, 0) && all(&local, 7), "nothing took place");
            job.barrier().unwrap();
            list.pop();
            there.put_list(&list).wait_for(PATIENCE).unwrap();
            local.fill(0, 8 * LIST_MAX as u64, 0).unwrap();
            there.get_list(&list).wait_for(PATIENCE).unwrap();
            assert!(all(&local, 7));
            job.barrier().unwrap();
        });
    }
}

/// A local peer's region that cannot be mapped is counted with the first reason.
#[test]
fn regions_that_are_not_mapped_are_shown() {
    cluster_once(2, &Settings::default(), |job| {
        let _private = job.publish("private", Region::private(64).unwrap(), Rights::ALL).unwrap();
        let _shared = job.publish("shared", Region::shared(64).unwrap(), Rights::ALL).unwrap();
        job.barrier().unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        assert!(peer.region("shared").unwrap().is_mapped());
        assert!(!peer.region("private").unwrap().is_mapped());
        peer.region("private").unwrap();
        let begun = std::time::Instant::now();
        loop {
            let (all, _) = oikaze::observe::nodes().unwrap();
            let own = all.iter().filter(|view| {
                view.pid == std::process::id() && view.node.paths.unmapped_regions == 2
            });
            let slow = own.flat_map(|view| oikaze::observe::slow_paths(&view.node, &view.peers));
            if let Some(slow) = slow.into_iter().find(|slow| slow.path == "mapped regions") {
                assert!(slow.cause.starts_with("2 lookups"), "{slow:?}");
                assert!(slow.cause.contains("\"private\""), "{slow:?}");
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "never shown: {all:?}");
            peer.send(oikaze::message::Class::Sync, 0, b"a turn").wait().unwrap();
        }
        job.barrier().unwrap();
    });
}
