//! One round: a job of real processes, one of which is killed while the others are watched until
//! they end.

use super::process_job::ProcessJob;
use oikaze_launch::Settings;
use oikaze_protocol::random::Random;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Set in a process that is a node of the job.
pub const ROLE: &str = "OIKAZE_TEST_ROLE";
/// Prefix of a line that is meant for the parent.
pub const MARK: &str = "kills: ";

pub const NODES: u32 = 3;
/// Time after which a wait hangs.
const HANG: Duration = Duration::from_secs(40);

/// Transport between the nodes. With `Both`, two nodes share memory, and the third is reached over
/// the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Rings,
    Network,
    Both,
}

impl Transport {
    /// Returns the maximum time until a death can be known. The kernel reports it to local peers.
    /// Over the network, silence shows it.
    pub fn known_within(self) -> Duration {
        if self == Transport::Rings { Duration::ZERO } else { failure_time() }
    }
}

/// Returns a short failure time for soaks, which run alone. Elsewhere a longer time keeps a node
/// that only waits for a processor from being given up.
fn failure_time() -> Duration {
    Duration::from_millis(if std::env::var_os("OIKAZE_KILLS").is_some() { 500 } else { 2_000 })
}

/// Mechanisms that the nodes of a round over rings do without: none, and then they map the memory
/// of an array together, or that.
const WITHOUT: [&str; 2] = ["", "segment"];

/// A job, and the node in it that is killed.
#[derive(Debug)]
pub struct Round {
    number: u64,
    pub transport: Transport,
    victim: u32,
    /// Set if the node is killed `delay` after its start. Otherwise the delay begins when all nodes
    /// have begun their operations.
    early: bool,
    delay: Duration,
}

impl Round {
    pub fn of(number: u64) -> Self {
        let early = number % 8 == 7;
        let within = Duration::from_millis(if early { 60 } else { 25 });
        Self {
            number,
            transport: [Transport::Rings, Transport::Network, Transport::Rings, Transport::Both]
                [number as usize % 4],
            victim: Random::new(number).below(NODES as usize) as u32,
            early,
            delay: within.mul_f64(Random::new(number ^ 1 << 40).below(1000) as f64 / 1000.0),
        }
    }

    /// Runs the round. Returns the time from the kill to the end of the last operation that waited
    /// for the victim, or `None` if the victim had not joined yet.
    pub fn run(&self) -> Option<Duration> {
        let doors = Directory::new(self.number);
        let mut job = Running::start(self, &doors.0);
        if !self.early {
            job.hear_all("ready", None);
            assert_eq!(doors.sockets(), 0, "who has met needs no socket to be called at");
        }
        // This sleep does not wait for an event. The node may be killed at any point, and the clock
        // chooses one.
        std::thread::sleep(self.delay);
        let killed = job.kill(self.victim);
        job.hear_all("over", Some(self.victim));
        let last = job
            .told
            .iter()
            .filter(|(_, _, line)| line.starts_with("over"))
            .map(|(_, at, _)| *at - killed)
            .max();
        if !self.early {
            let lost = format!("over: {:b}", 1 << self.victim);
            let each = job
                .told
                .iter()
                .filter(|(.., line)| line.starts_with("over"))
                .all(|(.., line)| *line == lost);
            assert!(each, "{}", job.account("others than the victim were lost"));
        }
        job.end(self.victim);
        let left = doors.sockets();
        assert!(
            left <= usize::from(self.early),
            "{left} sockets are left in the job's directory: {self:?}"
        );
        last.filter(|_| !self.early)
    }
}

/// Directory of the sockets at which nodes can be called. It is removed with the round.
struct Directory(PathBuf);

impl Directory {
    fn new(number: u64) -> Self {
        let path =
            std::env::temp_dir().join(format!("oikaze-kills-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn sockets(&self) -> usize {
        std::fs::read_dir(&self.0).unwrap().count()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A line of a node, or `None` at the end of its output.
type Told = (u32, Instant, Option<String>);

struct Running {
    what: String,
    job: ProcessJob,
    inbox: Receiver<Told>,
    told: Vec<(u32, Instant, String)>,
}

impl Running {
    fn start(round: &Round, doors: &Path) -> Self {
        let mut job = ProcessJob::new(NODES);
        let (sender, inbox) = channel();
        let settings = Settings { failure_time: Some(failure_time()), ..Settings::default() };
        for rank in 0..NODES {
            // One of the other nodes, or both, reach the victim over the network.
            let apart = (round.victim + 1 + (round.number / 4) as u32 % 2) % NODES;
            let node = job.start("plays_its_role", &settings, |command| {
                command.env(ROLE, "node").env("OIKAZE_SHM_DIR", doors);
                let is_remote = round.transport == Transport::Network
                    || round.transport == Transport::Both && rank == apart;
                let without =
                    if is_remote { "shm" } else { WITHOUT[round.number as usize / 2 % 2] };
                command.env("OIKAZE_WITHOUT", without);
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            });
            listen(rank, node.stdout.take().unwrap(), sender.clone(), MARK);
            listen(rank, node.stderr.take().unwrap(), sender.clone(), "");
        }
        Self { what: format!("{round:?}"), job, inbox, told: Vec::new() }
    }

    fn kill(&mut self, victim: u32) -> Instant {
        let killed = Instant::now();
        self.job.kill(victim);
        killed
    }

    /// Waits until every node except `but` has printed this word.
    fn hear_all(&mut self, word: &str, but: Option<u32>) {
        let deadline = Instant::now() + HANG;
        let silent = |told: &[(u32, Instant, String)]| {
            let said = |rank: u32| {
                told.iter().any(|(from, _, line)| *from == rank && line.starts_with(word))
            };
            (0..NODES).any(|rank| Some(rank) != but && !said(rank))
        };
        while silent(&self.told) {
            self.hear(deadline, word);
        }
    }

    fn hear(&mut self, deadline: Instant, for_what: &str) {
        match self.inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok((rank, at, Some(line))) => {
                let wrong = line.starts_with("wrong");
                self.told.push((rank, at, line));
                assert!(!wrong, "{}", self.account("something ended as it should not"));
            }
            Ok((_, _, None)) => {}
            Err(_) => panic!("{}", self.account(&format!("not all have said \"{for_what}\""))),
        }
    }

    /// Lets the survivors end, and checks that they do.
    fn end(mut self, victim: u32) {
        for node in self.job.nodes() {
            drop(node.stdin.take());
        }
        // The outputs close when the processes end, with all processes that they may have started.
        let deadline = Instant::now() + HANG;
        loop {
            match self.inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((rank, at, line)) => self.told.extend(line.map(|line| (rank, at, line))),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("{}", self.account("not all have ended")),
            }
        }
        for rank in (0..NODES).filter(|rank| *rank != victim) {
            let status = self.job.nodes()[rank as usize].wait().unwrap();
            assert!(status.success(), "{}", self.account(&format!("node {rank}: {status:?}")));
        }
    }

    fn account(&self, why: &str) -> String {
        let lines: Vec<String> =
            self.told.iter().map(|(rank, _, line)| format!("[{rank}] {line}")).collect();
        format!("{}: {why}\n{}", self.what, lines.join("\n"))
    }
}

/// Passes on the lines of a node that have this mark.
fn listen(rank: u32, output: impl Read + Send + 'static, to: Sender<Told>, mark: &'static str) {
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The test harness may write in front of the mark, on the same line.
            let said = line.find(mark).map(|at| line[at + mark.len()..].to_owned());
            if said.is_some_and(|said| to.send((rank, Instant::now(), Some(said))).is_err()) {
                return;
            }
        }
        let _ = to.send((rank, Instant::now(), None));
    });
}
