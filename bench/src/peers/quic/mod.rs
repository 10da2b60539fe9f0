//! QUIC (RFC 9000) by the crate `quinn`, one connection with one stream, sealed by AES-128-GCM of
//! `ring`, as Oikaze's datagrams are.

mod endpoint;
mod keys;
mod latency;
mod socket;
mod stream;

use std::future::Future;

use clap::Args;

use self::endpoint::{Wire, accept, connect};
use super::ends::{Bulk, Role, measure};
use super::{Effort, Found, System};
use crate::error::{Error, Tried};
use crate::lab::Lab;
use crate::suite::case::{Case, Test};

/// Bytes in flight of bulk. With fewer, quinn waits for acknowledgements.
const BULK_WINDOW: u32 = 16 << 20;
/// Bytes in flight of small messages. quinn walks through all writes in flight for each datagram,
/// so many more of them would slow it down.
const RATE_WINDOW: u32 = 8 << 10;

/// One end of a QUIC measurement.
#[derive(Args)]
pub struct End {
    /// MTU of the wire.
    #[arg(long, global = true, default_value_t = 1500, value_parser = clap::value_parser!(u16).range(1280..))]
    mtu: u16,
    /// Bytes in flight at most.
    #[arg(long, global = true, default_value_t = BULK_WINDOW)]
    window: u32,
    #[command(subcommand)]
    role: Role<Bulk>,
}

impl End {
    fn wire(&self) -> Wire {
        Wire { mtu: self.mtu, window: self.window }
    }
}

/// Runs one end of a measurement.
///
/// # Errors
/// A socket operation fails, or the connection ends.
pub fn play(end: &End) -> Result<(), Error> {
    match &end.role {
        Role::Latency(settings) => run(async {
            let linked = connect(end.wire()).await?;
            println!("{}", latency::client(&linked.connection, settings).await?);
            linked.close().await;
            Ok(())
        }),
        Role::LatencyServer(settings) => run(async {
            let (linked, ()) = accept(end.wire(), || Ok(())).await?;
            latency::server(&linked.connection, settings).await
        }),
        Role::Stream(settings) => run(async {
            let memory = settings.memory()?;
            let linked = connect(end.wire()).await?;
            println!("{}", stream::send(&linked.connection, settings, &memory).await?);
            linked.close().await;
            Ok(())
        }),
        Role::StreamServer(settings) => run(async {
            let (linked, memory) = accept(end.wire(), || settings.memory()).await?;
            stream::receive(&linked.connection, settings, memory).await
        }),
    }
}

/// Runs one end on this thread, as each host has one core.
fn run(end: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.tried("starting the runtime of quinn")?.block_on(end)
}

/// QUIC as a measured system.
pub struct Quic;

impl System for Quic {
    fn name(&self) -> &'static str {
        "quic"
    }

    fn present(&self) -> Result<(), Error> {
        Ok(())
    }

    fn has(&self, case: Case) -> bool {
        matches!(
            case.test,
            Test::MessageLatency | Test::MessageBandwidth | Test::MessageRate | Test::Processor
        )
    }

    fn measure(&self, lab: &Lab, case: Case, effort: Effort) -> Result<Found, Error> {
        let mtu = lab.place.mtu().to_string();
        let is_small = case.test == Test::MessageRate;
        let window = if is_small { RATE_WINDOW } else { BULK_WINDOW }.to_string();
        measure(lab, "quic", &["--mtu", &mtu, "--window", &window], case, effort)
    }

    fn note(&self) -> Option<&'static str> {
        Some(
            "quic: quinn with rustls and ring, AES-128-GCM, one stream, datagrams as large as the MTU, segmentation offload, \
             windows that lose nothing. Latency spins; rate is 8 B writes, of which many share a datagram.",
        )
    }
}
