//! Runs the programs that README and the documentation of `oikaze` show. `cargo test --doc` runs
//! the latter as jobs of one node.

mod support;
use oikaze_documents::PROGRAMS;
use std::fs;
use std::path::Path;
use support::*;

/// Environment variable with the name of the program that a node runs.
const NODE: &str = "DOCUMENTS_TEST_PROGRAM";

/// Runs a node of a job that a test below started.
#[test]
#[ignore = "a node, started by the other tests"]
fn node() {
    let Ok(name) = std::env::var(NODE) else {
        return eprintln!("skipped: run by the other tests only");
    };
    let (_, start, _) = PROGRAMS.iter().find(|(known, ..)| *known == name).unwrap();
    assert_eq!(start(), std::process::ExitCode::SUCCESS);
}

/// Runs one program on `nodes` nodes.
fn run((name, aborts): (&str, bool), nodes: u32) {
    // END-3.1: a node that has aborted does not stay for the failure time.
    let limits = ["--timeout", "60", "--failure-time", "120000"];
    let mut command =
        oikaze(&["run", "-n", &nodes.to_string(), "--env", &format!("{NODE}={name}")]);
    command.args(limits);
    of_test_nodes(&mut command, module_path!(), "DOCUMENTS_TEST");
    let (status, out, err) = finish(&mut command);
    // The launcher reports an abort as a failure.
    let expected = if aborts { Some(1) } else { Some(0) };
    assert_eq!(status, expected, "{name} on {nodes} nodes:\n{out}{err}");
    let ran = out.matches("test result: ok. 1 passed").count();
    assert!(
        aborts || ran == nodes as usize,
        "{name} ran {ran} times on {nodes} nodes:\n{out}{err}"
    );
}

#[test]
fn programs_in_pages_run_on_1_2_and_4_nodes() {
    let pages = PROGRAMS.iter().filter(|(name, ..)| name.contains(".md "));
    assert!(pages.clone().count() > 0);
    for (name, _, aborts) in pages {
        [1, 2, 4].into_iter().for_each(|nodes| run((name, *aborts), nodes));
    }
}

/// `cargo test --doc` runs these programs on one node.
#[test]
fn programs_in_documentation_run_on_2_and_4_nodes() {
    let examples = PROGRAMS.iter().filter(|(name, ..)| name.contains(".rs "));
    assert!(examples.clone().count() > 5);
    for (name, _, aborts) in examples {
        [2, 4].into_iter().for_each(|nodes| run((name, *aborts), nodes));
    }
}

/// `cargo run --example readme` runs this program, and the documentation of the crate begins with
/// it.
#[test]
fn example_readme_is_the_program_in_readme() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let block = format!("```rust\n{}```\n", read("crates/oikaze/examples/readme.rs"));
    assert!(
        read("README.md").contains(&block),
        "README.md does not show crates/oikaze/examples/readme.rs as it is"
    );
    let included = r#"#![doc = include_str!("../examples/readme.rs")]"#;
    assert!(read("crates/oikaze/src/lib.rs").contains(included));
}
