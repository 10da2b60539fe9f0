//! Kills a node at a random point. The other nodes must report it and end by themselves, and
//! nothing may stay behind.
//!
//! Runs ten rounds. `make soak` sets OIKAZE_KILLS to more.

mod support;

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{HIMENO, ONE_AT_A_TIME, oikaze};

const NODES: u32 = 4;
/// Seconds after which a job hangs. The launcher gives the others the failure time and 2 s to end
/// by themselves. The rest is for busy machines.
const HANG: &str = "60";
/// Maximum time from the start of a node until it is killed: while it joins, makes its arrays, or
/// computes.
const LATEST: Duration = Duration::from_millis(400);
/// Environment variable that marks every process of the job under test.
const MARK: &str = "OIKAZE_TEST_MARK";

/// Returns splitmix64 of the round, so that the number of a failing round reproduces it.
fn random(round: u64) -> u64 {
    let mut z = round.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns a short failure time for soaks, which run alone. Elsewhere a longer time keeps a node
/// that only waits for a processor from being given up.
fn failure_milliseconds() -> &'static str {
    if std::env::var_os("OIKAZE_KILLS").is_some() { "500" } else { "2000" }
}

/// Returns the living processes that have all of these variables.
fn processes(variables: &[String]) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("proc is mounted").flatten() {
        let Some(pid) =
            entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        // The process may have ended meanwhile. A zombie has no environment any more.
        let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
        let has = |variable: &String| {
            environment.split(|&byte| byte == 0).any(|entry| entry == variable.as_bytes())
        };
        if variables.iter().all(has) {
            found.push(pid);
        }
    }
    found
}

/// Waits until `condition` returns a value.
fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{what} did not happen");
        std::thread::yield_now();
    }
}

fn round(round: u64) {
    let mark = format!("{MARK}={}-{round}", std::process::id());
    let value = mark.split_once('=').expect("it has one").1;
    let mut command = Command::new(oikaze());
    command.args([
        "run",
        "-n",
        &NODES.to_string(),
        "--failure-time",
        failure_milliseconds(),
        "--timeout",
        HANG,
        "--",
        HIMENO,
    ]);
    command.args(["--size", "xs", "--iterations", "100000000"]);
    let mut launcher = command
        .env(MARK, value)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("oikaze starts");
    let victim = u32::try_from(random(round) % u64::from(NODES)).expect("a rank");
    let named = [mark.clone(), format!("OIKAZE_RANK={victim}")];
    let pid = until("the start of the victim", || processes(&named).first().copied());
    // This sleep does not wait for an event. The node may be killed at any point, and the clock
    // chooses one.
    std::thread::sleep(LATEST.mul_f64((random(round ^ 1 << 40) % 1000) as f64 / 1000.0));
    kill_process(pid, Signal::KILL).expect("it runs for longer than this");
    let mut said = String::new();
    launcher.stderr.take().expect("piped").read_to_string(&mut said).expect("it says text");
    let status = launcher.wait().expect("it was started");
    let tell = format!("round {round}, node {victim} killed: {status}\n{said}");
    assert_eq!(
        status.code(),
        Some(128 + 9),
        "the status of the node that was killed is the job's: {tell}"
    );
    for rank in (0..NODES).filter(|&rank| rank != victim) {
        let own_words = format!("[{rank}] himeno: ");
        assert!(
            said.lines().any(|line| line.starts_with(&own_words)),
            "node {rank} did not end by an error of its own: {tell}"
        );
    }
    until("the end of all processes of the job", || {
        processes(std::slice::from_ref(&mark)).is_empty().then_some(())
    });
}

#[test]
fn a_node_killed_at_a_random_point_hangs_nobody_and_leaves_nothing() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let rounds =
        std::env::var("OIKAZE_KILLS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10);
    for number in 0..rounds {
        round(number);
        if (number + 1).is_multiple_of(50) {
            println!("{} of {rounds} killed", number + 1);
        }
    }
}
