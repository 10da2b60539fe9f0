//! Fences and flushes between whole nodes (MEM-15).

use crate::support::cluster;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use oikaze_launch::Settings;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn order(settings: &Settings) {
    cluster(2, settings, |job| {
        const LEN: usize = 300_000;
        let inbox = job.publish("inbox", Region::zeroed(LEN).unwrap(), Rights::ALL).unwrap();
        let source = job.register(Region::zeroed(LEN).unwrap()).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let there = peer.region("inbox").unwrap();
        for round in 1..40u8 {
            source.fill(0, LEN as u64, round).unwrap();
            // Data in fragments, then a word, and a message of the class that waits for nothing.
            let _settle_by_themselves = [there.put(8, source.slice(8..LEN).unwrap())];
            if round % 2 == 0 {
                peer.fence()
            } else {
                job.fence()
            }
            let _settles_by_itself = there.put_copy(0, &u64::from(round).to_le_bytes()).unwrap();
            let _settles_by_itself = peer.send(Class::Unordered, u64::from(round), b"there");
            let whole = || {
                let mut seen = vec![0; LEN - 8];
                inbox.read(8, &mut seen).unwrap();
                seen.iter().all(|&byte| byte == round)
            };
            if round % 3 == 0 {
                inbox.wait_until_for(0, PATIENCE, |word| word == u64::from(round)).unwrap();
                assert!(whole(), "the word overtook the data");
            }
            let arrived = job.receive_for(Some(peer.rank()), PATIENCE).unwrap();
            assert!(arrived.tag() == u64::from(round) && whole(), "the message overtook the data");
            if round % 2 == 0 {
                peer.flush().unwrap()
            } else {
                job.flush().unwrap()
            }
            // All operations have ended, so the source may change.
            job.barrier().unwrap();
        }
    });
}

#[test]
fn order_over_loopback() {
    order(&Settings::default());
}

#[test]
fn order_over_a_faulty_network() {
    order(&Settings {
        fault: Some("loss=0.03,duplicate=0.03,reorder=0.1,seed=9".to_owned()),
        ..Settings::default()
    });
}

/// MEM-15.2, MEM-15.3: a refused operation has ended, and a fence lets through the operations
/// behind it.
#[test]
fn a_flush_waits_for_what_fails_too() {
    let settings = Settings { time_limit: Some(PATIENCE), ..Settings::default() };
    cluster(2, &settings, |job| {
        let _inbox = job.publish("inbox", Region::zeroed(4096).unwrap(), Rights::READ).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let there = peer.region("inbox").unwrap();
        // A refused operation has ended, too.
        let refused = there.put_copy(0, &[1; 8]).unwrap();
        peer.fence();
        let behind = peer.send(Class::Ordered, 1, b"x");
        assert!(peer.flush().unwrap_err().unreported() == Some(1));
        assert!(refused.is_done() && refused.wait().is_err() && behind.is_done());
        behind.wait().unwrap();
        job.receive(Some(peer.rank())).unwrap();
        job.flush().unwrap();
        job.barrier().unwrap();
    });
}
