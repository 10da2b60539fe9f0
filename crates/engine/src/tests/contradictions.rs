//! Peers whose view of shared memory contradicts this node's view. The connection ends, and every
//! wait with it.

use super::*;
use oikaze_protocol::coherence::{Coherence, CoherenceError, LockMode};
use oikaze_protocol::limits::{FAILURE_TIME, VAIN_QUESTIONS_MAX};
use oikaze_protocol::wind::{CloseReason, Nonsense, Refusal};

/// Runs turns of both nodes until the operation has ended.
fn end_of(completion: &Completion, nodes: [&mut Node; 2], now: &mut Time) {
    let begun = *now;
    let [a, b] = nodes;
    while !completion.is_done() {
        assert!(*now - begun < FAILURE_TIME * (VAIN_QUESTIONS_MAX + 4), "it hangs");
        *now = step(*now);
        a.turn(*now);
        b.turn(*now);
        if !completion.is_done() {
            // Nothing is in flight, so time advances to the next deadline.
            let next =
                [&a.engine, &b.engine].iter().filter_map(|engine| engine.next_timeout()).min();
            *now = next.map_or(*now, |next| next.max(*now));
        }
    }
}

fn says_nonsense(mut node: Node, peer: Rank, nonsense: Nonsense) {
    assert_eq!(node.engine.inbox().take_death(), Some((peer, Death::Nonsense(nonsense))));
}

/// COH-8.9, WIND-7.9.
#[test]
fn a_peer_that_refuses_what_is_sound_is_given_up() {
    let (mut a, mut b, mut now) = pair();
    // A node of a job of three reads three numbers where this one writes two.
    b.engine.layers.coherence = Coherence::new(1, 3);
    let lock = a.ask(Request::Lock(3, LockMode::default()));
    end_of(&lock, [&mut a, &mut b], &mut now);
    for _ in 0..10 {
        turn_both(&mut now, &mut a, &mut b);
    }
    let refusal = Refusal::Malformed;
    assert!(matches!(
        lock.outcome(),
        Some(Err(Failure::Coherence(CoherenceError::Refused { rank: 1, .. })))
    ));
    says_nonsense(a, 1, Nonsense::RefusedShared { refusal });
    assert_eq!(b.engine.inbox().take_death(), Some((0, Death::GivenUp(CloseReason::Nonsense))));
}

/// COH-13.1, COH-13.3: a request was acknowledged, and the peer does not know it.
#[test]
fn a_peer_that_has_forgotten_a_request_is_given_up() {
    let (mut a, mut b, mut now) = pair();
    let held = b.ask(Request::Lock(3, LockMode::default()));
    end_of(&held, [&mut a, &mut b], &mut now);
    let lock = a.ask(Request::Lock(3, LockMode::default()));
    for _ in 0..10 {
        turn_both(&mut now, &mut a, &mut b);
    }
    assert!(!lock.is_done(), "the peer has it");
    b.engine.layers.coherence = Coherence::new(1, 2);
    end_of(&lock, [&mut a, &mut b], &mut now);
    assert!(matches!(
        lock.outcome(),
        Some(Err(Failure::Coherence(CoherenceError::NodeDead { rank: 1, .. })))
    ));
    says_nonsense(a, 1, Nonsense::Forgotten);
}
