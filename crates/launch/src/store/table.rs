//! State machine of the store: values, fences, ends of processes, and the requests that wait. It
//! does no I/O and has no clock. Time is an argument.

use super::places::{Claim, Places};
use super::protocol::{Reply, Request, UNASKED};
use super::questions::{Asker, Questions};
use crate::NodeEnd;
use oikaze_protocol::Rank;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

/// Maximum number of bytes of all keys and values together.
pub const BYTES_MAX: usize = 256 << 20;
/// Maximum number of requests of one node that wait at once.
pub const WAITING_MAX: usize = 64;
/// Maximum number of settled fences of one node that are remembered, in case their answers are lost
/// with a connection.
const SETTLED_MAX: usize = 2 * WAITING_MAX;
/// Longest wait that is taken literally, in milliseconds (about 31 years).
const LIMIT_MAX: u64 = 1_000_000_000_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitSubject {
    Value,
    Fence,
}

struct Waiting {
    rank: Rank,
    id: u32,
    on: WaitSubject,
    name: String,
    deadline: Duration,
}

/// Table of the store. Every request is answered exactly once, unless its node disconnects first.
pub struct Table {
    size: u32,
    values: HashMap<String, Vec<u8>>,
    bytes: usize,
    waiting: Vec<Waiting>,
    ended: BTreeMap<Rank, NodeEnd>,
    left: BTreeSet<Rank>,
    places: Places,
    /// Requests for fences that all nodes have come to. A request that is sent again after a loss
    /// is answered as before (WIND-11.3).
    settled: HashMap<Rank, VecDeque<u32>>,
    aborted: Option<String>,
    questions: Questions,
    replies: VecDeque<(Rank, u32, Reply)>,
    answers: VecDeque<NodeAnswer>,
    notices: VecDeque<Notice>,
}

/// Answer of a node to a question of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAnswer {
    /// Token as given to [`Table::ask`].
    pub token: u64,
    /// Rank of the node that was asked.
    pub rank: Rank,
    /// Text of the answer; `None` if no answer came within the limit, or the node is not connected.
    pub text: Option<String>,
}

/// Request of a node to the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The node of this rank ended the job for everyone, for this reason.
    Aborted(Rank, String),
    /// A node wants the others to go on after the death of one.
    KeepGoing,
    /// The node of this rank has joined the job.
    Joined(Rank),
    /// The node of this rank has left the job.
    Left(Rank),
}

impl Table {
    /// Makes the table for a job of `size` nodes.
    #[must_use]
    pub fn new(size: u32) -> Table {
        Table {
            size,
            values: HashMap::new(),
            bytes: 0,
            waiting: Vec::new(),
            ended: BTreeMap::new(),
            left: BTreeSet::new(),
            places: Places::default(),
            settled: HashMap::new(),
            aborted: None,
            questions: Questions::default(),
            replies: VecDeque::new(),
            answers: VecDeque::new(),
            notices: VecDeque::new(),
        }
    }

    /// Returns the number of nodes of the job.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Lets a node in that has proven the secret.
    ///
    /// # Errors
    /// The text says why the node is refused.
    pub fn connect(&mut self, rank: Rank, size: u32, claim: Claim) -> Result<(), String> {
        if size != self.size {
            return Err(format!(
                "it was told that the job has {size} nodes, but it has {}",
                self.size
            ));
        }
        if rank >= self.size {
            return Err(format!(
                "rank {rank} is out of range: the job has {} nodes, 0 to {}",
                self.size,
                self.size - 1
            ));
        }
        let taken = self.places.take(rank, claim);
        let is_same_process = match &self.aborted {
            Some(why) => taken.map_err(|_| format!("the job was ended: {why}"))?,
            None => taken?,
        };
        // The process sends again all requests that it still waits for.
        self.forget(rank);
        if is_same_process {
            // An answer that was lost is given again (LAUNCH-2.4).
            let again = self
                .questions
                .open_to(rank)
                .map(|(number, question)| (rank, number, Reply::Question(question.to_owned())));
            self.replies.extend(again);
        } else {
            self.settled.remove(&rank);
            self.unanswered(rank);
        }
        // All ends so far, also for a process that has heard some of them (LAUNCH-1.4).
        for end in self.ended.values() {
            self.replies.push_back((rank, UNASKED, Reply::Ended(end.clone())));
        }
        if let Some(why) = &self.aborted {
            self.replies.push_back((rank, UNASKED, Reply::Aborted(why.clone())));
        }
        Ok(())
    }

    /// Notes that a node's connection is gone, and forgets the requests that the node waited for.
    pub fn disconnect(&mut self, rank: Rank) {
        self.places.leave(rank);
        self.forget(rank);
        self.unanswered(rank);
    }

    /// Returns `true` if each connected node but rank 0 has left.
    #[must_use]
    pub fn others_have_left(&self) -> bool {
        self.places.connected().all(|rank| rank == 0 || self.left.contains(&rank))
    }

    /// Returns `true` while the connection is the newest of its rank.
    #[must_use]
    pub fn holds(&self, rank: Rank, claim: &Claim) -> bool {
        self.places.holds(rank, claim)
    }

    fn forget(&mut self, rank: Rank) {
        self.waiting.retain(|waiting| waiting.rank != rank);
        self.replies.retain(|(to, _, _)| *to != rank);
        self.questions.forget(rank);
    }

    /// Handles a request of a node.
    pub fn request(&mut self, now: Duration, rank: Rank, id: u32, request: Request) {
        match request {
            Request::Abort(why) => {
                // LAUNCH-1.3.
                if self.aborted.is_none() {
                    self.notices.push_back(Notice::Aborted(rank, why.clone()));
                }
                self.abort(&format!("node {rank} aborted the job: {why}"));
                return self.reply(rank, id, Reply::Done(Vec::new()));
            }
            Request::Answer(number, text) => {
                if let Some((asker, to)) = self.questions.answered(rank, number) {
                    self.answer(asker, to, Ok(text));
                }
                return;
            }
            _ => {}
        }
        if let Some(why) = &self.aborted {
            return self.replies.push_back((rank, id, Reply::Aborted(why.clone())));
        }
        match request {
            Request::Put(key, value) => {
                let reply = self.put(&key, value);
                self.places.published(rank);
                self.reply(rank, id, reply);
            }
            Request::Get(key, limit) => match self.values.get(&key) {
                Some(value) => self.replies.push_back((rank, id, Reply::Done(value.clone()))),
                None if let Some(end) = self.publisher_ended(&key) => {
                    self.reply(rank, id, Reply::Gone(end.clone()))
                }
                None if self.is_last(rank) => self.reply(rank, id, alone()),
                None => self.wait(rank, id, WaitSubject::Value, key, now, limit),
            },
            Request::Fence(name, limit) => self.fence(now, rank, id, name, limit),
            Request::KeepGoing => {
                self.notices.push_back(Notice::KeepGoing);
                self.reply(rank, id, Reply::Done(Vec::new()));
            }
            Request::Joined => {
                self.notices.push_back(Notice::Joined(rank));
                self.reply(rank, id, Reply::Done(Vec::new()));
            }
            Request::Left => {
                self.left.insert(rank);
                self.notices.push_back(Notice::Left(rank));
                self.reply(rank, id, Reply::Done(Vec::new()));
            }
            Request::Ask(to, limit, question) => {
                let deadline = now.saturating_add(Duration::from_millis(limit.min(LIMIT_MAX)));
                self.ask_node(deadline, Asker::Node(rank, id), to, question);
            }
            Request::Abort(_) | Request::Answer(..) => {}
        }
    }

    /// Asks a node for the launcher (LAUNCH-2.3). [`Table::poll_answer`] returns the answer with
    /// the same token.
    pub fn ask(&mut self, now: Duration, token: u64, to: Rank, limit: Duration, question: String) {
        self.ask_node(now.saturating_add(limit), Asker::Launcher(token), to, question);
    }

    fn ask_node(&mut self, deadline: Duration, asker: Asker, to: Rank, question: String) {
        if !self.places.is_connected(to) || self.ended.contains_key(&to) {
            return self.answer(asker, to, Err(format!("node {to} is not connected")));
        }
        match self.questions.ask(asker, to, deadline, question.clone()) {
            Ok(number) => self.replies.push_back((to, number, Reply::Question(question))),
            Err(why) => self.answer(asker, to, Err(why)),
        }
    }

    /// Hands an answer, or why there is none, to the asker.
    fn answer(&mut self, asker: Asker, to: Rank, answer: Result<String, String>) {
        match (asker, answer) {
            (Asker::Launcher(token), text) => {
                self.answers.push_back(NodeAnswer { token, rank: to, text: text.ok() })
            }
            (Asker::Node(rank, id), Ok(text)) => {
                self.reply(rank, id, Reply::Done(text.into_bytes()))
            }
            (Asker::Node(rank, id), Err(why)) => self.reply(rank, id, Reply::TimedOut(why)),
        }
    }

    /// Ends the questions that this node can no longer answer.
    fn unanswered(&mut self, rank: Rank) {
        for asker in self.questions.unanswered(rank) {
            self.answer(asker, rank, Err(format!("node {rank} has left or ended")));
        }
    }

    /// Returns the end of the only node that publishes this key. `PREFIX/RANK` and `PREFIX/RANK/…`
    /// are published by the node of that rank.
    fn publisher_ended(&self, key: &str) -> Option<&NodeEnd> {
        publisher(key).and_then(|rank| self.ended.get(&rank))
    }

    fn reply(&mut self, rank: Rank, id: u32, reply: Reply) {
        self.replies.push_back((rank, id, reply));
    }

    /// Returns the value under a key, if it is published.
    pub fn value(&self, key: &str) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    fn put(&mut self, key: &str, value: Vec<u8>) -> Reply {
        if let Some(old) = self.values.get(key) {
            return if *old == value {
                Reply::Done(Vec::new())
            } else {
                Reply::Refused(format!(
                    "{key:?} has another value already, and what is published does not change"
                ))
            };
        }
        let more = key.len() + value.len();
        if self.bytes + more > BYTES_MAX {
            return Reply::Refused(format!(
                "the store is full ({} of {BYTES_MAX} bytes)",
                self.bytes
            ));
        }
        self.bytes += more;
        let replies = &mut self.replies;
        self.waiting.retain(|waiting| {
            let meant = waiting.on == WaitSubject::Value && waiting.name == key;
            if meant {
                replies.push_back((waiting.rank, waiting.id, Reply::Done(value.clone())));
            }
            !meant
        });
        self.values.insert(key.to_owned(), value);
        Reply::Done(Vec::new())
    }

    fn wait(
        &mut self,
        rank: Rank,
        id: u32,
        on: WaitSubject,
        name: String,
        now: Duration,
        limit: u64,
    ) {
        if self.waiting.iter().filter(|waiting| waiting.rank == rank).count() >= WAITING_MAX {
            let why = format!("more than {WAITING_MAX} requests of node {rank} wait at once");
            return self.reply(rank, id, Reply::Refused(why));
        }
        let deadline = now.saturating_add(Duration::from_millis(limit.min(LIMIT_MAX)));
        self.waiting.push(Waiting { rank, id, on, name, deadline });
    }

    fn fence(&mut self, now: Duration, rank: Rank, id: u32, name: String, limit: u64) {
        if self.settled.get(&rank).is_some_and(|settled| settled.contains(&id)) {
            return self.reply(rank, id, Reply::Done(Vec::new()));
        }
        if self.at_fence(&name).any(|there| there == rank) {
            let why = format!("node {rank} waits for all nodes already, in another thread");
            return self.reply(rank, id, Reply::Refused(why));
        }
        let here: Vec<Rank> = self.at_fence(&name).collect();
        if here.len() + 1 == self.size as usize {
            self.settle_fence(&name, &Reply::Done(Vec::new()));
            self.remember(rank, id);
            return self.reply(rank, id, Reply::Done(Vec::new()));
        }
        if let Some((_, end)) =
            self.ended.iter().find(|(gone, _)| **gone != rank && !here.contains(gone))
        {
            let why = Reply::Gone(end.clone());
            self.settle_fence(&name, &why);
            return self.reply(rank, id, why);
        }
        self.wait(rank, id, WaitSubject::Fence, name, now, limit);
    }

    fn at_fence<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Rank> + 'a {
        self.waiting
            .iter()
            .filter(move |waiting| waiting.on == WaitSubject::Fence && waiting.name == name)
            .map(|waiting| waiting.rank)
    }

    fn settle_fence(&mut self, name: &str, reply: &Reply) {
        let waiting = std::mem::take(&mut self.waiting);
        let meant = |waiting: &Waiting| waiting.on == WaitSubject::Fence && waiting.name == name;
        let (settled, rest): (Vec<Waiting>, _) = waiting.into_iter().partition(meant);
        self.waiting = rest;
        for Waiting { rank, id, .. } in settled {
            if matches!(reply, Reply::Done(_)) {
                self.remember(rank, id);
            }
            self.reply(rank, id, reply.clone());
        }
    }

    fn remember(&mut self, rank: Rank, id: u32) {
        let settled = self.settled.entry(rank).or_default();
        settled.push_back(id);
        if settled.len() > SETTLED_MAX {
            settled.pop_front();
        }
    }

    /// Records that the process of a node has ended, and tells all connected nodes (LAUNCH-1.1).
    /// Waits that need this node fail. These are fences to which the node has not come, and values
    /// that only it publishes (LAUNCH-1.2). If no other node is left, waits for any value fail.
    pub fn ended(&mut self, end: NodeEnd) {
        let rank = end.rank;
        if self.ended.contains_key(&rank) {
            return;
        }
        for to in self.places.connected().filter(|&to| to != rank) {
            self.replies.push_back((to, UNASKED, Reply::Ended(end.clone())));
        }
        self.ended.insert(rank, end.clone());
        self.unanswered(rank);
        let replies = &mut self.replies;
        self.waiting.retain(|waiting| {
            let vain = waiting.on == WaitSubject::Value && publisher(&waiting.name) == Some(rank);
            if vain {
                replies.push_back((waiting.rank, waiting.id, Reply::Gone(end.clone())));
            }
            !vain
        });
        let waiting = std::mem::take(&mut self.waiting);
        let (vain, rest) = waiting
            .into_iter()
            .partition(|waiting| waiting.on == WaitSubject::Value && self.is_last(waiting.rank));
        self.waiting = rest;
        let vain: Vec<Waiting> = vain;
        for waiting in vain {
            self.reply(waiting.rank, waiting.id, alone());
        }
        let mut names: Vec<String> = self
            .waiting
            .iter()
            .filter(|waiting| waiting.on == WaitSubject::Fence)
            .map(|waiting| waiting.name.clone())
            .collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            if !self.at_fence(&name).any(|there| there == rank) {
                self.settle_fence(&name, &Reply::Gone(end.clone()));
            }
        }
    }

    /// Returns `true` if all nodes but this one have ended. (A job of one may still wait for
    /// another thread of its own.)
    fn is_last(&self, rank: Rank) -> bool {
        self.size > 1
            && (0..self.size).all(|other| other == rank || self.ended.contains_key(&other))
    }

    /// Ends the job for all nodes, and tells waiting and connected nodes. The first reason stays.
    pub fn abort(&mut self, why: &str) {
        if self.aborted.is_some() {
            return;
        }
        self.aborted = Some(why.to_owned());
        // The news goes first, so that a caller that returns from a failed wait knows the reason
        // already.
        for rank in self.places.connected() {
            self.replies.push_back((rank, UNASKED, Reply::Aborted(why.to_owned())));
        }
        for waiting in self.waiting.drain(..) {
            self.replies.push_back((waiting.rank, waiting.id, Reply::Aborted(why.to_owned())));
        }
    }

    /// Returns when [`Table::timeout`] should be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        self.waiting
            .iter()
            .map(|waiting| waiting.deadline)
            .chain(self.questions.next_timeout())
            .min()
    }

    /// Answers requests whose time limit has passed.
    pub fn timeout(&mut self, now: Duration) {
        let late = |waiting: &Waiting| waiting.deadline <= now;
        // Missing nodes are named before the late ones leave the fence.
        for waiting in self.waiting.iter().filter(|waiting| late(waiting)) {
            let missing = match waiting.on {
                WaitSubject::Value => "nobody published it".to_owned(),
                WaitSubject::Fence => self.missing(&waiting.name),
            };
            self.replies.push_back((waiting.rank, waiting.id, Reply::TimedOut(missing)));
        }
        self.waiting.retain(|waiting| !late(waiting));
        for (asker, to) in self.questions.late(now) {
            self.answer(asker, to, Err(format!("node {to} did not answer")));
        }
    }

    /// Returns in words which nodes have not come to a fence, with a few ranks at most.
    fn missing(&self, name: &str) -> String {
        let here: BTreeSet<Rank> = self.at_fence(name).collect();
        let missing: Vec<Rank> = (0..self.size).filter(|rank| !here.contains(rank)).collect();
        let named: Vec<String> = missing.iter().take(8).map(Rank::to_string).collect();
        let more = if missing.len() > named.len() {
            format!(" and {} more", missing.len() - named.len())
        } else {
            String::new()
        };
        format!(
            "node{} {}{more} did not come",
            if missing.len() > 1 { "s" } else { "" },
            named.join(", ")
        )
    }

    /// Returns the next answer to be sent.
    pub fn poll_reply(&mut self) -> Option<(Rank, u32, Reply)> {
        self.replies.pop_front()
    }

    /// Returns the next answer to a question of the launcher.
    pub fn poll_answer(&mut self) -> Option<NodeAnswer> {
        self.answers.pop_front()
    }

    /// Returns the next request of a node to the launcher.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }
}

/// Returns the rank of the only node that publishes this key, if the key names one.
fn publisher(key: &str) -> Option<Rank> {
    key.split('/').nth(1)?.parse().ok()
}

fn alone() -> Reply {
    Reply::Aborted("all other nodes have ended, and this one still waits for them".to_owned())
}
