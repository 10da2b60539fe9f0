//! Moves cold memory between two hosts with one copy on each side.
//!
//! Each datagram has a header of 64 bytes, gathered from one place, and a payload directly from the
//! source (GSO: up to 64 datagrams per call). The receiver scatters headers aside and payloads
//! directly to their destination (GRO). It reports its position now and then, and the sender stays
//! within a window of that position. Losses are not repaired.

use std::io::{IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use clap::Args;
use memmap2::MmapMut;
use oikaze_os::checksum::crc32c;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg, sockopt,
};

use crate::error::{Error, Tried};
use crate::peers::memory::touched;

const HEADER: usize = 64;
/// Maximum number of unacknowledged datagrams when a send call begins. With those of the call, up
/// to 192 are in flight. A veth device drops what its ring of 256 cannot hold.
const WINDOW: usize = 128;
const SOCKET_BUFFER: usize = 64 << 20;
/// Maximum number of bytes in one send call.
const CALL_BYTES: usize = 65_000;
/// Maximum number of datagrams in one send call.
const CALL_DATAGRAMS: usize = 64;
/// Number of bytes that are moved before the clock starts.
const WARM_UP: usize = 64 << 20;
/// Time without any datagram after which a floor fails. Losses are not repaired, so one lost
/// datagram ends the floor. The sender touches its memory first, which takes a second on a busy
/// machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// Settings on which both ends must agree.
#[derive(Args)]
pub struct Settings {
    /// Bytes of memory in one datagram.
    #[arg(long, value_parser = clap::value_parser!(u16).range(64..=8192))]
    payload: u16,
    /// Memory to be moved: larger than any cache.
    #[arg(long)]
    mebibytes: usize,
    /// Number of times that the memory is moved. The result is the rate over all of them, as for
    /// the other systems.
    #[arg(long)]
    repetitions: u32,
    /// CRC32C of each payload at both ends.
    #[arg(long)]
    crc: bool,
}

impl Settings {
    fn payload(&self) -> usize {
        self.payload.into()
    }

    fn datagram(&self) -> usize {
        HEADER + self.payload()
    }

    /// Returns the bytes of memory in one call.
    fn burst(&self) -> usize {
        (CALL_BYTES / self.datagram()).min(CALL_DATAGRAMS) * self.payload()
    }

    /// Returns the maximum number of unacknowledged bytes when a send call begins.
    fn window(&self) -> usize {
        WINDOW * self.payload()
    }

    /// Returns the bytes of memory in one repetition, in whole bursts.
    fn total(&self) -> usize {
        ((self.mebibytes << 20) / self.burst()).max(1) * self.burst()
    }

    /// Returns the bytes of memory moved before the clock starts, in whole bursts.
    fn warm_up(&self) -> usize {
        (WARM_UP.min(self.total()) / self.burst()).max(1) * self.burst()
    }

    /// Returns the bytes of each round, of which the first is the warm-up.
    fn rounds(&self) -> impl Iterator<Item = usize> {
        let measured = (0..self.repetitions).map(|_| self.total());
        core::iter::once(self.warm_up()).chain(measured)
    }

    /// Returns touched memory, with room for one more burst.
    pub fn memory(&self) -> Result<MmapMut, Error> {
        touched(self.total() + self.burst()).tried("making memory to walk through")
    }

    fn sum(&self, payload: &[u8]) -> u32 {
        if self.crc { crc32c(0, payload) } else { 0 }
    }
}

fn enlarge(socket: &UdpSocket) -> Result<(), Error> {
    sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER)
        .tried("enlarging the receive buffer (needs root)")?;
    sockopt::set_socket_send_buffer_size_force(socket, SOCKET_BUFFER)
        .tried("enlarging the send buffer (needs root)")
}

/// Sends all rounds. Returns the rate in GB/s.
pub fn send(socket: &UdpSocket, settings: &Settings) -> Result<f64, Error> {
    enlarge(socket)?;
    let datagram =
        u16::try_from(settings.datagram()).map_err(|_| Error::new("the payload is too long"))?;
    oikaze_os::net::floor::send_in_segments(socket.as_fd(), datagram)
        .tried("switching GSO on (Linux 4.18)")?;
    let memory = settings.memory()?;
    let mut headers = [[0; HEADER]; CALL_DATAGRAMS];
    let mut started = Instant::now();
    for (round, total) in settings.rounds().enumerate() {
        if round == 1 {
            started = Instant::now();
        }
        let mut acknowledged = 0;
        for (burst, source) in memory[..total].chunks(settings.burst()).enumerate() {
            let mut slices = Vec::with_capacity(2 * CALL_DATAGRAMS);
            for (header, payload) in headers.iter_mut().zip(source.chunks(settings.payload())) {
                header[..4].copy_from_slice(&settings.sum(payload).to_le_bytes());
                slices.extend([IoSlice::new(header), IoSlice::new(payload)]);
            }
            send_all(socket, &slices)?;
            let sent = (burst + 1) * settings.burst();
            wait_until(socket, &mut acknowledged, sent.saturating_sub(settings.window()))?;
        }
        wait_until(socket, &mut acknowledged, total)?;
    }
    let bytes = f64::from(settings.repetitions) * settings.total() as f64;
    Ok(bytes / started.elapsed().as_secs_f64() / 1e9)
}

fn send_all(socket: &UdpSocket, slices: &[IoSlice<'_>]) -> Result<(), Error> {
    loop {
        match sendmsg(socket, slices, &mut SendAncillaryBuffer::default(), SendFlags::empty()) {
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN) => std::hint::spin_loop(),
            Err(why) => return Err(Error::io("sending", &why.into())),
        }
    }
}

/// Spins until the receiver reports that it has reached `position`.
fn wait_until(socket: &UdpSocket, acknowledged: &mut usize, position: usize) -> Result<(), Error> {
    let mut told = [0; 8];
    let mut patience = Patience::new();
    while *acknowledged < position {
        if socket.recv(&mut told).is_ok() {
            *acknowledged = usize::try_from(u64::from_le_bytes(told)).unwrap_or(usize::MAX);
            patience = Patience::new();
        } else {
            patience.check()?;
        }
    }
    Ok(())
}

/// Receives all rounds into `memory`.
pub fn receive(socket: &UdpSocket, settings: &Settings, mut memory: MmapMut) -> Result<(), Error> {
    enlarge(socket)?;
    oikaze_os::net::floor::receive_joined(socket.as_fd()).tried("switching GRO on (Linux 5.0)")?;
    let mut headers = [[0; HEADER]; CALL_DATAGRAMS];
    for total in settings.rounds() {
        let (mut done, mut told) = (0, 0);
        let mut patience = Patience::new();
        while done < total {
            let received = receive_burst(socket, settings, &mut headers, &mut memory[done..])?;
            if received == 0 {
                patience.check()?;
                continue;
            }
            patience = Patience::new();
            done += received;
            if done - told >= settings.window() / 4 || done >= total {
                told = done;
                socket
                    .send(&(done as u64).to_le_bytes())
                    .tried("telling how far the receiver is")?;
            }
        }
    }
    Ok(())
}

/// Makes one receive call, which puts payloads at the beginning of `into`. Returns the bytes of
/// these payloads; 0 if there was no datagram.
fn receive_burst(
    socket: &UdpSocket,
    settings: &Settings,
    headers: &mut [[u8; HEADER]; CALL_DATAGRAMS],
    into: &mut [u8],
) -> Result<usize, Error> {
    let mut slices = Vec::with_capacity(2 * CALL_DATAGRAMS);
    for (header, payload) in headers
        .iter_mut()
        .zip(into.chunks_exact_mut(settings.payload()))
        .take(settings.burst() / settings.payload())
    {
        slices.extend([IoSliceMut::new(header), IoSliceMut::new(payload)]);
    }
    let bytes = match recvmsg(
        socket,
        &mut slices,
        &mut RecvAncillaryBuffer::default(),
        RecvFlags::DONTWAIT,
    ) {
        Ok(message) => message.bytes,
        Err(Errno::AGAIN) => return Ok(0),
        Err(why) => return Err(Error::io("receiving", &why.into())),
    };
    let datagrams = bytes / settings.datagram();
    if settings.crc {
        for (header, payload) in
            headers.iter().zip(into.chunks_exact(settings.payload())).take(datagrams)
        {
            if header[..4] != settings.sum(payload).to_le_bytes() {
                return Err(Error::new("a payload arrived damaged: its CRC32C is wrong"));
            }
        }
    }
    Ok(datagrams * settings.payload())
}

/// Time limit for an end that spins. It fails if nothing has come for [`PATIENCE`], and reads
/// the clock in few of the polls.
struct Patience {
    since: Instant,
    idle: u32,
}

impl Patience {
    fn new() -> Self {
        Self { since: Instant::now(), idle: 0 }
    }

    fn check(&mut self) -> Result<(), Error> {
        self.idle = self.idle.wrapping_add(1);
        if self.idle.is_multiple_of(4096) && self.since.elapsed() > PATIENCE {
            return Err(Error::new(format!(
                "nothing came for {PATIENCE:?}: a datagram was lost, which a floor does not repair; run it again"
            )));
        }
        std::hint::spin_loop();
        Ok(())
    }
}
