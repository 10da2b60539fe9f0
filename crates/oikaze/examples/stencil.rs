//! Heat in a rod: each node relaxes its part and reads one value of each adjacent part.

use oikaze::prelude::*;

const LEN: usize = 4096;
const STEPS: usize = 50;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    let rods = [job.array::<f64>("even", LEN)?, job.array::<f64>("odd", LEN)?];
    let mine = rods[0].home_range(job.rank());
    if job.rank() == 0 {
        for rod in &rods {
            rod.write(0..1)?[0] = 100.0; // the left end is kept hot
        }
    }
    job.barrier()?;
    for step in 0..STEPS {
        let (old, new) = (&rods[step % 2], &rods[(step + 1) % 2]);
        let inner = mine.start.max(1)..mine.end.min(LEN - 1).max(mine.start.max(1));
        if !inner.is_empty() {
            let from = old.read(inner.start - 1..inner.end + 1)?;
            let mut to = new.write(inner)?;
            for (to, from) in to.iter_mut().zip(from.windows(3)) {
                *to = (from[0] + from[2]) / 2.0;
            }
        } // guards end before the barrier
        job.barrier()?;
    }
    let heat: f64 = rods[STEPS % 2].read(mine)?.iter().sum();
    let total = job.barrier_reduce(heat, Sum)?; // the same bits on every node
    assert!(total > 100.0);
    if job.rank() == 0 {
        println!("total heat after {STEPS} steps: {total:.3}");
    }
    Ok(())
}
