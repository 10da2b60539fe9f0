//! Runs the examples alone and on several nodes.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Examples that end with status 0 on any number of nodes.
const EXAMPLES: &[&str] = &[
    "hello",
    "put_get",
    "signal",
    "atomics",
    "fifo",
    "messages",
    "shared_array",
    "stencil",
    "async_wait",
    "readme",
    "tour",
];

/// Returns the directory in which cargo builds. This test lies in its `deps`.
fn built() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    me.parent().and_then(Path::parent).unwrap().to_owned()
}

/// Runs an example with a launcher of the same build. Returns `None` if there is no launcher, as
/// for `cargo test -p oikaze` alone.
fn run(options: &[&str], example: &str) -> Option<Output> {
    let command = std::env::var_os("OIKAZE_TEST_COMMAND")
        .map_or_else(|| built().join("oikaze"), PathBuf::from);
    let program = built().join("examples").join(example);
    if !command.exists() || !program.exists() {
        assert!(std::env::var_os("OIKAZE_TEST_ALL").is_none(), "{} is missing", program.display());
        println!("skipped: {} or {} is not built", command.display(), program.display());
        return None;
    }
    let mut command = Command::new(command);
    let command = command.arg("run").args(options).args(["--timeout", "120", "--"]);
    Some(command.arg(program).output().unwrap())
}

#[test]
fn examples_run_on_one_two_and_four_nodes() {
    for example in EXAMPLES {
        for nodes in ["1", "2", "4"] {
            let Some(output) = run(&["-n", nodes], example) else { return };
            let told = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{example} on {nodes} nodes: {told}\n{errors}");
            assert!(!told.is_empty(), "{example} on {nodes} nodes prints nothing");
        }
    }
}

/// END-4.1: the survivors go on, and the job ends with the status of the node that died.
#[test]
fn failure_example_shows_that_survivors_go_on() {
    let Some(output) = run(&["-n", "4", "--keep-going"], "failure") else { return };
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(134), "{told}");
    assert_eq!(told.matches("hears that").count(), 3, "{told}");
}
