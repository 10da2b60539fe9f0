//! The server: accepts nodes, and serves them by workers on chosen cores.

use super::client::{Client, ask_of};
use super::name::{check_name, socket_name};
use super::record::OPEN_TIME;
use super::refusal_log::{RefusalLog, log};
use oikaze_os::cpu::{
    CpuId, Event, NoCore, Priority, bind_to_cores, online_cpus, raise_on_shared_core, yield_core,
};
use oikaze_os::net::{self, Link};
use oikaze_os::shm::{ControlSocket, Listener, Pair, PairRole};
use oikaze_protocol::serve::{OpenAnswer, OpenRequest};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::geteuid;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Lower bound of the limit of nodes that have connected and not yet asked for a link.
const CALLERS_MAX_LEAST: usize = 64;
/// Connections that are accepted at once, before their requests are heard.
const ACCEPTED_AT_ONCE: usize = 16;
/// Pause after a connection that the system has refused.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Number of polls in vain between two looks at the clock. A worker then hands its core over, which
/// may be that of the node that is about to ask. By that time the worker has also polled sockets
/// that were idle before.
const POLLS_PER_CHECK: u32 = 64;

/// Settings of a server.
#[derive(Debug)]
pub struct ServeOptions {
    /// Name under which nodes find it.
    pub name: String,
    /// Cores of the workers, one worker on each; none means one worker on any core.
    pub cores: Vec<CpuId>,
    /// Priority of the workers.
    pub priority: Option<Priority>,
    /// Users that are served in addition to the server's own.
    pub users: Vec<u32>,
    /// Maximum number of nodes.
    pub nodes_max: usize,
    /// Maximum number of nodes of one user, with its connections that have not yet asked.
    pub nodes_per_user_max: usize,
    /// Time for which a worker polls before it sleeps.
    pub spin_time: Duration,
    /// The server ends when it has served no node for this time.
    pub idle_time: Option<Duration>,
    /// Socket that listens already, from a service manager.
    pub inherited: Option<OwnedFd>,
}

impl ServeOptions {
    /// Returns the settings of a server with this name that are used if nothing else is said.
    #[must_use]
    pub fn named(name: &str) -> ServeOptions {
        ServeOptions {
            name: name.to_owned(),
            cores: Vec::new(),
            priority: None,
            users: Vec::new(),
            nodes_max: 1024,
            nodes_per_user_max: 256,
            spin_time: Duration::from_micros(200),
            idle_time: None,
            inherited: None,
        }
    }

    /// Returns the maximum number of nodes that have connected and not yet asked for a link. At
    /// most half of them are of one user (SERVE-2.4).
    fn callers_max(&self) -> usize {
        self.nodes_max.max(self.nodes_per_user_max.saturating_mul(2)).max(CALLERS_MAX_LEAST)
    }
}

/// Error of [`Server::start`].
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The name is not one of a server.
    #[error("{0}")]
    Name(String),
    /// Another server of this user has the name.
    #[error(
        "a server named {name:?} of this user runs already in this network namespace: give this one another name (oikaze serve NAME), or stop that one (ss -xlp shows its process)"
    )]
    Taken {
        /// Name that is taken.
        name: String,
    },
    /// The machine has no such core.
    #[error(transparent)]
    NoCore(#[from] NoCore),
    /// The system forbids the cores or the priority.
    #[error("could not {doing}: {source}")]
    System {
        /// Operation that failed.
        doing: String,
        /// Error of the system call.
        source: io::Error,
    },
}

/// A worker, as the thread that accepts nodes sees it.
#[derive(Debug)]
struct Worker {
    /// Nodes that the worker has not taken over yet.
    added: Mutex<Vec<Client>>,
    has_added: AtomicBool,
    /// Wakes the worker.
    event: Event,
    /// Number of its nodes.
    nodes: AtomicUsize,
    stops: AtomicBool,
}

/// Users of the nodes that are served, with their number.
type Users = Arc<Mutex<BTreeMap<u32, usize>>>;

/// A server that accepts nodes. Dropping it ends its workers and the links of all nodes.
#[derive(Debug)]
pub struct Server {
    options: ServeOptions,
    listener: Listener,
    workers: Vec<(Arc<Worker>, JoinHandle<()>)>,
    users: Users,
    /// Nodes that have not yet asked for a link, with the time at which they must have.
    callers: Vec<(ControlSocket, Instant)>,
    stop: Arc<Event>,
    refusals: RefusalLog,
    served_last: Instant,
    /// Time until which no connection is accepted, because the system has refused one.
    paused_until: Option<Instant>,
}

impl Server {
    /// Listens, and starts the workers.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn start(mut options: ServeOptions) -> Result<Server, ServeError> {
        check_name(&options.name).map_err(ServeError::Name)?;
        let system = |doing: &str| {
            let doing = doing.to_owned();
            move |source| ServeError::System { doing, source }
        };
        let online = online_cpus().map_err(system("read the cores of this machine"))?;
        if let Some(why) = NoCore::among(&options.cores, &online) {
            return Err(why.into());
        }
        // Found out while there is but one thread.
        let _ = oikaze_os::sync::makes_fences();
        let listener = match options.inherited.take() {
            Some(socket) => {
                Listener::inherited(socket).map_err(system("listen on the inherited socket"))?
            }
            None => Listener::open(&socket_name(geteuid().as_raw(), &options.name)).map_err(
                |source| {
                    if source.kind() == io::ErrorKind::AddrInUse {
                        ServeError::Taken { name: options.name.clone() }
                    } else {
                        ServeError::System { doing: "listen for nodes".into(), source }
                    }
                },
            )?,
        };
        let stop = Arc::new(Event::new().map_err(system("make an event"))?);
        let mut server = Server {
            listener,
            workers: Vec::new(),
            users: Users::default(),
            callers: Vec::new(),
            stop,
            refusals: RefusalLog::default(),
            served_last: Instant::now(),
            paused_until: None,
            options,
        };
        let cores: Vec<Option<CpuId>> = match server.options.cores.as_slice() {
            [] => vec![None],
            cores => cores.iter().copied().map(Some).collect(),
        };
        for core in cores {
            server.add_worker(core)?;
        }
        Ok(server)
    }

    fn add_worker(&mut self, core: Option<CpuId>) -> Result<(), ServeError> {
        let system = |doing: String| move |source| ServeError::System { doing, source };
        let worker = Arc::new(Worker {
            added: Mutex::default(),
            has_added: AtomicBool::new(false),
            event: Event::new().map_err(system("make an event".into()))?,
            nodes: AtomicUsize::new(0),
            stops: AtomicBool::new(false),
        });
        let (its, users) = (Arc::clone(&worker), Arc::clone(&self.users));
        let (priority, spin_time) = (self.options.priority, self.options.spin_time);
        let (outcome_sender, outcome) = std::sync::mpsc::sync_channel(1);
        let thread = oikaze_os::signals::spawn("oikaze-serve", move || {
            let bound = core.map_or(Ok(()), |core| bind_to_cores(&[core]));
            if core.is_some() && priority.is_none() {
                raise_on_shared_core();
            }
            let _ = outcome_sender.send((bound, priority.map_or(Ok(()), Priority::apply)));
            its.serve(&users, spin_time, core.is_some());
        })
        .map_err(system("start a worker".into()))?;
        if let Ok((bound, prioritized)) = outcome.recv() {
            // Dropping the server ends the worker.
            self.workers.push((worker, thread));
            if let Some(core) = core {
                bound.map_err(system(format!("bind a worker to core {core}")))?;
            }
            if let Err(why) = prioritized {
                log(&format!("the workers have no priority: {why}"));
            }
        }
        Ok(())
    }

    /// Returns an event that ends [`Server::run`] when it is signalled.
    #[must_use]
    pub fn stop_event(&self) -> Arc<Event> {
        Arc::clone(&self.stop)
    }

    /// Accepts nodes until the stop event, or until no node was there for the idle time
    /// (SERVE-5.3).
    ///
    /// # Errors
    /// The socket is of no use any more.
    pub fn run(&mut self) -> io::Result<()> {
        loop {
            let limit = self.next_wakeup_time();
            let (stopped, calls) = {
                let paused = self.paused_until.is_some_and(|until| Instant::now() < until);
                // Connections beyond the limit wait in the kernel.
                let is_full = self.callers.len() >= self.options.callers_max();
                let events = if paused || is_full { PollFlags::empty() } else { PollFlags::IN };
                let listening = self.listener.descriptors().map(|fd| PollFd::new(fd, events));
                let mut asked: Vec<PollFd<'_>> =
                    std::iter::once(PollFd::from_borrowed_fd(self.stop.fd(), PollFlags::IN))
                        .chain(listening)
                        .chain(
                            self.callers.iter().map(|(line, _)| PollFd::new(line, PollFlags::IN)),
                        )
                        .collect();
                match poll(&mut asked, limit.as_ref()) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(why) => return Err(why.into()),
                }
                let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
                (asked.first().is_some_and(is_ready), asked.get(1).is_some_and(is_ready))
            };
            if stopped {
                return Ok(());
            }
            if calls || self.paused_until.is_some_and(|until| Instant::now() >= until) {
                self.accept();
            }
            self.hear_callers();
            self.refusals.end_of_interval(Instant::now()).iter().for_each(|line| log(line));
            if self.served() > 0 || !self.callers.is_empty() {
                self.served_last = Instant::now();
                continue;
            }
            if self.options.idle_time.is_some_and(|limit| self.served_last.elapsed() >= limit) {
                return Ok(());
            }
        }
    }

    /// Returns the number of nodes that are served.
    fn served(&self) -> usize {
        self.workers.iter().map(|(worker, _)| worker.nodes()).sum()
    }

    /// Returns the time until the next look without news: for callers that say nothing, and for
    /// the idle time.
    fn next_wakeup_time(&self) -> Option<Timespec> {
        let callers = self.callers.iter().map(|(_, deadline)| *deadline);
        let idle = self.options.idle_time.map(|limit| Instant::now() + limit / 4);
        let report = self.refusals.interval_end();
        let next = callers.chain(idle).chain(self.paused_until).chain(report).min()?;
        next.saturating_duration_since(Instant::now()).try_into().ok()
    }

    /// Accepts connections of users that are served (SERVE-1.2).
    fn accept(&mut self) {
        self.paused_until = None;
        for _ in 0..ACCEPTED_AT_ONCE {
            if self.callers.len() >= self.options.callers_max() {
                return;
            }
            let Some(line) = self.listener.accept_of(|_| true) else { return };
            match line {
                Ok(line) => match self.why_not(line.user()) {
                    Some(answer) => self.answer_refused(&line, answer),
                    None => self.callers.push((line, Instant::now() + OPEN_TIME)),
                },
                Err(why) => {
                    // Where no descriptor is free, the connection waits in the kernel.
                    self.refusals.log(&format!("a node was not accepted: {why}"));
                    self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Returns why a connection of this user is refused at once.
    fn why_not(&self, user: u32) -> Option<OpenAnswer> {
        let mine = geteuid().as_raw();
        if user != mine && !self.options.users.contains(&user) {
            return Some(OpenAnswer::NotServed(format!(
                "it serves user {mine}, not user {user}; start one of your own (oikaze serve NAME), or that one with --user {user}"
            )));
        }
        // SERVE-2.4: the connections of one user leave room for those of others.
        let waiting = self.callers.iter().filter(|(line, _)| line.user() == user).count();
        let nodes = count_of(&self.users, user);
        (nodes + waiting >= self.options.nodes_per_user_max).then(|| {
            OpenAnswer::Refused(format!(
                "user {user} has {nodes} nodes here, and {waiting} that have not yet asked for a link, which is the limit (--nodes-per-user); end some of them, or raise it"
            ))
        })
    }

    /// Serves the requests that have come, and drops callers that say nothing (SERVE-2.3).
    fn hear_callers(&mut self) {
        let now = Instant::now();
        for (line, deadline) in std::mem::take(&mut self.callers) {
            match line.hear() {
                Ok(None) if now < deadline => self.callers.push((line, deadline)),
                Ok(None) => self.refuse(&line, "no request has come"),
                Ok(Some(message)) => {
                    let request = OpenRequest::decode(message.bytes());
                    match (request, message.descriptor) {
                        (Ok(request), Some(memory)) => self.open(line, &request, &memory),
                        (Ok(_), None) => self.refuse(&line, "the request came without memory"),
                        (Err(why), _) => self.refuse(&line, &why.to_string()),
                    }
                }
                // The node has gone again.
                Err(_) => {}
            }
        }
    }

    /// Tells a node why it gets no link.
    fn refuse(&mut self, line: &ControlSocket, why: &str) {
        self.answer_refused(line, OpenAnswer::Refused(why.to_owned()));
    }

    fn answer_refused(&mut self, line: &ControlSocket, answer: OpenAnswer) {
        // A node that has gone needs no reason.
        let _ = line.say(&answer.encode(), None);
        if let OpenAnswer::Refused(why) | OpenAnswer::NotServed(why) = answer {
            self.refusals.log(&format!("a node of user {} was refused: {why}", line.user()));
        }
    }

    /// Opens a link for a node (SERVE-2.1).
    fn open(&mut self, line: ControlSocket, request: &OpenRequest, memory: &OwnedFd) {
        let user = line.user();
        let served = self.served();
        let of_user = count_of(&self.users, user);
        // SERVE-2.4.
        if served >= self.options.nodes_max {
            return self.refuse(&line, &format!("it serves {served} nodes, its limit (--nodes)"));
        }
        if of_user >= self.options.nodes_per_user_max {
            let why = format!("user {user} has {of_user} nodes here, the limit (--nodes-per-user)");
            return self.refuse(&line, &why);
        }
        let link = match ask_of(request, user)
            .and_then(|ask| net::open(&ask).map_err(|why| why.to_string()))
        {
            Ok(link) => link,
            Err(why) => return self.refuse(&line, &why),
        };
        let properties = link.properties();
        let answer = OpenAnswer::Opened {
            port: properties.port,
            bulk_port: properties.bulk_port,
            flows: properties.flows,
            datagram_max: u32::try_from(properties.datagram_max).unwrap_or(u32::MAX),
            receive_buffer: properties.receive_buffer as u64,
            receive_overhead: u32::try_from(properties.receive_overhead).unwrap_or(u32::MAX),
        };
        let Some((worker, _)) = self.workers.iter().min_by_key(|(worker, _)| worker.nodes()) else {
            return self.refuse(&line, "it has no worker");
        };
        let pair = match Pair::new(memory, PairRole::Called, line) {
            Ok(pair) => pair,
            Err(why) => {
                let why = format!("a node of user {user} has sent unusable memory: {why}");
                return self.refusals.log(&why);
            }
        };
        if pair.line.say(&answer.encode(), None).is_err() {
            // The node has gone again.
            return;
        }
        *locked(&self.users).entry(user).or_default() += 1;
        worker.add(Client::new(pair, link, user, Instant::now()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for (worker, _) in &self.workers {
            worker.stops.store(true, Ordering::Release);
            worker.event.signal();
        }
        for (_, thread) in self.workers.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Worker {
    fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Gives the worker a node.
    fn add(&self, client: Client) {
        self.nodes.fetch_add(1, Ordering::Relaxed);
        locked(&self.added).push(client);
        self.has_added.store(true, Ordering::Release);
        self.event.signal();
    }

    /// Serves nodes until the server ends. The scheduler moves a worker that is not bound to a core
    /// away from a thread that computes.
    fn serve(&self, users: &Users, spin_time: Duration, is_bound: bool) {
        let mut clients: Vec<Client> = Vec::new();
        let (mut idle_since, mut polls) = (None, 0_u32);
        while !self.stops.load(Ordering::Acquire) {
            if self.has_added.swap(false, Ordering::AcqRel) {
                clients.append(&mut locked(&self.added));
            }
            let mut busy = false;
            self.each(&mut clients, users, |client| {
                busy |= client.turn()?;
                Ok(())
            });
            if busy {
                (idle_since, polls) = (None, 0);
                continue;
            }
            polls = polls.wrapping_add(1);
            std::hint::spin_loop();
            if !clients.is_empty() && !polls.is_multiple_of(POLLS_PER_CHECK) {
                continue;
            }
            let now = Instant::now();
            let since = *idle_since.get_or_insert(now);
            // SERVE-4.4: beside a thread that computes, a yield takes longer than a wakeup.
            let is_over = clients.is_empty() || now.duration_since(since) >= spin_time;
            if is_over || is_bound && !yield_core() {
                self.sleep(&mut clients, users);
                idle_since = None;
            } else if !is_bound {
                std::thread::yield_now();
            }
        }
    }

    /// Runs a step for each node, and removes nodes whose step fails (SERVE-5.1, SERVE-3.4).
    fn each(
        &self,
        clients: &mut Vec<Client>,
        users: &Users,
        mut step: impl FnMut(&mut Client) -> io::Result<()>,
    ) {
        clients.retain_mut(|client| {
            let Err(why) = step(client) else { return true };
            if !matches!(why.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
            {
                client.refuse(&why.to_string());
                log(&format!("a node of user {} is served no more: {why}", client.user));
            }
            self.nodes.fetch_sub(1, Ordering::Relaxed);
            let mut users = locked(users);
            if let Some(count) = users.get_mut(&client.user) {
                *count -= 1;
                if *count == 0 {
                    users.remove(&client.user);
                }
            }
            false
        });
    }

    /// Sleeps until a node or the network has something to do (SERVE-4.2).
    fn sleep(&self, clients: &mut Vec<Client>, users: &Users) {
        self.each(clients, users, Client::fall_asleep);
        oikaze_os::sync::make_fences();
        let has_work = self.has_added.load(Ordering::Acquire)
            || self.stops.load(Ordering::Acquire)
            || clients.iter_mut().any(Client::has_news);
        if !has_work {
            let next = clients.iter().filter_map(Client::next_wakeup).min();
            let limit: Option<Timespec> = next
                .and_then(|next| next.saturating_duration_since(Instant::now()).try_into().ok());
            let mut asked: Vec<PollFd<'_>> = clients
                .iter()
                .flat_map(Client::descriptors)
                .chain(std::iter::once(self.event.fd()))
                .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
                .collect();
            // An error (a signal) is a wakeup without news.
            let _ = poll(&mut asked, limit.as_ref());
        }
        self.event.clear();
        self.each(clients, users, |client| {
            client.wake_up()?;
            client.read_control()
        });
    }
}

fn count_of(users: &Users, user: u32) -> usize {
    locked(users).get(&user).copied().unwrap_or(0)
}

/// Locks what no panic leaves half changed.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
