//! Failures that no call waited for are reported once by `flush` and the end of a scope.

use oikaze::completion::Completed;
use oikaze::message::Class;

use crate::support::cluster;
use oikaze::memory::{Region, Rights};
use oikaze_launch::Settings;

fn unseen(result: oikaze::Result<()>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(error) => error.unreported().unwrap_or_else(|| panic!("{error}")),
    }
}

/// MEM-15.5: reports failures of dropped handles, of handles not waited for yet, and of counted
/// ones, but none that a call has already returned.
#[test]
fn failure_that_nobody_waited_for_is_reported_once_by_flush() {
    cluster(2, &Settings::default(), |job| {
        let _own = job.publish("read", Region::shared(4096).unwrap(), Rights::READ).unwrap();
        job.barrier().unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let there = peer.region("read").unwrap();
        let _ = there.word::<u64>(0).add(1);
        let kept = there.word::<u64>(1 << 40).add(1);
        drop(there.put_copy(0, b"x").unwrap());
        let error = job.flush().unwrap_err();
        assert!(
            error.to_string().contains("3 operations have failed that nobody waited for"),
            "{error}"
        );
        assert_eq!(error.refusal(), Some(oikaze::memory::remote::RefusalReason::NotPermitted));
        assert_eq!(unseen(job.flush()), 0, "reported once");
        kept.wait().unwrap_err();
        there.put_copy(0, b"x").unwrap().wait().unwrap_err();
        assert_eq!((unseen(job.flush()), unseen(peer.flush())), (0, 0), "waited for");
        let (queue, counter) = (job.completion_queue(), job.counter());
        there.put_copy(0, b"x").unwrap().report_to(&queue, 1).unwrap();
        there.put_copy(0, b"x").unwrap().count_in(&counter).unwrap();
        let mut ended: Vec<Completed> = Vec::new();
        queue.wait(1, &mut ended).unwrap();
        assert!(ended[0].outcome.is_err());
        assert_eq!(counter.wait(1).unwrap().failed, 1);
        assert_eq!(unseen(peer.flush()), 1, "a counter tells nobody why");
        let _ = there.put_list(&[(0, job.register(Region::zeroed(8).unwrap()).unwrap().all())]);
        let _ = peer.send(Class::Ordered, 1, b"taken");
        assert_eq!(unseen(job.peer(job.rank()).unwrap().flush()), 0, "of the peer meant");
        assert_eq!(unseen(job.flush()), 1, "of the peer meant");
        job.barrier().unwrap();
    });
}

/// MEM-15.5
#[test]
fn scope_returns_the_failure_of_an_operation_that_was_dropped() {
    cluster(2, &Settings::default(), |job| {
        let _own = job.publish("read", Region::zeroed(4096).unwrap(), Rights::READ).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("read").unwrap();
        let bytes = [1; 100];
        let ended = job.scope(|scope| scope.put(&there, 0, &bytes).map(drop));
        assert_eq!(
            ended.unwrap_err().refusal(),
            Some(oikaze::memory::remote::RefusalReason::NotPermitted)
        );
        job.scope(|scope| Ok(scope.put(&there, 0, &bytes)?.wait().is_err())).unwrap();
        assert_eq!(unseen(job.flush()), 0);
        job.barrier().unwrap();
    });
}
