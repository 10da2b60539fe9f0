//! A program that is its own launcher (LAUNCH-7): `oikaze::local`, `OIKAZE_LOCAL`,
//! `#[oikaze::main]`.
//!
//! This test has a `main` of its own, which is also the program that is started: `local` is called
//! first in `main`, before any thread is started.
#![allow(missing_docs)]

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

/// Set for the program that is started: its role.
const ROLE: &str = "OIKAZE_TEST_ROLE";
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let Ok(role) = std::env::var(ROLE) else {
        nodes_of_the_program_have_its_output_and_status();
        variable_gives_the_number_of_nodes();
        number_of_nodes_that_makes_no_sense_is_refused();
        error_of_one_node_ends_all_and_is_printed();
        panic_of_one_node_ends_all();
        nodes_end_with_a_killed_launcher();
        attribute_makes_processes();
        println!("all is well");
        return ExitCode::SUCCESS;
    };
    if role == "attribute" {
        return attribute::start();
    }
    oikaze::local(3, |job| {
        match (role.as_str(), job.rank()) {
            ("error", 1) => return Err("no fuel".into()),
            ("panic", 2) => panic!("no oil"),
            _ => {}
        }
        println!("pid {} is {} of {}", std::process::id(), job.rank(), job.size());
        if role == "stay" {
            // No node sends anything, so this ends with the process only.
            job.receive(None)?;
        }
        Ok(job.barrier()?)
    })
}

mod attribute {
    use oikaze::prelude::*;

    #[oikaze::main(nodes = 2)]
    fn main(job: &Job) -> Result<(), Box<dyn std::error::Error>> {
        println!("here is {} of {}", job.rank(), job.size());
        Ok(job.barrier()?)
    }

    pub fn start() -> std::process::ExitCode {
        main()
    }
}

fn program(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("OIKAZE_LOCAL") {
            command.env_remove(name);
        }
    }
    command.env(ROLE, role);
    command
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// LAUNCH-7.1
fn nodes_of_the_program_have_its_output_and_status() {
    let (status, out, err) = text(&program("fine").output().unwrap());
    assert_eq!(status, Some(0), "{out}{err}");
    for rank in 0..3 {
        let line = out.lines().find(|line| line.ends_with(&format!("is {rank} of 3")));
        let line = line.unwrap_or_else(|| panic!("no line of node {rank}: {out}{err}"));
        assert!(!line.starts_with("pid"), "the line has no prefix: {line}");
    }
}

/// LAUNCH-7.1
fn variable_gives_the_number_of_nodes() {
    for nodes in [1, 2] {
        let mut command = program("fine");
        let (status, out, err) =
            text(&command.env("OIKAZE_LOCAL", nodes.to_string()).output().unwrap());
        assert_eq!(status, Some(0), "{out}{err}");
        let last = format!("is {} of {nodes}", nodes - 1);
        assert_eq!(out.lines().filter(|line| line.ends_with(&last)).count(), 1, "{out}{err}");
    }
}

fn number_of_nodes_that_makes_no_sense_is_refused() {
    for number in ["0", "x", "-1", "4097"] {
        let (status, out, err) =
            text(&program("fine").env("OIKAZE_LOCAL", number).output().unwrap());
        assert_eq!(status, Some(1), "{out}{err}");
        assert!(out.is_empty() && err.contains("OIKAZE_LOCAL"), "{out}{err}");
    }
}

fn error_of_one_node_ends_all_and_is_printed() {
    let (status, out, err) = text(&program("error").output().unwrap());
    assert_eq!(status, Some(1), "{out}{err}");
    assert!(err.contains("oikaze: node 1: no fuel"), "{out}{err}");
}

fn panic_of_one_node_ends_all() {
    let (status, out, err) = text(&program("panic").output().unwrap());
    assert_eq!(status, Some(101), "{out}{err}");
    assert!(err.contains("no oil"), "{out}{err}");
}

/// LAUNCH-7.2
fn nodes_end_with_a_killed_launcher() {
    let mut launcher = program("stay").stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(launcher.stdout.take().unwrap());
    let pids: Vec<Pid> = out
        .lines()
        .map(|line| line.unwrap())
        .filter_map(|line| line.split("pid ").nth(1)?.split(' ').next()?.parse().ok())
        .filter_map(Pid::from_raw)
        .take(3)
        .collect();
    assert_eq!(pids.len(), 3);
    kill_process(Pid::from_child(&launcher), Signal::KILL).unwrap();
    launcher.wait().unwrap();
    let begun = Instant::now();
    while pids.iter().any(|pid| test_kill_process(*pid).is_ok()) {
        assert!(begun.elapsed() < PATIENCE, "nodes outlive their launcher: {pids:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn attribute_makes_processes() {
    let (status, out, err) = text(&program("attribute").output().unwrap());
    assert_eq!(status, Some(0), "{out}{err}");
    assert!((0..2).all(|rank| out.contains(&format!("here is {rank} of 2"))), "{out}{err}");
}
