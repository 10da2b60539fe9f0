//! Runs a job of several processes of this test program, some of which may be killed. The test sees
//! what each of them has said.

use crate::process_job::ProcessJob;
use oikaze_launch::Settings;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io::Read;
use std::process::{ExitStatus, Stdio};
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

/// Runs nodes that are the test `test` of this program and play this part. `variables` returns
/// those of a rank. The ends of processes are told to all nodes, as a launcher does. Returns the
/// ends by rank.
pub fn run_nodes(
    count: u32,
    (test, part): (&str, &str),
    settings: &Settings,
    variables: impl Fn(u32) -> Vec<(&'static str, String)>,
) -> Vec<Ended> {
    let mut job = ProcessJob::new(count);
    let (sender, outputs) = channel();
    for rank in 0..count {
        let node = job.start(test, settings, |command| {
            command.envs(variables(rank)).env(PART, part);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        });
        let (mut out, mut err) = (node.stdout.take().unwrap(), node.stderr.take().unwrap());
        let sender = sender.clone();
        let pid = Pid::from_child(node);
        std::thread::spawn(move || continue_stopped(pid));
        std::thread::spawn(move || {
            let told = std::thread::spawn(move || read(&mut err));
            let said = read(&mut out);
            let _ = sender.send((rank, said, told.join().unwrap_or_default()));
        });
    }
    ends(job, &outputs, part)
}

/// Continues a node whenever it has stopped itself, until it ends. Some stops last longer than
/// other nodes wait before they send notices (COLL-3.3).
fn continue_stopped(node: Pid) {
    let ends = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT;
    for number in 1_u32.. {
        match waitid(WaitId::Pid(node), ends) {
            Ok(Some(status)) if status.stopped() => {
                let long = number.is_multiple_of(16);
                std::thread::sleep(Duration::from_millis(if long { 300 } else { 2 }));
                let _ = kill_process(node, Signal::CONT);
            }
            _ => return,
        }
    }
}

fn read(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn ends(mut job: ProcessJob, outputs: &Receiver<(u32, String, String)>, part: &str) -> Vec<Ended> {
    let deadline = Instant::now() + HANG;
    let mut ended: Vec<Option<Ended>> = job.nodes().iter().map(|_| None).collect();
    let mut account = String::new();
    for _ in 0..ended.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((rank, said, told)) = outputs.recv_timeout(left) else {
            panic!("{part}: not all nodes have ended: {ended:#?}\n{account}");
        };
        // The output has closed, so the process is at its end.
        let status = job.nodes()[rank as usize].wait().unwrap();
        job.tell_end(rank, format!("ended: {status}"), status.success());
        account.push_str(&format!("node {rank}: {status}\n{said}\n{told}\n"));
        let lines = said.lines().filter_map(|line| line.strip_prefix(MARK));
        ended[rank as usize] = Some(Ended { status, lines: lines.map(str::to_owned).collect() });
        let was_killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
        assert!(status.success() || was_killed, "{part}: {account}");
    }
    ended.into_iter().flatten().collect()
}
