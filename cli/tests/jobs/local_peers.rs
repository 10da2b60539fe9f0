//! Nodes of one machine as processes: killed, in containers, and without shared memory.

use crate::support::*;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Instant;

/// Returns the report of `oikaze top` on the only peer of each of these processes.
fn peers(pids: &[u64]) -> Vec<Value> {
    let (_, out, _) = finish(&mut oikaze(&["top", "--once", "--json"]));
    let all: Value = serde_json::from_str(&out).unwrap_or(Value::Null);
    let nodes = all["nodes"].as_array().cloned().unwrap_or_default();
    let own = nodes.into_iter().filter(|node| pids.contains(&node["pid"].as_u64().unwrap_or(0)));
    own.map(|node| node["peers"][0].clone()).collect()
}

/// Starts a job of two nodes that exchange messages without end. Returns the job and its processes.
fn endless(options: &[&str], directory: Option<&PathBuf>) -> (Running, Vec<u64>) {
    let script =
        format!("echo pid $$; exec {OIKAZE} perf put --shared --size 64 --iterations 4000000000");
    let mut command = run_script(&[&["-n", "2"], options].concat(), &script);
    if let Some(directory) = directory {
        command.env("OIKAZE_SHM_DIR", directory);
    }
    let mut job = Running::start(&mut command);
    let pids = (0..2).map(|_| job.line("[").rsplit(' ').next().unwrap().parse().unwrap()).collect();
    (job, pids)
}

/// Waits until both nodes report each other as up, with `shared` rings.
fn until_up(pids: &[u64], shared: u64) {
    let begun = Instant::now();
    let mut last = Vec::new();
    let up =
        |peer: &Value| peer["state"] == "up" && peer["gauges"]["rings"].as_u64() == Some(shared);
    while last.len() < 2 || !last.iter().all(up) {
        assert!(begun.elapsed() < DEADLINE, "{last:#?}");
        last = peers(pids);
    }
}

/// MEM-16.7: waits end long before the failure time, and no file is left.
#[test]
fn a_killed_local_peer_ends_every_wait_and_leaves_nothing() {
    let directory = std::env::temp_dir().join(format!("oikaze-local-peers-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (job, pids) = endless(&["--failure-time", "1000"], Some(&directory));
    until_up(&pids, 1);
    kill(u32::try_from(pids[1]).unwrap(), 9);
    let (status, out) = job.finish();
    assert_ne!(status, 0, "{out}");
    pids.iter()
        .for_each(|pid| until("the nodes have ended", || is_gone(u32::try_from(*pid).unwrap())));
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "no socket is left");
    std::fs::remove_dir(&directory).unwrap();
}

/// MEM-16.8.
#[test]
fn containers_share_memory_if_they_share_a_directory() {
    let Some(_turn) = namespaces() else { return };
    let (job, pids) = endless(&["--netns"], None);
    until_up(&pids, 0);
    drop(job);
    let directory = std::env::temp_dir().join(format!("oikaze-containers-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let (job, pids) = endless(&["--netns"], Some(&directory));
    until_up(&pids, 1);
    assert_eq!(
        std::fs::read_dir(&directory).unwrap().count(),
        0,
        "doors are closed when all have come"
    );
    drop(job);
    std::fs::remove_dir(&directory).unwrap();
}

#[test]
fn it_can_be_switched_off_and_what_is_wrong_with_a_directory_does_no_harm() {
    let script =
        format!("echo pid $$; exec {OIKAZE} perf put --shared --size 64 --iterations 4000000000");
    for (name, value, shared) in
        [("OIKAZE_WITHOUT", "shm", 0), ("OIKAZE_SHM_DIR", "/no/such/directory", 1)]
    {
        let mut job = Running::start(run_script(&["-n", "2"], &script).env(name, value));
        let pids: Vec<u64> =
            (0..2).map(|_| job.line("[").rsplit(' ').next().unwrap().parse().unwrap()).collect();
        until_up(&pids, shared);
    }
}

/// MEM-16.8: another user's process is reached over the network.
#[test]
fn another_user_is_no_local_peer() {
    let me = std::process::Command::new("id").arg("-u").output().unwrap();
    if text(&me.stdout).trim() != "0" {
        return skip("it needs root, to become another user");
    }
    // Node 1 becomes another user, and reads its program from a place that this user may read.
    let program = std::env::temp_dir().join(format!("oikaze-other-user-{}", std::process::id()));
    std::fs::copy(OIKAZE, &program).unwrap();
    let path = program.display();
    let perf = format!("{path} perf put --shared --size 64 --iterations 4000000000");
    let script = format!(
        "echo pid $$; if [ $OIKAZE_RANK = 1 ]; then exec setpriv --reuid 65534 --clear-groups {perf}; fi; exec {perf}"
    );
    let mut job = Running::start(&mut run_script(&["-n", "2"], &script));
    let pids: Vec<u64> =
        (0..2).map(|_| job.line("[").rsplit(' ').next().unwrap().parse().unwrap()).collect();
    until_up(&pids, 0);
    drop(job);
    std::fs::remove_file(&program).unwrap();
}

/// MEM-16.7: a node learns from the socket (Linux 6.5) that a peer in another pid namespace has
/// ended, because the peer's process number means nothing here. The launcher does not see this end,
/// because a shell stays.
#[test]
fn a_killed_local_peer_of_another_pid_namespace_ends_every_wait() {
    let other = std::process::Command::new("unshare").args(["--pid", "--fork", "true"]).status();
    if !other.is_ok_and(|status| status.success()) {
        return skip("it needs root, for a pid namespace");
    }
    let perf = format!("{OIKAZE} perf put --shared --size 64 --iterations 4000000000");
    let script = format!(
        "echo $OIKAZE_RANK $$; [ $OIKAZE_RANK = 0 ] && exec {perf}; unshare --pid --fork --kill-child {perf} & echo apart $!; wait; exec tail -f /dev/null"
    );
    let mut job = Running::start(&mut run_script(
        &["-n", "2", "--no-prefix", "--failure-time", "600000"],
        &script,
    ));
    let mut pids = std::collections::HashMap::new();
    while pids.len() < 3 {
        let line = job.line("");
        if let Some((whose, pid)) = line.split_once(' ') {
            pids.extend(pid.parse::<u32>().map(|pid| (whose.to_owned(), pid)));
        }
    }
    let shares = |found: &[Value]| {
        found.iter().any(|peer| peer["state"] == "up" && peer["gauges"]["rings"] == 1)
    };
    until("node 0 shares memory", || shares(&peers(&[pids["0"].into()])));
    let apart = pids["apart"];
    let children = std::fs::read_to_string(format!("/proc/{apart}/task/{apart}/children")).unwrap();
    kill(children.trim().parse().unwrap(), 9);
    until("node 0 has ended", || is_gone(pids["0"]));
    drop(job);
    pids.values().for_each(|pid| until("all have ended", || is_gone(*pid)));
}
