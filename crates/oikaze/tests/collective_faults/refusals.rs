//! A rank that has no memory for a parcel.

use super::{HEAP, all_said, run, say, say_error};
use crate::ways::{ExchangeWay, ways};
use oikaze::prelude::*;

/// Lengths of parcels in bytes: whole records of a ring, and messages of several datagrams. None is
/// the size of anything else that a node allocates, and none is so long that the parcel is placed
/// where it belongs (COLL-1.5).
const LENS: [usize; 2] = [5_003, 30_011];

/// COLL-3.6: the sender of a short parcel learns that it was refused, and so do all others.
#[test]
fn refused_parcel_fails_the_collective_of_all_ranks() {
    for (number, len) in LENS.into_iter().enumerate() {
        let said = format!("rank 0 has no memory for {len} bytes of rank 1");
        let lines: [&[&str]; 2] = [&[&said], &["goes on"]];
        for way in ways(ExchangeWay::of_number(number)) {
            all_said(&run(3, &format!("refusals {len}"), way), &lines);
        }
    }
}

pub fn play(len: &str) {
    let len: usize = len.parse().unwrap();
    let job = oikaze::join().unwrap();
    job.all_gather(&[0_u8]).unwrap();
    if job.rank() == 0 {
        HEAP.refuse(len);
    }
    // Ranks 1 and 2 send and are done. They learn of the refusal by their next collective.
    let mine = vec![1_u8; if job.rank() == 1 { len } else { 7 }];
    let outcome = job.gather_uneven(0, &mine).map(drop);
    // In memory, they might end collectives before they read what rank 0 has told them.
    if job.rank() == 0 {
        for rank in 1..3 {
            job.peer(rank).unwrap().send(Class::Ordered, 0, b"told").wait().unwrap();
        }
    } else {
        job.receive(Some(0)).unwrap();
    }
    let next = (0..3).map(|_| job.all_gather(&[0_u8]).map(drop));
    say_error(next.fold(outcome, |first, next| first.and(next)));
    HEAP.refuse(0);
    // Rank 1 sends so many bytes again only when rank 0 takes them.
    job.all_gather(&[0_u8]).unwrap();
    // The refused bytes take no credit: as many again as the credit of a rank pass.
    for _ in 0..300 {
        job.gather_uneven(0, &mine).unwrap();
    }
    job.all_gather(&[0_u8]).unwrap();
    say("goes on");
}
