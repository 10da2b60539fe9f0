//! Writes one record into a ring, with bytes of a message's body gathered from their source. The
//! format of records is in `oikaze_protocol::shm`.

use oikaze_os::memory::RegionTable;
use oikaze_os::shm::{Full, Part, STEP_BODY, Writer};
use oikaze_protocol::collective::ParcelHead;
use oikaze_protocol::rma::{USER_HEAD, read_rows, user_head};
use oikaze_protocol::shm::{Heading, RecordKind};
use oikaze_protocol::wind::{Body, Class, Rows, Segment};
use std::ops::Range;

/// Result of an attempt to put a record into the ring.
pub(in crate::shm) enum PutOutcome {
    /// The record ends at this position.
    Done(u64),
    Full,
    /// Pages of the source are absent and are being fetched (MEM-1.12). The record waits, as it
    /// waits for room.
    Absent,
    /// The source is no longer registered.
    Gone,
}

impl PutOutcome {
    pub fn of(put: Result<u64, Full>) -> PutOutcome {
        put.map_or(PutOutcome::Full, PutOutcome::Done)
    }

    /// Returns the outcome if the source could not be read.
    fn without(absent: bool) -> PutOutcome {
        if absent { PutOutcome::Absent } else { PutOutcome::Gone }
    }
}

/// Puts `front` and this part of the body into the ring, as one record.
#[inline]
pub(in crate::shm) fn put(
    heading: Heading,
    front: &[u8],
    body: &Body,
    part: Range<usize>,
    memory: &RegionTable,
    scratch: &mut Vec<u8>,
    writer: &mut Writer,
) -> PutOutcome {
    let front = Part::Bytes(front);
    PutOutcome::of(match body {
        Body::Segment(segment) => {
            // Only the part that is written now must be present. The whole source may be larger
            // than this node's memory.
            let (offset, len) =
                (segment.offset.saturating_add(part.start as u64), part.len() as u64);
            let Some(gather) = memory.gather(&Segment { offset, len, ..*segment }) else {
                return PutOutcome::without(memory.is_absent(segment.region, offset, len));
            };
            writer.put(heading, &[front, Part::Region(&gather, 0, part.len())])
        }
        Body::Rows(rows) => match packed(scratch, rows, part, memory) {
            Some(bytes) => writer.put(heading, &[front, Part::Bytes(bytes)]),
            None => return PutOutcome::without(are_absent(rows, memory)),
        },
        Body::Empty | Body::Short(_) | Body::Inline(_) | Body::Shared(_) => {
            writer.put(heading, &[front, Part::Bytes(body.bytes().get(part).unwrap_or_default())])
        }
    })
}

/// Puts a user's message into the ring as a whole.
///
/// A message that fits into a step is stored word by word, from registers. If it were assembled in
/// memory and read back in other pieces, the read would wait until all earlier stores, including
/// the record before this one, have reached the cache. In the case `burst` of the example
/// `fast_path`, sending a message takes 24 ns, and 31 ns by [`Writer::put`].
// Inlined, because a call would save registers in memory, and these stores would wait behind all
// stores to the ring.
#[inline(always)]
pub(in crate::shm) fn put_user(
    class: Class,
    tag: u64,
    body: &[u8],
    writer: &mut Writer,
) -> Result<u64, Full> {
    let len = USER_HEAD + body.len();
    if len > STEP_BODY {
        return put_longer(class, tag, body, writer);
    }
    let [kind, ..] = user_head(tag);
    let (chunks, rest) = body.as_chunks::<8>();
    let words = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).chain([short_word(rest)]);
    // A head of one byte (the kind) precedes the 8 bytes of the tag. Each word of the record
    // therefore begins with the last byte of the previous word.
    let mut last = u64::from(kind);
    let shifted = [tag]
        .into_iter()
        .chain(words)
        .map(|word| std::mem::replace(&mut last, word >> 56) | word << 8);
    writer.put_step(user_heading(class), len, shifted)
}

/// Puts a parcel into the ring as a whole.
pub(in crate::shm) fn put_parcel(
    head: &ParcelHead,
    body: &[u8],
    writer: &mut Writer,
) -> Result<u64, Full> {
    let head = head.encode();
    let heading = Heading {
        kind: RecordKind::Whole,
        class: Class::Unordered,
        head: head.len(),
        len: 0,
        flag: false,
    };
    writer.put(heading, &[Part::Bytes(&head), Part::Bytes(body)])
}

fn user_heading(class: Class) -> Heading {
    Heading { kind: RecordKind::Whole, class, head: USER_HEAD, len: 0, flag: false }
}

/// Puts a user's message that does not fit into a step. Not inlined, so that the heading of a short
/// message need not be in memory.
#[inline(never)]
fn put_longer(class: Class, tag: u64, body: &[u8], writer: &mut Writer) -> Result<u64, Full> {
    writer.put(user_heading(class), &[Part::Bytes(&user_head(tag)), Part::Bytes(body)])
}

/// Returns up to seven bytes as a word. Reads them as two pieces that may overlap.
#[inline]
fn short_word(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u64::from(u32::from_le_bytes(*first))
            | u64::from(u32::from_le_bytes(*last)) << (8 * (len - 4));
    }
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        return u64::from(u16::from_le_bytes(*first))
            | u64::from(u16::from_le_bytes(*last)) << (8 * (len - 2));
    }
    bytes.first().copied().unwrap_or_default().into()
}

/// Returns this part of the rows' bytes, packed. Returns `None` if the rows cannot be read now.
fn packed<'s>(
    scratch: &'s mut Vec<u8>,
    rows: &Rows,
    part: Range<usize>,
    memory: &RegionTable,
) -> Option<&'s [u8]> {
    scratch.resize(part.len().max(scratch.len()), 0);
    let bytes = scratch.get_mut(..part.len())?;
    read_rows(rows, part.start as u64, bytes, memory).then_some(bytes)
}

fn are_absent(rows: &Rows, memory: &RegionTable) -> bool {
    rows.block.hull().is_some_and(|len| memory.is_absent(rows.region, rows.block.offset, len))
}

#[cfg(test)]
mod tests {
    use super::short_word;

    #[test]
    fn short_words_are_of_any_length() {
        let bytes = [0x11, 0xf2, 0x33, 0xe4, 0x55, 0xd6, 0x77];
        for len in 0..=bytes.len() {
            let mut word = [0; 8];
            word[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(short_word(&bytes[..len]), u64::from_le_bytes(word), "{len}");
        }
    }
}
