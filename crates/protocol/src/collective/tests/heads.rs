//! Heads of parcels.

use super::super::*;
use crate::bytes::ByteReader;
use crate::limits::HEAD_MAX;
use crate::rma::{MessageKind, kind};
use proptest::prelude::*;
use std::format;
use std::string::ToString;

fn call() -> impl Strategy<Value = CollectiveCall> {
    (1..=11u8, any::<bool>(), 0..=12u8, any::<(u32, u32, u32)>(), prop::option::of(0..u64::MAX))
        .prop_map(|(kind, uneven, operator, (name, size, root), count)| CollectiveCall {
            kind: CollectiveKind::from_code(kind).unwrap(),
            uneven,
            element: ElementCode { name, size },
            operator: Operator::from_code(operator).unwrap(),
            root,
            count,
        })
}

proptest! {
    /// COLL-1.2.
    #[test]
    fn heads_are_read_as_written(
        call in call(),
        purpose in 0..7u8,
        (team, number, round) in any::<(u64, u64, u32)>(),
    ) {
        let purpose = ParcelPurpose::from_code(purpose).unwrap();
        let head = ParcelHead { purpose, team, number, round, call };
        let bytes = head.encode();
        prop_assert_eq!((bytes.len(), kind(&bytes)), (PARCEL_HEAD, MessageKind::Parcel));
        let mut reader = ByteReader(&bytes[1..]);
        prop_assert_eq!(ParcelHead::read(&mut reader), Ok(head));
        prop_assert!(reader.end().is_ok());
    }

    /// COLL-1.2: any bytes are judged, and what is accepted has one encoding.
    #[test]
    fn any_bytes_are_judged(bytes in prop::collection::vec(any::<u8>(), 0..HEAD_MAX)) {
        let mut reader = ByteReader(&bytes);
        if let Ok(head) = ParcelHead::read(&mut reader) {
            prop_assert_eq!(&head.encode()[1..], &bytes[..PARCEL_HEAD - 1]);
        }
    }
}

/// COLL-3.8: calls with other texts do not fit together, and no text is as none.
#[test]
fn calls_of_other_meanings_contradict() {
    let of = |meaning| CollectiveCall {
        kind: CollectiveKind::AllGather,
        uneven: false,
        element: ElementCode::new("f64", 8).with_meaning(meaning),
        operator: Operator::None,
        root: 0,
        count: Some(6),
    };
    let grid = of(ElementCode::meaning("(2, 3)"));
    assert!(!grid.contradicts(&of(ElementCode::meaning("(2, 3)"))));
    assert!(grid.contradicts(&of(ElementCode::meaning("(3, 2)"))));
    assert!(grid.contradicts(&of(0)));
    assert_eq!(of(0).element, ElementCode::new("f64", 8));
}

/// COLL-3.1.
#[test]
fn calls_are_compared_and_named() {
    let call = CollectiveCall {
        kind: CollectiveKind::Broadcast,
        uneven: false,
        element: ElementCode::new("u64", 8),
        operator: Operator::None,
        root: 1,
        count: Some(5),
    };
    assert!(!call.contradicts(&CollectiveCall { count: None, ..call }));
    assert!(call.contradicts(&CollectiveCall { count: Some(6), ..call }));
    assert!(call.contradicts(&CollectiveCall { root: 0, ..call }));
    assert!(call.contradicts(&CollectiveCall { element: ElementCode::new("i64", 8), ..call }));
    let names = |code| (code == ElementCode::new("u64", 8)).then_some("u64");
    assert_eq!(call.named(names).to_string(), "broadcast of 5 u64 with root 1");
    let reduce =
        CollectiveCall { kind: CollectiveKind::AllReduce, operator: Operator::Sum, ..call };
    assert_eq!(reduce.named(names).to_string(), "all_reduce of 5 u64 with Sum");
    let unknown = call.named(|_| None).to_string();
    let number = format!("{:08x}", call.element.name);
    assert_eq!(unknown, format!("broadcast of 5 × 8 bytes (type {number}) with root 1"));
}
