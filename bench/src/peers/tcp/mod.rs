//! Plain TCP, as a program without any library would use it: one connection, `TCP_NODELAY`, and
//! large reads.

mod latency;
mod stream;

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{Effort, Found, System};
use crate::error::{Error, Tried};
use crate::lab::{ADDRESSES, Lab, SERVER};
use crate::process::{own, say_ready};
use crate::suite::case::{Case, Figure, Test};

const PORT: u16 = 7101;
/// Time limit of a read or write, after which the measurement fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Role of a process in a TCP measurement: which end it runs, with its settings.
pub type Role = super::ends::Role<stream::Settings>;

/// Runs one end of a measurement.
///
/// # Errors
/// A socket operation fails.
pub fn play(role: &Role) -> Result<(), Error> {
    match role {
        Role::Latency(settings) => println!("{}", latency::client(connect()?, settings)?),
        Role::LatencyServer(settings) => latency::server(accept(|| ())?.0, settings)?,
        Role::Stream(settings) => {
            let memory = settings.memory()?;
            println!("{}", stream::send(connect()?, settings, &memory)?);
        }
        Role::StreamServer(settings) => {
            let (socket, memory) = accept(|| settings.memory())?;
            stream::receive(socket, settings, memory?)?;
        }
    }
    Ok(())
}

fn connect() -> Result<TcpStream, Error> {
    let address = (ADDRESSES[SERVER], PORT);
    let begun = Instant::now();
    let socket = TcpStream::connect(address)
        .tried(format!("connecting to {address:?} (after {:?})", begun.elapsed()))?;
    prepared(socket)
}

/// Listens, runs `prepare`, reports that the server is ready, and accepts the only client.
fn accept<T>(prepare: impl FnOnce() -> T) -> Result<(TcpStream, T), Error> {
    let address = (ADDRESSES[SERVER], PORT);
    let listener = TcpListener::bind(address).tried(format!("binding {address:?}"))?;
    let ready = prepare();
    say_ready()?;
    let (socket, _) = listener.accept().tried("accepting the client")?;
    Ok((prepared(socket)?, ready))
}

fn prepared(socket: TcpStream) -> Result<TcpStream, Error> {
    // Nagle's algorithm would delay the small writes of the latency test. It would also slow down
    // streams of writes smaller than a segment, several times.
    socket.set_nodelay(true).tried("setting TCP_NODELAY")?;
    socket.set_read_timeout(Some(PATIENCE)).tried("limiting reads")?;
    socket.set_write_timeout(Some(PATIENCE)).tried("limiting writes")?;
    Ok(socket)
}

/// Plain TCP as a measured system.
pub struct Tcp;

impl System for Tcp {
    fn name(&self) -> &'static str {
        "tcp"
    }

    fn present(&self) -> Result<(), Error> {
        Ok(())
    }

    fn has(&self, case: Case) -> bool {
        // TCP carries a stream of bytes, so it has no messages to count and no remote memory.
        matches!(case.test, Test::MessageLatency | Test::MessageBandwidth | Test::Processor)
    }

    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        let of = |role: &str, names: [&str; 2], values: [usize; 2]| -> Result<Vec<f64>, Error> {
            let arguments = names
                .into_iter()
                .zip(values)
                .flat_map(|(name, value)| [format!("--{name}"), value.to_string()]);
            let printed = own(lab, "tcp", role, &arguments.collect::<Vec<_>>())?;
            printed
                .split_whitespace()
                .map(|word| word.parse().map_err(|_| strange(&printed)))
                .collect()
        };
        let found = match case.test {
            Test::MessageLatency => {
                of("latency", ["size", "exchanges"], [case.size, effort.exchanges as usize])?
            }
            Test::Processor => of("stream", ["size", "volume"], [case.size, effort.costly])?,
            _ => of("stream", ["size", "volume"], [case.size, effort.volume])?,
        };
        match (case.test, &found[..]) {
            (Test::MessageLatency, &[microseconds]) => Ok(vec![(Figure::MessageLat, microseconds)]),
            (Test::Processor, &[_, seconds_per_gib]) => Ok(vec![(Figure::Cpu, seconds_per_gib)]),
            (_, &[gigabytes_per_second, _]) => Ok(vec![(Figure::MessageBw, gigabytes_per_second)]),
            _ => Err(strange(&format!("{found:?}"))),
        }
    }

    fn note(&self) -> Option<&'static str> {
        Some(
            "tcp: one plain connection, TCP_NODELAY. Latency spins; bulk walks through 512 MiB on both sides and blocks.",
        )
    }
}

fn strange(printed: &str) -> Error {
    Error::new(format!("tcp printed {printed:?} where numbers were expected"))
}
