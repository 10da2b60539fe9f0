//! Long messages from memory of the caller, which may be taken from the caller in the middle.

use super::{Two, region, send};
use crate::client::submission::tracked;
use crate::{Completion, Value};
use oikaze_protocol::limits::RING_BYTES;
use oikaze_protocol::wind::{Body, Class, Segment};
use std::sync::Arc;

const LEN: usize = 5 * RING_BYTES;

fn byte(at: usize, tag: u64) -> u8 {
    (at % 251) as u8 ^ tag as u8
}

/// Sends a message whose source changes after `turns` turns of both nodes, when it was detached.
fn stream(two: &mut Two, tag: u64, turns: usize) -> Arc<Completion> {
    let (source, own) = region(&mut two.a, LEN);
    let bytes: Vec<u8> = (0..LEN).map(|at| byte(at, tag)).collect();
    source.write(0, &bytes).unwrap();
    let body = Body::Segment(Segment { region: own.slot, offset: 0, len: LEN as u64 });
    let (submission, completion) = tracked(send(Class::Ordered, tag, body), None);
    let now = two.now;
    let streamed = two.a.engine.stream(submission, LEN as u64, now);
    assert!(streamed.is_ok(), "nothing is in the way");
    (0..turns).for_each(|_| two.turn());
    two.a.engine.detach(1, own.slot, &bytes);
    assert_eq!(two.a.engine.unsent_of(1, own.slot), None);
    source.fill(0, LEN as u64, 0xee).unwrap();
    completion
}

/// MEM-8.4: whenever the rest of a message is copied, the message is the one that was sent.
#[test]
fn message_that_is_detached_from_its_source_arrives_unchanged() {
    let mut two = Two::new();
    for turns in 0..20 {
        let tag = turns as u64;
        let sent = stream(&mut two, tag, turns);
        assert_eq!(two.outcome(&sent), Ok(Value::Done));
        let arrived = two.b.engine.inbox().take_arrived().unwrap();
        assert_eq!((arrived.tag, arrived.body.len()), (tag, LEN));
        assert!(arrived.body.iter().enumerate().all(|(at, it)| *it == byte(at, tag)), "{turns}");
        two.b.ask(crate::Request::Consumed { from: 0, messages: 1, bytes: LEN as u64 });
        two.turn();
    }
}

/// MEM-8.4, MEM-15.6: a message is streamed only if nothing is in its way, and a copied rest
/// counts.
#[test]
fn message_behind_another_is_not_streamed_and_a_copied_rest_counts() {
    let mut two = Two::new();
    let first = stream(&mut two, 1, 0);
    let copied = two.a.engine.ops().in_flight.copied(1);
    assert!(copied > 0 && copied < LEN as u64, "{copied}");
    let (submission, _) = tracked(send(Class::Ordered, 2, Body::copy_of(&[1; 100])), None);
    let now = two.now;
    assert!(two.a.engine.stream(submission, 100, now).is_err());
    assert_eq!(two.outcome(&first), Ok(Value::Done));
    assert_eq!(two.a.engine.ops().in_flight.copied(1), 0);
}
