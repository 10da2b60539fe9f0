//! First bytes of every frame (WIRE-3.1).

use crate::bytes::ByteWriter;

/// Length of the prefix in bytes.
pub(super) const PREFIX_LEN: usize = 4;

/// Kinds on the wire (WIRE-3.2).
pub(super) mod kind {
    pub const PING: u8 = 1;
    pub const ACKNOWLEDGE: u8 = 2;
    pub const MESSAGE: u8 = 3;
    pub const OPEN: u8 = 4;
    pub const FRAGMENT: u8 = 5;
    pub const WITHDRAW: u8 = 6;
    pub const CLOSE: u8 = 7;
    pub const HELLO: u8 = 8;
    pub const REFUSE: u8 = 9;
    pub const PAD: u8 = 10;
    pub const COOKIE: u8 = 11;
    pub const GROUP: u8 = 12;
    pub const GROUP_ACK: u8 = 13;
    pub const SETTLED: u8 = 14;
}

/// Writes the prefix of a frame of `len` bytes, prefix included.
pub(super) fn put_prefix(into: &mut impl ByteWriter, kind: u8, flags: u8, len: usize) {
    into.put_u8(kind);
    into.put_u8(flags);
    into.put_u16(u16::try_from(len).unwrap_or(0));
}
