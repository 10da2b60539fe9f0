//! Runs a job of several processes of this test program, some of which may be killed. The test sees
//! what each of them has said.

use oikaze_launch::NodeEnd;
use oikaze_launch::environment::{NodePlace, new_incarnation, to_variables};
use oikaze_launch::store::Server;
use oikaze_launch::{Secret, Settings};
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Time after which a job hangs.
const HANG: Duration = Duration::from_secs(60);
/// Variable that names the part that a process plays. It is not set in the test itself.
pub const PART: &str = "OIKAZE_TEST_PART";
/// Prefix of a line for the test.
const MARK: &str = "said: ";

/// Says a line to the test. Called by a node.
pub fn say(line: &str) {
    // The test harness may have written on the line before.
    println!("\n{MARK}{line}");
}

/// End of a node, and what it said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub lines: Vec<String>,
}

/// Processes of a job. Dropping the value kills them.
struct Nodes(Vec<Child>);

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in &mut self.0 {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// Runs nodes that are the test `test` of this program and play this part. `variables` returns
/// those of a rank. The ends of processes are told to all nodes, as a launcher does. Returns the
/// ends by rank.
pub fn run_nodes(
    count: u32,
    (test, part): (&str, &str),
    settings: &Settings,
    variables: impl Fn(u32) -> Vec<(&'static str, String)>,
) -> Vec<Ended> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let secret = Secret::random().unwrap();
    let server = Server::start(listener, count, secret.clone()).unwrap();
    let (sender, outputs) = channel();
    let nodes = (0..count).map(|rank| {
        let place = NodePlace {
            store: format!("127.0.0.1:{}", server.port()),
            rank,
            size: count,
            local_rank: rank,
            local_size: count,
            secret: secret.clone(),
            incarnation: new_incarnation(),
        };
        let mut node = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .envs(to_variables(&place, settings))
            .envs(variables(rank))
            .env(PART, part)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut out, mut err) = (node.stdout.take().unwrap(), node.stderr.take().unwrap());
        let sender = sender.clone();
        std::thread::spawn(move || {
            let told = std::thread::spawn(move || read(&mut err));
            let said = read(&mut out);
            let _ = sender.send((rank, said, told.join().unwrap_or_default()));
        });
        node
    });
    let nodes = Nodes(nodes.collect());
    ends(nodes, &server, &outputs, part)
}

fn read(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ends(
    mut nodes: Nodes,
    server: &Server,
    outputs: &Receiver<(u32, String, String)>,
    part: &str,
) -> Vec<Ended> {
    let deadline = Instant::now() + HANG;
    let mut ended: Vec<Option<Ended>> = nodes.0.iter().map(|_| None).collect();
    let mut account = String::new();
    for _ in 0..nodes.0.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((rank, said, told)) = outputs.recv_timeout(left) else {
            panic!("{part}: not all nodes have ended: {ended:#?}\n{account}");
        };
        // The output has closed, so the process is at its end.
        let status = nodes.0[rank as usize].wait().unwrap();
        server.ended(NodeEnd { rank, how: format!("ended: {status}"), success: status.success() });
        account.push_str(&format!("node {rank}: {status}\n{said}\n{told}\n"));
        let lines = said.lines().filter_map(|line| line.strip_prefix(MARK));
        ended[rank as usize] = Some(Ended { status, lines: lines.map(str::to_owned).collect() });
        let was_killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
        assert!(status.success() || was_killed, "{part}: {account}");
    }
    ended.into_iter().flatten().collect()
}
