//! Real launchers and real processes. Nothing here sleeps: every wait is for output, an exit, or a
//! state that is looked at again and again until a deadline far away.
#![allow(dead_code)]

use oikaze::{LocalRegion, RemoteRegion};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Long enough for any machine; only a failing test waits for it.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The command under test.
pub const OIKAZE: &str = env!("CARGO_BIN_EXE_oikaze");

/// `oikaze ARGUMENTS`, as a program that no launcher started.
pub fn oikaze(arguments: &[&str]) -> Command {
    // A shell script's background jobs ignore SIGINT, what nohup started SIGHUP, and so would this,
    // which tests end by them (becomes the program: one process).
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,HUP", OIKAZE]);
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("OIKAZE_"))
    {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `oikaze run OPTIONS -- sh -c SCRIPT`.
pub fn run_script(options: &[&str], script: &str) -> Command {
    let mut command = oikaze(&["run"]);
    command.args(options).args(["--", "/bin/sh", "-c", script]);
    command
}

/// With nodes that are the test `node` of this test program, which finds `mark` set, and with a
/// standard input for the first.
pub fn of_test_nodes(command: &mut Command, mark: &str) {
    command.args(["--env", &format!("{mark}=1"), "--"]).arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", "node", "--ignored", "--nocapture", "--test-threads=1"])
        .stdin(Stdio::piped());
}

/// Bytes of its own for each `turn`, put there from `out` and fetched into `back`, come back as
/// they were; all of them of one length.
pub fn there_and_back(
    there: &RemoteRegion,
    out: &LocalRegion,
    back: &LocalRegion,
    turn: u64,
    patience: Duration,
) {
    let sent: Vec<u8> = (0..there.len()).map(|at| (at * 7 + (at >> 9) + turn) as u8).collect();
    out.write(0, &sent).unwrap();
    there.put(0, out.all()).wait_for(patience).unwrap();
    there.get(0, back.all()).wait_for(patience).unwrap();
    let mut seen = vec![0; sent.len()];
    back.read(0, &mut seen).unwrap();
    assert!(sent == seen, "transfer {turn} came back as something else");
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Status, standard output, standard error.
pub fn finish(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), text(&stdout), text(&stderr))
}

/// A launcher that is spoken to while it runs; killed with the test.
pub struct Running {
    pub child: Child,
    lines: BufReader<ChildStdout>,
    seen: String,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        let mut child = command.stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines, seen: String::new() }
    }

    /// Read lines until one begins with `start`; the rest of it.
    pub fn line(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(
                self.lines.read_line(&mut line).unwrap() > 0,
                "no line {start:?} in:\n{}",
                self.seen
            );
            self.seen += &line;
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim_end().to_owned();
            }
        }
    }

    /// Send the launcher a signal.
    pub fn signal(&self, signal: i32) {
        kill(self.child.id(), signal);
    }

    /// All that was printed, and the launcher's status (or signal, negative).
    pub fn finish(mut self) -> (i32, String) {
        let mut rest = String::new();
        self.lines.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        let code = status
            .code()
            .unwrap_or_else(|| -std::os::unix::process::ExitStatusExt::signal(&status).unwrap());
        (code, std::mem::take(&mut self.seen) + &rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Send a signal to a process that this test started.
pub fn kill(pid: u32, signal: i32) {
    let status =
        Command::new("/bin/sh").args(["-c", &format!("kill -{signal} {pid}")]).status().unwrap();
    assert!(status.success());
}

/// Look until it is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < DEADLINE, "still not so: {what}");
        std::thread::yield_now();
    }
}

/// Has this process ended? (Also if nobody has reaped it.)
pub fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => true,
        Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
    }
}

/// Namespaces that a launcher made.
pub fn namespaces_of(launcher: u32) -> Vec<String> {
    let names = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("oik-{launcher}-"))).collect()
}

/// A test, or a part of one, that cannot be run here. It is seen, and counted by `cargo xtask
/// test`; where all must run (OIKAZE_TEST_ALL), it is a failure.
pub fn skip(why: &str) {
    skipped(why);
    assert!(std::env::var_os("OIKAZE_TEST_ALL").is_none(), "skipped: {why}");
}

/// As [`skip`], and never a failure.
pub fn skipped(why: &str) {
    // Not by print, which the test harness keeps to itself.
    let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
}

/// Can this process make network namespaces? Says so if not. Tests that do take turns, as long as
/// they hold what this returns: each launcher removes what dead ones left, which must not be what
/// another test has just left on purpose.
pub fn namespaces() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let name = format!("oikt-{}", std::process::id());
    let ip = |what: &str| {
        Command::new("ip")
            .args(["netns", what, &name])
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    if ip("add") && ip("del") {
        return Some(turn);
    }
    skip("it needs root and the ip command (package iproute2)");
    None
}

/// `ip ARGUMENTS` in a namespace.
pub fn ip(namespace: &str, arguments: &[&str]) {
    let status = Command::new("ip").args(["-n", namespace]).args(arguments).status().unwrap();
    assert!(status.success(), "ip -n {namespace} {arguments:?}");
}

pub fn add_namespace(name: &str) {
    let status = Command::new("ip").args(["netns", "add", name]).status().unwrap();
    assert!(status.success(), "ip netns add {name}");
    ip(name, &["link", "set", "lo", "up"]);
}

/// A device of a namespace gets its address.
pub fn begin_to_use(namespace: &str, device: &str, mtu: &str, address: &str) {
    ip(namespace, &["link", "set", device, "mtu", mtu, "up"]);
    // An address that may be used at once, without asking whether somebody else has it.
    let quick: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
    ip(namespace, &[&["address", "add", address, "dev", device], quick].concat());
}

/// Two namespaces joined by a cable, removed with the test.
pub struct Cable(pub [String; 2]);

impl Cable {
    pub fn new(name: &str, mtus: [&str; 2], addresses: [&str; 2]) -> Cable {
        let cable =
            Cable(["a", "b"].map(|end| format!("oikt-{}-{name}-{end}", std::process::id())));
        let [a, b] = &cable.0;
        add_namespace(a);
        add_namespace(b);
        ip(a, &["link", "add", "e", "type", "veth", "peer", "name", "e", "netns", b]);
        for ((end, mtu), address) in cable.0.iter().zip(mtus).zip(addresses) {
            begin_to_use(end, "e", mtu, address);
        }
        cable
    }

    /// `oikaze run OPTIONS` with a node at each end, started at the first; `shell`
    /// [enters](Shell::enter).
    pub fn run(&self, shell: &Shell, options: &[&str]) -> Command {
        let [a, b] = &self.0;
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", a, OIKAZE, "run", "--hosts", &format!("{a},{b}")])
            .args(options);
        command.env("OIKAZE_RSH", shell.command()).stdout(Stdio::piped());
        command
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for end in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", end]).status();
        }
    }
}

/// A script in place of ssh; removed with the test.
pub struct Shell(PathBuf);

impl Shell {
    /// `script` finds the host in $1 and the command in the rest.
    pub fn new(name: &str, script: &str) -> Shell {
        let path = std::env::temp_dir().join(format!("oikaze-test-{}-{name}", std::process::id()));
        std::fs::write(&path, script).unwrap();
        Shell(path)
    }

    /// The host is a namespace.
    pub fn enter(name: &str) -> Shell {
        Shell::new(name, "host=$1; shift; exec ip netns exec $host \"$@\"")
    }

    /// For OIKAZE_RSH. Run by sh, so that no test trips over a script that another thread's fork
    /// still holds open.
    pub fn command(&self) -> String {
        format!("/bin/sh {}", self.0.display())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
