//! Passes a token around all nodes by messages.

use oikaze::prelude::*;

const TOKEN: u64 = 7; // a tag is the sender's to choose

#[oikaze::main]
fn main(job: &Job) -> Result<(), Box<dyn std::error::Error>> {
    let next = job.peer((job.rank() + 1) % job.size())?;
    let previous = (job.rank() + job.size() - 1) % job.size();
    if job.rank() == 0 {
        next.send(Class::Ordered, TOKEN, &1u32.to_le_bytes()).wait()?;
    }
    let message = job.receive(Some(previous))?;
    assert_eq!(message.tag(), TOKEN);
    let count = u32::from_le_bytes(message.bytes().try_into()?);
    if job.rank() == 0 {
        println!("the token came back with {count}");
        assert_eq!(count, job.size());
    } else {
        next.send(Class::Ordered, TOKEN, &(count + 1).to_le_bytes()).wait()?;
    }
    Ok(())
}
