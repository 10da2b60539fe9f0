//! Goes on after the death of a node: run it with `oikaze run -n 4 --keep-going`.

use oikaze::prelude::*;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let job = oikaze::Job::builder().keep_going(true).join()?;
    if job.size() == 1 {
        println!("alone: nobody else can die");
        return Ok(job.leave()?);
    }
    let last = job.size() - 1;
    if job.rank() == last {
        for rank in 0..last {
            job.receive(Some(rank))?; // that node has joined
        }
        std::process::abort(); // a node dies
    }
    // The last node may die before it has acknowledged the message.
    let _ = job.peer(last)?.send(Class::Ordered, 0, b"joined").wait();
    // A wait that only the dead node could end fails, and names it.
    let error = job.receive(Some(last)).err().ok_or("a message of a dead node")?;
    println!("node {}: {error}", job.rank());
    assert_eq!(job.lost(), [last]);
    // All that needs no dead node still works.
    let next = (job.rank() + 1) % last;
    job.peer(next)?.send(Class::Ordered, 1, b"still here").wait()?;
    let message = job.receive(Some((job.rank() + last - 1) % last))?;
    println!("node {} hears that node {} is {:?}", job.rank(), message.from(), message.bytes());
    Ok(job.leave()?)
}
