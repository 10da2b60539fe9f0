//! One job from start to end.

use super::ending::{Ending, STATUS_LAUNCHER};
use super::error::LaunchError;
use super::guard::Guard;
use super::hosts::control_queue::ControlLine;
use super::hosts::files::Files;
use super::hosts::install::{Installer, own_binary};
use super::hosts::pipe::{Control, Order};
use super::hosts::ssh::{AgentSource, Common, Remote};
use super::netns::{Cabling, Network};
use super::node_processes::{NodeProcesses, Outlet, Work};
use super::output::{Sink, Terminal};
use super::plan::{self, Host};
use super::policy::{ASK_TIME, Action, Policy};
use super::program::find_program;
use super::sources::OutputSources;
use super::word::Word;
use crate::clock::{Clock, TICK};
use crate::environment::{self, new_incarnation};
use crate::launcher::events::Event;
use crate::launcher::events::signals::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGXFSZ, forward_signals,
    stop_myself, stops, take_signals,
};
use crate::listen::{self, Reach};
use crate::pmi::fence::{Fence, FenceChange};
use crate::pmi::{PmiNews, PmiOrder, mapping};
use crate::store::{Notice, Server};
use crate::{REPORT, Secret, Settings, secret_file};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::FAILURE_TIME;
use std::ffi::OsString;
use std::io::{IsTerminal, Write as _};
use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Time beyond the failure time that the other nodes have to end by their own errors after one node
/// has failed.
const GRACE: Duration = Duration::from_secs(2);
/// Time that output may still take after the last node has ended. Only a process that left its
/// group can hold the output open.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Time that all hosts together have to take their messages before the launcher stops itself.
const FLUSH_TIME: Duration = Duration::from_millis(500);

/// Question to all nodes before the time limit ends them.
const QUESTION: &str = "doing";

/// Options that the user gave.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of nodes; one per host (or one) if absent.
    pub nodes: Option<u32>,
    /// Other hosts. If there are none, all nodes run here.
    pub hosts: Vec<Host>,
    /// Network of the nodes, if each is in a namespace of its own.
    pub netns: Option<Cabling>,
    /// Settings that all nodes get.
    pub settings: Settings,
    /// Set if each line begins with its rank.
    pub prefix: bool,
    /// Time limit of the job.
    pub timeout: Option<Duration>,
    /// Set if the nodes report their traffic before they end ([`Finished::traffic`]).
    pub reports_traffic: bool,
    /// Further variables for all nodes.
    pub environment: Vec<(OsString, OsString)>,
    /// File with the job's secret. Without one, each job has a new secret.
    pub secret_file: Option<PathBuf>,
    /// Set if the nodes get the job's secret in their environment, and not by a descriptor.
    pub secret_in_environment: bool,
    /// Program and arguments.
    pub program: Vec<OsString>,
    /// Path of the `oikaze` command itself. Other hosts may have it there, too.
    pub own_path: PathBuf,
    /// The `oikaze` command on other hosts.
    pub agent: AgentChoice,
    /// Files and directories to send to the other hosts. The nodes then run among them.
    pub files: Vec<PathBuf>,
    /// Replaces ssh (`OIKAZE_RSH`).
    pub rsh: Option<String>,
}

/// The user's choice of the command on other hosts.
#[derive(Clone, Debug)]
pub enum AgentChoice {
    /// Command at this path there.
    At(PathBuf),
    /// Command of the same version, wherever it is found there. The launcher sends its own file if
    /// there is none.
    Same {
        /// Version of the command and its protocol ([`version`](super::hosts::agent::version)).
        version: String,
        /// Directory for the file, if the user names one.
        cache: Option<OsString>,
        /// Set if the launcher may send its own file.
        may_send: bool,
    },
}

/// Result of a job that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// Status of the first node that failed, else 0.
    pub status: u8,
    /// Traffic as each node has reported it, in the order of ranks. `None` if the node has ended
    /// without a report. Empty if nobody asked for it.
    pub traffic: Vec<Option<Vec<u8>>>,
}

/// Runs a job and waits for its end.
/// Called from the main thread, before any other thread is started. The launcher takes signals
/// over, and children live no longer than the thread that starts them.
///
/// # Errors
/// The job could not be started. Nothing was left running.
pub fn run(options: &Options) -> Result<Finished, LaunchError> {
    let signals = take_signals()?;
    let blocks = plan::place(options.nodes, &options.hosts)?;
    let size = blocks.last().map_or(0, |block| block.end);
    let name = options
        .program
        .first()
        .ok_or_else(|| LaunchError::Usage("no program: oikaze run -n 4 -- PROGRAM ...".into()))?;
    // Looked up before anything is started. On other hosts, the agents look the program up.
    let program = match options.hosts.is_empty() {
        true => find_program(name, &options.own_path, std::env::var_os("PATH").as_deref())?,
        false => PathBuf::from(name),
    };
    let files = Arc::new(Files::find(&options.files)?);
    let drawn = Secret::random().map_err(LaunchError::system("draw the job's secret"))?;
    let secret = match &options.secret_file {
        // A record of one job must be of no use in another (LAUNCH-6.4).
        Some(path) => {
            let of_file = secret_file::read(path).map_err(LaunchError::Usage)?;
            of_file.derive(&[b"oikaze job", drawn.to_hex().as_bytes()])
        }
        None => drawn,
    };
    let mut guard = Guard::start()?;
    let network = match &options.netns {
        Some(cabling) => Some(Network::make(size, cabling.clone(), &mut guard)?),
        None => None,
    };
    let (listener, store) = open_store(options, network.as_ref())?;
    let (events, inbox) = channel();
    let news = events.clone();
    let sources = Arc::new(OutputSources::default());
    let outputs = Arc::clone(&sources);
    let notify = move |notice| {
        // The store calls this before any other node learns of the abort (LAUNCH-5.4).
        if let Notice::Aborted(rank, _) = &notice {
            outputs.drain(&[*rank]);
        }
        let _ = news.send(Event::Notice(notice));
    };
    let server = Server::start_with(listener, size, secret.clone(), Box::new(notify))?;
    forward_signals(signals, events.clone())?;
    let terminal = Arc::new(Terminal::new(options.prefix));
    let words = Words::new(Arc::clone(&terminal))?;
    let work = Work {
        program,
        arguments: options.program.get(1..).unwrap_or_default().to_vec(),
        directory: None,
        environment: variables(options),
        store,
        size,
        ranks: 0..size,
        secret,
        secret_in_environment: options.secret_in_environment,
        incarnation: new_incarnation(),
        mapping: match &network {
            // Each node has a network of its own, as if it had a host of its own.
            Some(_) => mapping((0..size).map(|_| 1)),
            None => mapping(blocks.iter().map(|block| block.end - block.start)),
        },
        is_apart: network.is_some(),
        settings: options.settings.clone(),
        // A terminal would stop a node that reads it, because the node is not in the foreground
        // group.
        input: !std::io::stdin().is_terminal(),
    };
    let mut job = Job {
        crew: NodeProcesses::empty(),
        remotes: Vec::new(),
        server,
        guard,
        terminal,
        words,
        sources,
        events,
        fence: Fence::new(size),
    };
    if options.hosts.is_empty() {
        job.start_here(&work, network.as_ref())?;
    } else {
        job.start_there(&work, &blocks, files, options)?;
    }
    let mut policy = Policy::new(size, grace_of(options), options.timeout);
    if options.settings.keep_going {
        policy.keep_going();
    }
    let status = job.supervise(policy, &inbox);
    let reporters = if options.reports_traffic { 0..size } else { 0..0 };
    let traffic = reporters.map(|rank| job.server.value(&environment::traffic_key(rank))).collect();
    // Children end first, then their namespaces. The guard ends last, because it watches over both.
    let Job { crew, remotes, server, guard, terminal, words, .. } = job;
    drop((crew, remotes, server));
    drop(network);
    drop(guard);
    words.end();
    if let Some(why) = terminal.lost() {
        let lost = format!(
            "the nodes' output could not be written ({why}): what came after is lost; write it to where there is room"
        );
        // Standard error may be that very file.
        let _ = writeln!(std::io::stderr(), "oikaze: {lost}");
        let status = if status == 0 { STATUS_LAUNCHER } else { status };
        return Ok(Finished { status, traffic });
    }
    Ok(Finished { status, traffic })
}

/// Prints the launcher's own lines. A reader that has stopped reading holds up the thread that
/// writes them, and not the one that ends the job.
struct Words {
    lines: Sender<String>,
    /// Closed when all lines have been written.
    written: Receiver<()>,
}

impl Words {
    fn new(terminal: Arc<Terminal>) -> Result<Words, LaunchError> {
        let ((lines, printed), (open, written)) = (channel::<String>(), channel());
        let print_line = move || {
            let _open: Sender<()> = open;
            printed.iter().for_each(|line| terminal.print_line(&line));
        };
        std::thread::Builder::new()
            .name("words".into())
            .spawn(print_line)
            .map_err(LaunchError::system("start a thread"))?;
        Ok(Words { lines, written })
    }

    fn print_line(&self, line: String) {
        // The thread lives as long as this sender.
        let _ = self.lines.send(line);
    }

    fn end(self) {
        drop(self.lines);
        let _ = self.written.recv_timeout(DRAIN_TIME);
    }
}

/// Opens the store's socket, and returns the addresses at which nodes find it.
fn open_store(
    options: &Options,
    network: Option<&Network>,
) -> Result<(TcpListener, String), LaunchError> {
    let range = options.settings.ports;
    if let Some(network) = network {
        let listener = network.listen(&listen::ports_of(range))?;
        let port = listener.local_addr().map_err(LaunchError::system("open the store's port"))?;
        let at = network.store(port.port()).to_string();
        return Ok((listener, at));
    }
    let reach = if options.hosts.is_empty() { Reach::ThisHost } else { Reach::AllHosts };
    let (listener, addresses) = listen::open_store(range, reach)?;
    let at = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    Ok((listener, at))
}

/// Returns the time that nodes have to end by their own errors, and hosts to take a message.
fn grace_of(options: &Options) -> Duration {
    options.settings.failure_time.unwrap_or(FAILURE_TIME) + GRACE
}

/// Returns the variables that the nodes get besides their place in the job.
fn variables(options: &Options) -> Vec<(OsString, OsString)> {
    let mut variables = options.environment.clone();
    if std::io::stderr().is_terminal() {
        variables.push((environment::TERMINAL.into(), "1".into()));
    }
    if options.reports_traffic {
        variables.push((environment::REPORT_TRAFFIC.into(), "1".into()));
    }
    variables
}

/// Returns a user's own `OIKAZE_…` variables, which hold on other hosts too. Variables that a
/// launcher sets are set anew.
fn inherited() -> impl Iterator<Item = (OsString, OsString)> {
    use environment::{INCARNATION, LOCAL_RANK, LOCAL_SIZE, RANK, SECRET, SECRET_FD, SIZE, STORE};
    let ours =
        [STORE, RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, SECRET, SECRET_FD, INCARNATION, "OIKAZE_RSH"];
    let theirs = move |name: &OsString| {
        name.as_bytes().starts_with(b"OIKAZE_") && !ours.iter().any(|ours| name == ours)
    };
    std::env::vars_os().filter(move |(name, _)| theirs(name))
}

struct Job {
    crew: NodeProcesses,
    remotes: Vec<Remote>,
    server: Server,
    guard: Guard,
    terminal: Arc<Terminal>,
    words: Words,
    sources: Arc<OutputSources>,
    events: Sender<Event>,
    /// Barrier of the nodes' MPI libraries.
    fence: Fence,
}

impl Job {
    fn start_here(&mut self, work: &Work, network: Option<&Network>) -> Result<(), LaunchError> {
        let inside = |rank: Rank| match network {
            Some(network) => {
                ["ip", "netns", "exec", &network.name(rank)].map(str::to_owned).to_vec()
            }
            None => Vec::new(),
        };
        let (sources, events) = (Arc::clone(&self.sources), self.events.clone());
        let news = events.clone();
        let pmi = Arc::new(move |one| _ = news.send(Event::Pmi(one)));
        let outlet = Outlet { sink: self.terminal.clone(), sources, events, pmi };
        self.crew = NodeProcesses::start(work, &inside, &outlet, &mut self.guard)?;
        Ok(())
    }

    fn start_there(
        &mut self,
        work: &Work,
        blocks: &[Range<Rank>],
        files: Arc<Files>,
        options: &Options,
    ) -> Result<(), LaunchError> {
        let source = match &options.agent {
            AgentChoice::At(path) => AgentSource::Named(path.clone()),
            AgentChoice::Same { version, cache, may_send } => {
                let installer = Installer {
                    path: options.own_path.clone(),
                    version: version.clone(),
                    cache: cache.clone(),
                    may_send: *may_send,
                    binary: own_binary()?,
                };
                AgentSource::Installed(Arc::new(installer))
            }
        };
        let (rsh, terminal) = (options.rsh.clone(), Arc::clone(&self.terminal));
        let (sources, events) = (Arc::clone(&self.sources), self.events.clone());
        let patience = grace_of(options);
        let common = Common { rsh, source, files, terminal, sources, events, patience };
        let directory =
            std::env::current_dir().map_err(LaunchError::system("find the current directory"))?;
        for (host, block) in options.hosts.iter().zip(blocks).filter(|(_, block)| !block.is_empty())
        {
            let index = self.remotes.len();
            let mut order = Order::new(&work.secret, &work.settings);
            order.host.clone_from(&host.name);
            order.store.clone_from(&work.store);
            (order.size, order.first, order.count) =
                (work.size, block.start, block.end - block.start);
            order.incarnation = work.incarnation;
            order.mapping.clone_from(&work.mapping);
            order.secret_in_environment = work.secret_in_environment;
            order.program = options.program.iter().cloned().map(Word).collect();
            order.directory = Word(directory.clone().into_os_string());
            let environment = inherited().chain(work.environment.iter().cloned());
            order.environment =
                environment.map(|(name, value)| (Word(name), Word(value))).collect();
            common.files.announce(&mut order);
            self.remotes.push(Remote::start((index, &host.name), order, &common)?);
        }
        Ok(())
    }

    /// Supervises the job until all of it has ended.
    fn supervise(&mut self, mut policy: Policy, inbox: &Receiver<Event>) -> u8 {
        let mut clock = Clock::new();
        let (mut drain_until, mut heard) = (None, 0);
        loop {
            let now = clock.now();
            let ended = self.crew.reap(&mut self.guard);
            // The notice of an abort is in the inbox before any node ends because of it
            // (LAUNCH-3.1).
            let mut has_taken = false;
            while let Ok(event) = inbox.try_recv() {
                self.take(event, now, &mut policy);
                has_taken = true;
            }
            for (rank, how) in ended {
                self.ended(now, rank, &how, &mut policy);
            }
            policy.timeout(now);
            for action in policy.actions() {
                self.act(action);
            }
            if policy.is_over() && drain_until.is_none() {
                drain_until = Some(now + DRAIN_TIME);
                if !self.crew.is_empty() {
                    self.crew.abandon();
                }
            }
            // Output that still comes over a slow network is not lost, unless the user wants an
            // end.
            let heard_before = heard;
            heard = self.remotes.iter().map(Remote::heard).sum();
            if drain_until.is_some() && heard != heard_before && !policy.wants_an_end(now) {
                drain_until = Some(now + DRAIN_TIME);
            }
            // An agent leaves when it has passed on all output of its nodes.
            let drained = self.crew.is_drained() && self.remotes.iter().all(Remote::is_closed);
            if policy.is_over() && (drained || drain_until.is_some_and(|until| until <= now)) {
                // A slow reader does not lose the output of the nodes, unless the user wants an
                // end.
                if drained || policy.wants_an_end(now) || !self.terminal.is_busy() {
                    return policy.status();
                }
                drain_until = Some(now + DRAIN_TIME);
            }
            if has_taken {
                // A SIGCHLD among these may belong to a node that has not been reaped.
                continue;
            }
            let deadline = drain_until.or_else(|| policy.next_timeout());
            let event = match deadline {
                Some(deadline) => inbox.recv_timeout(deadline.saturating_sub(now).min(TICK)),
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match event {
                Ok(event) => self.take(event, clock.now(), &mut policy),
                // Senders live as long as this job. A passed deadline is handled above.
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
    }

    fn signal(&mut self, signal: i32) {
        self.crew.signal(signal);
        self.remotes.iter_mut().for_each(|remote| remote.signal(signal));
    }

    /// Waits until the hosts have their messages. The threads that write them stop with the
    /// launcher.
    fn flush(&self) {
        let mut clock = Clock::new();
        let until = clock.now() + FLUSH_TIME;
        self.remotes.iter().for_each(|remote| remote.flush(until.saturating_sub(clock.now())));
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Signal(signal) => {
                self.signal(signal);
                // A stopped node ends by these only after it goes on.
                if matches!(signal, SIGHUP | SIGINT | SIGQUIT | SIGTERM) {
                    self.signal(SIGCONT);
                }
            }
            Action::Abort(why) => {
                self.server.abort(&why);
                if let FenceChange::Order(order) = self.fence.break_off() {
                    self.pmi_order(&order);
                }
            }
            Action::Ended(end) => self.server.ended(end),
            Action::Ask => self.ask(QUESTION, Event::Answers),
            Action::Report => self.ask(REPORT, Event::Report),
            Action::Print(text) => self.words.print_line(text),
        }
    }

    /// Asks all nodes. Their answers come as an event.
    fn ask(
        &mut self,
        question: &str,
        event: impl FnOnce(Vec<(Rank, Option<String>)>) -> Event + Send + 'static,
    ) {
        let answers = self.server.asking_all(question, ASK_TIME);
        let events = self.events.clone();
        let wait = move || _ = events.send(event(answers()));
        // Without a thread there are no answers, and the policy goes on when its own limit has
        // passed.
        let _ = std::thread::Builder::new().name("questions".into()).spawn(wait);
    }

    fn take(&mut self, event: Event, now: Duration, policy: &mut Policy) {
        match event {
            Event::Signal(SIGCHLD | SIGXFSZ) | Event::LauncherGone | Event::PmiOrder(_) => {}
            // Ctrl-Z stops the whole job, and then the launcher. SIGCONT is passed on like any
            // other signal (LAUNCH-4.1).
            Event::Signal(signal) if stops(signal) => {
                self.signal(SIGSTOP);
                self.flush();
                stop_myself();
            }
            Event::Signal(signal) => policy.signalled(now, signal),
            Event::Drained => self.crew.drained(),
            Event::Notice(Notice::Aborted(rank, why)) => policy.aborted(now, rank, &why),
            Event::Notice(Notice::KeepGoing) => policy.keep_going(),
            Event::Notice(Notice::Joined(rank)) => policy.joined(rank),
            Event::Notice(Notice::Left(rank)) => policy.left(rank),
            Event::Answers(answers) => policy.answered(now, &answers),
            Event::Report(answers) => policy.reported(&answers),
            Event::Ended(index, rank, how) => {
                if self.remotes.get_mut(index).is_some_and(|remote| remote.ended(rank)) {
                    self.ended(now, rank, &how, policy);
                }
            }
            Event::HostClosed(index, why) => {
                let lost = self.remotes.get_mut(index).map(|remote| remote.closed(why));
                self.lost(now, lost.unwrap_or_default(), policy);
            }
            Event::HostSilent(index, how) => {
                let lost = self.remotes.get_mut(index).map(|remote| remote.silent(&how));
                self.lost(now, lost.unwrap_or_default(), policy);
            }
            Event::Pmi(news) => self.take_pmi(news, now, policy),
        }
    }

    fn lost(&mut self, now: Duration, nodes: Vec<(Rank, Ending)>, policy: &mut Policy) {
        for (rank, how) in nodes {
            self.ended(now, rank, &how, policy);
        }
    }

    fn ended(&mut self, now: Duration, rank: Rank, how: &Ending, policy: &mut Policy) {
        policy.ended(now, rank, how);
        let change = self.fence.ended(rank);
        self.take_change(change, now, policy);
    }

    fn take_pmi(&mut self, news: PmiNews, now: Duration, policy: &mut Policy) {
        match news {
            PmiNews::Began(rank) => policy.mpi_began(rank),
            PmiNews::Finished(rank) => policy.mpi_finished(rank),
            PmiNews::Refused(rank, why) => policy.mpi_refused(rank, &why),
            PmiNews::Arrived(rank, values) => {
                let change = self.fence.arrived(rank, values);
                self.take_change(change, now, policy);
            }
            PmiNews::Aborted(rank, status, why) => {
                self.sources.drain(&[rank]);
                policy.mpi_aborted(now, rank, status, &why);
            }
        }
    }

    fn take_change(&mut self, change: FenceChange, now: Duration, policy: &mut Policy) {
        match change {
            FenceChange::Open => {}
            FenceChange::Order(order) => self.pmi_order(&order),
            FenceChange::Broken(waits, ended) => {
                policy.mpi_waits_for_ended(now, waits, ended);
                self.pmi_order(&PmiOrder::Broken);
            }
        }
    }

    /// Tells the PMI-1 servers of all hosts.
    fn pmi_order(&mut self, order: &PmiOrder) {
        self.crew.pmi_order(order.clone());
        if !self.remotes.is_empty() {
            let line = ControlLine::new(&Control::Pmi(order.clone()));
            self.remotes.iter().for_each(|remote| remote.put(&line));
        }
    }
}
