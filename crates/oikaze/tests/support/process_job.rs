//! Processes of a job, all of them this test program, and the store at which they meet.

use oikaze_launch::environment::{NodePlace, new_incarnation, to_variables};
use oikaze_launch::store::Server;
use oikaze_launch::{NodeEnd, Secret, Settings};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command};

/// A job of real processes. Dropping it kills them, even if they are stopped.
pub struct ProcessJob {
    size: u32,
    secret: Secret,
    server: Server,
    nodes: Vec<Child>,
}

impl ProcessJob {
    /// Makes a job of so many nodes, none of which runs yet.
    pub fn new(size: u32) -> ProcessJob {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let secret = Secret::random().unwrap();
        let server = Server::start(listener, size, secret.clone()).unwrap();
        ProcessJob { size, secret, server, nodes: Vec::new() }
    }

    /// Starts the next node: the test `test` of this program. `prepare` completes the command.
    /// Returns the node.
    pub fn start(
        &mut self,
        test: &str,
        settings: &Settings,
        prepare: impl FnOnce(&mut Command),
    ) -> &mut Child {
        let rank = self.nodes.len() as u32;
        let place = NodePlace {
            store: format!("127.0.0.1:{}", self.server.port()),
            rank,
            size: self.size,
            local_rank: rank,
            local_size: self.size,
            secret: self.secret.clone(),
            incarnation: new_incarnation(),
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture"]).envs(to_variables(&place, settings));
        prepare(&mut command);
        self.nodes.push(command.spawn().unwrap());
        &mut self.nodes[rank as usize]
    }

    /// Returns the nodes that were started, by rank.
    #[allow(dead_code)]
    pub fn nodes(&mut self) -> &mut [Child] {
        &mut self.nodes
    }

    /// Kills a node, and tells the others of its death as a launcher does.
    #[allow(dead_code)]
    pub fn kill(&mut self, rank: u32) {
        let node = &mut self.nodes[rank as usize];
        node.kill().unwrap();
        node.wait().unwrap();
        self.tell_end(rank, "was killed by signal 9 (SIGKILL)".to_owned(), false);
    }

    /// Tells the others how a node has ended, as a launcher does.
    #[allow(dead_code)]
    pub fn tell_end(&self, rank: u32, how: String, success: bool) {
        self.server.ended(NodeEnd { rank, how, success });
    }
}

impl Drop for ProcessJob {
    fn drop(&mut self) {
        for node in &mut self.nodes {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}
