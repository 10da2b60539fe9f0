//! Puts data and raises a signal behind it; the receiver waits for the signal word only.

use oikaze::prelude::*;

const SIGNAL: u64 = 4088; // offset of the signal word

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE | Rights::ATOMIC)?;
    let there = job.peer((job.rank() + 1) % job.size())?.region("inbox")?;

    let source = job.register(Region::zeroed(1024)?)?;
    source.fill(0, 1024, job.rank() as u8 + 1)?;
    there.put_signal(0, source.all(), &there.signal(SIGNAL, 1)).wait()?;

    // The data is there once the signal is.
    inbox.wait_until(SIGNAL, |count| count == 1)?;
    let mut bytes = [0; 1024];
    inbox.read(0, &mut bytes)?;
    let previous = (job.rank() + job.size() - 1) % job.size();
    assert!(bytes.iter().all(|byte| *byte == previous as u8 + 1));
    println!("node {} has all bytes of node {previous}", job.rank());
    job.barrier()?;
    Ok(())
}
