//! Heads: MEM-2.

use super::vectors::{any_accumulation, any_atomic};
use oikaze_protocol::block::Block;
use oikaze_protocol::collective::{
    CollectiveCall, CollectiveKind, ElementCode, Operator, ParcelHead, ParcelPurpose,
};
use oikaze_protocol::limits::{BODY_MAX, HEAD_MAX, STRIDE_MAX};
use oikaze_protocol::rma::{
    Accumulation, AtomicOp, Combine, MessageKind, NumberKind, Operation, Published, Rights, Signal,
    TicketId, kind,
};
use oikaze_protocol::wind::Refusal;
use proptest::prelude::*;

fn ticket() -> impl Strategy<Value = TicketId> {
    (any::<u64>(), 1..=u64::MAX).prop_map(|(token, serial)| TicketId { token, serial })
}

fn signal() -> impl Strategy<Value = Option<Signal>> {
    proptest::option::of(any::<(u64, u64, u64)>().prop_map(|(key, offset, add)| Signal {
        key,
        offset,
        add,
    }))
}

fn block() -> impl Strategy<Value = Block> {
    let counts = (1..=u32::MAX, 1..200u32, 1..40u32);
    (0..=STRIDE_MAX, counts, 0..=STRIDE_MAX, 0..=STRIDE_MAX).prop_map(
        |(offset, (row, rows, planes), row_stride, plane_stride)| {
            Block {
                offset,
                row: row.min((BODY_MAX / 8000) as u32),
                rows,
                planes,
                row_stride,
                plane_stride,
            }
            .tidy()
        },
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (any::<(u64, u64)>(), signal()).prop_map(|((key, offset), signal)| Operation::Put {
            key,
            offset,
            signal
        }),
        (any::<u64>(), block(), signal()).prop_map(|(key, block, signal)| Operation::PutBlock {
            key,
            block,
            signal
        }),
        (ticket(), any::<u64>(), block()).prop_map(|(ticket, key, block)| Operation::GetBlock {
            ticket,
            key,
            block
        }),
        (ticket(), any::<(u64, u64, u64)>())
            .prop_map(|(ticket, (key, offset, len))| Operation::Get { ticket, key, offset, len }),
        (prop_oneof![ticket(), Just(TicketId::NONE)], any::<(u64, u64)>(), any_atomic())
            .prop_map(|(ticket, (key, offset), op)| Operation::Atomic { ticket, key, offset, op }),
        ticket().prop_map(|ticket| Operation::Lookup { ticket }),
        any::<(u64, u64)>().prop_map(|(key, offset)| Operation::Push { key, offset }),
        (any::<(u64, u64)>(), any_accumulation())
            .prop_map(|((key, offset), how)| Operation::Accumulate { key, offset, how }),
        any::<(u64, u64, u64)>().prop_map(|(key, offset, tag)| Operation::PutNotice {
            key,
            offset,
            tag
        }),
        any::<u64>().prop_map(|tag| Operation::User { tag }),
        (any::<(u64, u64, u32)>(), 0..7u8, prop::option::of(0..u64::MAX)).prop_map(
            |((team, number, round), purpose, count)| {
                let call = CollectiveCall {
                    kind: CollectiveKind::AllReduce,
                    uneven: false,
                    element: ElementCode::new("u64", 8),
                    operator: Operator::Sum,
                    root: 0,
                    count,
                };
                let purpose = ParcelPurpose::from_code(purpose).unwrap();
                Operation::Parcel(ParcelHead { purpose, team, number, round, call })
            }
        ),
        ticket().prop_map(|ticket| Operation::Data { ticket }),
        (ticket(), any::<u64>()).prop_map(|(ticket, old)| Operation::Old { ticket, old }),
        (ticket(), any::<(u64, u64)>(), 0..=15u8).prop_map(|(ticket, (key, len), rights)| {
            Operation::Found { ticket, published: Published { key, len, rights: Rights(rights) } }
        }),
        (ticket(), any::<u32>()).prop_map(|(ticket, count)| Operation::Missing { ticket, count }),
        (ticket(), 1..=12u8).prop_map(|(ticket, code)| Operation::Gone {
            ticket,
            refusal: Refusal::from_code(code).unwrap()
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(operation in operation()) {
        let head = operation.encode();
        prop_assert_ne!(kind(&head), MessageKind::Unknown);
        prop_assert_eq!(Operation::decode(&head), Some(operation));
    }

    /// MEM-2.2: too long or too short by any number of bytes.
    #[test]
    fn another_length_is_malformed(operation in operation(), cut in 0..HEAD_MAX, more in 1..8usize) {
        let head = operation.encode();
        if cut < head.len() {
            prop_assert_eq!(Operation::decode(&head[..cut]), None);
        }
        let mut longer = head.to_vec();
        longer.resize(head.len() + more, 0);
        prop_assert_eq!(Operation::decode(&longer), None);
    }

    /// MEM-2.2: random bytes are refused, or are the one encoding of what they mean.
    #[test]
    fn random_bytes_have_one_meaning_or_none(mut bytes in proptest::collection::vec(any::<u8>(), 0..80), first in 0..21usize) {
        if let Some(byte) = bytes.first_mut() {
            *byte = [1, 2, 3, 4, 5, 0x10, 0x20, 0x81, 0x82, 0x83, 0x84, 0, 6, 0x80, 0xFF, 0x85, 7, 8, 9, 10, 0x11][first];
        }
        if let Some(operation) = Operation::decode(&bytes) {
            prop_assert_eq!(operation.encode().to_vec(), bytes);
        }
    }
}

#[test]
fn coherence_is_passed_on() {
    assert_eq!(kind(&[0x20, 1, 2, 3]), MessageKind::Coherence);
    assert_eq!(Operation::decode(&[0x20, 1, 2, 3]), None);
    assert_eq!(kind(&[]), MessageKind::Unknown);
    assert_eq!(Operation::decode(&[]), None);
}

/// MEM-2.1, to the byte: what another implementation would write.
#[test]
fn a_put_on_the_wire() {
    let head = Operation::Put { key: 0x0102_0304_0506_0708, offset: 9, signal: None }.encode();
    assert_eq!(head.as_slice(), [1, 8, 7, 6, 5, 4, 3, 2, 1, 9, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn bits_that_mean_nothing_are_malformed() {
    let ticket = TicketId { token: 1, serial: 1 };
    let mut head =
        Operation::Atomic { ticket, key: 1, offset: 0, op: AtomicOp::add(1u64) }.encode();
    *head.last_mut().unwrap() = 1;
    assert_eq!(Operation::decode(&head), None, "the second word of a fetch-add");

    let mut head =
        Operation::Atomic { ticket, key: 1, offset: 0, op: AtomicOp::compare_swap(1u32, 2) }
            .encode();
    let at = head.len() - 16;
    for operand in [at, at + 8] {
        head[operand + 4] = 1;
        assert_eq!(Operation::decode(&head), None, "more than 32 bits of an operand");
        head[operand + 4] = 0;
    }
    for number in [0, 11, 0x80, 0x8B] {
        head[at - 1] = number;
        assert_eq!(Operation::decode(&head), None, "operation {number}");
    }
    head[at - 1] = 0x82;
    assert!(Operation::decode(&head).is_some());

    let how = Accumulation { element: NumberKind::F64, combine: Combine::Max };
    let head = Operation::Accumulate { key: 1, offset: 0, how }.encode();
    for (at, byte) in [(17, 0), (17, 7), (18, 0), (18, 4)] {
        let mut head = head.clone();
        head[at] = byte;
        assert_eq!(Operation::decode(&head), None, "no such element or combination");
    }

    let published = Published { key: 1, len: 1, rights: Rights::ALL };
    let mut head = Operation::Found { ticket, published }.encode();
    *head.last_mut().unwrap() = 16;
    assert_eq!(Operation::decode(&head), None, "an unknown right");

    let nobody = TicketId { token: 5, serial: 0 };
    assert_eq!(
        Operation::decode(&Operation::Old { ticket: nobody, old: 0 }.encode()),
        None,
        "a token without a serial"
    );
    let lookup = Operation::Lookup { ticket: TicketId::NONE }.encode();
    assert_eq!(Operation::decode(&lookup), None, "a lookup that nobody waits for");
}
