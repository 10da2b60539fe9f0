//! Lookups of withdrawn names fail at once.

use crate::support::cluster;
use oikaze::memory::remote::RefusalReason;
use oikaze::memory::{Region, Rights};
use oikaze_launch::Settings;
use std::time::Duration;

/// A lookup that waited for the name would wait for an hour.
const LONG: Duration = Duration::from_secs(3600);

/// MEM-6.6
#[test]
fn lookup_of_withdrawn_name_fails_at_once_until_it_is_published_again() {
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let first = job.publish("short", Region::zeroed(64).unwrap(), Rights::ALL).unwrap();
        let fifo = job.fifo("queue", 8, 8).unwrap();
        job.barrier().unwrap();
        peer.region_for("short", LONG).unwrap();
        job.barrier().unwrap();
        drop((first, fifo));
        job.barrier().unwrap();
        let error = peer.region_for("short", LONG).err().unwrap();
        assert_eq!(error.refusal(), Some(RefusalReason::Withdrawn));
        let text = error.to_string();
        assert!(text.contains(&format!("region \"short\" of node {}", peer.rank())), "{text}");
        assert!(text.contains("withdrawn"), "{text}");
        assert_eq!(
            peer.fifo_for("queue", LONG).err().unwrap().refusal(),
            Some(RefusalReason::Withdrawn)
        );
        job.barrier().unwrap();
        let _again = job.publish("short", Region::zeroed(128).unwrap(), Rights::ALL).unwrap();
        job.barrier().unwrap();
        assert_eq!(peer.region_for("short", LONG).unwrap().len(), 128);
        job.barrier().unwrap();
    });
}

/// MEM-6.4: a lookup waits for a name that was never published until the limit. The error names
/// node and name.
#[test]
fn lookup_of_name_never_published_fails_at_the_limit() {
    cluster(2, &Settings::default(), |job| {
        let peer = job.peer(1 - job.rank()).unwrap();
        let text = peer.region_for("never", Duration::from_millis(50)).err().unwrap().to_string();
        assert!(text.contains(&format!("node {}", peer.rank())), "{text}");
        assert!(text.contains("\"never\""), "{text}");
        job.barrier().unwrap();
    });
}
