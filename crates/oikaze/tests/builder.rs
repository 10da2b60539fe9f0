//! Values of `Job::builder()` win over environment variables.
#![allow(missing_docs)]

use oikaze::Job;
use oikaze::job::{EngineMode, Feature, WaitMode};
use std::process::Command;
use std::time::Duration;

/// Set for the process whose environment is tried: what it does with its builder.
const ROLE: &str = "OIKAZE_TEST_ROLE";

/// Not a test by itself: the process that the others start.
#[test]
fn plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let builder = match role.as_str() {
        "nothing" => Job::builder(),
        "spin" => Job::builder().waiting(WaitMode::Spin),
        "block" => Job::builder().waiting(WaitMode::Block),
        "adapt" => Job::builder().waiting(WaitMode::Adaptive),
        "thread" => Job::builder().engine(EngineMode::thread()),
        "inline" => Job::builder().engine(EngineMode::inline()),
        "core" => Job::builder().engine(EngineMode::thread_on([100_000])),
        "words" => Job::builder().engine("thread:0,1000".parse().unwrap()),
        "poll" => Job::builder().waiting(WaitMode::Poll(Duration::from_micros(20))),
        "seldom" => Job::builder().waiting(WaitMode::Poll(Duration::from_secs(1))),
        "outside" => {
            let (first, _) = ends_of_machine();
            oikaze_os::cpu::pin_to_core(first).unwrap();
            Job::builder()
        }
        "mprotect" => Job::builder().without([Feature::Uffd]),
        "limit" => Job::builder().time_limit(Duration::from_secs(7)),
        other => panic!("no role {other}"),
    };
    match builder.join() {
        Ok(job) => {
            println!("joined: {}; {:?}", job.page_tracking(), job.time_limit());
            job.barrier().unwrap();
            cores_of_threads()
                .iter()
                .for_each(|(name, cores)| println!("{name} may run on {cores}"));
        }
        Err(why) => println!("refused: {why}"),
    }
}

/// Returns the first and the last processor of this process.
fn ends_of_machine() -> (usize, usize) {
    let cpus = oikaze_os::cpu::Topology::detect().unwrap().cpus;
    (cpus[0], cpus[cpus.len() - 1])
}

/// Returns the names of this process's threads, and the processors on which each may run.
fn cores_of_threads() -> Vec<(String, String)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of_task = |task: std::io::Result<std::fs::DirEntry>| {
        // A thread may end meanwhile.
        let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
        let field = |name: &str| {
            Some(status.lines().find_map(|line| line.strip_prefix(name))?.trim().to_owned())
        };
        Some((field("Name:")?, field("Cpus_allowed_list:")?))
    };
    tasks.filter_map(of_task).collect()
}

/// Paper 002: the application keeps its core, and communication has another. The application's own
/// affinity mask does not hold for the engine.
#[test]
fn engine_thread_runs_outside_the_mask_of_the_application() {
    let (first, last) = ends_of_machine();
    let text = output("OIKAZE_ENGINE", &format!("thread:{last}"), "outside");
    assert!(text.contains("joined: "), "{text}");
    assert!(text.contains(&format!("oikaze may run on {last}\n")), "{text}");
    assert!(text.contains(&format!("plays_its_role may run on {first}\n")), "{text}");
}

/// Output of a process with this variable and this role.
fn output(name: &str, value: &str, role: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "plays_its_role", "--nocapture"]);
    let output = command.env(name, value).env(ROLE, role).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn variables_hold_without_values_of_the_builder() {
    for (name, value) in [
        ("OIKAZE_WAIT", "nonsense"),
        ("OIKAZE_ENGINE", "nonsense"),
        ("OIKAZE_WITHOUT", "uffd,mprotect"),
        ("OIKAZE_WITHOUT", "nonsense"),
    ] {
        let text = output(name, value, "nothing");
        assert!(text.contains("refused: "), "{name}={value}: {text}");
    }
    let text = output("OIKAZE_TIMEOUT", "5000", "nothing");
    assert!(text.contains("Some(5s)"), "{text}");
}

/// Variables that would be refused are not even read where the builder has a value.
#[test]
fn values_of_the_builder_win_over_variables() {
    for (name, value, role, expected) in [
        ("OIKAZE_WAIT", "nonsense", "spin", "joined: "),
        ("OIKAZE_WAIT", "nonsense", "block", "joined: "),
        ("OIKAZE_WAIT", "nonsense", "adapt", "joined: "),
        ("OIKAZE_WAIT", "nonsense", "poll", "joined: "),
        ("OIKAZE_WAIT", "spin", "seldom", "refused: joining the job: 1s is not an interval"),
        ("OIKAZE_ENGINE", "nonsense", "thread", "joined: "),
        ("OIKAZE_ENGINE", "nonsense", "inline", "joined: "),
        ("OIKAZE_ENGINE", "inline", "core", "the engine: this machine has no core 100000"),
        ("OIKAZE_ENGINE", "inline", "words", "the engine: this machine has no core 1000;"),
        ("OIKAZE_WITHOUT", "uffd,mprotect", "mprotect", "mprotect"),
        ("OIKAZE_TIMEOUT", "5000", "limit", "Some(7s)"),
    ] {
        let text = output(name, value, role);
        assert!(text.contains(expected), "{name}={value}, {role}: {text}");
    }
}
