//! The `oikaze` command.

mod arguments;
mod doctor;
mod hello;
mod perf;
mod top;

use arguments::{Arguments, Subcommand};
use clap::Parser;
use oikaze::job::launch::{self, LaunchError, agent, guard};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Arguments::parse().subcommand {
        Subcommand::Run(run) => finish(run.options().and_then(|options| launch::run(&options))),
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
        Subcommand::Agent => finish(arguments::helper().and_then(|helper| agent::agent(&helper)).map(|()| 0)),
        Subcommand::Guard => {
            guard::guard(std::io::stdin().lock());
            ExitCode::SUCCESS
        }
    }
}

fn finish(result: Result<u8, LaunchError>) -> ExitCode {
    result.map_or_else(
        |why| {
            eprintln!("oikaze: {why}");
            ExitCode::from(why.status())
        },
        ExitCode::from,
    )
}
