//! Says which node of how many this is: `oikaze run -n 4 -- target/debug/examples/hello`.

use std::process::ExitCode;

fn main() -> ExitCode {
    oikaze::run(|job| {
        println!("hello from node {} of {}", job.rank(), job.size());
        Ok(())
    })
}
