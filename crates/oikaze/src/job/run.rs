//! Runs a whole program as one function. All nodes learn of its failure.

use crate::job::handle::Job;
use crate::panics::message_of_panic;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// Status of a program that panicked, as of a Rust program without this function.
const PANICKED: u8 = 101;

/// Joins the job, runs `program`, and leaves. An error is printed first, and then ends the job for
/// all nodes ([`Job::abort`]), so that no other node waits for this one. With
/// [`JobBuilder::keep_going`](crate::job::JobBuilder::keep_going), where survivors go on after a
/// death, an error ends this node alone.
///
/// By contrast, an error that `main` returns by `?` is printed only after its job was dropped, and
/// a dropped job waits for the other nodes.
///
/// ```
/// # use std::process::ExitCode;
/// fn main() -> ExitCode {
///     oikaze::run(|job| {
///         job.barrier()?;
///         println!("node {} of {}", job.rank(), job.size());
///         Ok(())
///     })
/// }
/// ```
///
/// Without a launcher, the program is a job of one node. With `OIKAZE_LOCAL=4` in its environment,
/// it becomes four nodes instead, as by [`local`](crate::local).
pub fn run(program: impl FnOnce(&Job) -> Result<(), Box<dyn Error>>) -> ExitCode {
    super::local::local(1, program)
}

/// Joins the job and runs `program`.
pub(super) fn run_joined(program: impl FnOnce(&Job) -> Result<(), Box<dyn Error>>) -> ExitCode {
    let job = match super::join::join() {
        Ok(job) => job,
        Err(error) => {
            eprintln!("oikaze: {error}");
            return ExitCode::FAILURE;
        }
    };
    run_in(job, program)
}

fn run_in(job: Job, program: impl FnOnce(&Job) -> Result<(), Box<dyn Error>>) -> ExitCode {
    let rank = job.rank();
    // After a panic, the job serves only to tell the other nodes and to say goodbye.
    match catch_unwind(AssertUnwindSafe(|| program(&job))) {
        Ok(Ok(())) => match job.leave() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("oikaze: node {rank}: {error}");
                ExitCode::FAILURE
            }
        },
        Ok(Err(error)) => {
            let error = error.to_string();
            eprintln!("oikaze: node {rank}: {error}");
            // Printed before the error ends the other nodes (END-3.2).
            job.fail(&error);
            ExitCode::FAILURE
        }
        // The panic hook has printed the message.
        Err(payload) => {
            job.fail(&format!("it panicked: {}", message_of_panic(payload.as_ref())));
            ExitCode::from(PANICKED)
        }
    }
}
