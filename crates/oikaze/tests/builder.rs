//! Values of `Job::builder()` win over environment variables.
#![allow(missing_docs)]

use oikaze::Job;
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
        "spin" => Job::builder().spin_while_waiting(),
        "block" => Job::builder().block_while_waiting(),
        "adapt" => Job::builder().wait_adaptively(),
        "thread" => Job::builder().engine_thread(),
        "inline" => Job::builder().engine_inline(),
        "core" => Job::builder().engine_thread_on(100_000),
        "mprotect" => Job::builder().without("uffd"),
        "limit" => Job::builder().time_limit(Duration::from_secs(7)),
        other => panic!("no role {other}"),
    };
    match builder.join() {
        Ok(job) => println!("joined: {}; {:?}", job.page_tracking(), job.time_limit()),
        Err(why) => println!("refused: {why}"),
    }
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
        ("OIKAZE_ENGINE", "nonsense", "thread", "joined: "),
        ("OIKAZE_ENGINE", "nonsense", "inline", "joined: "),
        ("OIKAZE_ENGINE", "inline", "core", "refused: joining the job: engine_thread_on"),
        ("OIKAZE_WITHOUT", "uffd,mprotect", "mprotect", "mprotect"),
        ("OIKAZE_TIMEOUT", "5000", "limit", "Some(7s)"),
    ] {
        let text = output(name, value, role);
        assert!(text.contains(expected), "{name}={value}, {role}: {text}");
    }
}
