//! Floors: the speed of bare UDP on this machine. A floor has no loss recovery, and no
//! acknowledgement beyond a window, so no system that sends by the same sockets and does more can
//! be faster.

mod latency;
mod stream;

use std::net::UdpSocket;

use super::{Effort, Found, System};
use crate::error::{Error, Tried};
use crate::lab::{ADDRESSES, CLIENT, Lab, SERVER};
use crate::process::{own, say_ready};
use crate::suite::case::{Case, Figure, Test};

const PORT: u16 = 7100;
/// Mebibytes of memory that bandwidth is measured over, which no cache holds.
const WALKED: usize = 512;
/// Maximum number of attempts of a floor that loses a datagram.
const ATTEMPTS: u32 = 3;

/// Role of a process in the measurement of a floor: which end it runs, with its settings.
pub type Role = super::ends::Role<stream::Settings>;

/// Runs one end of a measurement.
///
/// # Errors
/// A socket operation fails.
pub fn play(role: &Role) -> Result<(), Error> {
    match role {
        Role::Latency(settings) => println!("{}", latency::client(&connected(CLIENT)?, settings)?),
        Role::LatencyServer(settings) => latency::server(&ready(connected(SERVER)?)?, settings)?,
        Role::Stream(settings) => println!("{}", stream::send(&connected(CLIENT)?, settings)?),
        Role::StreamServer(settings) => {
            let room = settings.memory()?;
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
    say_ready()?;
    Ok(socket)
}

/// Bare UDP as a measured system.
pub struct Floor {
    /// Set if both ends compute a CRC32C of each payload, as for Oikaze's datagrams.
    pub checked: bool,
}

impl System for Floor {
    fn name(&self) -> &'static str {
        if self.checked { "floor-udp-crc" } else { "floor-udp" }
    }

    fn present(&self) -> Result<(), Error> {
        Ok(())
    }

    fn has(&self, case: Case) -> bool {
        match case.test {
            Test::MessageLatency | Test::FirstMessages | Test::PutLatency => !self.checked,
            Test::PutBandwidth => true,
            // Bare UDP sends one message per datagram, which gives no rate to compare with. It has
            // no completions, no mixed traffic and no remote memory.
            _ => false,
        }
    }

    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        let exchange = || latency(lab, case.size, effort.exchanges_of(case.test));
        let (figure, value) = match case.test {
            Test::MessageLatency => (Figure::MessageLat, exchange()?),
            Test::FirstMessages => (Figure::FirstLat, exchange()?),
            Test::PutLatency => (Figure::PutLat, exchange()?),
            _ => (Figure::PutBw, bandwidth(lab, effort, self.checked)?),
        };
        Ok(vec![(figure, value)])
    }

    fn note(&self) -> Option<&'static str> {
        (!self.checked).then_some(
            "floor-udp, floor-udp-crc: bare UDP, nothing repaired; bandwidth over 512 MiB of memory walked through, as often as \
             Oikaze walks through it, whatever the size of a put.",
        )
    }
}

fn run(lab: &Lab, role: &str, arguments: &[String]) -> Result<f64, Error> {
    let printed = own(lab, "floor", role, arguments)?;
    printed.parse().map_err(|_| {
        Error::new(format!("floor {role} printed {printed:?} where a number was expected"))
    })
}

/// Returns the one-way latency of `size` bytes, in µs.
fn latency(lab: &Lab, size: usize, exchanges: u32) -> Result<f64, Error> {
    run(
        lab,
        "latency",
        &["--size".into(), size.to_string(), "--exchanges".into(), exchanges.to_string()],
    )
}

/// Returns the rate at which cold memory is moved, in GB/s. With `crc`, both ends compute each
/// datagram's CRC32C.
fn bandwidth(lab: &Lab, effort: Effort, crc: bool) -> Result<f64, Error> {
    let payload = if lab.place.mtu() >= 9000 { "8192" } else { "1366" };
    let mut arguments: Vec<String> =
        ["--payload", payload, "--mebibytes", &WALKED.to_string(), "--repetitions"]
            .map(str::to_owned)
            .into();
    arguments.push((effort.volume / (WALKED << 20)).max(1).to_string());
    arguments.extend(crc.then(|| "--crc".to_owned()));
    // A busy machine may drop a datagram in the kernel's backlog, and a floor does not retransmit.
    let mut attempt = run(lab, "stream", &arguments);
    for _ in 1..ATTEMPTS {
        attempt = attempt.or_else(|_| run(lab, "stream", &arguments));
    }
    attempt
}
