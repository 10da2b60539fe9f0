//! Tests `oikaze run` on one machine: places, output, statuses, signals, and that nothing is left
//! behind.

use crate::support::*;
use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn every_node_knows_its_place() {
    let script = "echo $OIKAZE_RANK/$OIKAZE_SIZE $OIKAZE_LOCAL_RANK/$OIKAZE_LOCAL_SIZE $(wc -c < /proc/$$/fd/$OIKAZE_SECRET_FD) $OIKAZE_FAILURE_TIME $OIKAZE_FAULT $A";
    let options = ["-n", "3", "--failure-time", "700", "--fault", "loss=0.05", "--env", "A=b"];
    let (status, out, err) = finish(&mut run_script(&options, script));
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let expected: Vec<String> =
        (0..3).map(|rank| format!("[{rank}] {rank}/3 {rank}/3 32 700 loss=0.05 b")).collect();
    assert_eq!(
        (status, lines, err.as_str()),
        (Some(0), expected.iter().map(String::as_str).collect(), "")
    );
}

#[test]
fn output_keeps_its_stream_and_its_lines() {
    let script = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done; printf unfinished";
    let (status, out, err) = finish(&mut run_script(&["-n", "4"], script));
    assert_eq!(status, Some(0));
    for (text, word, last) in [(&out, "out", Some("unfinished")), (&err, "err", None)] {
        assert_eq!(text.lines().count(), 4 * (200 + usize::from(last.is_some())));
        for rank in 0..4 {
            let front = format!("[{rank}] ");
            let mine: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix(&front)).collect();
            let expected: Vec<String> =
                (0..200).map(|i| format!("{word} {i}")).chain(last.map(str::to_owned)).collect();
            assert_eq!(mine, expected);
        }
    }
    let (_, out, _) = finish(&mut run_script(&["--no-prefix"], "echo plain"));
    assert_eq!(out, "plain\n");
}

/// The reader is slow for longer than the launcher's `DRAIN_TIME`, and still gets all output.
#[test]
fn a_slow_reader_loses_nothing() {
    use std::io::Read;
    let mut child =
        run_script(&["--no-prefix"], "seq 1 22000").stdout(Stdio::piped()).spawn().unwrap();
    let begun = Instant::now();
    until("the reader has been slow", || begun.elapsed() > Duration::from_secs(4));
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!((out.lines().count(), child.wait().unwrap().code()), (22_000, Some(0)));
}

#[test]
fn a_reader_that_has_stopped_holds_up_no_end() {
    let mut child =
        run_script(&["--timeout", "0.5"], "yes").stdout(Stdio::piped()).spawn().unwrap();
    let mut status = None;
    until("the time limit ends it", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(124));
}

#[test]
fn output_that_cannot_be_written_is_no_success() {
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = run_script(&[], "echo hi")
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("No space left"), "{}", text(&output.stderr));
}

#[test]
fn rank_0_reads_the_launchers_input() {
    use std::io::Write;
    let mut command = run_script(&["-n", "2"], "cat");
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(text(&output.stdout), "[0] hello\n");
}

#[test]
fn the_first_failing_nodes_status() {
    let (status, _, err) = finish(&mut run_script(
        &["-n", "3", "--failure-time", "1"],
        "[ $OIKAZE_RANK = 1 ] && exit 42; exit 0",
    ));
    assert_eq!(status, Some(42));
    assert!(err.contains("node 1 ended with status 42"), "{err}");
    let (status, _, err) = finish(&mut run_script(
        &["-n", "2", "--failure-time", "1"],
        "[ $OIKAZE_RANK = 1 ] && kill -9 $$; exit 0",
    ));
    assert_eq!(status, Some(137));
    assert!(err.contains("node 1 was killed by signal 9 (SIGKILL)"), "{err}");
}

#[test]
fn nodes_meet_and_see_each_other_die() {
    let (status, out, err) = finish(&mut oikaze(&["run", "-n", "3", "--", OIKAZE, "hello"]));
    assert_eq!(status, Some(0), "{err}");
    for rank in 0..3 {
        assert!(out.contains(&format!("[{rank}] node {rank} of 3 on ")), "{out}");
    }
    // The other nodes do not run into their limit. They learn at once which node died, and how.
    let script = format!("[ $OIKAZE_RANK = 2 ] && kill -9 $$; exec {OIKAZE} hello --limit 1000");
    let (status, _, err) =
        finish(&mut run_script(&["-n", "3", "--failure-time", "60000"], &script));
    assert_eq!(status, Some(137));
    for rank in 0..2 {
        // Either the end of the process or the abort after it brings the news.
        let told =
            err.lines().find(|line| line.starts_with(&format!("[{rank}] oikaze hello: "))).unwrap();
        assert!(told.ends_with("node 2 was killed by signal 9 (SIGKILL)"), "{err}");
    }
    // The same holds for a node that ended in good order but too early.
    let script = format!("[ $OIKAZE_RANK = 1 ] && exit 0; exec {OIKAZE} hello --limit 1000");
    let words = ["the meeting of all nodes failed: node 1 ended with status 0"];
    ends(&mut run_script(&["-n", "2"], &script), 1, &words);
}

#[test]
fn a_wrong_secret_is_named() {
    let script = format!("OIKAZE_SECRET=$(printf %064d 7) exec {OIKAZE} hello");
    let words = ["does not know this job's secret"];
    ends(&mut run_script(&["--failure-time", "1"], &script), 1, &words);
    let script = format!("OIKAZE_SECRET=short exec {OIKAZE} hello");
    let (_, _, err) = finish(&mut run_script(&["--failure-time", "1"], &script));
    assert!(
        err.contains("OIKAZE_SECRET is not usable, but must be 64 hexadecimal digits"),
        "{err}"
    );
}

#[test]
fn the_secret_is_in_no_argument_list() {
    let mut job = Running::start(&mut run_script(
        &["--secret-in-environment"],
        "echo $OIKAZE_SECRET; echo $PPID; exec sleep 1000",
    ));
    let secret = job.line("[0] ");
    let launcher = job.line("[0] ");
    assert_eq!(launcher, job.child.id().to_string());
    let arguments = |pid: &str| {
        std::fs::read(format!("/proc/{pid}/cmdline")).map(|bytes| text(&bytes)).unwrap_or_default()
    };
    let children = std::fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children"))
        .unwrap_or_default();
    for pid in children.split_whitespace().chain([launcher.as_str()]) {
        assert!(!arguments(pid).contains(&secret));
    }
    job.signal(15);
    job.finish();
}

#[test]
fn programs_that_cannot_run() {
    let words = ["\"no-such-program\" was not found in PATH"];
    ends(&mut oikaze(&["run", "--", "no-such-program"]), 127, &words);
    ends(&mut oikaze(&["run", "--", "/etc/passwd"]), 126, &["chmod +x"]);
    ends(&mut oikaze(&["run", "-n", "0", "--", "true"]), 2, &["1 to 4096 nodes"]);
}

#[test]
fn ports_in_use_are_named() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = holder.local_addr().unwrap().port().to_string();
    let (status, _, err) = finish(&mut oikaze(&["run", "--ports", &port, "--", "true"]));
    assert_eq!(status, Some(125));
    assert!(err.contains(&format!("free in {port} ")) && err.contains("--ports"), "{err}");
}

#[test]
fn the_time_limit() {
    let words = ["time limit of 0.1 s (--timeout) has passed"];
    ends(&mut run_script(&["-n", "2", "--timeout", "0.1"], "exec sleep 1000"), 124, &words);
}

#[test]
fn signals_are_passed_on() {
    for (signal, name) in [(1, "HUP"), (2, "INT"), (10, "USR1"), (15, "TERM")] {
        // In sh, a trap interrupts only `wait` at once.
        let script =
            format!("trap 'echo got {name}; exit 0' {name}; sleep 1000 & echo ready; wait");
        let mut job = Running::start(&mut run_script(&["-n", "2"], &script));
        job.line("[");
        job.line("[");
        job.signal(signal);
        let (status, out) = job.finish();
        assert_eq!((status, out.matches(&format!("got {name}")).count()), (0, 2), "{out}");
    }
}

/// Returns the command `env OPTION oikaze run -- sh -c SCRIPT`.
fn ignoring(option: &str, script: &str) -> std::process::Command {
    let plain = run_script(&[], script);
    let mut command = std::process::Command::new(plain.get_program());
    // The option follows the one that resets signals to their defaults.
    command.args(plain.get_args().take(1)).arg(option).args(plain.get_args().skip(1));
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
    command
}

/// Under `nohup oikaze run`, the job goes on when the terminal closes.
#[test]
fn what_the_launcher_was_started_to_ignore_stays_ignored() {
    // SIGHUP would end a node that no longer ignored it.
    let script = "exec env --default-signal=HUP sh -c 'trap \"echo done; exit 0\" USR1; sleep 1000 & echo ready; wait'";
    let mut job = Running::start(&mut ignoring("--ignore-signal=HUP", script));
    job.line("[0] ready");
    // The kernel delivers lower numbers first, so the signals arrive in this order.
    job.signal(1);
    job.signal(10);
    let (status, out) = job.finish();
    assert_eq!((status, out.contains("[0] done")), (0, true), "{out}");
}

/// Some shells and supervisors ignore SIGCHLD, so that the kernel reaps their children. Programs
/// that they start inherit that.
#[test]
fn children_are_seen_to_end_though_the_parent_ignored_its_own() {
    let (status, _, err) = finish(&mut ignoring("--ignore-signal=CHLD", "true"));
    assert_eq!(status, Some(0), "{err}");
}

#[test]
fn the_second_interrupt_kills() {
    let script = "trap 'echo no' INT; sleep 1000 & echo ready $!; while :; do wait; done";
    let mut job = Running::start(&mut run_script(&[], script));
    let sleeper: u32 = job.line("[0] ready ").parse().unwrap();
    job.signal(2);
    job.line("[0] no");
    job.signal(2);
    let (status, _) = job.finish();
    assert_eq!(status, 137);
    until("the node's own child is killed with it", || is_gone(sleeper));
}

#[test]
fn a_node_that_ignores_everything_is_killed_in_the_end() {
    let script = "trap '' TERM; [ $OIKAZE_RANK = 0 ] && exit 3; exec sleep 1000";
    let words = ["terminating node 1", "killing node 1"];
    ends(&mut run_script(&["-n", "2", "--failure-time", "1"], script), 3, &words);
}

#[test]
fn a_killed_launcher_leaves_nobody() {
    let script = "sleep 1000 & echo pids $$ $!; wait";
    let mut job = Running::start(&mut run_script(&["-n", "3"], script));
    let mut pids = Vec::new();
    for _ in 0..3 {
        let line = job.line("[");
        let words: Vec<&str> = line.split_whitespace().collect();
        pids.extend(words[2..].iter().map(|pid| pid.parse::<u32>().unwrap()));
    }
    assert_eq!(pids.len(), 6);
    job.signal(9);
    let (status, _) = job.finish();
    assert_eq!(status, -9);
    for pid in pids {
        until("children and grandchildren are gone", || is_gone(pid));
    }
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    use std::io::{BufRead, BufReader};
    let mut command = run_script(&["--failure-time", "1"], "while :; do echo line; done");
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "[0] line\n");
    let status = child.wait().unwrap();
    assert_eq!(status.code(), Some(141), "as SIGPIPE");
}

#[test]
fn a_job_of_one_needs_no_launcher() {
    let (status, out, _) = finish(&mut oikaze(&["hello"]));
    assert_eq!(status, Some(0));
    assert!(out.starts_with("node 0 of 1 on "), "{out}");
}

#[test]
fn help_teaches() {
    let (_, out, _) = finish(&mut oikaze(&["run", "--help"]));
    for word in ["Examples:", "--netns", "--hosts", "124", "Ctrl-C"] {
        assert!(out.contains(word), "{out}");
    }
}

/// With few descriptors, a program either works or reports what is missing. It does not panic or
/// hang.
#[test]
fn too_few_descriptors_are_told() {
    let mut refused = 0;
    for limit in 4..40 {
        let mut command = std::process::Command::new("/bin/sh");
        command.args(["-c", &format!("ulimit -n {limit} && exec {OIKAZE} hello")]);
        let (status, _, err) = finish(&mut command);
        if status != Some(0) {
            refused += 1;
            let says = err.contains("Too many open files")
                && ["raise ulimit -n", "oikaze doctor"].iter().any(|advice| err.contains(advice));
            assert!(says && !err.contains("panicked"), "{limit}: {status:?} {err}");
        }
    }
    assert!(refused > 0);
}

/// Returns the first and the last core that this process may use.
fn first_and_last_core() -> (usize, usize) {
    let cpus = oikaze_os::cpu::Topology::detect().unwrap().cpus;
    (cpus[0], cpus[cpus.len() - 1])
}

/// Paper 002: two applications on one core, their communication on another. The engine's cores go
/// into its setting, and may be those of no application.
#[test]
fn nodes_run_on_their_share_of_the_cores() {
    let (app, engine) = first_and_last_core();
    let bind = format!("app={app},engine={engine}");
    let script = "echo $(grep Cpus_allowed_list /proc/self/status) $OIKAZE_ENGINE $OIKAZE_BIND";
    let (status, out, err) =
        finish(&mut run_script(&["-n", "2", "--no-prefix", "--bind", &bind], script));
    let node = format!("Cpus_allowed_list: {app} thread:{engine}\n");
    assert_eq!((status, out.as_str(), err.as_str()), (Some(0), node.repeat(2).as_str(), ""));
    let hello = oikaze(&["run", "-n", "2", "--bind", &bind, "--", OIKAZE, "hello"]).output();
    assert!(hello.unwrap().status.success());
}

#[test]
fn cores_that_do_not_exist_are_named_before_anything_starts() {
    for (bind, words) in [
        ("app=0,engine=1000", "this machine has no core 1000; its cores are 0"),
        ("cpu=1", "expected app=CORES,engine=CORES"),
    ] {
        let (status, out, err) = finish(&mut run_script(&["--bind", bind], "echo started"));
        assert!(status != Some(0) && out.is_empty() && err.contains(words), "{bind}: {out}{err}");
    }
    let (status, _, err) = finish(&mut run_script(&["--priority", "high"], "echo started"));
    assert!(status != Some(0) && err.contains("expected fifo, fifo:N"), "{err}");
}

/// The program runs whether or not this user may have the real-time class.
#[test]
fn priority_is_granted_or_its_lack_is_announced() {
    let run = |priority| {
        finish(&mut oikaze(&["run", "-n", "2", "--priority", priority, "--", OIKAZE, "hello"]))
    };
    let (status, _, err) = run("nice:5");
    assert_eq!((status, err.as_str()), (Some(0), ""), "anybody may be nicer");
    let (status, _, err) = run("fifo");
    assert!(status == Some(0) && (err.is_empty() || err.contains("ulimit -r")), "{err}");
}

/// Every subcommand prints in the same way.
const PRINTING: [&[&str]; 7] = [
    &["--help"],
    &["--version"],
    &["help"],
    &["run", "--help"],
    &["top", "--help"],
    &["completions", "bash"],
    &["doctor", "--json"],
];

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for arguments in PRINTING {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (status, _, err) = finish(oikaze(arguments).stdout(full));
        assert!(status != Some(0), "{arguments:?}: {status:?}");
        assert!(err.contains("standard output"), "{arguments:?}: {err}");
    }
}

#[test]
fn reader_that_closes_the_pipe_is_no_failure() {
    for arguments in PRINTING {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (status, _, err) = finish(oikaze(arguments).stdout(writer));
        assert_eq!((status, err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}

/// LAUNCH-6.7.
#[test]
fn node_without_its_variables_is_an_error_or_says_that_it_is_alone() {
    let run = |options: &[&str], program: &[&str]| {
        let mut command = oikaze(&["run", "-n", "2"]);
        finish(command.args(options).args(["--", "env", "-i"]).args(program))
    };
    let (status, _, err) = run(&[], &[OIKAZE, "hello"]);
    assert_eq!(status, Some(1), "{err}");
    assert!(
        err.contains("OIKAZE_STORE") && err.contains("not set") && err.contains("no env -i"),
        "{err}"
    );
    // Without the descriptor of the secret, the process may be alone on purpose.
    let (status, out, err) = run(&["--secret-in-environment"], &[OIKAZE, "hello"]);
    assert_eq!((status, out.matches("node 0 of 1").count()), (Some(0), 2), "{err}");
    assert_eq!(err.matches("the variables of the job").count(), 2, "{err}");
    for options in [&[][..], &["--secret-in-environment"]] {
        let (status, out, err) = run(options, &["OIKAZE_LOCAL=1", OIKAZE, "hello"]);
        assert_eq!((status, out.matches("node 0 of 1").count()), (Some(0), 2), "{err}");
        assert_eq!(err, "");
    }
}
