//! Nodes of one machine, which share memory by themselves, and what they do when they may not.

mod support;

use oikaze::Class;
use oikaze::job::Settings;
use std::time::Duration;
use support::{cluster_once, over_the_network};

const PATIENCE: Duration = Duration::from_secs(30);

/// MEM-16.8.
#[test]
fn nodes_of_one_machine_share_memory_unless_the_network_is_to_be_tried() {
    let alone = Settings::default();
    for (settings, shared) in [(over_the_network(&alone), false), (alone, true)] {
        cluster_once(3, &settings, |job| {
            for rank in (0..3).filter(|rank| *rank != job.rank()) {
                let peer = job.peer(rank).unwrap();
                peer.send(Class::Sync, 1, b"hello").wait_for(PATIENCE).unwrap();
                let report = peer.report().unwrap();
                assert_eq!(report.gauges.rings, u64::from(shared));
                assert!(report.counters.messages_posted > 0);
            }
            (0..2).for_each(|_| assert_eq!(&job.receive(None, Some(PATIENCE)).unwrap().body[..], b"hello"));
            job.barrier().unwrap();
        });
    }
}
