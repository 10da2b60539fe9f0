//! A node killed at a random point: the others say so and end by themselves, and nothing stays
//! behind.
//!
//! Ten times; `make soak` sets OIKAZE_KILLS to more.

mod support;

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use support::{HIMENO, ONE_AT_A_TIME, oikaze};

const NODES: u32 = 4;
/// Beyond it a job hangs. The launcher waits failure time and 2 s for the others to end by
/// themselves before it ends them; the rest is for machines that are busy.
const HANG: &str = "60";
/// A node is killed at most so long after it has started: while it joins, makes its arrays, or
/// computes.
const LATEST: Duration = Duration::from_millis(400);
/// Every process of the job under test has it in its environment.
const MARK: &str = "OIKAZE_TEST_MARK";

/// splitmix64, so that a failing round can be told by its number.
fn random(round: u64) -> u64 {
    let mut z = round.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Short where nothing else runs beside; elsewhere nobody is to be given up who only waits for a
/// processor.
fn failure_milliseconds() -> &'static str {
    if std::env::var_os("OIKAZE_KILLS").is_some() { "500" } else { "2000" }
}

/// Living processes that carry all of these variables.
fn processes(variables: &[String]) -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("proc is mounted").flatten() {
        let Some(pid) =
            entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        // It may have ended meanwhile; a zombie has no environment any more.
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

/// Waits until `condition` yields something.
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
    // Not to wait for anything: any point will do, and the clock finds one.
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
