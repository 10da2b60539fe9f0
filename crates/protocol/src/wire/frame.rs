//! The frames (WIRE-3, WIRE-4). Each begins `kind u8 | flags u8 | len u16`, where `len` counts the
//! whole frame.

use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::limits::{BULK_FRAME_LEN, HEAD_MAX};
use crate::wind::send::message::Class;
use crate::wire::acknowledge::Acknowledgement;
use crate::wire::group::{Addressees, GroupAcknowledgement};
use crate::wire::hello::{CookieReply, Hello, Refuse};
use crate::wire::prefix::{PREFIX_LEN, kind, put_prefix};
use alloc::vec::Vec;
use arrayvec::ArrayVec;

const MESSAGE_FIXED: usize = 16;
const OPEN_FIXED: usize = 24;
const CREDITED: u8 = 4;

/// A whole message in one frame (WIRE-4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallMessage<'a> {
    /// Number of the message in the connection's one message space.
    pub number: u64,
    /// Message class, which sets its order.
    pub class: Class,
    /// `true` if the message takes of the receiver's credit.
    pub credited: bool,
    /// Head of the upper layer.
    pub head: &'a [u8],
    /// Body of the message.
    pub body: &'a [u8],
}

/// The beginning of a message whose body travels in fragments (WIRE-4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open<'a> {
    /// Number of the message.
    pub number: u64,
    /// Message class, which sets its order.
    pub class: Class,
    /// `true` if the message takes of the receiver's credit.
    pub credited: bool,
    /// Head of the upper layer.
    pub head: &'a [u8],
    /// Length of the whole body in bytes.
    pub len: u64,
}

/// Bytes of a message's body, which are the datagram's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Low half of the message's number.
    pub message_low: u32,
    /// Offset of the bytes in the body.
    pub offset: u64,
}

/// A message that its sender has withdrawn. Its number is done, and nothing is delivered for it
/// (WIRE-4.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdrawal {
    /// Number of the message.
    pub number: u64,
    /// `true` if the sender has charged it against the receiver's credit, which is to be given
    /// back.
    pub charged: bool,
    /// Length of its body in bytes, or 0 if the message costs credit and its body costs none.
    pub len: u64,
}

crate::wire_enum! {
    /// Reason why an end closes the connection (WIRE-4.7).
    #[derive(Default)]
    pub enum CloseReason {
        /// The end leaves.
        #[default]
        Goodbye = 0,
        /// Nothing that the end sent was acknowledged (WIND-7.6).
        NoProgress = 1,
        /// The other end acknowledged, granted or refused something that never existed (WIND-7.8).
        Nonsense = 2,
        /// The end has no datagram numbers left (WIND-7.10).
        NumbersUsedUp = 3,
    }
}

impl core::fmt::Display for CloseReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            CloseReason::Goodbye => "goodbye",
            CloseReason::NoProgress => {
                "it hears this node, but nothing that it sends is acknowledged; something on the way loses one of the two (its own error \
                 says what is stuck)"
            }
            CloseReason::Nonsense => {
                "what it got from this node makes no sense; a datagram was forged or damaged on the way, or the two run different \
                 releases (its own error says which)"
            }
            CloseReason::NumbersUsedUp => {
                "it has no datagram numbers left for the connection, and none is used twice: start the job again"
            }
        })
    }
}

/// One checked frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Frame<'a> {
    /// Request for an acknowledgement, without content (WIRE-4.1).
    Ping,
    /// Acknowledgement of received datagrams.
    Acknowledge(Acknowledgement<'a>),
    /// A whole message.
    Message(SmallMessage<'a>),
    /// Beginning of a message.
    Open(Open<'a>),
    /// Part of a message's body.
    Fragment(Fragment),
    /// Withdrawal of a message.
    Withdraw(Withdrawal),
    /// Goodbye of the peer (WIRE-4.7).
    Close(CloseReason),
    /// Handshake: introduction of the sender, and what it has heard of the receiver.
    Hello(Hello),
    /// Handshake: refusal of a peer that does not fit.
    Refuse(Refuse),
    /// Handshake: demand for a proof that the sender of a HELLO receives at its address.
    Cookie(CookieReply),
    /// Padding, which only adds length.
    Pad,
    /// Addressees of a group datagram (WIRE-4.12).
    Group(Addressees<'a>),
    /// Acknowledgement of received group datagrams (WIRE-4.13).
    GroupAcknowledge(GroupAcknowledgement<'a>),
    /// Number below which the sender has settled all messages (WIRE-4.14).
    Settled(u64),
}

/// Length of a SETTLED frame in bytes.
pub const SETTLED_FRAME_LEN: usize = PREFIX_LEN + 8;

/// Returns the length of a MESSAGE frame in bytes, or `None` if no frame can be that long.
#[must_use]
pub fn message_frame_len(head: usize, body: u64) -> Option<usize> {
    let len = usize::try_from(body).ok()?.checked_add(MESSAGE_FIXED + head)?;
    (len <= usize::from(u16::MAX)).then_some(len)
}

/// Returns the length of an OPEN frame in bytes.
#[must_use]
pub const fn open_frame_len(head: usize) -> usize {
    OPEN_FIXED + head
}

impl<'a> Frame<'a> {
    /// Returns `true` if this frame belongs into handshake datagrams.
    #[must_use]
    pub fn is_handshake(&self) -> bool {
        matches!(self, Frame::Hello(_) | Frame::Refuse(_) | Frame::Cookie(_))
    }

    /// Returns `true` if a datagram with this frame must be acknowledged (WIND-3.1).
    #[must_use]
    pub fn elicits(&self) -> bool {
        !matches!(
            self,
            Frame::Acknowledge(_)
                | Frame::Close(_)
                | Frame::Hello(_)
                | Frame::Refuse(_)
                | Frame::Cookie(_)
                | Frame::Pad
                | Frame::Group(_)
                | Frame::GroupAcknowledge(_)
                | Frame::Settled(_)
        )
    }

    pub(super) fn parse(rest: &mut ByteReader<'a>) -> Result<Frame<'a>, Invalid> {
        let prefix = { *rest }.array::<PREFIX_LEN>()?;
        let mut prefix = ByteReader(&prefix);
        let (kind, flags, len) = (prefix.u8()?, prefix.u8()?, usize::from(prefix.u16()?));
        let mut body = ByteReader(rest.take(len)?);
        body.take(PREFIX_LEN)?;
        let frame = Frame::parse_body(kind, flags, &mut body)?;
        // These may grow at their ends in later versions (WIRE-6.2). All other frames have exactly
        // the length that they name.
        if !matches!(kind, kind::HELLO | kind::REFUSE) {
            body.end()?;
        }
        Ok(frame)
    }

    fn parse_body(kind: u8, flags: u8, body: &mut ByteReader<'a>) -> Result<Frame<'a>, Invalid> {
        match kind {
            kind::MESSAGE => return Frame::parse_message(flags, body),
            kind::OPEN => return Frame::parse_open(flags, body),
            kind::WITHDRAW => {
                if flags & !CREDITED != 0 {
                    return Err(Invalid);
                }
                let charged = flags & CREDITED != 0;
                return Ok(Frame::Withdraw(Withdrawal {
                    charged,
                    number: body.u64()?,
                    len: body.u64()?,
                }));
            }
            kind::HELLO => return Hello::parse(flags, body).map(Frame::Hello),
            kind::CLOSE => return CloseReason::from_code(flags).ok_or(Invalid).map(Frame::Close),
            _ => {}
        }
        if flags != 0 {
            return Err(Invalid);
        }
        match kind {
            kind::PING => Ok(Frame::Ping),
            kind::ACKNOWLEDGE => Acknowledgement::parse(body).map(Frame::Acknowledge),
            kind::FRAGMENT => {
                Ok(Frame::Fragment(Fragment { message_low: body.u32()?, offset: body.u64()? }))
            }
            kind::REFUSE => Refuse::parse(body).map(Frame::Refuse),
            kind::COOKIE => CookieReply::parse(body).map(Frame::Cookie),
            kind::PAD => body.take(body.0.len()).map(|_| Frame::Pad),
            kind::GROUP => Addressees::parse(body).map(Frame::Group),
            kind::GROUP_ACK => {
                let stream = body.u64()?;
                let ack = Acknowledgement::parse(body)?;
                Ok(Frame::GroupAcknowledge(GroupAcknowledgement { stream, ack }))
            }
            kind::SETTLED => body.u64().map(Frame::Settled),
            _ => Err(Invalid),
        }
    }

    fn parse_message(flags: u8, body: &mut ByteReader<'a>) -> Result<Frame<'a>, Invalid> {
        let (class, credited) = class_of(flags)?;
        let fixed = body.array::<{ MESSAGE_FIXED - PREFIX_LEN }>()?;
        let mut fixed = ByteReader(&fixed);
        let number = fixed.u64()?;
        let head = parse_head(&mut fixed, body)?;
        let rest = body.take(body.0.len())?;
        Ok(Frame::Message(SmallMessage { number, class, credited, head, body: rest }))
    }

    fn parse_open(flags: u8, body: &mut ByteReader<'a>) -> Result<Frame<'a>, Invalid> {
        let (class, credited) = class_of(flags)?;
        let fixed = body.array::<{ OPEN_FIXED - PREFIX_LEN }>()?;
        let mut fixed = ByteReader(&fixed);
        let (number, len) = (fixed.u64()?, fixed.u64()?);
        let head = parse_head(&mut fixed, body)?;
        Ok(Frame::Open(Open { number, class, credited, head, len }))
    }
}

/// Reads `head_len u8 | 0 u8[3] | head`. The head is not part of the fixed length.
fn parse_head<'a>(
    fixed: &mut ByteReader<'_>,
    body: &mut ByteReader<'a>,
) -> Result<&'a [u8], Invalid> {
    let len = usize::from(fixed.u8()?);
    fixed.zeros::<3>()?;
    if len > HEAD_MAX { Err(Invalid) } else { body.take(len) }
}

/// Decodes bits 0 and 1 as the class and bit 2 as credited. Other bits are unknown.
fn class_of(flags: u8) -> Result<(Class, bool), Invalid> {
    Ok((Class::from_code(flags & !CREDITED).ok_or(Invalid)?, flags & CREDITED != 0))
}

fn flags_of(class: Class, credited: bool) -> u8 {
    class as u8 | if credited { CREDITED } else { 0 }
}

fn put_head_len(into: &mut impl ByteWriter, head: &[u8]) {
    into.put_u8(u8::try_from(head.len()).unwrap_or(0));
    into.put(&[0; 3]);
}

impl SmallMessage<'_> {
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        let len = message_frame_len(self.head.len(), self.body.len() as u64).unwrap_or(0);
        let mut fixed = ArrayVec::<u8, MESSAGE_FIXED>::new();
        put_prefix(&mut fixed, kind::MESSAGE, flags_of(self.class, self.credited), len);
        fixed.put_u64(self.number);
        put_head_len(&mut fixed, self.head);
        into.put(&fixed);
        into.put(self.head);
        into.put(self.body);
    }
}

impl Open<'_> {
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        put_prefix(
            into,
            kind::OPEN,
            flags_of(self.class, self.credited),
            open_frame_len(self.head.len()),
        );
        into.put_u64(self.number);
        into.put_u64(self.len);
        put_head_len(into, self.head);
        into.put(self.head);
    }
}

impl Fragment {
    pub(super) fn write(&self, into: &mut Vec<u8>) {
        put_prefix(into, kind::FRAGMENT, 0, BULK_FRAME_LEN);
        into.put_u32(self.message_low);
        into.put_u64(self.offset);
    }
}

impl Withdrawal {
    /// Length of the frame in bytes.
    pub const FRAME_LEN: usize = 20;

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        put_prefix(
            into,
            kind::WITHDRAW,
            if self.charged { CREDITED } else { 0 },
            Withdrawal::FRAME_LEN,
        );
        into.put_u64(self.number);
        into.put_u64(self.len);
    }
}
