//! `oikaze doctor`: what was found, what is needed, how to mend it.

use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// One thing looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What was looked at.
    pub what: String,
    /// What is there.
    pub found: String,
    /// What should be.
    pub needed: String,
    /// Good enough?
    pub ok: bool,
    /// What to do if not.
    pub fix: String,
}

/// Look at everything; status 1 if something that is needed is missing.
pub fn doctor(json: bool) -> ExitCode {
    let lines = job_lines();
    if json {
        println!("{}", serde_json::to_string_pretty(&lines).unwrap_or_else(|why| format!("\"{why}\"")));
    } else {
        print!("{}", table(&lines));
    }
    if lines.iter().all(|line| line.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn table(lines: &[Line]) -> String {
    let width = |of: fn(&Line) -> &String| lines.iter().map(|line| of(line).chars().count()).max().unwrap_or(0);
    let (what, found) = (width(|line| &line.what), width(|line| &line.found));
    let mut text = String::new();
    for line in lines {
        let mark = if line.ok { "ok  " } else { "MEND" };
        text += &format!("{mark}  {:what$}  {:found$}  needed: {}\n", line.what, line.found, line.needed);
        if !line.ok {
            text += &format!("{:6}{:what$}  -> {}\n", "", "", line.fix);
        }
    }
    text
}

fn command_line(command: &str, package: &str, what_for: &str) -> Line {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Also where a user's PATH often does not lead.
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let at = places.map(|directory| directory.join(command)).find(|at| at.is_file());
    Line {
        what: format!("command {command}"),
        found: at.as_deref().map(Path::display).map_or_else(|| "not found".to_owned(), |at| at.to_string()),
        needed: format!("only for {what_for}"),
        // Wanted by some options only, which say so themselves.
        ok: true,
        fix: format!("install the package {package}"),
    }
}

/// What jobs need.
fn job_lines() -> Vec<Line> {
    let host = oikaze::job::addresses::Reachable::here(1, true, true);
    let interfaces = Line {
        what: "network interfaces".into(),
        found: match &host {
            Ok(host) => {
                let mut names: Vec<_> = host.addresses.iter().map(|at| format!("{} {}", at.interface, at.address)).collect();
                names.dedup();
                names.join(", ")
            }
            Err(why) => why.to_string(),
        },
        needed: "one that is up, with an address".into(),
        ok: host.is_ok_and(|host| !host.addresses.is_empty()),
        fix: "bring one up, at least loopback: ip link set lo up".into(),
    };
    vec![interfaces, command_line("ssh", "openssh-client", "run --hosts"), command_line("ip", "iproute2", "run --netns")]
}
