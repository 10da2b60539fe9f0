//! Agent (`oikaze agent`): runs the nodes of one host for a launcher on another, and ends them when
//! the launcher goes away.

use super::directory::JobDirectory;
use super::pipe::{AgentMessage, Control, Order, PipeToLauncher, VERSION};
use crate::launcher::ending::Ending;
use crate::launcher::error::LaunchError;
use crate::launcher::events::Event;
use crate::launcher::events::signals::{
    SIGCHLD, SIGKILL, SIGSTOP, SIGXFSZ, forward_signals, stop_myself, stops, take_signals,
};
use crate::launcher::guard::Guard;
use crate::launcher::node_processes::{NodeProcesses, Outlet, Work};
use crate::launcher::output::Sink;
use crate::launcher::program::find_program;
use crate::launcher::sources::OutputSources;
use crate::launcher::word::Word;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Time that output may still take after the last node has ended.
const DRAIN_TIME: Duration = Duration::from_secs(1);

/// Returns the version of an agent in this release. Launcher and agent must have the same.
#[must_use]
pub fn version(release: &str) -> String {
    format!("{release} (protocol {VERSION})")
}

/// Serves one job, with the order on standard input and news on standard output. Called from the
/// main thread only, before any other thread starts.
///
/// # Errors
/// No usable order, or the launcher is gone.
pub fn agent() -> Result<(), LaunchError> {
    let signals = take_signals()?;
    // The launcher sends nothing before it has seen this line.
    let up = Arc::new(
        PipeToLauncher::open(std::io::stdout())
            .map_err(LaunchError::system("answer the launcher"))?,
    );
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    input.read_line(&mut line).map_err(LaunchError::system("read the launcher's order"))?;
    let usage = |why: &str| {
        LaunchError::Usage(format!(
            "{why}: `oikaze agent` is started by `oikaze run --hosts`, of the same release"
        ))
    };
    let order: Order =
        serde_json::from_str(&line).map_err(|_| usage("no order on standard input"))?;
    if order.version != VERSION {
        return Err(usage(&format!(
            "the launcher speaks version {}, this agent {VERSION}",
            order.version
        )));
    }
    let host = order.host.clone();
    let ranks = order.first..order.first.saturating_add(order.count);
    let (events, inbox) = channel();
    forward_signals(signals, events.clone())?;
    let mut guard = Guard::start()?;
    let sources = Arc::new(OutputSources::default());
    let reports = Arc::clone(&up);
    let outlet = Outlet {
        sink: up.clone(),
        sources: Arc::clone(&sources),
        events: events.clone(),
        // Sent before the node has its answer, and therefore before the node's end.
        pmi: Arc::new(move |news| _ = reports.send(&AgentMessage::Pmi(news))),
    };
    let started = JobDirectory::receive(&order, &mut input, &mut guard).and_then(|files| {
        if let Some(files) = &files {
            let (count, to) = (order.files.len(), files.path().display());
            let s = if count == 1 { "" } else { "s" };
            up.send(&AgentMessage::Note(format!("sent {count} file{s} to {to}")));
        }
        let work = work(order, files.as_ref(), &up)?;
        let crew = NodeProcesses::start(&work, &|_| Vec::new(), &outlet, &mut guard)?;
        let reports = Arc::clone(&up);
        let listen = move || listen(input, &events, &sources, &reports);
        std::thread::Builder::new()
            .name("orders".into())
            .spawn(listen)
            .map_err(LaunchError::system("start a thread"))?;
        Ok((crew, files))
    });
    match started {
        Ok((crew, files)) => {
            serve(crew, &inbox, &up, &mut guard);
            // Before the guard, which removes the directory if this process cannot.
            drop(files);
        }
        Err(why) => {
            // Status 127 means "not found", as in a shell.
            let remedy = match why.status() {
                127 => "; copy it there, to the same path as here, or send it by --ship",
                _ => "",
            };
            let how = Ending::Lost(
                format!("could not be started on host {host}: {why}{remedy}"),
                why.status(),
            );
            for rank in ranks {
                up.send(&AgentMessage::Ended(rank, how.clone()));
            }
        }
    }
    Ok(())
}

fn work<W: std::io::Write + Send>(
    order: Order,
    files: Option<&JobDirectory>,
    up: &PipeToLauncher<W>,
) -> Result<Work, LaunchError> {
    let broken = || LaunchError::Usage("the launcher's order makes no sense".into());
    let (secret, settings) = order.secret_and_settings().ok_or_else(broken)?;
    let rename = |word: &Word| match files {
        Some(files) => files.rename(word.0.clone(), &order),
        None => word.0.clone(),
    };
    let mut program: VecDeque<OsString> = order.program.iter().map(rename).collect();
    let name = program.pop_front().ok_or_else(broken)?;
    let directory = files.map_or(Path::new(&order.directory.0), JobDirectory::path);
    let directory = directory.is_dir().then(|| directory.to_owned());
    match &directory {
        Some(directory) => std::env::set_current_dir(directory)
            .map_err(LaunchError::system(format!("enter {}", directory.display())))?,
        None => {
            up.send(&AgentMessage::Note(format!(
                "{} does not exist there: running in the home directory",
                order.directory.0.display()
            )));
        }
    }
    let own_path =
        std::env::current_exe().map_err(LaunchError::system("find the oikaze command itself"))?;
    Ok(Work {
        program: find_program(&name, &own_path, std::env::var_os("PATH").as_deref())?,
        arguments: program.into(),
        directory,
        environment: order.environment.into_iter().map(|(name, value)| (name.0, value.0)).collect(),
        store: order.store,
        size: order.size,
        ranks: order.first..order.first.saturating_add(order.count),
        secret,
        secret_in_environment: order.secret_in_environment,
        incarnation: order.incarnation,
        mapping: order.mapping,
        is_apart: false,
        settings,
        input: false,
    })
}

/// Reads the launcher's signals and questions until it goes away.
fn listen<W: std::io::Write + Send>(
    input: impl BufRead,
    events: &Sender<Event>,
    sources: &OutputSources,
    up: &PipeToLauncher<W>,
) {
    for line in input.lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(Control::Signal(signal)) => _ = events.send(Event::Signal(signal)),
            Ok(Control::Drain(rank)) => {
                sources.drain(&[rank]);
                up.send(&AgentMessage::Drained);
            }
            Ok(Control::Pmi(order)) => _ = events.send(Event::PmiOrder(order)),
            Err(_) => {}
        }
    }
    let _ = events.send(Event::LauncherGone);
}

fn serve<W: std::io::Write + Send>(
    mut crew: NodeProcesses,
    inbox: &Receiver<Event>,
    up: &PipeToLauncher<W>,
    guard: &mut Guard,
) {
    loop {
        for (rank, how) in crew.reap(guard) {
            up.send(&AgentMessage::Ended(rank, how));
        }
        let over = crew.is_empty();
        if over && crew.is_drained() {
            return;
        }
        let event = if over { inbox.recv_timeout(DRAIN_TIME).ok() } else { inbox.recv().ok() };
        match event {
            Some(Event::Drained) => crew.drained(),
            Some(Event::PmiOrder(order)) => crew.pmi_order(order),
            Some(Event::LauncherGone) => crew.signal(SIGKILL),
            Some(Event::Signal(SIGCHLD | SIGXFSZ)) => {}
            Some(Event::Signal(signal)) if stops(signal) => {
                crew.signal(SIGSTOP);
                stop_myself();
            }
            Some(Event::Signal(signal)) => crew.signal(signal),
            Some(
                Event::Ended(..)
                | Event::HostClosed(..)
                | Event::HostSilent(..)
                | Event::Notice(_)
                | Event::Pmi(_)
                | Event::Answers(_)
                | Event::Report(_),
            ) => {}
            // While the launcher reads slowly, the agent waits, so that no output of the nodes is
            // lost.
            None if up.is_busy() => {}
            None => return,
        }
    }
}
