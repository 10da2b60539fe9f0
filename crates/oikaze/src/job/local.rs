//! A program that is its own launcher: it becomes n processes on this machine.

use crate::error::{Error, Result};
use crate::job::handle::Job;
use oikaze_launch::environment;
use oikaze_launch::launcher::guard::{self, guard};
use oikaze_launch::launcher::{AgentChoice, LaunchError, Options};
use oikaze_protocol::limits::NODES_MAX;
use std::process::ExitCode;

/// Runs `program` on `nodes` nodes of this machine, without a launcher. The process starts itself
/// that many times, with the same arguments, and waits for the end of all. Each of them joins the
/// job and runs `program`, as [`run`](crate::run) does.
///
/// A process that a launcher has started is a node of the launcher's job, and `nodes` means
/// nothing. The variable `OIKAZE_LOCAL` gives another number of nodes.
///
/// It is as with `oikaze run -n`: each line of output begins with its rank, the failure of one node
/// ends all, and the status is that of the node that failed first. If the first process is killed,
/// the nodes are too.
///
/// Call it first in `main`, before any thread is started, because `main` runs once in each process.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     oikaze::local(4, |job| {
///         job.barrier()?;
///         println!("node {} of {}", job.rank(), job.size());
///         Ok(())
///     })
/// }
/// ```
pub fn local(
    nodes: u32,
    program: impl FnOnce(&Job) -> Result<(), Box<dyn std::error::Error>>,
) -> ExitCode {
    if std::env::var_os(guard::VARIABLE).is_some() {
        // The launcher below has started this process as its guard (LAUNCH-7.2).
        guard(std::io::stdin().lock());
        return ExitCode::SUCCESS;
    }
    let is_node = match oikaze_launch::is_launched() {
        Ok(is_node) => is_node,
        Err(why) => {
            eprintln!("oikaze: {why}");
            return ExitCode::FAILURE;
        }
    };
    if is_node {
        return super::run::run_joined(program);
    }
    match number_of_nodes(nodes) {
        Ok(None) => super::run::run_joined(program),
        Ok(Some(nodes)) => match launch(nodes) {
            Ok(status) => ExitCode::from(status),
            Err(why) => {
                eprintln!("oikaze: {why}");
                ExitCode::from(why.status())
            }
        },
        Err(why) => {
            eprintln!("oikaze: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns how many processes the program becomes (LAUNCH-7.1). `None` if it stays one.
fn number_of_nodes(nodes: u32) -> Result<Option<u32>> {
    let given = std::env::var_os(environment::LOCAL).filter(|text| !text.is_empty());
    let nodes = match given {
        None => Some(nodes),
        Some(text) => text.to_str().and_then(|text| text.trim().parse().ok()),
    };
    match nodes {
        Some(1) => Ok(None),
        Some(nodes @ 2..=NODES_MAX) => Ok(Some(nodes)),
        _ => Err(Error::invalid(
            "starting the nodes of a job",
            format!(
                "{} or `local` gives no number of nodes; give 1 to {NODES_MAX}",
                environment::LOCAL
            ),
        )),
    }
}

/// Starts this program on all nodes, and waits for their end (LAUNCH-7.1).
fn launch(nodes: u32) -> Result<u8, LaunchError> {
    let me = std::env::current_exe().map_err(|source| LaunchError::System {
        doing: "find this program itself".into(),
        source,
    })?;
    let program = std::iter::once(me.clone().into()).chain(std::env::args_os().skip(1)).collect();
    oikaze_launch::launcher::run(&Options {
        nodes: Some(nodes),
        hosts: Vec::new(),
        netns: None,
        settings: oikaze_launch::settings()?,
        prefix: true,
        timeout: None,
        reports_traffic: false,
        environment: Vec::new(),
        secret_file: None,
        secret_in_environment: false,
        program,
        own_path: me.clone(),
        agent: AgentChoice::At(me),
        files: Vec::new(),
        rsh: None,
    })
    .map(|finished| finished.status)
}
