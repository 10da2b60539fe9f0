//! A checked view of one datagram's bytes.

use crate::bytes::ByteReader;
use crate::limits::HEADER_LEN;
use crate::wire::frame::Frame;
use crate::wire::header::{Flags, Header};

/// Reason why bytes are not a datagram of this protocol. Such bytes are counted and dropped, never
/// answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Shorter than the header says, or than a header.
    #[error("datagram is truncated")]
    Truncated,
    /// Longer than the header says.
    #[error("datagram has bytes beyond its end")]
    Trailing,
    /// A header field has no meaning.
    #[error("datagram header makes no sense")]
    Header,
    /// A frame is cut short, has no meaning, or stands where it may not.
    #[error("frame makes no sense")]
    Frame,
}

/// One datagram whose outer lengths fit together. A [`Seal`](super::Seal) decides whether the tag
/// is right.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    covered: &'a [u8],
    frames: &'a [u8],
    payload: &'a [u8],
    tag: &'a [u8],
}

impl<'a> View<'a> {
    /// Checks header and lengths (WIRE-2.6).
    ///
    /// # Errors
    /// The first mismatch. Nothing else was checked.
    pub fn parse(datagram: &'a [u8]) -> Result<View<'a>, Malformed> {
        if datagram.len() < HEADER_LEN {
            return Err(Malformed::Truncated);
        }
        let header = Header::parse(datagram).map_err(|_| Malformed::Header)?;
        let cut = || Malformed::Truncated;
        let (covered, rest) = datagram
            .split_at_checked(HEADER_LEN + usize::from(header.frames_len))
            .ok_or_else(cut)?;
        let (payload, tag) =
            rest.split_at_checked(usize::from(header.payload_len)).ok_or_else(cut)?;
        let (_, frames) = covered.split_at_checked(HEADER_LEN).ok_or_else(cut)?;
        match tag.len().cmp(&header.seal.tag_len()) {
            core::cmp::Ordering::Less => Err(Malformed::Truncated),
            core::cmp::Ordering::Greater => Err(Malformed::Trailing),
            core::cmp::Ordering::Equal => Ok(View { header, covered, frames, payload, tag }),
        }
    }

    /// Checks a datagram like [`View::parse`], received into three places: the bytes before the
    /// payload, the payload, the tag.
    ///
    /// # Errors
    /// As there, and also if a part is not as long as the header says.
    pub fn parse_parts(
        head: &'a [u8],
        payload: &'a [u8],
        tag: &'a [u8],
    ) -> Result<View<'a>, Malformed> {
        let header = Header::parse(head).map_err(|_| Malformed::Header)?;
        let (_, frames) = head.split_at_checked(HEADER_LEN).ok_or(Malformed::Truncated)?;
        let is = [frames.len(), payload.len(), tag.len()];
        if is
            == [
                usize::from(header.frames_len),
                usize::from(header.payload_len),
                header.seal.tag_len(),
            ]
        {
            Ok(View { header, covered: head, frames, payload, tag })
        } else {
            Err(Malformed::Header)
        }
    }

    /// Returns the fixed header.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns the length of the datagram in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is no datagram of no bytes")]
    pub fn len(&self) -> usize {
        self.covered.len() + self.payload.len() + self.tag.len()
    }

    /// Returns `true` if this is part of a handshake: of connection 0, in all versions (WIRE-6.1).
    /// [`View::sender`] then names the peer.
    #[must_use]
    pub fn is_handshake(&self) -> bool {
        self.header.connection == 0
    }

    /// Returns the rank that this handshake datagram claims to come from, by which the engine finds
    /// the connection. Nothing may be believed before the MAC is verified.
    #[must_use]
    pub fn sender(&self) -> Option<crate::Rank> {
        match self.frames().next()?.ok()? {
            Frame::Hello(hello) => Some(hello.mine.rank),
            Frame::Refuse(refuse) => Some(refuse.rank),
            Frame::Cookie(reply) => Some(reply.rank),
            _ => None,
        }
    }

    /// Returns the frames, each checked when reached (WIRE-3.1).
    #[must_use]
    pub fn frames(&self) -> Frames<'a> {
        Frames {
            rest: ByteReader(self.frames),
            first: true,
            bulk: self.header.flags.has(Flags::BULK),
            handshake: self.header.connection == 0,
        }
    }

    /// Returns the bytes of the bulk frame (WIRE-1.3).
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the tag, which the engine's seal must have written.
    #[must_use]
    pub fn tag(&self) -> &'a [u8] {
        self.tag
    }

    /// Returns header and frames, which every kind of seal covers.
    #[must_use]
    pub fn covered(&self) -> &'a [u8] {
        self.covered
    }
}

/// Walks the frames. It ends after an error.
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    rest: ByteReader<'a>,
    first: bool,
    /// `true` if the datagram is a bulk one.
    bulk: bool,
    handshake: bool,
}

impl<'a> Frames<'a> {
    /// Returns `true` if the frame may stand here. WIRE-3.3: a fragment stands first, exactly in
    /// bulk datagrams. WIRE-3.4: handshake frames stand only in handshake datagrams.
    fn may_stand_here(&self, frame: &Frame<'a>, first: bool) -> bool {
        let fragment = matches!(frame, Frame::Fragment(_));
        fragment == (first && self.bulk) && frame.is_handshake() == self.handshake
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.0.is_empty() {
            return None;
        }
        let first = core::mem::replace(&mut self.first, false);
        match Frame::parse(&mut self.rest) {
            Ok(frame) if self.may_stand_here(&frame, first) => Some(Ok(frame)),
            _ => {
                self.rest = ByteReader(&[]);
                Some(Err(Malformed::Frame))
            }
        }
    }
}
