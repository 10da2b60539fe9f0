//! Connections whose settings suit a link between two hosts without other traffic.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use quinn::{
    ClientConfig, Connection, Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime,
    TransportConfig, VarInt,
};
use rustix::net::sockopt;

use super::keys;
use super::socket::Bounded;
use crate::error::{Error, Tried};
use crate::lab::{ADDRESSES, SERVER};
use crate::process::say_ready;

const PORT: u16 = 7103;
/// Time limit of silence, after which the measurement fails.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of the socket's buffers, which hold more than the windows.
const SOCKET_BUFFER: usize = 64 << 20;
/// Bytes of the headers of IPv4 and UDP.
const HEADERS: u16 = 28;
/// Name that a client of QUIC must give to the server.
const NAME: &str = "bench";

/// Settings that depend on the wire and on what is sent.
#[derive(Clone, Copy)]
pub struct Wire {
    /// MTU in bytes.
    pub mtu: u16,
    /// Bytes in flight at most.
    pub window: u32,
}

impl Wire {
    /// Returns the bytes of a datagram.
    fn datagram(self) -> u16 {
        self.mtu.saturating_sub(HEADERS)
    }
}

/// End of a measurement: its connection, and the endpoint that drives it.
pub struct Linked {
    pub connection: Connection,
    endpoint: Endpoint,
}

impl Linked {
    /// Closes the connection. Returns when the other end has heard of it.
    pub async fn close(self) {
        self.connection.close(VarInt::from_u32(0), b"measured");
        self.endpoint.wait_idle().await;
    }
}

/// Connects to the server.
pub async fn connect(wire: Wire) -> Result<Linked, Error> {
    let mut client = ClientConfig::new(keys::client()?);
    client.transport_config(transport(wire)?);
    let endpoint = endpoint(wire, None, (Ipv4Addr::UNSPECIFIED, 0).into())?;
    let connecting = endpoint.connect_with(client, server_address()?, NAME);
    let connecting = connecting.map_err(|why| failed("connecting", &why))?;
    let connection = connecting.await.map_err(|why| failed("connecting", &why))?;
    Ok(Linked { connection, endpoint })
}

/// Binds, runs `prepare`, reports that the server is ready, and accepts the only client.
pub async fn accept<T>(
    wire: Wire,
    prepare: impl FnOnce() -> Result<T, Error>,
) -> Result<(Linked, T), Error> {
    let mut server = ServerConfig::with_crypto(keys::server()?);
    server.transport_config(transport(wire)?);
    let endpoint = endpoint(wire, Some(server), server_address()?)?;
    let ready = prepare()?;
    say_ready()?;
    let incoming = endpoint.accept().await;
    let incoming = incoming.ok_or_else(|| Error::new("accepting by QUIC: no client came"))?;
    let connection = incoming.await.map_err(|why| failed("accepting", &why))?;
    Ok((Linked { connection, endpoint }, ready))
}

fn server_address() -> Result<SocketAddr, Error> {
    let address = ADDRESSES[SERVER].parse::<Ipv4Addr>();
    let address =
        address.map_err(|why| Error::new(format!("reading {}: {why}", ADDRESSES[SERVER])))?;
    Ok((address, PORT).into())
}

fn endpoint(
    wire: Wire,
    server: Option<ServerConfig>,
    address: SocketAddr,
) -> Result<Endpoint, Error> {
    let socket = UdpSocket::bind(address).tried(format!("binding {address}"))?;
    // Needs root, as the lab does.
    sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER)
        .and_then(|()| sockopt::set_socket_send_buffer_size_force(&socket, SOCKET_BUFFER))
        .tried("enlarging the buffers of a socket")?;
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(wire.datagram()).map_err(|why| failed("setting the MTU", &why))?;
    let runtime = Arc::new(TokioRuntime);
    let inner = runtime.wrap_udp_socket(socket).tried("making a socket of QUIC")?;
    let socket = Arc::new(Bounded { inner, datagram: wire.datagram() });
    let endpoint = Endpoint::new_with_abstract_socket(config, server, socket, runtime);
    endpoint.tried("making an endpoint of QUIC")
}

fn transport(wire: Wire) -> Result<Arc<TransportConfig>, Error> {
    let idle = PATIENCE.try_into().map_err(|why| failed("limiting silence", &why))?;
    let mut transport = TransportConfig::default();
    transport
        .initial_mtu(wire.datagram())
        .min_mtu(wire.datagram())
        .mtu_discovery_config(None)
        .max_idle_timeout(Some(idle))
        .stream_receive_window(VarInt::from_u32(wire.window))
        .receive_window(VarInt::from_u32(wire.window))
        .send_window(u64::from(wire.window));
    Ok(Arc::new(transport))
}

/// Makes the error of a step of QUIC.
pub fn failed(step: &str, why: &impl std::fmt::Display) -> Error {
    Error::new(format!("{step} by QUIC: {why}"))
}
