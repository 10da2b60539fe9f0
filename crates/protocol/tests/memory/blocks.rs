//! Blocks: MEM-10.1 to 10.5.

use super::world::World;
use oikaze_protocol::block::{BadBlock, Block};
use oikaze_protocol::rma::{
    Destination, Operation, OperationValue, Rights, Rma, RmaError, RmaEvent, Signal, TicketId,
};
use oikaze_protocol::wind::{Admission, Body, Class, Delivered, Refusal, Rows, Segment, Token};
use std::sync::Arc;

const T: Token = Token(7);

fn done() -> Vec<RmaEvent> {
    vec![RmaEvent::Done { token: T, value: OperationValue::Nothing }]
}

fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + 7) as u8).collect()
}

fn packed(bytes: &[u8], block: Block) -> Vec<u8> {
    let all = block.pieces(0, u64::MAX);
    all.flat_map(|piece| bytes[piece.offset as usize..][..piece.len].to_vec()).collect()
}

/// Returns `true` if all bytes outside the block are `canary`.
fn is_around(bytes: &[u8], block: Block, canary: u8) -> bool {
    let pieces = block.pieces(0, u64::MAX);
    let inside: Vec<u64> = pieces.flat_map(|at| at.offset..at.offset + at.len as u64).collect();
    (0..).zip(bytes).filter(|(at, _)| !inside.contains(at)).all(|(_, byte)| *byte == canary)
}

/// MEM-10.1, MEM-10.5: from rows of one shape to rows of another and back, whole and in fragments,
/// with canaries in the gaps.
#[test]
fn rows_go_there_and_come_back() {
    let shapes = [
        (Block::new(3, 10).rows(4, 13).planes(2, 60), Block::new(5, 8).rows(10, 9)),
        (Block::new(0, 100).rows(7, 111), Block::new(1, 700)),
        (Block::new(9, 90).rows(2, 500).planes(5, 95), Block::new(4, 1).rows(900, 2)),
        (Block::new(2, 500), Block::new(0, 250).rows(2, 250)),
    ];
    for (there, here) in shapes {
        for seed in 0..8 {
            let mut world = World::new(2);
            let target = world.nodes[1].memory.add(5, Rights::ALL, vec![0xEE; 2000]);
            let own = world.nodes[0].memory.add(9, Rights::NONE, pattern(2000));
            let body = Body::Rows(Arc::new(Rows { region: own, block: here }));
            let message = world.nodes[0].rma.put_block(5, there, body, None, T).unwrap();
            world.post(0, 1, message);
            world.run(seed);
            assert_eq!(world.take(0), done());
            let bytes = world.nodes[1].memory.bytes(target).to_vec();
            assert_eq!(packed(&bytes, there), packed(&pattern(2000), here));
            assert!(is_around(&bytes, there, 0xEE), "only there");

            let back = world.nodes[0].memory.add(10, Rights::NONE, vec![0xDD; 2000]);
            let into = Destination::Rows(Arc::new(Rows { region: back, block: here }));
            let message = world.nodes[0].rma.get_block(1, 5, there, into, T).unwrap();
            world.post(0, 1, message);
            world.run(seed + 100);
            assert_eq!(world.take(0), done());
            let bytes = world.nodes[0].memory.bytes(back).to_vec();
            assert_eq!(packed(&bytes, here), packed(&pattern(2000), here));
            assert!(is_around(&bytes, here, 0xDD), "only there");
            assert_eq!(world.nodes[0].rma.outstanding(), 0);
            assert!(!world.nodes[1].rma.is_serving(target));
        }
    }
}

/// MEM-10.3: what the requester can see is refused before anything is sent.
#[test]
fn bad_blocks_are_not_sent() {
    let mut rma = Rma::new();
    let body = |len: u64| Body::Inline(vec![0; len as usize]);
    let over = Block::new(0, 10).rows(3, 9);
    assert_eq!(
        rma.put_block(1, over, body(30), None, T),
        Err(RmaError::BadBlock(BadBlock::Overlaps(over)))
    );
    let fine = Block::new(0, 10).rows(3, 11);
    assert_eq!(
        rma.put_block(1, fine, body(29), None, T),
        Err(RmaError::BadBlock(BadBlock::Lengths { there: fine, here: 29 }))
    );
    let into = |block| Destination::Rows(Arc::new(Rows { region: 0, block }));
    assert_eq!(
        rma.get_block(1, 1, fine, into(over), T),
        Err(RmaError::BadBlock(BadBlock::Overlaps(over)))
    );
    let range = Destination::Range(Segment { region: 0, offset: 0, len: 31 });
    assert_eq!(
        rma.get_block(1, 1, fine, range, T),
        Err(RmaError::BadBlock(BadBlock::Lengths { there: fine, here: 31 }))
    );
    assert_eq!(rma.outstanding(), 0);
    assert!(rma.get_block(1, 1, over, into(fine), T).is_ok(), "a source may be read twice");
}

/// MEM-10.2: what no sound requester sends is malformed, and changes nothing.
#[test]
fn hostile_blocks_are_malformed() {
    let fine = Block::new(8, 16).rows(4, 32).planes(2, 256);
    let far = (1 << 48) - 1;
    let malformed = [
        Block::new(8, 0).rows(4, 32),
        fine.rows(0, 32),
        fine.planes(0, 256),
        // Products that overflow, or are longer than any body.
        Block::new(0, u32::MAX).rows(u32::MAX, far).planes(u32::MAX, far),
        Block::new(0, u32::MAX).rows(257, 1 << 33),
        // Strides that nothing steps over.
        fine.rows(1, 32),
        fine.planes(1, 256),
    ];
    let ticket = TicketId { token: 1, serial: 1 };
    for block in malformed {
        let signal = Some(Signal { key: 5, offset: 0, add: 1 });
        for signal in [None, signal] {
            assert_eq!(
                Operation::decode(&Operation::PutBlock { key: 5, block, signal }.encode()),
                None,
                "{block}"
            );
        }
        assert_eq!(
            Operation::decode(&Operation::GetBlock { ticket, key: 5, block }.encode()),
            None,
            "{block}"
        );
    }
}

/// MEM-10.3, MEM-10.4: of blocks that can be decoded, all that does not fit is refused before the
/// first byte.
#[test]
fn blocks_that_do_not_fit_change_nothing() {
    let far = (1 << 48) - 1;
    let fine = Block::new(8, 16).rows(8, 32);
    let cases = [
        (fine, 5, 129, Refusal::Malformed),
        (fine, 5, 127, Refusal::Malformed),
        (fine.rows(8, 15), 5, 128, Refusal::Malformed),
        (fine.rows(2, 0), 5, 32, Refusal::Malformed),
        (fine, 4, 128, Refusal::UnknownKey),
        (fine, 6, 128, Refusal::NotPermitted),
        // One byte past the end; strides whose sum overflows.
        (Block { offset: 777, ..fine }, 5, 128, Refusal::OutOfBounds),
        (Block::new(far, 1).rows(2, far), 5, 2, Refusal::OutOfBounds),
        (
            Block::new(far, 1).rows(1 << 20, far).planes(1 << 19, far),
            5,
            1 << 39,
            Refusal::Malformed,
        ),
        (
            Block::new(far, 1).rows(1 << 20, 1).planes(1 << 19, far),
            5,
            1 << 39,
            Refusal::OutOfBounds,
        ),
    ];
    for (block, key, len, refusal) in cases {
        let mut world = World::new(2);
        let target = world.nodes[1].memory.add(5, Rights::ALL, vec![0xEE; 1000]);
        let closed = world.nodes[1].memory.add(6, Rights::ATOMIC, vec![0xEE; 1000]);
        let node = &mut world.nodes[1];
        let head =
            Operation::PutBlock { key, block, signal: Some(Signal { key: 5, offset: 0, add: 1 }) }
                .encode();
        let admitted = node.rma.admit(0, 1, Class::Unordered, &head, len, &mut node.memory);
        assert_eq!(admitted, Admission::Refuse(refusal), "{block}");
        if let Ok(len) = usize::try_from(len).map(|len| len.min(1000)) {
            let whole = Delivered::Bytes(&vec![1; len][..]);
            assert!(
                node.rma.deliver(0, 2, Class::Unordered, &head, whole, &mut node.memory).is_err(),
                "{block}"
            );
        }
        node.rma.place(0, 1, 0, &[1; 64], &mut node.memory);
        assert!(
            [target, closed].iter().all(|slot| node
                .memory
                .bytes(*slot)
                .iter()
                .all(|byte| *byte == 0xEE)),
            "{block}"
        );
    }
}

/// MEM-10.4: a block needs its right on the gaps, too; a signal that cannot be raised keeps the
/// rows out.
#[test]
fn a_bad_signal_keeps_the_rows_out() {
    let mut world = World::new(2);
    let slot = world.region(1, 5, 1000);
    let block = Block::new(0, 16).rows(20, 32);
    for (signal, refusal) in [
        (Signal { key: 5, offset: 4, add: 1 }, Refusal::Misaligned),
        (Signal { key: 8, offset: 0, add: 1 }, Refusal::UnknownKey),
    ] {
        let message = world.nodes[0]
            .rma
            .put_block(5, block, Body::Inline(vec![1; 320]), Some(signal), T)
            .unwrap();
        world.post(0, 1, message);
        world.run(1);
        assert_eq!(
            world.take(0),
            [RmaEvent::Failed { token: T, error: RmaError::Refused(refusal) }]
        );
    }
    assert!(world.nodes[1].memory.bytes(slot).iter().all(|byte| *byte == 0));
}

/// MEM-3.5 for rows: at no step is the signal there and a byte of a row not.
#[test]
fn the_signal_comes_after_the_rows() {
    let block = Block::new(16, 10).rows(30, 25);
    for seed in 1..50 {
        let mut world = World::new(2);
        let slot = world.region(1, 5, 1000);
        let signal = Some(Signal { key: 5, offset: 0, add: 3 });
        let message =
            world.nodes[0].rma.put_block(5, block, Body::Inline(vec![1; 300]), signal, T).unwrap();
        world.post(0, 1, message);
        for step in 0u64.. {
            let more = world.step(seed * 1_000_003 + step * 7919);
            let raised = world.nodes[1].memory.word(slot, 0);
            let whole =
                packed(world.nodes[1].memory.bytes(slot), block).iter().all(|byte| *byte == 1);
            assert!(raised == 0 || whole, "signalled before the data");
            if !more {
                assert_eq!(raised, 3, "exactly once");
                break;
            }
        }
    }
}

/// MEM-3.4, MEM-4.6 and MEM-10.5: the region goes while its rows are on their way.
#[test]
fn rows_of_a_region_that_goes() {
    let block = Block::new(0, 10).rows(60, 16);
    for seed in 0..40 {
        let mut world = World::new(2);
        let slot = world.nodes[1].memory.add(5, Rights::ALL, pattern(1000));
        let own = world.nodes[0].memory.add(9, Rights::NONE, vec![0; 1000]);
        let into = Destination::Rows(Arc::new(Rows { region: own, block }));
        let get = world.nodes[0].rma.get_block(1, 5, block, into, T).unwrap();
        let put = world.nodes[0]
            .rma
            .put_block(5, block, Body::Inline(vec![1; 600]), None, Token(8))
            .unwrap();
        for message in [get, put] {
            world.post(0, 1, message);
        }
        for step in 0..seed {
            world.step(seed * 31 + step * 7919);
        }
        world.nodes[1].memory.remove(slot);
        for (_, token) in world.nodes[1].rma.region_removed(slot) {
            world.withdraw(1, token);
        }
        // The next region in this slot must stay as it is.
        let next = world.nodes[1].memory.add(6, Rights::ALL, vec![0x77; 1000]);
        assert_eq!(next, slot);
        world.run(seed);
        assert!(world.nodes[1].memory.bytes(next).iter().all(|byte| *byte == 0x77), "{seed}");
        assert_eq!(world.take(0).len(), 2, "both end");
        assert_eq!(world.nodes[0].rma.outstanding(), 0);
    }
}
