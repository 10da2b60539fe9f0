//! Lookups of withdrawn names fail at once.

mod support;

use oikaze::{Refusal, Region, Rights};
use oikaze_launch::Settings;
use std::time::Duration;
use support::cluster;

/// MEM-6.6
#[test]
fn lookup_of_withdrawn_name_fails_at_once_until_it_is_published_again() {
    cluster(2, &Settings::default(), |mut job| {
        // A lookup that waited for the name would take an hour.
        job.set_time_limit(Some(Duration::from_secs(3600)));
        let peer = job.peer(1 - job.rank()).unwrap();
        let first = job.publish("short", Region::zeroed(64).unwrap(), Rights::ALL).unwrap();
        let fifo = job.fifo("queue", 8, 8).unwrap();
        job.barrier().unwrap();
        peer.region("short").unwrap();
        job.barrier().unwrap();
        drop((first, fifo));
        job.barrier().unwrap();
        let error = peer.region("short").err().unwrap();
        assert_eq!(error.refusal(), Some(Refusal::Withdrawn));
        let text = error.to_string();
        assert!(
            text.contains(&format!("region \"short\" of node {}", peer.rank()))
                && text.contains("withdrawn"),
            "{text}"
        );
        assert_eq!(peer.fifo("queue").err().unwrap().refusal(), Some(Refusal::Withdrawn));
        job.barrier().unwrap();
        let _again = job.publish("short", Region::zeroed(128).unwrap(), Rights::ALL).unwrap();
        job.barrier().unwrap();
        assert_eq!(peer.region("short").unwrap().len(), 128);
        job.barrier().unwrap();
    });
}

/// MEM-6.4: a lookup waits for a name that was never published until the limit. The error names
/// node and name.
#[test]
fn lookup_of_name_never_published_fails_at_the_limit() {
    cluster(2, &Settings::default(), |mut job| {
        job.set_time_limit(Some(Duration::from_millis(50)));
        let peer = job.peer(1 - job.rank()).unwrap();
        let text = peer.region("never").err().unwrap().to_string();
        assert!(
            text.contains(&format!("node {}", peer.rank())) && text.contains("\"never\""),
            "{text}"
        );
        job.set_time_limit(None);
        job.barrier().unwrap();
    });
}
