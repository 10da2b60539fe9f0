//! Writes to the memory of the next node, and reads it back, without a call there.

use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let _inbox = job.publish("inbox", Region::zeroed(4096)?, Rights::READ | Rights::WRITE)?;
    let next = job.peer((job.rank() + 1) % job.size())?;
    let there = next.region("inbox")?;

    // A put from registered memory is not copied before it is sent.
    let source = job.register(Region::zeroed(1024)?)?;
    source.write(0, b"tailwind")?;
    there.put(128, source.all()).wait()?; // now visible in the memory of the next node

    let target = job.register(Region::zeroed(8)?)?;
    there.get(128, target.all()).wait()?;
    let mut bytes = [0; 8];
    target.read(0, &mut bytes)?;
    println!("node {} read {}", job.rank(), String::from_utf8_lossy(&bytes));
    job.barrier()?; // before any node withdraws its inbox
    Ok(())
}
