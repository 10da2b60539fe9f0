//! Moves cold memory through one stream, and measures its processor time.

use std::time::{Duration, Instant};

use memmap2::MmapMut;
use oikaze_os::cpu::Meter;
use quinn::{Connection, RecvStream, SendStream};

use super::super::ends::Bulk;
use super::endpoint::failed;
use crate::error::Error;

/// Sends a stream. Returns GB/s and the processor seconds of both sides per GiB.
pub async fn send(
    connection: &Connection,
    settings: &Bulk,
    memory: &[u8],
) -> Result<String, Error> {
    let (mut send, mut receive) =
        connection.open_bi().await.map_err(|why| failed("opening a stream", &why))?;
    write_through(&mut send, settings, memory, settings.warm_up()).await?;
    answer(&mut receive).await?;
    let (meter, started) = (Meter::new(), Instant::now());
    let before = meter.spent();
    write_through(&mut send, settings, memory, settings.volume).await?;
    let there = answer(&mut receive).await?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(settings.line(seconds, (meter.spent() - before + there).as_secs_f64()))
}

async fn write_through(
    stream: &mut SendStream,
    settings: &Bulk,
    memory: &[u8],
    volume: usize,
) -> Result<(), Error> {
    for call in settings.calls(memory, volume) {
        stream.write_all(call).await.map_err(|why| failed("sending", &why))?;
    }
    Ok(())
}

/// Waits until the receiver has received everything. Returns the processor time that the receiver
/// has spent.
async fn answer(stream: &mut RecvStream) -> Result<Duration, Error> {
    let mut nanoseconds = [0; 8];
    stream.read_exact(&mut nanoseconds).await.map_err(|why| failed("hearing", &why))?;
    Ok(Duration::from_nanos(u64::from_le_bytes(nanoseconds)))
}

/// Receives twice, the warm-up and the measured volume, until the client closes the connection.
pub async fn receive(
    connection: &Connection,
    settings: &Bulk,
    mut memory: MmapMut,
) -> Result<(), Error> {
    let (mut send, mut receive) =
        connection.accept_bi().await.map_err(|why| failed("accepting a stream", &why))?;
    let meter = Meter::new();
    for volume in [settings.warm_up(), settings.volume] {
        let before = meter.spent();
        let (mut left, mut at) = (volume, 0);
        while left > 0 {
            let end = (at + left).min(memory.len());
            let read = receive.read(&mut memory[at..end]).await;
            let bytes = read.map_err(|why| failed("receiving", &why))?;
            let bytes = bytes.ok_or_else(|| Error::new("the sender has ended the stream"))?;
            left -= bytes;
            at = (at + bytes) % memory.len();
        }
        let spent = u64::try_from((meter.spent() - before).as_nanos()).unwrap_or(u64::MAX);
        send.write_all(&spent.to_le_bytes()).await.map_err(|why| failed("answering", &why))?;
    }
    connection.closed().await;
    Ok(())
}
