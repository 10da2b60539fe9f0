//! Sockets of the PMI-1 server of this host: one thread polls those of all nodes here (LAUNCH-10).

use super::host::{HostServer, Reaction};
use super::line::LineReader;
use super::{PmiNews, PmiOrder};
use crate::JobError;
use oikaze_protocol::Rank;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
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
    Settle(Vec<Rank>, Sender<()>),
}

/// Running server. Dropping it closes all connections.
pub struct PmiServer {
    commands: Sender<ServerCommand>,
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
            nodes.insert(rank, NodeSocket { socket, reader: LineReader::default() });
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
            let bytes = match node.socket.read(&mut chunk) {
                Ok(0) => None,
                Ok(len) => chunk.get(..len),
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return,
                Err(_) => None,
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
                    Ok(Some(line)) => self.host.take(rank, Ok(line)),
                    Err(why) => self.host.take(rank, Err(*why)),
                };
                self.react(rank, reaction);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};

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
