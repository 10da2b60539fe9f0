//! Counts on one node by atomics of all nodes.

use oikaze::prelude::*;

const EACH: u64 = 1000;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    // Every node publishes; only that of node 0 is used.
    let counters = job.publish("counters", Region::shared(4096)?, Rights::ATOMIC)?;
    let there = job.peer(0)?.region("counters")?;

    let mut last = 0;
    for _ in 0..EACH {
        last = there.fetch_add(0, 1).wait()?; // the value before
    }
    there.word::<u64>(8).max(last).wait()?; // atomics of 32 and 64 bits, signed or not
    job.barrier()?;
    if job.rank() == 0 {
        let total = counters.load_u64(0)?;
        assert_eq!(total, EACH * u64::from(job.size()));
        assert_eq!(counters.load_u64(8)?, total - 1);
        println!("{} nodes counted to {total}", job.size());
    }
    job.barrier()?;
    Ok(())
}
