//! Each operation alone, when all is well and when it is refused.

use super::world::World;
use oikaze_protocol::rma::{
    AtomicOp, OperationValue, Published, Rights, Rma, RmaError, RmaEvent, Signal,
};
use oikaze_protocol::wind::{Body, Charge, Class, Refusal, Segment, Token};

const T: Token = Token(7);

fn done(value: OperationValue) -> Vec<RmaEvent> {
    vec![RmaEvent::Done { token: T, value }]
}

fn failed(error: RmaError) -> Vec<RmaEvent> {
    vec![RmaEvent::Failed { token: T, error }]
}

fn refused(refusal: Refusal) -> Vec<RmaEvent> {
    failed(RmaError::Refused(refusal))
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + 7) as u8).collect()
}

impl World {
    fn put(
        &mut self,
        key: u64,
        offset: u64,
        bytes: Vec<u8>,
        signal: Option<Signal>,
    ) -> Vec<RmaEvent> {
        let message = self.nodes[0].rma.put(key, offset, Body::Inline(bytes), signal, T).unwrap();
        self.post(0, 1, message);
        self.run(1);
        self.take(0)
    }

    fn get(&mut self, key: u64, offset: u64, into: Segment) -> Vec<RmaEvent> {
        let message = self.nodes[0].rma.get(1, key, offset, into, T).unwrap();
        self.post(0, 1, message);
        self.run(2);
        self.take(0)
    }

    fn atomic(&mut self, key: u64, offset: u64, op: AtomicOp) -> Vec<RmaEvent> {
        let message = self.nodes[0].rma.atomic(1, key, offset, op, T).unwrap();
        self.post(0, 1, message);
        self.run(3);
        self.take(0)
    }
}

/// MEM-3.1, MEM-7.2.
#[test]
fn a_put_is_there_when_it_is_done() {
    for len in [0, 1, 100, 101, 1000] {
        let mut world = World::new(2);
        let slot = world.region(1, 5, 2000);
        assert_eq!(world.put(5, 33, pattern(len), None), done(OperationValue::Nothing));
        let memory = world.nodes[1].memory.bytes(slot);
        assert_eq!(&memory[33..33 + len], pattern(len));
        assert!(
            memory[..33].iter().chain(&memory[33 + len..]).all(|byte| *byte == 0),
            "only there"
        );
    }
}

/// MEM-4.1.
#[test]
fn a_get_is_there_when_it_is_done() {
    for len in [0, 1, 100, 256, 257, 1000] {
        let mut world = World::new(2);
        world.nodes[1].memory.add(5, Rights::READ, pattern(2000));
        let own = world.nodes[0].memory.add(9, Rights::NONE, vec![0; 1500]);
        let into = Segment { region: own, offset: 3, len };
        assert_eq!(world.get(5, 40, into), done(OperationValue::Nothing));
        let (len, own) = (len as usize, world.nodes[0].memory.bytes(own));
        assert_eq!(&own[3..3 + len], &pattern(2000)[40..40 + len]);
        assert!(own[..3].iter().chain(&own[3 + len..]).all(|byte| *byte == 0), "only there");
        assert_eq!(world.nodes[0].rma.outstanding(), 0);
    }
}

/// MEM-5.1.
#[test]
fn atomics_bring_the_old_value() {
    let mut world = World::new(2);
    let slot = world.region(1, 5, 64);
    assert_eq!(world.atomic(5, 8, AtomicOp::add(3u64)), done(OperationValue::Old(0)));
    assert_eq!(world.atomic(5, 8, AtomicOp::add(u64::MAX)), done(OperationValue::Old(3)));
    assert_eq!(world.atomic(5, 8, AtomicOp::compare_swap(9u64, 1)), done(OperationValue::Old(2)));
    assert_eq!(world.atomic(5, 8, AtomicOp::compare_swap(2u64, 10)), done(OperationValue::Old(2)));
    assert_eq!(world.atomic(5, 8, AtomicOp::swap(77u64)), done(OperationValue::Old(10)));
    assert_eq!(world.nodes[1].memory.word(slot, 8), 77);
}

/// MEM-5.1: the other half of a pair of 32-bit words stays as it is, whatever is carried.
#[test]
fn narrow_words_have_adjacent_ones() {
    let mut world = World::new(2);
    let slot = world.region(1, 5, 64);
    assert_eq!(world.atomic(5, 12, AtomicOp::swap(7u32)), done(OperationValue::Old(0)));
    assert_eq!(world.atomic(5, 8, AtomicOp::add(u32::MAX)), done(OperationValue::Old(0)));
    assert_eq!(
        world.atomic(5, 8, AtomicOp::add(3u32)),
        done(OperationValue::Old(u64::from(u32::MAX)))
    );
    assert_eq!(world.atomic(5, 8, AtomicOp::min(-1i32)), done(OperationValue::Old(2)));
    assert_eq!(
        world.atomic(5, 8, AtomicOp::max(5u32)),
        done(OperationValue::Old(u64::from(u32::MAX)))
    );
    assert_eq!(
        world.atomic(5, 8, AtomicOp::max(5i32)),
        done(OperationValue::Old(u64::from(u32::MAX)))
    );
    assert_eq!(world.nodes[1].memory.word(slot, 8), 7 << 32 | 5);
}

/// MEM-5.4: the acknowledgement ends it, or the refusal; no answer is sent, no ticket kept.
#[test]
fn an_atomic_that_fetches_nothing_is_done_when_it_is_acknowledged() {
    let mut world = World::new(2);
    let slot = world.region(1, 5, 64);
    for (offset, expected) in [
        (8, done(OperationValue::Nothing)),
        (4, refused(Refusal::Misaligned)),
        (64, refused(Refusal::OutOfBounds)),
    ] {
        let message = Rma::change(5, offset, AtomicOp::or(6u64), T);
        world.post(0, 1, message);
        assert!(world.step(0) && world.step(0));
        assert_eq!((world.nodes[0].rma.outstanding(), world.nodes[1].rma.answers()), (0, 0));
        assert_eq!(world.take(0), vec![], "not before it is settled");
        world.run(1);
        assert_eq!(world.take(0), expected);
    }
    assert_eq!(world.nodes[1].memory.word(slot, 8), 6);
}

/// MEM-5.4.
#[test]
fn an_atomic_that_nobody_waits_for_is_not_answered() {
    let mut world = World::new(2);
    let slot = world.region(1, 5, 64);
    let message = world.nodes[0].rma.atomic(1, 5, 0, AtomicOp::add(1u64), Token::NONE).unwrap();
    world.post(0, 1, message);
    world.run(1);
    assert_eq!((world.take(0), world.take(1)), (vec![], vec![]));
    assert_eq!(world.nodes[1].memory.word(slot, 0), 1);
    assert_eq!(world.nodes[0].rma.outstanding(), 0);
}

/// MEM-1.2, MEM-1.3, MEM-1.4 for puts and gets, small and fragmented (MEM-3.2).
#[test]
fn what_is_not_granted_is_refused_and_changes_nothing() {
    for len in [8u64, 300] {
        let mut world = World::new(2);
        let slot = world.nodes[1].memory.add(1, Rights::READ, vec![0; 1000]);
        let write = world.nodes[1].memory.add(2, Rights::WRITE, vec![0; 1000]);
        let own = world.nodes[0].memory.add(9, Rights::NONE, vec![9; 1000]);
        let into = Segment { region: own, offset: 0, len };
        let bytes = || pattern(len as usize);
        assert_eq!(world.put(1, 0, bytes(), None), refused(Refusal::NotPermitted));
        assert_eq!(world.get(2, 0, into), refused(Refusal::NotPermitted));
        assert_eq!(world.atomic(2, 0, AtomicOp::swap(1u64)), refused(Refusal::NotPermitted));
        assert_eq!(world.put(3, 0, bytes(), None), refused(Refusal::UnknownKey));
        assert_eq!(world.get(3, 0, into), refused(Refusal::UnknownKey));
        for offset in [1001 - len, 1000, 1001, u64::MAX - 4, u64::MAX] {
            assert_eq!(
                world.put(2, offset, bytes(), None),
                refused(Refusal::OutOfBounds),
                "{offset}"
            );
            assert_eq!(world.get(1, offset, into), refused(Refusal::OutOfBounds), "{offset}");
        }
        assert!(world.nodes[1].memory.bytes(slot).iter().all(|byte| *byte == 0));
        assert!(world.nodes[1].memory.bytes(write).iter().all(|byte| *byte == 0));
        assert!(world.nodes[0].memory.bytes(own).iter().all(|byte| *byte == 9));
        assert_eq!(world.nodes[0].rma.outstanding(), 0);
    }
}

/// MEM-1.3, MEM-3.6: an empty range lies at the end, but not behind it.
#[test]
fn empty_ranges() {
    let mut world = World::new(2);
    let slot = world.region(1, 5, 16);
    let signal = Some(Signal { key: 5, offset: 0, add: 2 });
    assert_eq!(world.put(5, 16, vec![], signal), done(OperationValue::Nothing));
    assert_eq!(world.nodes[1].memory.word(slot, 0), 2);
    assert_eq!(world.put(5, 17, vec![], signal), refused(Refusal::OutOfBounds));
    assert_eq!(world.nodes[1].memory.word(slot, 0), 2);
    let own = world.nodes[0].memory.add(9, Rights::NONE, vec![]);
    assert_eq!(
        world.get(5, 16, Segment { region: own, offset: 0, len: 0 }),
        done(OperationValue::Nothing)
    );
}

/// MEM-5.1, 5.3.
#[test]
fn misaligned_words() {
    let mut world = World::new(2);
    let slot = world.region(1, 5, 64);
    for offset in [1, 4, 7, 49] {
        assert_eq!(world.atomic(5, offset, AtomicOp::add(1u64)), refused(Refusal::Misaligned));
        let signal = Some(Signal { key: 5, offset, add: 1 });
        assert_eq!(world.put(5, 0, vec![1; 8], signal), refused(Refusal::Misaligned));
    }
    assert_eq!(world.atomic(5, 57, AtomicOp::add(1u64)), refused(Refusal::OutOfBounds));
    assert!(
        world.nodes[1].memory.bytes(slot).iter().all(|byte| *byte == 0),
        "a bad signal keeps the data out, too"
    );
}

/// MEM-3.5: at no step is the signal there and a byte of the data not.
#[test]
fn the_signal_comes_after_the_data() {
    for len in [1, 100, 101, 750] {
        for seed in 1..50 {
            let mut world = World::new(2);
            let (data, word) = (world.region(1, 5, 1000), world.region(1, 6, 8));
            let signal = Some(Signal { key: 6, offset: 0, add: 3 });
            let message =
                world.nodes[0].rma.put(5, 0, Body::Inline(vec![1; len]), signal, T).unwrap();
            world.post(0, 1, message);
            for step in 0u64.. {
                let more = world.step(seed * 1_000_003 + step * 7919);
                let raised = world.nodes[1].memory.word(word, 0);
                let whole = world.nodes[1].memory.bytes(data)[..len].iter().all(|byte| *byte == 1);
                assert!(raised == 0 || whole, "signalled before the data");
                if !more {
                    assert_eq!(raised, 3, "exactly once");
                    break;
                }
            }
        }
    }
}

/// MEM-7.1: at no step is a get done and a byte of it not there.
#[test]
fn a_get_is_not_done_before_its_bytes_are_there() {
    for seed in 1..100 {
        let mut world = World::new(2);
        world.nodes[1].memory.add(5, Rights::READ, vec![1; 900]);
        let own = world.nodes[0].memory.add(9, Rights::NONE, vec![0; 900]);
        let message = world.nodes[0]
            .rma
            .get(1, 5, 0, Segment { region: own, offset: 0, len: 900 }, T)
            .unwrap();
        world.post(0, 1, message);
        let mut step = 0;
        while world.take(0).is_empty() {
            step += 1;
            assert!(world.step(seed * 31 + step * 7919), "it ends");
        }
        assert!(world.nodes[0].memory.bytes(own).iter().all(|byte| *byte == 1));
    }
}

/// MEM-6.1, 6.2 and 6.3.
#[test]
fn names_lead_to_regions() {
    let mut world = World::new(2);
    let published = Published { key: 5, len: 64, rights: Rights::READ };
    world.nodes[1].rma.publish("inbox", published).unwrap();
    let mut lookup = |name: &str| {
        let message = world.nodes[0].rma.lookup(1, name, T).unwrap();
        world.post(0, 1, message);
        world.run(5);
        world.take(0)
    };
    assert_eq!(lookup("inbox"), done(OperationValue::Found(published)));
    let missing = |there: &[&str]| {
        let there: Vec<String> = there.iter().map(|name| name.to_string()).collect();
        failed(RmaError::UnknownName {
            node: 1,
            name: "outbox".into(),
            count: there.len() as u32,
            there,
        })
    };
    assert_eq!(lookup("outbox"), missing(&["inbox"]));
    assert_eq!(world.nodes[1].rma.withdraw("inbox"), Some(published));
    assert_eq!(world.nodes[1].rma.withdraw("inbox"), None);
    let message = world.nodes[0].rma.lookup(1, "outbox", T).unwrap();
    world.post(0, 1, message);
    world.run(5);
    assert_eq!(world.take(0), missing(&[]));
}

#[test]
fn an_unknown_name_is_explained() {
    let error = |there: &[&str], count| {
        let there = there.iter().map(|name| name.to_string()).collect();
        RmaError::UnknownName { node: 3, name: "x".into(), there, count }.to_string()
    };
    assert!(error(&[], 0).contains("it has published nothing at all"));
    assert!(error(&["a", "b"], 2).contains("it has \"a\", \"b\"."));
    assert!(error(&["a", "b"], 7).contains("it has \"a\", \"b\" and 5 more"));
}

/// MEM-8.1.
#[test]
fn messages_are_handed_up_whole() {
    for (class, len) in [
        (Class::Ordered, 0),
        (Class::Unordered, 100),
        (Class::Sync, 1000),
        (Class::Unordered, 1000),
    ] {
        let mut world = World::new(2);
        let message = Rma::user(class, 99, Body::Inline(pattern(len)), T).unwrap();
        assert_eq!(message.charge, Charge::Body);
        world.post(0, 1, message);
        world.run(1);
        assert_eq!(world.take(0), done(OperationValue::Nothing));
        assert_eq!(
            world.take(1),
            vec![RmaEvent::Arrived { from: 0, class, tag: 99, body: pattern(len) }]
        );
    }
}

/// MEM-7.4, and no event twice whatever comes first.
#[test]
fn a_dead_peer_fails_what_waits_for_it() {
    for wind_first in [false, true] {
        let mut world = World::new(2);
        world.region(1, 5, 64);
        let rma = &mut world.nodes[0].rma;
        let _unsettled = rma.atomic(1, 5, 0, AtomicOp::add(1u64), T).unwrap();
        let _settled = rma.atomic(1, 5, 0, AtomicOp::add(1u64), Token(8)).unwrap();
        let _other = rma.atomic(2, 5, 0, AtomicOp::add(1u64), Token(9)).unwrap();
        let _put = rma.put(5, 0, Body::Empty, None, Token(10)).unwrap();
        rma.acknowledged(Token(8));
        if !wind_first {
            rma.abandon(1);
            rma.node_died(1);
        }
        rma.failed(T, 1);
        rma.failed(Token(10), 1);
        rma.node_died(1);
        let mut tokens: Vec<u64> = std::iter::from_fn(|| rma.poll_event())
            .map(|event| match event {
                RmaEvent::Failed { token, error: RmaError::PeerDead(1) } => token.0,
                other => panic!("{other:?}"),
            })
            .collect();
        tokens.sort_unstable();
        assert_eq!(tokens, [7, 8, 10]);
        assert_eq!(rma.outstanding(), 1, "the one that waits for another node");
    }
}

#[test]
fn a_message_that_was_never_posted_is_forgotten() {
    let mut rma = Rma::new();
    let message = rma.get(1, 5, 0, Segment { region: 0, offset: 0, len: 8 }, T).unwrap();
    assert_eq!(
        rma.get(1, 5, 0, Segment { region: 0, offset: 0, len: 8 }, T),
        Err(RmaError::BadToken(T))
    );
    rma.unposted(&message);
    assert_eq!((rma.outstanding(), rma.poll_event()), (0, None));
    assert!(rma.get(1, 5, 0, Segment { region: 0, offset: 0, len: 8 }, T).is_ok());
}
