//! Says which node of how many this is: `oikaze run -n 4 -- target/debug/examples/hello`.

use oikaze::prelude::*;

#[oikaze::main]
fn main(job: &Job) -> oikaze::Result<()> {
    println!("hello from node {} of {}", job.rank(), job.size());
    Ok(())
}
