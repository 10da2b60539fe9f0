//! Plain TCP, as a program without any library would use it: one connection, `TCP_NODELAY`, and
//! large reads.

mod charge;
mod latency;
mod stream;

use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use clap::Args;

use self::charge::Charged;
use super::ends::{Bulk, Role, measure};
use super::{Effort, Found, System};
use crate::error::{Error, Tried};
use crate::lab::{ADDRESSES, Lab, SERVER};
use crate::process::say_ready;
use crate::suite::case::{Case, Test};

const PORT: u16 = 7101;
/// Time limit of a read or write, after which the measurement fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// One end of a TCP measurement.
#[derive(Args)]
pub struct End {
    /// Address of the server.
    #[arg(long, global = true, default_value = ADDRESSES[SERVER])]
    at: IpAddr,
    /// Counts the processor time of programs of this name in the same network namespace, too.
    #[arg(long, global = true)]
    charge: Option<String>,
    #[command(subcommand)]
    role: Role<Bulk>,
}

/// Runs one end of a measurement.
///
/// # Errors
/// A socket operation fails.
pub fn play(end: &End) -> Result<(), Error> {
    let meter = || Charged::new(end.charge.as_deref());
    match &end.role {
        Role::Latency(settings) => println!("{}", latency::client(end.connect()?, settings)?),
        Role::LatencyServer(settings) => latency::server(end.accept(|| ())?.0, settings)?,
        Role::Stream(settings) => {
            let memory = settings.memory()?;
            println!("{}", stream::send(end.connect()?, settings, &memory, &meter()?)?);
        }
        Role::StreamServer(settings) => {
            let (socket, memory) = end.accept(|| settings.memory())?;
            stream::receive(socket, settings, memory?, &meter()?)?;
        }
    }
    Ok(())
}

impl End {
    fn connect(&self) -> Result<TcpStream, Error> {
        let address = (self.at, PORT);
        let begun = Instant::now();
        let socket = TcpStream::connect(address)
            .tried(format!("connecting to {address:?} (after {:?})", begun.elapsed()))?;
        prepared(socket)
    }

    /// Listens, runs `prepare`, reports that the server is ready, and accepts the only client.
    fn accept<T>(&self, prepare: impl FnOnce() -> T) -> Result<(TcpStream, T), Error> {
        let address = (self.at, PORT);
        let listener = TcpListener::bind(address).tried(format!("binding {address:?}"))?;
        let ready = prepare();
        say_ready()?;
        let (socket, _) = listener.accept().tried("accepting the client")?;
        Ok((prepared(socket)?, ready))
    }
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
        matches!(
            case.test,
            Test::MessageLatency | Test::FirstMessages | Test::MessageBandwidth | Test::Processor
        )
    }

    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        measure(lab, "tcp", &[], case, effort)
    }

    fn note(&self) -> Option<&'static str> {
        Some(
            "tcp: one plain connection, TCP_NODELAY. Latency spins; bulk walks through 512 MiB on both sides and blocks.",
        )
    }
}
