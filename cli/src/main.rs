//! The `oikaze` command.

mod arguments;
mod doctor;
#[cfg(test)]
mod documented;
mod hello;
mod manual;
mod perf;
mod print;
mod seconds;
mod serve;
mod stats;
mod top;

use arguments::{Arguments, Run, Subcommand};
use clap::Parser;
use oikaze_launch::launcher::hosts::agent;
use oikaze_launch::launcher::{self, LaunchError, guard};
use oikaze_os::standard_output;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return end(&error),
    };
    match arguments.subcommand {
        Subcommand::Run(run) => finish(start(*run)),
        Subcommand::Perf(measurement) => match perf::run(&measurement) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("oikaze perf: {why}");
                ExitCode::FAILURE
            }
        },
        Subcommand::Top(look) => top::top(&look),
        Subcommand::Serve(server) => serve::serve(&server),
        Subcommand::Doctor(doctor) => doctor::doctor(doctor.json),
        Subcommand::Hello(hello) => hello::hello(hello.limit),
        Subcommand::Agent => finish(agent::agent().map(|()| 0)),
        Subcommand::Guard => {
            guard::guard(std::io::stdin().lock());
            ExitCode::SUCCESS
        }
        Subcommand::Completions(completions) => {
            match print::print(&manual::completions(completions.shell)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(why) => {
                    eprintln!("oikaze completions: {why}");
                    ExitCode::FAILURE
                }
            }
        }
        Subcommand::Manual(manual) => {
            let doing = format!("write pages into {}", manual.directory.display());
            finish(match manual::write_pages(&manual.directory) {
                Ok(()) => Ok(0),
                Err(source) => Err(LaunchError::System { doing, source }),
            })
        }
        Subcommand::Digest => {
            let digest = launcher::digest(std::io::stdin().lock());
            let doing = "read standard input".into();
            match digest {
                Ok(digest) => end_of_print(standard_output::print(&(digest + "\n"))),
                Err(source) => finish(Err(LaunchError::System { doing, source })),
            }
        }
    }
}

/// Runs a job, and reports its traffic if the user asks for it.
fn start(run: Run) -> Result<u8, LaunchError> {
    let stats = run.stats()?;
    let finished = launcher::run(&run.options()?)?;
    if let Some(destination) = stats {
        stats::write(destination, &finished.traffic).map_err(|source| LaunchError::System {
            doing: "write the file of --stats".into(),
            source,
        })?;
    }
    Ok(finished.status)
}

/// Prints a help text, the version, or what is wrong with the arguments. Returns the status.
fn end(error: &clap::Error) -> ExitCode {
    let printed = error.print();
    if error.use_stderr() {
        // Standard error may be full or closed.
        return ExitCode::from(2);
    }
    end_of_print(standard_output::finish(printed))
}

/// Returns the status of a command that has printed all that it prints.
fn end_of_print(printed: std::io::Result<()>) -> ExitCode {
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            // Standard error may be full or closed.
            let _ = writeln!(std::io::stderr(), "oikaze: cannot write to standard output: {why}");
            ExitCode::FAILURE
        }
    }
}

fn finish(result: Result<u8, LaunchError>) -> ExitCode {
    result.map_or_else(
        |why| {
            // Standard error may be full or closed.
            let _ = writeln!(std::io::stderr(), "oikaze: {why}");
            ExitCode::from(why.status())
        },
        ExitCode::from,
    )
}
