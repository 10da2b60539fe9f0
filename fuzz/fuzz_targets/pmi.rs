//! Any bytes from nodes to the PMI-1 server of a host, and its news to the launcher's barrier.
#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use oikaze_launch::pmi::fence::{Fence, FenceChange};
use oikaze_launch::pmi::host::HostServer;
use oikaze_launch::pmi::line::{LINE_MAX, LineReader};
use oikaze_launch::pmi::{PmiNews, PmiOrder};

const NODES: u32 = 3;

fuzz_target!(|input: &[u8]| {
    let mut host = HostServer::new(0..NODES, NODES, 7, "(vector,(0,1,3))");
    let mut fence = Fence::new(NODES);
    let mut readers: [LineReader; NODES as usize] = Default::default();
    let mut at_barrier = [false; NODES as usize];
    // A piece of input begins with the node that sends it, or that ends.
    for piece in input.split(|byte| *byte == 0) {
        let Some((first, bytes)) = piece.split_first() else { continue };
        let node = usize::from(first % NODES as u8);
        let rank = node as u32;
        let mut changes = Vec::new();
        if *first >= 0xf0 {
            changes.push(fence.ended(rank));
        }
        for byte in bytes {
            let taken = readers[node].take(*byte);
            let reaction = match &taken {
                Ok(None) => continue,
                Ok(Some(line)) => host.take(rank, Ok(line)),
                Err(why) => host.take(rank, Err(*why)),
            };
            let answer = reaction.answer.unwrap_or_default();
            assert!(answer.len() <= LINE_MAX && answer.matches('\n').count() <= 1, "{answer:?}");
            if let Some(PmiNews::Arrived(of, values)) = reaction.news {
                assert_eq!(of, rank);
                at_barrier[node] = true;
                changes.push(fence.arrived(of, values));
            }
        }
        for change in changes {
            let order = match change {
                FenceChange::Open => continue,
                FenceChange::Order(order) => order,
                FenceChange::Broken(waits, ended) => {
                    assert_ne!(waits, ended);
                    PmiOrder::Broken
                }
            };
            let passed = matches!(order, PmiOrder::Passed(_));
            if passed {
                assert_eq!(at_barrier, [true; NODES as usize]);
            }
            for (of, reaction) in host.order(order) {
                assert_eq!(reaction.closes, !passed);
                at_barrier[of as usize] = false;
            }
        }
    }
});
