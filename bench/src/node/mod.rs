//! Programs that run as nodes of a measured job: `oikaze run … -- oikaze-bench node …`.
//!
//! Each node may get an engine, a way to wait and cores of its own. The program therefore starts
//! itself once more, with the variables of its rank. Node 0 prints the result as one JSON object.

mod array;
mod awaiting;
pub mod burst;
mod crowd;
pub mod form;
mod idle;
pub mod load;
pub mod output;
pub mod pair;
mod ping;
pub mod post;
mod request;
mod single;
pub mod wake;

use std::os::unix::process::CommandExt;
use std::process::Command;

use array::{declare, guard, lock, memory};
use clap::{Args, Subcommand};

use crate::error::{Error, Tried};
use crate::process::own_program;
pub use output::{failed, tell};

/// Variable by which the program knows that it has the variables of its rank.
pub const ENTERED: &str = "OIKAZE_BENCH_NODE";

/// Program of a node, with the settings of all ranks.
#[derive(Args)]
pub struct Program {
    /// Engine of each node, in the order of ranks, in the words of `OIKAZE_ENGINE`; `launcher`
    /// keeps what the launcher has set. The last one also counts for all further nodes.
    #[arg(long, value_delimiter = ',', default_value = "launcher")]
    engines: Vec<String>,
    /// Way to wait of each node, in the words of `OIKAZE_WAIT`.
    #[arg(long, value_delimiter = ',', default_value = "adaptive")]
    waits: Vec<String>,
    /// Core of each node's application; without it the launcher's choice counts.
    #[arg(long, value_delimiter = ',')]
    cores: Vec<String>,
    #[command(subcommand)]
    role: Role,
}

/// Measurement in which the node takes part.
#[derive(Subcommand)]
enum Role {
    /// Join and leave, to see whether the engine is permitted.
    Probe,
    /// Join and leave. Node 0 prints the number of nodes.
    Start,
    /// Cost of a put for its caller.
    Post(post::Settings),
    /// Many packets and one answer.
    Burst(burst::Settings),
    /// Transfers one at a time, or few at a time.
    Single(single::Settings),
    /// Registration of memory.
    Register(single::Registration),
    /// Ping-pong of puts, by the time of all turns.
    Ping(ping::Settings),
    /// Latency and bandwidth for a while.
    Load(load::Settings),
    /// Processor time of a job that waits.
    Idle(idle::Settings),
    /// Additions at the peer, awaited in several ways.
    Await(awaiting::Settings),
    /// Additions of all nodes of a machine.
    Crowd(crowd::Settings),
    /// Wake-ups for several arrivals.
    Wake(wake::Settings),
    /// An application of paper 002 and its receiver.
    Form(form::Settings),
    /// Time to declare an array.
    Declare(declare::Settings),
    /// Time to begin and end a guard.
    Guard(guard::Settings),
    /// Lock that is passed between nodes.
    Lock(lock::Settings),
    /// Memory of nodes that read one array.
    Memory(memory::Settings),
    /// Request to the engine, in a job of one node.
    Request(request::Settings),
}

/// Runs the program as a node of the job that started it.
///
/// # Errors
/// The job or an operation fails.
pub fn play(program: &Program) -> Result<(), Error> {
    if std::env::var_os(ENTERED).is_none() {
        return enter(program);
    }
    let job = oikaze::join().map_err(failed)?;
    match &program.role {
        Role::Probe => job.barrier().map_err(failed)?,
        Role::Start => {
            job.barrier().map_err(failed)?;
            if job.rank() == 0 {
                println!("{} nodes", job.size());
            }
        }
        Role::Post(settings) => post::run(&job, settings)?,
        Role::Burst(settings) => burst::run(&job, settings)?,
        Role::Single(settings) => single::run(&job, settings)?,
        Role::Register(settings) => single::register(&job, settings)?,
        Role::Ping(settings) => ping::run(&job, settings)?,
        Role::Load(settings) => load::run(&job, settings)?,
        Role::Idle(settings) => idle::run(&job, settings)?,
        Role::Await(settings) => awaiting::run(&job, settings)?,
        Role::Crowd(settings) => crowd::run(&job, settings)?,
        Role::Wake(settings) => wake::run(&job, settings)?,
        Role::Form(settings) => form::run(&job, settings)?,
        Role::Declare(settings) => declare::run(&job, settings)?,
        Role::Guard(settings) => guard::run(&job, settings)?,
        Role::Lock(settings) => lock::run(&job, settings)?,
        Role::Memory(settings) => memory::run(&job, settings)?,
        Role::Request(settings) => request::run(&job, settings)?,
    }
    job.leave().map_err(failed)
}

/// Starts this program again, with the engine, the wait and the core of its rank.
fn enter(program: &Program) -> Result<(), Error> {
    let rank = std::env::var("OIKAZE_RANK").ok().and_then(|rank| rank.parse().ok()).unwrap_or(0);
    let me = own_program()?;
    if let Some(core) = of_rank(&program.cores, rank).and_then(|core| core.parse().ok()) {
        oikaze_os::cpu::pin_to_core(core).tried(format!("pinning node {rank} to core {core}"))?;
    }
    let mut command = Command::new(me);
    command.args(std::env::args_os().skip(1)).env(ENTERED, "1");
    if let Some(engine) = of_rank(&program.engines, rank).filter(|engine| *engine != "launcher") {
        command.env("OIKAZE_ENGINE", engine);
    }
    if let Some(wait) = of_rank(&program.waits, rank) {
        command.env("OIKAZE_WAIT", wait);
    }
    Err(Error::io("starting the node's program again", &command.exec()))
}

/// Returns the setting of a rank: the last one for all ranks beyond the list.
fn of_rank(settings: &[String], rank: usize) -> Option<&str> {
    settings.get(rank).or(settings.last()).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::of_rank;

    #[test]
    fn last_setting_counts_for_all_further_ranks() {
        let settings = ["spin".to_owned(), "block".to_owned()];
        let found = [0, 1, 2].map(|rank| of_rank(&settings, rank));
        assert_eq!(found, [Some("spin"), Some("block"), Some("block")]);
        assert_eq!(of_rank(&[], 0), None);
    }
}
