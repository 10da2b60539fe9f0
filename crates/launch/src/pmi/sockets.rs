//! Sockets of the PMI-1 server of this host: one thread polls those of all nodes here (LAUNCH-10).

use super::host::{HostServer, Reaction};
use super::line::{LineReader, PmiLine};
use super::{PmiNews, PmiOrder};
use crate::JobError;
use oikaze_os::sender::{self, Sender};
use oikaze_protocol::Rank;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, channel};
use std::time::Duration;

/// Time limit of a wait for the last requests of nodes that have ended. Only a launcher that has
/// stopped reading takes so long.
const SETTLE_TIME: Duration = Duration::from_secs(1);

/// Function that takes the news. It may block, and the nodes here wait meanwhile.
pub type PmiReport = Arc<dyn Fn(PmiNews) + Send + Sync>;

enum ServerCommand {
    Order(PmiOrder),
    /// Ranks of nodes that have ended, and the destination of the news that all they have sent has
    /// been handled.
    Settle(Vec<Rank>, mpsc::Sender<()>),
}

/// Running server. Dropping it closes all connections.
pub struct PmiServer {
    commands: mpsc::Sender<ServerCommand>,
    /// Socket that wakes the thread by a byte. Closing it ends the thread.
    wake: UnixStream,
}

impl PmiServer {
    /// Serves the nodes at these sockets.
    ///
    /// # Errors
    /// The system refuses a thread or a socket pair.
    pub fn start(
        host: HostServer,
        sockets: Vec<(Rank, UnixStream)>,
        report: PmiReport,
    ) -> Result<PmiServer, JobError> {
        let failed = || JobError::system("start the PMI-1 server of this host");
        let (wake, woken) = UnixStream::pair().map_err(failed())?;
        woken.set_nonblocking(true).map_err(failed())?;
        let mut nodes = BTreeMap::new();
        for (rank, socket) in sockets {
            socket.set_nonblocking(true).map_err(failed())?;
            nodes.insert(rank, NodeSocket { socket, reader: LineReader::default(), user: None });
        }
        let (commands, received) = channel();
        let sockets = Sockets { host, nodes, report, woken, commands: received };
        let builder = std::thread::Builder::new().name("pmi".into());
        builder.spawn(move || sockets.serve()).map_err(failed())?;
        Ok(PmiServer { commands, wake })
    }

    /// Passes on an order of the launcher.
    pub fn order(&self, order: PmiOrder) {
        self.send(ServerCommand::Order(order));
    }

    /// Waits until all that these nodes have sent has been handled. Their processes have ended.
    pub fn settle(&self, ranks: Vec<Rank>) {
        let (to, settled) = channel();
        self.send(ServerCommand::Settle(ranks, to));
        let _ = settled.recv_timeout(SETTLE_TIME);
    }

    fn send(&self, command: ServerCommand) {
        // The thread lives as long as this server.
        let _ = self.commands.send(command);
        let _ = (&self.wake).write(&[1]);
    }
}

struct NodeSocket {
    socket: UnixStream,
    reader: LineReader,
    /// Process that has begun, and not finalized (LAUNCH-10.8).
    user: Option<Sender>,
}

/// Makes the socket of a node, and the server's end of it, which comes first.
///
/// # Errors
/// No descriptor is left.
pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    // Before the node has the other end, and sends the first line.
    sender::ask_for_senders(&ours)?;
    Ok((ours, theirs))
}

struct Sockets {
    host: HostServer,
    /// Nodes whose connection is open.
    nodes: BTreeMap<Rank, NodeSocket>,
    report: PmiReport,
    woken: UnixStream,
    commands: Receiver<ServerCommand>,
}

impl Sockets {
    fn serve(mut self) {
        while self.is_awaited() {
            for rank in self.wait() {
                self.read(rank);
            }
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    ServerCommand::Order(order) => {
                        for (rank, reaction) in self.host.order(order) {
                            self.react(rank, reaction);
                        }
                    }
                    ServerCommand::Settle(ranks, to) => {
                        ranks.into_iter().for_each(|rank| self.read(rank));
                        // The launcher may have stopped waiting.
                        let _ = to.send(());
                    }
                }
            }
        }
    }

    /// Takes the bytes that have woken this thread. Returns `false` when the server is dropped.
    fn is_awaited(&self) -> bool {
        let mut bytes = [0; 64];
        loop {
            match (&self.woken).read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return why.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Waits for something to do. Returns the nodes that have sent something.
    fn wait(&self) -> Vec<Rank> {
        let mut fds = vec![PollFd::new(&self.woken, PollFlags::IN)];
        fds.extend(self.nodes.values().map(|node| PollFd::new(&node.socket, PollFlags::IN)));
        // An interrupted poll is a turn without news.
        if poll(&mut fds, None).is_err() {
            return Vec::new();
        }
        let ready = self.nodes.keys().zip(fds.iter().skip(1));
        ready.filter(|(_, fd)| !fd.revents().is_empty()).map(|(rank, _)| *rank).collect()
    }

    /// Handles what a node has sent so far.
    fn read(&mut self, rank: Rank) {
        let mut chunk = [0; 4096];
        while let Some(node) = self.nodes.get_mut(&rank) {
            let (bytes, from) = match sender::receive(&node.socket, &mut chunk) {
                Ok((0, _)) => (None, None),
                Ok((len, from)) => (chunk.get(..len), from),
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                Err(_) => (None, None),
            };
            let Some(bytes) = bytes else {
                self.nodes.remove(&rank);
                return;
            };
            for byte in bytes {
                let Some(node) = self.nodes.get_mut(&rank) else { return };
                let taken = node.reader.take(*byte);
                let reaction = match &taken {
                    Ok(None) => continue,
                    Ok(Some(line)) => self.take(rank, line, from),
                    Err(why) => self.host.take(rank, Err(*why)),
                };
                self.react(rank, reaction);
            }
        }
    }

    /// Handles a line that this process has sent.
    fn take(&mut self, rank: Rank, line: &PmiLine, from: Option<u32>) -> Reaction {
        let Some(node) = self.nodes.get_mut(&rank) else { return Reaction::default() };
        match (line.value("cmd"), from) {
            (Some("init"), Some(from)) => {
                let other = node.user.as_ref().filter(|user| user.pid() != from);
                if let Some(other) = other.filter(|other| other.is_living()) {
                    let names = [other.pid(), from].map(name_of);
                    return self.host.refuse_second(rank, &names);
                }
                node.user = Sender::of(from);
            }
            (Some("finalize"), _) => node.user = None,
            _ => {}
        }
        self.host.take(rank, Ok(line))
    }

    /// The launcher knows the news before the node goes on.
    fn react(&mut self, rank: Rank, Reaction { news, answer, closes }: Reaction) {
        news.into_iter().for_each(|news| (self.report)(news));
        let sent = answer.zip(self.nodes.get(&rank)).map(|(answer, node)| {
            // A node reads each answer before it asks again, so there is room for it.
            (&node.socket).write_all(answer.as_bytes())
        });
        if closes || sent.is_some_and(|sent| sent.is_err()) {
            self.nodes.remove(&rank);
        }
    }
}

/// Returns the name of a process for messages, or its number if it has gone.
fn name_of(pid: u32) -> String {
    match std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        Ok(name) => name.trim_end().to_owned(),
        Err(_) => format!("process {pid}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    /// LAUNCH-10.8: a child of a node has inherited its socket.
    #[test]
    fn second_process_that_begins_is_refused_while_the_first_lives() {
        const INIT: &str = "cmd=init pmi_version=1";
        let (ours, theirs) = pair().unwrap();
        let (news, told) = channel();
        let report = move |one| _ = news.send(one);
        let host = HostServer::new(0..1, 2, 1, "");
        let _server = PmiServer::start(host, vec![(0, ours)], Arc::new(report)).unwrap();
        let mut lines = BufReader::new(&theirs).lines();
        let mut next = || lines.next().transpose().unwrap().unwrap_or_default();
        let by_child = || {
            let socket = Stdio::from(OwnedFd::from(theirs.try_clone().unwrap()));
            let script = format!("echo '{INIT}' >&0");
            let mut command = Command::new("sh");
            assert!(command.args(["-c", &script]).stdin(socket).status().unwrap().success());
        };
        let here = |line: &str| (&theirs).write_all(format!("{line}\n").as_bytes()).unwrap();
        // The first process has gone without an end.
        by_child();
        assert!(next().contains("rc=0"));
        here(INIT);
        assert!(next().contains("rc=0"));
        here(INIT);
        assert!(next().contains("rc=0"), "the same process may begin again");
        by_child();
        let refused = next();
        assert!(refused.contains("cmd=response_to_init rc=-1"), "{refused}");
        here("cmd=finalize");
        assert!(next().contains("finalize_ack"));
        by_child();
        assert!(next().contains("rc=0"));
        here(INIT);
        assert!(next().contains("rc=0"));
        here("cmd=barrier_in");
        by_child();
        assert_eq!(next(), "", "either process may read an answer, so there is none");
        let news: Vec<PmiNews> = told.try_iter().collect();
        let says = |why: &str| why.contains("begins MPI on the connection of");
        let refusals = |one: &&PmiNews| matches!(one, PmiNews::Refused(0, why) if says(why));
        assert_eq!(news.iter().filter(refusals).count(), 2, "{news:?}");
    }

    /// LAUNCH-10.1.
    #[test]
    fn nodes_are_answered_and_news_come_before_the_answer() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (news, told) = channel();
        let report = move |one| _ = news.send(one);
        let host = HostServer::new(0..1, 1, 1, "");
        let server = PmiServer::start(host, vec![(0, ours)], Arc::new(report)).unwrap();
        let mut lines = BufReader::new(&theirs);
        let mut line = || {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            line
        };
        // Several lines at once, and one in pieces.
        (&theirs).write_all(b"cmd=get_appnum\ncmd=init pmi_version=1\ncmd=bar").unwrap();
        assert_eq!(line(), "cmd=appnum rc=0 appnum=0\n");
        assert!(line().starts_with("cmd=response_to_init rc=0"));
        assert_eq!(told.try_recv(), Ok(PmiNews::Began(0)));
        (&theirs).write_all(b"rier_in\n").unwrap();
        assert_eq!(told.recv(), Ok(PmiNews::Arrived(0, Vec::new())));
        server.order(PmiOrder::Passed(Vec::new()));
        assert_eq!(line(), "cmd=barrier_out rc=0\n");
        (&theirs).write_all(b"cmd=finalize\n").unwrap();
        server.settle(vec![0]);
        assert_eq!(told.try_recv(), Ok(PmiNews::Finished(0)));
        assert_eq!(line(), "cmd=finalize_ack rc=0\n");
        (&theirs).write_all(b"\xff\n").unwrap();
        assert_eq!(line(), "", "closed");
        assert!(matches!(told.recv(), Ok(PmiNews::Refused(0, _))));
        drop(server);
    }
}
