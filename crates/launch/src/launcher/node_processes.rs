//! Nodes that run on this host, as children of this process.

use super::ending::Ending;
use super::error::LaunchError;
use super::guard::Guard;
use super::output::{Sink, Stream};
use super::placement::Placement;
use super::program;
use super::sources::{OutputPipe, OutputSources};
use crate::environment::{self, NodePlace};
use crate::launcher::events::Event;
use crate::pmi::PmiOrder;
use crate::pmi::host::HostServer;
use crate::pmi::sockets::{self, PmiReport, PmiServer};
use crate::{Secret, Settings};
use oikaze_os::inherited::Inheritance;
use oikaze_os::process::isolate;
use oikaze_protocol::Rank;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// Settings that all nodes of a host have in common.
pub struct Work {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<OsString>,
    /// Directory to run in; the launcher's if absent.
    pub directory: Option<PathBuf>,
    /// Further environment variables.
    pub environment: Vec<(OsString, OsString)>,
    /// Address of the store.
    pub store: String,
    /// Number of nodes in the whole job.
    pub size: u32,
    /// Ranks on this host.
    pub ranks: Range<Rank>,
    /// The job's secret.
    pub secret: Secret,
    /// Set if the secret goes into the environment, and not into a descriptor.
    pub secret_in_environment: bool,
    /// Incarnation of this start.
    pub incarnation: u64,
    /// Which nodes are on one host ([`crate::pmi::mapping`]).
    pub mapping: String,
    /// Set if each node is on a host of its own for MPI, although all of them are here.
    pub is_apart: bool,
    /// Settings that the user gave.
    pub settings: Settings,
    /// Set if rank 0 may read the launcher's standard input.
    pub input: bool,
}

/// Destination of the nodes' output, and of what the launcher or agent has to know.
#[derive(Clone)]
pub struct Outlet {
    /// Destination of the nodes' output.
    pub sink: Arc<dyn Sink>,
    /// Sources of that output, to which a crew adds its own.
    pub sources: Arc<OutputSources>,
    /// Receives the ends of output streams.
    pub events: Sender<Event>,
    /// Receives the news of the PMI-1 server of this host.
    pub pmi: PmiReport,
}

struct Node {
    rank: Rank,
    child: Child,
    pid: Pid,
}

/// Living children. Dropping the crew kills them.
pub struct NodeProcesses {
    nodes: Vec<Node>,
    sources: Arc<OutputSources>,
    streams: usize,
    pmi: Option<PmiServer>,
}

impl NodeProcesses {
    /// Makes a crew without children.
    #[must_use]
    pub fn empty() -> NodeProcesses {
        NodeProcesses { nodes: Vec::new(), sources: Arc::default(), streams: 0, pmi: None }
    }

    /// Starts all nodes of this host. The calling thread must live as long as they should (the main
    /// thread).
    ///
    /// # Errors
    /// The system refuses; the nodes started before are killed again.
    pub fn start(
        work: &Work,
        wrap: &dyn Fn(Rank) -> Vec<String>,
        outlet: &Outlet,
        guard: &mut Guard,
    ) -> Result<NodeProcesses, LaunchError> {
        let mut crew = NodeProcesses::empty();
        crew.sources = Arc::clone(&outlet.sources);
        let secret = match work.secret_in_environment {
            true => None,
            false => Some(
                work.secret
                    .inheritance()
                    .map_err(LaunchError::system("put the job's secret into a memory file"))?,
            ),
        };
        let placement = Placement::of(&work.environment, work.ranks.len())?;
        let mut pmi_sockets = Vec::new();
        for (node, rank) in work.ranks.clone().enumerate() {
            let mut command = command(work, rank, &wrap(rank), secret.as_ref());
            let doing = || LaunchError::system("make a socket for the PMI-1 server");
            let (ours, theirs) = sockets::pair().map_err(doing())?;
            let theirs = Inheritance::of(theirs).map_err(doing())?;
            serve_pmi(&mut command, work, rank, &theirs);
            pmi_sockets.push((rank, ours));
            command.env_remove(environment::BIND);
            command.envs(placement.engine(node).map(|engine| (environment::ENGINE, engine)));
            let doing =
                || LaunchError::system(format!("start {} as node {rank}", work.program.display()));
            let mut child = placement
                .start(node, || command.spawn())?
                .map_err(|why| program::refused(&work.program, rank, why))?;
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let pid =
                pid.ok_or_else(|| doing()(std::io::Error::other("a process without number")))?;
            guard.group(pid);
            let (out, err) = (child.stdout.take(), child.stderr.take());
            crew.nodes.push(Node { rank, child, pid });
            if let (Some(out), Some(err)) = (out, err) {
                crew.pump(out.into(), rank, Stream::Out, outlet)?;
                crew.pump(err.into(), rank, Stream::Err, outlet)?;
            }
        }
        let host = HostServer::new(work.ranks.clone(), work.size, work.incarnation, &work.mapping);
        crew.pmi = Some(PmiServer::start(host, pmi_sockets, Arc::clone(&outlet.pmi))?);
        Ok(crew)
    }

    fn pump(
        &mut self,
        from: OwnedFd,
        rank: Rank,
        stream: Stream,
        outlet: &Outlet,
    ) -> Result<(), LaunchError> {
        let pipe = Arc::new(OutputPipe::new(from, rank, stream));
        self.sources.add(rank..rank + 1, pipe.clone());
        let Outlet { sink, events, .. } = outlet.clone();
        let run = move || {
            pipe.pump(&*sink);
            // After the launcher has stopped waiting for output, no thread receives this.
            let _ = events.send(Event::Drained);
        };
        std::thread::Builder::new()
            .name(format!("output {rank}"))
            .spawn(run)
            .map_err(LaunchError::system("start a thread"))?;
        self.streams += 1;
        Ok(())
    }

    /// Returns the nodes that have ended since the last call, each with its whole process group.
    /// The output that they have written has been passed on (LAUNCH-5.4), and what they have asked
    /// the PMI-1 server has been reported.
    pub fn reap(&mut self, guard: &mut Guard) -> Vec<(Rank, Ending)> {
        let mut ended = Vec::new();
        self.nodes.retain_mut(|node| {
            // Examined first and reaped later: until then the kernel cannot give the number to a
            // stranger, so the group can be killed.
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            match waitid(WaitId::Pid(node.pid), look) {
                Ok(None) => return true,
                Ok(Some(_)) => _ = kill_process_group(node.pid, Signal::KILL),
                // No longer a child of this process, so the number may be a stranger's.
                Err(_) => {}
            }
            guard.forget(node.pid);
            let how = node.child.wait().map_or_else(
                |why| {
                    Ending::Lost(
                        format!("ended, but its status is not known ({why})"),
                        super::ending::STATUS_LAUNCHER,
                    )
                },
                Ending::from,
            );
            ended.push((node.rank, how));
            false
        });
        let ranks: Vec<Rank> = ended.iter().map(|(rank, _)| *rank).collect();
        self.sources.drain(&ranks);
        if let Some(pmi) = self.pmi.as_ref().filter(|_| !ranks.is_empty()) {
            pmi.settle(ranks);
        }
        ended
    }

    /// Passes an order to the PMI-1 server of this host on.
    pub fn pmi_order(&self, order: PmiOrder) {
        self.pmi.iter().for_each(|pmi| pmi.order(order.clone()));
    }

    /// Sends a signal to all living nodes and their own children.
    pub fn signal(&self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else { return };
        for node in &self.nodes {
            let _ = kill_process_group(node.pid, signal);
        }
    }

    /// Notes that one output stream has ended.
    pub fn drained(&mut self) {
        self.streams = self.streams.saturating_sub(1);
    }

    /// Returns `true` if all output has been read.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.streams == 0
    }

    /// Stops waiting for nodes that even SIGKILL does not end.
    pub fn abandon(&mut self) {
        self.nodes.clear();
    }

    /// Returns `true` if all nodes have been reaped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

impl Drop for NodeProcesses {
    fn drop(&mut self) {
        self.signal(Signal::KILL.as_raw());
        for node in &mut self.nodes {
            let _ = node.child.wait();
        }
    }
}

fn command(work: &Work, rank: Rank, wrap: &[String], secret: Option<&Inheritance>) -> Command {
    let mut command = match wrap.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(&work.program);
            command
        }
        None => Command::new(&work.program),
    };
    let place = NodePlace {
        store: work.store.clone(),
        rank,
        size: work.size,
        local_rank: rank - work.ranks.start,
        local_size: work.ranks.end - work.ranks.start,
        secret: work.secret.clone(),
        incarnation: work.incarnation,
    };
    command.args(&work.arguments).envs(work.environment.iter().map(|(name, value)| (name, value)));
    command.envs(environment::to_variables(&place, &work.settings));
    command.env_remove(environment::SECRET_FD);
    // A command that was replaced meanwhile is looked for in PATH.
    if let Some(own) = std::env::current_exe().ok().filter(|own| own.exists()) {
        command.env(environment::COMMAND, own);
    }
    if let Some(secret) = secret {
        // Also the variables of a job in which this launcher itself runs.
        command
            .env_remove(environment::SECRET)
            .env(environment::SECRET_FD, secret.number().to_string());
        secret.pass_to(&mut command);
    }
    command.stdin(if work.input && rank == 0 { Stdio::inherit() } else { Stdio::null() });
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(directory) = &work.directory {
        command.current_dir(directory);
    }
    isolate(&mut command, true);
    command
}

/// Gives a node the variables of a PMI-1 server, and its socket (LAUNCH-10.1). The launcher may
/// itself be started by a launcher with such a server, whose variables are replaced.
fn serve_pmi(command: &mut Command, work: &Work, rank: Rank, socket: &Inheritance) {
    for of_another in ["PMI_PORT", "PMI_ID", "PMI_SPAWNED"] {
        command.env_remove(of_another);
    }
    // As `mapping` has it (LAUNCH-10.3).
    let here = if work.is_apart { rank..rank + 1 } else { work.ranks.clone() };
    command.env("PMI_FD", socket.number().to_string());
    for (name, value) in [
        ("PMI_RANK", rank),
        ("PMI_SIZE", work.size),
        ("MPI_LOCALRANKID", rank - here.start),
        ("MPI_LOCALNRANKS", here.end - here.start),
    ] {
        command.env(name, value.to_string());
    }
    socket.pass_to(command);
}
