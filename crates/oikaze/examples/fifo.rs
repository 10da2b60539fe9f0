//! Pushes elements into a queue in the memory of node 0, from all nodes.

use std::error::Error;

const EACH: u32 = 100;

use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> Result<(), Box<dyn std::error::Error>> {
    let fifo = (job.rank() == 0).then(|| job.fifo("work", 64, 16)).transpose()?;
    let there = job.peer(0)?.fifo("work")?; // waits until node 0 has made it
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let pushed = scope.spawn(|| -> oikaze::Result<()> {
            for n in 0..EACH {
                there.push(&(job.rank() * EACH + n).to_le_bytes())?;
            }
            Ok(())
        });
        if let Some(fifo) = &fifo {
            let (mut element, mut sum) = (Vec::new(), 0u64);
            let count = EACH * job.size();
            for _ in 0..count {
                element.clear(); // pop appends
                fifo.pop(&mut element)?;
                sum += u64::from(u32::from_le_bytes(element.as_slice().try_into()?));
            }
            assert_eq!(sum, u64::from(count) * u64::from(count - 1) / 2);
            println!("{count} elements came, each once");
        }
        pushed.join().map_err(|_| "the pushing thread panicked")??;
        Ok(())
    })?;
    Ok(job.barrier()?)
}
