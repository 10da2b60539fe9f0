//! Meeting of two nodes of one machine, which agree in three steps to share memory. Each node
//! publishes the result of each step in the job's store. So no node waits for an answer that will
//! not come, nor for a stranger that calls and says nothing:
//!
//! 1. *Called*: the node has called all nodes of lower rank and sent its hello to each. The hellos
//!    are in their sockets when they read this.
//! 2. *Answered*: the node has heard all nodes of higher rank that called, and has answered. The
//!    answers are in their sockets.
//! 3. *Used*: the node has heard the answers, and has the last word on each pair. So there is no
//!    pair of which one node uses the rings and the other does not.

use super::Why;
use oikaze_launch::{Bootstrap, JobError};
use oikaze_os::error_text::remedy_of;
use oikaze_os::shm::{CALLERS_MAX, ControlSocket, Listener, Pair, PairRole, shared_memory};
use oikaze_protocol::Rank;
use oikaze_protocol::bytes::{ByteReader, ByteWriter};
use oikaze_protocol::limits::LOCAL_PEERS_AGREE_TIME;
use rustix::fd::{AsFd, OwnedFd};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// First message of the caller, and the answer to it.
const HELLO: &[u8] = b"oikaze shm hello";
const WELCOME: &[u8] = b"oikaze shm welcome";
const NONCE: usize = 16;
const MAC: usize = 32;
/// Maximum length of the cause in one verdict, in bytes. The causes of all local peers fit a value
/// of the store.
const VERDICT_MAX: usize = 256;
/// Length of a hello in bytes: caller's rank, called rank, nonce, MAC.
const HELLO_LEN: usize = 8 + NONCE + MAC;

/// Way to call a node, the same for both nodes.
pub(super) enum WayTo {
    Name(String),
    File(PathBuf),
}

/// Outcome of each meeting.
pub(super) type Outcomes = BTreeMap<Rank, Result<Pair, Why>>;

/// Step of a meeting; see the module.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Called,
    Answered,
    Used,
}

impl Step {
    fn name(self) -> &'static str {
        match self {
            Step::Called => "called",
            Step::Answered => "answered",
            Step::Used => "used",
        }
    }

    fn key(self, rank: Rank) -> String {
        format!("local-peers/{rank}/{}", self.name())
    }
}

/// Verdict of a node on each node that a step of the node concerns: nothing, or why the step
/// failed.
#[derive(Default, Serialize, Deserialize)]
struct Verdicts(BTreeMap<Rank, Option<Why>>);

/// Call that is not answered yet.
pub(super) struct Calling {
    rank: Rank,
    line: ControlSocket,
    memory: OwnedFd,
    nonce: [u8; NONCE],
}

/// Calls between this node and the nodes that it expects.
pub(super) struct LocalMeeting<'a> {
    job: &'a dyn Bootstrap,
    listener: &'a Listener,
    /// Memory that this node sends with its answers, or has got with one.
    pub arena: Option<OwnedFd>,
    /// Time limit for a step of other nodes.
    patience: Duration,
    /// Time limit for the last step.
    limit: Duration,
}

impl<'a> LocalMeeting<'a> {
    /// Makes a meeting. `limit` is the time that the nodes of the job have to meet, of which the
    /// nodes of this machine take a part. A node that is a thread of this process comes, however
    /// busy the machine is.
    pub fn new(job: &'a dyn Bootstrap, listener: &'a Listener, limit: Duration) -> Self {
        let patience =
            if job.is_one_process() { limit } else { LOCAL_PEERS_AGREE_TIME.min(limit / 4) };
        LocalMeeting { job, listener, arena: None, patience, limit }
    }

    /// Makes a meeting as [`LocalMeeting::new`] does, with the time that others are given.
    #[cfg(test)]
    pub fn with_patience(
        job: &'a dyn Bootstrap,
        listener: &'a Listener,
        patience: Duration,
        limit: Duration,
    ) -> Self {
        LocalMeeting { job, listener, arena: None, patience, limit }
    }

    /// Agrees with each of these nodes, or finds out why not.
    ///
    /// # Errors
    /// The store fails, or a node that has published that it can share memory never publishes
    /// whether it does.
    pub fn hold(&mut self, callable: Vec<(Rank, WayTo)>) -> Result<Outcomes, JobError> {
        if callable.is_empty() {
            return Ok(Outcomes::new());
        }
        let me = self.job.rank();
        let (above, below): (Vec<_>, Vec<_>) =
            callable.into_iter().partition(|(rank, _)| *rank > me);
        let calls: BTreeMap<Rank, Result<Calling, Why>> = below
            .into_iter()
            .map(|(rank, way)| (rank, self.call(rank, &way).map_err(|why| not_called(&why))))
            .collect();
        self.publish_outcomes(Step::Called, &calls)?;
        let answered = self.answer_all(above.into_iter().map(|(rank, _)| rank))?;
        self.publish_outcomes(Step::Answered, &answered)?;
        let mut outcomes = self.hear_answers(calls)?;
        self.publish_outcomes(Step::Used, &outcomes)?;
        for (rank, outcome) in answered {
            let outcome = match outcome {
                Ok(pair) => self.process(Step::Used, rank, self.limit)?.map(|()| pair),
                Err(why) => Err(why),
            };
            outcomes.insert(rank, outcome);
        }
        Ok(outcomes)
    }

    /// Publishes the result of a step.
    pub fn publish_outcomes<T>(
        &self,
        step: Step,
        outcomes: &BTreeMap<Rank, Result<T, Why>>,
    ) -> Result<(), JobError> {
        let verdicts = outcomes.iter().map(|(rank, outcome)| {
            (*rank, outcome.as_ref().err().map(|why| clip(why, VERDICT_MAX).to_owned()))
        });
        let text =
            serde_json::to_vec(&Verdicts(verdicts.collect())).map_err(|why| JobError::System {
                doing: "write this node's local peers as JSON".into(),
                source: io::Error::other(why),
            })?;
        self.job.put(&step.key(self.job.rank()), &text)
    }

    /// Returns the result of another node's step, as far as it concerns this node. The other node
    /// may be late with all steps but the last, which it does alone.
    fn process(
        &self,
        step: Step,
        rank: Rank,
        within: Duration,
    ) -> Result<Result<(), Why>, JobError> {
        let key = step.key(rank);
        let text = match self.job.get(&key, within) {
            Ok(text) => text,
            Err(JobError::TimedOut { .. }) if step != Step::Used => {
                return Ok(Err(format!(
                    "it took too long to say whom it has {} (stopped, or on a busy machine)",
                    step.name()
                )));
            }
            Err(JobError::TimedOut { .. }) => {
                return Err(JobError::Stalled { rank, limit: within });
            }
            Err(why) => return Err(why),
        };
        let told: Verdicts = serde_json::from_slice(&text).map_err(|why| JobError::Malformed {
            rank,
            what: "the nodes it shares memory with",
            why: why.to_string(),
        })?;
        Ok(match told.0.get(&self.job.rank()) {
            Some(None) => Ok(()),
            Some(Some(why)) => Err(format!("it says: {why}")),
            None => Err("it did not expect this node".into()),
        })
    }

    /// Publishes whether this node can use the job's arena, and returns the first node that cannot,
    /// with the reason. All nodes get the same answer.
    ///
    /// # Errors
    /// The store fails, or a node that shares memory with this one does not publish its answer.
    pub fn agree_on_arena(&self, outcome: Result<(), Why>) -> Result<Result<(), Why>, JobError> {
        let key = |rank: Rank| format!("local-peers/{rank}/arena");
        let why = outcome.err().unwrap_or_default();
        self.job.put(&key(self.job.rank()), clip(&why, VERDICT_MAX).as_bytes())?;
        for rank in 0..self.job.size() {
            let told = self.job.get(&key(rank), self.limit).map_err(|why| match why {
                JobError::TimedOut { .. } => JobError::Stalled { rank, limit: self.limit },
                other => other,
            })?;
            if !told.is_empty() {
                let why = String::from_utf8_lossy(&told).into_owned();
                return Ok(Err(format!("node {rank} says: {why}")));
            }
        }
        Ok(Ok(()))
    }

    pub fn call(&self, rank: Rank, way: &WayTo) -> io::Result<Calling> {
        let line = match way {
            WayTo::Name(name) => Listener::call_name(name),
            WayTo::File(path) => Listener::call_file(path),
        }?;
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|why| io::Error::other(why.to_string()))?;
        let memory = shared_memory().map_err(io::Error::other)?;
        let me = self.job.rank();
        let mut hello = Vec::with_capacity(HELLO_LEN);
        hello.put_u32(me).put_u32(rank).put(&nonce);
        let mac = self.job.secret().mac(&[HELLO, &hello]);
        hello.put(&mac);
        line.say(&hello, Some(memory.as_fd()))?;
        Ok(Calling { rank, line, memory, nonce })
    }

    /// Waits until each of these nodes has called, or has published that it could not, and then
    /// answers.
    fn answer_all(&self, ranks: impl Iterator<Item = Rank>) -> Result<Outcomes, JobError> {
        let deadline = Instant::now() + self.patience;
        let (mut coming, mut outcomes) = (Vec::new(), Outcomes::new());
        for rank in ranks {
            match self.process(
                Step::Called,
                rank,
                deadline.saturating_duration_since(Instant::now()),
            )? {
                Ok(()) => coming.push(rank),
                Err(why) => {
                    outcomes.insert(rank, Err(why));
                }
            }
        }
        outcomes.extend(self.be_called(&coming, || self.listener.accept()));
        Ok(outcomes)
    }

    /// Answers the nodes that have called, and sends other callers away. Nothing is waited for,
    /// because all calls are there.
    pub fn be_called(
        &self,
        coming: &[Rank],
        mut next: impl FnMut() -> Option<io::Result<ControlSocket>>,
    ) -> Outcomes {
        let mut outcomes = Outcomes::new();
        let mut why =
            "its call has not come: is another process behind its socket's name?".to_owned();
        for _ in 0..CALLERS_MAX {
            if outcomes.len() == coming.len() {
                break;
            }
            match next() {
                None => break,
                Some(Ok(line)) => {
                    // A caller that sends nothing, or nonsense, is not a node of this job.
                    if let Ok((rank, outcome)) = self.answer(line, coming) {
                        outcomes.insert(rank, outcome);
                    }
                }
                // A process of another user.
                Some(Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Some(Err(error)) => {
                    why = format!("its call could not be taken: {error}{}", remedy_of(&error));
                    break;
                }
            }
        }
        for rank in coming {
            outcomes.entry(*rank).or_insert_with(|| Err(why.clone()));
        }
        outcomes
    }

    fn answer(
        &self,
        line: ControlSocket,
        coming: &[Rank],
    ) -> io::Result<(Rank, Result<Pair, Why>)> {
        let strange = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut message = line.hear()?.ok_or_else(|| strange("a call without a word"))?;
        let memory = message.descriptor.take();
        let (content, mac) = message
            .bytes()
            .split_at_checked(HELLO_LEN - MAC)
            .ok_or_else(|| strange("too short a call"))?;
        if !self.job.secret().verify(&[HELLO, content], mac) || mac.len() != MAC {
            return Err(strange("another job's call"));
        }
        let mut content = ByteReader(content);
        let mut number = || content.u32().map_err(|_| strange("too short a call"));
        let (from, to) = (number()?, number()?);
        let nonce = content.0;
        if to != self.job.rank() || !coming.contains(&from) {
            return Err(strange("a call for another node"));
        }
        let Some(memory) = memory else { return Err(strange("a call without memory")) };
        let welcome =
            self.job.secret().mac(&[WELCOME, &from.to_le_bytes(), &to.to_le_bytes(), nonce]);
        if let Err(why) = line.say(&welcome, self.arena.as_ref().map(AsFd::as_fd)) {
            return Ok((from, Err(format!("its call could not be answered: {why}"))));
        }
        Ok((
            from,
            Pair::new(&memory, PairRole::Called, line)
                .map_err(|why| format!("its memory cannot be used: {why}")),
        ))
    }

    fn hear_answers(
        &mut self,
        calls: BTreeMap<Rank, Result<Calling, Why>>,
    ) -> Result<Outcomes, JobError> {
        // The answering node may have spent all its time on waiting for another one, and may be
        // late as well.
        let deadline = Instant::now() + 2 * self.patience;
        let mut outcomes = Outcomes::new();
        for (rank, call) in calls {
            let outcome = match call {
                Err(why) => Err(why),
                Ok(call) => match self.process(
                    Step::Answered,
                    rank,
                    deadline.saturating_duration_since(Instant::now()),
                )? {
                    Err(why) => Err(why),
                    Ok(()) => self
                        .hear_answer(call)
                        .map_err(|why| format!("its answer cannot be used: {why}")),
                },
            };
            outcomes.insert(rank, outcome);
        }
        Ok(outcomes)
    }

    fn hear_answer(&mut self, call: Calling) -> io::Result<Pair> {
        let Calling { rank, line, memory, nonce } = call;
        let strange = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut message = line.hear()?.ok_or_else(|| strange("it has not said a word"))?;
        let parts: [&[u8]; 4] =
            [WELCOME, &self.job.rank().to_le_bytes(), &rank.to_le_bytes(), &nonce];
        if !self.job.secret().verify(&parts, message.bytes()) {
            return Err(strange("it shows no knowledge of this job's secret"));
        }
        if rank == 0 {
            self.arena = message.descriptor.take();
        }
        Pair::new(&memory, PairRole::Caller, line)
    }
}

fn not_called(why: &io::Error) -> Why {
    let what = if why.kind() == io::ErrorKind::WouldBlock {
        "; so many call it at this moment that there is no room: raise net.core.somaxconn"
    } else {
        remedy_of(why)
    };
    format!("it could not be called: {why}{what}")
}

fn clip(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or_default()
}
