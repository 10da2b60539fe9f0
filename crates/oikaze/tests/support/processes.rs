//! Runs a job of two processes of this test program, which end with the test.

use oikaze_launch::environment::{NodePlace, new_incarnation, to_variables};
use oikaze_launch::store::Server;
use oikaze_launch::{Secret, Settings};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};

/// Processes of the job. Dropping the value kills them, even if they are stopped.
struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// Runs two nodes that are the test `test` of this program, with these variables set. Both must
/// succeed.
pub fn run_two_nodes(test: &str, settings: &Settings, variables: &[(&str, &str)]) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let secret = Secret::random().unwrap();
    let server = Server::start(listener, 2, secret.clone()).unwrap();
    let nodes = (0..2).map(|rank| {
        let store = format!("127.0.0.1:{}", server.port());
        let (secret, incarnation) = (secret.clone(), new_incarnation());
        let place = NodePlace {
            store,
            rank,
            size: 2,
            local_rank: rank,
            local_size: 2,
            secret,
            incarnation,
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).envs(to_variables(&place, settings));
        command
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut nodes = Nodes(nodes.collect());
    for (rank, node) in nodes.0.iter_mut().enumerate() {
        let mut said = String::new();
        node.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let status = node.wait().unwrap();
        assert!(status.success(), "node {rank}, {variables:?}: {status}\n{said}");
    }
}
