//! Tests `oikaze run --hosts`, with a script in place of ssh that runs the agent on this host.

use crate::support::*;

/// Script that drops the host's name and runs the rest, as ssh's far end would.
const HERE: &str = "host=$1; shift; FAKE_HOST=$host exec /bin/sh -c \"$*\"";

fn hosts(options: &[&str], shell: &Shell, program: &[&str]) -> std::process::Command {
    let mut command = oikaze(&["run"]);
    command.args(options).arg("--").args(program).env("OIKAZE_RSH", shell.command());
    command
}

#[test]
fn nodes_on_several_hosts_meet() {
    let shell = Shell::new("meet", HERE);
    let script =
        format!("echo on $FAKE_HOST $OIKAZE_LOCAL_RANK/$OIKAZE_LOCAL_SIZE $B; exec {OIKAZE} hello");
    let (status, out, err) = finish(&mut hosts(
        &["-n", "5", "--hosts", "a,b", "-x", "B=c d"],
        &shell,
        &["/bin/sh", "-c", &script],
    ));
    assert_eq!(status, Some(0), "{err}");
    for line in ["[0] on a 0/3 c d", "[2] on a 2/3 c d", "[3] on b 0/2 c d", "[4] node 4 of 5"] {
        assert!(out.contains(line), "{line} is not in:\n{out}");
    }
}

#[test]
fn chatter_of_a_login_shell_is_skipped() {
    for chatter in ["echo Welcome to $1; echo", "printf Welcome"] {
        let shell = Shell::new("chatter", &format!("{chatter}; {HERE}"));
        let (status, out, err) =
            finish(&mut hosts(&["--hosts", "a"], &shell, &["/bin/echo", "hello"]));
        assert_eq!((status, out.as_str(), err.as_str()), (Some(0), "[0] hello\n", ""), "{chatter}");
    }
}

#[test]
fn statuses_come_from_far() {
    let shell = Shell::new("status", HERE);
    let script = "[ $OIKAZE_RANK = 1 ] && kill -9 $$; exit 0";
    let (status, _, err) = finish(&mut hosts(
        &["--hosts", "a,b", "--failure-time", "1"],
        &shell,
        &["/bin/sh", "-c", script],
    ));
    assert_eq!(status, Some(137), "{err}");
    assert!(err.contains("node 1 was killed by signal 9"), "{err}");
    let (status, _, err) =
        finish(&mut hosts(&["--hosts", "a", "--failure-time", "1"], &shell, &["no-such-program"]));
    assert_eq!(status, Some(127));
    assert!(
        err.contains(
            "could not be started on host a: program \"no-such-program\" was not found in PATH"
        ) && err.contains("copy it there"),
        "{err}"
    );
}

#[test]
fn a_host_that_is_not_there() {
    let shell = Shell::new(
        "refuse",
        "[ $1 = b ] && { echo no route to $1 >&2; exit 255; }; shift; exec \"$@\"",
    );
    let program = [OIKAZE, "hello", "--limit", "1000"];
    let (status, _, err) =
        finish(&mut hosts(&["--hosts", "a,b", "--failure-time", "60000"], &shell, &program));
    assert_eq!(status, Some(125), "{err}");
    for words in ["the remote shell on host b ended", "no route to b", "works without a password"] {
        assert!(err.contains(words), "{words} is not in:\n{err}");
    }
    // The node on the other host did not wait for its limit.
    let told = err.lines().find(|line| line.starts_with("[0] oikaze hello: ")).unwrap();
    assert!(told.contains(": node 1 was lost"), "{err}");
    let shell = Shell::new("absent", HERE);
    let options = ["--hosts", "a", "--failure-time", "1", "--agent", "/no/such/oikaze"];
    ends(&mut hosts(&options, &shell, &["true"]), 125, &["be named by --agent"]);
}

#[test]
fn signals_go_far_and_a_killed_launcher_leaves_nobody_there() {
    let shell = Shell::new("signals", HERE);
    let script = "trap 'echo got it; exit 0' TERM; sleep 1000 & echo ready $$ $!; wait";
    let mut job =
        Running::start(&mut hosts(&["--hosts", "a,b"], &shell, &["/bin/sh", "-c", script]));
    job.line("[");
    job.line("[");
    job.signal(15);
    let (status, out) = job.finish();
    assert_eq!((status, out.matches("got it").count()), (0, 2), "{out}");

    let mut job =
        Running::start(&mut hosts(&["--hosts", "a,b"], &shell, &["/bin/sh", "-c", script]));
    let mut pids: Vec<u32> = Vec::new();
    for _ in 0..2 {
        let line = job.line("[");
        pids.extend(line.split_whitespace().skip(2).map(|pid| pid.parse::<u32>().unwrap()));
    }
    assert_eq!(pids.len(), 4);
    job.signal(9);
    job.finish();
    for pid in pids {
        until("nodes on other hosts and their children are gone", || is_gone(pid));
    }
}

#[test]
fn nodes_on_hosts_that_are_namespaces() {
    let Some(_turn) = namespaces() else { return };
    // Two real networks joined by a cable. The test's own namespace cannot take part, because both
    // ends must reach the launcher.
    let cable = Cable::new("hosts", ["1500", "1500"], ["10.98.0.1/24", "10.98.0.2/24"]);
    let (status, out, err) =
        finish(cable.run(&Shell::enter("netns"), &[]).args(["--", OIKAZE, "hello"]));
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("[0] node 0 reaches node 1 at 10.98.0.2:"), "{out}");
}

/// LAUNCH-6.6.
#[test]
fn word_oikaze_is_the_command_of_the_agent_where_path_has_none() {
    let shell = Shell::new("word", "shift; PATH=/usr/bin:/bin exec /bin/sh -c \"$*\"");
    let (status, out, err) = finish(&mut hosts(&["--hosts", "a,b"], &shell, &["oikaze", "hello"]));
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("[1] node 1 of 2"), "{out}");
}

#[test]
fn remote_shell_gets_an_address_without_brackets() {
    let shell = Shell::new("brackets", "echo \"to $1\" >&2; exit 255");
    let (_, _, err) = finish(&mut hosts(&["--hosts", "me@[fd00:45::1]:2"], &shell, &["true"]));
    assert!(err.contains("to me@fd00:45::1\n"), "{err}");
}

/// WIND-11.7.
#[test]
fn hosts_with_link_local_addresses_alone_form_a_job() {
    let Some(_turn) = namespaces() else { return };
    let cable = Cable::new("local", ["1500", "1500"], ["fe80::1/64", "fe80::2/64"]);
    let (status, out, err) =
        finish(cable.run(&Shell::enter("local"), &[]).args(["--", OIKAZE, "hello"]));
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("[0] node 0 reaches node 1 at [fe80::"), "{out}");
}

/// WIND-8.1.
#[test]
fn interface_of_too_small_mtu_is_named_and_not_the_firewall() {
    let Some(_turn) = namespaces() else { return };
    let cable = Cable::new("narrow", ["1000", "1000"], ["10.98.7.1/24", "10.98.7.2/24"]);
    let (status, _, err) =
        finish(cable.run(&Shell::enter("narrow"), &[]).args(["--", OIKAZE, "hello"]));
    assert_eq!(status, Some(1), "{err}");
    let words =
        ["the MTU of interface e is 1000 bytes, and 1260 are needed", "ip link set e mtu 1500"];
    assert!(words.iter().all(|words| err.contains(words)) && !err.contains("firewall"), "{err}");
}
