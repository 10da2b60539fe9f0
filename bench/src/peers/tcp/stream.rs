//! Moves cold memory through one connection, and measures its processor time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use memmap2::MmapMut;

use super::super::ends::Bulk;
use super::charge::Charged;
use crate::error::{Error, Tried};

/// Maximum number of bytes that the receiver reads at once, or the size of a call if that is more.
const READ: usize = 256 << 10;

/// Sends a stream. Returns GB/s and the processor seconds of both sides per GiB.
pub fn send(
    mut socket: TcpStream,
    settings: &Bulk,
    memory: &[u8],
    meter: &Charged,
) -> Result<String, Error> {
    write_through(&mut socket, settings, memory, settings.warm_up())?;
    answer(&mut socket)?;
    let (before, started) = (meter.spent(), Instant::now());
    write_through(&mut socket, settings, memory, settings.volume)?;
    let there = answer(&mut socket)?;
    let seconds = started.elapsed().as_secs_f64();
    let spent = (meter.spent() - before + there).as_secs_f64();
    Ok(settings.line(seconds, spent))
}

fn write_through(
    socket: &mut TcpStream,
    settings: &Bulk,
    memory: &[u8],
    volume: usize,
) -> Result<(), Error> {
    settings.calls(memory, volume).try_for_each(|call| socket.write_all(call).tried("sending"))
}

/// Waits until the receiver has received everything. Returns the processor time that the receiver
/// has spent.
fn answer(socket: &mut TcpStream) -> Result<Duration, Error> {
    let mut nanoseconds = [0; 8];
    socket.read_exact(&mut nanoseconds).tried("hearing from the receiver")?;
    Ok(Duration::from_nanos(u64::from_le_bytes(nanoseconds)))
}

/// Receives twice: the warm-up and the measured volume.
pub fn receive(
    mut socket: TcpStream,
    settings: &Bulk,
    mut memory: MmapMut,
    meter: &Charged,
) -> Result<(), Error> {
    for volume in [settings.warm_up(), settings.volume] {
        let before = meter.spent();
        let (mut left, mut at) = (volume, 0);
        while left > 0 {
            let end = (at + settings.size().max(READ).min(left)).min(memory.len());
            let bytes = socket.read(&mut memory[at..end]).tried("receiving")?;
            if bytes == 0 {
                return Err(Error::new("the sender has closed the connection"));
            }
            left -= bytes;
            at = (at + bytes) % memory.len();
        }
        let spent = u64::try_from((meter.spent() - before).as_nanos()).unwrap_or(u64::MAX);
        socket.write_all(&spent.to_le_bytes()).tried("answering")?;
    }
    Ok(())
}
