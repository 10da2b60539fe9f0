//! Latency of some bytes there and back. Both ends spin.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use super::super::ends::Exchanges;
use super::PATIENCE;
use crate::error::{Error, Tried};
use crate::record::median;

/// Sends first. Returns the median time of one way, in µs.
pub fn client(mut socket: TcpStream, settings: &Exchanges) -> Result<f64, Error> {
    prepare(&socket)?;
    let mut buffer = vec![0; settings.size];
    let mut times = Vec::with_capacity(settings.exchanges as usize);
    for _ in 0..settings.exchanges {
        let started = Instant::now();
        send(&mut socket, &buffer)?;
        receive(&mut socket, &mut buffer)?;
        times.push(started.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    median(&times).ok_or_else(|| Error::new("no exchange was asked for: --exchanges 0"))
}

/// Answers each exchange.
pub fn server(mut socket: TcpStream, settings: &Exchanges) -> Result<(), Error> {
    prepare(&socket)?;
    let mut buffer = vec![0; settings.size];
    for _ in 0..settings.exchanges {
        receive(&mut socket, &mut buffer)?;
        send(&mut socket, &buffer)?;
    }
    Ok(())
}

fn prepare(socket: &TcpStream) -> Result<(), Error> {
    socket.set_nonblocking(true).tried("setting the socket non-blocking")
}

/// Spins until all bytes are sent.
fn send(socket: &mut TcpStream, bytes: &[u8]) -> Result<(), Error> {
    spin(bytes.len(), |done| socket.write(&bytes[done..]))
}

/// Spins until all bytes have arrived.
fn receive(socket: &mut TcpStream, bytes: &mut [u8]) -> Result<(), Error> {
    spin(bytes.len(), |done| socket.read(&mut bytes[done..]))
}

/// Repeats `step` with the number of finished bytes, until `len` bytes are done.
fn spin(len: usize, mut step: impl FnMut(usize) -> std::io::Result<usize>) -> Result<(), Error> {
    let (mut done, mut idle) = (0, 0_u32);
    let mut since = None;
    while done < len {
        match step(done) {
            Ok(0) => return Err(Error::new("the other end has closed the connection")),
            Ok(bytes) => done += bytes,
            Err(why) if why.kind() == ErrorKind::WouldBlock => {
                idle = idle.wrapping_add(1);
                // Reads the clock only now and then.
                if idle.is_multiple_of(4096)
                    && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE
                {
                    return Err(Error::new(format!("nothing came for {PATIENCE:?}")));
                }
                std::hint::spin_loop();
            }
            Err(why) => return Err(Error::io("exchanging bytes", &why)),
        }
    }
    Ok(())
}
