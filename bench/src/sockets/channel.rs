//! A socket between the two hosts of the lab, which polls or sleeps while nothing comes.

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use oikaze_os::net::packet_socket;
use rustix::fd::OwnedFd;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg, sockopt,
};

use super::Protocol;
use crate::error::{Error, Tried};
use crate::lab::{ADDRESSES, CARDS, CLIENT, DEVICES};
use crate::process::say_ready;

const PORT: u16 = 7103;
/// Bytes of a receive buffer that loses no datagram of a burst.
pub const RECEIVE_BUFFER: usize = 64 << 20;
/// Time limit of a receive.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that are read at once to the end of a stream.
const READ: usize = 256 << 10;

/// Connected socket of either protocol.
pub enum Channel {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Packet(Frames),
}

/// Packet socket, and the header of all frames to the other host.
pub struct Frames {
    socket: OwnedFd,
    header: [u8; HEADER],
}

/// Bytes of the header of an Ethernet frame.
const HEADER: usize = 14;
/// Protocol of the frames, of those for experiments (IEEE 802, `ETH_P_802_EX1`).
const ETHER_TYPE: u16 = 0x88b5;

/// Connects one end. A packet socket polls. The server says that it is ready.
///
/// # Errors
/// A socket operation fails.
pub fn connect(protocol: Protocol, host: usize, block: bool) -> Result<Channel, Error> {
    let (mine, other) = (ADDRESSES[host], ADDRESSES[1 - host]);
    let channel = match protocol {
        Protocol::Udp => {
            let socket = UdpSocket::bind((mine, PORT)).tried(format!("binding {mine}:{PORT}"))?;
            socket.connect((other, PORT)).tried(format!("connecting to {other}:{PORT}"))?;
            sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
                .tried("enlarging the receive buffer (needs root)")?;
            if host != CLIENT {
                say_ready()?;
            }
            Channel::Udp(socket)
        }
        Protocol::Packet => {
            let file = format!("/sys/class/net/{}/ifindex", DEVICES[host]);
            let index = std::fs::read_to_string(&file).tried(format!("reading {file}"))?;
            let index = index.trim().parse().map_err(|_| Error::new(format!("{file}: {index}")))?;
            let socket = packet_socket(index, ETHER_TYPE).tried("opening a packet socket")?;
            sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER)
                .tried("enlarging the receive buffer (needs root)")?;
            let mut header = [0; HEADER];
            let ([to, from], [high, low]) =
                ([CARDS[1 - host], CARDS[host]], ETHER_TYPE.to_be_bytes());
            header
                .iter_mut()
                .zip(to.into_iter().chain(from).chain([high, low]))
                .for_each(|(byte, value)| *byte = value);
            if host != CLIENT {
                say_ready()?;
            }
            Channel::Packet(Frames { socket, header })
        }
        Protocol::Tcp if host == CLIENT => {
            Channel::Tcp(TcpStream::connect((other, PORT)).tried("connecting")?)
        }
        Protocol::Tcp => {
            let listener = TcpListener::bind((mine, PORT)).tried(format!("listening on {mine}"))?;
            say_ready()?;
            Channel::Tcp(listener.accept().tried("accepting")?.0)
        }
    };
    channel.prepare(block).tried("setting up the socket")?;
    Ok(channel)
}

impl Channel {
    fn prepare(&self, block: bool) -> std::io::Result<()> {
        match self {
            Channel::Udp(socket) => {
                socket.set_nonblocking(!block)?;
                socket.set_read_timeout(Some(PATIENCE))
            }
            Channel::Packet(_) if block => Err(ErrorKind::Unsupported.into()),
            Channel::Packet(_) => Ok(()),
            Channel::Tcp(socket) => {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(!block)?;
                socket.set_read_timeout(Some(PATIENCE))
            }
        }
    }

    /// Sends all bytes, over UDP as one datagram, and as one frame.
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut done = 0;
        poll("sending", || {
            while done < bytes.len() {
                done += match self {
                    Channel::Udp(socket) => socket.send(bytes)?,
                    Channel::Tcp(socket) => socket.write(&bytes[done..])?,
                    Channel::Packet(Frames { socket, header }) => {
                        let parts = [IoSlice::new(header), IoSlice::new(bytes)];
                        let mut none = SendAncillaryBuffer::default();
                        sendmsg(socket, &parts, &mut none, SendFlags::empty())? - HEADER
                    }
                };
            }
            Ok(())
        })
    }

    /// Fills the buffer, over UDP with one datagram, or with one frame.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Error> {
        let mut done = 0;
        poll("receiving", || {
            while done < buffer.len() {
                done += match self {
                    Channel::Udp(socket) => match socket.recv(buffer)? {
                        len if len == buffer.len() => len,
                        _ => return Err(ErrorKind::InvalidData.into()),
                    },
                    Channel::Packet(Frames { socket, .. }) => {
                        let mut header = [0; HEADER];
                        let whole = HEADER + buffer.len();
                        let parts = [IoSliceMut::new(&mut header), IoSliceMut::new(buffer)];
                        let mut none = RecvAncillaryBuffer::default();
                        let found = recvmsg(socket, &mut { parts }, &mut none, RecvFlags::TRUNC)?;
                        match found.bytes {
                            len if len == whole => len - HEADER,
                            _ => return Err(ErrorKind::InvalidData.into()),
                        }
                    }
                    Channel::Tcp(socket) => match socket.read(&mut buffer[done..])? {
                        0 => return Err(ErrorKind::UnexpectedEof.into()),
                        len => len,
                    },
                };
            }
            Ok(())
        })
    }

    /// Tells the peer that nothing more comes, over TCP.
    pub fn end_sending(&self) -> Result<(), Error> {
        match self {
            Channel::Udp(_) | Channel::Packet(_) => Err(Error::new("only a stream has an end")),
            Channel::Tcp(socket) => socket.shutdown(Shutdown::Write).tried("ending the stream"),
        }
    }

    /// Receives until the peer ends its stream, over TCP.
    pub fn receive_to_end(&mut self) -> Result<(), Error> {
        let Channel::Tcp(socket) = self else { return Err(Error::new("only a stream has an end")) };
        let mut buffer = vec![0; READ];
        poll("receiving", || {
            while socket.read(&mut buffer)? > 0 {}
            Ok(())
        })
    }
}

/// Repeats `step` while the socket has nothing, for a limited time without progress of any kind.
fn poll(what: &str, mut step: impl FnMut() -> std::io::Result<()>) -> Result<(), Error> {
    let (mut idle, mut since) = (0_u32, None);
    loop {
        match step() {
            Ok(()) => return Ok(()),
            Err(why) if why.kind() == ErrorKind::WouldBlock => {
                idle = idle.wrapping_add(1);
                // Reads the clock only now and then.
                if idle.is_multiple_of(4096)
                    && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE
                {
                    return Err(Error::new(format!("{what}: nothing came for {PATIENCE:?}")));
                }
                std::hint::spin_loop();
            }
            Err(why) => return Err(Error::io(what, &why)),
        }
    }
}
