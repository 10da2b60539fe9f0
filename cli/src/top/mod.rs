//! `oikaze top`: shows live what the nodes of this machine do. Each node publishes its statistics
//! in memory ([`oikaze::observe`]), and the command reads them there without asking the node.

pub mod json;
mod sample;
mod table;

use clap::Args;
use oikaze::observe::{self, NodeView, Unreadable};
use sample::Sample;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Show live what the nodes of this machine do, peer by peer: rates, latencies, retransmissions,
/// windows, queues
///
/// Nodes publish their numbers in memory, so this command does not disturb them. It shows the
/// nodes of its own user (root: all) on this machine; for other machines, run it there.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  oikaze top                    all jobs here, until Ctrl-C
  oikaze top himeno             the jobs that run this program
  oikaze top --once --json      one look, since the nodes' start, for scripts
  ssh b oikaze top --once       another machine

Rates and percentiles are of the time since the look before; those of the first look, of the time since the node's start.
  seal      protection of datagrams; none: shared memory, which is not sealed
  rtt       round trip of datagrams and their acknowledgements
  settle    from handing a message over to its acknowledgement, queues included
  resent    datagrams sent again: overtaken by others + late + after a silence; vain: those that had arrived after all
  flight    bytes sent and not acknowledged, of those that congestion control and the receiver allow; x4: bulk by 4 flows,
            each with a line of its own below the peer
  multicast datagrams sent once for several nodes, the nodes that hear them, and those that came
  queue     messages not settled; of them those that wait to be sent, and those that wait for the peer's credit

Exit status: 0, or 1 if there is no such node. OIKAZE_STATISTICS=off hides a node.")]
pub struct Top {
    /// Only this job: the beginning of its number, or its program's name
    job: Option<String>,
    /// Print one JSON object per sample, on a line of its own
    #[arg(long)]
    json: bool,
    /// Print one sample and end
    #[arg(long)]
    once: bool,
    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = crate::seconds::seconds)]
    interval: Duration,
}

/// Runs the command.
pub fn top(top: &Top) -> ExitCode {
    match show(top) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        // A reader that closes the pipe has read enough.
        Err(why) if why.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("oikaze top: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Shows samples until the command is stopped or all nodes have ended. Returns `true` if there were
/// any.
fn show(top: &Top) -> std::io::Result<bool> {
    let mut out = std::io::stdout().lock();
    let screen = out.is_terminal() && !top.once && !top.json;
    let mut before: Vec<NodeView> = Vec::new();
    let mut seen = false;
    loop {
        let (nodes, unreadable) = observe::nodes()?;
        let nodes: Vec<NodeView> = nodes.into_iter().filter(|node| top.wants(node)).collect();
        if nodes.is_empty() {
            top.nothing(seen, &unreadable);
            return Ok(seen);
        }
        seen = true;
        let samples: Vec<Sample<'_>> = nodes.iter().map(|node| Sample::of(node, &before)).collect();
        match (top.json, screen) {
            (true, _) => writeln!(out, "{}", json::line(&samples, &unreadable))?,
            (false, false) => writeln!(out, "{}", table::text(&samples, &unreadable, None))?,
            (false, true) => {
                let size = rustix::termios::tcgetwinsize(&out).ok().filter(table::is_size);
                let text =
                    table::text(&samples, &unreadable, size.map(|size| usize::from(size.ws_row)));
                // Draws from the top left corner, erases the rest of each line, and erases what the
                // last sample left below.
                let most =
                    size.map_or(usize::MAX, |size| usize::from(size.ws_row).saturating_sub(1));
                let lines: String = text
                    .lines()
                    .take(most)
                    .map(|line| format!("{}\x1b[K\n", table::cut(line, size)))
                    .collect();
                write!(out, "\x1b[H{lines}\x1b[J")?;
            }
        }
        out.flush()?;
        if top.once {
            return Ok(true);
        }
        before = nodes;
        std::thread::sleep(top.interval);
    }
}

impl Top {
    fn wants(&self, node: &NodeView) -> bool {
        self.job
            .as_deref()
            .is_none_or(|job| node.job().starts_with(job) || node.node.program == job)
    }

    /// Explains on standard error why there is nothing to show.
    fn nothing(&self, seen: bool, unreadable: &[Unreadable]) {
        let which = self.job.as_ref().map_or_else(String::new, |job| format!(" of job {job}"));
        if seen {
            eprintln!("oikaze top: all nodes{which} have ended");
            return;
        }
        eprintln!(
            "oikaze top: no node{which} runs on this machine as this user: start one (oikaze run -n 2 -- PROGRAM), or look where \
             it runs; OIKAZE_STATISTICS=off hides nodes"
        );
        for process in unreadable {
            eprintln!("oikaze top: process {} looks like a node, but {}", process.pid, process.why);
        }
    }
}
