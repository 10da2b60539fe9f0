//! More refusals than there is room to report.

use super::*;
use oikaze_protocol::limits::REFUSALS_TOLD;

/// Returns a put of 8 bytes to node 1, where no region has the key.
fn put_to_unknown_key(key: u64) -> Request {
    Request::Put { to: 1, key, offset: 0, body: Body::Inline(vec![1; 8]), signal: None }
}

/// MEM-16.4: more refusals than there is room to report, among messages that are taken.
#[test]
fn each_message_is_told_apart_taken_or_refused() {
    let mut two = Two::new();
    let (_, key) = region(&mut two.b, 4096);
    let ask = |n: usize| {
        let body = Body::Inline(vec![1; if n.is_multiple_of(7) { RECORD_BODY + 500 } else { 40 }]);
        let (key, offset) = if n.is_multiple_of(3) { (key.key, 100) } else { (key.key ^ 1, 100) };
        Request::Put { to: 1, key, offset, body, signal: None }
    };
    let puts: Vec<_> = (0..10 * REFUSALS_TOLD).map(|n| two.a.ask(ask(n))).collect();
    for (n, put) in puts.iter().enumerate() {
        let expected = match (n.is_multiple_of(3), n.is_multiple_of(7)) {
            (true, false) => Ok(Value::Done),
            (true, true) => Err(Failure::Remote(RmaError::Refused(Refusal::OutOfBounds))),
            (false, _) => Err(Failure::Remote(RmaError::Refused(Refusal::UnknownKey))),
        };
        assert_eq!(two.outcome(put), expected, "{n}");
    }
}

/// MEM-16.5: a turn that has found nothing new, but room to report earlier refusals, wakes the
/// writer, too.
#[test]
fn who_sleeps_is_woken_for_refusals_that_had_waited() {
    let mut two = Two::new();
    let (_, key) = region(&mut two.b, 64);
    let put = || put_to_unknown_key(key.key ^ 1);
    let _puts: Vec<_> = (0..=REFUSALS_TOLD).map(|_| two.a.ask(put())).collect();
    let now = two.now;
    two.a.turn(now);
    two.b.turn(now);
    two.a.turn(now);
    assert!(!two.a.engine.shm_mut().arm_wakeups() && !rung(&two.a));
    let _ = two.b.engine.turn_until_news(now, || None);
    assert!(rung(&two.a));
}

/// MEM-16.4, MEM-16.5: refusals without room wait for the writer, which sleeps. Each side wakes the
/// other for the next ones.
#[test]
fn who_has_more_refused_than_it_may_tell_sleeps() {
    const ROUNDS: usize = 3;
    let mut two = Two::new();
    let (_, key) = region(&mut two.b, 64);
    let put = || put_to_unknown_key(key.key ^ 1);
    let puts: Vec<_> = (0..ROUNDS * REFUSALS_TOLD).map(|_| two.a.ask(put())).collect();
    let now = two.now;
    two.a.turn(now);
    for round in 1..=ROUNDS {
        assert!(!two.a.engine.shm_mut().arm_wakeups());
        (0..10).for_each(|_| two.b.turn(now));
        assert!(!two.b.engine.shm_mut().arm_wakeups() && !rung(&two.b), "{round}");
        assert!(rung(&two.a), "{round}");
        two.a.turn(now);
        assert!(rung(&two.b), "{round}");
        assert_eq!(puts.iter().filter(|put| put.is_done()).count(), round * REFUSALS_TOLD);
    }
}

/// MEM-1.5: a message whose source was removed while it waited for room fails with that error, and
/// the peer lives.
#[test]
fn a_source_that_has_gone_is_not_the_end_of_a_peer() {
    const LEN: usize = 2 * RING_BYTES;
    let mut two = Two::new();
    let (_, there) = region(&mut two.b, LEN);
    let (_, source) = region(&mut two.a, LEN);
    let put = |len: usize| {
        let body = Body::Segment(Segment { region: source.slot, offset: 0, len: len as u64 });
        Request::Put { to: 1, key: there.key, offset: 0, body, signal: None }
    };
    // The first message has begun and fills the ring. The second one waits.
    let puts = [two.a.ask(put(LEN)), two.a.ask(put(RECORD_BODY))];
    let now = two.now;
    two.a.turn(now);
    two.a.engine.remove_region(source.slot);
    for put in &puts {
        assert_eq!(two.outcome(put), Err(Failure::Remote(RmaError::SourceGone)));
    }
    assert_eq!(two.a.engine.inbox().take_death(), None);
}
