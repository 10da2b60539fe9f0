//! Fills an array that all nodes share, each its own part, and sums it on every node.

const LEN: usize = 100_000;

use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let squares = job.array::<u64>("squares", LEN)?;
    let mine = squares.home_range(job.rank()); // the part whose pages lie on this node
    for (i, value) in mine.clone().zip(squares.write(mine)?.iter_mut()) {
        *value = (i * i) as u64; // a plain store
    }
    job.barrier()?; // the writes of all nodes are visible now

    let sum: u64 = squares.read(0..LEN)?.iter().sum(); // fetches what is elsewhere
    let n = LEN as u64;
    assert_eq!(sum, (n - 1) * n * (2 * n - 1) / 6);
    println!("node {} sums to {sum}", job.rank());
    Ok(())
}
