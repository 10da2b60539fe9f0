//! Tests `oikaze run --netns`: nodes in network namespaces of their own, of which none is left
//! behind. Needs root; skipped otherwise.

use crate::support::*;

#[test]
fn nodes_meet_over_a_bridge_and_leave_no_namespace() {
    let Some(_turn) = namespaces() else { return };
    let script =
        format!("ip -br -4 address show eth0; cat /sys/class/net/eth0/mtu; exec {OIKAZE} hello");
    let job = Running::start(&mut run_script(
        &["-n", "3", "--netns", "--mtu", "4000", "--network", "10.99"],
        &script,
    ));
    let launcher = job.child.id();
    let (status, out) = job.finish();
    assert_eq!(status, 0, "{out}");
    for rank in 0..3u32 {
        assert!(out.contains(&format!("10.99.0.{}/16", rank + 1)), "{out}");
        assert!(out.contains(&format!("[{rank}] 4000")), "{out}");
    }
    assert!(out.contains("node 0 reaches node 1 at 10.99.0.2:"), "{out}");
    assert_eq!(namespaces_of(launcher), [""; 0]);
}

/// Both directions of a port have the rate: what a node sends, and what comes to it.
#[test]
fn ports_have_the_rate_that_was_asked_for() {
    let Some(_turn) = namespaces() else { return };
    let mut job = Running::start(&mut run_script(
        &["-n", "2", "--netns", "--rate", "200mbit"],
        "echo ready; exec sleep 1000",
    ));
    let launcher = job.child.id();
    job.line("[");
    job.line("[");
    for (host, device) in [("0", "eth0"), ("1", "eth0"), ("bridge", "n0"), ("bridge", "n1")] {
        let host = format!("oik-{launcher}-{host}");
        let shown = std::process::Command::new("tc")
            .args(["-n", &host, "class", "show", "dev", device])
            .output()
            .unwrap();
        let shown = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.contains("rate 200Mbit"), "{host} {device}: {shown}");
    }
    job.signal(15);
    assert_eq!(job.finish().0, 128 + 15);
    assert_eq!(namespaces_of(launcher), [""; 0]);
    let (status, _, err) = finish(&mut run_script(&["--netns", "--rate", "fast"], "exit 0"));
    assert_eq!(status, Some(2));
    assert!(err.contains("from 1mbit to 400gbit"), "{err}");
}

#[test]
fn failure_and_signals_leave_no_namespace() {
    let Some(_turn) = namespaces() else { return };
    let job = Running::start(&mut run_script(
        &["-n", "2", "--netns", "--failure-time", "1"],
        "exit $OIKAZE_RANK",
    ));
    let launcher = job.child.id();
    assert_eq!(job.finish().0, 1);
    assert_eq!(namespaces_of(launcher), [""; 0]);
    for signal in [2, 15] {
        let mut job =
            Running::start(&mut run_script(&["-n", "2", "--netns"], "echo ready; exec sleep 1000"));
        let launcher = job.child.id();
        job.line("[");
        job.line("[");
        assert_eq!(namespaces_of(launcher).len(), 3);
        job.signal(signal);
        assert_eq!(job.finish().0, 128 + signal);
        assert_eq!(namespaces_of(launcher), [""; 0]);
    }
}

#[test]
fn the_guard_removes_what_a_killed_launcher_left() {
    let Some(_turn) = namespaces() else { return };
    let mut job =
        Running::start(&mut run_script(&["-n", "2", "--netns"], "sleep 1000 & echo pid $!; wait"));
    let launcher = job.child.id();
    let sleeper: u32 = job.line("[0] pid ").parse().unwrap();
    job.signal(9);
    job.finish();
    until("the namespaces are gone", || namespaces_of(launcher).is_empty());
    until("its nodes' children are gone", || is_gone(sleeper));
}

#[test]
fn a_later_launcher_removes_what_nobody_else_did() {
    let Some(_turn) = namespaces() else { return };
    // Number of a process that has ended and never was a launcher. The kernel assigns numbers in a
    // cycle, so it does not soon reuse this one.
    let mut gone = std::process::Command::new("/bin/true").spawn().unwrap();
    gone.wait().unwrap();
    let left = format!("oik-{}-0", gone.id());
    let ip = |arguments: &[&str]| {
        std::process::Command::new("ip").args(arguments).status().unwrap().success()
    };
    assert!(ip(&["netns", "add", &left]));
    let (status, _, err) = finish(&mut run_script(&["--netns"], "exit 0"));
    let still = !namespaces_of(gone.id()).is_empty();
    if still {
        ip(&["netns", "del", &left]);
    }
    assert_eq!((status, still), (Some(0), false), "{err}");
}
