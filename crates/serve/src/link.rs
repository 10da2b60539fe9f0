//! The node's end: a link whose datagrams a server sends and receives.

use super::counters;
use super::name::{DEFAULT_NAME, check_name, socket_name};
use super::record::{HEADING, OPEN_TIME, POLLS_PER_CHECK, head_of, nonsense, rest_of};
use super::stall::StallWatch;
use oikaze_os::cpu::Event;
use oikaze_os::features::Feature;
use oikaze_os::memory::MemoryError;
use oikaze_os::net::{
    Arrival, Bind, Link, LinkProperties, LinkStall, LocalAddress, Outgoing, Ports, Sink,
    Statistics, TooBig, local_addresses,
};
use oikaze_os::shm::{ControlSocket, Listener, Pair, PairRole, Part, shared_memory};
use oikaze_protocol::serve::{DATAGRAM_MAX, HEAD, OpenAnswer, OpenRequest, ToNode, ToServer};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::geteuid;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Maximum number of datagrams of one burst.
const BURST: usize = 64;
/// Time after which a node tries again to write into a full ring.
const FULL_RETRY_TIME: Duration = Duration::from_micros(100);
/// Parts of a record that is its head alone.
const NOTHING: [Part<'static>; 3] = [Part::Bytes(&[]); 3];
/// Maximum number of notices and reports that wait to be taken.
const REPORTS_MAX: usize = 64;
/// Time for a server whose connection has ended to end as a process, and so to free its ports.
const PORTS_FREE_TIME: Duration = Duration::from_millis(500);
/// Maximum number of servers that take over one after the other, each within
/// [`SERVERS_AGAIN_TIME`] of the one before.
const SERVERS_IN_A_ROW_MAX: u32 = 8;
/// Time of service after which a server's end counts as the first again.
const SERVERS_AGAIN_TIME: Duration = Duration::from_secs(10);

/// Error of [`ServedLink::connect`].
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name is not one of a server.
    #[error("{0}")]
    Name(String),
    /// No server for this user listens under the name.
    #[error(
        "no server {name:?} of this user runs in this network namespace{}: start one (oikaze serve{}), or use OIKAZE_ENGINE=thread",
        of_root(root),
        argument(name)
    )]
    Missing {
        /// Name of the server.
        name: String,
        /// Reason why the server of root under the name does not serve this user, if there is one.
        root: Option<String>,
    },
    /// The process under the name belongs to another user.
    #[error(
        "the server {name:?}: {source}; a node accepts a server of its own user or of root: start one under another name (oikaze serve NAME)"
    )]
    WrongUser {
        /// Name of the server.
        name: String,
        /// Users of both ends.
        source: io::Error,
    },
    /// The server refused.
    #[error("the server {name:?} opened no link: {why}")]
    Refused {
        /// Name of the server.
        name: String,
        /// Reason of the server.
        why: String,
    },
    /// The server has ended before it answered.
    #[error("the server {name:?} ended before it answered")]
    Ended {
        /// Name of the server.
        name: String,
    },
    /// No memory for the rings.
    #[error("no memory to share with the server: {0}")]
    Memory(#[from] MemoryError),
    /// A system call failed, or the server said nothing.
    #[error("could not speak to the server {name:?}: {source}")]
    System {
        /// Name of the server.
        name: String,
        /// Error of the system call.
        source: io::Error,
    },
}

fn of_root(why: &Option<String>) -> String {
    why.as_ref().map_or_else(String::new, |why| format!(" (root has one, and {why})"))
}

fn argument(name: &str) -> String {
    if name == DEFAULT_NAME { String::new() } else { format!(" {name}") }
}

/// Connects to the next server of a link whose server has ended. Gets the reason, the name, and
/// what to ask for.
pub type Reconnect = Box<dyn FnMut(&str, &str, &Bind) -> Result<ServedLink, String> + Send>;

/// Process at the other end of a link, for messages.
#[derive(Debug)]
struct Identity {
    name: String,
    pid: Option<i32>,
    /// Control group of the process, if it is another one than that of this process.
    group: Option<String>,
}

impl Identity {
    fn of(name: &str, line: &ControlSocket) -> Identity {
        // A socket that a service manager passed on names the first process.
        let pid = line.pid().filter(|pid| *pid != 1);
        let group = |whose: &str| std::fs::read_to_string(format!("/proc/{whose}/cgroup")).ok();
        let theirs = pid.and_then(|pid| group(&pid.to_string()));
        let group =
            theirs.zip(group("self")).and_then(|(theirs, ours)| other_group(&theirs, &ours));
        Identity { name: name.to_owned(), pid, group }
    }
}

/// Returns the path of the first control group in `theirs` that is not in `ours`. Both are
/// `/proc/PID/cgroup` (`cgroups(7)`).
fn other_group(theirs: &str, ours: &str) -> Option<String> {
    let other = theirs.lines().find(|line| !ours.lines().any(|own| own == *line))?;
    other.splitn(3, ':').nth(2).map(str::to_owned)
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the server {:?} (oikaze serve", self.name)?;
        if let Some(pid) = self.pid {
            write!(f, ", process {pid}")?;
        }
        if let Some(group) = &self.group {
            write!(f, " in the control group {group} of the job that started it")?;
        }
        write!(f, "), which sends and receives for this node,")
    }
}

/// Connects to the server after one that has ended.
struct Successor {
    connect: Reconnect,
    /// Time of the latest connection, and the number of those in a row.
    latest: Option<Instant>,
    in_a_row: u32,
}

impl std::fmt::Debug for Successor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Successor").field("in_a_row", &self.in_a_row).finish_non_exhaustive()
    }
}

impl Successor {
    /// Returns `true` if another server may take over now. Servers that end again and again do not.
    fn may_connect(&mut self, now: Instant) -> bool {
        let is_again =
            self.latest.replace(now).is_some_and(|latest| now - latest < SERVERS_AGAIN_TIME);
        self.in_a_row = if is_again { self.in_a_row + 1 } else { 1 };
        self.in_a_row <= SERVERS_IN_A_ROW_MAX
    }
}

/// A link whose datagrams a server sends and receives. The calling thread makes no system call that
/// sends or receives; it makes one that wakes the server if the server sleeps.
#[derive(Debug)]
pub struct ServedLink {
    pair: Pair,
    server: Identity,
    /// Request by which the link was opened.
    ask: Bind,
    successor: Option<Successor>,
    stalls: StallWatch,
    port: u16,
    bulk_port: Option<u16>,
    flows: u8,
    datagram_max: usize,
    receive_buffer: usize,
    receive_overhead: usize,
    /// Set of descriptors that wake a sleeping thread: that of the server, and `pending`.
    wakeups: OwnedFd,
    /// Signalled while a thread is about to sleep and the ring already has a record.
    pending: Event,
    sleepers: u32,
    /// Bytes of the datagram that is handed on.
    bytes: Vec<u8>,
    /// Polls that found nothing since the socket was last asked.
    idle_polls: u32,
    /// Time since when the ring to the server has had no room.
    full_since: Option<Instant>,
    too_big: VecDeque<TooBig>,
    notices: VecDeque<String>,
    /// Counters of the server, as of its last report.
    reported: Statistics,
    /// Counters of the servers that have ended.
    ended: Statistics,
    /// Counters of this end.
    own: Statistics,
    /// Answers that have come. Only tests ask.
    answers: u64,
}

impl ServedLink {
    /// Connects to the server of this name, which opens sockets as `ask` says.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(name: &str, ask: &Bind) -> Result<ServedLink, ConnectError> {
        check_name(name).map_err(ConnectError::Name)?;
        let mut root = None;
        let mut failed = None;
        for line in lines(name) {
            match line.and_then(|line| Self::open_by(line, name, ask)) {
                Err(ConnectError::Missing { root: None, .. }) => {}
                Err(ConnectError::Missing { root: why, .. }) => root = why,
                Err(why) => failed = failed.or(Some(why)),
                Ok(link) => return Ok(link),
            }
        }
        Err(failed.unwrap_or(ConnectError::Missing { name: name.to_owned(), root }))
    }

    /// Asks the server at the other end of the line for a link.
    fn open_by(line: ControlSocket, name: &str, ask: &Bind) -> Result<ServedLink, ConnectError> {
        let system = |source| ConnectError::System { name: name.to_owned(), source };
        let memory = shared_memory()?;
        // A server that refuses this user answers before it is asked, and hangs up.
        let message = line.say(&request(ask).encode(), Some(memory.as_fd()));
        let answer = answer(&line).map_err(|why| match why.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                ConnectError::Ended { name: name.to_owned() }
            }
            _ => system(message.err().unwrap_or(why)),
        })?;
        let opened = match OpenAnswer::decode(&answer).map_err(|_| system(nonsense()))? {
            OpenAnswer::Refused(why) => {
                return Err(ConnectError::Refused { name: name.to_owned(), why });
            }
            OpenAnswer::NotServed(why) => {
                return Err(ConnectError::Missing { name: name.to_owned(), root: Some(why) });
            }
            opened => opened,
        };
        let pair = Pair::new(&memory, PairRole::Caller, line).map_err(system)?;
        Self::of(name, ask, pair, &opened).map_err(system)
    }

    fn of(name: &str, ask: &Bind, pair: Pair, opened: &OpenAnswer) -> io::Result<ServedLink> {
        let OpenAnswer::Opened {
            port,
            bulk_port,
            flows,
            datagram_max,
            receive_buffer,
            receive_overhead,
        } = *opened
        else {
            return Err(nonsense());
        };
        let pending = Event::new()?;
        let wakeups = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [pair.as_fd(), pending.fd()] {
            epoll::add(&wakeups, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(ServedLink {
            server: Identity::of(name, &pair.line),
            pair,
            ask: ask.clone(),
            successor: None,
            stalls: StallWatch::default(),
            port,
            bulk_port,
            flows,
            datagram_max: datagram_max as usize,
            receive_buffer: usize::try_from(receive_buffer).unwrap_or(usize::MAX),
            receive_overhead: receive_overhead as usize,
            wakeups,
            pending,
            sleepers: 0,
            bytes: Vec::new(),
            idle_polls: 0,
            full_since: None,
            too_big: VecDeque::new(),
            notices: VecDeque::new(),
            reported: Statistics::default(),
            ended: Statistics::default(),
            own: Statistics::default(),
            answers: 0,
        })
    }

    /// Lets `connect` find the next server, should this one end (SERVE-5.2).
    #[must_use]
    pub fn reconnecting(self, connect: Reconnect) -> ServedLink {
        let successor = Some(Successor { connect, latest: None, in_a_row: 0 });
        ServedLink { successor, ..self }
    }

    /// Takes wakeups from the socket, and finds out whether the server still lives and runs.
    fn read_control(&mut self) -> io::Result<()> {
        self.idle_polls = 0;
        // A position that cannot be is found where records are put in.
        if let Ok(unread) = self.pair.outward.unread() {
            self.stalls.check(self.pair.outward.settled_before(), unread > 0, Instant::now());
        }
        loop {
            match self.pair.line.hear() {
                Ok(Some(message)) if ControlSocket::is_wake(&message) => {}
                Ok(Some(message)) => {
                    // The server tells why it serves this node no more.
                    if let Ok(OpenAnswer::Refused(why)) = OpenAnswer::decode(message.bytes()) {
                        return Err(self.ended(&format!("serves this node no more: {why}")));
                    }
                }
                Ok(None) => return Ok(()),
                Err(why) => return self.go_on(&format!("has ended ({why})")),
            }
        }
    }

    /// Goes on with the next server, at the same ports, because this one has ended (SERVE-5.2).
    /// Datagrams that were under way in the rings are lost, as on a network.
    ///
    /// # Errors
    /// There is no other server, or the ports are taken.
    fn go_on(&mut self, what: &str) -> io::Result<()> {
        let why = self.ended(what);
        let Some(successor) = &mut self.successor else { return Err(why) };
        if !successor.may_connect(Instant::now()) {
            let text = format!("{why}; so have {SERVERS_IN_A_ROW_MAX} before it in a short time");
            return Err(io::Error::new(why.kind(), text));
        }
        await_end_of(&self.pair.line);
        let port = Ports::range(self.port, self.port).unwrap_or(self.ask.ports);
        let ask = Bind { ports: port, bulk_port: self.bulk_port, ..self.ask.clone() };
        let next = (successor.connect)(&why.to_string(), &self.server.name, &ask);
        let next = next.and_then(|link| {
            let is_same = (link.port, link.bulk_port) == (self.port, self.bulk_port);
            if is_same { Ok(link) } else { Err("its ports are in use by others".to_owned()) }
        });
        match next {
            Ok(link) => self.adopt(link),
            Err(more) => {
                let text = format!("{why}; no other server takes over: {more}");
                Err(io::Error::new(why.kind(), text))
            }
        }
    }

    /// Takes over the server of another link.
    fn adopt(&mut self, link: ServedLink) -> io::Result<()> {
        // A child of fork may keep the descriptor open, and with it the entry in the set.
        let _ = epoll::delete(&self.wakeups, self.pair.as_fd());
        (self.pair, self.server) = (link.pair, link.server);
        let (data, events) = (epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        epoll::add(&self.wakeups, self.pair.as_fd(), data, events)?;
        counters::add(&mut self.ended, &self.reported);
        (self.reported, self.full_since) = (Statistics::default(), None);
        self.stalls.begin_anew();
        Ok(())
    }

    /// Makes the next record wake the thread that is about to sleep. A record that is there already
    /// makes the descriptor readable at once.
    fn arm(&mut self) {
        self.pending.clear();
        self.pair.inward.fall_asleep();
        oikaze_os::sync::make_fences();
        if self.pair.inward.has_record() {
            self.pending.signal();
        }
    }

    /// Returns the error of a link that carries nothing any more (SERVE-5.2, SERVE-3.4).
    fn ended(&self, what: &str) -> io::Error {
        io::Error::new(io::ErrorKind::BrokenPipe, format!("{} {what}", self.server))
    }

    /// Puts a record into the ring. Returns `false` if there is no room.
    fn put(&mut self, head: &ToServer, parts: [Part<'_>; 3]) -> bool {
        let [first, second, third] = parts;
        let head = head.encode();
        self.pair.outward.put(HEADING, &[Part::Bytes(&head), first, second, third]).is_ok()
    }

    /// Waits until the server has sent what was put in before, and has reported on it. Hands on
    /// datagrams that come meanwhile.
    #[cfg(test)]
    pub(super) fn flush(&mut self, take: &mut dyn FnMut(Arrival<'_>)) {
        let deadline = Instant::now() + OPEN_TIME;
        while !self.ask() {
            assert!(Instant::now() < deadline, "the ring is full for long");
        }
        let before = self.answers;
        while self.answers == before {
            assert!(Instant::now() < deadline, "the server does not answer");
            match self.pair.inward.peek().unwrap() {
                None => std::thread::yield_now(),
                Some(heading) => drop(self.take_record(&heading, take).unwrap()),
            }
            self.pair.wake();
        }
    }

    /// Asks for the counters, if the ring has room. Returns `false` if it has none.
    #[cfg(test)]
    pub(super) fn ask(&mut self) -> bool {
        let asked = self.put(&ToServer::Count, NOTHING);
        self.pair.wake();
        asked
    }

    /// Writes a record that makes no sense.
    #[cfg(test)]
    pub(super) fn put_nonsense(&mut self) {
        self.pair.outward.put(HEADING, &[Part::Bytes(&[0xff; HEAD])]).unwrap();
        self.pair.wake();
    }

    /// Takes the oldest record. Returns `true` if it was a datagram.
    fn take_record(
        &mut self,
        heading: &oikaze_protocol::shm::Heading,
        take: &mut dyn FnMut(Arrival<'_>),
    ) -> io::Result<bool> {
        let rest = rest_of(heading)?;
        let head = ToNode::decode(&head_of(&self.pair.inward)).map_err(|_| nonsense())?;
        self.bytes.clear();
        self.pair.inward.append(HEAD, rest, &mut self.bytes);
        let position = self.pair.inward.pass(*heading);
        self.pair.inward.settle(position);
        match head {
            ToNode::Datagram { from, is_congested } => {
                self.own.datagrams_in += 1;
                self.own.bytes_in += self.bytes.len() as u64;
                let arrival = Arrival::new(from, &self.bytes);
                take(Arrival { congested: is_congested, ..arrival });
                return Ok(true);
            }
            ToNode::TooBig { to, tried, fits } => {
                let report = TooBig { to, tried: tried as usize, fits: fits as usize };
                self.too_big.retain(|other| other.to != to);
                if report.fits < report.tried && self.too_big.len() < REPORTS_MAX {
                    self.too_big.push_back(report);
                }
            }
            ToNode::Notice if self.notices.len() < REPORTS_MAX => {
                self.notices.push_back(String::from_utf8_lossy(&self.bytes).into_owned());
            }
            ToNode::Notice => {}
            ToNode::Counters { is_answer } => {
                self.reported = counters::decode(&self.bytes);
                self.answers += u64::from(is_answer);
            }
        }
        Ok(false)
    }
}

/// Returns the connections to the servers of this name that this user may use, best first: its own,
/// and that of root (SERVE-1.3).
fn lines(name: &str) -> impl Iterator<Item = Result<ControlSocket, ConnectError>> {
    let mine = geteuid().as_raw();
    let users = [Some(mine), (mine != 0).then_some(0)];
    users.into_iter().flatten().map(move |owner| {
        let accepts = |user| user == owner || user == 0;
        Listener::call_name_of(&socket_name(owner, name), accepts).map_err(|source| {
            let name = name.to_owned();
            match source.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                    ConnectError::Missing { name, root: None }
                }
                io::ErrorKind::PermissionDenied => ConnectError::WrongUser { name, source },
                _ => ConnectError::System { name, source },
            }
        })
    })
}

/// Waits a moment until the process at the other end has ended, which frees its ports.
fn await_end_of(line: &ControlSocket) {
    let Some(process) = line.process() else { return };
    let limit = PORTS_FREE_TIME.try_into().ok();
    // An error (a signal) is an end without news: the ports may be free, or the next server says.
    let _ = poll(&mut [PollFd::from_borrowed_fd(process, PollFlags::IN)], limit.as_ref());
}

/// Returns the request for such a link.
fn request(ask: &Bind) -> OpenRequest {
    let ports = ask.ports.ends();
    let without: Vec<_> = ask.without.features().map(Feature::word).collect();
    OpenRequest {
        ports,
        bulk_port: ask.bulk_port.unwrap_or(0),
        sharers: u16::try_from(ask.sharers).unwrap_or(u16::MAX),
        buffer: u32::try_from(ask.buffer).unwrap_or(u32::MAX),
        is_checked_by_udp: ask.checked_by_udp,
        addresses: ask.addresses.clone(),
        without: without.join(","),
    }
}

/// Waits for the answer of the server.
fn answer(line: &ControlSocket) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + OPEN_TIME;
    loop {
        match line.hear()? {
            Some(message) if !ControlSocket::is_wake(&message) => {
                return Ok(message.bytes().to_vec());
            }
            Some(_) => continue,
            None => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("it did not answer within {} s", OPEN_TIME.as_secs()),
            ));
        }
        let mut asked = [PollFd::new(line, PollFlags::IN)];
        let limit = left.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match poll(&mut asked, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
}

impl Link for ServedLink {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        let mut taken = 0;
        for outgoing in batch {
            let &Outgoing { to, lane, flow, mode, .. } = outgoing;
            let head = ToServer::Datagram { to: *to, lane, flow, mode };
            // The kernel refuses what is longer, and says so.
            let room = DATAGRAM_MAX.saturating_sub(outgoing.head.len() + outgoing.tag.len());
            let len = outgoing.payload.len().min(room);
            let first = outgoing.head.get(..DATAGRAM_MAX).unwrap_or(outgoing.head);
            let payload = Part::Region(outgoing.payload, 0, len);
            if !self.put(&head, [Part::Bytes(first), payload, Part::Bytes(outgoing.tag)]) {
                self.full_since.get_or_insert_with(Instant::now);
                self.own.would_block += 1;
                break;
            }
            taken += 1;
            self.own.datagrams_out += 1;
            self.own.bytes_out += outgoing.len() as u64;
        }
        if taken > 0 {
            self.pair.wake();
        }
        Ok(taken)
    }

    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        self.full_since = None;
        let mut count = 0;
        let mut taken = 0;
        while taken < BURST {
            let mut take = |arrival: Arrival<'_>| sink.take(arrival);
            let was_datagram = match self.pair.inward.peek() {
                Ok(None) => break,
                Ok(Some(heading)) => self.take_record(&heading, &mut take),
                Err(_) => Err(nonsense()),
            };
            count +=
                usize::from(was_datagram.map_err(|why| self.ended(&format!("failed: {why}")))?);
            taken += 1;
        }
        if taken > 0 {
            self.idle_polls = 0;
            // The server may wait for room.
            self.pair.wake();
        } else {
            self.idle_polls += 1;
            if self.sleepers > 0 {
                self.read_control()?;
                self.arm();
            } else if self.idle_polls >= POLLS_PER_CHECK {
                self.read_control()?;
            }
        }
        Ok(count)
    }

    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        let mut all = local_addresses()?;
        all.retain_mut(|local| {
            local.address.set_port(self.port);
            let ip = local.address.ip();
            self.ask.addresses.is_empty() || self.ask.addresses.contains(&ip)
        });
        Ok(all)
    }

    fn properties(&self) -> LinkProperties<'_> {
        LinkProperties {
            port: self.port,
            bulk_port: self.bulk_port,
            flows: self.flows,
            datagram_max: self.datagram_max,
            receive_buffer: self.receive_buffer,
            receive_overhead: self.receive_overhead,
            fd: Some(self.wakeups.as_fd()),
        }
    }

    fn watch(&mut self, yes: bool) -> io::Result<()> {
        if !yes {
            self.sleepers = self.sleepers.saturating_sub(1);
            self.pending.clear();
            self.read_control()?;
            if self.sleepers > 0 {
                // Its wakeup may have been heard just now.
                self.arm();
            }
            return Ok(());
        }
        self.sleepers += 1;
        self.arm();
        Ok(())
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.full_since.map(|since| since + FULL_RETRY_TIME)
    }

    fn poll_too_big(&mut self) -> Option<TooBig> {
        self.too_big.pop_front()
    }

    fn report_silence(&mut self, peer: SocketAddr) {
        // A full ring loses this, and the engine says it again.
        if self.put(&ToServer::PeerSilent(peer), NOTHING) {
            self.pair.wake();
        }
    }

    fn stall(&mut self) -> Option<LinkStall> {
        let (time, is_new) = self.stalls.report()?;
        let go_on = self.server.pid.map_or_else(String::new, |pid| format!(" (kill -CONT {pid})"));
        let text = format!(
            "{} has taken nothing for {:.1} s: it is stopped, gets no core, or its network takes nothing; continue it{go_on}, or start it with cores of its own (oikaze serve --cores) or with --priority fifo",
            self.server,
            time.as_secs_f64()
        );
        Some(LinkStall { text, is_new })
    }

    fn notice(&mut self) -> Option<String> {
        self.notices.pop_front()
    }

    /// Counters of datagrams are those of this end. All others are the server's, as of its last
    /// report.
    fn statistics(&self) -> Statistics {
        let mut all = self.reported;
        counters::add(&mut all, &self.ended);
        all.datagrams_out = self.own.datagrams_out;
        all.bytes_out = self.own.bytes_out;
        all.datagrams_in = self.own.datagrams_in;
        all.bytes_in = self.own.bytes_in;
        all.would_block = all.would_block.saturating_add(self.own.would_block);
        all.server_stalls = self.stalls.count();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_group_of_a_server_is_named_if_it_is_another_one() {
        let ours = "4:cpu,cpuacct:/\n0::/user.slice/session-3.scope\n";
        assert_eq!(other_group(ours, ours), None);
        let theirs = "4:cpu,cpuacct:/job7\n0::/user.slice/session-3.scope\n";
        assert_eq!(other_group(theirs, ours).as_deref(), Some("/job7"));
        let name = |pid, group: Option<&str>| {
            let group = group.map(str::to_owned);
            Identity { name: "io".into(), pid, group }.to_string()
        };
        let tail = "), which sends and receives for this node,";
        assert_eq!(name(None, None), format!("the server \"io\" (oikaze serve{tail}"));
        assert_eq!(
            name(Some(7), Some("/job7")),
            format!(
                "the server \"io\" (oikaze serve, process 7 in the control group /job7 of the job that started it{tail}"
            )
        );
    }

    /// SERVE-5.2: a node does not start servers without end that end at once.
    #[test]
    fn servers_that_end_again_and_again_are_not_followed() {
        let connect: Reconnect = Box::new(|_, _, _| Err("none".into()));
        let mut successor = Successor { connect, latest: None, in_a_row: 0 };
        let begin = Instant::now();
        for _ in 0..SERVERS_IN_A_ROW_MAX {
            assert!(successor.may_connect(begin));
        }
        assert!(!successor.may_connect(begin + Duration::from_secs(1)));
        assert!(successor.may_connect(begin + Duration::from_secs(1) + SERVERS_AGAIN_TIME));
    }
}
