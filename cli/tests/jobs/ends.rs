//! Tests of how jobs end: aborts by nodes, survivors that go on, the time limit, Ctrl-Z. Also tests
//! how nodes learn of each other's ends.

use crate::support::*;
use oikaze::message::Class;
use oikaze_launch::{Bootstrap, environment};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Environment variable that marks a process as a node of such a job.
const MARK: &str = "OIKAZE_TEST_ENDS";

/// Number of lines that a node prints before it fails.
const CAUSES: usize = 200;

/// Returns the command for a job whose nodes are the test `node` below.
fn run_nodes(options: &[&str], act: &str) -> Command {
    let mut command = oikaze(&["run"]);
    command.args(options);
    of_test_nodes(&mut command, module_path!(), MARK);
    command.args(["--skip", act]);
    command
}

/// Runs a node of the jobs below. The last argument names its action. Not a test.
#[test]
#[ignore = "a node of other tests"]
fn node() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let act = std::env::args().next_back().unwrap();
    if let Some(end) = act.strip_prefix("joins and ") {
        return join_and_end(end);
    }
    let node = oikaze_launch::find(oikaze_launch::settings().unwrap()).unwrap();
    match (act.as_str(), node.rank()) {
        ("aborts", 1) => {
            node.abort("the input is broken");
            std::process::exit(3);
        }
        ("aborts", _) => {
            let _ = node.fence("never", DEADLINE);
            std::process::exit(9);
        }
        ("explains and aborts", 1) => {
            // In many writes, as the traceback of an interpreter comes.
            (0..CAUSES).for_each(|line| eprintln!("cause {line}"));
            node.abort("the input is broken");
            std::process::exit(3);
        }
        ("explains and aborts", _) => {
            let error = node.fence("never", DEADLINE).unwrap_err();
            eprintln!("effect: {error}");
            std::process::exit(9);
        }
        ("explains and ends", 1) => {
            (0..CAUSES).for_each(|line| eprintln!("cause {line}"));
            eprint!("cause without newline");
            std::process::exit(3);
        }
        ("explains and ends", _) => {
            wait_for_end(node.as_ref(), 1);
            eprintln!("effect");
        }
        ("aborts and ends well", 1) => node.abort("the input is broken"),
        ("aborts and ends well", _) => _ = node.fence("never", DEADLINE),
        ("dies", 1) => kill(std::process::id(), 9),
        ("dies", _) => {
            wait_for_end(node.as_ref(), 1);
            let said = node.fence("all", DEADLINE).unwrap_err();
            println!("told: {said}");
            println!("keeps going: {:?}", node.settings().keep_going);
        }
        ("asks to keep going", 1) => {
            node.fence("asked", DEADLINE).unwrap();
            std::process::exit(4);
        }
        ("asks to keep going", _) => {
            node.keep_going();
            node.fence("asked", DEADLINE).unwrap();
            wait_for_end(node.as_ref(), 1);
            // The launcher has decided by now, because it tells the store first of the end and then
            // at once of an abort.
            let _ = node.get("nothing", Duration::ZERO);
            println!("told: {:?}", node.aborted());
        }
        ("hangs", rank) => {
            if rank == 1 {
                node.on_question(Box::new(|question| format!("{question} nothing\nat all")));
            }
            println!("ready");
            let _ = node.get("never", DEADLINE);
            let _ = std::io::stdin().read(&mut [0]);
        }
        ("has a child", _) => {
            let child =
                Command::new("/bin/sh").args(["-c", "ls -l /proc/$$/fd; env"]).output().unwrap();
            let secret = node.secret().to_hex();
            println!(
                "memfd {} secret {}",
                text(&child.stdout).contains("memfd"),
                text(&child.stdout).contains(&secret)
            );
            // This process may try again to join.
            let lookup = |name: &str| std::env::var(name).ok();
            let again = environment::read_place(&lookup).unwrap().unwrap();
            assert!(again.secret == *node.secret());
        }
        other => panic!("{other:?}"),
    }
}

/// Joins the job. Node 1 ends in this way, and node 0 prints the error of its wait.
fn join_and_end(end: &str) {
    let job = oikaze::join().unwrap();
    // Node 1 ends when node 0 has joined. The end may be known before the acknowledgement.
    match job.rank() {
        0 => _ = job.peer(1).unwrap().send(Class::Ordered, 0, b"joined").wait(),
        _ => drop(job.receive(Some(0)).unwrap()),
    }
    match (end, job.rank()) {
        ("exits", 1) => std::process::exit(0),
        ("exits", _) => println!("told: {}", job.barrier().unwrap_err()),
        ("leaves", 1) => {
            job.leave().unwrap();
            std::process::exit(0);
        }
        ("aborts", 1) => job.abort_with(7, "the input is broken"),
        ("aborts with 0", 1) => job.abort_with(0, "the input is broken"),
        ("aborts" | "aborts with 0", _) => println!("told: {}", job.barrier().unwrap_err()),
        _ => {}
    }
}

/// LAUNCH-3.4: a node that does not leave has failed, though it ends with status 0 and the other
/// nodes go on and end well.
#[test]
fn node_that_exits_without_leaving_fails_the_job() {
    const HOW: &str = "node 1 ended with status 0 without leaving the job";
    for options in [&["-n", "2"][..], &["-n", "2", "--keep-going"]] {
        let (status, out, err) = finish(&mut run_nodes(options, "joins and exits"));
        assert_eq!(status, Some(1), "{out}{err}");
        assert!(out.contains("told: ") && out.contains(HOW) && err.contains(HOW), "{out}{err}");
    }
}

/// LAUNCH-3.4.
#[test]
fn node_that_has_left_may_exit() {
    let (status, out, err) = finish(&mut run_nodes(&["-n", "2"], "joins and leaves"));
    assert_eq!((status, err.as_str()), (Some(0), ""), "{out}");
}

/// END-3.1, LAUNCH-3.1.
#[test]
fn status_of_an_abort_is_that_of_the_job() {
    for (end, expected) in [("joins and aborts", 7), ("joins and aborts with 0", 1)] {
        let (status, out, err) = finish(&mut run_nodes(&["-n", "2"], end));
        assert_eq!(status, Some(expected), "{out}{err}");
        assert!(out.contains("told: ") && out.contains("the input is broken"), "{out}{err}");
        assert!(err.contains("node 1 aborted the job: the input is broken"), "{err}");
    }
}

fn wait_for_end(node: &dyn Bootstrap, rank: u32) {
    let (told, news) = channel();
    node.on_news(Box::new(move || _ = told.send(())));
    while !node.ended().iter().any(|end| end.rank == rank) {
        news.recv_timeout(DEADLINE).unwrap();
    }
}

/// LAUNCH-3.1.
#[test]
fn abort_by_a_node_ends_the_job_with_its_status() {
    for (act, expected) in [("aborts", 3), ("aborts and ends well", 1)] {
        let (status, _, err) = finish(&mut run_nodes(&["-n", "3"], act));
        assert_eq!(status, Some(expected), "{err}");
        let first = err.lines().find(|line| line.starts_with("oikaze: ")).unwrap_or_default();
        assert!(first.starts_with("oikaze: node 1 aborted the job: the input is broken"), "{err}");
    }
}

/// LAUNCH-5.4: the node's own text comes first, then the launcher's line and what others say.
#[test]
fn output_of_a_failing_node_comes_before_its_effects() {
    let shell = Shell::new("causes-rsh", "shift; exec \"$@\"");
    for place in [&["-n", "4"][..], &["--hosts", "a,b,c,d"]] {
        for (act, causes) in [("explains and aborts", CAUSES), ("explains and ends", CAUSES + 1)] {
            for _ in 0..5 {
                let (mut from, to) = std::io::pipe().unwrap();
                let mut command = run_nodes(place, act);
                command.env("OIKAZE_RSH", shell.command());
                let mut job = command.stdout(to.try_clone().unwrap()).stderr(to).spawn().unwrap();
                // The command holds the write end, too.
                drop(command);
                let mut out = String::new();
                from.read_to_string(&mut out).unwrap();
                assert_eq!(job.wait().unwrap().code(), Some(3), "{out}");
                let (mut seen, mut effects) = (0, 0);
                for line in out.lines() {
                    let is_effect = line.starts_with("oikaze: node 1") || line.contains("] effect");
                    effects += usize::from(is_effect);
                    seen += usize::from(line.starts_with("[1] cause"));
                    assert!(!is_effect || seen == causes, "{act} {place:?}: {seen} lines:\n{out}");
                }
                assert!(seen == causes && effects >= 4, "{seen} {effects}:\n{out}");
            }
        }
    }
}

/// LAUNCH-1.1, 1.2 and 3.2.
#[test]
fn keep_going_lets_survivors_learn_of_a_death_and_end_well() {
    let (status, out, err) = finish(&mut run_nodes(&["-n", "3", "--keep-going"], "dies"));
    assert_eq!(status, Some(137), "{err}");
    assert_eq!(
        err.matches("oikaze: node 1 was killed by signal 9 (SIGKILL); ").count(),
        1,
        "{err}"
    );
    // A survivor that learns of the death first may end before the other one asks, so either node
    // may be the reason.
    assert_eq!(out.matches("told: the meeting of all nodes failed: node ").count(), 2, "{out}");
    assert!(
        out.contains(
            "told: the meeting of all nodes failed: node 1 was killed by signal 9 (SIGKILL)"
        ),
        "{out}"
    );
    assert_eq!(out.matches("keeps going: true").count(), 2, "{out}");
}

/// LAUNCH-3.2.
#[test]
fn keep_going_asked_by_a_node_holds_for_the_job() {
    let (status, out, err) = finish(&mut run_nodes(&["-n", "2"], "asks to keep going"));
    assert_eq!((status, out.contains("told: None")), (Some(4), true), "{out}{err}");
}

/// LAUNCH-3.3.
#[test]
fn timeout_prints_what_each_node_is_doing() {
    let script = "[ $OIKAZE_RANK = 2 ] && exec sleep 1000; exec \"$0\" --exact ends::node --ignored --nocapture --test-threads=1 --skip hangs";
    let mut command = oikaze_line(&format!("run -n 3 --timeout 3 --env {MARK}=1 -- /bin/sh -c"));
    command.arg(script);
    let (status, out, err) = finish(command.arg(std::env::current_exe().unwrap()));
    assert_eq!((status, out.matches("ready").count()), (Some(124), 2), "{err}");
    for line in [
        "node 0: joined; says nothing of what it does",
        "node 1: doing nothing at all",
        "node 2: no answer: it has not joined or does not run",
    ] {
        assert!(err.lines().any(|said| said == format!("oikaze: {line}")), "{err}");
    }
}

/// LAUNCH-6.3.
#[test]
fn secret_does_not_reach_the_children_of_a_node() {
    let (status, out, err) = finish(&mut run_nodes(&[], "has a child"));
    assert_eq!((status, out.contains("memfd false secret false")), (Some(0), true), "{out}{err}");
    let (status, out, err) = finish(&mut run_nodes(&["--secret-in-environment"], "has a child"));
    assert_eq!((status, out.contains("memfd false secret true")), (Some(0), true), "{out}{err}");
    // Programs that run one after the other each join by the same descriptor. A wrapper leaves it
    // open.
    let script = format!("{OIKAZE} hello && env {OIKAZE} hello");
    let (status, out, err) = finish(&mut run_script(&[], &script));
    assert_eq!((status, out.matches("node 0 of 1").count()), (Some(0), 2), "{err}");
    // A descriptor that the launcher did not make is not read.
    let words = ["OIKAZE_SECRET_FD is 0", "--secret-in-environment"];
    ends(&mut run_script(&[], &format!("OIKAZE_SECRET_FD=0 exec {OIKAZE} hello")), 1, &words);
}

fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap_or('?')
}

/// Returns the process numbers that the nodes print.
fn pids(job: &mut Running, nodes: usize) -> Vec<u32> {
    (0..nodes).map(|_| job.line("[").rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

fn all(pids: &[u32], wanted: char) {
    until(&format!("all are in state {wanted}"), || pids.iter().all(|&pid| state(pid) == wanted));
}

/// LAUNCH-4.1: also works a second time, and for the other signals of job control.
#[test]
fn ctrl_z_stops_the_nodes_and_then_the_launcher() {
    let script = "trap 'exit 0' TERM; sleep 1000 & echo pid $$; wait";
    let mut job = Running::start(&mut run_script(&["-n", "2"], script));
    let nodes = pids(&mut job, 2);
    for signal in [20, 20, 21, 22] {
        job.signal(signal);
        all(&[job.child.id()], 'T');
        all(&nodes, 'T');
        job.signal(18);
        all(&nodes, 'S');
    }
    // A launcher that gets SIGTERM while it is stopped ends as soon as it goes on.
    job.signal(20);
    all(&[job.child.id()], 'T');
    job.signal(15);
    job.signal(18);
    assert_eq!(job.finish().0, 0);
}

/// LAUNCH-4.1: the same over an agent.
#[test]
fn ctrl_z_stops_nodes_on_other_hosts() {
    let shell = Shell::new("suspend-rsh", "shift; exec \"$@\"");
    let mut command =
        run_script(&["--hosts", "a,b"], "trap 'exit 0' TERM; sleep 1000 & echo pid $$; wait");
    let mut job = Running::start(command.env("OIKAZE_RSH", shell.command()));
    let nodes = pids(&mut job, 2);
    job.signal(20);
    all(&[job.child.id()], 'T');
    all(&nodes, 'T');
    job.signal(18);
    all(&nodes, 'S');
    job.signal(15);
    assert_eq!(job.finish().0, 0);
}

/// LAUNCH-4.2: the first SIGQUIT only asks. A second one at once reaches the nodes, and the next
/// one kills.
#[test]
fn quit_again_at_once_reaches_the_nodes_and_the_next_one_kills() {
    // Some shells miss a signal that comes just before their `wait` for a job in the background.
    let script = "trap 'echo quit' QUIT; echo ready; while :; do sleep 0.1; done";
    let mut job = Running::start(&mut run_script(&[], script));
    job.line("[0] ready");
    // Two signals that are sent in a row may arrive as one, or more than a second apart. So a pair
    // is sent again, but not before the nodes had time to answer, because one more kills them.
    let reaches = AtomicBool::new(false);
    let launcher = job.child.id();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..1200 {
                if reaches.load(Ordering::Relaxed) {
                    break;
                }
                if step % 120 < 2 {
                    kill(launcher, 3);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        job.line("[0] quit");
        reaches.store(true, Ordering::Relaxed);
    });
    job.signal(3);
    assert_eq!(job.finish().0, 137);
}

/// LAUNCH-5.1 and 5.2: the bytes of `input` come out unchanged.
#[test]
fn output_passes_unchanged() {
    let long = [&b"x".repeat(300_000)[..], b"\n"].concat();
    let binary: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let inputs = [
        b"a,b\r\nc,d\r\n".to_vec(),
        b"ten %\rtwenty %\n".to_vec(),
        b"no end".to_vec(),
        long,
        binary,
    ];
    for input in &inputs {
        for prefix in [false, true] {
            let options: &[&str] = if prefix { &[] } else { &["--no-prefix"] };
            let mut child = run_script(options, "exec cat").stdin(Stdio::piped()).spawn().unwrap();
            let mut stdin = child.stdin.take().unwrap();
            let (front, back) = input.split_at(input.len() / 2);
            let writer = std::thread::spawn({
                let (front, back) = (front.to_vec(), back.to_vec());
                move || {
                    stdin
                        .write_all(&front)
                        .and_then(|()| stdin.flush())
                        .and_then(|()| stdin.write_all(&back))
                        .unwrap()
                }
            });
            let out = child.wait_with_output().unwrap().stdout;
            writer.join().unwrap();
            if !prefix {
                assert!(out == *input, "{} bytes became {}", input.len(), out.len());
                continue;
            }
            let mut expected = Vec::new();
            for line in input.split_inclusive(|&byte| byte == b'\n') {
                expected.extend([b"[0] ", line].concat());
            }
            if !input.ends_with(b"\n") {
                expected.push(b'\n');
            }
            assert!(
                out == expected,
                "{} bytes became {}, {} expected",
                input.len(),
                out.len(),
                expected.len()
            );
        }
    }
}

/// LAUNCH-5.3.
#[test]
fn output_beyond_the_file_size_limit_is_named_and_kills_no_launcher() {
    let path = std::env::temp_dir().join(format!("oikaze-test-{}-limit", std::process::id()));
    let script =
        format!("ulimit -f 1; exec {OIKAZE} run --no-prefix -- seq 1 10000 > {}", path.display());
    let output =
        Command::new("/bin/sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    let err = text(&output.stderr);
    assert!(output.status.code().is_some(), "{} {err}", output.status);
    assert!(err.contains("File too large") && err.contains("ulimit -f unlimited"), "{err}");
}

/// LAUNCH-6.1.
#[test]
fn programs_that_cannot_run_are_named_with_the_cause() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("oikaze-test-{}-programs", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let mut foreign = std::fs::read("/bin/true").unwrap();
    foreign[18] ^= 0x80;
    let mut cut = foreign.clone();
    cut.truncate(30);
    let cases: [(&str, Vec<u8>, &str); 5] = [
        ("dos", b"#!/bin/sh\r\necho hi\r\n".to_vec(), "carriage return"),
        ("gone", b"#!/no/such/interpreter\n".to_vec(), "/no/such/interpreter"),
        ("foreign", foreign, "built for another machine"),
        ("cut", cut, "cut off"),
        ("windows", b"MZ\0\0".to_vec(), "built for another machine (Windows)"),
    ];
    let shell = Shell::new("programs-rsh", "shift; exec \"$@\"");
    for (name, bytes, word) in cases {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        for hosts in [&[][..], &["--hosts", "a,b"]] {
            let mut command = oikaze(&["run"]);
            let command =
                command.args(hosts).arg("--").arg(&path).env("OIKAZE_RSH", shell.command());
            let (status, _, err) = finish(command);
            assert_eq!(status, Some(126), "{name}: {err}");
            assert!(err.contains(word) && !err.contains("os error"), "{name}: {err}");
        }
    }
    // A text without `#!` line is given to sh.
    let path = folder.join("plain");
    std::fs::write(&path, "echo plain\n").unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(finish(oikaze(&["run", "--"]).arg(&path)).1, "[0] plain\n");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// LAUNCH-6.2.
#[test]
fn names_and_arguments_of_any_bytes_reach_nodes_everywhere() {
    use std::os::unix::ffi::OsStrExt;
    let name = std::ffi::OsStr::from_bytes(b"\xff\xfe name");
    let folder = std::env::temp_dir().join(format!("oikaze-test-{}-bytes", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let link = folder.join(name);
    std::os::unix::fs::symlink("/bin/echo", &link).unwrap();
    let shell = Shell::new("bytes-rsh", "shift; exec \"$@\"");
    for hosts in [&[][..], &["--hosts", "a"]] {
        let mut command = oikaze(&["run"]);
        command
            .args(hosts)
            .args(["--no-prefix", "--"])
            .arg(&link)
            .arg(name)
            .env("OIKAZE_RSH", shell.command());
        let output = command.output().unwrap();
        assert_eq!(output.stdout, b"\xff\xfe name\n", "{}", text(&output.stderr));
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
