//! Policy of a launcher: when to pass on, wait, terminate and kill. It has no processes and no
//! clock.

use super::ending::{Ending, STATUS_TIMED_OUT};
use crate::NodeEnd;
use oikaze_protocol::Rank;
use std::collections::BTreeSet;
use std::time::Duration;

const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGQUIT: i32 = 3;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Time between SIGTERM and SIGKILL.
pub const TERM_TIME: Duration = Duration::from_secs(2);
/// Time that nodes have to answer what they are doing before `--timeout` ends them.
pub const ASK_TIME: Duration = Duration::from_secs(1);
/// The launcher collects their answers for at most this long.
const COLLECT_TIME: Duration = Duration::from_secs(3);
/// Time within which a second SIGQUIT is passed on to the nodes.
const QUIT_AGAIN: Duration = Duration::from_secs(1);
/// Status of a job that a node aborted without a failing status of its own.
const STATUS_ABORTED: u8 = 1;
/// Time to wait after SIGKILL. A process ends within it unless the kernel holds the process (a dead
/// network disk), and then waiting longer does not help.
pub const KILL_TIME: Duration = Duration::from_secs(5);

/// Action that the policy asks of the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this signal to all living nodes and their own children.
    Signal(i32),
    /// Tell the store why the job is over.
    Abort(String),
    /// Tell the store that the process of a node has ended.
    Ended(NodeEnd),
    /// Ask all nodes what they are doing, for [`ASK_TIME`], for the user.
    Report,
    /// Ask all nodes what they are doing, for [`ASK_TIME`].
    Ask,
    /// Print this to the user.
    Print(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// A node failed. The others may end by their own errors until this time.
    Grace(Duration),
    /// The time limit has passed. The launcher waits for the nodes' answers until this time.
    Asking(Duration),
    /// The nodes have been told that the time limit has passed, and may end by their own errors
    /// until this time.
    TimedOut(Duration),
    /// The nodes were asked to end until this time.
    Terminating(Duration),
    /// The nodes were killed, and are waited for until this time.
    Killing(Duration),
    /// The launcher has waited long enough.
    GivenUp,
}

/// State of the launcher's policy.
pub struct Policy {
    living: BTreeSet<Rank>,
    grace: Duration,
    limit: Option<Duration>,
    stage: Stage,
    status: Option<u8>,
    /// Rank of the node that aborted the job before any had failed.
    aborter: Option<Rank>,
    /// Nodes that have joined the job and have not left it.
    members: BTreeSet<Rank>,
    /// Nodes that have called `MPI_Init` and not `MPI_Finalize`.
    mpi_members: BTreeSet<Rank>,
    /// Refusals that have been printed. A program may try again without end.
    mpi_refusals: BTreeSet<String>,
    /// Set if survivors go on after the death of a node.
    keep_going: bool,
    interrupted: bool,
    /// Time of the latest SIGQUIT that was a question.
    quit_at: Option<Duration>,
    /// Set if the user has ended the job. Ends by signal need no explanation then.
    ended_by_user: bool,
    actions: Vec<Action>,
}

impl Policy {
    /// Makes a policy for `size` nodes, with `grace` after a first failure and a `limit` for the
    /// whole job. Both count from time zero.
    #[must_use]
    pub fn new(size: u32, grace: Duration, limit: Option<Duration>) -> Policy {
        let stage = Stage::Running;
        Policy {
            living: (0..size).collect(),
            grace,
            limit,
            stage,
            status: None,
            aborter: None,
            members: BTreeSet::new(),
            mpi_members: BTreeSet::new(),
            mpi_refusals: BTreeSet::new(),
            keep_going: false,
            interrupted: false,
            quit_at: None,
            ended_by_user: false,
            actions: Vec::new(),
        }
    }

    /// Returns the actions that the launcher has to take now.
    pub fn actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Returns `true` if all nodes have ended (or been given up).
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.living.is_empty() || self.stage == Stage::GivenUp
    }

    /// Returns `true` if the job shall end although not all of the output has been written.
    #[must_use]
    pub fn wants_an_end(&self, now: Duration) -> bool {
        self.ended_by_user
            || self.stage == Stage::GivenUp
            || self.limit.is_some_and(|limit| limit <= now)
    }

    /// Returns the job's status. It is that of a node which was killed before the launcher killed
    /// any. Otherwise it is that of the first failure, or of the node that aborted the job.
    /// Otherwise it is 0. The status of an aborted job is never 0.
    #[must_use]
    pub fn status(&self) -> u8 {
        self.status.unwrap_or(if self.aborter.is_some() { STATUS_ABORTED } else { 0 })
    }

    /// Lets the others and the job go on after the death of a node, from now on (LAUNCH-3.2,
    /// END-4.1).
    pub fn keep_going(&mut self) {
        self.keep_going = true;
    }

    /// Notes that a node has aborted the job. The others may end by their own errors, and are ended
    /// after that (LAUNCH-3.1).
    pub fn aborted(&mut self, now: Duration, rank: Rank, why: &str) {
        if self.status.is_none() {
            self.aborter = Some(rank);
        }
        let rest = match self.living.len() {
            _ if self.ended_by_user => String::new(),
            0 => String::new(),
            left => self.grace_of(left, "node", "nodes"),
        };
        let why = one_line(why);
        let why = why.trim_end_matches('.');
        self.actions.push(Action::Print(format!("node {rank} aborted the job: {why}{rest}")));
        if self.stage == Stage::Running {
            self.stage = Stage::Grace(now + self.grace);
        }
    }

    /// Notes that a node has joined the job.
    pub fn joined(&mut self, rank: Rank) {
        self.members.insert(rank);
    }

    /// Notes that a node has left the job.
    pub fn left(&mut self, rank: Rank) {
        self.members.remove(&rank);
    }

    /// Notes that a node's MPI library has begun (LAUNCH-10.5).
    pub fn mpi_began(&mut self, rank: Rank) {
        self.mpi_members.insert(rank);
    }

    /// Notes that a node's MPI library has ended.
    pub fn mpi_finished(&mut self, rank: Rank) {
        self.mpi_members.remove(&rank);
    }

    /// Prints that a request of a node's MPI library was refused, and why. Each reason is printed
    /// once, with the first node (LAUNCH-10.6).
    pub fn mpi_refused(&mut self, rank: Rank, why: &str) {
        if !self.mpi_refusals.insert(why.to_owned()) {
            return;
        }
        self.actions.push(Action::Print(format!("node {rank}: {}", one_line(why))));
    }

    /// Notes that a node has called `MPI_Abort`. It does not return there, and the others may wait
    /// for it, so all of them are ended at once (LAUNCH-10.5).
    pub fn mpi_aborted(&mut self, now: Duration, rank: Rank, status: u8, why: &str) {
        if !matches!(self.stage, Stage::Running | Stage::Grace(_)) {
            return;
        }
        if self.aborter.is_none() {
            self.status.get_or_insert(status);
        }
        let status = self.status();
        let why = format!("node {rank} aborted the job: {}", one_line(why));
        self.actions.push(Action::Abort(why.clone()));
        self.actions.push(Action::Print(format!("{why}; the job ends with {status}")));
        self.actions.push(Action::Signal(SIGTERM));
        self.stage = Stage::Terminating(now + TERM_TIME);
    }

    /// Notes that a node's MPI library waits for a node that has ended. That wait has been broken
    /// off, and so the job fails (LAUNCH-10.5). With `--keep-going`, the launcher ends no node
    /// because of it.
    pub fn mpi_waits_for_ended(&mut self, now: Duration, waits: Rank, ended: Rank) {
        let why = format!("node {waits} waits in MPI for node {ended}, which has ended");
        if self.keep_going && self.stage == Stage::Running {
            let status = *self.status.get_or_insert(STATUS_ABORTED);
            let rest = "no barrier of MPI can end any more, and its nodes lose their connection";
            return self
                .actions
                .push(Action::Print(format!("{why}: {rest}; the job will end with {status}")));
        }
        // After a failure, this follows from it.
        if self.status.is_some() || self.aborter.is_some() {
            return;
        }
        self.status = Some(STATUS_ABORTED);
        self.actions.push(Action::Abort(why.clone()));
        let rest = match self.living.len() {
            _ if self.ended_by_user => String::new(),
            left => self.grace_of(left, "node", "nodes"),
        };
        self.actions
            .push(Action::Print(format!("{why}{rest}; the job ends with {STATUS_ABORTED}")));
        if self.stage == Stage::Running {
            self.stage = Stage::Grace(now + self.grace);
        }
    }

    /// Notes that a node has ended. A node that did not leave the job has failed, whatever its
    /// status is (LAUNCH-3.4).
    pub fn ended(&mut self, now: Duration, rank: Rank, how: &Ending) {
        if !self.living.remove(&rank) {
            return;
        }
        let not_left = match how.is_success() {
            true if self.members.contains(&rank) => Some(Ending::without_leaving()),
            true if self.mpi_members.contains(&rank) => Some(Ending::without_finalizing()),
            _ => None,
        };
        let how = not_left.as_ref().unwrap_or(how);
        self.actions.push(Action::Ended(NodeEnd {
            rank,
            how: how.to_string(),
            success: how.is_success(),
        }));
        if how.is_success() {
            return;
        }
        // Local peers of a killed process learn of its end sooner than the launcher does, and may
        // have ended because of it by then.
        let killed = *how == Ending::Signal(SIGKILL)
            && matches!(self.stage, Stage::Running | Stage::Grace(_))
            && !self.ended_by_user;
        if self.keep_going && self.stage == Stage::Running {
            return self.survived(rank, how);
        }
        // Other nodes fail because of the abort. Only the aborter's own failure counts, and not one
        // by the launcher's signals.
        let by_itself = matches!(self.stage, Stage::Running | Stage::Grace(_));
        let unknown = self.status.is_none()
            && self.aborter.is_none_or(|aborter| aborter == rank && by_itself);
        let first = unknown || (killed && self.status != Some(how.status()));
        if first {
            self.status = Some(how.status());
        }
        let status = self.status();
        self.actions.push(Action::Abort(format!("node {rank} {how}")));
        if first {
            let rest = match self.living.len() {
                _ if self.ended_by_user => String::new(),
                0 => String::new(),
                left => self.grace_of(left, "more node", "more nodes"),
            };
            self.actions.push(Action::Print(format!(
                "node {rank} {how}{rest}; the job ends with {status}"
            )));
            self.explain(how);
        }
        if self.stage == Stage::Running {
            self.stage = Stage::Grace(now + self.grace);
        }
    }

    /// Notes that a node has failed, and the others go on.
    fn survived(&mut self, rank: Rank, how: &Ending) {
        let status = *self.status.get_or_insert(how.status());
        let rest = match self.living.len() {
            _ if self.ended_by_user => String::new(),
            0 => format!("; none is left; the job ends with {status}"),
            1 => format!("; 1 more node goes on; the job will end with {status}"),
            left => format!("; {left} more nodes go on; the job will end with {status}"),
        };
        self.actions.push(Action::Print(format!("node {rank} {how}{rest}")));
        self.explain(how);
    }

    /// Returns a text on how long the remaining nodes have.
    fn grace_of(&self, left: usize, one: &str, many: &str) -> String {
        let (nodes, have) = if left == 1 { (one, "has") } else { (many, "have") };
        format!("; {left} {nodes} {have} {} s to end", self.grace.as_secs_f32())
    }

    fn explain(&mut self, how: &Ending) {
        if *how == Ending::Signal(SIGKILL) && !self.ended_by_user {
            let why = "if nobody killed it, the machine may have had no memory left: see `dmesg`, use more machines or a smaller problem";
            self.actions.push(Action::Print(why.to_owned()));
        }
        if *how == Ending::without_leaving() && !self.ended_by_user {
            self.actions.push(Action::Print(NOT_LEFT_REMEDY.to_owned()));
        }
    }

    /// Handles a signal to the launcher that is meant for the job (LAUNCH-4.2).
    pub fn signalled(&mut self, now: Duration, signal: i32) {
        if signal == SIGQUIT && !self.interrupted && !self.quits_again(now) {
            self.actions.push(Action::Report);
            return;
        }
        self.ended_by_user |= matches!(signal, SIGINT | SIGQUIT | SIGTERM | SIGHUP);
        match signal {
            SIGINT | SIGQUIT if self.interrupted => self.kill(now, "interrupted again"),
            SIGINT | SIGQUIT => {
                self.interrupted = true;
                self.actions.push(Action::Signal(signal));
            }
            // The launcher was told to go, so its nodes may not stay behind for longer than an
            // orderly end takes.
            SIGTERM | SIGHUP => {
                self.actions.push(Action::Signal(signal));
                if matches!(
                    self.stage,
                    Stage::Running | Stage::Grace(_) | Stage::Asking(_) | Stage::TimedOut(_)
                ) {
                    self.stage = Stage::Terminating(now + self.grace);
                }
            }
            _ => self.actions.push(Action::Signal(signal)),
        }
    }

    /// Notes a SIGQUIT. Returns `true` if another one came just before.
    fn quits_again(&mut self, now: Duration) -> bool {
        self.quit_at.replace(now).is_some_and(|before| now.saturating_sub(before) < QUIT_AGAIN)
    }

    fn kill(&mut self, now: Duration, why: &str) {
        self.actions.push(Action::Signal(SIGKILL));
        self.actions.push(Action::Print(format!("{why}: killing {}", self.who())));
        self.stage = Stage::Killing(now + KILL_TIME);
    }

    fn who(&self) -> String {
        let few: Vec<String> = self.living.iter().take(8).map(Rank::to_string).collect();
        let more = if self.living.len() > few.len() { " and more" } else { "" };
        format!("node{} {}{more}", if self.living.len() > 1 { "s" } else { "" }, few.join(", "))
    }

    /// Returns when [`Policy::timeout`] should be called next.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Duration> {
        match self.stage {
            Stage::Running => self.limit,
            Stage::Grace(at) => Some(self.limit.map_or(at, |limit| limit.min(at))),
            Stage::Asking(at)
            | Stage::TimedOut(at)
            | Stage::Terminating(at)
            | Stage::Killing(at) => Some(at),
            Stage::GivenUp => None,
        }
    }

    /// Acts on the passing of time.
    pub fn timeout(&mut self, now: Duration) {
        let running = matches!(self.stage, Stage::Running | Stage::Grace(_));
        if running && self.limit.is_some_and(|limit| limit <= now) {
            if self.aborter.is_none() {
                self.status.get_or_insert(STATUS_TIMED_OUT);
            }
            self.actions.push(Action::Ask);
            self.stage = Stage::Asking(now + COLLECT_TIME);
        }
        match self.stage {
            Stage::Asking(at) if at <= now => self.answered(now, &[]),
            Stage::TimedOut(at) if at <= now => {
                self.actions.push(Action::Signal(SIGTERM));
                self.stage = Stage::Terminating(now + TERM_TIME);
            }
            Stage::Grace(at) if at <= now => {
                self.actions.push(Action::Signal(SIGTERM));
                self.actions.push(Action::Print(format!(
                    "terminating {}: still there after that time",
                    self.who()
                )));
                self.stage = Stage::Terminating(now + TERM_TIME);
            }
            Stage::Terminating(at) if at <= now => self.kill(now, "no end after SIGTERM"),
            Stage::Killing(at) if at <= now => {
                self.actions.push(Action::Print(format!(
                    "{} did not end after SIGKILL: the kernel holds it",
                    self.who()
                )));
                self.status.get_or_insert(super::ending::STATUS_LAUNCHER);
                self.stage = Stage::GivenUp;
            }
            _ => {}
        }
    }

    /// Takes the nodes' answers on what they are doing, or their absence, before the time limit
    /// ends them (LAUNCH-3.3, END-3.3).
    pub fn answered(&mut self, now: Duration, answers: &[(Rank, Option<String>)]) {
        if !matches!(self.stage, Stage::Asking(_)) {
            return;
        }
        let limit = self.limit.unwrap_or_default().as_secs_f32();
        let why = format!("the job's time limit of {limit} s (--timeout) has passed");
        self.actions.push(Action::Print(format!("{why}: terminating {}", self.who())));
        self.reported(answers);
        self.actions.push(Action::Abort(why));
        self.stage = Stage::TimedOut(now + ABORT_TIME);
    }

    /// Takes the nodes' answers on what they are doing, or their absence, for the user
    /// (LAUNCH-4.2).
    pub fn reported(&mut self, answers: &[(Rank, Option<String>)]) {
        for (rank, answer) in answers.iter().filter(|(rank, _)| self.living.contains(rank)) {
            let answer = answer.as_deref().map_or_else(|| NO_ANSWER.to_owned(), one_line);
            self.actions.push(Action::Print(format!("node {rank}: {answer}")));
        }
    }
}

/// Time that nodes have after the time limit to end by the error of their own waits.
const ABORT_TIME: Duration = Duration::from_secs(1);

/// Remedy for a node that ended without leaving the job.
const NOT_LEFT_REMEDY: &str = "a node leaves by `leave` (C: oik_leave), or by the end of its program; _exit, exec and exit of \
     Rust or C end the process without that";

const NO_ANSWER: &str = "no answer: it has not joined or does not run";

/// Cleans the text of a node for one line of the launcher. Control characters could change the
/// terminal, or pretend to be another line.
fn one_line(text: &str) -> String {
    text.trim_end().replace(char::is_control, " ")
}

#[cfg(test)]
mod tests;
