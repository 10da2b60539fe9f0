//! Records in the rings between two nodes of one machine (spec/memory.md, MEM-16). They hold the
//! same heads and bodies as Wind's messages, each behind a heading of one word.
//!
//! A heading comes from another process's memory. It is checked here before anything else is read.

use crate::limits::{HEAD_MAX, RECORD_STEP, RING_BYTES};
use crate::wind::Class;

/// Length of a heading in bytes.
pub const HEADING: usize = 8;

crate::wire_enum! {
    /// Kind of a record.
    pub enum RecordKind {
        /// Unused bytes up to the ring's end. The next record stands at the ring's beginning.
        Skip = 1,
        /// A whole message: head, body.
        Whole = 2,
        /// Beginning of a message that does not fit into one record: length of its body (u64),
        /// head.
        Begin = 3,
        /// Next bytes of the body. The last piece completes the message.
        Piece = 4,
        /// Withdrawal of the message that has begun.
        Withdrawn = 5,
        /// Request for the memory of the region with this key (u64).
        Ask = 6,
        /// Answer to [`RecordKind::Ask`] with the region's key. The memory lies in the socket, or
        /// is not available (see [`Heading::flag`]).
        Given = 7,
        /// End of messages.
        Goodbye = 8,
        /// Request to exchange pages, with a number (u64). The requester's pages lie in the socket.
        Swap = 9,
        /// Answer to the request with this number. It is done, and the new pages lie in the socket,
        /// or it is not done (see [`Heading::flag`]).
        Swapped = 10,
    }
}

/// A decoded heading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// Kind of the record.
    pub kind: RecordKind,
    /// Message class, for [`RecordKind::Whole`] and [`RecordKind::Begin`].
    pub class: Class,
    /// Length of the head in bytes, for the same kinds.
    pub head: usize,
    /// Number of bytes behind the heading.
    pub len: usize,
    /// `true` if it was done, for [`RecordKind::Given`] and [`RecordKind::Swapped`].
    pub flag: bool,
}

/// A malformed heading. The writer of the ring is broken, or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record in the memory shared with this local peer makes no sense")]
pub struct Damaged;

impl Heading {
    /// Creates a heading with only a kind and a length.
    #[must_use]
    pub const fn plain(kind: RecordKind, len: usize) -> Heading {
        Heading { kind, class: Class::Unordered, head: 0, len, flag: false }
    }

    /// Returns the number of bytes from this record to the next.
    #[must_use]
    pub const fn stride(&self) -> usize {
        stride(self.len)
    }

    /// Encodes the heading as a word. It is never 0, which stands where no record is yet
    /// (MEM-16.1).
    #[must_use]
    pub const fn encode(&self) -> u64 {
        self.len as u64 & 0xffff_ffff
            | (self.kind as u64) << 32
            | (self.class as u64) << 40
            | (self.head as u64 & 0xff) << 48
            | (self.flag as u64) << 56
    }

    /// Decodes a word that stands `left` bytes before the ring's end.
    ///
    /// # Errors
    /// The word makes no sense, or the record would not end before the ring does (MEM-16.2).
    #[inline]
    pub fn decode(word: u64, left: usize) -> Result<Heading, Damaged> {
        let [a, b, c, d, kind, class, head, flag] = word.to_le_bytes();
        let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).map_err(|_| Damaged)?;
        let kind = RecordKind::from_code(kind).ok_or(Damaged)?;
        let class = Class::from_code(class).ok_or(Damaged)?;
        let head = usize::from(head);
        let heading = Heading { kind, class, head, len, flag: flag == 1 };
        let fits = match kind {
            RecordKind::Skip => HEADING + len == left,
            _ => len <= RING_BYTES && heading.stride() <= left,
        };
        let is_valid = match kind {
            RecordKind::Whole => head <= HEAD_MAX && head <= len,
            RecordKind::Begin => head <= HEAD_MAX && len == 8 + head,
            RecordKind::Piece => len > 0 && head == 0,
            RecordKind::Ask | RecordKind::Given | RecordKind::Swap | RecordKind::Swapped => {
                len == 8 && head == 0
            }
            RecordKind::Skip => head == 0,
            RecordKind::Withdrawn | RecordKind::Goodbye => len == 0 && head == 0,
        };
        let plain =
            matches!(kind, RecordKind::Whole | RecordKind::Begin) || class == Class::Unordered;
        let answer = matches!(kind, RecordKind::Given | RecordKind::Swapped);
        if fits && is_valid && plain && flag <= u8::from(answer) {
            Ok(heading)
        } else {
            Err(Damaged)
        }
    }
}

/// Returns the number of bytes from a record to the next one, for `len` bytes behind its heading.
/// Records begin on cache lines of their own.
#[must_use]
pub const fn stride(len: usize) -> usize {
    (HEADING + len).next_multiple_of(RECORD_STEP)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn heading() -> impl Strategy<Value = Heading> {
        let class = prop_oneof![Just(Class::Ordered), Just(Class::Unordered), Just(Class::Sync)];
        (class, 0..=HEAD_MAX, 1..40_000usize, any::<bool>(), 2..=10u8).prop_map(
            |(class, head, body, flag, code)| match RecordKind::from_code(code) {
                Some(kind @ RecordKind::Whole) => {
                    Heading { kind, class, head, len: head + body, flag: false }
                }
                Some(kind @ RecordKind::Begin) => {
                    Heading { kind, class, head, len: 8 + head, flag: false }
                }
                Some(kind @ RecordKind::Piece) => Heading::plain(kind, body),
                Some(kind @ (RecordKind::Ask | RecordKind::Swap)) => Heading::plain(kind, 8),
                Some(kind @ (RecordKind::Given | RecordKind::Swapped)) => {
                    Heading { flag, ..Heading::plain(kind, 8) }
                }
                Some(kind) => Heading::plain(kind, 0),
                None => unreachable!("2 to 10 are kinds"),
            },
        )
    }

    proptest! {
        /// MEM-16.1.
        #[test]
        fn what_is_written_is_read(heading in heading(), more in 0..1000usize) {
            let word = heading.encode();
            prop_assert_ne!(word, 0);
            prop_assert_eq!(Heading::decode(word, heading.stride() + more), Ok(heading));
            prop_assert_eq!(Heading::decode(word, heading.stride() - 1), Err(Damaged));
        }

        /// MEM-16.2: every accepted word has one encoding, and its record ends within the ring.
        #[test]
        fn any_word_is_judged(word in any::<u64>(), near in 0..11u64, left in 8..RING_BYTES) {
            for word in [word, word & 0xff01_ff03_0000_ffff | near << 32] {
                if let Ok(heading) = Heading::decode(word, left) {
                    prop_assert_eq!(heading.encode(), word);
                    prop_assert!(HEADING + heading.len <= left && heading.head <= heading.len);
                }
            }
        }
    }

    #[test]
    fn a_skip_ends_with_the_ring() {
        let skip = Heading::plain(RecordKind::Skip, 56);
        assert_eq!(Heading::decode(skip.encode(), 64), Ok(skip));
        assert_eq!(Heading::decode(skip.encode(), 128), Err(Damaged));
        assert_eq!(Heading::decode(0, 64), Err(Damaged));
    }
}
