//! Latency of some bytes there and back on one stream. Both ends spin.

use std::time::Instant;

use quinn::Connection;

use super::super::ends::Exchanges;
use super::endpoint::failed;
use crate::error::Error;
use crate::record::median;

/// Sends first. Returns the median time of one way, in µs.
pub async fn client(connection: &Connection, settings: &Exchanges) -> Result<f64, Error> {
    let (mut send, mut receive) =
        connection.open_bi().await.map_err(|why| failed("opening a stream", &why))?;
    spin();
    let mut buffer = vec![0; settings.size];
    let mut times = Vec::with_capacity(settings.exchanges as usize);
    for _ in 0..settings.exchanges {
        let started = Instant::now();
        send.write_all(&buffer).await.map_err(|why| failed("sending", &why))?;
        receive.read_exact(&mut buffer).await.map_err(|why| failed("receiving", &why))?;
        times.push(started.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    median(&times).ok_or_else(|| Error::new("no exchange was asked for: --exchanges 0"))
}

/// Answers each exchange, until the client closes the connection.
pub async fn server(connection: &Connection, settings: &Exchanges) -> Result<(), Error> {
    let (mut send, mut receive) =
        connection.accept_bi().await.map_err(|why| failed("accepting a stream", &why))?;
    spin();
    let mut buffer = vec![0; settings.size];
    for _ in 0..settings.exchanges {
        receive.read_exact(&mut buffer).await.map_err(|why| failed("receiving", &why))?;
        send.write_all(&buffer).await.map_err(|why| failed("sending", &why))?;
    }
    connection.closed().await;
    Ok(())
}

/// Keeps the runtime from sleeping: a task that is always ready makes it poll the sockets.
fn spin() {
    tokio::spawn(async {
        loop {
            tokio::task::yield_now().await;
        }
    });
}
