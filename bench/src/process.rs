//! Two programs that measure something between them: a server that says when it is ready, and a client that says what it found.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use crate::error::{Error, Tried};

/// A child that ends with its handle.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None))
            && let Some(pid) = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM); // `timeout` passes it on
        }
        let _ = self.0.wait();
    }
}

/// Starts `server`, waits until a line of its output contains `ready`, runs `client` to its end and returns its output.
///
/// # Errors
/// Either cannot be started or fails; says what it printed.
pub fn pair(mut server: Command, ready: &str, client: Command) -> Result<String, Error> {
    let tried = format!("starting {server:?}");
    let mut server = Server(server.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().tried(tried)?);
    let stdout = server.0.stdout.take().ok_or_else(|| Error::new("the server has no standard output"))?;
    let mut stdout = BufReader::new(stdout);
    let (mut line, mut printed) = (String::new(), String::new());
    while stdout.read_line(&mut line).tried("listening to the server")? > 0 {
        if line.contains(ready) {
            let rest = std::thread::spawn(move || stdout.read_to_end(&mut Vec::new())); // so that it never waits for us
            let found = alone(client);
            drop(server);
            let _ = rest.join();
            return found;
        }
        printed.push_str(&std::mem::take(&mut line));
    }
    Err(Error::new(format!("the server ended before it said {ready:?}; it printed: {}", printed.trim())))
}

/// Runs `command` to its end and returns its output.
///
/// # Errors
/// It cannot be started or fails; says what it printed.
pub fn alone(mut command: Command) -> Result<String, Error> {
    let output = command.stdin(Stdio::null()).output().tried(format!("starting {command:?}"))?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() {
        return Ok(out.into_owned());
    }
    Err(Error::new(format!("{command:?} failed ({}): {} {}", output.status, out.trim(), err.trim())))
}
