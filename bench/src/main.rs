//! Oikaze and its peers side by side, on two hosts made of network namespaces.
//!
//! `cargo xtask bench wind` runs it. Each line of its JSON is one case of one system, the median of alternating rounds;
//! standard error gets a table of the same with the ratio to the floor, which is bare UDP on the same machine.
#![forbid(unsafe_code)]

mod error;
mod floor;
mod lab;
mod peers;
mod process;
mod record;
mod wind;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// Oikaze and its peers side by side.
#[derive(Parser)]
#[command(version, max_term_width = 120)]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Message latency, put latency and put bandwidth: bare UDP, UCX over TCP, Oikaze.
    Wind(Run),
    /// One end of a floor (started by the bench itself).
    #[command(hide = true, subcommand)]
    Floor(floor::Role),
    /// Enters a host of the lab as ssh would enter one (started by the launcher).
    #[command(hide = true)]
    Enter {
        address: String,
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Removes the lab when its standard input ends (started by the bench itself).
    #[command(hide = true)]
    Janitor,
}

/// How a bench is run.
#[derive(Args)]
struct Run {
    /// Shorter rounds: for a first impression, and for tests of the bench itself.
    #[arg(long)]
    quick: bool,
    /// Alternating rounds; the median is reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..1000))]
    rounds: u32,
    /// MTU of the wire; several separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [9000, 1500], value_parser = clap::value_parser!(u16).range(1500..=9000))]
    mtu: Vec<u16>,
    /// Leaves systems out, by name; several separated by commas.
    #[arg(long, value_delimiter = ',')]
    without: Vec<wind::System>,
    /// Writes the JSON lines to this file instead of standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Options::parse().what {
        What::Wind(run) => wind::bench(&run),
        What::Floor(role) => floor::play(&role),
        What::Enter { address, command } => lab::enter(&address, &command),
        What::Janitor => lab::janitor(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
