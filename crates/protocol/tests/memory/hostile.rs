//! Messages that a broken or evil peer can send, and memory that goes away: MEM-3.4, MEM-4,
//! MEM-9.2.

use super::vectors::Vectors;
use super::world::{FRAGMENT, World};
use oikaze_protocol::limits::WRONG_KEYS_MAX;
use oikaze_protocol::rma::{
    AtomicOp, Operation, Published, Rights, Rma, RmaError, RmaEvent, TicketId,
};
use oikaze_protocol::wind::{Admission, Body, Class, Delivered, Message, Refusal, Segment, Token};
use proptest::prelude::*;

const T: Token = Token(7);

fn ticket_of(message: &Message) -> TicketId {
    match Operation::decode(&message.head) {
        Some(
            Operation::Get { ticket, .. }
            | Operation::Atomic { ticket, .. }
            | Operation::Lookup { ticket },
        ) => ticket,
        other => panic!("not a request: {other:?}"),
    }
}

/// A requester with a destination of 400 bytes of which a get fills the middle 300, and the ticket
/// of that get.
fn waiting() -> (Rma, Vectors, u32, TicketId) {
    let (mut rma, mut memory) = (Rma::new(), Vectors::default());
    let own = memory.add(9, Rights::NONE, vec![0; 400]);
    let message = rma.get(1, 5, 0, Segment { region: own, offset: 50, len: 300 }, T).unwrap();
    (rma, memory, own, ticket_of(&message))
}

fn data(ticket: TicketId) -> oikaze_protocol::wind::Head {
    Operation::Data { ticket }.encode()
}

/// MEM-4.3: another node, another serial, another token (MEM-4.2).
#[test]
fn a_forged_answer_places_nothing() {
    let (mut rma, mut memory, own, ticket) = waiting();
    let forged = [
        (2, ticket),
        (1, TicketId { serial: ticket.serial + 1, ..ticket }),
        (1, TicketId { token: 8, ..ticket }),
        (1, TicketId::NONE),
    ];
    for (number, (from, forged)) in forged.into_iter().enumerate() {
        let (number, head) = (number as u64, data(forged));
        let admission = rma.admit(from, number, Class::Unordered, &head, 300, &mut memory);
        assert_eq!(admission, Admission::Refuse(Refusal::NotAsked));
        rma.place(from, number, 0, &[1; 300], &mut memory);
        let placed =
            rma.deliver(from, number, Class::Unordered, &head, Delivered::Placed(300), &mut memory);
        assert_eq!(placed, Err(Refusal::NotAsked));
        let whole = rma.deliver(
            from,
            number,
            Class::Unordered,
            &head,
            Delivered::Bytes(&[1; 300]),
            &mut memory,
        );
        assert_eq!(whole, Err(Refusal::NotAsked));
    }
    assert!(memory.bytes(own).iter().all(|byte| *byte == 0));
    assert_eq!(rma.poll_event(), None, "the request still waits for its true answer");
    rma.deliver(1, 9, Class::Unordered, &data(ticket), Delivered::Bytes(&[2; 300]), &mut memory)
        .unwrap();
    assert!(matches!(rma.poll_event(), Some(RmaEvent::Done { .. })));
}

/// MEM-4.3: the second of two answers, begun at the same time.
#[test]
fn only_the_first_answer_counts() {
    let (mut rma, mut memory, own, ticket) = waiting();
    let head = data(ticket);
    assert_eq!(rma.admit(1, 1, Class::Unordered, &head, 300, &mut memory), Admission::Place);
    assert_eq!(
        rma.admit(1, 2, Class::Unordered, &head, 300, &mut memory),
        Admission::Refuse(Refusal::NotAsked)
    );
    let second =
        rma.deliver(1, 3, Class::Unordered, &head, Delivered::Bytes(&[2; 300]), &mut memory);
    assert_eq!(second, Err(Refusal::NotAsked));
    rma.place(1, 2, 0, &[2; 300], &mut memory);
    rma.place(1, 1, 0, &[1; 300], &mut memory);
    rma.deliver(1, 1, Class::Unordered, &head, Delivered::Placed(300), &mut memory).unwrap();
    assert_eq!(&memory.bytes(own)[50..350], [1; 300]);
    rma.acknowledged(T);
    let after =
        rma.deliver(1, 4, Class::Unordered, &head, Delivered::Bytes(&[2; 300]), &mut memory);
    assert_eq!(after, Err(Refusal::NotAsked));
    assert_eq!(rma.outstanding(), 0);
}

/// MEM-4.4.
#[test]
fn a_wrong_answer_ends_the_request() {
    type Wrong = fn(TicketId) -> (Operation, Vec<u8>);
    let wrong: [Wrong; 6] = [
        |ticket| (Operation::Data { ticket }, vec![1; 299]),
        |ticket| (Operation::Data { ticket }, vec![1; 301]),
        |ticket| (Operation::Data { ticket }, vec![]),
        |ticket| (Operation::Old { ticket, old: 1 }, vec![]),
        |ticket| {
            (
                Operation::Found {
                    ticket,
                    published: Published { key: 1, len: 1, rights: Rights::ALL },
                },
                vec![],
            )
        },
        |ticket| (Operation::Missing { ticket, count: 0 }, vec![]),
    ];
    for wrong in wrong {
        let (mut rma, mut memory, own, ticket) = waiting();
        let (operation, body) = wrong(ticket);
        let body = Delivered::Bytes(&body);
        let result = rma.deliver(1, 1, Class::Unordered, &operation.encode(), body, &mut memory);
        assert_eq!(result, Err(Refusal::Malformed));
        let expected = RmaEvent::Failed { token: T, error: RmaError::BadAnswer(1) };
        assert_eq!(rma.poll_event(), Some(expected));
        rma.acknowledged(T);
        assert_eq!((rma.poll_event(), rma.outstanding()), (None, 0));
        assert!(memory.bytes(own).iter().all(|byte| *byte == 0));
    }
}

/// MEM-2.2, MEM-4.4: the old value of a 32-bit word has no more bits than that.
#[test]
fn an_old_value_wider_than_its_word() {
    let (mut rma, mut memory) = (Rma::new(), Vectors::default());
    let ticket = ticket_of(&rma.atomic(1, 5, 0, AtomicOp::add(1u32), T).unwrap());
    let old = Operation::Old { ticket, old: 1 << 32 }.encode();
    let result = rma.deliver(1, 1, Class::Unordered, &old, Delivered::Bytes(&[]), &mut memory);
    assert_eq!(result, Err(Refusal::Malformed));
    assert_eq!(
        rma.poll_event(),
        Some(RmaEvent::Failed { token: T, error: RmaError::BadAnswer(1) })
    );
}

/// MEM-3.3, MEM-4.3: fragments that stick out of what was admitted, at either end of the
/// arithmetic.
#[test]
fn fragments_outside_the_transfer_are_ignored() {
    let (mut rma, mut memory, own, ticket) = waiting();
    let region = memory.add(5, Rights::WRITE, vec![0; 1000]);
    assert_eq!(
        rma.admit(1, 1, Class::Unordered, &data(ticket), 300, &mut memory),
        Admission::Place
    );
    let put = Operation::Put { key: 5, offset: 500, signal: None }.encode();
    assert_eq!(rma.admit(1, 2, Class::Unordered, &put, 300, &mut memory), Admission::Place);
    for number in [1, 2, 3] {
        for start in [201, 300, 301, u64::MAX - 99, u64::MAX] {
            rma.place(1, number, start, &[1; 100], &mut memory);
            rma.place(2, number, 0, &[1; 100], &mut memory);
        }
    }
    assert!(memory.bytes(own).iter().chain(memory.bytes(region)).all(|byte| *byte == 0));
}

/// MEM-1.16: whoever guesses keys is refused even the right one, for puts, gets and long puts
/// alike. Asking again and again for regions that have ended is not guessing, and others go on.
#[test]
fn peer_that_guesses_keys_loses_the_right_to_ask() {
    let (mut rma, mut memory) = (Rma::new(), Vectors::default());
    memory.add(5, Rights::ALL, vec![0; 100]);
    let ended = memory.add(6, Rights::ALL, vec![0; 100]);
    memory.remove(ended);
    let put = |rma: &mut Rma, memory: &mut Vectors, from, key, number| {
        let head = Operation::Put { key, offset: 0, signal: None }.encode();
        rma.deliver(from, number, Class::Unordered, &head, Delivered::Bytes(&[1]), memory)
    };
    for number in 0..1000 {
        assert_eq!(put(&mut rma, &mut memory, 1, 6, number), Err(Refusal::UnknownKey));
    }
    for number in 1000..2000 {
        assert_eq!(put(&mut rma, &mut memory, 1, 99, number), Err(Refusal::UnknownKey), "one key");
    }
    assert_eq!(put(&mut rma, &mut memory, 1, 5, 2000), Ok(()));
    for key in 100..100 + WRONG_KEYS_MAX as u64 {
        assert_eq!(put(&mut rma, &mut memory, 1, key, 2000 + key), Err(Refusal::UnknownKey));
    }
    for key in [5, 6, 99, 1000] {
        assert_eq!(put(&mut rma, &mut memory, 1, key, 10_000 + key), Err(Refusal::Barred));
        let head = Operation::Put { key, offset: 0, signal: None }.encode();
        let admission = rma.admit(1, 20_000 + key, Class::Unordered, &head, 90, &mut memory);
        assert_eq!(admission, Admission::Refuse(Refusal::Barred));
        let ticket = TicketId { token: 1, serial: 1 };
        let head = Operation::Get { ticket, key, offset: 0, len: 8 }.encode();
        let got =
            rma.deliver(1, 5000 + key, Class::Unordered, &head, Delivered::Bytes(&[]), &mut memory);
        assert_eq!(got, Err(Refusal::Barred));
    }
    assert_eq!(put(&mut rma, &mut memory, 2, 5, 1), Ok(()), "others");
    // Messages name no key.
    let head = Operation::User { tag: 1 }.encode();
    let sent = rma.deliver(1, 9000, Class::Ordered, &head, Delivered::Bytes(b"x"), &mut memory);
    assert_eq!(sent, Ok(()));
    // Another process at this rank has guessed nothing.
    rma.abandon(1);
    assert_eq!(put(&mut rma, &mut memory, 1, 5, 1), Ok(()));
}

/// MEM-3.4: the region goes, and another takes its slot.
#[test]
fn a_region_removed_in_the_middle_of_a_put() {
    for successor in [false, true] {
        let mut world = World::new(2);
        let slot = world.region(1, 5, 1000);
        let message = world.nodes[0].rma.put(5, 0, Body::Inline(vec![1; 1000]), None, T).unwrap();
        world.post(0, 1, message);
        for step in 0..4 {
            assert!(world.step(step));
        }
        let placed = world.nodes[1].memory.bytes(slot).iter().filter(|byte| **byte == 1).count();
        assert_eq!(placed as u64, 3 * FRAGMENT);
        world.nodes[1].memory.remove(slot);
        if successor {
            assert_eq!(world.nodes[1].memory.add(6, Rights::ALL, vec![0; 1000]), slot);
        }
        world.run(3);
        let expected = RmaEvent::Failed { token: T, error: RmaError::Refused(Refusal::UnknownKey) };
        assert_eq!(world.take(0), vec![expected]);
        if successor {
            assert!(world.nodes[1].memory.bytes(slot).iter().all(|byte| *byte == 0));
        }
    }
}

/// The destination of a get goes away in the middle of its answer.
#[test]
fn a_destination_removed_in_the_middle_of_a_get() {
    let (mut rma, mut memory, own, ticket) = waiting();
    let head = data(ticket);
    assert_eq!(rma.admit(1, 1, Class::Unordered, &head, 300, &mut memory), Admission::Place);
    memory.remove(own);
    rma.place(1, 1, 0, &[1; 300], &mut memory);
    assert_eq!(memory.ignored, 1);
    let result = rma.deliver(1, 1, Class::Unordered, &head, Delivered::Placed(300), &mut memory);
    assert_eq!(result, Err(Refusal::NotAsked));
    assert_eq!(
        rma.poll_event(),
        Some(RmaEvent::Failed { token: T, error: RmaError::DestinationGone })
    );
}

/// MEM-4.5: cancelled before, and in the middle of, its answer; the destination's slot is another's
/// by then.
#[test]
fn nothing_is_placed_for_a_cancelled_get() {
    for begun in [false, true] {
        let (mut rma, mut memory, own, ticket) = waiting();
        let head = data(ticket);
        if begun {
            assert_eq!(
                rma.admit(1, 1, Class::Unordered, &head, 300, &mut memory),
                Admission::Place
            );
        }
        assert!(rma.cancel(T));
        assert!(!rma.cancel(T), "once");
        memory.remove(own);
        assert_eq!(memory.add(6, Rights::ALL, vec![0; 400]), own);
        if !begun {
            let admission = rma.admit(1, 1, Class::Unordered, &head, 300, &mut memory);
            assert_eq!(admission, Admission::Refuse(Refusal::NotAsked));
        }
        rma.place(1, 1, 0, &[1; 300], &mut memory);
        let result =
            rma.deliver(1, 1, Class::Unordered, &head, Delivered::Placed(300), &mut memory);
        assert_eq!(result, Err(Refusal::NotAsked));
        assert!(memory.bytes(own).iter().all(|byte| *byte == 0));
        assert_eq!(
            rma.poll_event(),
            Some(RmaEvent::Failed { token: T, error: RmaError::Cancelled })
        );
        assert_eq!((rma.poll_event(), rma.outstanding()), (None, 0));
    }
}

/// MEM-4.6, MEM-7.5: the region that a get reads from goes away in the middle of the answer.
#[test]
fn a_source_removed_in_the_middle_of_a_get() {
    for withdrawn_first in [false, true] {
        let (mut rma, mut memory, own, ticket) = waiting();
        let head = data(ticket);
        let gone = Operation::Gone { ticket, refusal: Refusal::UnknownKey }.encode();
        assert_eq!(rma.admit(1, 1, Class::Unordered, &head, 300, &mut memory), Admission::Place);
        if withdrawn_first {
            rma.withdrawn(1, 1);
        }
        let forged = rma.deliver(2, 2, Class::Unordered, &gone, Delivered::Bytes(&[]), &mut memory);
        assert_eq!(forged, Err(Refusal::NotAsked));
        rma.deliver(1, 2, Class::Unordered, &gone, Delivered::Bytes(&[]), &mut memory).unwrap();
        rma.place(1, 1, 0, &[1; 300], &mut memory);
        assert!(memory.bytes(own).iter().all(|byte| *byte == 0));
        let expected = RmaEvent::Failed { token: T, error: RmaError::Refused(Refusal::UnknownKey) };
        assert_eq!(rma.poll_event(), Some(expected));
    }
}

/// MEM-7.5.
#[test]
fn a_withdrawn_put_is_forgotten() {
    let (mut rma, mut memory) = (Rma::new(), Vectors::default());
    let region = memory.add(5, Rights::WRITE, vec![0; 1000]);
    let put = Operation::Put { key: 5, offset: 0, signal: None }.encode();
    assert_eq!(rma.admit(1, 1, Class::Unordered, &put, 300, &mut memory), Admission::Place);
    rma.withdrawn(1, 1);
    rma.withdrawn(1, 2);
    rma.place(1, 1, 0, &[1; 300], &mut memory);
    assert!(memory.bytes(region).iter().all(|byte| *byte == 0));
}

/// MEM-2.3, MEM-2.4.
#[test]
fn bodies_where_none_belongs_and_fragments_of_the_wrong_class() {
    let (mut rma, mut memory, _, ticket) = waiting();
    memory.add(5, Rights::ALL, vec![0; 1000]);
    let atomic = Operation::Atomic { ticket, key: 5, offset: 0, op: AtomicOp::add(1u64) };
    let bodiless = [
        atomic,
        Operation::Get { ticket, key: 5, offset: 0, len: 8 },
        Operation::Old { ticket, old: 0 },
        Operation::Found { ticket, published: Published { key: 1, len: 1, rights: Rights::ALL } },
    ];
    for operation in bodiless {
        let head = operation.encode();
        let result =
            rma.deliver(1, 1, Class::Unordered, &head, Delivered::Bytes(&[0]), &mut memory);
        assert_eq!(result, Err(Refusal::Malformed));
        let admission = rma.admit(1, 2, Class::Unordered, &head, 5000, &mut memory);
        assert_eq!(admission, Admission::Refuse(Refusal::Malformed));
    }
    let put = Operation::Put { key: 5, offset: 0, signal: None };
    for operation in [put, Operation::Data { ticket }] {
        let admission = rma.admit(1, 3, Class::Ordered, &operation.encode(), 300, &mut memory);
        assert_eq!(admission, Admission::Refuse(Refusal::Malformed));
    }
    let never_admitted =
        rma.deliver(1, 4, Class::Unordered, &put.encode(), Delivered::Placed(300), &mut memory);
    assert_eq!(never_admitted, Err(Refusal::Malformed));
    assert_eq!((rma.answers(), rma.poll_event()), (0, None));
}

/// MEM-6.4: a list of names that is cut off, too long, or not UTF-8.
#[test]
fn a_garbled_list_of_names() {
    let lists: [(&[u8], &[&str]); 5] = [
        (b"\x01a\x02bc", &["a", "bc"]),
        (b"\x01a\x05bc", &["a"]),
        (b"\x01a\x00\x01b", &["a"]),
        (b"\x01a\x01\xFF", &["a"]),
        (b"\xFF", &[]),
    ];
    for (list, expected) in lists {
        let (mut rma, mut memory) = (Rma::new(), Vectors::default());
        let ticket = ticket_of(&rma.lookup(1, "x", T).unwrap());
        let head = Operation::Missing { ticket, count: 2 }.encode();
        rma.deliver(1, 1, Class::Unordered, &head, Delivered::Bytes(list), &mut memory).unwrap();
        match rma.poll_event() {
            Some(RmaEvent::Failed { error: RmaError::UnknownName { there, .. }, .. }) => {
                assert_eq!(there, expected)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Bytes of nearly valid messages, so that more than the first check is reached.
fn nearly() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop::sample::select(vec![
        1u8, 2, 3, 4, 5, 6, 7, 0x10, 0x20, 0x81, 0x82, 0x83, 0x84, 0x85, 0x77,
    ]);
    let word = prop_oneof![
        prop::sample::select(vec![
            0u64,
            1,
            5,
            7,
            8,
            9,
            50,
            300,
            399,
            400,
            1000,
            u64::MAX,
            u64::MAX - 7
        ]),
        any::<u64>()
    ];
    (kind, prop::collection::vec(word, 0..8), prop::collection::vec(any::<u8>(), 0..3)).prop_map(
        |(kind, words, rest)| {
            let mut head = vec![kind];
            words.iter().for_each(|word| head.extend(word.to_le_bytes()));
            head.extend(rest);
            head.truncate(64);
            head
        },
    )
}

proptest! {
    /// MEM-9.2: whatever comes in whatever order, nothing panics, and what grants no right stays as
    /// it is (MEM-1.1).
    #[test]
    fn noise_harms_nothing(
        messages in prop::collection::vec((nearly(), 0..4u64, 0..3u32, 0..500u64, 0..6u8, any::<u64>()), 1..40)
    ) {
        let (mut rma, mut memory, own, _) = waiting();
        let secret = memory.add(1, Rights::NONE, vec![7; 400]);
        let read_only = memory.add(8, Rights::READ, vec![7; 400]);
        memory.add(5, Rights::ALL, vec![0; 1000]);
        for (head, number, from, len, what, start) in messages {
            let body = vec![1; len as usize];
            let class = if what == 5 { Class::Ordered } else { Class::Unordered };
            match what {
                0 => { let _ = rma.admit(from, number, class, &head, len, &mut memory); }
                1 => rma.place(from, number, start, &body, &mut memory),
                2 => rma.place(from, number, start % 512, &body, &mut memory),
                3 => { let _ = rma.deliver(from, number, class, &head, Delivered::Placed(len), &mut memory); }
                _ => { let _ = rma.deliver(from, number, class, &head, Delivered::Owned(body), &mut memory); }
            }
        }
        prop_assert!(memory.bytes(secret).iter().all(|byte| *byte == 7));
        prop_assert!(memory.bytes(read_only).iter().all(|byte| *byte == 7));
        let own = memory.bytes(own);
        prop_assert!(own[..50].iter().chain(&own[350..]).all(|byte| *byte == 0), "outside the destination");
        prop_assert_eq!(memory.ignored, 0, "nothing was written that had not been checked");
    }
}

/// Two nodes and a third that answers in the place of the second, all through the pipe.
#[test]
fn an_impostor_in_the_middle_of_a_get() {
    let mut world = World::new(3);
    world.nodes[1].memory.add(5, Rights::READ, vec![1; 900]);
    let own = world.nodes[0].memory.add(9, Rights::NONE, vec![0; 900]);
    let message =
        world.nodes[0].rma.get(1, 5, 0, Segment { region: own, offset: 0, len: 900 }, T).unwrap();
    let ticket = ticket_of(&message);
    world.post(0, 1, message);
    world.forge(2, 0, Operation::Data { ticket }, Body::Inline(vec![2; 900]));
    world.run(17);
    assert!(world.nodes[0].memory.bytes(own).iter().all(|byte| *byte == 1));
    assert!(matches!(world.take(0)[..], [RmaEvent::Done { token: T, .. }]));
}
