//! Measures Oikaze and comparable systems side by side, on two hosts made of network namespaces.
//!
//! `cargo xtask bench wind` runs it. Each line of its JSON is one figure of one system: the median
//! of alternating rounds. Then come a table of the same figures with the ratio to the floor, and a
//! table of the goals. The floor is bare UDP on the same machine. `cargo xtask bench papers`
//! repeats figures of the papers.
#![forbid(unsafe_code)]

#[macro_use]
mod named;

mod attack;
mod collectives;
mod date;
mod dsm;
mod error;
mod exchange;
mod lab;
mod multicast;
mod node;
mod page;
mod papers;
mod peers;
mod placement;
mod process;
mod python;
mod record;
mod remote;
mod results;
mod seal;
mod served;
mod shm;
mod sockets;
mod start;
mod suite;
mod switch;
mod wind;

use oikaze_os::standard_output;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Oikaze and its peers side by side.
#[derive(Parser)]
#[command(version, max_term_width = 120)]
struct Options {
    #[command(subcommand)]
    what: BenchCommand,
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Compare the transport's latency, bandwidth, rate and processor time with bare UDP, plain
    /// TCP, UCX and libfabric.
    Wind(suite::WireRun),
    /// Compare remote memory with UCX: get, atomics, blocks, queues.
    Remote(suite::WireRun),
    /// Compare two processes of one machine with UCX over shared memory.
    Shm(suite::Run),
    /// Compare the ways to seal datagrams with QUIC and with a tunnel of WireGuard.
    Seal(suite::WireRun),
    /// Measure what is left of a job's bandwidth while somebody on its network attacks it.
    Attack(attack::Run),
    /// Compare whole programs over shared arrays with the same programs over MPI.
    Dsm(dsm::Run),
    /// Compare collectives with those of MPI, and show how their time grows with the nodes.
    Collectives(collectives::Run),
    /// Compare one node that sends the same to several, by multicast and by unicast, with MPI, over
    /// a switch of 1 Gb/s.
    Multicast(multicast::Run),
    /// Compare bulk over several flows with one flow, where each flow is capped and where none is.
    Flows(wind::flows::Run),
    /// Compare the start of a job under each launcher with that of programs of MPI.
    Start(start::Run),
    /// Compare Python with Rust, and collectives and a program over NumPy with mpi4py.
    Python(python::Run),
    /// Compare exchanges of pages with copies of their bytes.
    Exchange(exchange::Run),
    /// Measure where communication runs, and how its end is found: posts, forms, ways to detect an
    /// end, loaded cores, idle jobs, wake-ups.
    Placement(placement::Run),
    /// Repeat the measurements of the papers' figures.
    Papers(papers::Run),
    /// Write the tables of README.md and docs/BENCH.md from records that benches have written.
    Tables(results::Run),
    /// One end of a floor (started by the bench itself).
    #[command(hide = true, subcommand)]
    Floor(peers::floor::Role),
    /// One end of plain TCP (started by the bench itself).
    #[command(hide = true)]
    Tcp(peers::tcp::End),
    /// One end of QUIC (started by the bench itself).
    #[command(hide = true)]
    Quic(peers::quic::End),
    /// One end of a flood of datagrams (started by the bench itself).
    #[command(hide = true, subcommand)]
    Udp(peers::udp::Role),
    /// A node of a measured job (started by the bench itself).
    #[command(hide = true)]
    Node(node::Program),
    /// One end of sockets in the procedures of the papers (started by the bench itself).
    #[command(hide = true, subcommand)]
    Sockets(sockets::Role),
    /// A part of the case `flood` (started by the bench itself).
    #[command(hide = true, subcommand)]
    Flood(wind::flood::Role),
    /// A client of a server that sends to itself (started by the bench itself).
    #[command(hide = true)]
    Served(served::Settings),
    /// Enters a host of the lab as ssh would enter one (started by the launcher).
    #[command(hide = true)]
    Enter {
        address: String,
        #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
        command: Vec<std::ffi::OsString>,
    },
    /// Removes the hosts of a switch if the bench is killed (started by the bench itself).
    #[command(hide = true)]
    Guard,
    /// Removes the lab when its standard input ends (started by the bench itself).
    #[command(hide = true)]
    Janitor,
}

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(told) => return end(&told),
    };
    let result = match options.what {
        BenchCommand::Wind(run) => wind::SUITE.on_wires(&run),
        BenchCommand::Remote(run) => remote::SUITE.on_wires(&run),
        BenchCommand::Seal(run) => seal::SUITE.on_wires(&run),
        BenchCommand::Shm(run) => shm::SUITE.here(&run),
        BenchCommand::Attack(run) => attack::bench(&run),
        BenchCommand::Dsm(run) => dsm::bench(&run),
        BenchCommand::Collectives(run) => collectives::bench(&run),
        BenchCommand::Multicast(run) => multicast::bench(&run),
        BenchCommand::Flows(run) => wind::flows::bench(&run),
        BenchCommand::Start(run) => start::bench(&run),
        BenchCommand::Python(run) => python::bench(&run),
        BenchCommand::Exchange(run) => exchange::bench(&run),
        BenchCommand::Placement(run) => placement::bench(&run),
        BenchCommand::Node(program) => node::play(&program),
        BenchCommand::Sockets(role) => sockets::play(&role),
        BenchCommand::Floor(role) => peers::floor::play(&role),
        BenchCommand::Papers(run) => papers::bench(&run),
        BenchCommand::Tables(run) => results::write(&run),
        BenchCommand::Tcp(end) => peers::tcp::play(&end),
        BenchCommand::Quic(end) => peers::quic::play(&end),
        BenchCommand::Udp(role) => peers::udp::play(&role),
        BenchCommand::Flood(role) => wind::flood::play(&role),
        BenchCommand::Served(settings) => served::run(&settings),
        BenchCommand::Enter { address, command } => lab::enter(&address, &command),
        BenchCommand::Guard => {
            oikaze_launch::launcher::guard::guard(std::io::stdin().lock());
            Ok(())
        }
        BenchCommand::Janitor => lab::janitor(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a help text, or what is wrong with the arguments. Returns the status.
fn end(told: &clap::Error) -> ExitCode {
    let printed = told.print();
    if told.use_stderr() {
        return ExitCode::from(2);
    }
    match standard_output::finish(printed) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("bench: writing to standard output: {why}");
            ExitCode::FAILURE
        }
    }
}
