//! One record with bytes of a message's body, from wherever they lie.

use oikaze_os::memory::RegionTable;
use oikaze_os::neighbour::{Full, Part, STEP_BODY, Writer};
use oikaze_protocol::neighbour::Heading;
use oikaze_protocol::rma::{USER_HEAD, read_rows};
use oikaze_protocol::wind::{Body, Rows, Segment};
use std::ops::Range;

/// What became of an attempt to put a record in.
pub(super) enum Put {
    /// It ends at this position.
    Done(u64),
    Full,
    /// Its source is gone.
    Gone,
}

impl Put {
    pub fn of(put: Result<u64, Full>) -> Put {
        put.map_or(Put::Full, Put::Done)
    }

    /// The source could not be read. If it is absent, it is being fetched (MEM-1.12), and the message waits, as for room.
    fn without(absent: bool) -> Put {
        if absent { Put::Full } else { Put::Gone }
    }
}

/// Put in `front`, and this part of the body.
#[inline]
pub(super) fn put(
    heading: Heading,
    front: &[u8],
    body: &Body,
    part: Range<usize>,
    memory: &RegionTable,
    scratch: &mut Vec<u8>,
    writer: &mut Writer,
) -> Put {
    let front = Part::Bytes(front);
    Put::of(match body {
        Body::Segment(segment) => {
            // What goes now must be there, not all of it: that may be longer than memory.
            let (offset, len) = (segment.offset.saturating_add(part.start as u64), part.len() as u64);
            let Some(gather) = memory.gather(Segment { offset, len, ..*segment }) else {
                return Put::without(memory.is_absent(segment.region, offset, len));
            };
            writer.put(heading, &[front, Part::Region(&gather, 0, part.len())])
        }
        Body::Rows(rows) => match packed(scratch, rows, part, memory) {
            Some(bytes) => writer.put(heading, &[front, Part::Bytes(bytes)]),
            None => return Put::without(are_absent(rows, memory)),
        },
        Body::Empty | Body::Short(_) | Body::Inline(_) => {
            writer.put(heading, &[front, Part::Bytes(body.bytes().get(part).unwrap_or_default())])
        }
    })
}

/// Put a user's message in, as a whole.
#[inline]
pub(super) fn put_user(heading: Heading, head: [u8; USER_HEAD], body: &[u8], writer: &mut Writer) -> Result<u64, Full> {
    let mut step = [0; STEP_BODY];
    let (front, rest) = step.split_at_mut(USER_HEAD);
    let Some(room) = rest.get_mut(..body.len()) else {
        return writer.put(heading, &[Part::Bytes(&head), Part::Bytes(body)]);
    };
    // What fits into a step is copied there as one, of known length.
    front.copy_from_slice(&head);
    room.copy_from_slice(body);
    writer.put_step(heading, USER_HEAD + body.len(), &step)
}

/// Bytes of rows, packed. `None`: they cannot be read now.
fn packed<'s>(scratch: &'s mut Vec<u8>, rows: &Rows, part: Range<usize>, memory: &RegionTable) -> Option<&'s [u8]> {
    scratch.resize(part.len().max(scratch.len()), 0);
    let bytes = scratch.get_mut(..part.len())?;
    read_rows(rows, part.start as u64, bytes, memory).then_some(bytes)
}

fn are_absent(rows: &Rows, memory: &RegionTable) -> bool {
    rows.block.hull().is_some_and(|len| memory.is_absent(rows.region, rows.block.offset, len))
}
