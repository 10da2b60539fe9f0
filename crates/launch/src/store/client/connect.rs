//! Connects to the store over paths that lose packets, past addresses that lead nowhere (WIND-11.1
//! to 11.3).
//!
//! One thread polls all attempts. It starts new attempts while older ones wait, because a
//! connection whose SYN was lost stands still until the retransmission after one second (RFC 6298).
//! Only one attempt at a time sends its proof, and each proof carries a greater number than the
//! last one, so that the store knows which connection of a process is the newest.

use crate::addresses::scoped_store;
use crate::clock::Clock;
use crate::environment::NodePlace;
use crate::reason::{Reason, Transport, is_own, listed, remedies, remedy_of_names};
use crate::store::protocol::{
    Greeting, LENGTH_LEN, NONCE_LEN, PROCESS_LEN, Proof, VERSION, Verdict,
};
use crate::store::{patience, seal};
use crate::{JobError, Secret};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Maximum number of sockets in use at once.
const SOCKETS_MAX: usize = 64;
/// Maximum number of attempts to one address at once.
const ATTEMPTS_MAX: usize = 4;
/// Pause between the first two attempts to an address; it doubles up to [`RETRY_PAUSE_MAX`].
const RETRY_PAUSE_MIN: Duration = Duration::from_millis(400);
/// Longest pause between two attempts to an address.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(1600);
/// Age at which an attempt is abandoned.
const ATTEMPT_TIME: Duration = Duration::from_secs(6);
/// Time for the answer to a proof before another greeted attempt sends one.
const PROOF_TIME: Duration = Duration::from_secs(1);
/// Time for other addresses after one has given an answer that is not proven, or failed for a cause
/// that may pass.
const VERDICT_TIME: Duration = Duration::from_secs(5);
/// Longest sleep, after which a cancellation is noticed.
const POLL_TIME: Duration = Duration::from_millis(50);

/// Identity of a process towards the store: the same for all its connections (WIND-11.2).
pub(super) struct Process {
    id: [u8; PROCESS_LEN],
    proofs: AtomicU32,
}

impl Process {
    /// Draws the identity.
    pub fn new() -> Result<Process, JobError> {
        let mut id = [0; PROCESS_LEN];
        fill(&mut id)?;
        Ok(Process { id, proofs: AtomicU32::new(0) })
    }
}

/// A connection that both ends have proven.
pub(super) struct Connected {
    pub stream: TcpStream,
    pub address: SocketAddr,
    pub key: Secret,
}

/// Resolves the addresses of a store. Also returns each name that cannot be resolved, with the
/// cause.
pub(super) fn resolve(store: &str) -> (Vec<SocketAddr>, Vec<(String, Reason)>) {
    let (mut addresses, mut failed) = (Vec::new(), Vec::new());
    for text in store.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        match look_up(text) {
            Ok(found) => addresses.extend(found.into_iter().flat_map(scoped_store)),
            Err(why) => failed.push((text.to_owned(), Reason::NoName(why.to_string()))),
        }
    }
    let mut seen = std::collections::HashSet::new();
    addresses.retain(|address| seen.insert(*address));
    (addresses, failed)
}

/// Looks up `NAME:PORT`. The name may be an address in brackets with the name of an interface,
/// which the standard library takes without brackets only.
fn look_up(text: &str) -> io::Result<Vec<SocketAddr>> {
    let scoped = || {
        let (name, port) = text.strip_prefix('[')?.split_once("]:")?;
        name.contains('%').then_some((name, port.parse::<u16>().ok()?))
    };
    match scoped() {
        Some(at) => at.to_socket_addrs().map(Iterator::collect),
        None => text.to_socket_addrs().map(Iterator::collect),
    }
}

/// One address of the store.
struct Target {
    address: SocketAddr,
    /// Time of the next attempt; `None` if no attempt can end otherwise.
    next: Option<Duration>,
    pause: Duration,
    live: usize,
    failed: Option<Reason>,
    /// As in [`Search`].
    opens_late: bool,
}

enum ConnectPhase {
    /// TCP's handshake is under way.
    Connecting,
    /// The attempt waits for the store's greeting.
    Connected,
    /// The attempt waits for its turn to send a proof.
    Greeted(Greeting),
    /// The attempt has sent a proof.
    Proving(Greeting, Proof, Duration),
}

struct Attempt {
    target: usize,
    stream: TcpStream,
    begun: Duration,
    phase: ConnectPhase,
    read: Vec<u8>,
}

/// Step of one attempt.
enum Step {
    Wait,
    Failed(Reason),
    /// The store's answer, proven.
    Done(Result<Secret, JobError>),
    /// An answer that any process could have given.
    Unproven(JobError),
}

/// A search for the store.
pub(super) struct Search<'a> {
    pub place: &'a NodePlace,
    pub process: &'a Process,
    /// Names that could not be resolved.
    pub unresolved: Vec<(String, Reason)>,
    pub limit: Duration,
    /// The store may be opened after this process looks for it, at one of several ports. Then no
    /// answer is final before the limit.
    pub opens_late: bool,
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl Search<'_> {
    /// Connects to the first of these addresses at which the store proves itself.
    ///
    /// # Errors
    /// The limit passed, the store refused this process, or no attempt can succeed.
    pub fn connect(&self, addresses: &[SocketAddr]) -> Result<Connected, JobError> {
        // Time of being stopped counts neither for the limit nor for an attempt (LAUNCH-4.3).
        let mut clock = Clock::new();
        let target = |&address| Target {
            address,
            next: Some(Duration::ZERO),
            pause: RETRY_PAUSE_MIN,
            live: 0,
            failed: None,
            opens_late: self.opens_late,
        };
        let mut targets: Vec<Target> = addresses.iter().map(target).collect();
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut verdict: Option<(JobError, Duration)> = None;
        loop {
            let now = clock.now();
            start(&mut targets, &mut attempts, now);
            self.prove(&mut targets, &mut attempts, now)?;
            wait(&targets, &attempts, now);
            let now = clock.now();
            let mut at = 0;
            while let Some(attempt) = attempts.get_mut(at) {
                let Some(target) = targets.get_mut(attempt.target) else { break };
                let failed = match self.advance(attempt, target.address) {
                    Step::Wait if now.saturating_sub(attempt.begun) < ATTEMPT_TIME => {
                        at += 1;
                        continue;
                    }
                    Step::Wait if matches!(attempt.phase, ConnectPhase::Connecting) => {
                        Reason::NoAnswer
                    }
                    Step::Wait => Reason::Silent,
                    Step::Done(Ok(key)) => {
                        let Attempt { stream, .. } = attempts.swap_remove(at);
                        patience::apply(&stream).map_err(JobError::system(
                            "prepare the connection to the job's store",
                        ))?;
                        return Ok(Connected { stream, address: target.address, key });
                    }
                    Step::Done(Err(refused)) => return Err(refused),
                    Step::Failed(reason) => reason,
                    Step::Unproven(why) => {
                        let reason = Reason::Foreign(why.to_string());
                        let is_better =
                            matches!(why, JobError::Refused { .. } | JobError::StoreVersion { .. });
                        // Another job may listen at an address that this host has as well (every
                        // docker0 is 172.17.0.1).
                        let own = !target.address.ip().is_loopback() && is_own(target.address.ip());
                        if !own && (verdict.is_none() || is_better) {
                            verdict = Some((why, verdict.map_or(now, |(_, since)| since)));
                        }
                        reason
                    }
                };
                attempts.swap_remove(at);
                target.fail(failed);
            }
            let open = targets.iter().any(|target| target.next.is_some() || target.live > 0);
            let doubtful =
                |target: &Target| target.failed.as_ref().is_some_and(Reason::is_doubtful);
            let hopeless = targets
                .iter()
                .all(|target| target.next.is_none() && target.live == 0 || doubtful(target));
            let hopeless = hopeless && !self.opens_late;
            let is_late = now >= self.limit || hopeless && now >= VERDICT_TIME;
            let is_final = verdict
                .as_ref()
                .is_some_and(|(_, since)| now.saturating_sub(*since) >= VERDICT_TIME)
                && !self.opens_late;
            if !open || is_late || is_final || (self.is_cancelled)() {
                return Err(verdict
                    .map_or_else(|| self.unreachable(&targets, &attempts, now), |(why, _)| why));
            }
        }
    }

    /// Sends a proof on one greeted attempt, unless another one still waits for its answer.
    fn prove(
        &self,
        targets: &mut [Target],
        attempts: &mut Vec<Attempt>,
        now: Duration,
    ) -> Result<(), JobError> {
        let is_greeted = |attempt: &&mut Attempt| matches!(attempt.phase, ConnectPhase::Greeted(_));
        let Some(next) =
            attempts.iter_mut().filter(is_greeted).min_by_key(|attempt| attempt.target)
        else {
            return Ok(());
        };
        let ConnectPhase::Greeted(greeting) = &next.phase else { return Ok(()) };
        let greeting = greeting.clone();
        let (target, begun) = (next.target, next.begun);
        let patient = |attempt: &Attempt| matches!(attempt.phase, ConnectPhase::Proving(_, _, since) if now.saturating_sub(since) < PROOF_TIME);
        if attempts.iter().any(patient) {
            return Ok(());
        }
        // Closed before the new proof leaves, because two connections of one process would only
        // replace each other.
        attempts.retain(|attempt| {
            let is_proving = matches!(attempt.phase, ConnectPhase::Proving(..));
            if is_proving && let Some(target) = targets.get_mut(attempt.target) {
                target.fail(Reason::Silent);
            }
            !is_proving
        });
        let Some(next) =
            attempts.iter_mut().find(|attempt| attempt.target == target && attempt.begun == begun)
        else {
            return Ok(());
        };
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce)?;
        let NodePlace { rank, size, incarnation, .. } = *self.place;
        let attempt = self.process.proofs.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let (process, mac) = (self.process.id, [0; 32]);
        let proof =
            Proof { version: VERSION, rank, size, incarnation, process, attempt, nonce, mac };
        let proof = proof.signed(&self.place.secret, &greeting);
        // The proof fits an empty buffer, and an error shows at the next read.
        let _ = (&next.stream).write_all(&seal::plain(&proof.encode()));
        next.phase = ConnectPhase::Proving(greeting, proof, now);
        Ok(())
    }

    fn advance(&self, attempt: &mut Attempt, address: SocketAddr) -> Step {
        if matches!(attempt.phase, ConnectPhase::Connecting) {
            match finish_connect(&attempt.stream) {
                Ok(false) => return Step::Wait,
                Ok(true) => attempt.phase = ConnectPhase::Connected,
                Err(why) => return Step::Failed(Reason::of(&why, address.ip())),
            }
        }
        let content = match read_frame(attempt) {
            Ok(Some(content)) => content,
            Ok(None) => return Step::Wait,
            Err(why) if why.kind() == ErrorKind::InvalidData => return foreign(address),
            Err(why) if why.kind() == ErrorKind::UnexpectedEof => {
                return Step::Failed(Reason::Dropped);
            }
            Err(why) => return Step::Failed(Reason::of(&why, address.ip())),
        };
        match &attempt.phase {
            ConnectPhase::Connected => match Greeting::decode(&content) {
                Ok(greeting) if greeting.version == VERSION => {
                    attempt.phase = ConnectPhase::Greeted(greeting);
                    Step::Wait
                }
                Ok(other) => {
                    Step::Unproven(JobError::StoreVersion { ours: VERSION, theirs: other.version })
                }
                Err(_) => foreign(address),
            },
            ConnectPhase::Proving(greeting, proof, _) => {
                self.verdict(&content, greeting, proof, address)
            }
            ConnectPhase::Connecting | ConnectPhase::Greeted(_) => foreign(address),
        }
    }

    fn verdict(
        &self,
        content: &[u8],
        greeting: &Greeting,
        proof: &Proof,
        address: SocketAddr,
    ) -> Step {
        let secret = &self.place.secret;
        match Verdict::decode(content) {
            Ok(Verdict::Welcome(mac)) if mac == proof.answer(secret, greeting) => {
                Step::Done(Ok(proof.session(secret, greeting)))
            }
            Ok(Verdict::Refused { mac, why }) => {
                let proven = proof.verify_refusal(secret, greeting, &why, &mac);
                // Control characters are not shown.
                let refused = JobError::Refused { why: why.replace(char::is_control, "?") };
                if proven { Step::Done(Err(refused)) } else { Step::Unproven(refused) }
            }
            Ok(Verdict::Welcome(_)) | Err(_) => foreign(address),
        }
    }

    fn unreachable(&self, targets: &[Target], attempts: &[Attempt], waited: Duration) -> JobError {
        let has_others = targets.iter().any(|target| !target.address.ip().is_loopback());
        let reason = |(at, target): (usize, &Target)| {
            let is_connected =
                |one: &Attempt| one.target == at && !matches!(one.phase, ConnectPhase::Connecting);
            let waiting =
                if attempts.iter().any(is_connected) { Reason::Silent } else { Reason::NoAnswer };
            let reason = target.failed.clone().unwrap_or(waiting);
            let is_local = reason == Reason::Closed && target.address.ip().is_loopback();
            (target.address, if is_local && has_others { Reason::Elsewhere } else { reason })
        };
        let failed: Vec<(SocketAddr, Reason)> = targets.iter().enumerate().map(reason).collect();
        let named = failed.iter().map(|(address, reason)| (address.to_string(), reason.clone()));
        let tried: Vec<_> = named.chain(self.unresolved.iter().cloned()).collect();
        let remedy =
            remedies(failed.iter().map(|(address, reason)| (*address, reason)), Transport::Tcp);
        let of_names = remedy_of_names(&self.unresolved);
        let both = [Some(remedy).filter(|remedy| !remedy.is_empty()), of_names];
        let remedy = both.into_iter().flatten().collect::<Vec<_>>().join("; ");
        JobError::StoreUnreachable { tried: listed(&tried), remedy, waited }
    }
}

impl Target {
    fn fail(&mut self, reason: Reason) {
        self.live = self.live.saturating_sub(1);
        if reason.is_final() && !self.opens_late {
            self.next = None;
        }
        // An address at which a process answered once does not count as one without answer,
        // whatever a later attempt meets.
        if reason != Reason::NoAnswer || self.failed.is_none() {
            self.failed = Some(reason);
        }
    }
}

fn foreign(address: SocketAddr) -> Step {
    Step::Unproven(JobError::NotOurStore { address: address.to_string() })
}

fn fill(bytes: &mut [u8]) -> Result<(), JobError> {
    let failed = |why: getrandom::Error| io::Error::other(why.to_string());
    getrandom::fill(bytes).map_err(failed).map_err(JobError::system("draw a random number"))
}

/// Starts the attempts that are due, the longest due first, so that no address waits for ever
/// behind others.
fn start(targets: &mut [Target], attempts: &mut Vec<Attempt>, now: Duration) {
    let mut due: Vec<usize> = (0..targets.len())
        .filter(|&at| {
            targets.get(at).is_some_and(|target| target.next.is_some_and(|next| next <= now))
        })
        .filter(|&at| targets.get(at).is_some_and(|target| target.live < ATTEMPTS_MAX))
        .collect();
    due.sort_by_key(|&at| targets.get(at).and_then(|target| target.next));
    if attempts.len() + due.len() > SOCKETS_MAX {
        // Old attempts that are not even connected make room for addresses that have not been
        // tried.
        let is_old = |attempt: &Attempt| {
            matches!(attempt.phase, ConnectPhase::Connecting)
                && now.saturating_sub(attempt.begun) >= RETRY_PAUSE_MAX
        };
        attempts.retain(|attempt| {
            let Some(target) = targets.get_mut(attempt.target).filter(|_| is_old(attempt)) else {
                return true;
            };
            target.fail(Reason::NoAnswer);
            false
        });
    }
    for at in due.into_iter().take(SOCKETS_MAX.saturating_sub(attempts.len())) {
        let Some(target) = targets.get_mut(at) else { continue };
        target.next = now.checked_add(target.pause);
        target.pause = (target.pause * 2).min(RETRY_PAUSE_MAX);
        target.live += 1;
        match begin_connect(target.address) {
            Ok(stream) => {
                attempts.push(Attempt {
                    target: at,
                    stream,
                    begun: now,
                    phase: ConnectPhase::Connecting,
                    read: Vec::new(),
                });
            }
            Err(why) => target.fail(Reason::of(&why, target.address.ip())),
        }
    }
}

fn begin_connect(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    match connect(&socket, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS | rustix::io::Errno::INTR) => {
            Ok(TcpStream::from(socket))
        }
        Err(why) => Err(why.into()),
    }
}

/// Returns `true` once the connection is open.
fn finish_connect(stream: &TcpStream) -> io::Result<bool> {
    sockopt::socket_error(stream)??;
    match stream.peer_addr() {
        Ok(_) => stream.set_nodelay(true).map(|()| true),
        Err(why) if why.kind() == ErrorKind::NotConnected => Ok(false),
        Err(why) => Err(why),
    }
}

/// Reads a frame of the handshake and no byte beyond it, because later bytes belong to the session.
fn read_frame(attempt: &mut Attempt) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(content) = seal::cut(&mut attempt.read, false)
            .map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?
        {
            return Ok(Some(content));
        }
        let end = match attempt.read.first_chunk::<LENGTH_LEN>() {
            None => LENGTH_LEN,
            Some(front) => {
                LENGTH_LEN
                    + seal::length(*front, false)
                        .map_err(|why| io::Error::new(ErrorKind::InvalidData, why))?
            }
        };
        let mut chunk = vec![0; end - attempt.read.len()];
        match attempt.stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => attempt.read.extend(chunk.get(..len).unwrap_or_default()),
            Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(why) if why.kind() == ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
}

/// Sleeps until a socket is ready or an attempt is due.
fn wait(targets: &[Target], attempts: &[Attempt], now: Duration) {
    let mut fds: Vec<PollFd<'_>> = attempts
        .iter()
        .map(|attempt| match attempt.phase {
            ConnectPhase::Connecting => PollFd::new(&attempt.stream, PollFlags::OUT),
            _ => PollFd::new(&attempt.stream, PollFlags::IN),
        })
        .collect();
    let due = targets
        .iter()
        .filter(|target| target.live < ATTEMPTS_MAX)
        .filter_map(|target| target.next)
        .min();
    let time = due.map_or(POLL_TIME, |due| {
        due.saturating_sub(now).clamp(Duration::from_millis(1), POLL_TIME)
    });
    // An interrupted or failed poll is a turn without news.
    let _ = poll(&mut fds, Timespec::try_from(time).ok().as_ref());
}
