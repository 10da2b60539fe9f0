use oikaze::prelude::*;

#[oikaze::main] // joins the job; an error is printed first and ends the job for all nodes
fn main(job: &Job) -> oikaze::Result<()> {
    // Shared memory: the same array on every node, in blocks of pages with a home each.
    let squares = job.array::<u64>("squares", 1 << 20)?;
    let mine = squares.home_range(job.rank());
    for (i, value) in mine.clone().zip(squares.write(mine)?.iter_mut()) {
        *value = (i * i) as u64; // a plain store
    }
    job.barrier()?; // every node sees what the others have written
    let last = squares.read(squares.len() - 1..squares.len())?[0];

    // Remote memory: an atomic in the memory of the next node, which makes no call for it.
    let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE | Rights::ATOMIC)?;
    let next = job.peer((job.rank() + 1) % job.size())?;
    next.region("inbox")?.fetch_add(0, last).wait()?;

    // Messages: each arrives exactly once.
    next.send(Class::Ordered, 7, b"done").wait()?;
    let from = job.receive(None)?.from();
    println!("node {from} has sent; the inbox holds {}", inbox.load_u64(0)?);
    job.barrier()?; // before anyone withdraws its inbox
    Ok(())
}
