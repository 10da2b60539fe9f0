//! Plain UDP as paper 004 measured it: one datagram per call, sent at the sender's full speed. The
//! receiver counts the datagrams that arrive.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};

use crate::error::{Error, Tried};
use crate::lab::{ADDRESSES, CLIENT, Lab, SERVER};
use crate::process::{own, say_ready};

const PORT: u16 = 7102;
/// Maximum payload of a datagram over IPv4.
pub const LARGEST: usize = 65_507;
/// Time of silence after which the flood has ended.
const SILENCE: Duration = Duration::from_millis(200);
/// Time limit to wait for the first datagram.
const PATIENCE: Duration = Duration::from_secs(20);

/// Settings on which both ends must agree.
#[derive(Args)]
pub struct Settings {
    /// Bytes of a datagram.
    #[arg(long)]
    size: usize,
    /// How long to send, in milliseconds.
    #[arg(long)]
    milliseconds: u64,
}

/// Role of a process in the flood.
#[derive(Subcommand)]
pub enum Role {
    /// Sends, and prints what it sent and what was received, in GB/s.
    Flood(Settings),
    /// Receives all bytes.
    FloodServer(Settings),
}

/// Runs one end of the flood.
///
/// # Errors
/// A socket operation fails.
pub fn play(role: &Role) -> Result<(), Error> {
    match role {
        Role::Flood(settings) => println!("{}", send(&connected(CLIENT)?, settings)?),
        Role::FloodServer(settings) => {
            let socket = connected(SERVER)?;
            say_ready()?;
            receive(&socket, settings)?;
        }
    }
    Ok(())
}

fn connected(host: usize) -> Result<UdpSocket, Error> {
    let (mine, other) = (ADDRESSES[host], ADDRESSES[1 - host]);
    let socket = UdpSocket::bind((mine, PORT)).tried(format!("binding {mine}:{PORT}"))?;
    socket.connect((other, PORT)).tried(format!("connecting to {other}:{PORT}"))?;
    socket.set_read_timeout(Some(PATIENCE)).tried("limiting receives")?;
    Ok(socket)
}

fn send(socket: &UdpSocket, settings: &Settings) -> Result<String, Error> {
    let datagram = vec![1; settings.size.min(LARGEST)];
    let (begun, mut bytes) = (Instant::now(), 0);
    let span = Duration::from_millis(settings.milliseconds);
    while begun.elapsed() < span {
        bytes += socket.send(&datagram).tried("sending")?;
    }
    let sent = bytes as f64 / begun.elapsed().as_secs_f64() / 1e9;
    // The receiver answers when nothing more comes.
    let mut rate = [0; 8];
    socket.recv(&mut rate).tried("hearing from the receiver")?;
    Ok(format!("{sent} {}", f64::from_le_bytes(rate) / 1e9))
}

/// Receives the flood. Sends the bytes per second from the first datagram to the last to the
/// sender.
fn receive(socket: &UdpSocket, settings: &Settings) -> Result<(), Error> {
    let mut buffer = vec![0; settings.size.min(LARGEST)];
    let (mut bytes, mut first, mut last) = (0, None, Instant::now());
    loop {
        match socket.recv(&mut buffer) {
            Ok(received) => {
                last = Instant::now();
                bytes += received;
                if first.is_none() {
                    first = Some(last);
                    socket.set_read_timeout(Some(SILENCE)).tried("limiting receives")?;
                }
            }
            Err(why) => {
                let Some(first) = first else {
                    return Err(Error::io("receiving the first datagram", &why));
                };
                let rate =
                    bytes as f64 / last.duration_since(first).as_secs_f64().max(f64::MIN_POSITIVE);
                socket.send(&rate.to_le_bytes()).tried("answering")?;
                return Ok(());
            }
        }
    }
}

/// Returns the GB/s that were sent and received, with datagrams of `size` bytes.
///
/// # Errors
/// The flood could not be run.
pub fn flood(lab: &Lab, size: usize, span: Duration) -> Result<(f64, f64), Error> {
    let arguments = [
        "--size".to_owned(),
        size.to_string(),
        "--milliseconds".into(),
        span.as_millis().to_string(),
    ];
    let printed = own(lab, "udp", "flood", &arguments)?;
    let numbers = printed
        .split_once(' ')
        .and_then(|(sent, got)| Some((sent.parse().ok()?, got.parse().ok()?)));
    numbers.ok_or_else(|| {
        Error::new(format!("udp flood printed {printed:?} where two numbers were expected"))
    })
}
