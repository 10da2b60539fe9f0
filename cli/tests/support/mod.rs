//! Helpers for tests with real launchers and real processes. A helper waits for output, for an
//! exit, or for a state that it polls until a distant deadline.
#![allow(dead_code)]

use oikaze::memory::LocalRegion;
use oikaze::memory::remote::RemoteRegion;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time that suffices on any machine. Only a failing test waits for it.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Command under test.
pub const OIKAZE: &str = env!("CARGO_BIN_EXE_oikaze");

/// Returns the command `oikaze ARGUMENTS`, as a program that no launcher started.
pub fn oikaze(arguments: &[&str]) -> Command {
    // Background jobs of a shell script ignore SIGINT, and programs that nohup started ignore
    // SIGHUP. Tests end this command by these signals, so env resets them. env becomes the program,
    // so there is one process.
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

/// Returns the command `oikaze LINE`, whose words are separated by spaces.
pub fn oikaze_line(line: &str) -> Command {
    oikaze(&line.split(' ').collect::<Vec<_>>())
}

/// Returns the command `oikaze run OPTIONS -- sh -c SCRIPT`.
pub fn run_script(options: &[&str], script: &str) -> Command {
    let mut command = oikaze(&["run"]);
    command.args(options).args(["--", "/bin/sh", "-c", script]);
    command
}

/// Makes the nodes run the test `node` of this module of the test program, with `mark` set. The
/// first node gets a standard input.
pub fn of_test_nodes(command: &mut Command, module: &str, mark: &str) {
    let node =
        module.split_once("::").map_or("node".to_owned(), |(_, path)| format!("{path}::node"));
    command.args(["--env", &format!("{mark}=1"), "--"]).arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", &node, "--ignored", "--nocapture", "--test-threads=1"])
        .stdin(Stdio::piped());
}

/// Puts bytes from `out` to a region and fetches them into `back`. Checks that they come back
/// unchanged. The bytes differ for each `turn`, and all three regions have the same length.
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

/// Runs a command. Returns its status, standard output and standard error.
pub fn finish(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), text(&stdout), text(&stderr))
}

/// Runs a command, which must end with this status, and with all of these words on standard error.
/// Returns standard error.
#[track_caller]
pub fn ends(command: &mut Command, status: i32, words: &[&str]) -> String {
    let (ended, out, err) = finish(command);
    assert_eq!(ended, Some(status), "{out}{err}");
    for word in words {
        assert!(err.contains(word), "\"{word}\" is not in:\n{err}");
    }
    err
}

/// Launcher that a test communicates with while it runs. It is killed with the test.
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

    /// Reads lines until one begins with `start`. Returns the rest of this line.
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

    /// Sends a signal to the launcher.
    pub fn signal(&self, signal: i32) {
        kill(self.child.id(), signal);
    }

    /// Waits for the end. Returns the launcher's status (or signal, negative) and all of its
    /// output.
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

/// Sends a signal to a process that this test started.
pub fn kill(pid: u32, signal: i32) {
    let status =
        Command::new("/bin/sh").args(["-c", &format!("kill -{signal} {pid}")]).status().unwrap();
    assert!(status.success());
}

/// Stops a process that this test started. Returns when all its threads have stopped, because the
/// signal stops each of them only when it is scheduled.
pub fn stop(pid: u32) {
    kill(pid, 19);
    until("all threads have stopped", || {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
        let stat = |thread: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(thread.ok()?.path().join("stat")).ok()
        };
        threads.filter_map(stat).all(|stat| {
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            matches!(state, Some('T' | 'Z' | 'X'))
        })
    });
}

/// Polls until the condition is true.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < DEADLINE, "still not so: {what}");
        std::thread::yield_now();
    }
}

/// Returns `true` if this process has ended, even if no process has reaped it.
pub fn is_gone(pid: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Err(_) => true,
        Ok(stat) => stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X'])),
    }
}

/// Returns the namespaces that a launcher made.
pub fn namespaces_of(launcher: u32) -> Vec<String> {
    let names = std::fs::read_dir("/run/netns")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.starts_with(&format!("oik-{launcher}-"))).collect()
}

/// Reports a test, or a part of one, that cannot run here. `cargo xtask test` counts it. It is a
/// failure where all tests must run (OIKAZE_TEST_ALL).
pub fn skip(why: &str) {
    skipped(why);
    assert!(std::env::var_os("OIKAZE_TEST_ALL").is_none(), "skipped: {why}");
}

/// Reports as [`skip`] does, but is never a failure.
pub fn skipped(why: &str) {
    // The test harness captures the output of `print`.
    let _ = writeln!(std::io::stdout(), "\nskipped: {why}");
}

/// Returns a lock if this process can make network namespaces, and reports a skipped test
/// otherwise. Tests that make namespaces hold the lock in turn. Each launcher removes namespaces
/// that dead launchers left, and must not remove those that another test has just left on purpose.
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

/// Gives a namespace these rules of nft(8). Returns `false` if nft is missing or refuses them.
pub fn set_nft_rules(namespace: &str, rules: &str) -> bool {
    let mut nft = Command::new("ip");
    nft.args(["netns", "exec", namespace, "nft", "-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    let Ok(mut child) = nft.spawn() else { return false };
    let told =
        child.stdin.take().is_some_and(|mut input| input.write_all(rules.as_bytes()).is_ok());
    child.wait().is_ok_and(|status| told && status.success())
}

/// Runs `ip ARGUMENTS` in a namespace.
pub fn ip(namespace: &str, arguments: &[&str]) {
    let status = Command::new("ip").args(["-n", namespace]).args(arguments).status().unwrap();
    assert!(status.success(), "ip -n {namespace} {arguments:?}");
}

pub fn add_namespace(name: &str) {
    let status = Command::new("ip").args(["netns", "add", name]).status().unwrap();
    assert!(status.success(), "ip netns add {name}");
    ip(name, &["link", "set", "lo", "up"]);
}

/// Gives a device of a namespace its MTU and its address.
pub fn begin_to_use(namespace: &str, device: &str, mtu: &str, address: &str) {
    ip(namespace, &["link", "set", device, "mtu", mtu, "up"]);
    // Skips duplicate address detection, so that the address can be used at once.
    let quick: &[&str] = if address.contains(':') { &["nodad"] } else { &[] };
    ip(namespace, &[&["address", "add", address, "dev", device], quick].concat());
}

/// Two namespaces joined by a cable. Dropping the value removes them.
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

    /// Returns the command `oikaze run OPTIONS` with a node at each end, started at the first end.
    /// `shell` [enters](Shell::enter) the ends.
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

/// Script in place of ssh. Dropping the value removes it.
pub struct Shell(PathBuf);

impl Shell {
    /// Writes a script that finds the host in $1 and the command in the rest.
    pub fn new(name: &str, script: &str) -> Shell {
        let path = std::env::temp_dir().join(format!("oikaze-test-{}-{name}", std::process::id()));
        std::fs::write(&path, script).unwrap();
        Shell(path)
    }

    /// Writes a script whose hosts are namespaces.
    pub fn enter(name: &str) -> Shell {
        Shell::new(name, "host=$1; shift; exec ip netns exec $host \"$@\"")
    }

    /// Returns the value for OIKAZE_RSH. sh runs the script, because a script that another thread's
    /// fork still holds open for writing cannot be executed.
    pub fn command(&self) -> String {
        format!("/bin/sh {}", self.0.display())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
