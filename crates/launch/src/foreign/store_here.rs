//! The job's store in this process, which is rank 0.

use crate::JobError;
use crate::listen::{self, Reach};
use crate::store::Server;
use oikaze_os::net::Ports;
use oikaze_os::secrets::secret::Secret;
use std::net::SocketAddr;

/// Address of the store, the job's secret, and in rank 0 the store itself.
pub(super) struct Meeting {
    pub store: String,
    pub secret: Secret,
    pub server: Option<Server>,
}

/// Starts a store at the first free one of these ports. Returns its port, too.
pub(super) fn serve_at(
    ports: &[u16],
    size: u32,
    secret: &Secret,
) -> Result<(Server, u16), JobError> {
    let doing = || match ports {
        [first, .., last] => format!("open a TCP port from {first} to {last} for the job's store"),
        _ => format!("open the TCP port {ports:?} for the job's store"),
    };
    let listener = listen::bind_everywhere(ports).map_err(JobError::system(doing()))?;
    let server = Server::start(listener, size, secret.clone())?;
    let port = server.port();
    Ok((server, port))
}

/// Starts a store, and returns the addresses at which the other nodes reach it.
pub(super) fn open_store(
    ports: Option<Ports>,
    size: u32,
    secret: &Secret,
) -> Result<(Server, Vec<SocketAddr>), JobError> {
    let (listener, addresses) = listen::open_store(ports, Reach::AllHosts)?;
    Ok((Server::start(listener, size, secret.clone())?, addresses))
}
