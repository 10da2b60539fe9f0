//! `oikaze doctor`: checks the machine, and reports what was found, what is needed and how to mend
//! it.

mod cores;

use oikaze::observe::{self, NodeView, SlowPath, slow_paths};
use oikaze_launch::addresses::Reachable;
use oikaze_os::features::DisabledFeatures;
use oikaze_os::probe::{self, Finding, Suitability};
use oikaze_protocol::wire::Versions;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Result of one check.
#[derive(Clone, Debug, Serialize)]
struct Line {
    what: String,
    found: String,
    needed: String,
    ok: &'static str,
    fix: String,
}

impl From<Finding> for Line {
    fn from(finding: Finding) -> Line {
        Line {
            what: finding.what.to_owned(),
            found: finding.found,
            needed: finding.needed,
            ok: word(finding.ok),
            fix: finding.fix,
        }
    }
}

fn word(verdict: Suitability) -> &'static str {
    match verdict {
        Suitability::Good => "good",
        Suitability::Degraded => "degraded",
        Suitability::Missing => "missing",
    }
}

/// Runs all checks and prints their results. Returns status 1 if something will not work.
pub fn doctor(json: bool) -> ExitCode {
    let without = match DisabledFeatures::from_env() {
        Ok(without) => without,
        Err(why) => {
            eprintln!("oikaze doctor: {why}");
            return ExitCode::FAILURE;
        }
    };
    let mut lines: Vec<Line> = probe::probe(&without).into_iter().map(Line::from).collect();
    lines.extend(cores::lines());
    lines.extend([
        wire_format(),
        loopback(),
        interfaces(),
        command("ssh", "openssh-client", "oikaze run --hosts"),
        command("ip", "iproute2", "oikaze run --netns"),
    ]);
    lines.extend(running_jobs());
    let missing = lines.iter().filter(|line| line.ok == word(Suitability::Missing)).count();
    let text = match (json, missing) {
        (true, _) => serde_json::to_string_pretty(&lines).unwrap_or_default() + "\n",
        (false, 0) => table(&lines) + "\nOikaze works on this machine.\n",
        (false, _) => format!(
            "{}\n{missing} of {} need mending before everything works.\n",
            table(&lines),
            lines.len()
        ),
    };
    match crate::print::print(&text) {
        Ok(()) if missing == 0 => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("oikaze doctor: {why}");
            ExitCode::FAILURE
        }
    }
}

fn table(lines: &[Line]) -> String {
    let width = lines.iter().map(|line| line.what.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for line in lines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{:8}  {:width$}  {}", line.ok, line.what, line.found);
        let _ = writeln!(text, "{:10}{:width$}  needed: {}", "", "", line.needed);
        if !line.fix.is_empty() {
            let _ = writeln!(text, "{:10}{:width$}  fix: {}", "", "", line.fix);
        }
    }
    text
}

/// Returns a line for each fast path that a running node of this user has given up towards a peer.
/// The other checks show why a node does without one from the beginning.
fn running_jobs() -> Vec<Line> {
    let (nodes, _) = observe::nodes().unwrap_or_default();
    nodes.iter().flat_map(given_up).collect()
}

fn given_up(view: &NodeView) -> Vec<Line> {
    let slow = slow_paths(&view.node, &view.peers).into_iter();
    slow.filter(SlowPath::is_given_up)
        .map(|slow| Line {
            what: format!("job {}, node {}", view.job(), view.node.rank),
            found: format!("{}: {}", slow.path, slow.cause),
            needed: "for full speed".into(),
            ok: word(Suitability::Degraded),
            fix: slow.remedy.into(),
        })
        .collect()
}

/// Checks a command that some options need. A missing command is not a failure, because these
/// options report it themselves.
fn command(name: &str, package: &str, wanted_by: &str) -> Line {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let at =
        std::env::split_paths(&path).map(|directory| directory.join(name)).find(|at| at.is_file());
    let found = at
        .as_deref()
        .map(Path::display)
        .map_or_else(|| "not in PATH".to_owned(), |at| at.to_string());
    let (ok, fix) = match at {
        Some(_) => (Suitability::Good, String::new()),
        None => (
            Suitability::Degraded,
            format!("install the package {package}, or add its directory to PATH"),
        ),
    };
    Line {
        what: format!("command {name}"),
        found,
        needed: format!("only for {wanted_by}"),
        ok: word(ok),
        fix,
    }
}

/// Says which versions of the wire format this release speaks.
fn wire_format() -> Line {
    let (found, needed) = (format!("version {}", Versions::SPOKEN), "a common one on all hosts");
    let ok = word(Suitability::Good);
    Line { what: "wire format".into(), found, needed: needed.into(), ok, fix: String::new() }
}

/// Checks that loopback is up, over which nodes of one machine meet.
fn loopback() -> Line {
    let found = Reachable::here(1, true, true)
        .map(|here| here.addresses.iter().any(|at| at.address.is_loopback()));
    let (found, ok, fix) = match found {
        Ok(true) => ("up".to_owned(), Suitability::Good, ""),
        Ok(false) => ("lo is down".to_owned(), Suitability::Missing, "ip link set lo up"),
        Err(why) => (why.to_string(), Suitability::Missing, "see the error"),
    };
    let needed = "for nodes of one machine".into();
    Line { what: "loopback".into(), found, needed, ok: word(ok), fix: fix.into() }
}

/// Checks the addresses at which other machines could reach this one. Lists the first of them.
fn interfaces() -> Line {
    const SHOWN: usize = 16;
    let (found, ok) = match Reachable::here(1, true, true) {
        Ok(here) => {
            let outside = here.addresses.iter().filter(|at| !at.address.is_loopback());
            let all: Vec<String> =
                outside.map(|at| format!("{} {}", at.interface, at.address)).collect();
            let more = all.len().saturating_sub(SHOWN) + here.left_out as usize;
            let mut text = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
            if more > 0 {
                let _ = write!(text, ", and {more} more");
            }
            if all.is_empty() {
                ("none is up".to_owned(), Suitability::Degraded)
            } else {
                (text, Suitability::Good)
            }
        }
        Err(why) => (why.to_string(), Suitability::Missing),
    };
    let fix = match ok {
        Suitability::Good => "",
        _ => {
            "only nodes on this machine can meet: bring up a network interface (ip link, ip address)"
        }
    };
    let needed = "one that is up, to meet other machines".into();
    Line { what: "network interfaces".into(), found, needed, ok: word(ok), fix: fix.into() }
}
