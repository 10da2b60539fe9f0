//! Ranks that call different things, give arguments that do not fit, or whose operator panics.

use super::{LIMIT, all_said, run, say, say_error};
use crate::block_on::block_on;
use crate::ways::{ExchangeWay, ways};
use oikaze::collective::Pending;
use oikaze::collective::operator::commuting;
use oikaze::prelude::*;

/// Words of the error of each mistake, in the order in which [`play`] makes them.
const SAID: &[&[&str]] = &[
    &["rank 1 calls all_reduce of 5 u32 with Sum", "all_reduce of 4 u32 with Sum"],
    &["rank 2 calls gather of 1 f32 with root 0", "gather of 1 u32 with root 0"],
    &["calls broadcast of u8 with root", ", and rank ", " calls broadcast of u8 with root "],
    &["calls scan of 2 i64 with Max", "rank 0 calls scan of 2 i64 with Min"],
    &["rank 1 calls all_to_all of 1 u16", "calls all_gather of 3 u16"],
    &["rank 2 calls reduce_scatter_uneven of 6 u8 in blocks number", "8426e427 with Sum"],
    &["root 3 is not a rank of this team of 3", "ranks are 0 to 2"],
    &["2 vectors are given for 3 ranks"],
    &["7 elements cannot be divided among 3 ranks equally"],
    &["the operator panicked on rank", "it is wrong"],
];

/// COLL-3.1, COLL-3.2: all ranks get an error that names two ranks and what each called. The team
/// goes on afterwards.
#[test]
fn mistakes_are_told_to_all_processes() {
    let mut lines = SAID.to_vec();
    lines.push(&["all is well"]);
    for (number, learns) in LEARNS.into_iter().enumerate() {
        for way in ways(ExchangeWay::of_number(number)) {
            all_said(&run(3, &format!("mistakes {learns}"), way), &lines);
        }
    }
}

/// Ways to learn of the end of a collective.
const LEARNS: [&str; 3] = ["wait", "await", "queue"];

/// Says the error of a collective, or of the next one.
fn learn<T: oikaze::collective::operator::Item>(job: &Job, learns: &str, pending: Pending<Vec<T>>) {
    let outcome = match learns {
        "wait" => pending.wait_for(LIMIT).map(drop),
        "await" => block_on(pending).map(drop),
        _ => {
            let (queue, mut ended) = (job.completion_queue(), Vec::new());
            pending.report_to(&queue, 7).unwrap();
            queue.wait_for(1, LIMIT, &mut ended).unwrap();
            ended.pop().unwrap().outcome.map(drop)
        }
    };
    // A rank whose part was done gets the error from its next collective, and the others then get
    // it again.
    let next = (0..3).map(|_| job.all_reduce(0_u8, Or).map(drop));
    say_error(next.fold(outcome, |first, next| first.and(next)));
}

pub fn play(learns: &str) {
    std::panic::set_hook(Box::new(|_| {}));
    let job = oikaze::join().unwrap();
    let (me, start) = (job.rank(), job.start());
    learn(&job, learns, start.all_reduce(&vec![1_u32; if me == 1 { 5 } else { 4 }], Sum));
    if me == 2 {
        learn(&job, learns, start.gather(0, &[1_f32]));
    } else {
        learn(&job, learns, start.gather(0, &[1_u32]));
    }
    // Each waits for the next one.
    learn(&job, learns, start.broadcast::<u8>((me + 1) % 3, &[]));
    if me == 0 {
        learn(&job, learns, start.scan(&[1_i64; 2], Min));
    } else {
        learn(&job, learns, start.scan(&[1_i64; 2], Max));
    }
    if me == 1 {
        learn(&job, learns, start.all_to_all(&[1_u16; 3]));
    } else {
        learn(&job, learns, start.all_gather(&[1_u16; 3]));
    }
    let lens = if me == 2 { [3, 2, 1] } else { [1, 2, 3] };
    learn(&job, learns, start.reduce_scatter_uneven(&lens.map(|len| vec![1_u8; len]), Sum));
    learn(&job, learns, start.reduce(3, &[1_u32], Sum));
    learn(&job, learns, start.scatter_uneven(me, &[vec![1_u8], vec![]]));
    learn(&job, learns, start.reduce_scatter(&[1_u8; 7], Sum));
    let panics = commuting(|_: u32, _: u32| panic!("it is wrong"));
    learn(&job, learns, start.all_reduce(&[me], panics));
    assert_eq!(job.all_gather(&[me]).unwrap(), [0, 1, 2]);
    say("all is well");
}
