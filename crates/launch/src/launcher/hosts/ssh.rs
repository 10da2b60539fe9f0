//! Launcher's side of another host: one ssh, at whose far end `oikaze agent` runs the nodes.
//!
//! A thread for each host finds or sends the command there, gives the agent its order and files,
//! and hands its news on. The main thread never waits for a host.

use super::control_queue::{ControlLine, ControlQueue, Silence};
use super::files::Files;
use super::install::{self, Answered, Installer};
use super::pipe::{AgentMessage, Control, MAGIC, MAGIC_OF_ANY, Order};
use crate::launcher::ending::{Ending, STATUS_LAUNCHER};
use crate::launcher::error::LaunchError;
use crate::launcher::events::signals::SIGKILL;
use crate::launcher::events::{Event, HostFailure};
use crate::launcher::output::{Sink, Terminal};
use crate::launcher::sources::{OutputSource, OutputSources};
use oikaze_os::process::isolate;
use oikaze_protocol::Rank;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum number of lines before the magic one that are not suspicious.
const CHATTER_MAX: usize = 1000;

/// Origin of the agent on the other hosts.
#[derive(Clone)]
pub enum AgentSource {
    /// Command at this path, which the user names.
    Named(PathBuf),
    /// Command that is found there, or sent.
    Installed(Arc<Installer>),
}

/// Things that all hosts of a job have in common.
#[derive(Clone)]
pub struct Common {
    /// Replaces ssh (`OIKAZE_RSH`).
    pub rsh: Option<String>,
    /// Origin of the agent.
    pub source: AgentSource,
    /// Files that the job needs there.
    pub files: Arc<Files>,
    /// Destination of the nodes' output.
    pub terminal: Arc<Terminal>,
    /// Sources of that output, to which each host is added.
    pub sources: Arc<OutputSources>,
    /// Receives news of the host.
    pub events: Sender<Event>,
    /// Time for which a host may take no message.
    pub patience: Duration,
}

/// One other host.
pub struct Remote {
    host: String,
    shell: String,
    living: BTreeSet<Rank>,
    child: Child,
    pid: Pid,
    queue: Arc<ControlQueue>,
    last_words: Arc<Mutex<String>>,
    remote_output: Arc<RemoteOutput>,
    closed: bool,
    /// Set when the launcher has cut the host off, because it does not take its messages.
    silence: Option<String>,
}

/// Output of the nodes there. The agent says when it has sent all that a node has written so far.
struct RemoteOutput {
    queue: Arc<ControlQueue>,
    /// Number of messages from the agent.
    heard: AtomicU64,
    questions: Mutex<DrainQuestions>,
    answered: Condvar,
}

/// Questions to an agent, which are answered in order.
#[derive(Default)]
struct DrainQuestions {
    asked: u64,
    answered: u64,
    /// Set when the agent has ended.
    is_closed: bool,
}

impl RemoteOutput {
    fn note(&self, note: impl FnOnce(&mut DrainQuestions)) {
        note(&mut lock(&self.questions));
        self.answered.notify_all();
    }
}

impl OutputSource for RemoteOutput {
    fn drain(&self, rank: Rank, deadline: Instant) -> bool {
        // Without an agent there is no output.
        if !self.queue.is_open() {
            return true;
        }
        let mine = {
            // Locked meanwhile, so that questions have the order of their numbers.
            let mut questions = lock(&self.questions);
            self.queue.put(ControlLine::new(&Control::Drain(rank)));
            questions.asked += 1;
            questions.asked
        };
        let is_open =
            |questions: &mut DrainQuestions| questions.answered < mine && !questions.is_closed;
        let limit = deadline.saturating_duration_since(Instant::now());
        let waited = self.answered.wait_timeout_while(lock(&self.questions), limit, is_open);
        !is_open(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes a line of JSON.
fn put_line(to: &mut impl Write, line: &impl serde::Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(line)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
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

impl Remote {
    /// Enters a host, and gives the agent there its order. `index` names this remote in events.
    ///
    /// # Errors
    /// The remote shell cannot be started here.
    pub fn start(
        (index, host): (usize, &str),
        order: Order,
        common: &Common,
    ) -> Result<Remote, LaunchError> {
        let shell = shell(common.rsh.as_deref());
        let (first, rest) = shell
            .split_first()
            .ok_or_else(|| LaunchError::Usage("OIKAZE_RSH names no command".into()))?;
        let mut command = Command::new(first);
        command.args(rest).arg(host);
        match &common.source {
            AgentSource::Named(path) => command.arg(install::quoted(path.as_os_str())).arg("agent"),
            AgentSource::Installed(_) => command.arg(install::COMMAND),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        isolate(&mut command, true);
        let doing = || {
            LaunchError::system(format!(
                "start `{first}` to reach host {host} (is it installed? OIKAZE_RSH names another command)"
            ))
        };
        let mut child = command.spawn().map_err(doing())?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| doing()(io::Error::other("a process without number")))?;
        let (input, output, errors) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let last_words = Arc::new(Mutex::new(String::new()));
        let queue = Arc::new(ControlQueue::new());
        let remote_output = Arc::new(RemoteOutput {
            queue: Arc::clone(&queue),
            heard: AtomicU64::new(0),
            questions: Mutex::default(),
            answered: Condvar::new(),
        });
        common.sources.add(order.first..order.first + order.count, remote_output.clone());
        let remote = Remote {
            host: host.to_owned(),
            shell: shell.join(" "),
            living: (order.first..order.first + order.count).collect(),
            child,
            pid,
            queue: Arc::clone(&queue),
            last_words: Arc::clone(&last_words),
            remote_output: Arc::clone(&remote_output),
            closed: false,
            silence: None,
        };
        let thread = |name: &str| std::thread::Builder::new().name(format!("{name} {host}"));
        let (host, terminal) = (host.to_owned(), Arc::clone(&common.terminal));
        let name = host.clone();
        let complain = move || {
            for line in errors
                .into_iter()
                .flat_map(|errors| BufReader::new(errors).lines().map_while(Result::ok))
            {
                terminal.print_line(&format!("{name}: {line}"));
                *lock(&last_words) = line;
            }
        };
        let complaining =
            thread("errors of").spawn(complain).map_err(LaunchError::system("start a thread"))?;
        let (events, common) = (common.events.clone(), common.clone());
        let conversation = Conversation { index, host, order, common, queue, remote_output };
        let listen = move || {
            let failure = match (input, output) {
                (Some(input), Some(output)) => conversation.hold(input, output).err(),
                _ => None,
            };
            let _ = complaining.join();
            // Waits without reaping, so that the number stays its own until the launcher has seen
            // this event.
            let _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            let _ = events.send(Event::HostClosed(index, failure));
        };
        std::thread::Builder::new()
            .name(format!("news of {}", remote.host))
            .spawn(listen)
            .map_err(LaunchError::system("start a thread"))?;
        Ok(remote)
    }

    /// Passes a signal on. A host that has no agent yet gets it later, and is cut off by SIGKILL.
    /// So is a host that does not take its messages.
    pub fn signal(&mut self, signal: i32) {
        if signal == SIGKILL && self.queue.is_starting() {
            self.cut_off();
        } else if signal == SIGKILL && self.queue.is_stuck() {
            self.silence.get_or_insert_with(|| "does not take its messages".to_owned());
            self.cut_off();
        } else {
            self.put(&ControlLine::new(&Control::Signal(signal)));
        }
    }

    /// Sends a message to the agent, when it reads.
    pub fn put(&self, line: &ControlLine) {
        self.queue.put(line.clone());
    }

    /// Waits until the agent has all messages, for at most `limit`.
    pub fn flush(&self, limit: Duration) {
        self.queue.flush(limit);
    }

    /// Returns a number that grows while the agent sends something.
    #[must_use]
    pub fn heard(&self) -> u64 {
        self.remote_output.heard.load(Ordering::Relaxed)
    }

    /// Cuts off a host that does not take its messages. Its nodes are lost when the remote shell
    /// has ended (LAUNCH-8.6). Returns those that are lost at once, with the cause, because this
    /// process may not end the remote shell.
    pub fn silent(&mut self, how: &str) -> Vec<(Rank, Ending)> {
        self.silence.get_or_insert_with(|| how.to_owned());
        if self.cut_off() { Vec::new() } else { self.lose_all(&self.lost_by_silence()) }
    }

    /// Ends the remote shell. Returns `false` if this process may not, as after `OIKAZE_RSH=sudo`.
    fn cut_off(&self) -> bool {
        self.closed || kill_process_group(self.pid, Signal::KILL) != Err(Errno::PERM)
    }

    /// Takes all nodes there as lost.
    fn lose_all(&mut self, why: &str) -> Vec<(Rank, Ending)> {
        let lost = std::mem::take(&mut self.living).into_iter();
        lost.map(|rank| (rank, Ending::Lost(why.to_owned(), STATUS_LAUNCHER))).collect()
    }

    /// Closes the standard input of the remote shell. The agent ends when its input does.
    fn close(&mut self) {
        self.queue.close();
    }

    /// Notes that a node there has ended. Only the first report on a node of this host counts.
    pub fn ended(&mut self, rank: Rank) -> bool {
        let new = self.living.remove(&rank);
        if self.living.is_empty() {
            self.close();
        }
        new
    }

    /// Notes that the remote shell has ended. Returns the nodes that are lost with it, and why.
    pub fn closed(&mut self, failure: Option<HostFailure>) -> Vec<(Rank, Ending)> {
        self.close();
        self.closed = true;
        let status = self.child.wait().ok();
        let why = match failure {
            _ if self.silence.is_some() => self.lost_by_silence(),
            Some(HostFailure::NoAgent(why)) => {
                format!("could not be started on host {}: {why}", self.host)
            }
            Some(HostFailure::Broken(why)) => self.lost(status, why),
            None => self.lost(status, String::new()),
        };
        self.lose_all(&why)
    }

    /// Says that the host did not take its messages, and what to do.
    fn lost_by_silence(&self) -> String {
        let how = self.silence.as_deref().unwrap_or_default();
        format!(
            "was lost: host {} {how}; its agent or the remote shell is stopped, or the network to it is gone: check `{} {} true`",
            self.host, self.shell, self.host
        )
    }

    /// Says how the remote shell has ended, why, and what to do.
    fn lost(&self, status: Option<ExitStatus>, why: String) -> String {
        let how = status.map_or_else(String::new, |status| format!(" with {status}"));
        let words = lock(&self.last_words).clone();
        let detail = [why, words]
            .into_iter()
            .filter(|detail| !detail.is_empty())
            .collect::<Vec<_>>()
            .join("; ");
        let detail = if detail.is_empty() { detail } else { format!(" ({detail})") };
        let hint = match status.and_then(|status| status.code()) {
            Some(127) => {
                "a shell must be in PATH there, or Oikaze be installed there and be named by --agent"
                    .to_owned()
            }
            _ => format!("check that `{} {} true` works without a password", self.shell, self.host),
        };
        format!("was lost: the remote shell on host {} ended{how}{detail}; {hint}", self.host)
    }

    /// Returns `true` if the remote shell has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Closing the input tells the agent to end its nodes. An agent that has not reacted by now
        // is cut off: it may be stopped, and would be waited for without end.
        self.close();
        if self.cut_off() {
            let _ = self.child.wait();
        }
    }
}

/// Conversation of the launcher with one host.
struct Conversation {
    index: usize,
    host: String,
    order: Order,
    common: Common,
    queue: Arc<ControlQueue>,
    remote_output: Arc<RemoteOutput>,
}

impl Conversation {
    /// Gets an agent, gives it the order, and hands its news on until it ends.
    fn hold(self, mut input: ChildStdin, output: impl Read) -> Result<(), HostFailure> {
        let mut output = BufReader::new(output);
        self.reach_agent(&mut input, &mut output)?;
        self.instruct(&mut input)?;
        self.open(input).map_err(|why| HostFailure::Broken(why.to_string()))?;
        let listened = self.listen(output);
        self.remote_output.note(|questions| questions.is_closed = true);
        listened.map_err(|why| HostFailure::Broken(why.to_string()))
    }

    /// Reads lines until an agent answers. Lines of the script get answers.
    fn reach_agent(
        &self,
        input: &mut impl Write,
        output: &mut impl BufRead,
    ) -> Result<(), HostFailure> {
        let broken = |why: io::Error| HostFailure::Broken(why.to_string());
        let installer = match &self.common.source {
            AgentSource::Named(_) => None,
            AgentSource::Installed(installer) => {
                let token = format!("{:x}-{}", self.order.incarnation, self.index);
                let script = installer.script(&token);
                let put = input.write_all(&script).and_then(|()| input.flush());
                install::unless_closed(put).map_err(broken)?;
                Some(installer)
            }
        };
        let mut sent: Option<String> = None;
        let mut line = Vec::new();
        for _ in 0..CHATTER_MAX {
            line.clear();
            if output.take(4096).read_until(b'\n', &mut line).map_err(broken)? == 0 {
                return Err(HostFailure::Broken("no agent answered".into()));
            }
            if line.trim_ascii_end() == MAGIC.as_bytes() {
                if let (Some(installer), Some(file)) = (installer, &sent) {
                    self.common.terminal.print_line(&installer.report(&self.host, file));
                }
                return Ok(());
            }
            if line.starts_with(MAGIC_OF_ANY.as_bytes()) {
                break;
            }
            if let (Some(installer), Some(detail)) = (installer, line.strip_prefix(install::PREFIX))
            {
                match installer.answer(detail, input).map_err(HostFailure::NoAgent)? {
                    Answered::GoesOn => {}
                    Answered::Sent(file) => sent = Some(file),
                }
            }
        }
        let why = "the program there is not an `oikaze agent` of this release";
        Err(HostFailure::Broken(why.into()))
    }

    /// Sends the order, and the files that follow it.
    fn instruct(&self, input: &mut impl Write) -> Result<(), HostFailure> {
        let put = install::unless_closed(put_line(input, &self.order));
        put.map_err(|why| HostFailure::Broken(why.to_string()))?;
        // An agent that has no room for the files says so, and ends.
        install::unless_closed(self.common.files.send(input)).map_err(|why| {
            HostFailure::NoAgent(format!("the files of --ship cannot be sent ({why})"))
        })
    }

    /// Starts the thread that sends the agent its messages, those first that have waited.
    fn open(&self, input: ChildStdin) -> io::Result<()> {
        let (queue, common, index) = (Arc::clone(&self.queue), self.common.clone(), self.index);
        queue.open();
        let write = move || {
            // While a reader here does not read, the agent may wait for it, and read nothing.
            let is_excused = || common.terminal.is_busy();
            let written = queue.write_to(input.into(), common.patience, is_excused);
            let silence =
                |how: Silence| common.events.send(Event::HostSilent(index, how.to_string()));
            let _ = written.map_err(silence);
        };
        let name = format!("messages to {}", self.host);
        std::thread::Builder::new().name(name).spawn(write).map(drop)
    }

    /// Hands an agent's news on until it ends.
    fn listen(&self, mut output: impl Read) -> io::Result<()> {
        let terminal = &self.common.terminal;
        while let Some(news) = AgentMessage::read(&mut output)? {
            self.remote_output.heard.fetch_add(1, Ordering::Relaxed);
            match news {
                // Written by this thread, so that a slow reader here holds up the nodes there
                // instead of filling the memory here.
                AgentMessage::Output(rank, stream, bytes) => {
                    // If no reader is left, the agent's own next line finds out.
                    terminal.write(rank, stream, &bytes);
                }
                AgentMessage::OutputEnd(rank, stream) => terminal.end(rank, stream),
                AgentMessage::Drained => {
                    self.remote_output.note(|questions| questions.answered += 1);
                }
                AgentMessage::Pmi(news) => {
                    if self.common.events.send(Event::Pmi(news)).is_err() {
                        return Ok(());
                    }
                }
                AgentMessage::Note(text) => {
                    terminal.print_line(&format!("host {}: {text}", self.host))
                }
                AgentMessage::Ended(rank, how) => {
                    if self.common.events.send(Event::Ended(self.index, rank, how)).is_err() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shells() {
        assert_eq!(shell(Some("/tmp/rsh -q")), ["/tmp/rsh", "-q"]);
        assert_eq!(shell(Some(" ")).first().map(String::as_str), Some("ssh"));
    }
}
