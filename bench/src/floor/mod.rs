//! Floors: how fast bare UDP is on this machine. No loss recovery, no acknowledgement beyond a window: nothing that does
//! more can be faster.

mod latency;
mod stream;

use std::io::Write;
use std::net::UdpSocket;

use clap::Subcommand;

use crate::error::{Error, Tried};
use crate::lab::{ADDRESSES, Lab};
use crate::process::pair;

const PORT: u16 = 7100;
/// How often a floor that lost a datagram is begun anew.
const ATTEMPTS: u32 = 4;
const READY: &str = "ready";

/// Which end of which floor.
#[derive(Subcommand)]
pub enum Role {
    /// Sends, and prints what it measured.
    Latency(latency::Settings),
    /// Answers.
    LatencyServer(latency::Settings),
    /// Sends, and prints what it measured.
    Stream(stream::Settings),
    /// Receives.
    StreamServer(stream::Settings),
}

/// Host of the server.
const SERVER: usize = 1;
const CLIENT: usize = 0;

/// Plays one end.
///
/// # Errors
/// What the sockets say.
pub fn play(role: &Role) -> Result<(), Error> {
    match role {
        Role::Latency(settings) => println!("{}", latency::client(&connected(CLIENT)?, settings)?),
        Role::LatencyServer(settings) => latency::server(&ready(connected(SERVER)?)?, settings)?,
        Role::Stream(settings) => println!("{}", stream::send(&connected(CLIENT)?, settings)?),
        Role::StreamServer(settings) => {
            let room = settings.memory();
            stream::receive(&ready(connected(SERVER)?)?, settings, room)?;
        }
    }
    Ok(())
}

fn connected(host: usize) -> Result<UdpSocket, Error> {
    let (mine, other) = (ADDRESSES[host], ADDRESSES[1 - host]);
    let socket = UdpSocket::bind((mine, PORT)).tried(format!("binding {mine}:{PORT}"))?;
    socket.connect((other, PORT)).tried(format!("connecting to {other}:{PORT}"))?;
    socket.set_nonblocking(true).tried("setting the socket non-blocking")?;
    Ok(socket)
}

fn ready(socket: UdpSocket) -> Result<UdpSocket, Error> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{READY}").and_then(|()| stdout.flush()).tried("answering the bench")?;
    Ok(socket)
}

/// Runs both ends of a floor in the lab; returns what was measured.
fn run(lab: &Lab, role: &str, arguments: &[String]) -> Result<f64, Error> {
    let me = std::env::current_exe().tried("finding the bench's own program")?;
    let end = |host: usize, role: String| {
        let mut command = lab.on(host, &me);
        command.args(["floor".to_owned(), role]).args(arguments);
        command
    };
    let printed = pair(end(SERVER, format!("{role}-server")), READY, end(CLIENT, role.to_owned()))?;
    printed.trim().parse().map_err(|_| Error::new(format!("floor {role} printed {printed:?} where a number was expected")))
}

/// One-way latency of `size` bytes, in µs.
///
/// # Errors
/// The floor could not be run.
pub fn latency(lab: &Lab, size: usize, exchanges: u32) -> Result<f64, Error> {
    run(lab, "latency", &["--size".into(), size.to_string(), "--exchanges".into(), exchanges.to_string()])
}

/// Rate at which cold memory is moved, in GB/s; with `crc`, each datagram's CRC32C is computed at both ends.
///
/// # Errors
/// The floor could not be run.
pub fn bandwidth(lab: &Lab, mebibytes: usize, crc: bool) -> Result<f64, Error> {
    let payload = if lab.mtu >= 9000 { 8192 } else { 1366 };
    let mut arguments = vec!["--payload".into(), payload.to_string(), "--mebibytes".into(), mebibytes.to_string()];
    arguments.extend(crc.then(|| "--crc".to_owned()));
    // A busy machine may drop a datagram in the kernel's backlog, and nothing here repairs it.
    let mut attempt = run(lab, "stream", &arguments);
    for _ in 1..ATTEMPTS {
        attempt = attempt.or_else(|_| run(lab, "stream", &arguments));
    }
    attempt
}
