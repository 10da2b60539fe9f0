//! The `oikaze` command.

mod arguments;
mod doctor;
#[cfg(test)]
mod documented;
mod hello;
mod perf;
mod top;

use arguments::{Arguments, Subcommand};
use clap::Parser;
use oikaze_launch::launcher::{self, LaunchError, agent, guard};
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Arguments::parse().subcommand {
        Subcommand::Run(run) => finish(run.options().and_then(|options| launcher::run(&options))),
        Subcommand::Perf(measurement) => match perf::run(&measurement) {
            Ok(()) => ExitCode::SUCCESS,
            Err(why) => {
                eprintln!("oikaze perf: {why}");
                ExitCode::FAILURE
            }
        },
        Subcommand::Top(look) => top::top(&look),
        Subcommand::Doctor(doctor) => doctor::doctor(doctor.json),
        Subcommand::Hello(hello) => hello::hello(hello.limit),
        Subcommand::Agent => {
            finish(arguments::helper().and_then(|helper| agent::agent(&helper)).map(|()| 0))
        }
        Subcommand::Guard => {
            guard::guard(std::io::stdin().lock());
            ExitCode::SUCCESS
        }
    }
}

/// Prints text on standard output. A reader that closes the pipe is no error, because it has read
/// enough.
fn print(text: &str) -> oikaze::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(source) if source.kind() != ErrorKind::BrokenPipe => {
            Err(oikaze::Error::system("writing to standard output", source))
        }
        _ => Ok(()),
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
