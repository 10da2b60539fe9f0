//! Socket whose bursts fit one send by the kernel.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// Largest payload that one send with segmentation offload takes (udp(7)).
const SEND_MAX: usize = 65_507;

/// Socket that quinn gives at most as many datagrams at once as [`SEND_MAX`] holds. quinn gives
/// ten, and with jumbo frames the kernel refuses most of these bursts, which then count as lost.
#[derive(Debug)]
pub struct Bounded {
    pub inner: Arc<dyn AsyncUdpSocket>,
    /// Bytes of a datagram.
    pub datagram: u16,
}

impl AsyncUdpSocket for Bounded {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.inner.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [io::IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.inner.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments().min(SEND_MAX / usize::from(self.datagram).max(1))
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}
