//! Accumulates: MEM-12.

use super::vectors::{Vectors, any_accumulation, combine};
use super::world::World;
use oikaze_protocol::limits::CUT_ELEMENTS_PER_PEER;
use oikaze_protocol::random::Random;
use oikaze_protocol::rma::{
    Accumulation, Combine, NumberKind, Operation, OperationValue, Rights, Rma, RmaEvent,
};
use oikaze_protocol::wind::{Admission, Body, Class, Delivered, Refusal, Token};
use proptest::prelude::*;

const SUM: Accumulation = Accumulation { element: NumberKind::U64, combine: Combine::Sum };

fn target() -> (Rma, Vectors, u32) {
    let mut memory = Vectors::default();
    let region = memory.add(5, Rights::ATOMIC, vec![1; 4000]);
    (Rma::new(), memory, region)
}

fn head(offset: u64, how: Accumulation) -> oikaze_protocol::wind::Head {
    Operation::Accumulate { key: 5, offset, how }.encode()
}

fn admit(
    rma: &mut Rma,
    memory: &mut Vectors,
    number: u64,
    offset: u64,
    how: Accumulation,
    len: u64,
) -> Admission {
    rma.admit(1, number, Class::Unordered, &head(offset, how), len, memory)
}

fn finish(
    rma: &mut Rma,
    memory: &mut Vectors,
    number: u64,
    offset: u64,
    how: Accumulation,
    len: u64,
) -> Result<(), Refusal> {
    rma.deliver(1, number, Class::Unordered, &head(offset, how), Delivered::Placed(len), memory)
}

proptest! {
    /// MEM-12.1 and MEM-12.4: cut anywhere, in any order, every element is combined once, and with
    /// its own.
    #[test]
    fn fragments_may_end_in_the_middle_of_an_element(
        how in any_accumulation(), count in 1..60u64, cuts in prop::collection::btree_set(1..480u64, 0..40), seed in any::<u64>()
    ) {
        let (mut rma, mut memory, region) = target();
        let (width, offset) = (how.width().bytes(), 24);
        let len = count * width;
        let body: Vec<u8> = (0..len).map(|at| (at * 37 + seed) as u8 & 0x3F).collect();
        let mut expected = memory.bytes(region).to_vec();
        combine(&mut expected[24..24 + len as usize], how, &body);
        prop_assert_eq!(admit(&mut rma, &mut memory, 1, offset, how, len), Admission::Place);
        let mut edges: Vec<u64> = cuts.into_iter().filter(|cut| *cut < len).collect();
        edges.insert(0, 0);
        edges.push(len);
        let mut pieces: Vec<(u64, u64)> = edges.windows(2).map(|pair| (pair[0], pair[1])).collect();
        let mut random = Random::new(seed);
        while !pieces.is_empty() {
            let (from, to) = pieces.swap_remove(random.below(pieces.len()));
            prop_assert_eq!(rma.place_of(1, 1, from, to - from, &memory), None, "never received directly into its place");
            rma.place(1, 1, from, &body[from as usize..to as usize], &mut memory);
        }
        prop_assert_eq!(finish(&mut rma, &mut memory, 1, offset, how, len), Ok(()));
        prop_assert_eq!(memory.bytes(region), expected);
    }
}

/// MEM-12.2: the body whole or in fragments, everything that can be wrong is found before anything
/// changes.
#[test]
fn what_is_wrong_is_found_before_the_first_element() {
    let narrow = Accumulation { element: NumberKind::F32, combine: Combine::Min };
    let wrong = [
        (4, SUM, 800, Refusal::Misaligned),
        (6, narrow, 800, Refusal::Misaligned),
        (8, SUM, 801, Refusal::Malformed),
        (8, SUM, 804, Refusal::Malformed),
        (8, narrow, 802, Refusal::Malformed),
        (3208, SUM, 800, Refusal::OutOfBounds),
        (4008, SUM, 0, Refusal::OutOfBounds),
        (u64::MAX - 7, SUM, 800, Refusal::OutOfBounds),
        (u64::MAX - 7, SUM, 8, Refusal::OutOfBounds),
    ];
    for (offset, how, len, refusal) in wrong {
        let (mut rma, mut memory, region) = target();
        assert_eq!(
            admit(&mut rma, &mut memory, 1, offset, how, len),
            Admission::Refuse(refusal),
            "{offset} {len}"
        );
        let body = vec![1; len as usize];
        let whole = rma.deliver(
            1,
            2,
            Class::Unordered,
            &head(offset, how),
            Delivered::Bytes(&body),
            &mut memory,
        );
        assert_eq!(whole, Err(refusal));
        assert_eq!(finish(&mut rma, &mut memory, 3, offset, how, len), Err(refusal), "never begun");
        assert_eq!(memory.bytes(region), [1; 4000]);
    }
    let (mut rma, mut memory, region) = target();
    for (key, refusal) in [(6, Refusal::NotPermitted), (7, Refusal::UnknownKey)] {
        memory.add(6, Rights::READ | Rights::WRITE, vec![0; 100]);
        let head = Operation::Accumulate { key, offset: 0, how: SUM }.encode();
        let admission = rma.admit(1, 1, Class::Unordered, &head, 80, &mut memory);
        assert_eq!(admission, Admission::Refuse(refusal));
        assert_eq!(
            rma.deliver(1, 1, Class::Sync, &head, Delivered::Bytes(&[0; 8]), &mut memory),
            Err(refusal)
        );
    }
    let ordered = rma.admit(1, 1, Class::Ordered, &head(0, SUM), 80, &mut memory);
    assert_eq!(ordered, Admission::Refuse(Refusal::Malformed), "MEM-2.4");
    assert_eq!(
        finish(&mut rma, &mut memory, 9, 0, SUM, 80),
        Err(Refusal::Malformed),
        "never begun"
    );
    assert_eq!(memory.bytes(region), [1; 4000]);
}

/// MEM-1.3: of nothing, at the end but not behind it.
#[test]
fn no_elements() {
    let (mut rma, mut memory, region) = target();
    for (offset, result) in [
        (4000, Ok(())),
        (0, Ok(())),
        (4, Err(Refusal::Misaligned)),
        (4008, Err(Refusal::OutOfBounds)),
    ] {
        let head = head(offset, SUM);
        assert_eq!(
            rma.deliver(1, 1, Class::Unordered, &head, Delivered::Bytes(&[]), &mut memory),
            result
        );
    }
    assert_eq!(memory.bytes(region), [1; 4000]);
}

/// MEM-12.5, MEM-3.4: the region goes in the middle, and another takes its slot.
#[test]
fn a_region_removed_in_the_middle() {
    let (mut rma, mut memory, region) = target();
    assert_eq!(admit(&mut rma, &mut memory, 1, 0, SUM, 800), Admission::Place);
    rma.place(1, 1, 0, &[1; 404], &mut memory);
    memory.remove(region);
    assert_eq!(memory.add(6, Rights::ALL, vec![0; 4000]), region);
    rma.place(1, 1, 404, &[1; 396], &mut memory);
    assert_eq!(finish(&mut rma, &mut memory, 1, 0, SUM, 800), Err(Refusal::UnknownKey));
    assert_eq!(memory.bytes(region), [0; 4000]);
}

/// MEM-12.5: what was not combined while it was not permitted is missing in the end, whatever is
/// permitted then.
#[test]
fn a_right_taken_away_and_given_back_in_the_middle() {
    let (mut rma, mut memory, region) = target();
    assert_eq!(admit(&mut rma, &mut memory, 1, 0, SUM, 800), Admission::Place);
    memory.slots[region as usize].as_mut().unwrap().rights = Rights::READ;
    rma.place(1, 1, 0, &[1; 400], &mut memory);
    memory.slots[region as usize].as_mut().unwrap().rights = Rights::ALL;
    rma.place(1, 1, 400, &[1; 400], &mut memory);
    assert_eq!(finish(&mut rma, &mut memory, 1, 0, SUM, 800), Err(Refusal::NotPermitted));
    assert_eq!(&memory.bytes(region)[..400], [1; 400].as_slice());
    assert_eq!(&memory.bytes(region)[400..800], [2; 400].as_slice());
}

/// MEM-9.1: elements of which half has come are bounded for each peer, and forgotten with their
/// message.
#[test]
fn halves_of_elements_are_bounded() {
    let (mut rma, mut memory) = (Rma::new(), Vectors::default());
    let region = memory.add(5, Rights::ALL, vec![0; 8 * CUT_ELEMENTS_PER_PEER]);
    let len = 8 * CUT_ELEMENTS_PER_PEER as u64;
    let all = |rma: &mut Rma, memory: &mut Vectors, number, part: std::ops::Range<u64>| {
        for element in 0..CUT_ELEMENTS_PER_PEER as u64 {
            let bytes = vec![1; (part.end - part.start) as usize];
            rma.place(1, number, element * 8 + part.start, &bytes, memory);
        }
    };
    for number in [1, 2] {
        assert_eq!(admit(&mut rma, &mut memory, number, 0, SUM, len), Admission::Place);
        all(&mut rma, &mut memory, number, 0..3);
    }
    assert!(memory.bytes(region).iter().all(|byte| *byte == 0), "halves change nothing");
    all(&mut rma, &mut memory, 1, 3..8);
    assert_eq!(finish(&mut rma, &mut memory, 1, 0, SUM, len), Ok(()));
    all(&mut rma, &mut memory, 2, 3..8);
    assert_eq!(
        finish(&mut rma, &mut memory, 2, 0, SUM, len),
        Err(Refusal::NoRoom),
        "the second had no room for its halves"
    );
    assert!(memory.bytes(region).iter().all(|byte| *byte == 1), "once");
    // Withdrawn, and forgotten: there is room for another.
    assert_eq!(admit(&mut rma, &mut memory, 3, 0, SUM, len), Admission::Place);
    all(&mut rma, &mut memory, 3, 0..3);
    rma.withdrawn(1, 3);
    rma.place(1, 3, 0, &[1; 8], &mut memory);
    assert_eq!(admit(&mut rma, &mut memory, 4, 0, SUM, len), Admission::Place);
    all(&mut rma, &mut memory, 4, 5..8);
    all(&mut rma, &mut memory, 4, 0..5);
    assert_eq!(finish(&mut rma, &mut memory, 4, 0, SUM, len), Ok(()));
    assert!(memory.bytes(region).iter().all(|byte| *byte == 2));
}

/// MEM-12.1, MEM-12.4: two long ones and atomics to the same elements, through the pipe, all at
/// once.
#[test]
fn sums_meet() {
    for seed in 1..40 {
        let mut world = World::new(2);
        let slot = world.region(1, 5, 800);
        let element: Vec<u8> = 7u64.to_le_bytes().repeat(100);
        for token in 0..3 {
            let message =
                Rma::accumulate(5, 0, SUM, Body::Inline(element.clone()), Token(token)).unwrap();
            world.post(0, 1, message);
        }
        for word in 0..100 {
            let change =
                Rma::change(5, word * 8, oikaze_protocol::rma::AtomicOp::add(word), Token::NONE);
            world.post(0, 1, change);
        }
        world.run(seed);
        let mut done = world.take(0);
        done.sort_by_key(
            |event| if let RmaEvent::Done { token, .. } = event { token.0 } else { u64::MAX },
        );
        assert_eq!(
            done,
            (0..3)
                .map(|t| RmaEvent::Done { token: Token(t), value: OperationValue::Nothing })
                .collect::<Vec<_>>()
        );
        (0..100).for_each(|word| {
            assert_eq!(world.nodes[1].memory.word(slot, word * 8), 21 + word as u64)
        });
    }
}
