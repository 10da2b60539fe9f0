//! What stands in the rings between two nodes of one machine (spec/memory.md, MEM-16): the same
//! heads and bodies as in Wind's messages, in records, each behind a heading of one word.
//!
//! What a heading says comes from another process's memory: it is judged here, before anything else
//! is read.

use crate::limits::{HEAD_MAX, RECORD_STEP, RING_BYTES};
use crate::wind::Class;

/// Bytes of a heading.
pub const HEADING: usize = 8;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Nothing up to the ring's end; the next record stands at its beginning.
    Skip = 1,
    /// A message: its head, its body.
    Whole = 2,
    /// A message begins that does not fit into one record: the length of its body (u64), its head.
    Begin = 3,
    /// The next bytes of its body; with the last of them it is whole.
    Piece = 4,
    /// The message that has begun is taken back.
    Withdrawn = 5,
    /// Please give me the memory of the region with this key (u64).
    Ask = 6,
    /// The answer: the memory of the region with this key lies in the socket, or cannot be had (see
    /// [`Heading::flag`]).
    Given = 7,
    /// No more messages come.
    Goodbye = 8,
    /// Please exchange pages with me: the question with this number (u64), and my pages, lie in the
    /// socket.
    Swap = 9,
    /// The answer to the question with this number: done, and your new pages lie in the socket, or
    /// not done (see [`Heading::flag`]).
    Swapped = 10,
}

impl Kind {
    fn from_code(code: u8) -> Option<Kind> {
        Some(match code {
            1 => Kind::Skip,
            2 => Kind::Whole,
            3 => Kind::Begin,
            4 => Kind::Piece,
            5 => Kind::Withdrawn,
            6 => Kind::Ask,
            7 => Kind::Given,
            8 => Kind::Goodbye,
            9 => Kind::Swap,
            10 => Kind::Swapped,
            _ => return None,
        })
    }
}

/// A heading, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// What follows.
    pub kind: Kind,
    /// Of [`Kind::Whole`] and [`Kind::Begin`]: the message's class.
    pub class: Class,
    /// Of the same: bytes of its head.
    pub head: usize,
    /// Bytes behind the heading.
    pub len: usize,
    /// Of [`Kind::Given`] and [`Kind::Swapped`]: it was done.
    pub flag: bool,
}

/// A heading that makes no sense: whoever writes the ring is broken, or hostile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record in the memory shared with this local peer makes no sense")]
pub struct Damaged;

impl Heading {
    /// A heading with nothing but its kind and what follows.
    #[must_use]
    pub const fn plain(kind: Kind, len: usize) -> Heading {
        Heading { kind, class: Class::Unordered, head: 0, len, flag: false }
    }

    /// Bytes from this record to the next.
    #[must_use]
    pub const fn stride(&self) -> usize {
        stride(self.len)
    }

    /// As a word, which is never 0: that is what stands where no record is yet (MEM-16.1).
    #[must_use]
    pub const fn encode(&self) -> u64 {
        self.len as u64 & 0xffff_ffff
            | (self.kind as u64) << 32
            | (self.class as u64) << 40
            | (self.head as u64 & 0xff) << 48
            | (self.flag as u64) << 56
    }

    /// Of a word that stands `left` bytes before the ring's end.
    ///
    /// # Errors
    /// It makes no sense, or the record would not end before the ring does (MEM-16.2).
    #[inline]
    pub fn decode(word: u64, left: usize) -> Result<Heading, Damaged> {
        let [a, b, c, d, kind, class, head, flag] = word.to_le_bytes();
        let len = usize::try_from(u32::from_le_bytes([a, b, c, d])).map_err(|_| Damaged)?;
        let kind = Kind::from_code(kind).ok_or(Damaged)?;
        let (head, flag) = (usize::from(head), flag);
        let class = match class {
            0 => Class::Ordered,
            1 => Class::Unordered,
            2 => Class::Sync,
            _ => return Err(Damaged),
        };
        let heading = Heading { kind, class, head, len, flag: flag == 1 };
        let fits = match kind {
            Kind::Skip => HEADING + len == left,
            _ => len <= RING_BYTES && heading.stride() <= left,
        };
        let told = match kind {
            Kind::Whole => head <= HEAD_MAX && head <= len,
            Kind::Begin => head <= HEAD_MAX && len == 8 + head,
            Kind::Piece => len > 0 && head == 0,
            Kind::Ask | Kind::Given | Kind::Swap | Kind::Swapped => len == 8 && head == 0,
            Kind::Skip => head == 0,
            Kind::Withdrawn | Kind::Goodbye => len == 0 && head == 0,
        };
        let plain = matches!(kind, Kind::Whole | Kind::Begin) || class == Class::Unordered;
        let answer = matches!(kind, Kind::Given | Kind::Swapped);
        if fits && told && plain && flag <= u8::from(answer) { Ok(heading) } else { Err(Damaged) }
    }
}

/// Bytes from a record with so many bytes behind its heading to the next one: records begin on
/// cache lines of their own.
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
            |(class, head, body, flag, code)| match Kind::from_code(code) {
                Some(kind @ Kind::Whole) => {
                    Heading { kind, class, head, len: head + body, flag: false }
                }
                Some(kind @ Kind::Begin) => {
                    Heading { kind, class, head, len: 8 + head, flag: false }
                }
                Some(kind @ Kind::Piece) => Heading::plain(kind, body),
                Some(kind @ (Kind::Ask | Kind::Swap)) => Heading::plain(kind, 8),
                Some(kind @ (Kind::Given | Kind::Swapped)) => {
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

        /// MEM-16.2: what is accepted has one encoding, and ends within the ring.
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
        let skip = Heading::plain(Kind::Skip, 56);
        assert_eq!(Heading::decode(skip.encode(), 64), Ok(skip));
        assert_eq!(Heading::decode(skip.encode(), 128), Err(Damaged));
        assert_eq!(Heading::decode(0, 64), Err(Damaged));
    }
}
