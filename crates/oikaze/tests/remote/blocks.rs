//! Blocks between whole nodes over loopback UDP (MEM-10).

use crate::support::cluster;
use oikaze::Error;
use oikaze::memory::{Block, Region, Rights};
use oikaze_launch::{Seal, Settings};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);
/// Value of memory that no operation may touch.
const UNTOUCHED: u8 = 0xEE;

fn pattern(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 253) as u8 ^ salt).collect()
}

fn offsets(block: Block) -> Vec<usize> {
    block
        .pieces(0, u64::MAX)
        .flat_map(|piece| piece.offset as usize..piece.offset as usize + piece.len)
        .collect()
}

/// Returns pairs of blocks: small ones that travel whole, a plane of many fragments, planes, planes
/// between rows, and one side in one piece.
fn shapes() -> Vec<(Block, Block)> {
    vec![
        (Block::new(5, 8).rows(10, 24), Block::new(0, 40).rows(2, 50)),
        (Block::new(5, 100).rows(10, 240), Block::new(7, 1000)),
        (Block::new(3, 1000).rows(128, 1500), Block::new(0, 500).rows(256, 777)),
        (Block::new(0, 333).rows(40, 400).planes(10, 20_000), Block::new(11, 133_200)),
        (Block::new(100, 8).rows(5_000, 40), Block::new(1, 50).rows(4, 100).planes(200, 500)),
        (Block::new(9, 64_000), Block::new(13, 640).rows(100, 1001)),
        (Block::new(9, 64).rows(50, 1000).planes(10, 100), Block::new(13, 32_000)),
    ]
}

fn blocks(settings: &Settings) {
    const LEN: usize = 220_000;
    const END: usize = LEN - 8;
    cluster(3, settings, |job| {
        let inbox = job.publish("inbox", Region::zeroed(LEN).unwrap(), Rights::ALL).unwrap();
        let source = job.register(Region::zeroed(LEN).unwrap()).unwrap();
        let back = job.register(Region::zeroed(LEN).unwrap()).unwrap();
        source.write(0, &pattern(LEN, job.rank() as u8)).unwrap();
        // Each of the three nodes puts to the next node, and then to itself.
        for to in [(job.rank() + 1) % 3, job.rank()] {
            let there = job.peer(to).unwrap().region("inbox").unwrap();
            let from = if to == job.rank() { to } else { (job.rank() + 2) % 3 };
            for (there_block, here) in shapes() {
                inbox.fill(0, LEN as u64, UNTOUCHED).unwrap();
                inbox.store_u64(END as u64, 0).unwrap();
                back.fill(0, LEN as u64, UNTOUCHED).unwrap();
                job.barrier().unwrap();
                let signal = there.signal(END as u64, 1);
                let put = there
                    .put_block_signal(there_block, source.slice(10..LEN).unwrap(), here, &signal)
                    .unwrap();
                inbox.wait_until_for(END as u64, PATIENCE, |count| count == 1).unwrap();
                // MEM-3.5: all rows have arrived, and no other byte has changed.
                let mut expected = vec![UNTOUCHED; LEN];
                let sent = pattern(LEN, from as u8);
                offsets(there_block)
                    .into_iter()
                    .zip(offsets(here))
                    .for_each(|(to, from)| expected[to] = sent[10 + from]);
                let mut seen = vec![0; LEN];
                inbox.read(0, &mut seen).unwrap();
                assert!(seen[..END] == expected[..END], "{there_block} from {here}");
                put.wait_for(PATIENCE).unwrap();

                there
                    .get_block(there_block, back.slice(20..LEN).unwrap(), here)
                    .unwrap()
                    .wait_for(PATIENCE)
                    .unwrap();
                let mut expected = vec![UNTOUCHED; LEN];
                let mine = pattern(LEN, job.rank() as u8);
                offsets(here).into_iter().for_each(|at| expected[20 + at] = mine[10 + at]);
                back.read(0, &mut seen).unwrap();
                assert!(seen == expected, "{here} back from {there_block}");
                job.barrier().unwrap();
            }
        }
    });
}

#[test]
fn blocks_over_loopback() {
    blocks(&Settings::default());
}

/// Rows are payload for a checksum of headers only, wherever they are packed. (A seed alone injects
/// no fault, but keeps the job on the network.)
#[test]
fn blocks_whose_payload_is_not_checked() {
    let fault = Some("seed=1".to_owned());
    blocks(&Settings { fault, seal: Some(Seal::Header), ..Settings::default() });
}

/// Rows arrive although datagrams are lost, doubled, reordered and damaged.
#[test]
fn blocks_over_a_faulty_network() {
    let fault = Some("loss=0.05,duplicate=0.05,reorder=0.05,corrupt=0.01,seed=3".to_owned());
    blocks(&Settings { fault, ..Settings::default() });
}

#[test]
fn blocks_of_borrowed_memory() {
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::zeroed(100_000).unwrap(), Rights::ALL).unwrap();
        let there = job.peer(1 - job.rank()).unwrap().region("inbox").unwrap();
        let out = pattern(100_000, 3);
        let mut back = vec![0; 100_000];
        let (far, near) = (Block::new(8, 100).rows(300, 320), Block::new(0, 300).rows(100, 1000));
        job.scope(|scope| scope.put_block(&there, far, &out, near)?.wait_for(PATIENCE)).unwrap();
        job.scope(|scope| scope.get_block(&there, far, &mut back, near)?.wait_for(PATIENCE))
            .unwrap();
        let inside = offsets(near);
        assert!(inside.iter().all(|&at| back[at] == out[at]));
        assert_eq!(
            back.iter().filter(|byte| **byte != 0).count(),
            inside.iter().filter(|&&at| out[at] != 0).count()
        );
        job.barrier().unwrap(); // until then the other node may still read here
    });
}

#[track_caller]
fn fails<T>(outcome: oikaze::Result<T>, words: &[&str]) {
    let text = outcome.err().map(|error: Error| error.to_string()).expect("it must fail");
    for word in words {
        assert!(text.contains(word), "\"{word}\" is not in: {text}");
    }
}

#[test]
fn blocks_that_cannot_be() {
    cluster(2, &Settings::default(), |job| {
        let _inbox = job.publish("inbox", Region::zeroed(4096).unwrap(), Rights::ALL).unwrap();
        let _read = job.publish("read", Region::zeroed(4096).unwrap(), Rights::READ).unwrap();
        let local = job.register(Region::zeroed(4096).unwrap()).unwrap();
        let peer = job.peer(1 - job.rank()).unwrap();
        let there = peer.region("inbox").unwrap();
        let fine = Block::new(0, 16).rows(8, 32);
        let put = |far: Block, near: Block| {
            there.put_block(far, local.all(), near).and_then(|put| put.wait_for(PATIENCE))
        };
        let get = |far: Block, near: Block| {
            there.get_block(far, local.all(), near).and_then(|get| get.wait_for(PATIENCE))
        };
        fails(
            put(fine, fine.rows(7, 32)),
            &["put of 128 bytes", "region \"inbox\"", "has 128 bytes there, and 112 are here"],
        );
        fails(
            put(fine.rows(8, 15), fine),
            &["8 rows of 16 bytes every 15 bytes", "overlap", "let no stride be shorter"],
        );
        fails(get(fine, fine.rows(8, 15)), &["get of 128 bytes", "overlap"]);
        fails(
            put(fine, Block { offset: 3857, ..fine }),
            &["of a slice", "the slice has 4096 bytes"],
        );
        fails(put(fine, fine.rows(0, 1)), &["has no bytes"]);
        fails(put(Block::new(u64::MAX, 16).rows(8, u64::MAX), fine), &["reaches further than"]);
        fails(put(Block { offset: 3857, ..fine }, fine), &["lies outside the region"]);
        fails(get(Block { offset: 3857, ..fine }, fine), &["lies outside the region"]);
        let read = peer.region("read").unwrap();
        fails(
            read.put_block(fine, local.all(), fine).unwrap().wait_for(PATIENCE),
            &["does not grant this right"],
        );
        // An empty block is not a mistake, but the access must still be allowed (MEM-3.6).
        let nothing = Block::new(4096, 0);
        put(nothing, nothing.rows(0, 9)).unwrap();
        get(nothing, nothing).unwrap();
        let passing = job.register(Region::zeroed(8).unwrap()).unwrap().all();
        there.get_block(nothing, passing, Block::new(0, 0)).unwrap().wait_for(PATIENCE).unwrap();
        fails(put(Block::new(4097, 0), Block::new(0, 0)), &["lies outside the region"]);
        job.barrier().unwrap();
    });
}

/// Every form of a range is a part, as of a slice.
#[test]
fn ranges_of_all_forms_are_parts() {
    oikaze::testing::cluster(1, |job| {
        let values = job.array::<u32>("values", 10)?;
        values.write(..)?.iter_mut().zip(0..).for_each(|(value, n)| *value = n);
        assert_eq!(*values.read(8..)?, [8, 9]);
        assert_eq!(*values.read(..2)?, [0, 1]);
        assert_eq!(*values.read(4..=5)?, [4, 5]);
        assert_eq!(*values.read(..=0)?, [0]);
        values.write(9..)?[0] = 7;
        assert_eq!(values.read(..)?.last(), Some(&7));
        for error in
            [values.read(11..).err(), values.read(..=10).err(), values.read(0..=usize::MAX).err()]
        {
            assert!(error.is_some_and(|error| error.to_string().contains("10")));
        }
        Ok(())
    });
}
