//! Guard: a small process of its own group that cleans up after a killed launcher, which cannot do
//! so itself. The guard waits at the end of a pipe.
//!
//! The kernel kills children with the launcher (`PR_SET_PDEATHSIG`), but their own children go on,
//! and network namespaces and directories stay for ever. The launcher tells the guard of all of
//! these as they come and go. When the pipe closes without the line `done`, the guard kills the
//! processes and removes the namespaces and directories.

use super::error::LaunchError;
use super::netns;
use super::program::OWN;
use super::word::Word;
use oikaze_os::process::isolate;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::HashSet;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// Set for a process that is to be the guard, where a program is its own launcher.
pub const VARIABLE: &str = "OIKAZE_GUARD";

/// Launcher's end of the pipe to the guard.
pub struct Guard {
    child: Child,
    pipe: Option<ChildStdin>,
}

impl Guard {
    /// Starts this program again as `oikaze guard`. It is the `oikaze` command, or a program that
    /// looks for [`VARIABLE`] first.
    ///
    /// # Errors
    /// The guard cannot be started.
    pub fn start() -> Result<Guard, LaunchError> {
        // The program's path may lead to another file by now: an update, or a new build.
        let mut command = Command::new(OWN);
        command
            .arg0("oikaze")
            .arg("guard")
            .env(VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        isolate(&mut command, false);
        let mut child = command
            .spawn()
            .map_err(LaunchError::system("start the guard, which cleans up after the launcher"))?;
        let pipe = child.stdin.take();
        Ok(Guard { child, pipe })
    }

    fn send(&mut self, line: &str) {
        // Ignore a guard that was killed. The launcher cleans up by itself anyway.
        let _ = self.pipe.as_mut().map(|pipe| pipe.write_all(format!("{line}\n").as_bytes()));
    }

    /// Tells the guard of a process group to kill.
    pub fn group(&mut self, leader: Pid) {
        self.send(&format!("group {}", leader.as_raw_nonzero()));
    }

    /// Tells the guard that this process group has ended.
    pub fn forget(&mut self, leader: Pid) {
        self.send(&format!("forget {}", leader.as_raw_nonzero()));
    }

    /// Tells the guard of a directory to remove.
    pub fn directory(&mut self, path: &Path) {
        // JSON, because a path may have a newline.
        let path = serde_json::to_string(&Word(path.into()));
        let _ = path.map(|path| self.send(&format!("directory {path}")));
    }

    /// Tells the guard of a namespace to remove.
    pub fn namespace(&mut self, name: &str) {
        self.send(&format!("namespace {name}"));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.send("done");
        self.pipe = None;
        let _ = self.child.wait();
    }
}

/// Runs the guard itself: reads until the launcher is gone, then cleans up what it left.
pub fn guard(input: impl BufRead) {
    let mut groups = HashSet::new();
    let (mut namespaces, mut directories) = (Vec::new(), Vec::new());
    for line in input.lines() {
        let Ok(line) = line else { break };
        match line.split_once(' ') {
            Some(("group", pid)) => groups.extend(pid.parse::<i32>().ok().and_then(Pid::from_raw)),
            Some(("forget", pid)) => {
                if let Some(pid) = pid.parse::<i32>().ok().and_then(Pid::from_raw) {
                    groups.remove(&pid);
                }
            }
            Some(("namespace", name)) => namespaces.push(name.to_owned()),
            Some(("directory", path)) => directories.extend(serde_json::from_str::<Word>(path)),
            _ if line == "done" => return,
            _ => {}
        }
    }
    for group in groups {
        let _ = kill_process_group(group, Signal::KILL);
    }
    for name in namespaces {
        netns::remove(&name);
    }
    for path in directories {
        let _ = std::fs::remove_dir_all(&path.0);
    }
}
