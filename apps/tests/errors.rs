//! Tests of a user's mistakes with real processes. Each job ends within seconds, reports what
//! failed, why and what to do, and leaves nothing behind.

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::{CG, HEAT, HIMENO, HISTOGRAM, LU, ONE_AT_A_TIME, SORT, TRANSPOSE, oikaze, skip};

/// Time limit far above the time of any of these jobs. The launcher ends a job that hangs.
const HANG: Duration = Duration::from_secs(60);
/// Environment variable that marks every process of a job under test.
const MARK: &str = "OIKAZE_TEST_MARK";

/// Returns the living processes that have this variable in their environment.
fn living(variable: &str) -> Vec<PathBuf> {
    let has = |entry: fs::DirEntry| {
        // The process may have ended meanwhile. A zombie has no environment any more.
        let environment = fs::read(entry.path().join("environ")).ok()?;
        environment
            .split(|&byte| byte == 0)
            .any(|entry| entry == variable.as_bytes())
            .then(|| entry.path())
    };
    fs::read_dir("/proc").expect("proc is mounted").flatten().filter_map(has).collect()
}

/// Runs `sh -c script`, where `$OIKAZE` is the command, `$H` a short run of Himeno and `$L` one of
/// LU. Returns the status and the text on standard error.
fn shell(script: &str, variables: &[(&str, &str)]) -> (Option<i32>, String) {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mark = format!("{}-{}", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed));
    let mut command = Command::new("/bin/sh");
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OIKAZE_"))
    {
        command.env_remove(name);
    }
    command
        .args(["-c", script])
        .stdin(Stdio::null())
        .env(MARK, &mark)
        .envs(variables.iter().copied());
    command
        .env("H", format!("{HIMENO} --size xs --iterations 3"))
        .env("L", format!("{LU} --n 64"))
        .env("OIKAZE", oikaze());
    let begun = Instant::now();
    let output = command.output().expect("sh starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(begun.elapsed() < HANG, "{script}: it hung, and said {said}");
    assert!(!said.contains("panicked") && !said.contains("backtrace"), "{script}: {said}");
    // Processes that were killed with their node may still be ending.
    while !living(&format!("{MARK}={mark}")).is_empty() {
        assert!(begun.elapsed() < 2 * HANG, "{script}: processes stayed behind");
        std::thread::yield_now();
    }
    (output.status.code(), said)
}

/// Runs a job of two nodes whose node 1 runs `script` first. The job must fail and print all of
/// these words.
#[track_caller]
fn job(options: &str, script: &str, words: &[&str]) {
    says(
        &format!(
            "exec $OIKAZE run -n 2 {options} -- /bin/sh -c '[ $OIKAZE_RANK = 1 ] && {{ {script}; }}; exec $H'"
        ),
        &[],
        words,
    );
}

#[track_caller]
fn says(script: &str, variables: &[(&str, &str)], words: &[&str]) {
    let (status, said) = shell(script, variables);
    assert!(status.is_none_or(|status| status != 0), "{script}: it must fail, and said {said}");
    for word in words {
        assert!(
            said.contains(word),
            "\"{word}\" is not in what {variables:?} {script} said:\n{said}"
        );
    }
}

#[test]
fn one_node_is_not_as_the_others() {
    job(
        "",
        "export OIKAZE_SECRET=$(printf %064d 7)",
        &["[1] himeno: the job's store refused this process", "OIKAZE_SECRET is of another job"],
    );
    job(
        "",
        "exec $L",
        &["declared the name \"p0\"", "declared the name \"matrix\"", "in the same order"],
    );
    job(
        "",
        &format!("exec {HIMENO} --size s --iterations 3"),
        &["node 0 declared the shape [65536], node 1 declared the shape [524288]"],
    );
    job(
        "",
        &format!("exec {HIMENO} --size xs --iterations 4"),
        &["node 1 called barrier while node 0 called barrier_reduce"],
    );
    job(
        "--failure-time 500",
        "exit 0",
        &["[0] himeno: joining the job failed: node 1 ended with status 0 before it had joined"],
    );
    job("--failure-time 500", "exit 3", &["[0] himeno: ", "node 1 ended with status 3"]);
    // Node 1 never joins. The launcher ends it after the other node's own error.
    let sleeper = "export OIKAZE_TIMEOUT=300; [ $OIKAZE_RANK = 1 ] && exec sleep 1000; exec $H";
    says(
        &format!("exec $OIKAZE run -n 2 --failure-time 1 -- /bin/sh -c '{sleeper}'"),
        &[],
        &[
            "[0] himeno: node 1 has not joined the job within 300ms",
            "OIKAZE_TIMEOUT",
            "terminating node 1",
        ],
    );
    // Node 1 is stopped, as by a debugger.
    job("--timeout 20 --failure-time 500", "kill -STOP $$", &["node 1"]);
}

#[test]
fn ports_that_are_taken() {
    // There is one port. The store (TCP) and one node (UDP) can have it, but not the other node.
    let free = std::net::UdpSocket::bind("0.0.0.0:0")
        .and_then(|socket| socket.local_addr())
        .expect("a port is free")
        .port();
    says(
        &format!("exec $OIKAZE run -n 2 --ports {free} -- $H"),
        &[],
        &[&format!("UDP port {free}"), "in use by another program", "--ports A-B", "ss -ulpn"],
    );
}

#[test]
fn nonsense_in_the_environment() {
    let cases = [
        ("OIKAZE_TIMEOUT", "x", "OIKAZE_TIMEOUT is \"x\", but must be a number of milliseconds"),
        ("OIKAZE_TIMEOUT", "0", "OIKAZE_TIMEOUT"),
        ("OIKAZE_FAILURE_TIME", "5s", "OIKAZE_FAILURE_TIME is \"5s\""),
        ("OIKAZE_PORTS", "7-3", "OIKAZE_PORTS is \"7-3\""),
        ("OIKAZE_FAULT", "loss=2", "a probability must be between 0 and 1"),
        ("OIKAZE_FAULT", "lost=0.1", "unknown fault (known are loss"),
        ("OIKAZE_WITHOUT", "ufdd", "unknown feature \"ufdd\"; known are uffd"),
        ("OIKAZE_WITHOUT", "uffd,mprotect", "Run `oikaze doctor`"),
        ("OIKAZE_WAIT", "x", "OIKAZE_WAIT=x: expected spin, poll:TIME"),
        ("OIKAZE_WAIT", "poll:1s", "OIKAZE_WAIT=poll:1s: expected spin, poll:TIME"),
        ("OIKAZE_WAIT", "poll:500ms", "give 1µs to 100ms"),
        ("OIKAZE_ENGINE", "x", "OIKAZE_ENGINE=x: expected inline, thread, thread:CORES"),
        ("OIKAZE_ENGINE", "thread:99999", "this machine has no core 99999; its cores are 0"),
        ("OIKAZE_RANK", "0", "OIKAZE_STORE is not set, while OIKAZE_RANK is"),
        ("OIKAZE_SIZE", "2", "OIKAZE_STORE is not set, while OIKAZE_SIZE is"),
        ("OIKAZE_STORE", "", "OIKAZE_SIZE is not set"),
    ];
    for (name, value, word) in cases {
        says("exec $H", &[(name, value)], &["himeno: ", word]);
    }
    let secret = "7".repeat(64);
    let place = |store| {
        [
            ("OIKAZE_STORE", store),
            ("OIKAZE_SIZE", "2"),
            ("OIKAZE_RANK", "0"),
            ("OIKAZE_SECRET", secret.as_str()),
        ]
    };
    says("exec $H", &place("nonsense"), &["(tried nonsense: "]);
    says(
        "exec $H",
        &place("127.0.0.1:1"),
        &["127.0.0.1:1: nobody listens there", "the launcher has ended"],
    );
    // The value is useless but valid, and the numbers must not overflow.
    let (status, said) =
        shell("exec $OIKAZE run -n 2 --failure-time 18446744073709551615 -- $H", &[]);
    assert_eq!(status, Some(0), "{said}");
}

#[test]
fn nonsense_in_arguments() {
    for (arguments, word) in [
        (format!("{HIMENO} --size 0"), "[possible values: xs, s, m, l, xl]"),
        (format!("{HIMENO} --iterations 0"), "0 is not in 1"),
        (format!("{HIMENO} --planes 3"), "unexpected argument '--planes'"),
        (format!("{LU} --n 0"), "a multiple of 16 from 16"),
        (format!("{LU} --n 17"), "a multiple of 16 from 16"),
        (format!("{CG} --size d"), "[possible values: s, w, a, b]"),
        (format!("{HEAT} --size 2"), "a number of points from 3"),
        (format!("{HEAT} --size -1"), "unexpected argument '-1'"),
        (format!("{TRANSPOSE} --size 100"), "a multiple of 32 from 32"),
        (format!("{TRANSPOSE} --size 99999999999999999999"), "a multiple of 32 from 32"),
        (format!("{HISTOGRAM} --size 0"), "0 is not in 1"),
        (format!("{HISTOGRAM} --locks --table separate"), "cannot be used with"),
        (format!("{SORT} --size 0"), "0 is not in 1"),
        (format!("{SORT} --distribution x"), "[possible values: uniform, skewed, equal, falling]"),
        (format!("{SORT} --touch ahead"), "unexpected argument '--touch'"),
        (format!("{HEAT} --npy plate.raw"), "ends in .npy"),
        (format!("{HEAT} --png a.png --serial"), "cannot be used with"),
        ("$OIKAZE run --fault loss=2 -- true".into(), "a probability must be between 0 and 1"),
        ("$OIKAZE run --env OIKAZE_NO_SUCH -- true".into(), "write OIKAZE_NO_SUCH=VALUE"),
        ("$OIKAZE perf put --iterations 0".into(), "0 is not in 1"),
        ("$OIKAZE perf put --size 1T".into(), "is not a size"),
        ("$OIKAZE run -n 1 -- $OIKAZE perf put".into(), "two are needed"),
    ] {
        says(&format!("exec {arguments}"), &[], &[word]);
    }
    // More nodes than work is not a mistake.
    for (nodes, program) in [
        (40, "$H".to_owned()),
        (9, format!("{HEAT} --size 5 --iterations 3")),
        (9, format!("{TRANSPOSE} --size 64 --iterations 3")),
        (9, format!("{HISTOGRAM} --size 5 --keys 7 --iterations 3")),
        (9, format!("{SORT} --size 5 --iterations 3")),
    ] {
        let (status, said) =
            shell(&format!("exec $OIKAZE run -n {nodes} -- {program} --verify"), &[]);
        assert_eq!(status, Some(0), "{program}: {said}");
    }
}

#[test]
fn memory_that_is_not_there() {
    let array = ["making shared array \"p0\"", "ulimit -v"];
    let himeno = format!("{HIMENO} --size l --iterations 1 --coefficients registers");
    says(&format!("ulimit -v 300000; exec {himeno}"), &[], &array);
    says(
        &format!("ulimit -v 300000; exec {HIMENO} --size l --iterations 1"),
        &[],
        &["need 1536 MiB", "--coefficients registers"],
    );
    says("ulimit -n 8; exec $H", &[], &["Too many open files", "ulimit -n"]);
    // One node has too little memory. All nodes report it at once.
    says(
        &format!(
            "exec $OIKAZE run -n 2 -- /bin/sh -c '[ $OIKAZE_RANK = 1 ] && ulimit -v 400000; exec {himeno}'"
        ),
        &[],
        &[
            "[0] himeno: declare array \"p0\" at apps/src/",
            ": node 1 cannot go on: making shared array",
            "[1] himeno: making shared array",
        ],
    );
}

/// A node without memory for its keys is an error on all nodes, before any of them sorts.
#[test]
fn keys_without_memory() {
    let sort = format!("{SORT} --size 100000000");
    says(
        &format!(
            "exec $OIKAZE run -n 2 -- /bin/sh -c '[ $OIKAZE_RANK = 1 ] && ulimit -v 300000; exec {sort}'"
        ),
        &[],
        &[
            "[0] sort: node 1: 50000000 keys need 382 MiB of memory three times",
            "[1] sort: node 1: 50000000 keys",
            "--size",
        ],
    );
}

/// Datagrams do not get through, but TCP does. The nodes soon print a matrix of the attempts. Needs
/// root and nft.
#[test]
fn a_firewall_between_the_nodes() {
    let able = "command -v nft ip && [ $(id -u) = 0 ] && ip netns add oikt-probe-$$ && ip netns del oikt-probe-$$";
    if shell(able, &[]).0 != Some(0) {
        return skip("it needs root and the commands ip and nft");
    }
    let block = "nft add table inet t; nft \"add chain inet t i { type filter hook input priority 0; }\"; \
                 nft add rule inet t i meta l4proto udp drop";
    let script = format!("exec $OIKAZE run -n 2 --netns -- /bin/sh -c '{block}; exec $H'");
    let matrix = [
        "cannot be reached over UDP. Tried:",
        "10.77.0.",
        "eth0",
        "no answer within 8 s",
        "--ports",
    ];
    says(&script, &[], &matrix);
    says(&script.replace("$H'", "$OIKAZE hello'"), &[], &matrix);
}

/// Runs as an unprivileged user, with the kernel's features for such a user. The result is right
/// with any tracker.
#[test]
fn without_privileges() {
    if shell("[ $(id -u) = 0 ] && command -v setpriv", &[]).0 != Some(0) {
        return skip("it needs root and the command setpriv");
    }
    // The programs are copied, because no other user may be able to read their folder.
    let drop = "setpriv --reuid 65534 --clear-groups --bounding-set -all --inh-caps -all";
    let (status, said) = shell(
        &format!(
            "D=$(mktemp -d); chmod 755 $D; cp {HIMENO} $OIKAZE $D; \
         {drop} $D/oikaze run -n 2 -- $D/himeno --size xs --iterations 100 --touch lazily --verify; S=$?; rm -r $D; exit $S"
        ),
        &[],
    );
    assert_eq!(status, Some(0), "{said}");
}
