//! Messages between a node and its server (spec/serve.md): the request for a link, its answer, and
//! the heads of records in the rings between the two.
//!
//! All of it comes from another process's memory or socket, and is checked here.

use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::limits::FLOWS_MAX;
use crate::wind::SendMode;
use crate::wire::Lane;
use alloc::string::String;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Version of what is said. Node and server must have the same one.
pub const VERSION: u8 = 3;
/// Maximum number of addresses of a request.
pub const ADDRESSES_MAX: usize = 4;
/// Maximum length of a request or an answer in bytes.
pub const CONTROL_MESSAGE_MAX: usize = 256;
/// Length of the head of a record in bytes.
pub const HEAD: usize = 32;
/// Maximum length of a datagram in a record, in bytes. A longer one is cut, and the kernel refuses
/// it as too long all the same.
pub const DATAGRAM_MAX: usize = 65_536;

/// Request of a node for a link of its own (SERVE-2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    /// First and last port to try; 0 to 0 means any.
    pub ports: (u16, u16),
    /// Exact port for bulk; 0 means one of `ports`.
    pub bulk_port: u16,
    /// Number of links that are to find room in `ports`.
    pub sharers: u16,
    /// Kernel buffer to ask for in each direction, in bytes.
    pub buffer: u32,
    /// Only the UDP checksum covers the bytes of a datagram.
    pub is_checked_by_udp: bool,
    /// Local addresses to be reached at; none means all. At most [`ADDRESSES_MAX`].
    pub addresses: Vec<IpAddr>,
    /// Mechanisms not to use, as in `OIKAZE_WITHOUT`.
    pub without: String,
}

impl OpenRequest {
    /// Encodes the request.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_u8(VERSION).put_u16(self.ports.0).put_u16(self.ports.1);
        bytes.put_u16(self.bulk_port).put_u16(self.sharers);
        bytes.put_u32(self.buffer).put_u8(self.is_checked_by_udp.into());
        let addresses = self.addresses.get(..ADDRESSES_MAX).unwrap_or(&self.addresses);
        bytes.put_u8(addresses.len() as u8);
        for address in addresses {
            put_address(&mut bytes, &SocketAddr::new(*address, 0));
        }
        bytes.put_prefixed(self.without.as_bytes());
        bytes
    }

    /// Decodes a request.
    ///
    /// # Errors
    /// Another version, or the bytes make no sense.
    pub fn decode(bytes: &[u8]) -> Result<OpenRequest, RequestError> {
        let mut read = ByteReader(bytes);
        match read.u8()? {
            VERSION => Ok(Self::decode_rest(read)?),
            theirs => Err(RequestError::Version { theirs }),
        }
    }

    fn decode_rest(mut read: ByteReader<'_>) -> Result<OpenRequest, Invalid> {
        let ports = (read.u16()?, read.u16()?);
        let (bulk_port, sharers, buffer) = (read.u16()?, read.u16()?, read.u32()?);
        let is_checked_by_udp = read.code(flag)?;
        let count = usize::from(read.u8()?);
        if count > ADDRESSES_MAX {
            return Err(Invalid);
        }
        let addresses = (0..count)
            .map(|_| Ok(read_address(&mut read)?.ip()))
            .collect::<Result<_, Invalid>>()?;
        let without = core::str::from_utf8(read.prefixed()?).map_err(|_| Invalid)?.into();
        read.end()?;
        Ok(OpenRequest { ports, bulk_port, sharers, buffer, is_checked_by_udp, addresses, without })
    }
}

/// Error: a request that the server cannot process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The node has another version of Oikaze.
    #[error(
        "the node speaks version {theirs} to its server, and this server speaks {VERSION}: install one version of Oikaze, and start the server again"
    )]
    Version {
        /// The node's version.
        theirs: u8,
    },
    /// The bytes make no sense.
    #[error("the request makes no sense")]
    Malformed,
}

impl From<Invalid> for RequestError {
    fn from(_: Invalid) -> RequestError {
        RequestError::Malformed
    }
}

/// Answer of the server to a request (SERVE-2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenAnswer {
    /// The link is open. The values are those of the link's properties.
    Opened {
        /// Port of small datagrams.
        port: u16,
        /// Port of bulk, if it has its own.
        bulk_port: Option<u16>,
        /// Number of flows of bulk, at most [`FLOWS_MAX`].
        flows: u8,
        /// Bytes of the largest datagram.
        datagram_max: u32,
        /// Bytes that may wait to be received.
        receive_buffer: u64,
        /// Bytes that each waiting datagram counts for in addition.
        receive_overhead: u32,
    },
    /// There is no link, for this reason.
    Refused(String),
    /// The server does not serve the node's user, for this reason (SERVE-1.2).
    NotServed(String),
}

impl OpenAnswer {
    /// Encodes the answer. A reason is cut to what an answer holds.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            OpenAnswer::Opened {
                port,
                bulk_port,
                flows,
                datagram_max,
                receive_buffer,
                receive_overhead,
            } => {
                bytes.put_u8(1).put_u16(*port).put_u16(bulk_port.unwrap_or(0)).put_u8(*flows);
                bytes.put_u32(*datagram_max).put_u64(*receive_buffer).put_u32(*receive_overhead);
            }
            OpenAnswer::Refused(why) | OpenAnswer::NotServed(why) => {
                let mut end = why.len().min(CONTROL_MESSAGE_MAX - 1);
                while !why.is_char_boundary(end) {
                    end -= 1;
                }
                let code = if matches!(self, OpenAnswer::Refused(_)) { 2 } else { 3 };
                bytes.put_u8(code).put(why.as_bytes().get(..end).unwrap_or_default());
            }
        }
        bytes
    }

    /// Decodes an answer.
    ///
    /// # Errors
    /// The bytes make no sense.
    pub fn decode(bytes: &[u8]) -> Result<OpenAnswer, Invalid> {
        let mut read = ByteReader(bytes);
        match read.u8()? {
            1 => {
                let (port, bulk_port) = (read.u16()?, read.u16()?);
                let answer = OpenAnswer::Opened {
                    port,
                    bulk_port: (bulk_port != 0).then_some(bulk_port),
                    flows: read.code(flow_count)?,
                    datagram_max: read.u32()?,
                    receive_buffer: read.u64()?,
                    receive_overhead: read.u32()?,
                };
                read.end()?;
                Ok(answer)
            }
            2 => Ok(OpenAnswer::Refused(String::from_utf8_lossy(read.0).into())),
            3 => Ok(OpenAnswer::NotServed(String::from_utf8_lossy(read.0).into())),
            _ => Err(Invalid),
        }
    }
}

/// Head of a record from a node to its server. The bytes of a datagram stand behind the head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToServer {
    /// A datagram to be sent.
    Datagram {
        /// Address of the receiver.
        to: SocketAddr,
        /// Lane of the datagram.
        lane: Lane,
        /// Flow of bulk, less than [`FLOWS_MAX`].
        flow: u8,
        /// Fast paths that it may take.
        mode: SendMode,
    },
    /// This peer was silent for long.
    PeerSilent(SocketAddr),
    /// Request for the counters of the link.
    Count,
}

/// Head of a record from a server to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToNode {
    /// A datagram that has arrived. Its bytes stand behind the head.
    Datagram {
        /// Address of the sender.
        from: SocketAddr,
        /// It came with a congestion mark.
        is_congested: bool,
    },
    /// A datagram did not fit its path.
    TooBig {
        /// Address of the receiver.
        to: SocketAddr,
        /// Length of the datagram in bytes.
        tried: u32,
        /// Bytes that fit.
        fits: u32,
    },
    /// A message for the user. Its text stands behind the head.
    Notice,
    /// Counters of the link. They stand behind the head, 8 bytes each.
    Counters {
        /// This answers [`ToServer::Count`].
        is_answer: bool,
    },
}

/// Bytes of an encoded head.
pub type HeadBytes = [u8; HEAD];

impl ToServer {
    /// Encodes the head.
    #[must_use]
    pub fn encode(&self) -> HeadBytes {
        match self {
            ToServer::Datagram { to, lane, flow, mode } => {
                let mode = match mode {
                    SendMode::Any => 0,
                    SendMode::Single => 1,
                    SendMode::Plain => 2,
                };
                head(1, [*lane as u8, mode], Some(to), [u32::from(*flow), 0])
            }
            ToServer::PeerSilent(peer) => head(2, [0; 2], Some(peer), [0; 2]),
            ToServer::Count => head(3, [0; 2], None, [0; 2]),
        }
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// The bytes make no sense (SERVE-3.4).
    pub fn decode(bytes: &HeadBytes) -> Result<ToServer, Invalid> {
        let mut read = ByteReader(bytes);
        let kind = read.u8()?;
        let (first, second) = (read.u8()?, read.u8()?);
        Ok(match kind {
            1 => ToServer::Datagram {
                to: read_address(&mut read)?,
                lane: Lane::from_code(first).ok_or(Invalid)?,
                mode: match second {
                    0 => SendMode::Any,
                    1 => SendMode::Single,
                    2 => SendMode::Plain,
                    _ => return Err(Invalid),
                },
                flow: u8::try_from(read.u32()?).ok().filter(is_flow).ok_or(Invalid)?,
            },
            2 => ToServer::PeerSilent(read_address(&mut read)?),
            3 => ToServer::Count,
            _ => return Err(Invalid),
        })
    }
}

impl ToNode {
    /// Encodes the head.
    #[must_use]
    pub fn encode(&self) -> HeadBytes {
        match self {
            ToNode::Datagram { from, is_congested } => {
                head(1, [u8::from(*is_congested), 0], Some(from), [0; 2])
            }
            ToNode::TooBig { to, tried, fits } => head(2, [0; 2], Some(to), [*tried, *fits]),
            ToNode::Notice => head(3, [0; 2], None, [0; 2]),
            ToNode::Counters { is_answer } => head(4, [u8::from(*is_answer), 0], None, [0; 2]),
        }
    }

    /// Decodes a head.
    ///
    /// # Errors
    /// The bytes make no sense (SERVE-3.4).
    pub fn decode(bytes: &HeadBytes) -> Result<ToNode, Invalid> {
        let mut read = ByteReader(bytes);
        let kind = read.u8()?;
        let (first, _) = (read.u8()?, read.u8()?);
        Ok(match kind {
            1 => ToNode::Datagram {
                from: read_address(&mut read)?,
                is_congested: flag(first).ok_or(Invalid)?,
            },
            2 => ToNode::TooBig {
                to: read_address(&mut read)?,
                tried: read.u32()?,
                fits: read.u32()?,
            },
            3 => ToNode::Notice,
            4 => ToNode::Counters { is_answer: flag(first).ok_or(Invalid)? },
            _ => return Err(Invalid),
        })
    }
}

fn is_flow(flow: &u8) -> bool {
    *flow < FLOWS_MAX
}

fn flow_count(code: u8) -> Option<u8> {
    (1..=FLOWS_MAX).contains(&code).then_some(code)
}

fn flag(code: u8) -> Option<bool> {
    (code <= 1).then_some(code == 1)
}

/// Encodes the fields of a head: kind, two small fields, an address, two numbers.
fn head(kind: u8, small: [u8; 2], address: Option<&SocketAddr>, numbers: [u32; 2]) -> HeadBytes {
    let mut bytes = ArrayVec::<u8, HEAD>::new();
    bytes.put_u8(kind).put(&small);
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    put_address(&mut bytes, address.unwrap_or(&nowhere));
    numbers.iter().for_each(|number| {
        bytes.put_u32(*number);
    });
    let mut head = [0; HEAD];
    head.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    head
}

/// Appends an address: its family (4 or 6), the port, and 16 bytes of which IPv4 has 4.
fn put_address(bytes: &mut impl ByteWriter, address: &SocketAddr) {
    let (family, ip) = match address.ip() {
        IpAddr::V4(ip) => (4, ip.to_ipv6_mapped().octets()),
        IpAddr::V6(ip) => (6, ip.octets()),
    };
    bytes.put_u8(family).put_u16(address.port()).put(&ip);
}

fn read_address(read: &mut ByteReader<'_>) -> Result<SocketAddr, Invalid> {
    let (family, port) = (read.u8()?, read.u16()?);
    let ip = Ipv6Addr::from(read.array::<16>()?);
    let ip = match family {
        4 => IpAddr::V4(ip.to_ipv4_mapped().ok_or(Invalid)?),
        6 => IpAddr::V6(ip),
        _ => return Err(Invalid),
    };
    Ok(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use proptest::prelude::*;

    fn address() -> impl Strategy<Value = SocketAddr> {
        (any::<IpAddr>(), any::<u16>()).prop_map(|(ip, port)| SocketAddr::new(ip, port))
    }

    fn lane() -> impl Strategy<Value = Lane> {
        any::<bool>().prop_map(|bulk| Lane::BOTH[usize::from(bulk)])
    }

    fn mode() -> impl Strategy<Value = SendMode> {
        prop_oneof![Just(SendMode::Any), Just(SendMode::Single), Just(SendMode::Plain)]
    }

    proptest! {
        /// SERVE-3.1.
        #[test]
        fn heads_are_read_as_they_are_written(
            address in address(), lane in lane(), flow in 0..FLOWS_MAX, mode in mode(), is_congested: bool, tried: u32, fits: u32,
        ) {
            for head in [ToServer::Datagram { to: address, lane, flow, mode }, ToServer::PeerSilent(address), ToServer::Count] {
                prop_assert_eq!(ToServer::decode(&head.encode()), Ok(head));
            }
            for head in [
                ToNode::Datagram { from: address, is_congested },
                ToNode::TooBig { to: address, tried, fits },
                ToNode::Notice,
                ToNode::Counters { is_answer: is_congested },
            ] {
                prop_assert_eq!(ToNode::decode(&head.encode()), Ok(head));
            }
        }

        /// SERVE-2.1.
        #[test]
        fn requests_and_answers_are_read_as_they_are_written(
            ports: (u16, u16), bulk_port: u16, sharers: u16, buffer: u32, is_checked_by_udp: bool,
            addresses in proptest::collection::vec(any::<IpAddr>(), 0..=ADDRESSES_MAX),
            without in "[a-z,]{0,120}", port: u16, bulk in 1_u16.., flows in 1..=FLOWS_MAX, sizes: (u32, u64, u32), why in "\\PC{0,400}",
        ) {
            let request =
                OpenRequest { ports, bulk_port, sharers, buffer, is_checked_by_udp, addresses, without };
            prop_assert!(request.encode().len() <= CONTROL_MESSAGE_MAX);
            prop_assert_eq!(OpenRequest::decode(&request.encode()), Ok(request));
            let opened = OpenAnswer::Opened {
                port, bulk_port: Some(bulk), flows, datagram_max: sizes.0, receive_buffer: sizes.1, receive_overhead: sizes.2,
            };
            prop_assert_eq!(OpenAnswer::decode(&opened.encode()), Ok(opened));
            for refusal in [OpenAnswer::Refused(why.clone()), OpenAnswer::NotServed(why.clone())] {
                let refused = refusal.encode();
                prop_assert!(refused.len() <= CONTROL_MESSAGE_MAX);
                let read = OpenAnswer::decode(&refused);
                let (Ok(OpenAnswer::Refused(read_back)) | Ok(OpenAnswer::NotServed(read_back))) = &read else { panic!() };
                prop_assert!(why.starts_with(read_back.as_str()));
                prop_assert_eq!(read.unwrap().encode(), refused);
            }
        }

        /// SERVE-3.4: any bytes are an error or a value.
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..CONTROL_MESSAGE_MAX), head: [u8; HEAD]) {
            let _ = (OpenRequest::decode(&bytes), OpenAnswer::decode(&bytes));
            let _ = (ToServer::decode(&head), ToNode::decode(&head));
        }
    }

    /// SERVE-2.2.
    #[test]
    fn another_version_is_named() {
        let why = OpenRequest::decode(&[VERSION + 1, 0, 0]).unwrap_err();
        assert!(why.to_string().contains("install one version"), "{why}");
        assert_eq!(OpenRequest::decode(&[VERSION]), Err(RequestError::Malformed));
    }
}
