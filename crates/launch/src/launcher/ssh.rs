//! Launcher's side of another host: one ssh, at whose far end `oikaze agent` runs the nodes.

use super::Event;
use super::ending::{Ending, STATUS_LAUNCHER};
use super::error::LaunchError;
use super::output::{Sink, Terminal};
use super::pipe::{AgentMessage, Control, MAGIC, Order};
use oikaze_os::process::isolate;
use oikaze_protocol::Rank;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of lines before the magic one that are not suspicious.
const CHATTER_MAX: usize = 1000;

/// One other host.
pub struct Remote {
    host: String,
    shell: String,
    living: BTreeSet<Rank>,
    child: Child,
    pid: Pid,
    input: Option<ChildStdin>,
    last_words: Arc<Mutex<String>>,
    closed: bool,
}

/// Returns the command that enters another host: `OIKAZE_RSH`, else ssh. ssh may not ask for
/// passwords, because the user could not answer for several hosts.
fn shell(rsh: Option<&str>) -> Vec<String> {
    let usual = "ssh -T -x -o BatchMode=yes -o ConnectTimeout=10";
    rsh.filter(|rsh| !rsh.trim().is_empty())
        .unwrap_or(usual)
        .split_whitespace()
        .map(str::to_owned)
        .collect()
}

/// Quotes a path for the shell at the other end.
fn quoted(path: &OsStr) -> OsString {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+,@".contains(byte);
    if path.as_bytes().iter().all(plain) {
        return path.to_owned();
    }
    let mut quoted = vec![b'\''];
    for &byte in path.as_bytes() {
        match byte {
            b'\'' => quoted.extend(br"'\''"),
            byte => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    OsString::from_vec(quoted)
}

impl Remote {
    /// Enters a host and gives the agent its order. `index` names this remote in events.
    ///
    /// # Errors
    /// The remote shell cannot be started here.
    pub fn start(
        (index, host): (usize, &str),
        rsh: Option<&str>,
        agent: &Path,
        order: &Order,
        terminal: &Arc<Terminal>,
        events: &Sender<Event>,
    ) -> Result<Remote, LaunchError> {
        let shell = shell(rsh);
        let agent = quoted(agent.as_os_str());
        let (first, rest) = shell
            .split_first()
            .ok_or_else(|| LaunchError::Usage("OIKAZE_RSH names no command".into()))?;
        let mut command = Command::new(first);
        command.args(rest).arg(host).arg(&agent).arg("agent");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        isolate(&mut command, true);
        let doing = || {
            LaunchError::system(format!(
                "start `{first}` to reach host {host} (is it installed? OIKAZE_RSH names another command)"
            ))
        };
        let mut child = command.spawn().map_err(doing())?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| doing()(std::io::Error::other("a process without number")))?;
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let last_words = Arc::new(Mutex::new(String::new()));
        let living = (order.first..order.first + order.count).collect();
        let words = Arc::clone(&last_words);
        let mut remote = Remote {
            host: host.to_owned(),
            shell: shell.join(" "),
            living,
            child,
            pid,
            input,
            last_words,
            closed: false,
        };
        remote.send(order);
        let thread = |name: &str| std::thread::Builder::new().name(format!("{name} {host}"));
        let (host, say, shown) = (host.to_owned(), Arc::clone(terminal), Arc::clone(terminal));
        let complain = move || {
            for line in errors
                .into_iter()
                .flat_map(|errors| BufReader::new(errors).lines().map_while(Result::ok))
            {
                say.say(&format!("{host}: {line}"));
                *words.lock().unwrap_or_else(PoisonError::into_inner) = line;
            }
        };
        let complaining =
            thread("errors of").spawn(complain).map_err(LaunchError::system("start a thread"))?;
        let events = events.clone();
        let listen = move || {
            let why = output
                .map_or(Ok(()), |output| listen(output, index, &shown, &events))
                .err()
                .map(|why| why.to_string());
            let _ = complaining.join();
            // Waits without reaping, so that the number stays its own until the launcher has seen
            // this event.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let _ = events.send(Event::HostClosed(index, why));
        };
        thread("news of").spawn(listen).map_err(LaunchError::system("start a thread"))?;
        Ok(remote)
    }

    fn send(&mut self, line: &impl serde::Serialize) {
        let Some(input) = &mut self.input else { return };
        // A broken pipe shows as the end of the agent's output.
        let _ = serde_json::to_vec(line).map(|mut line| {
            line.push(b'\n');
            input.write_all(&line).and_then(|()| input.flush())
        });
    }

    /// Passes a signal on.
    pub fn signal(&mut self, signal: i32) {
        self.send(&Control::Signal(signal));
    }

    /// Notes that a node there has ended. Only the first report on a node of this host counts.
    pub fn ended(&mut self, rank: Rank) -> bool {
        let new = self.living.remove(&rank);
        if self.living.is_empty() {
            // All nodes have ended, and the agent ends when its input does.
            self.input = None;
        }
        new
    }

    /// Notes that the remote shell has ended. Returns the nodes that are lost with it, and why.
    pub fn closed(&mut self, why: Option<String>) -> Vec<(Rank, Ending)> {
        self.input = None;
        self.closed = true;
        let status = self.child.wait().ok();
        let how = status.map_or_else(String::new, |status| format!(" with {status}"));
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let said = [why.unwrap_or_default(), words]
            .into_iter()
            .filter(|said| !said.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
        let said = if said.is_empty() { said } else { format!(" ({said})") };
        let hint = match status.and_then(|status| status.code()) {
            Some(127) => {
                "Oikaze must be installed there at the same path, or be named by --agent".to_owned()
            }
            _ => format!("check that `{} {} true` works without a password", self.shell, self.host),
        };
        let why =
            format!("was lost: the remote shell on host {} ended{how}{said}; {hint}", self.host);
        std::mem::take(&mut self.living)
            .into_iter()
            .map(|rank| (rank, Ending::Lost(why.clone(), STATUS_LAUNCHER)))
            .collect()
    }

    /// Returns `true` if the remote shell has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Closing the input tells the agent to end its nodes. Only an agent that does not react is
        // cut off, with its last words as the reason.
        self.input = None;
        if !self.living.is_empty() && !self.closed {
            let _ = kill_process_group(self.pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// Hands an agent's news on until it ends.
fn listen(
    output: impl Read,
    index: usize,
    terminal: &Terminal,
    events: &Sender<Event>,
) -> std::io::Result<()> {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    for _ in 0..CHATTER_MAX {
        line.clear();
        if output.by_ref().take(4096).read_until(b'\n', &mut line)? == 0 {
            return Err(std::io::Error::other("no agent answered"));
        }
        if line.trim_ascii_end() == MAGIC.as_bytes() {
            while let Some(news) = AgentMessage::read(&mut output)? {
                match news {
                    // Written by this thread, so that a slow reader here holds up the nodes there
                    // instead of filling the memory here.
                    AgentMessage::Output(rank, stream, bytes) => {
                        // If no reader is left, the agent's own next line finds out.
                        terminal.write(rank, stream, &bytes);
                    }
                    AgentMessage::OutputEnd(rank, stream) => terminal.end(rank, stream),
                    AgentMessage::Note(text) => terminal.say(&text),
                    AgentMessage::Ended(rank, how) => {
                        if events.send(Event::Ended(index, rank, how)).is_err() {
                            return Ok(());
                        }
                    }
                }
            }
            return Ok(());
        }
    }
    Err(std::io::Error::other("the program there is not an `oikaze agent` of this release"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells() {
        assert_eq!(shell(Some("/tmp/rsh -q")), ["/tmp/rsh", "-q"]);
        assert_eq!(shell(Some(" ")).first().map(String::as_str), Some("ssh"));
        assert_eq!(quoted("/usr/bin/oikaze".as_ref()), "/usr/bin/oikaze");
        assert_eq!(quoted("/a b/it's".as_ref()), r"'/a b/it'\''s'");
    }
}
