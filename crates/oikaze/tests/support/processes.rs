//! Runs a job of two processes of this test program, which end with the test.

use crate::process_job::ProcessJob;
use oikaze_launch::Settings;
use std::io::Read;
use std::process::Stdio;

/// Runs two nodes that are the test `test` (its whole path) of this program, with these variables
/// set. Both must succeed.
pub fn run_two_nodes(test: &str, settings: &Settings, variables: &[(&str, &str)]) {
    let mut job = ProcessJob::new(2);
    for _ in 0..2 {
        job.start(test, settings, |command| {
            command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        });
    }
    for (rank, node) in job.nodes().iter_mut().enumerate() {
        let (mut said, mut shown) = (String::new(), String::new());
        node.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        node.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
        let status = node.wait().unwrap();
        assert!(status.success(), "node {rank}, {variables:?}: {status}\n{said}");
        assert!(shown.contains("running 1 test\n"), "there is no test {test}:\n{shown}");
    }
}
