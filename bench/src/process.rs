//! Runs the two programs of a measurement: a server that reports when it is ready, and a client
//! that prints the result.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Error, Tried};
use crate::lab::{CLIENT, Lab, SERVER};

/// Sign by which the bench sees that a server is ready for its client.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// A line of the server's output contains this text.
    Says(&'static str),
    /// The server listens on this TCP port.
    Listens(u16),
}

/// Returns the path of the bench's own program.
///
/// # Errors
/// The system does not tell.
pub fn own_program() -> Result<PathBuf, Error> {
    std::env::current_exe().tried("finding the bench's own program")
}

/// Line that the bench's own servers print when they are ready.
const READY: &str = "ready";
/// Time limit for a server to start listening.
const START: Duration = Duration::from_secs(10);
/// Time limit of a measurement by the bench's own programs.
const LIMIT: Duration = Duration::from_secs(60);

/// Child process that is terminated when this value is dropped.
pub struct Running(Child);

impl Running {
    /// Starts a program.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(mut command: Command) -> Result<Self, Error> {
        let tried = format!("starting {command:?}");
        command.stdin(Stdio::null()).spawn().tried(tried).map(Self)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None))
            && let Some(pid) =
                i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw)
        {
            // The child is `timeout`, which passes the signal on to the program.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}

/// Starts `server`, waits until it is ready, runs `client` to its end and returns its output.
///
/// # Errors
/// Either program cannot be started or fails. The error contains the program's output.
pub fn pair(server: Command, ready: Ready, client: Command) -> Result<String, Error> {
    while_serving(server, ready, || alone(client))
}

/// Starts `server`, waits until it is ready, calls `client`, and terminates the server.
///
/// # Errors
/// The server cannot be started or fails, or `client` fails.
pub fn while_serving<T>(
    mut server: Command,
    ready: Ready,
    client: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    server.stdout(Stdio::piped());
    let mut server = Running::start(server)?;
    let stdout =
        server.0.stdout.take().ok_or_else(|| Error::new("the server has no standard output"))?;
    let mut stdout = BufReader::new(stdout);
    match ready {
        Ready::Says(word) => wait_for_word(&mut stdout, word)?,
        Ready::Listens(port) => wait_for_port(&mut server.0, port)?,
    }
    // Reads the rest of the output, so that the server never blocks on a full pipe.
    let rest = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new()));
    let found = client();
    drop(server);
    let _ = rest.join();
    found
}

/// Starts `other`, waits until it is ready, calls `client`, and terminates `other`. Returns the
/// output of `other` and the result of `client`.
///
/// # Errors
/// As [`pair`].
pub fn during<T>(
    mut other: Command,
    client: impl FnOnce() -> Result<T, Error>,
) -> Result<(String, T), Error> {
    other.stdout(Stdio::piped());
    let mut other = Running::start(other)?;
    let stdout = other.0.stdout.take().ok_or_else(|| Error::new("it has no standard output"))?;
    let mut stdout = BufReader::new(stdout);
    wait_for_word(&mut stdout, READY)?;
    let rest = std::thread::spawn(move || {
        let mut printed = String::new();
        stdout.read_to_string(&mut printed).map(|_| printed)
    });
    let found = client()?;
    drop(other);
    let printed = rest
        .join()
        .map_err(|_| Error::new("reading what it printed"))?
        .tried("reading what it printed")?;
    Ok((printed, found))
}

fn wait_for_word(stdout: &mut impl BufRead, word: &str) -> Result<(), Error> {
    let (mut line, mut printed) = (String::new(), String::new());
    while stdout.read_line(&mut line).tried("listening to the server")? > 0 {
        if line.contains(word) {
            return Ok(());
        }
        printed.push_str(&std::mem::take(&mut line));
    }
    Err(Error::new(format!(
        "the server ended before it said {word:?}; it printed: {}",
        printed.trim()
    )))
}

/// Waits until the server listens. Reads the socket tables of the server's network namespace.
fn wait_for_port(server: &mut Child, port: u16) -> Result<(), Error> {
    let begun = Instant::now();
    while begun.elapsed() < START {
        let ended = server.try_wait().tried("looking after the server")?;
        if let Some(status) = ended {
            return Err(Error::new(format!(
                "the server ended before it listened on port {port} ({status})"
            )));
        }
        let tables = ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", server.id()));
        if tables
            .iter()
            .any(|table| std::fs::read_to_string(table).is_ok_and(|table| listens(&table, port)))
        {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(Error::new(format!("the server did not listen on port {port} within {START:?}")))
}

/// Returns `true` if this table of the kernel (proc_pid_net(5), `/proc/PID/net/tcp`) has a listener
/// at the port. The table's columns are `sl local_address rem_address st …`, with the port in
/// hexadecimal.
fn listens(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    table.lines().any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().and_then(|address| address.rsplit_once(':'));
        local.and_then(|(_, local)| u16::from_str_radix(local, 16).ok()) == Some(port)
            && columns.nth(1) == Some(LISTEN)
    })
}

/// Returns a command that runs on all cores, with a time limit.
pub fn limited(limit: Duration, program: impl Into<OsString>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=1", &limit.as_secs().to_string()]).arg(program.into());
    command
}

/// Runs `command` to its end and returns its output.
///
/// # Errors
/// The command cannot be started or fails. The error has its output.
pub fn alone(command: Command) -> Result<String, Error> {
    with_input(command, "")
}

/// Runs `command` to its end with this standard input, and returns its output. The command must
/// read all of it before it prints much.
///
/// # Errors
/// As [`alone`].
pub fn with_input(mut command: Command, input: &str) -> Result<String, Error> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().tried(format!("starting {command:?}"))?;
    // A command that ends without reading says why itself.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().tried(format!("reading the output of {command:?}"))?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return Ok(out.into_owned());
    }
    Err(Error::new(format!(
        "{command:?} failed ({}): {} {}",
        told(output.status),
        out.trim(),
        err.trim()
    )))
}

/// Describes an exit status in words. Knows the status by which `timeout` reports that it ended the
/// program.
fn told(status: ExitStatus) -> String {
    const TIMED_OUT: i32 = 124;
    if status.code() == Some(TIMED_OUT) {
        "it took too long".to_owned()
    } else {
        status.to_string()
    }
}

/// Runs both ends of one of the bench's own programs in the lab: `oikaze-bench PROGRAM ROLE
/// ARGUMENTS`, and `ROLE-server` on the other host. Returns the client's output.
///
/// # Errors
/// As [`pair`].
pub fn own(lab: &Lab, program: &str, role: &str, arguments: &[String]) -> Result<String, Error> {
    let me = own_program()?;
    let end = |host: usize, role: &str| {
        let mut command = lab.on(host, LIMIT, &me);
        command.args([OsString::from(program), OsString::from(role)]).args(arguments);
        command
    };
    let printed =
        pair(end(SERVER, &format!("{role}-server")), Ready::Says(READY), end(CLIENT, role))?;
    Ok(printed.trim().to_owned())
}

/// Tells the bench that a client of this server may start.
///
/// # Errors
/// The bench has closed the pipe.
pub fn say_ready() -> Result<(), Error> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).tried("answering the bench")
}

/// Returns the seal of the measured jobs: that of `OIKAZE_SEAL`, and otherwise `crc`, because the
/// peers encrypt nothing.
pub fn seal() -> String {
    std::env::var("OIKAZE_SEAL").unwrap_or_else(|_| "crc".to_owned())
}

#[cfg(test)]
mod tests {
    use super::listens;

    #[test]
    fn a_listener_is_found_in_the_kernels_table() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
                     0: 0100007F:1B58 00000000:0000 0A 00000000:00000000 00:00000000\n   \
                     1: 0100007F:1B59 0100007F:9C40 01 00000000:00000000 00:00000000\n";
        assert!(listens(table, 7000));
        assert!(!listens(table, 7001), "connected is not listening");
        assert!(!listens(table, 7002) && !listens("", 7000));
    }
}
