//! Updates to several nodes over a bridge (WIND-12, WIND-13): by multicast, without it, and on a
//! network that drops it. Needs root; skipped otherwise.

use crate::support::*;
use oikaze::collective::Collectives;
use oikaze::shared::builder::Homes;
use std::io::Write;
use std::process::Command;

/// Number of nodes. One writes, and all others read.
const NODES: u32 = 4;
/// Number of elements of a page.
const PAGE: usize = 512;
/// Number of elements of the array.
const LEN: usize = 64 * PAGE;
/// Number of rounds, unless they go on until datagrams to a group were sent.
const ROUNDS: u64 = 40;
/// Maximum number of rounds. A group opens within the first few ones.
const ROUNDS_MAX: u64 = 10_000;
/// Line for rank 0 that makes the rounds go on until datagrams to a group were sent.
const UNTIL_SENT: &str = "until sent";
/// Environment variable that marks a process as a node of such a job.
const NODE: &str = "GROUPS_TEST_NODE";

/// Runs a node of a job that a test below started. The rounds begin when rank 0 has read a line
/// from its standard input.
#[test]
#[ignore = "a node, started by the other tests"]
fn node() {
    if std::env::var_os(NODE).is_none() {
        return eprintln!("skipped: run by the other tests only");
    }
    let job = oikaze::join().unwrap();
    let array =
        job.array_with_homes::<u64>("wide", LEN, Homes::Explicit(vec![0; LEN / PAGE])).unwrap();
    job.barrier().unwrap();
    let mut line = String::new();
    if job.rank() == 0 {
        println!("\nready");
        std::io::stdin().read_line(&mut line).unwrap();
    } else {
        array.subscribe(0..LEN).unwrap();
    }
    job.barrier().unwrap();
    for round in 1..=ROUNDS_MAX {
        if job.rank() == 0 {
            let mut guard = array.write(0..LEN).unwrap();
            for (at, element) in guard.iter_mut().enumerate() {
                *element = round * 1_000_000 + at as u64;
            }
        }
        job.barrier().unwrap();
        let seen = array.read(0..LEN).unwrap();
        for (at, element) in seen.iter().enumerate() {
            assert_eq!(*element, round * 1_000_000 + at as u64, "round {round}, element {at}");
        }
        drop(seen);
        job.barrier().unwrap();
        let is_last = match line.trim() == UNTIL_SENT {
            true => job.statistics().group_datagrams_sent > 100,
            false => round >= ROUNDS,
        };
        if job.broadcast(0, &[u8::from(is_last)]).unwrap() == [1] {
            break;
        }
    }
    let statistics = job.statistics();
    println!(
        "\ngroups {} sent {} received",
        statistics.group_datagrams_sent, statistics.group_datagrams_received
    );
    job.leave().unwrap();
}

/// Counters of a node at its end.
#[derive(Clone, Copy, Debug)]
struct Said {
    sent: u64,
    received: u64,
}

/// Runs the job with these options, and a line for rank 0. `prepare` gets the process number of the
/// launcher, before the rounds begin. Returns what the nodes say of their groups.
fn rounds(options: &[&str], line: &str, prepare: impl FnOnce(u32)) -> Vec<Said> {
    let nodes = NODES.to_string();
    let mut command = oikaze(&["run", "-n", &nodes, "--netns", "--timeout", "100"]);
    command.args(["--env", "OIKAZE_MULTICAST=on"]);
    command.args(options);
    of_test_nodes(&mut command, module_path!(), NODE);
    let mut job = Running::start(&mut command);
    job.line("[0] ready");
    prepare(job.child.id());
    job.child.stdin.take().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    let (status, out) = job.finish();
    assert_eq!(status, 0, "{out}");
    let said = |rank: u32| {
        let start = format!("[{rank}] groups ");
        let line = out.lines().find_map(|line| line.strip_prefix(&start));
        let words: Vec<&str> = line.unwrap_or_else(|| panic!("{out}")).split(' ').collect();
        let number = |at: usize| words[at].parse().unwrap();
        Said { sent: number(0), received: number(2) }
    };
    (0..NODES).map(said).collect()
}

/// Makes the bridge forward what goes to groups to no node, as switches do that filter multicast.
pub fn drop_multicast(launcher: u32) {
    for rank in 0..NODES {
        let (bridge, port) = (format!("oik-{launcher}-bridge"), format!("n{rank}"));
        let mut command = Command::new("bridge");
        let arguments = ["-n", &bridge, "link", "set", "dev", &port, "mcast_flood", "off"];
        assert!(command.args(arguments).status().unwrap().success());
    }
}

/// WIND-13.1, WIND-12.1.
#[test]
fn updates_to_several_nodes_go_by_multicast() {
    let Some(_turn) = namespaces() else { return };
    for seal in ["full", "crc"] {
        let said = rounds(&["--seal", seal], UNTIL_SENT, |_| {});
        let (writer, readers) = said.split_first().unwrap();
        assert!(writer.sent > 100, "{seal}: {said:?}");
        // A busy machine may leave one out for a while, and shares with no fewer than two.
        let got = readers.iter().filter(|reader| reader.received > 0).count();
        assert!(got >= 2, "{seal}: {said:?}");
    }
}

/// WIND-13.3: without multicast everything goes to each node.
#[test]
fn multicast_can_be_switched_off() {
    let Some(_turn) = namespaces() else { return };
    let said = rounds(&["--env", "OIKAZE_WITHOUT=multicast"], "", |_| {});
    assert!(said.iter().all(|said| said.sent + said.received == 0), "{said:?}");
}

/// WIND-12.8: a network that drops multicast only costs a few probes.
#[test]
fn network_that_drops_multicast_does_no_harm() {
    let Some(_turn) = namespaces() else { return };
    let said = rounds(&[], "", drop_multicast);
    let (writer, readers) = said.split_first().unwrap();
    assert!(writer.sent > 0, "{said:?}");
    assert!(readers.iter().all(|reader| reader.received == 0), "{said:?}");
}
