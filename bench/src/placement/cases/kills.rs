//! Case `kills`: two nodes talk through a server while other clients of it come and go, and the
//! same while those clients are killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oikaze_protocol::random::Random;

use crate::error::{Error, Tried};
use crate::peers::oikaze;
use crate::placement::Extent;
use crate::placement::collected::{Collected, Key};
use crate::placement::programs::{LIMIT, Values, role};
use crate::process::{Ready, alone, limited, own_program, seal, while_serving};

/// Server of the measurement.
const SERVER: &str = "bench-kills";
/// Its name as an engine of the nodes.
const ENGINE: &str = "process:bench-kills";
/// Maximum time that a client works before its end, in microseconds.
const WORK_MAX: usize = 8000;
/// How the other clients end: all by themselves, or all by SIGKILL.
const SYSTEMS: [(&str, bool); 2] = [("clients end", false), ("clients are killed", true)];

/// Measures one round.
pub fn round(extent: Extent, number: u32, all: &mut Collected) {
    let milliseconds = if extent.quick { 2000 } else { 10_000 };
    for (system, kill) in SYSTEMS {
        let found = one(milliseconds, kill, number).and_then(|(values, clients)| {
            eprintln!("  {system}: {clients}");
            let key = |case, unit| Key { mtu: None, ..Key::new(case, 8, system, unit) };
            Ok(vec![
                (key("kills", "us"), values.get("p50")?),
                (key("kills_p99", "us"), values.get("p99")?),
                (key("kills_clients", "clients"), f64::from(clients)),
            ])
        });
        all.add_all(&format!("kills, {system}"), found);
    }
}

/// Runs the nodes, with clients beside them. Returns what the nodes measured, and the number of
/// clients.
fn one(milliseconds: usize, kill: bool, seed: u32) -> Result<(Values, u32), Error> {
    let mut server = limited(LIMIT, oikaze::program()?);
    server.args(["serve", SERVER]);
    while_serving(server, Ready::Says("serves nodes as"), || {
        let end = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let clients = scope.spawn(|| come_and_go(&end, kill, seed));
            let found = nodes(milliseconds);
            end.store(true, Ordering::Relaxed);
            let clients = clients.join().map_err(|_| Error::new("starting clients"))??;
            Ok((found?, clients))
        })
    })
}

fn nodes(milliseconds: usize) -> Result<Values, Error> {
    let mut command = limited(LIMIT, oikaze::program()?);
    command.args(["run", "--no-prefix", "--seal", &seal(), "-n", "2", "--"]);
    command.arg(own_program()?).args(["node", "--engines", ENGINE, "--waits", "adaptive"]);
    // Local peers would talk past the server.
    command.env("OIKAZE_WITHOUT", "shm");
    command.args(role("load", &[("milliseconds", milliseconds), ("bulk", 8)]));
    Values::of(&alone(command)?)
}

/// Starts one client after another until the end. Returns their number.
fn come_and_go(end: &AtomicBool, kill: bool, seed: u32) -> Result<u32, Error> {
    let mut random = Random::new(seed.into());
    let mut count = 0;
    while !end.load(Ordering::Relaxed) {
        let mut client = Client::start()?;
        std::thread::sleep(Duration::from_micros(random.below(WORK_MAX) as u64));
        if kill {
            client.0.kill().tried("killing a client")?;
        } else {
            // A client ends when its input does.
            drop(client.0.stdin.take());
        }
        let status = client.0.wait().tried("waiting for a client")?;
        if !kill && !status.success() {
            return Err(Error::new(format!("a client failed ({status})")));
        }
        count += 1;
    }
    Ok(count)
}

/// Client of the server, which does not outlive the measurement.
struct Client(Child);

impl Client {
    /// Starts a client and waits until it works.
    fn start() -> Result<Client, Error> {
        let mut command = Command::new(own_program()?);
        command.args(["served", SERVER]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut client = Client(command.spawn().tried("starting a client")?);
        let stdout = client.0.stdout.take().ok_or_else(|| Error::new("no standard output"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).tried("listening to a client")?;
        if line.is_empty() { Err(Error::new("a client could not connect")) } else { Ok(client) }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
