//! Kills or stops a process in the middle of its work on memory that all nodes map. The guards of a
//! process count as long as it lives, and no longer (COH-16.6, COH-16.9).

use crate::process_job::ProcessJob;
use oikaze::internal::lock_view;
use oikaze::prelude::*;
use oikaze_launch::Settings;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Set in a process that is a node of the job.
pub const ROLE: &str = "OIKAZE_TEST_ROLE";
/// Prefix of a line for the test.
const MARK: &str = "segment_faults: ";
/// Time after which a node hangs.
const HANG: Duration = Duration::from_secs(60);
/// Time limit of each call of a node.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of a call that is to end late.
const SOON: Duration = Duration::from_millis(300);
const LEN: usize = 4096;
/// Number of the lock.
const LOCK: u64 = 5;

pub fn say(line: &str) {
    // The test harness may have written on the line before.
    println!("\n{MARK}{line}");
}

pub fn outcome(result: oikaze::Result<()>) -> String {
    result.map_or_else(|error| error.to_string(), |()| "done".to_owned())
}

/// Runs a node of a job that the other tests start. The node does what the test asks for. Not a
/// test by itself.
#[test]
fn plays_its_role() {
    if std::env::var(ROLE).as_deref() != Ok("segment") {
        return;
    }
    let job = Job::builder().time_limit(CALL_LIMIT).join().unwrap();
    let array = job.array::<u64>("array", LEN).unwrap();
    assert_eq!(array.why_not_shared(), None);
    let (mut guard, mut lock) = (None, None);
    let locked = |limit| job.lock_for(LOCK, limit);
    for asked in std::io::stdin().lines() {
        match asked.unwrap().as_str() {
            "barrier" => say(&outcome(job.barrier())),
            "take" => match (line!(), array.write(10..20)) {
                (line, Ok(mut taken)) => {
                    taken.fill(7);
                    guard = Some(taken);
                    say(&line.to_string());
                }
                (_, Err(error)) => say(&error.to_string()),
            },
            "end" => say(&outcome(guard.take().unwrap().release())),
            "lock" => say(&outcome(locked(CALL_LIMIT).map(|held| lock = Some(held)))),
            "try to lock" => say(&outcome(locked(SOON).map(|held| lock = Some(held)))),
            "read lock" => say(&outcome(job.read_lock(LOCK).map(|held| lock = Some(held)))),
            "count" => say(&lock_view(&job, LOCK).unwrap().waiting.to_string()),
            "unlock" => say(&outcome(lock.take().unwrap().release())),
            "wait for a loss" => {
                let lost = job.receive(Some(0)).map(drop).unwrap_err();
                say(&format!("{:?}", lost.lost_peer()));
            }
            "add" => say(&outcome(array.accumulate(0, Sum, &[1; LEN]))),
            "add for ever" => {
                say("begins");
                loop {
                    array.accumulate(0, Sum, &[1; LEN]).unwrap();
                }
            }
            "leave" => return say(&outcome(job.leave())),
            other => panic!("no work {other}"),
        }
    }
    // Another node is lost, so this node cannot leave together with it.
    std::process::exit(0);
}

/// Nodes that do what they are asked for.
pub struct Nodes {
    job: ProcessJob,
    inputs: Vec<ChildStdin>,
    answers: Vec<Receiver<String>>,
}

impl Nodes {
    fn start(count: u32, failure_time: Duration) -> Nodes {
        Nodes::start_as("segment_faults::plays_its_role", count, failure_time)
    }

    /// Starts nodes that run this test.
    pub fn start_as(test: &str, count: u32, failure_time: Duration) -> Nodes {
        Nodes::start_with(test, count, failure_time, &[])
    }

    /// Starts nodes that run this test, with these variables.
    pub fn start_with(
        test: &str,
        count: u32,
        failure_time: Duration,
        variables: &[(&str, &str)],
    ) -> Nodes {
        let settings =
            Settings { failure_time: Some(failure_time), keep_going: true, ..Settings::default() };
        let mut nodes =
            Nodes { job: ProcessJob::new(count), inputs: Vec::new(), answers: Vec::new() };
        for _ in 0..count {
            let node = nodes.job.start(test, &settings, |command| {
                command.env(ROLE, "segment").env("OIKAZE_WITHOUT", "");
                command.envs(variables.iter().copied());
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            });
            nodes.inputs.push(node.stdin.take().unwrap());
            let lines = BufReader::new(node.stdout.take().unwrap()).lines();
            let (sender, answers) = channel();
            nodes.answers.push(answers);
            std::thread::spawn(move || {
                for line in lines.map_while(Result::ok) {
                    if let Some(line) = line.strip_prefix(MARK) {
                        let _ = sender.send(line.to_owned());
                    }
                }
            });
        }
        nodes
    }

    pub fn begin(&mut self, rank: usize, work: &str) {
        writeln!(self.inputs[rank], "{work}").unwrap();
    }

    pub fn answer(&self, rank: usize, work: &str) -> String {
        let answer = self.answers[rank].recv_timeout(HANG);
        answer.unwrap_or_else(|_| panic!("node {rank} says nothing about \"{work}\""))
    }

    /// Returns what a node says, or `None` if it has been killed before.
    pub fn answer_or_kill(&mut self, rank: usize, work: &str) -> Option<String> {
        let answer = self.answers[rank].recv_timeout(HANG);
        if answer == Err(RecvTimeoutError::Disconnected) {
            self.wait_for_kill(rank);
            return None;
        }
        Some(answer.unwrap_or_else(|_| panic!("node {rank} says nothing about \"{work}\"")))
    }

    /// Lets a node do something. Returns what it says about that.
    pub fn ask(&mut self, rank: usize, work: &str) -> String {
        self.begin(rank, work);
        self.answer(rank, work)
    }

    /// Waits until this many requests wait for the lock, as this node sees it.
    fn wait_for_waiters(&mut self, rank: usize, count: usize) {
        let begun = Instant::now();
        while self.ask(rank, "count") != count.to_string() {
            assert!(begun.elapsed() < HANG, "nobody waits");
        }
    }

    /// Lets all nodes do something at the same time.
    #[track_caller]
    pub fn all_do(&mut self, work: &str) {
        (0..self.inputs.len()).for_each(|rank| self.begin(rank, work));
        for rank in 0..self.inputs.len() {
            assert_eq!(self.answer(rank, work), "done", "node {rank}: {work}");
        }
    }

    fn pid(&mut self, rank: usize) -> Pid {
        Pid::from_child(&self.job.nodes()[rank])
    }

    /// Stops a node, and returns when it has stopped.
    pub fn stop(&mut self, rank: usize) {
        kill_process(self.pid(rank), Signal::STOP).unwrap();
        self.wait_for_stop(rank);
    }

    /// Waits until a node has stopped.
    pub fn wait_for_stop(&mut self, rank: usize) {
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let (pid, begun) = (self.pid(rank), Instant::now());
        loop {
            let status = waitid(WaitId::Pid(pid), stopped | WaitIdOptions::NOHANG).unwrap();
            if let Some(status) = status {
                return assert!(status.stopped(), "node {rank} has ended");
            }
            assert!(begun.elapsed() < HANG, "node {rank} does not stop");
            std::thread::yield_now();
        }
    }

    /// Waits until a node has been killed.
    pub fn wait_for_kill(&mut self, rank: usize) {
        let begun = Instant::now();
        let status = loop {
            match self.job.nodes()[rank].try_wait().unwrap() {
                Some(status) => break status,
                None => std::thread::yield_now(),
            }
            assert!(begun.elapsed() < HANG, "node {rank} is not killed");
        };
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "node {rank}: {status}");
    }

    pub fn let_go_on(&mut self, rank: usize) {
        kill_process(self.pid(rank), Signal::CONT).unwrap();
    }

    /// Kills a node, and returns when its process has ended. Nobody tells the others.
    pub fn kill(&mut self, rank: usize) {
        let node = &mut self.job.nodes()[rank];
        node.kill().unwrap();
        node.wait().unwrap();
    }
}

/// Checks that a guard was refused because of the one that node 0 took at this line.
#[track_caller]
fn is_refused(text: &str, line: &str) {
    let place = format!("processes/segment_faults.rs:{line}:");
    let words = ["a guard of node 0 that writes bytes 80..160", &place, "is alive"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

/// Checks that a guard was taken.
#[track_caller]
fn is_taken(text: &str) {
    assert!(text.parse::<u32>().is_ok(), "{text}");
}

/// Time of silence that no node reaches.
pub const NEVER: Duration = Duration::from_secs(600);

/// COH-16.6
#[test]
fn bytes_of_a_killed_node_can_be_taken_as_soon_as_it_has_ended() {
    let mut nodes = Nodes::start(3, NEVER);
    nodes.all_do("barrier");
    let line = nodes.ask(0, "take");
    is_taken(&line);
    for survivor in [1, 2] {
        is_refused(&nodes.ask(survivor, "take"), &line);
    }
    nodes.kill(0);
    is_taken(&nodes.ask(1, "take"));
    // The guard of a survivor counts as it did before.
    assert!(nodes.ask(2, "take").contains("a guard of node 1 that writes bytes 80..160"));
    assert_eq!(nodes.ask(1, "end"), "done");
    is_taken(&nodes.ask(2, "take"));
}

/// COH-16.6
#[test]
fn guard_of_a_stopped_node_stays_until_the_node_has_gone_on_and_ended_it() {
    let mut nodes = Nodes::start(2, NEVER);
    nodes.all_do("barrier");
    let line = nodes.ask(0, "take");
    is_taken(&line);
    nodes.stop(0);
    is_refused(&nodes.ask(1, "take"), &line);
    nodes.let_go_on(0);
    is_refused(&nodes.ask(1, "take"), &line);
    assert_eq!(nodes.ask(0, "end"), "done");
    is_taken(&nodes.ask(1, "take"));
    assert_eq!(nodes.ask(1, "end"), "done");
    nodes.all_do("leave");
}

/// COH-16.6: silence does not prove that a process has ended. The stopped node may go on to store
/// under its guard.
#[test]
fn guard_of_a_stopped_node_stays_when_the_others_have_given_the_node_up() {
    let mut nodes = Nodes::start(2, Duration::from_secs(5));
    nodes.all_do("barrier");
    let line = nodes.ask(0, "take");
    is_taken(&line);
    nodes.stop(0);
    assert_eq!(nodes.ask(1, "wait for a loss"), "Some(0)");
    is_refused(&nodes.ask(1, "take"), &line);
    nodes.let_go_on(0);
    is_refused(&nodes.ask(1, "take"), &line);
    nodes.ask(0, "end");
    is_taken(&nodes.ask(1, "take"));
}

/// COH-16.9: the next operation frees the groups of pages that a node held when it was killed.
#[test]
fn operations_go_on_when_a_node_is_killed_in_an_operation() {
    for round in 0..5_u32 {
        let mut nodes = Nodes::start(2, NEVER);
        nodes.all_do("barrier");
        assert_eq!(nodes.ask(0, "add for ever"), "begins");
        // The node is killed at any point of its operations.
        (0..round).for_each(|_| assert_eq!(nodes.ask(1, "add"), "done"));
        nodes.kill(0);
        (0..2).for_each(|_| assert_eq!(nodes.ask(1, "add"), "done", "round {round}"));
    }
}

/// COH-16.10: what the lock protects may be half changed.
#[test]
fn lock_of_a_killed_node_is_lost_to_those_who_wait_and_those_who_come() {
    let mut nodes = Nodes::start(3, NEVER);
    nodes.all_do("barrier");
    assert_eq!(nodes.ask(0, "lock"), "done");
    nodes.begin(1, "lock");
    nodes.wait_for_waiters(2, 1);
    nodes.kill(0);
    let texts = [nodes.answer(1, "lock"), nodes.ask(2, "lock"), nodes.ask(1, "lock")];
    for text in texts {
        assert!(text.contains("lock 5") && text.contains("node 0 is lost"), "{text}");
    }
}

/// COH-16.10: a node that waits may be killed before or after the lock is granted to it.
#[test]
fn lock_passes_over_a_node_that_was_killed_while_it_waited() {
    for round in 0..6 {
        let mut nodes = Nodes::start(3, NEVER);
        nodes.all_do("barrier");
        assert_eq!(nodes.ask(0, "lock"), "done");
        nodes.begin(1, "lock");
        nodes.wait_for_waiters(2, 1);
        nodes.begin(2, "lock");
        nodes.wait_for_waiters(0, 2);
        if round % 2 == 0 {
            nodes.kill(1);
            assert_eq!(nodes.ask(0, "unlock"), "done");
        } else {
            // It gets the lock only when it goes on, and does not.
            nodes.stop(1);
            assert_eq!(nodes.ask(0, "unlock"), "done");
            nodes.kill(1);
        }
        let text = nodes.answer(2, "lock");
        // A stopped node may have taken the lock just before.
        assert!(text == "done" || text.contains("node 1 is lost"), "round {round}: {text}");
        assert!(text == "done" || round % 2 == 1, "round {round}: {text}");
    }
}

/// COH-16.12: a node that waits alone gets the lock when the last node that reads is killed. The
/// reader breaks no lock, so the next one gets it, too.
#[test]
fn lock_goes_to_a_waiting_writer_when_the_reader_is_killed() {
    let mut nodes = Nodes::start(3, NEVER);
    nodes.all_do("barrier");
    for reader in [0, 2] {
        assert_eq!(nodes.ask(reader, "read lock"), "done");
    }
    nodes.begin(1, "lock");
    nodes.wait_for_waiters(2, 1);
    nodes.kill(0);
    nodes.wait_for_waiters(2, 1);
    assert_eq!(nodes.ask(2, "unlock"), "done");
    assert_eq!(nodes.answer(1, "lock"), "done");
    nodes.begin(2, "lock");
    assert_eq!(nodes.ask(1, "unlock"), "done");
    assert_eq!(nodes.answer(2, "lock"), "done");

    let mut nodes = Nodes::start(2, NEVER);
    nodes.all_do("barrier");
    assert_eq!(nodes.ask(0, "read lock"), "done");
    nodes.begin(1, "lock");
    nodes.wait_for_waiters(0, 1);
    nodes.kill(0);
    assert_eq!(nodes.answer(1, "lock"), "done");
}

/// COH-16.10
#[test]
fn lock_of_a_stopped_node_is_waited_for() {
    let mut nodes = Nodes::start(2, NEVER);
    nodes.all_do("barrier");
    assert_eq!(nodes.ask(0, "lock"), "done");
    nodes.stop(0);
    let text = nodes.ask(1, "try to lock");
    assert!(text.contains("lock 5") && text.contains("node 0"), "{text}");
    nodes.begin(1, "lock");
    nodes.let_go_on(0);
    assert_eq!(nodes.ask(0, "unlock"), "done");
    assert_eq!(nodes.answer(1, "lock"), "done");
    assert_eq!(nodes.ask(1, "unlock"), "done");
    nodes.all_do("leave");
}
