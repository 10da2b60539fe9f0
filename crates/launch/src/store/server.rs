//! Server of the store: one thread in the launcher polls all connections.

mod admission;

use super::patience;
use super::places::Claim;
use super::protocol::{Greeting, HANDSHAKE_MAX, QUESTION_MAX, Reply, Request, clip_to};
use super::seal::{self, FrameSeal};
use super::surveys::{Surveys, collect};
use super::table::{NodeAnswer, Notice, Table};
use crate::clock::{Clock, TICK};
use crate::{JobError, NodeEnd, Secret};
use oikaze_os::origin::Origin;
use oikaze_os::signals::spawn;
use oikaze_protocol::Rank;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Maximum number of bytes of unread answers. A node with more is no longer served.
const UNREAD_MAX: usize = 16 << 20;
/// Time beyond a question's limit that the store's thread has to collect the answers.
const COLLECT_TIME: Duration = Duration::from_secs(1);
/// Number of bytes taken from one connection in one turn, so that none starves the others.
const READ_CHUNK: usize = 64 << 10;

enum Command {
    Abort(String),
    Ended(NodeEnd),
    /// Question, limit, and the destination of each node's answer.
    AskAll(String, Duration, Sender<NodeAnswer>),
    /// Key, and the destination of its value.
    Read(String, Sender<Option<Vec<u8>>>),
    /// Destination of the news that all nodes but rank 0 have left.
    WaitUntilLeft(Sender<()>),
}

/// Function that the store's thread calls for each request of a node to the launcher. Other
/// requests wait meanwhile, so it blocks in one case only: an abort is told after the output
/// before it.
type Notify = Box<dyn FnMut(Notice) + Send>;

/// Running store. Dropping it stops the store.
pub struct Server {
    commands: Sender<Command>,
    /// Socket that wakes the thread by a byte. Closing it ends the thread.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
    port: u16,
    size: u32,
    origin: Origin,
}

impl Server {
    /// Serves a job of `size` nodes on `listener`.
    ///
    /// # Errors
    /// The system refuses a thread or a socket pair.
    pub fn start(listener: TcpListener, size: u32, secret: Secret) -> Result<Server, JobError> {
        Server::start_with(listener, size, secret, Box::new(drop))
    }

    /// Serves as [`Server::start`] does, with a function to call for each [`Notice`].
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        listener: TcpListener,
        size: u32,
        secret: Secret,
        notify: Notify,
    ) -> Result<Server, JobError> {
        let doing = "start the job's store";
        listener.set_nonblocking(true).map_err(JobError::system(doing))?;
        let port = listener.local_addr().map_err(JobError::system(doing))?.port();
        let (wake, woken) = UnixStream::pair().map_err(JobError::system(doing))?;
        woken.set_nonblocking(true).map_err(JobError::system(doing))?;
        let (commands, receiver) = channel();
        admission::lengthen_queue(&listener).map_err(JobError::system(doing))?;
        let unauthenticated_max = admission::unauthenticated_max();
        let (clock, paused_until, connections) = (Clock::new(), Duration::ZERO, Vec::new());
        let doors = Doors {
            listener,
            woken,
            commands: receiver,
            secret,
            unauthenticated_max,
            clock,
            paused_until,
            connections,
        };
        let serve = move || doors.serve(Table::new(size), notify);
        let thread = spawn("oikaze store", serve).map_err(JobError::system(doing))?;
        Ok(Server {
            commands,
            wake: Some(wake),
            thread: Some(thread),
            port,
            size,
            origin: Origin::here(),
        })
    }

    /// Returns the TCP port of the listener.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the job: all waiting and later requests fail.
    pub fn abort(&self, why: &str) {
        self.send(Command::Abort(why.to_owned()));
    }

    /// Tells all nodes, also those that connect later, that the process of a node has ended.
    pub fn ended(&self, end: NodeEnd) {
        self.send(Command::Ended(end));
    }

    /// Asks all nodes a question at once. The question is sent now, and the returned function waits
    /// for the answers on any thread, at most for `limit` (and one second to collect them). A text
    /// is `None` if the node is not connected, or did not answer in time.
    pub fn asking_all(
        &self,
        question: &str,
        limit: Duration,
    ) -> impl FnOnce() -> Vec<(Rank, Option<String>)> + Send + use<> {
        let (to, answers) = channel();
        self.send(Command::AskAll(clip_to(question, QUESTION_MAX).to_owned(), limit, to));
        let (size, deadline) = (self.size, Instant::now() + limit + COLLECT_TIME);
        move || collect(size, deadline, &answers)
    }

    /// Returns the value that a node has published under a key, if any.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<Vec<u8>> {
        let (to, value) = channel();
        self.send(Command::Read(key.to_owned(), to));
        value.recv_timeout(COLLECT_TIME).ok().flatten()
    }

    /// Waits until each node but rank 0 has left, or its connection has ended.
    pub fn wait_until_left(&self, limit: Duration) {
        let (to, left) = channel();
        self.send(Command::WaitUntilLeft(to));
        // After the limit, a node that still runs loses its store.
        let _ = left.recv_timeout(limit);
    }

    fn send(&self, command: Command) {
        // If the thread is gone, there is no node left to tell.
        let _ = self.commands.send(command);
        let _ = self.wake.as_ref().map(|mut wake| wake.write(&[1]));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A child of fork does not have the thread (MEM-24.2).
        if !self.origin.is_here() {
            return;
        }
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

enum ConnectionPhase {
    /// Has been greeted, and must prove the secret until this time.
    Unauthenticated(Greeting, Duration),
    /// Is a node: its rank, its connection, and the seals of both directions.
    Node(Rank, Claim, Box<(FrameSeal, FrameSeal)>),
    /// Has been refused. The connection is closed when the other end has read why, or at this time.
    Leaving(Duration),
}

struct Connection {
    stream: TcpStream,
    /// Address of the other end.
    from: IpAddr,
    accepted: Duration,
    phase: ConnectionPhase,
    read: Vec<u8>,
    unsent: Vec<u8>,
    closed: bool,
}

struct Doors {
    listener: TcpListener,
    woken: UnixStream,
    commands: Receiver<Command>,
    secret: Secret,
    unauthenticated_max: usize,
    clock: Clock,
    paused_until: Duration,
    connections: Vec<Connection>,
}

impl Doors {
    fn serve(mut self, mut table: Table, mut notify: Notify) {
        let mut surveys = Surveys::default();
        let mut waiting: Vec<Sender<()>> = Vec::new();
        while self.wait(&table) {
            let now = self.clock.now();
            while let Ok(command) = self.commands.try_recv() {
                match command {
                    Command::Abort(why) => table.abort(&why),
                    Command::Ended(end) => table.ended(end),
                    Command::AskAll(question, limit, to) => {
                        surveys.begin(now, &mut table, &question, limit, to)
                    }
                    // Nobody waits any longer if this fails.
                    Command::Read(key, to) => _ = to.send(table.value(&key).map(<[u8]>::to_vec)),
                    Command::WaitUntilLeft(to) => waiting.push(to),
                }
            }
            self.accept(now);
            for connection in &mut self.connections {
                connection.ingress(now, &self.secret, &mut table);
            }
            table.timeout(now);
            self.answer(&mut table);
            surveys.hand_out(&mut table);
            // Handled before any node can know of the request.
            while let Some(notice) = table.poll_notice() {
                notify(notice);
            }
            for connection in &mut self.connections {
                connection.flush(now);
                let ConnectionPhase::Node(rank, claim, _) = &connection.phase else { continue };
                if !table.holds(*rank, claim) {
                    connection.closed = true;
                } else if connection.closed {
                    table.disconnect(*rank);
                }
            }
            self.connections.retain(|connection| !connection.closed);
            // Answers are on their way: a node that has left hears so before the store ends.
            let unsent = self.connections.iter().any(|connection| !connection.unsent.is_empty());
            if !unsent && table.others_have_left() {
                waiting.drain(..).for_each(|to| _ = to.send(()));
            }
        }
    }

    /// Waits until there is something to do. Returns `false` when the server is dropped.
    fn wait(&mut self, table: &Table) -> bool {
        let deadlines = self.connections.iter().filter_map(|connection| match connection.phase {
            ConnectionPhase::Unauthenticated(_, deadline) | ConnectionPhase::Leaving(deadline) => {
                Some(deadline)
            }
            ConnectionPhase::Node(..) => None,
        });
        let now = self.clock.now();
        let rest = Some(self.paused_until).filter(|&until| until > now);
        let deadline = deadlines.chain(table.next_timeout()).chain(rest).min();
        // Rounded up, so that a deadline has passed when the wait ends.
        let left = deadline
            .map(|deadline| (deadline.saturating_sub(now) + Duration::from_millis(1)).min(TICK));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let knock = if self.paused_until <= now { PollFlags::IN } else { PollFlags::empty() };
        let mut fds =
            vec![PollFd::new(&self.woken, PollFlags::IN), PollFd::new(&self.listener, knock)];
        fds.extend(self.connections.iter().map(|connection| {
            let write =
                if connection.unsent.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            PollFd::new(&connection.stream, PollFlags::IN | write)
        }));
        // An interrupted or failed poll is a turn without news.
        let _ = poll(&mut fds, left.as_ref());
        drop(fds);
        let mut woken = &self.woken;
        let mut bytes = [0; 64];
        loop {
            match woken.read(&mut bytes) {
                Ok(0) => return false,
                Ok(_) => {}
                Err(why) => {
                    return matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                }
            }
        }
    }

    /// Hands the table's answers to their connections.
    fn answer(&mut self, table: &mut Table) {
        let mut at: HashMap<Rank, usize> = HashMap::new();
        for (index, connection) in self.connections.iter().enumerate() {
            if let ConnectionPhase::Node(rank, claim, _) = &connection.phase
                && table.holds(*rank, claim)
            {
                at.insert(*rank, index);
            }
        }
        while let Some((rank, id, reply)) = table.poll_reply() {
            if let Some(connection) =
                at.get(&rank).and_then(|&index| self.connections.get_mut(index))
            {
                connection.push(id, &reply);
            }
        }
    }
}

impl Connection {
    fn push(&mut self, id: u32, reply: &Reply) {
        let ConnectionPhase::Node(_, _, seals) = &mut self.phase else { return };
        self.unsent.extend(seals.1.frame(&reply.encode(id)));
        self.closed |= self.unsent.len() > UNREAD_MAX;
    }

    fn ingress(&mut self, now: Duration, secret: &Secret, table: &mut Table) {
        if self.fill().is_none() {
            self.closed = true;
        }
        while !self.closed {
            let sealed = matches!(self.phase, ConnectionPhase::Node(..));
            match seal::cut(&mut self.read, sealed) {
                Ok(None) => break,
                Ok(Some(content)) => self.content(&content, now, secret, table),
                Err(_) => self.closed = true,
            }
        }
    }

    /// Reads the bytes that are there, up to a bound. Returns `None` when the other end has closed.
    fn fill(&mut self) -> Option<()> {
        let mut chunk = [0; 4096];
        let max = if matches!(self.phase, ConnectionPhase::Node(..)) {
            READ_CHUNK
        } else {
            HANDSHAKE_MAX
        };
        let mut taken = 0;
        while taken < max {
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(len) => {
                    taken += len;
                    self.read.extend(chunk.get(..len)?);
                }
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(())
    }

    fn content(&mut self, content: &[u8], now: Duration, secret: &Secret, table: &mut Table) {
        match &mut self.phase {
            ConnectionPhase::Leaving(_) => {}
            ConnectionPhase::Node(rank, _, seals) => {
                match seals.0.open(content).and_then(|body| Request::decode(&body)) {
                    Ok((id, request)) => table.request(now, *rank, id, request),
                    Err(_) => self.closed = true,
                }
            }
            ConnectionPhase::Unauthenticated(greeting, _) => {
                let (phase, verdict) = admission::judge(content, greeting, now, secret, table);
                if matches!(phase, ConnectionPhase::Node(..)) {
                    // Without these options a lossy path is only slower.
                    let _ = patience::notice_stalls(&self.stream);
                }
                self.phase = phase;
                self.unsent.extend(seal::plain(&verdict.encode()));
            }
        }
    }

    fn flush(&mut self, now: Duration) {
        while !self.unsent.is_empty() && !self.closed {
            match self.stream.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => break,
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.closed = true,
            }
        }
        match self.phase {
            ConnectionPhase::Unauthenticated(_, deadline) => self.closed |= deadline <= now,
            // The other end closes when it has read the refusal. Closing first could reset the
            // connection before that.
            ConnectionPhase::Leaving(deadline) => self.closed |= deadline <= now,
            ConnectionPhase::Node(..) => {}
        }
    }
}
