//! Compares rings with a plain queue, and runs them under real threads.

use super::{Full, completion, submission};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::thread;

proptest! {
    /// Puts in on `true`, and takes out on `false`. After any prefix both rings behave like a
    /// bounded queue.
    #[test]
    fn like_a_bounded_queue(capacity in 0..40usize, steps in prop::collection::vec(any::<bool>(), 0..400)) {
        let (submitter, mut requests) = submission::<3>(capacity);
        let (mut completer, mut outcomes) = completion::<3>(capacity);
        prop_assert!(requests.capacity() >= capacity && requests.capacity().is_power_of_two());
        prop_assert_eq!(requests.capacity(), outcomes.capacity());
        let mut oracle = VecDeque::new();
        for (index, put) in steps.into_iter().enumerate() {
            let index = index as u64;
            let entry = [index, !index, index << 40];
            if put {
                let expected = if oracle.len() < requests.capacity() { Ok(()) } else { Err(Full) };
                prop_assert_eq!(submitter.clone().submit(&entry), expected);
                prop_assert_eq!(completer.complete(&entry), expected);
                if expected.is_ok() {
                    oracle.push_back(entry);
                }
            } else {
                let expected = oracle.pop_front();
                prop_assert_eq!(requests.take(), expected);
                prop_assert_eq!(outcomes.take(), expected);
            }
            prop_assert_eq!(requests.is_empty(), oracle.is_empty());
            prop_assert_eq!(outcomes.is_empty(), oracle.is_empty());
        }
    }
}

const EACH: u64 = 20_000;

/// Every request arrives once and whole, and those of one submitter in order, through a ring that
/// is nearly always full.
#[test]
fn many_submitters() {
    const SUBMITTERS: u64 = 3;
    let (submitter, mut requests) = submission::<7>(4);
    thread::scope(|scope| {
        for who in 0..SUBMITTERS {
            let submitter = submitter.clone();
            scope.spawn(move || {
                for index in 0..EACH {
                    while submitter.submit(&[who, index, who ^ index, 3, 4, 5, !index]).is_err() {
                        thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; SUBMITTERS as usize];
        while next.iter().sum::<u64>() < SUBMITTERS * EACH {
            let Some([who, index, check, 3, 4, 5, not]) = requests.take() else {
                thread::yield_now();
                continue;
            };
            assert_eq!((check, not), (who ^ index, !index), "torn");
            assert_eq!(index, next[who as usize], "out of order, lost or repeated");
            next[who as usize] += 1;
        }
    });
    assert!(requests.is_empty());
}

#[test]
fn one_completer() {
    let (mut completer, mut outcomes) = completion::<2>(4);
    thread::scope(|scope| {
        scope.spawn(move || {
            for index in 0..EACH {
                while completer.complete(&[index, !index]).is_err() {
                    thread::yield_now();
                }
            }
        });
        for index in 0..EACH {
            let outcome = loop {
                match outcomes.take() {
                    Some(outcome) => break outcome,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(outcome, [index, !index]);
        }
    });
    assert!(outcomes.is_empty());
}
