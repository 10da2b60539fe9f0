//! Bounds of every table: MEM-9.1; and how long the source of an answer must stay: MEM-4.6.

use super::vectors::Vectors;
use oikaze_protocol::limits::{
    ANSWERS_PER_PEER, BODY_MAX, MESSAGE_MAX, NAME_MAX, NAMES_LISTED, NAMES_MAX, TICKETS_MAX,
    TRANSFERS_PER_PEER,
};
use oikaze_protocol::rma::{AtomicOp, Operation, Published, Rights, Rma, RmaError, TicketId};
use oikaze_protocol::wind::{Admission, Body, Class, Delivered, Refusal, Segment, Token};

fn target() -> (Rma, Vectors, u32) {
    let (rma, mut memory) = (Rma::new(), Vectors::default());
    let region = memory.add(5, Rights::ALL, vec![0; 1000]);
    (rma, memory, region)
}

const TICKET: TicketId = TicketId { token: 1, serial: 1 };

#[test]
fn transfers_of_one_peer() {
    let (mut rma, mut memory, _) = target();
    let put = Operation::Put { key: 5, offset: 0, signal: None }.encode();
    for number in 0..TRANSFERS_PER_PEER as u64 {
        assert_eq!(
            rma.admit(1, number, Class::Unordered, &put, 300, &mut memory),
            Admission::Place
        );
    }
    let full = Admission::Refuse(Refusal::NoRoom);
    assert_eq!(rma.admit(1, u64::MAX, Class::Unordered, &put, 300, &mut memory), full);
    assert_eq!(
        rma.admit(2, 1, Class::Unordered, &put, 300, &mut memory),
        Admission::Place,
        "another peer has its own"
    );
    rma.deliver(1, 3, Class::Unordered, &put, Delivered::Placed(300), &mut memory).unwrap();
    assert_eq!(rma.admit(1, u64::MAX, Class::Unordered, &put, 300, &mut memory), Admission::Place);
    rma.abandon(1);
    assert_eq!(
        rma.admit(1, 0, Class::Unordered, &put, 300, &mut memory),
        Admission::Place,
        "forgotten with its peer"
    );
}

/// MEM-1.10, MEM-3.7: whether pages are there is asked of a fragment, not each time of all that
/// will come.
#[test]
fn where_a_fragment_goes_is_asked_of_it_alone() {
    let (mut rma, mut memory, region) = target();
    let put = Operation::Put { key: 5, offset: 100, signal: None }.encode();
    assert_eq!(rma.admit(1, 1, Class::Unordered, &put, 800, &mut memory), Admission::Place);
    memory.most_asked.set(0);
    assert_eq!(rma.place_of(1, 1, 50, 30, &memory), Some(Segment { region, offset: 150, len: 30 }));
    assert_eq!(rma.place_of(1, 1, 790, 11, &memory), None, "past its end");
    rma.place(1, 1, 50, &[7; 30], &mut memory);
    assert_eq!(memory.most_asked.get(), 30);
}

/// MEM-5.3.
#[test]
fn an_atomic_without_room_for_its_answer_does_not_happen() {
    let (mut rma, mut memory, region) = target();
    let head =
        Operation::Atomic { ticket: TICKET, key: 5, offset: 0, op: AtomicOp::add(1u64) }.encode();
    for number in 0..ANSWERS_PER_PEER as u64 {
        rma.deliver(1, number, Class::Unordered, &head, Delivered::Bytes(&[]), &mut memory)
            .unwrap();
    }
    let refused = rma.deliver(1, 0, Class::Unordered, &head, Delivered::Bytes(&[]), &mut memory);
    assert_eq!(refused, Err(Refusal::NoRoom));
    assert_eq!(memory.word(region, 0), ANSWERS_PER_PEER as u64);
    let (to, message) = rma.poll_answer().unwrap();
    rma.deliver(1, 0, Class::Unordered, &head, Delivered::Bytes(&[]), &mut memory).unwrap();
    rma.defer_answer(to, message);
    assert_eq!(rma.answers(), ANSWERS_PER_PEER + 1);
    rma.node_died(1);
    assert_eq!(rma.answers(), 0);
}

#[test]
fn requests_and_lengths() {
    let mut rma = Rma::new();
    for token in 0..TICKETS_MAX as u64 {
        assert!(rma.atomic(1, 5, 0, AtomicOp::add(1u64), Token(token)).is_ok());
    }
    let next = Token(TICKETS_MAX as u64);
    assert_eq!(rma.atomic(1, 5, 0, AtomicOp::add(1u64), next), Err(RmaError::TooMany));
    assert!(
        rma.cancel(Token(0)),
        "and Wind, where its message is cancelled too, tells of it no more"
    );
    assert!(rma.atomic(1, 5, 0, AtomicOp::add(1u64), next).is_ok());

    let long = Segment { region: 0, offset: 0, len: BODY_MAX + 1 };
    let too_long = Err(RmaError::TooLong { len: BODY_MAX + 1, max: BODY_MAX });
    assert_eq!(rma.get(1, 5, 0, long, Token(1 << 40)), too_long);
    assert_eq!(rma.put(5, 0, Body::Segment(long), None, Token::NONE), too_long);
    let long = Body::Segment(Segment { len: MESSAGE_MAX + 1, ..long });
    assert!(matches!(
        Rma::user(Class::Ordered, 0, long, Token::NONE),
        Err(RmaError::TooLong { .. })
    ));
    assert_eq!(rma.lookup(1, "x", Token::NONE), Err(RmaError::BadToken(Token::NONE)));
}

#[test]
fn messages_that_nobody_could_hold() {
    let (mut rma, mut memory, _) = target();
    let user = Operation::User { tag: 0 }.encode();
    let over = rma.admit(1, 1, Class::Ordered, &user, MESSAGE_MAX + 1, &mut memory);
    assert_eq!(over, Admission::Refuse(Refusal::NoRoom));
    let lookup = Operation::Lookup { ticket: TICKET }.encode();
    let over = rma.admit(1, 1, Class::Unordered, &lookup, NAME_MAX as u64 + 1, &mut memory);
    assert_eq!(over, Admission::Refuse(Refusal::Malformed));
    for name in [vec![], vec![b'x'; NAME_MAX + 1]] {
        let result =
            rma.deliver(1, 1, Class::Unordered, &lookup, Delivered::Bytes(&name), &mut memory);
        assert_eq!(result, Err(Refusal::Malformed));
    }
}

#[test]
fn names() {
    let mut rma = Rma::new();
    let published = Published { key: 5, len: 64, rights: Rights::READ };
    for bad in [String::new(), "x".repeat(NAME_MAX + 1)] {
        assert_eq!(rma.publish(&bad, published), Err(RmaError::BadName(bad.clone())));
        assert_eq!(rma.lookup(1, &bad, Token(1)), Err(RmaError::BadName(bad)));
    }
    for number in 0..NAMES_MAX {
        rma.publish(&format!("{number:0NAME_MAX$}"), published).unwrap();
    }
    assert_eq!(rma.publish("one more", published), Err(RmaError::TooManyNames));
    let first = format!("{:0NAME_MAX$}", 0);
    assert_eq!(rma.publish(&first, published), Err(RmaError::NameTaken(first)));

    let mut memory = Vectors::default();
    let lookup = Operation::Lookup { ticket: TICKET }.encode();
    rma.deliver(1, 1, Class::Unordered, &lookup, Delivered::Bytes(b"y"), &mut memory).unwrap();
    let (_, answer) = rma.poll_answer().unwrap();
    assert_eq!(
        answer.body.len() as usize,
        NAMES_LISTED / (NAME_MAX + 1) * (NAME_MAX + 1),
        "as many as fit"
    );
    let count = NAMES_MAX as u32;
    assert_eq!(Operation::decode(&answer.head), Some(Operation::Missing { ticket: TICKET, count }));
}

/// MEM-4.6: the region goes while one answer is with Wind and another still waits; a third peer's
/// get from another region stays.
#[test]
fn a_region_removed_while_it_serves() {
    let (mut rma, mut memory, region) = target();
    let other = memory.add(6, Rights::ALL, vec![0; 1000]);
    let get = |key, serial| {
        let ticket = TicketId { token: 1, serial };
        Operation::Get { ticket, key, offset: 0, len: 1000 }.encode()
    };
    for (from, key, serial) in [(1, 5, 1), (2, 5, 2), (3, 6, 3)] {
        rma.deliver(
            from,
            1,
            Class::Unordered,
            &get(key, serial),
            Delivered::Bytes(&[]),
            &mut memory,
        )
        .unwrap();
    }
    let (_, posted) = rma.poll_answer().unwrap();
    let cancelled = rma.region_removed(region);
    assert!(cancelled.contains(&(1, posted.token)) && cancelled.len() == 2);
    assert!(!rma.is_serving(region) && rma.is_serving(other));
    let answers: Vec<_> = std::iter::from_fn(|| rma.poll_answer()).collect();
    let told = |to, serial| {
        let gone =
            Operation::Gone { ticket: TicketId { token: 1, serial }, refusal: Refusal::UnknownKey };
        answers
            .iter()
            .filter(|(rank, message)| *rank == to && message.head == gone.encode())
            .count()
    };
    assert_eq!(answers.len(), 3, "two are told, the third is served");
    assert_eq!(told(1, 1), 1, "two are told, the third is served");
    assert_eq!(told(2, 2), 1, "two are told, the third is served");
    assert_eq!(rma.region_removed(region), []);
}

/// MEM-4.6, however the answer ends.
#[test]
fn a_region_is_serving_until_its_answers_are_settled() {
    type End = fn(&mut Rma, Rank, Option<oikaze_protocol::wind::Message>);
    type Rank = u32;
    let ends: [End; 5] = [
        |rma, _, answer| rma.acknowledged(answer.unwrap().token),
        |rma, _, answer| rma.refused(answer.unwrap().token, Refusal::NotAsked),
        |rma, to, answer| rma.failed(answer.unwrap().token, to),
        |rma, _, answer| rma.unposted(&answer.unwrap()),
        |rma, to, answer| {
            rma.defer_answer(to, answer.unwrap());
            rma.abandon(to);
        },
    ];
    for end in ends {
        let (mut rma, mut memory, region) = target();
        let small = Operation::Get { ticket: TICKET, key: 5, offset: 0, len: 8 }.encode();
        rma.deliver(1, 1, Class::Unordered, &small, Delivered::Bytes(&[]), &mut memory).unwrap();
        assert!(!rma.is_serving(region), "copied when served");
        assert_eq!(rma.poll_answer().unwrap().1.token, Token::NONE);
        let large = Operation::Get { ticket: TICKET, key: 5, offset: 0, len: 1000 }.encode();
        rma.deliver(1, 2, Class::Unordered, &large, Delivered::Bytes(&[]), &mut memory).unwrap();
        assert!(rma.is_serving(region));
        let (to, answer) = rma.poll_answer().unwrap();
        assert!(Rma::owns(answer.token) && !Rma::owns(Token::NONE) && !Rma::owns(Token(7)));
        end(&mut rma, to, Some(answer));
        assert!(!rma.is_serving(region));
        assert_eq!(rma.poll_event(), None, "the application has nothing to do with it");
    }
}
