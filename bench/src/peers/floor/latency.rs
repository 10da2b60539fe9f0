//! Latency of one datagram there and one back. Both ends spin.

use std::io;
use std::net::UdpSocket;
use std::time::Instant;

use super::super::ends::Exchanges;
use crate::error::{Error, Tried};
use crate::record::median;

const LARGEST: usize = 65_507;

fn buffer(settings: &Exchanges) -> Result<Vec<u8>, Error> {
    if settings.size > LARGEST {
        return Err(Error::new(format!(
            "a datagram of {} bytes: UDP carries {LARGEST} at most",
            settings.size
        )));
    }
    Ok(vec![0; settings.size])
}

/// Spins until a datagram arrives.
fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Result<(), Error> {
    loop {
        match socket.recv(buffer) {
            Ok(_) => return Ok(()),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(why) => return Err(Error::io("receiving", &why)),
        }
    }
}

/// Sends first. Returns the median time of one way, in µs.
pub fn client(socket: &UdpSocket, settings: &Exchanges) -> Result<f64, Error> {
    let mut buffer = buffer(settings)?;
    let mut times = Vec::with_capacity(settings.exchanges as usize);
    for _ in 0..settings.exchanges {
        let started = Instant::now();
        socket.send(&buffer).tried("sending")?;
        receive(socket, &mut buffer)?;
        times.push(started.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    median(&times).ok_or_else(|| Error::new("no exchange was asked for: --exchanges 0"))
}

/// Answers each datagram.
pub fn server(socket: &UdpSocket, settings: &Exchanges) -> Result<(), Error> {
    let mut buffer = buffer(settings)?;
    for _ in 0..settings.exchanges {
        receive(socket, &mut buffer)?;
        socket.send(&buffer).tried("sending")?;
    }
    Ok(())
}
