//! Moves cold memory through one connection, and measures its processor time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use clap::Args;
use memmap2::MmapMut;
use oikaze_os::cpu::Meter;

use crate::error::{Error, Tried};
use crate::peers::memory::touched;

/// Bytes of memory on both sides that a stream walks through, which no cache holds.
const COLD: usize = 512 << 20;
/// Bytes that are moved before the clock starts, so that the congestion window opens. A smaller
/// volume is warmed up with a quarter of its bytes.
const WARM_UP: usize = 64 << 20;

/// Maximum number of bytes that the receiver reads at once, or the size of a call if that is more.
const READ: usize = 256 << 10;

/// Settings on which both ends must agree.
#[derive(Args)]
pub struct Settings {
    /// Bytes of a call.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    size: u64,
    /// Bytes to be moved.
    #[arg(long)]
    volume: usize,
}

impl Settings {
    fn size(&self) -> usize {
        usize::try_from(self.size).unwrap_or(COLD).min(COLD)
    }

    /// Returns memory for a whole number of calls, with every page touched.
    pub fn memory(&self) -> Result<MmapMut, Error> {
        touched(COLD / self.size() * self.size()).tried("making memory to walk through")
    }

    fn warm_up(&self) -> usize {
        WARM_UP.min(self.volume / 4)
    }
}

/// Sends a stream. Returns GB/s and the processor seconds of both sides per GiB.
pub fn send(mut socket: TcpStream, settings: &Settings, memory: &[u8]) -> Result<String, Error> {
    write_through(&mut socket, settings, memory, settings.warm_up())?;
    answer(&mut socket)?;
    let (meter, started) = (Meter::new(), Instant::now());
    let before = meter.spent();
    write_through(&mut socket, settings, memory, settings.volume)?;
    let there = answer(&mut socket)?;
    let seconds = started.elapsed().as_secs_f64();
    let spent = (meter.spent() - before + there).as_secs_f64();
    let bytes = settings.volume as f64;
    Ok(format!("{} {}", bytes / seconds / 1e9, spent / (bytes / f64::from(1 << 30))))
}

fn write_through(
    socket: &mut TcpStream,
    settings: &Settings,
    memory: &[u8],
    volume: usize,
) -> Result<(), Error> {
    let mut left = volume;
    for chunk in memory.chunks(settings.size()).cycle() {
        let part = chunk.len().min(left);
        socket.write_all(&chunk[..part]).tried("sending")?;
        left -= part;
        if left == 0 {
            return Ok(());
        }
    }
    Ok(())
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
    settings: &Settings,
    mut memory: MmapMut,
) -> Result<(), Error> {
    let meter = Meter::new();
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
