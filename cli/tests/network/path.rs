//! Tests paths over real network devices whose MTU shrinks under a job, with and without an error
//! from the network (WIND-8), and jobs without IPv4. Needs root; skipped otherwise.

use crate::support::*;
use oikaze::memory::{Region, Rights};
use std::io::Write;
use std::process::{ChildStdin, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes of one transfer.
const TRANSFER: usize = 512 << 10;
/// Environment variable that marks a process as a node of such a job.
const NODE: &str = "PATH_TEST_NODE";

/// Runs a node of a job that a test below started. Rank 0 puts and gets all the time and checks
/// every byte. For each line that it reads, it prints "verified" after three more correct round
/// trips that began later.
#[test]
#[ignore = "a node, started by the other tests"]
fn node() {
    if std::env::var_os(NODE).is_none() {
        return eprintln!("skipped: run by the other tests only");
    }
    let job = oikaze::join().unwrap();
    let patience = Duration::from_secs(30);
    let _inbox = job.publish("inbox", Region::zeroed(TRANSFER).unwrap(), Rights::ALL).unwrap();
    job.barrier().unwrap();
    if job.rank() == 0 {
        let told = Arc::new(AtomicUsize::new(0));
        let (heard, mut answered) = (Arc::clone(&told), 0);
        let listener = std::thread::spawn(move || {
            std::io::stdin().lines().map_while(Result::ok).for_each(|_| {
                heard.fetch_add(1, Ordering::SeqCst);
            });
            heard.store(usize::MAX, Ordering::SeqCst);
        });
        let there = job.peer(1).unwrap().region("inbox").unwrap();
        let (out, back) = (Region::zeroed(TRANSFER).unwrap(), Region::zeroed(TRANSFER).unwrap());
        let (out, back) = (job.register(out).unwrap(), job.register(back).unwrap());
        println!("\nready {}", std::process::id());
        let (mut count, mut since) = (0_u64, 0);
        loop {
            let asked = told.load(Ordering::SeqCst);
            there_and_back(&there, &out, &back, count, patience);
            count += 1;
            since = if asked > answered { since + 1 } else { 0 };
            if asked == usize::MAX && count > 3 {
                break;
            }
            if since == 3 {
                println!("verified");
                (answered, since) = (answered + 1, 0);
            }
        }
        listener.join().unwrap();
        println!("transfers {count}");
    }
    job.barrier().unwrap();
    job.leave().unwrap();
}

/// A job of two nodes as above.
pub struct Transfers {
    job: Running,
    input: ChildStdin,
    /// Process of rank 0.
    pub pid: u64,
}

impl Transfers {
    /// Starts a command `oikaze run OPTIONS` with the nodes.
    pub fn start(mut command: Command) -> Transfers {
        of_test_nodes(&mut command, module_path!(), NODE);
        let mut job = Running::start(&mut command);
        let input = job.child.stdin.take().unwrap();
        let pid = job.line("[0] ready ").parse().unwrap();
        Transfers { job, input, pid }
    }

    /// Returns the namespace with this ending, which the launcher has made.
    pub fn namespace(&self, ending: &str) -> String {
        format!("oik-{}-{ending}", self.job.child.id())
    }

    /// Checks that data which rank 0 sends from now on arrive.
    pub fn verify(&mut self) {
        self.input.write_all(b"go on\n").unwrap();
        self.job.line("[0] verified");
    }

    pub fn end(mut self) {
        drop(self.input);
        let transfers: u64 = self.job.line("[0] transfers ").parse().unwrap();
        assert!(transfers > 3);
        let (status, out) = self.job.finish();
        assert_eq!(status, 0, "{out}");
    }
}

/// Returns a command without segmentation offload, because large buffers pass narrow virtual
/// devices uncut, which no cable allows.
fn cabled() -> Command {
    oikaze_line("run -n 2 --netns --mtu 9000 --failure-time 20000 --env OIKAZE_WITHOUT=gso,gro")
}

/// Changes the MTU of a device from 9000 to 1500, 1280 and back under a running transfer. The
/// device is in the namespace with this ending.
fn shrink(namespace: &str, device: &str) {
    let Some(_turn) = namespaces() else { return };
    let mut transfers = Transfers::start(cabled());
    let namespace = transfers.namespace(namespace);
    transfers.verify();
    for mtu in ["1500", "1280", "9000"] {
        ip(&namespace, &["link", "set", device, "mtu", mtu]);
        transfers.verify();
    }
    transfers.end();
}

/// The bridge shrinks. The nodes get no error from it.
#[test]
fn a_black_hole_under_a_running_transfer() {
    shrink("bridge", "n1");
}

/// The interface of one node shrinks. Its own system refuses larger datagrams. Those of the other
/// node vanish.
#[test]
fn an_interface_shrinks_under_a_running_transfer() {
    shrink("0", "eth0");
}

/// Runs a job between the two ends of a cable.
fn over_cable(name: &str, mtus: [&str; 2], addresses: [&str; 2]) {
    let Some(_turn) = namespaces() else { return };
    let cable = Cable::new(name, mtus, addresses);
    let shell = Shell::enter(name);
    Transfers::start(cable.run(&shell, &["--failure-time", "20000"])).end();
}

/// WIND-8.1: one end has 9000 and the other 1500.
#[test]
fn ends_with_different_mtus() {
    over_cable("mtu", ["9000", "1500"], ["10.97.0.1/24", "10.97.0.2/24"]);
}

/// A job in a network that has no IPv4 at all.
#[test]
fn without_ipv4() {
    over_cable("v6", ["9000", "9000"], ["fd97::1/64", "fd97::2/64"]);
}

/// Runs a job of two nodes over a path on which both ends drop trains of datagrams. Checks that its
/// transfers are right, that it ends well, and that each node has printed this fallback once.
fn trains_fall_back(name: &str, prepare: impl Fn(&Cable) -> bool) {
    let rules = "table inet t {\n chain i { type filter hook input priority 0; \
                 meta l4proto udp iifname e meta length > 1500 drop; }\n}\n";
    let fallback = "trains of datagrams (UDP_SEGMENT) are lost on the way";
    let Some(_turn) = namespaces() else { return };
    let cable = Cable::new(name, ["1500", "1500"], ["10.97.2.1/24", "10.97.2.2/24"]);
    if !prepare(&cable) {
        return skip("it needs the ethtool command");
    }
    for namespace in &cable.0 {
        if !set_nft_rules(namespace, rules) {
            return skip("it needs the nft command (package nftables)");
        }
    }
    let shell = Shell::enter(name);
    let mut command = cable.run(&shell, &["--failure-time", "20000"]);
    of_test_nodes(&mut command, module_path!(), NODE);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    // Closed input makes the first node end after a few transfers.
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(
        err.matches(fallback).count() + out.matches(fallback).count(),
        2,
        "once by each node:\n{out}{err}"
    );
}

/// WIND-8.10, WIND-8.12: datagrams that the sender has not cut do not arrive.
#[test]
fn path_that_loses_uncut_trains_is_used_without_segmentation_offload() {
    trains_fall_back("trains", |_| true);
}

/// WIND-8.10: the receiver's kernel also joins datagrams that come one by one, and a filter behind
/// it drops the joined ones.
#[test]
fn receiver_that_loses_what_its_kernel_has_joined_is_reached_all_the_same() {
    trains_fall_back("joined", |cable| {
        cable.0.iter().all(|namespace| {
            Command::new("ip")
                .args(["netns", "exec", namespace, "ethtool", "-K", "e", "gro", "on"])
                .status()
                .is_ok_and(|status| status.success())
        })
    });
}
