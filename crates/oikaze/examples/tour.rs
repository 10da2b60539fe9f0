use oikaze::prelude::*;

// The program joins the job that `oikaze run` has started. Without a launcher it becomes four
// processes. An error is printed before anything else, and ends the job for all nodes then.
#[oikaze::main(nodes = 4)]
fn main(job: &Job) -> oikaze::Result<()> {
    // Shared memory: the same array on every node. Each node is the home of one block of pages.
    let squares = job.array::<u64>("squares", 1 << 20)?;
    let mine = squares.home_range(job.rank());
    for (i, value) in mine.clone().zip(squares.write(mine)?.iter_mut()) {
        *value = (i * i) as u64; // a plain store
    }
    job.barrier()?; // Now every node sees what the others have written.
    let last = squares.read(squares.len() - 1..squares.len())?[0]; // fetched from its home

    // Remote memory: every node publishes a region, and finds that of the next node by its name.
    let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE | Rights::ATOMIC)?;
    let next = job.peer((job.rank() + 1) % job.size())?;
    let there = next.region("inbox")?;
    let before = there.fetch_add(0, last).wait()?; // the word before
    there.word::<u32>(8).or(1).wait()?; // 32 or 64 bits, signed or not
    let page = job.register(Region::zeroed(4096)?)?;
    page.write(0, b"tailwind")?;
    let put = there.put(64, page.slice(0..1024)?); // returns at once
    next.fence(); // Operations below take place after those above.
    let signalled = there.put_signal(2048, page.slice(0..64)?, &there.signal(16, 1));
    put.wait()?; // The bytes are in the memory of the next node, and visible there.
    signalled.wait()?;
    inbox.wait_until(16, |count| count == 1)?; // Bytes first, then the signal: they are here.
    let mut bytes = [0; 8];
    inbox.read(2048, &mut bytes)?;

    // Messages: each arrives exactly once. A tag is the sender's to choose.
    next.send(Class::Ordered, 7, b"done").wait()?;
    let message = job.receive(None)?; // from any node, without a time limit
    let text = String::from_utf8_lossy(&bytes);
    println!("{before} {last} {text}: node {} is done", message.from());

    // Nobody withdraws its inbox before all have used it.
    job.barrier()?;
    Ok(())
}
