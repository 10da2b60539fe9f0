//! Options of the store's TCP connections for paths that lose packets (WIND-11.4).

use rustix::net::sockopt;
use std::io;
use std::net::TcpStream;
use std::time::Duration;

/// Time without a sign from the other end, while one is due, after which a connection is given up
/// for a new one.
///
/// TCP doubles its timeout with each lost segment, so that a path that loses a third of its packets
/// would stand still for tens of seconds. A new connection begins with a short timeout.
const STALL_TIME: Duration = Duration::from_secs(4);
/// Interval of probes on an idle connection.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Makes an open connection blocking, and lets it notice a stalled path soon.
///
/// # Errors
/// A socket option could not be set.
pub(super) fn apply(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    notice_stalls(stream)
}

/// Sets the options as [`apply`] does, for a connection that is polled.
///
/// # Errors
/// A socket option could not be set.
pub(super) fn notice_stalls(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // Few segments are in flight, so retransmit at a constant interval (tcp(7),
    // Documentation/networking/tcp-thin.rst).
    sockopt::set_tcp_thin_linear_timeouts(stream, true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_user_timeout(
        stream,
        u32::try_from(STALL_TIME.as_millis()).unwrap_or(u32::MAX),
    )?;
    Ok(())
}
