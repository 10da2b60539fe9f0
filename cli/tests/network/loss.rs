//! Sends messages of all classes, puts and gets between real sockets. The kernel drops datagrams at
//! random (nftables), and the fault wrapper adds faults. Needs root; skipped otherwise.

use crate::support::*;
use oikaze::memory::{Region, Rights};
use oikaze::message::Class;
use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

/// Number of messages in each direction.
const MESSAGES: u64 = 300;
/// Number of puts in each direction. A get fetches the bytes of each put back.
const PUTS: u64 = 20;
/// Bytes of one put.
const PUT: usize = 64 << 10;
/// Environment variable that marks a process as a node of such a job.
const NODE: &str = "LOSS_TEST_NODE";
const PATIENCE: Duration = Duration::from_secs(50);

fn class_of(number: u64) -> Class {
    [Class::Ordered, Class::Unordered, Class::Sync, Class::Unordered][number as usize % 4]
}

/// Returns the body of message `number`. Most bodies fit into one datagram, some need a few
/// fragments, and some need many.
fn body_of(from: u32, number: u64) -> Vec<u8> {
    let len = match number % 25 {
        0 => 100_000,
        n if n % 5 == 0 => 5_000,
        n => n * 13,
    };
    (0..len).map(|at| (at * 31 + (at >> 8) + number * 7 + u64::from(from)) as u8).collect()
}

/// Runs a node of a job that a test below started. The traffic begins when rank 0 has read a line
/// from its standard input.
#[test]
#[ignore = "a node, started by the other tests"]
fn node() {
    if std::env::var_os(NODE).is_none() {
        return eprintln!("skipped: run by the other tests only");
    }
    let job = oikaze::join().unwrap();
    let (me, other) = (job.rank(), 1 - job.rank());
    let _inbox = job.publish("inbox", Region::zeroed(PUT).unwrap(), Rights::ALL).unwrap();
    job.barrier().unwrap();
    if me == 0 {
        println!("\nready");
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    job.barrier().unwrap();
    let peer = job.peer(other).unwrap();
    let sent: Vec<_> = (0..MESSAGES)
        .map(|number| peer.send(class_of(number), number, &body_of(me, number)))
        .collect();

    let there = peer.region("inbox").unwrap();
    let (out, back) = (Region::zeroed(PUT).unwrap(), Region::zeroed(PUT).unwrap());
    let (out, back) = (job.register(out).unwrap(), job.register(back).unwrap());
    for round in 0..PUTS {
        there_and_back(&there, &out, &back, round, PATIENCE);
    }

    let mut arrived = vec![false; MESSAGES as usize];
    for _ in 0..MESSAGES {
        let message = job.receive_for(Some(other), PATIENCE).unwrap();
        let number = message.tag();
        assert_eq!(message.class(), class_of(number));
        assert!(message.bytes() == body_of(other, number), "message {number} was altered");
        assert!(
            !std::mem::replace(&mut arrived[number as usize], true),
            "message {number} came twice"
        );
        let early = arrived.iter().take(number as usize).position(|came| !came);
        assert!(
            message.class() == Class::Unordered || early.is_none(),
            "message {number} came before {early:?}"
        );
    }
    sent.iter().for_each(|message| message.wait_for(PATIENCE).unwrap());
    job.barrier().unwrap();
    assert!(job.try_receive(None).is_none(), "a message that nobody sent");
    if me == 0 {
        println!("again {}", job.statistics().retransmissions);
    }
    job.leave().unwrap();
}

/// Makes the kernel drop `percent` % of the packets of `protocols` that `namespace` sends through
/// `device`. Only sent packets are filtered, because a tcx program may take received packets before
/// any filter. Returns `false` if nft is missing or refuses the rule.
fn drop_some(namespace: &str, device: &str, protocols: &str, percent: u32) -> bool {
    let rules = format!(
        "table netdev oikaze {{ chain leaving {{ type filter hook egress device {device} priority 0; \
         meta l4proto {protocols} numgen random mod 100 < {percent} drop; }}; }}"
    );
    set_nft_rules(namespace, &rules)
}

/// Runs the node test above on two nodes. The kernel drops `percent` % of the packets that each
/// node sends, and `fault` sets the faults that the fault wrapper adds.
fn exchange(percent: u32, fault: Option<&str>) {
    let Some(_turn) = namespaces() else { return };
    let mut command =
        oikaze(&["run", "-n", "2", "--netns", "--failure-time", "10000", "--timeout", "100"]);
    if let Some(fault) = fault {
        command.args(["--env", &format!("OIKAZE_FAULT={fault}")]);
    }
    of_test_nodes(&mut command, module_path!(), NODE);
    let mut job = Running::start(&mut command);
    job.line("[0] ready");
    let dropping = percent == 0
        || (0..2).all(|rank| {
            drop_some(&format!("oik-{}-{rank}", job.child.id()), "eth0", "udp", percent)
        });
    if !dropping {
        return skip("it needs nft (package nftables) and its numgen in the kernel");
    }
    job.child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let again: u64 = job.line("[0] again ").parse().unwrap();
    let (status, out) = job.finish();
    assert_eq!(status, 0, "{out}");
    assert!(again > 0, "nothing was lost: the test proves nothing");
}

#[test]
fn a_tenth_of_all_packets_is_dropped() {
    exchange(10, None);
}

#[test]
fn a_third_of_all_packets_is_dropped() {
    exchange(30, None);
}

#[test]
fn through_the_fault_wrapper() {
    exchange(0, Some("loss=0.3,duplicate=0.3,reorder=0.3,corrupt=0.1,seed=11"));
}

#[test]
fn packets_are_dropped_and_the_fault_wrapper_adds_to_it() {
    exchange(10, Some("loss=0.1,duplicate=0.1,reorder=0.2,corrupt=0.02,seed=12"));
}

/// Runs jobs of three nodes on two hosts, one after the other, over a cable that drops `percent` %
/// of the TCP and UDP packets.
fn join(jobs: u32, percent: u32) {
    let Some(_turn) = namespaces() else { return };
    let cable = Cable::new("join", ["1500", "1500"], ["10.91.0.1/24", "10.91.0.2/24"]);
    if !cable.0.iter().all(|end| drop_some(end, "e", "{ tcp, udp }", percent)) {
        return skip("it needs nft (package nftables) and its numgen in the kernel");
    }
    let shell = Shell::enter("join");
    for number in 0..jobs {
        let mut command = cable.run(&shell, &["-n", "3", "--timeout", "100"]);
        let begun = std::time::Instant::now();
        let (status, out, err) = finish(
            command.args(["--", OIKAZE, "hello"]).stdin(Stdio::null()).stderr(Stdio::piped()),
        );
        assert_eq!(status, Some(0), "job {number}: {out}\n{err}");
        println!("job {number}: joined and over after {:.1} s", begun.elapsed().as_secs_f64());
    }
}

/// WIND-11.1: joining nodes retry over new connections until the meeting time has passed.
/// OIKAZE_JOINS sets the number of jobs.
#[test]
fn nodes_join_over_a_path_that_loses_three_packets_of_ten() {
    let jobs = std::env::var("OIKAZE_JOINS").ok().and_then(|count| count.parse().ok());
    join(jobs.unwrap_or(1), 30);
}
