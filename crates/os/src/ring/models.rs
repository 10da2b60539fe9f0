//! Models the rings in every order in which their two ends can interleave ([`crate::models`]).

use super::{completion, submission};
use crate::models::model;
use loom::thread;

/// Two submitters put two requests each through two slots. Each request is taken once, whole, and
/// in its submitter's order.
#[test]
fn loom_submission() {
    model(2, || {
        let (submitter, mut requests) = submission::<2>(2);
        let threads: Vec<_> = [10, 20]
            .into_iter()
            .map(|who| {
                let submitter = submitter.clone();
                thread::spawn(move || {
                    (1..=2)
                        .filter(|index| submitter.submit(&[who + index, who + index]).is_ok())
                        .count()
                })
            })
            .collect();
        let mut taken = Vec::new();
        for _ in 0..2 {
            taken.extend(requests.take());
        }
        let submitted: usize = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        taken.extend(std::iter::from_fn(|| requests.take()));
        assert_eq!(taken.len(), submitted, "lost or repeated");
        assert!(taken.iter().all(|[first, second]| first == second), "torn");
        for who in [10, 20] {
            let own: Vec<u64> = taken
                .iter()
                .map(|[first, _]| *first)
                .filter(|first| first / 10 * 10 == who)
                .collect();
            assert!(own.is_sorted(), "out of order");
        }
        assert!(requests.is_empty());
    });
}

/// Four outcomes pass through two slots.
#[test]
fn loom_completion() {
    model(3, || {
        let (mut completer, mut outcomes) = completion::<2>(2);
        let completer = thread::spawn(move || {
            let mut done = 0;
            for _ in 0..4 {
                done += u64::from(completer.complete(&[done, done]).is_ok());
            }
            done
        });
        let mut next = 0;
        let mut check = |outcome: Option<[u64; 2]>| {
            if let Some(outcome) = outcome {
                assert_eq!(outcome, [next, next], "torn, lost, repeated or out of order");
                next += 1;
            }
            outcome.is_some()
        };
        for _ in 0..3 {
            check(outcomes.take());
        }
        let done = completer.join().unwrap();
        while check(outcomes.take()) {}
        assert_eq!(next, done);
    });
}
