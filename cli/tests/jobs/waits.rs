//! Tests that long waits explain themselves (MEM-21). Real nodes wait for something that never
//! comes. Each test reads the nodes' standard error until the explanation is there, and then ends
//! the job.

use crate::support::*;
use oikaze::Job;
use oikaze::collective::Collectives;
use oikaze::collective::operator::Sum;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Stdio};

/// Environment variable that marks a process as a node of such a job.
const NODE: &str = "WAITS_TEST_NODE";
/// Environment variable with the name of the node's case.
const CASE: &str = "WAITS_TEST_CASE";
/// Number of elements in one page of an array.
const PAGE_ELEMENTS: usize = 512;

thread_local! {
    /// Set once a case has decided to leave the job.
    static LEAVES: Cell<bool> = const { Cell::new(false) };
}

/// Stays outside Oikaze until the test ends the job.
fn stay_away() -> ! {
    loop {
        std::thread::park();
    }
}

/// Runs a node of a job that a test below started.
#[test]
#[ignore = "a node, started by the other tests"]
fn node() {
    if std::env::var_os(NODE).is_none() {
        return eprintln!("skipped: run by the other tests only");
    }
    let case = std::env::var(CASE).unwrap();
    if case == "join" && std::env::var("OIKAZE_RANK").unwrap() == "1" {
        stay_away();
    }
    let job = oikaze::join().unwrap();
    match case.as_str() {
        "timeout" | "silent" => println!("\nerror: {}", job.barrier_of_rank_0().unwrap_err()),
        "lock-timeout" => println!("\nerror: {}", job.lock_of_rank_1().unwrap_err()),
        _ => job.wait_for_ever(&case),
    }
    if LEAVES.get() {
        job.leave().unwrap(); // waits: leave
        return;
    }
    // This node does not leave the job, because the other node does not leave either.
    std::process::exit(0);
}

/// Cases, with the actions of rank 0 and rank 1.
trait Cases {
    fn wait_for_ever(&self, case: &str);
    fn barrier_of_rank_0(&self) -> oikaze::Result<()>;
    fn lock_of_rank_1(&self) -> oikaze::Result<()>;
}

impl Cases for Job {
    fn wait_for_ever(&self, case: &str) {
        let (job, me) = (self, self.rank());
        match (case, me) {
            ("barrier", 0) | ("barrier-of-rank-1", 1) => job.barrier().unwrap(),
            ("lock-held", _) => job.lock_of_rank_1().unwrap(),
            ("lock-of-a-thread", 1) => {
                let _held = job.lock(3).unwrap();
                std::thread::scope(|scope| drop(scope.spawn(|| job.lock(3).unwrap()).join()));
            }
            ("locks-crossed", me) => {
                let _held = job.lock(u64::from(1 + me)).unwrap();
                job.barrier().unwrap();
                drop(job.lock(u64::from(2 - me)).unwrap());
            }
            ("lock-and-barrier", me) => {
                let _held = (me == 0).then(|| job.lock(3).unwrap());
                job.barrier().unwrap();
                let _wanted = (me == 1).then(|| job.lock(3).unwrap());
                job.barrier().unwrap();
            }
            ("message", 0) => drop(job.receive(Some(1)).unwrap()),
            ("probe", 0) => drop(job.probe(None).unwrap()), // waits: probe
            ("batch", 0) => drop(job.receive_batch(2)),     // waits: batch
            ("arrival", 0) => drop(job.arrivals().next().unwrap()), // waits: arrival
            ("notification", 0) => job.wait_notify(1).unwrap(), // waits: notification
            ("queue", 0) => drop(job.completion_queue().wait(1, &mut Vec::new())), // waits: queue
            ("counter", 0) => drop(job.counter().wait(1).unwrap()), // waits: counter
            ("all_reduce", me) => {
                job.all_reduce(1_u64, Sum).unwrap();
                if me == 0 {
                    job.all_reduce(1_u64, Sum).unwrap(); // waits: all_reduce
                }
                stay_away();
            }
            ("pending", 0) => {
                let sums = job.start().all_reduce(&[1_u64], Sum);
                sums.wait().unwrap(); // waits: pending
            }
            ("team_barrier", me) => {
                let team = job.split(Some(0), 0).unwrap().unwrap();
                if me == 0 {
                    team.barrier().unwrap(); // waits: team_barrier
                }
                stay_away();
            }
            ("barrier_reduce", 0) => {
                job.barrier_reduce(1_u64, Sum).unwrap(); // waits: barrier_reduce
            }
            ("array", 0) => drop(job.array::<u64>("grid", 8).unwrap()), // waits: array
            ("free", me) => {
                let grid = job.array::<u64>("grid", 8).unwrap();
                if me == 0 {
                    grid.free().unwrap(); // waits: free
                }
                stay_away();
            }
            ("operation" | "flush", me) => {
                let inbox = job.publish("inbox", Region::zeroed(64).unwrap(), Rights::ALL).unwrap();
                let there = job.peer(1 - me).unwrap().region("inbox").unwrap();
                let id = u64::from(std::process::id());
                job.peer(1 - me).unwrap().send(Class::Ordered, id, b"").wait().unwrap();
                let other = job.receive(Some(1 - me)).unwrap().tag();
                if me == 1 {
                    stay_away();
                }
                stop(u32::try_from(other).unwrap());
                let put = there.put_copy(0, &[1; 8]).unwrap();
                if case == "operation" {
                    put.wait().unwrap(); // waits: operation
                }
                job.flush().unwrap(); // waits: flush
                drop(inbox);
            }
            ("leave", 0) => LEAVES.with(|leaves| leaves.set(true)),
            ("word", 0) => {
                let inbox = job.publish("inbox", Region::zeroed(64).unwrap(), Rights::ALL).unwrap();
                inbox.wait_until_by(1, 8, |word| word > 0).unwrap();
            }
            ("name", 0) => drop(job.peer(1).unwrap().region("never").unwrap()),
            ("pop", 0) => job.fifo("work", 4, 8).unwrap().pop(&mut Vec::new()).unwrap(),
            ("push", 1) => {
                let _fifo = job.fifo("work", 4, 8).unwrap();
                stay_away();
            }
            ("push", 0) => {
                let fifo = job.peer(1).unwrap().fifo("work").unwrap();
                (0..9).for_each(|_| fifo.push(b"item").unwrap());
            }
            ("page", me) => {
                let array = job.array::<u64>("grid", 2 * PAGE_ELEMENTS).unwrap();
                if me == 1 {
                    array.write(PAGE_ELEMENTS..2 * PAGE_ELEMENTS).unwrap()[0] = 7;
                }
                job.barrier().unwrap();
                job.peer(0)
                    .unwrap()
                    .send(Class::Ordered, u64::from(std::process::id()), b"")
                    .wait()
                    .unwrap();
                if me == 1 {
                    stay_away();
                }
                let home = job.receive(Some(1)).unwrap().tag();
                stop(u32::try_from(home).unwrap());
                let there = array.read_lazily(PAGE_ELEMENTS..2 * PAGE_ELEMENTS).unwrap();
                println!("{}", there[0]);
            }
            _ => stay_away(),
        }
    }

    fn barrier_of_rank_0(&self) -> oikaze::Result<()> {
        if self.rank() == 1 {
            stay_away();
        }
        self.barrier()
    }

    /// Rank 0 takes the lock first and keeps it. Rank 1 waits for it.
    fn lock_of_rank_1(&self) -> oikaze::Result<()> {
        if self.rank() == 0 {
            std::mem::forget(self.lock(3)?);
            self.barrier()?;
            stay_away();
        }
        self.barrier()?;
        self.lock(3).map(drop)
    }
}

/// Running job whose standard error is read.
struct Waiting {
    launcher: Child,
    lines: BufReader<ChildStderr>,
}

impl Waiting {
    fn start(case: &str, options: &[&str]) -> Waiting {
        let line = "run -n 2 --explain-after 0.2 --failure-time 60000 --timeout 50";
        let mut command = oikaze_line(line);
        command.args(options).args(["--env", &format!("{CASE}={case}")]);
        of_test_nodes(&mut command, module_path!(), NODE);
        let mut launcher = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(launcher.stderr.take().unwrap());
        Waiting { launcher, lines }
    }

    /// Returns the first line that contains all of `words`.
    fn line(&mut self, words: &[&str]) -> String {
        let mut seen = String::new();
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "no line with {words:?} in:\n{seen}"
            );
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
            // A wait that has been explained in other words is explained again only after a minute.
            assert!(
                !line.contains("has waited") || !line.contains(words[0]),
                "{line:?} lacks some of {words:?}"
            );
            seen += &line;
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.launcher.kill();
        let _ = self.launcher.wait();
    }
}

fn explained(case: &str, words: &[&str]) {
    Waiting::start(case, &[]).line(words);
}

/// MEM-21.1, 21.2.
#[test]
fn barrier_that_a_node_skips_names_it_and_what_it_does() {
    let words = [
        "[0] oikaze: node 0 has waited ",
        " s for barrier 1 at cli/tests/jobs/waits.rs:",
        ": node 1 has not come; node 1 computes: no call of Oikaze waits",
    ];
    explained("barrier", &words);
    explained(
        "barrier-of-rank-1",
        &[
            "[1] oikaze: node 1 has waited ",
            " s for barrier 1 at ",
            ": node 0 has not come; node 0",
        ],
    );
}

/// MEM-21.2.
#[test]
fn lock_that_is_never_released_names_its_holder() {
    let words = [
        "[1] oikaze: node 1 has waited ",
        " s for lock 3 at cli/tests/jobs/waits.rs:",
        ": held by node 0 for ",
        " s (taken at cli/tests/jobs/waits.rs:",
        ", which computes: ",
        "holds lock 3",
    ];
    explained("lock-held", &words);
}

/// MEM-21.2.
#[test]
fn lock_that_another_thread_of_the_node_holds_names_the_thread() {
    explained(
        "lock-of-a-thread",
        &[
            "[1] oikaze: node 1 has waited ",
            " s for lock 3 at cli/tests/jobs/waits.rs:",
            ": held by this node itself for ",
            " by thread ",
        ],
    );
}

/// MEM-21.2.
#[test]
fn locks_taken_in_crossed_order_are_called_a_deadlock() {
    explained(
        "locks-crossed",
        &[
            "oikaze: node ",
            " has waited ",
            " s for lock ",
            ": held by node ",
            "form a cycle (deadlock)",
        ],
    );
}

/// MEM-21.2.
#[test]
fn barrier_whose_late_node_waits_for_a_lock_names_the_lock_and_its_holder() {
    let words = [
        "[0] oikaze: node 0 has waited ",
        "for barrier 2 at cli/tests/jobs/waits.rs:",
        ": node 1 has not come; node 1 waits for lock 3 at cli/tests/jobs/waits.rs:",
        "held by node 0 for ",
    ];
    explained("lock-and-barrier", &words);
}

/// MEM-21.1.
#[test]
fn message_word_name_and_fifo_that_never_come_name_the_node_that_could_bring_them() {
    let cases = [
        ("message", "a message from node 1"),
        ("word", "a change of the word at offset 8 of region \"inbox\" by node 1"),
        ("name", "node 1 to publish \"never\""),
        ("pop", "an element of FIFO \"work\""),
        ("push", "room in FIFO \"work\" of node 1"),
    ];
    for (case, words) in cases {
        explained(
            case,
            &[
                "[0] oikaze: node 0 has waited ",
                &format!(" s for {words} at cli/tests/jobs/waits.rs:"),
                ": node 1 computes: no call of Oikaze waits",
            ],
        );
    }
}

/// MEM-21.5: the line is that of the program's call, whatever lies between.
#[test]
fn wait_of_each_kind_names_the_line_of_the_program() {
    for (case, what) in [
        ("probe", "a message from any node"),
        ("batch", "2 messages from any node"),
        ("arrival", "a put with notice"),
        ("notification", "a notification of node 1"),
        ("queue", ""),
        ("counter", ""),
        ("all_reduce", "all_reduce of 1 u64 with Sum, collective 2 of the job"),
        ("pending", "all_reduce of 1 u64 with Sum, collective 1 of the job"),
        ("team_barrier", "barrier of a team, collective 1 of a team"),
        ("barrier_reduce", "barrier_reduce"),
        ("array", "declare array \"grid\""),
        ("free", "free array \"grid\""),
        ("operation", "put of 8 bytes at offset 0 of region \"inbox\" on node 1"),
        ("flush", "all operations of this node to end"),
        ("leave", "all nodes to leave the job"),
    ] {
        let place = format!(" at cli/tests/jobs/waits.rs:{}", line_of_case(case));
        explained(case, &["oikaze: node 0 has waited ", &format!(" for {what}"), &place]);
    }
}

/// Returns the line of the call that waits in a case.
fn line_of_case(case: &str) -> usize {
    let source = include_str!("waits.rs");
    let mark = format!("// waits: {case}");
    1 + source.lines().position(|line| line.ends_with(&mark)).unwrap()
}

/// MEM-21.1.
#[test]
fn load_of_a_page_whose_home_is_stopped_names_page_and_home() {
    let page = " s for page 1 of array \"grid\" from its home, node 1 (a load or store): node 1 does not say what it does";
    // Where nodes map one memory, no load waits.
    let mut job = Waiting::start("page", &["--env", "OIKAZE_WITHOUT=segment"]);
    job.line(&["[0] oikaze: node 0 has waited ", page]);
}

/// MEM-21.1.
#[test]
fn join_without_all_nodes_names_those_that_are_missing() {
    explained(
        "join",
        &[
            "[0] oikaze: node 0 has waited ",
            " s for node 1 to say where it can be reached at cli/tests/jobs/waits.rs:",
            ": node 1 ",
        ],
    );
}

/// MEM-21.4.
#[test]
fn timeout_of_a_barrier_or_lock_says_who_has_not_come_or_holds_it() {
    for (case, words) in [
        (
            "timeout",
            ["barrier 1 at cli/tests/jobs/waits.rs:", " (node 1 has not come; node 1 computes"],
        ),
        ("lock-timeout", ["lock 3 at cli/tests/jobs/waits.rs:", " (held by node 0 for "]),
    ] {
        let line = format!("run -n 2 --env OIKAZE_TIMEOUT=2000 --env {CASE}={case}");
        let mut command = oikaze_line(&line);
        of_test_nodes(&mut command, module_path!(), NODE);
        let mut job = Running::start(&mut command);
        let rank = if case == "timeout" { 0 } else { 1 };
        let error = job.line(&format!("[{rank}] error: "));
        assert!(error.starts_with(words[0]) && error.contains(words[1]), "{error}");
        assert!(error.contains("): not done after "), "{error}");
    }
}

/// MEM-21.1: zero means never.
#[test]
fn explanations_that_are_switched_off_do_not_come() {
    let options = [
        "--explain-after",
        "0",
        "--env",
        "OIKAZE_TIMEOUT=1500",
        "--env",
        &format!("{CASE}=silent"),
    ];
    let mut command = oikaze(&[&["run", "-n", "2"][..], &options].concat());
    of_test_nodes(&mut command, module_path!(), NODE);
    command.args(["--skip", "nothing"]);
    let mut launcher = command.stdin(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(launcher.stdout.take().unwrap()).lines();
    assert!(out.any(|line| line.unwrap().starts_with("[0] error: barrier 1 at ")), "no error");
    kill(launcher.id(), 15);
    let mut seen = BufReader::new(launcher.stderr.take().unwrap()).lines();
    assert!(!seen.any(|line| line.unwrap().contains("has waited")));
    launcher.wait().unwrap();
}

/// MEM-21.3.
#[test]
fn waits_that_last_are_shown_by_top() {
    let job = Waiting::start("barrier", &[]);
    let children = format!("/proc/{0}/task/{0}/children", job.launcher.id());
    let nodes = || std::fs::read_to_string(&children).unwrap_or_default();
    until("the wait is shown", || {
        let (_, out, _) = finish(&mut oikaze(&["top", "--once", "--json"]));
        let all: serde_json::Value = serde_json::from_str(&out).unwrap_or_default();
        let shown = all["nodes"].as_array().into_iter().flatten().filter(|node| {
            nodes()
                .split_whitespace()
                .any(|pid| node["pid"].as_u64().is_some_and(|shown| shown.to_string() == pid))
        });
        let waits: Vec<&str> = shown.filter_map(|node| node["waits"].as_str()).collect();
        waits.iter().any(|waits| {
            waits.contains(" s for barrier 1 at ") && waits.contains(": node 1 has not")
        })
    });
    let (_, text, _) = finish(&mut oikaze(&["top", "--once"]));
    assert!(text.contains("; waits "), "{text}");
    assert!(text.contains(" s for barrier 1 at cli/tests/jobs/waits.rs:"), "{text}");
}

/// A wait that lacks nothing is not explained.
#[test]
fn quick_job_prints_no_explanation() {
    let (status, _, err) = finish(&mut oikaze(&["run", "-n", "2", "--", OIKAZE, "hello"]));
    assert_eq!((status, err.contains("has waited")), (Some(0), false), "{err}");
}
