//! Broadcasts to several nodes over a bridge (COLL-2.7), by multicast, and on a network that begins
//! to drop it. Needs root; skipped otherwise.

use crate::groups::drop_multicast;
use crate::support::*;
use oikaze::prelude::*;
use std::io::Write;

/// Number of nodes.
const NODES: u32 = 4;
/// Elements of a vector.
const LEN: usize = 1 << 17;
/// Broadcasts of each node before its group is open at the latest. It opens within the first few.
const ROUNDS_TO_OPEN: u64 = 10_000;
/// Broadcasts of each node after that.
const ROUNDS: u64 = 8;
/// Environment variable that marks a process as a node of such a job.
const NODE: &str = "BROADCAST_TEST_NODE";
/// Environment variable that makes one node leave without a broadcast.
const LEAVER: &str = "BROADCAST_TEST_LEAVER";

fn broadcast(job: &Job, round: u64, root: u32) {
    let word = |at: usize| round << 40 | u64::from(root) << 32 | at as u64;
    let is_root = job.rank() == root;
    let mut there: Vec<u64> = (0..LEN).map(|at| if is_root { word(at) } else { 0 }).collect();
    job.broadcast_into(root, &mut there).unwrap();
    assert!((0..LEN).all(|at| there[at] == word(at)), "round {round}, root {root}");
}

/// Broadcasts from rank 0 while rank 2 leaves, which would send the values to rank 3. No group is
/// open at the first broadcast.
fn broadcast_without_a_sender(job: &Job) {
    let values = [7_u64; 1024];
    match job.rank() {
        0 | 1 => {
            assert_eq!(job.broadcast(0, &values).unwrap(), values);
            drop(job.receive(Some(3)).unwrap());
        }
        3 => {
            let why = job.broadcast::<u64>(0, &[]).unwrap_err();
            println!("\nfailed: {why}");
            for to in 0..2 {
                job.peer(to).unwrap().send(Class::Ordered, 0, b"failed").wait().unwrap();
            }
        }
        _ => {}
    }
}

/// Runs a node of a job that a test below started. The rounds go on when rank 0 has read a line
/// from its standard input.
#[test]
#[ignore = "a node, started by the other tests"]
fn node() {
    if std::env::var_os(NODE).is_none() {
        return eprintln!("skipped: run by the other tests only");
    }
    let job = oikaze::join().unwrap();
    if std::env::var_os(LEAVER).is_some() {
        return broadcast_without_a_sender(&job);
    }
    let by = || job.team().algorithm("broadcast", 8 * LEN);
    for root in 0..NODES {
        for round in 0..ROUNDS_TO_OPEN {
            broadcast(&job, round, root);
            if job.broadcast(root, &[u8::from(by() == "multicast")]).unwrap() == [1] {
                break;
            }
        }
    }
    if job.rank() == 0 {
        println!("\nready by {}", by());
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    job.barrier().unwrap();
    for round in 0..ROUNDS {
        (0..NODES).for_each(|root| broadcast(&job, ROUNDS_TO_OPEN + round, root));
    }
    println!("\nsent {}", job.statistics().group_bytes_sent);
    job.leave().unwrap();
}

/// COLL-2.7, WIND-12.7: the group of each root is open, and then the network drops all multicast.
/// The nodes get all values by their own connections.
#[test]
fn broadcasts_go_on_when_the_network_begins_to_drop_multicast() {
    let Some(_turn) = namespaces() else { return };
    for drops in [false, true] {
        let nodes = NODES.to_string();
        let mut command = oikaze(&["run", "-n", &nodes, "--netns", "--timeout", "100"]);
        command.args(["--env", "OIKAZE_MULTICAST=on"]);
        of_test_nodes(&mut command, module_path!(), NODE);
        let mut job = Running::start(&mut command);
        job.line("[0] ready by multicast");
        if drops {
            drop_multicast(job.child.id());
        }
        job.child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        let (status, out) = job.finish();
        assert_eq!(status, 0, "{out}");
        // A busy machine may leave receivers out of the group again.
        let sent = out.lines().find_map(|line| line.strip_prefix("[0] sent ")).unwrap();
        assert!(sent.parse::<u64>().unwrap() > 0, "{out}");
    }
}

/// COLL-2.7: the sender of the plan has left, and the root has not sent all values at once.
#[test]
fn broadcast_fails_if_its_sender_has_left_and_the_root_goes_by_its_plan() {
    let Some(_turn) = namespaces() else { return };
    let nodes = NODES.to_string();
    let mut command = oikaze(&["run", "-n", &nodes, "--netns", "--timeout", "60"]);
    command.args(["--env", "OIKAZE_MULTICAST=on", "--env", &format!("{LEAVER}=1")]);
    of_test_nodes(&mut command, module_path!(), NODE);
    let (status, out) = Running::start(&mut command).finish();
    assert_eq!(status, 0, "{out}");
    let why = out.lines().find_map(|line| line.strip_prefix("[3] failed: "));
    assert!(why.is_some_and(|why| why.contains("node 2")), "{out}");
}
