//! Checks how each kind of wait learns of the end of one node (spec/ending.md). Covers the whole
//! table with real processes, over rings and over the network.

use crate::support::*;
use oikaze::completion::Operation;
use oikaze::memory::remote::RemoteRegion;
use oikaze::memory::{LocalRegion, Rights};
use oikaze::message::Class;
use oikaze::{Job, Result};
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;

/// Environment variable with the way in which node 0 ends.
const MARK: &str = "ENDINGS_OF";
/// Waits of the nodes of a job, by rank. Node 0 is the node that ends.
const WAITS: [&str; 10] =
    ["", "message", "word", "push", "name", "get", "lock", "page", "barrier", "any"];
/// Time limit for a wait that ends "at once", with room for a busy machine (END-2.4).
const SOON_MS: u128 = 3_000;

/// Result of a node's wait, from its line `waited OUTCOME MILLISECONDS TEXT`.
struct Said {
    ok: bool,
    milliseconds: u128,
    text: String,
}

/// Runs a job whose node 0 ends in this way. Returns the results of the other nodes, the status and
/// the whole output.
fn run(
    ending: &str,
    options: &[&str],
    then: impl FnOnce(&Running),
) -> (BTreeMap<u32, Said>, i32, String) {
    let nodes = WAITS.len().to_string();
    let mut command = oikaze(&[&["run", "-n", &nodes, "--failure-time", "1500"], options].concat());
    command.args(["--env", &format!("{MARK}={ending}")]);
    of_test_nodes(&mut command, module_path!(), "ENDINGS_NODE");
    let mut job = Running::start(&mut command);
    job.line("[0] ends");
    then(&job);
    let (status, out) = job.finish();
    let mut said = BTreeMap::new();
    for line in out.lines() {
        let parts = line.strip_prefix('[').and_then(|line| line.split_once("] waited "));
        let Some((rank, rest)) = parts else { continue };
        let mut words = rest.splitn(3, ' ');
        let (ok, milliseconds) =
            (words.next() == Some("ok"), words.next().unwrap().parse().unwrap());
        said.insert(
            rank.parse().unwrap(),
            Said { ok, milliseconds, text: words.next().unwrap_or_default().to_owned() },
        );
    }
    (said, status, out)
}

/// Checks that every wait for node 0 ends in time. Waits in `done` must succeed. All others must
/// fail with an error that names the cause.
fn check(ending: &str, done: &[&str], cause: &str, options: &[&str]) {
    check_with(ending, done, cause, options, |_| {});
}

fn check_with(
    ending: &str,
    done: &[&str],
    cause: &str,
    options: &[&str],
    then: impl FnOnce(&Running),
) {
    let (said, status, out) = run(ending, options, then);
    assert_ne!(status, 124, "{out}");
    for (rank, wait) in (1..).zip(&WAITS[1..]) {
        let Some(said) = said.get(&rank) else {
            panic!("{ending}: node {rank} ({wait}) says nothing of its wait:\n{out}")
        };
        assert_eq!(said.ok, done.contains(wait), "{ending}: {wait}: {}\n{out}", said.text);
        // A node whose own wait has failed may leave before this one hears of node 0.
        let follows = said.text.contains("is leaving the job") && !said.text.contains("node 0 ");
        assert!(
            said.ok || follows || said.text.contains(cause),
            "{ending}: {wait}: {:?} lacks {cause:?}",
            said.text
        );
        // The wait for any node ends only when the others have ended by their own errors.
        let limit = if *wait == "any" { 4 * SOON_MS } else { SOON_MS };
        assert!(said.milliseconds < limit, "{ending}: {wait} took {} ms", said.milliseconds);
    }
}

/// Options for a job in shared memory, for one whose nodes keep pages of their own, and for one
/// over the network. Nodes with injected faults share no memory, and this fault sequence is empty.
const MEDIA: [&[&str]; 3] = [&[], &["--env", "OIKAZE_WITHOUT=segment"], &["--fault", "seed=1"]];

/// END-1.1, END-1.2, END-2.1, END-2.2, END-2.3 and END-2.4: node 0 returns from `main`.
#[test]
fn waits_for_a_leaving_node_end() {
    for medium in MEDIA {
        check("leave", &["get", "lock", "page"], "leaving", medium);
    }
}

/// END-3.1 and END-3.2: the error is printed, and all others end with it.
#[test]
fn waits_for_a_node_that_fails_end_with_its_error() {
    for medium in MEDIA {
        let (said, status, out) = run("error", medium, |_| {});
        assert!(status != 0 && said.len() == WAITS.len() - 1, "{out}");
        for said in said.values() {
            // A wait for a page may still receive its last bytes.
            let told = said.text.contains("node 0 aborted the job: the input is not a number");
            assert!(told || said.ok && said.text.is_empty(), "{}", said.text);
        }
        check("panic", &["page"], "it panicked", medium);
    }
}

/// END-1.4, END-1.5: node 0 is killed, or ends without leaving.
#[test]
fn waits_for_a_dead_node_end() {
    for medium in MEDIA {
        check("kill", &["page"], "was killed by signal 9", medium);
        check("exit", &["page"], "ended with status 0 without leaving the job", medium);
    }
}

/// END-1.4: node 0 is stopped, so it sends nothing.
#[test]
fn waits_for_a_silent_node_end_within_the_failure_time() {
    for medium in MEDIA {
        check("stop", &["page"], "node 0", medium);
    }
}

/// END-3.3: a wait fails when the time limit passes.
#[test]
fn waits_end_when_the_time_limit_of_the_job_passes() {
    let (said, status, out) = run("never", &["--timeout", "3"], |_| {});
    assert_eq!(status, 124, "{out}");
    let limits = said.values().filter(|said| said.text.contains("time limit")).count();
    assert!(limits > 0, "{out}");
}

/// END-4.1, END-4.2 and END-4.3: survivors work on without the dead node, know of its death, and
/// leave in order.
#[test]
fn survivors_go_on_after_a_death() {
    for medium in MEDIA {
        let mut command = oikaze(
            &[&["run", "-n", "4", "--keep-going", "--failure-time", "1500"], medium].concat(),
        );
        command.args(["--env", &format!("{MARK}=survive")]);
        of_test_nodes(&mut command, module_path!(), "ENDINGS_NODE");
        let (status, out, err) = finish(command.stdin(std::process::Stdio::null()));
        let survived = out.lines().filter(|line| line.contains("survived without [0]")).count();
        assert_eq!(survived, 3, "{status:?}\n{out}\n{err}");
    }
}

/// END-1.3.
#[test]
fn leave_says_for_whom_it_waits() {
    let mut command = oikaze(&["run", "-n", "2", "--env", &format!("{MARK}=late")]);
    of_test_nodes(&mut command, module_path!(), "ENDINGS_NODE");
    let (status, out, err) = finish(command.stdin(std::process::Stdio::null()));
    assert_eq!(status, Some(0), "{out}\n{err}");
    assert!(err.contains("node 0 has left its work and waits in leave for node 1"), "{err}");
}

/// Runs a node of the jobs above. Not a test.
#[test]
#[ignore = "a node of the other tests"]
fn node() {
    let Ok(ending) = std::env::var(MARK) else { return };
    let code = match ending.as_str() {
        "survive" => oikaze::run(|job| Ok(survive(job)?)),
        "late" => oikaze::run(|job| {
            if job.rank() == 1 {
                // Node 1 waits until node 0 has printed its line about leave.
                let begun = Instant::now();
                until("node 0 has waited", || begun.elapsed().as_millis() > 2_500);
            }
            Ok(())
        }),
        _ => oikaze::run(|job| Ok(end_or_wait(job, &ending)?)),
    };
    // The test harness would replace the status by its own.
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

fn survive(job: &Job) -> Result<()> {
    let me = job.rank();
    let own = job.publish("own", oikaze::memory::Region::shared(64)?, Rights::ALL)?;
    job.barrier()?;
    // Node 0 dies after all others have passed the barrier.
    if me == 0 {
        (1..job.size()).try_for_each(|_| job.receive(None).map(drop))?;
        kill(std::process::id(), 9);
    }
    // Node 0 may die before it has acknowledged the message that it has read.
    drop(job.peer(0)?.send(Class::Ordered, 0, b"ready").wait());
    // A wait for the dead node ends.
    assert!(job.receive(Some(0)).is_err());
    assert_eq!(job.lost(), [0]);
    // The survivors pass a token around, twice.
    let next = job.peer(me % 3 + 1)?;
    let there = next.region("own")?;
    for round in 1..=2u64 {
        if me != 1 {
            own.wait_until(0, |word| word >= round)?;
        }
        there.fetch_add(0, 1).wait()?;
        if me == 1 {
            own.wait_until(0, |word| word >= round)?;
        }
    }
    println!("\nsurvived without {:?}", job.lost());
    Ok(())
}

fn end_or_wait(job: &Job, ending: &str) -> std::result::Result<(), String> {
    let me = job.rank();
    let stage = stage(job).map_err(|error| error.to_string())?;
    if me == 0 {
        println!("\nends");
        // Regions and lock of node 0 must still exist when it leaves.
        std::mem::forget(stage);
        return match ending {
            "leave" => Ok(()),
            "error" => Err("the input is not a number".into()),
            "panic" => panic!("on purpose"),
            "exit" => std::process::exit(0),
            "stop" => {
                kill(std::process::id(), 19);
                // The signal may take a moment to stop the process.
                job.receive(None).map(drop).map_err(|error| error.to_string())
            }
            "never" => job.receive(None).map(drop).map_err(|error| error.to_string()),
            _ => {
                kill(std::process::id(), 9);
                Ok(())
            }
        };
    }
    let begun = Instant::now();
    let outcome = stage.wait(job).map_err(|error| error.to_string().replace('\n', " "));
    let milliseconds = begun.elapsed().as_millis();
    match outcome {
        Ok(()) => println!("\nwaited ok {milliseconds}"),
        Err(why) => println!("\nwaited no {milliseconds} {why}"),
    }
    Ok(())
}

/// Objects that all nodes make before node 0 ends.
struct Stage {
    own: LocalRegion,
    array: oikaze::shared::SharedArray<u64>,
    there: RemoteRegion,
    full: oikaze::message::RemoteFifo,
    queue: oikaze::message::Fifo,
    lock: Option<oikaze::shared::LockGuard>,
}

fn stage(job: &Job) -> Result<Stage> {
    let me = job.rank();
    let own = job.publish("own", oikaze::memory::Region::shared(4096)?, Rights::ALL)?;
    let queue = job.fifo("queue", 2, 8)?;
    let array = job.array::<u64>("array", 512 * job.size() as usize)?;
    let there = job.peer(0)?.region("own")?;
    let full = job.peer(0)?.fifo("queue")?;
    let lock = if me == 0 { Some(job.lock(7)?) } else { None };
    if me == 0 {
        let own = job.peer(0)?.fifo("queue")?;
        (0..2).try_for_each(|_| own.try_push(b"full"))?;
    }
    job.barrier()?;
    // Node 0 ends after all others have passed the barrier.
    match me {
        0 => (1..job.size()).try_for_each(|_| job.receive(None).map(drop))?,
        // Node 0 may end before it has acknowledged the message that it has read.
        _ => drop(job.peer(0)?.send(Class::Ordered, 0, b"ready").wait()),
    }
    Ok(Stage { own, array, there, full, queue, lock })
}

impl Stage {
    fn wait(&self, job: &Job) -> Result<()> {
        let zero = job.peer(0)?;
        let _ = &self.lock;
        match WAITS[job.rank() as usize] {
            "message" => job.receive(Some(0)).map(drop),
            "word" => self.own.wait_until_by(0, 0, |word| word != 0).map(drop),
            "push" => self.full.push(b"more"),
            "name" => zero.region("never published").map(drop),
            // Waits until node 0 has ended. After that, the get is either still served or fails.
            "get" => {
                job.receive(Some(0)).expect_err("node 0 sends nothing");
                let got: Operation<u64> = self.there.fetch_add(0, 1);
                got.wait().map(drop)?;
                zero.send(Class::Unordered, 1, b"late").wait()
            }
            "lock" => job.lock(7).and_then(oikaze::shared::LockGuard::release),
            "page" => {
                job.receive(Some(0)).expect_err("node 0 sends nothing");
                std::hint::black_box(self.array.read_lazily(0..1)?[0]);
                Ok(())
            }
            "barrier" => job.barrier(),
            _ => self.queue.pop(&mut Vec::new()),
        }
    }
}
