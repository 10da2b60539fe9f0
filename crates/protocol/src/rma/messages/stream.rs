//! Messages by which a node opens and closes a multicast stream, and their answers (MEM-2.5,
//! WIND-13). They travel as ordinary messages of each member's connection.

use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::limits::GROUP_MEMBERS_MAX;
use crate::rma::messages::kind::MessageKind;
use crate::seal::{CipherKind, StreamSecret};
use crate::wind::{Body, Class, Head, Message, Token};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

crate::wire_enum! {
    /// Reason for which a node takes no part in a stream.
    pub enum StreamRefusal {
        /// The node does not use multicast.
        Off = 1,
        /// The node takes part in too many streams.
        TooMany = 2,
        /// The node could not join the group.
        NoGroup = 3,
        /// The request contradicts itself or the state of the node.
        Contradiction = 4,
    }
}

/// Invitation of one member to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamOffer {
    /// Index of the receiver among the members.
    pub member: u8,
    /// Cipher of the stream. It means nothing if datagrams of the job are not sealed with keys.
    pub cipher: CipherKind,
    /// Address and port of the group.
    pub group: SocketAddr,
    /// Secret of the stream.
    pub secret: StreamSecret,
}

/// Message about a stream of its sender, or the answer to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamStep {
    /// The sender of the message opens a stream, and asks the receiver to take part.
    Open(StreamOffer),
    /// The receiver of the stream has joined the group.
    Joined,
    /// The receiver of the stream takes no part.
    Refused(StreamRefusal),
    /// The sender of the stream sends nothing in it any more.
    Close,
}

/// Codes of the steps.
const OPEN: u8 = 1;
const JOINED: u8 = 2;
const REFUSED: u8 = 3;
const CLOSE: u8 = 4;

impl StreamStep {
    /// Returns the message about the stream with this id. Nobody waits for its outcome.
    #[must_use]
    pub fn message(&self, id: u64) -> Message {
        let mut head = Head::new();
        head.put_u8(MessageKind::Stream as u8);
        let mut body = Body::Empty;
        match self {
            StreamStep::Open(StreamOffer { member, cipher, group, secret }) => {
                let ip = match group.ip() {
                    IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                    IpAddr::V6(v6) => v6,
                };
                head.put_u8(OPEN).put_u64(id).put_u8(*member).put_u8(*cipher as u8);
                head.put_u16(group.port()).put(&ip.octets());
                body = Body::copy_of(secret.expose());
            }
            StreamStep::Joined => drop(head.put_u8(JOINED).put_u64(id)),
            StreamStep::Refused(why) => drop(head.put_u8(REFUSED).put_u64(id).put_u8(*why as u8)),
            StreamStep::Close => drop(head.put_u8(CLOSE).put_u64(id)),
        }
        Message::new(Class::Ordered, head, body, Token::NONE)
    }

    /// Reads a message: the id of the stream, and the step.
    ///
    /// # Errors
    /// It is no such message.
    pub fn read(head: &[u8], body: &[u8]) -> Result<(u64, StreamStep), Invalid> {
        let mut head = ByteReader(head);
        if head.u8()? != MessageKind::Stream as u8 {
            return Err(Invalid);
        }
        let (code, id) = (head.u8()?, head.u64()?);
        let step = match code {
            OPEN => {
                let member = head.u8()?;
                let cipher = head.code(CipherKind::from_code)?;
                let port = head.u16()?;
                let ip = Ipv6Addr::from(head.array::<16>()?).to_canonical();
                let secret = StreamSecret::from_bytes(body.try_into().map_err(|_| Invalid)?);
                if usize::from(member) >= GROUP_MEMBERS_MAX || port == 0 || id == 0 {
                    return Err(Invalid);
                }
                let group = SocketAddr::new(ip, port);
                StreamStep::Open(StreamOffer { member, cipher, group, secret })
            }
            JOINED => StreamStep::Joined,
            REFUSED => StreamStep::Refused(head.code(StreamRefusal::from_code)?),
            CLOSE => StreamStep::Close,
            _ => return Err(Invalid),
        };
        head.end()?;
        if !matches!(step, StreamStep::Open(_)) && !body.is_empty() {
            return Err(Invalid);
        }
        Ok((id, step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rma::kind;
    use alloc::vec::Vec;

    fn steps() -> Vec<StreamStep> {
        let offer = |group: &str| {
            StreamStep::Open(StreamOffer {
                member: 31,
                cipher: CipherKind::ChaCha20Poly1305,
                group: group.parse().unwrap(),
                secret: StreamSecret::from_bytes([5; 32]),
            })
        };
        [
            offer("239.192.3.4:50000"),
            offer("[ff15::77]:65535"),
            StreamStep::Joined,
            StreamStep::Refused(StreamRefusal::NoGroup),
            StreamStep::Close,
        ]
        .into()
    }

    /// MEM-2.5.
    #[test]
    fn what_is_read_is_what_was_written() {
        for step in steps() {
            let message = step.message(0x0102_0304_0506_0708);
            assert_eq!(kind(&message.head), MessageKind::Stream);
            let read = StreamStep::read(&message.head, message.body.bytes());
            assert_eq!(read, Ok((0x0102_0304_0506_0708, step)));
        }
    }

    /// Messages that are cut short, or too long, or of another kind, have no meaning.
    #[test]
    fn what_is_malformed_is_refused() {
        for step in steps() {
            let Message { head, body, .. } = step.message(9);
            for len in 0..head.len() {
                assert_eq!(StreamStep::read(&head[..len], body.bytes()), Err(Invalid));
            }
            let longer: Vec<u8> = head.iter().copied().chain([0]).collect();
            assert_eq!(StreamStep::read(&longer, body.bytes()), Err(Invalid));
            assert_eq!(StreamStep::read(&head, &[body.bytes(), &[0]].concat()), Err(Invalid));
            let mut other = head.clone();
            other[0] = 0x10;
            assert_eq!(StreamStep::read(&other, body.bytes()), Err(Invalid));
            other = head.clone();
            other[1] = 9;
            assert_eq!(StreamStep::read(&other, body.bytes()), Err(Invalid));
        }
        let Message { head, body, .. } = steps()[0].message(9);
        // Member, cipher, port, and no id.
        for (at, bytes) in [(10, &[32][..]), (11, &[3]), (12, &[0, 0]), (2, &[0; 8])] {
            let mut wrong = head.clone();
            wrong[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(StreamStep::read(&wrong, body.bytes()), Err(Invalid), "byte {at}");
        }
    }
}
