//! The ACK frame (WIRE-4.2): ranges of datagram numbers, delay, credit, marks, share, refusals.
//!
//! `largest u64 | credit u64 | delay u32 (ns) | ranges u8 | refusals u8 | lane u8 | 0 u8 | marked
//! u32 | share u32 | below u32 | (gap u32, below u32)* | (number u64, code u8)*`. The first range
//! is `largest - below ..= largest`. Each further range leaves out `gap` ≥ 1 numbers below the one
//! before. Without ranges (when only refusals or credit can be told) `largest` and `below` are 0.

use super::prefix::{PREFIX_LEN, kind, put_prefix};
use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::limits::{ACK_RANGES_MAX, REFUSALS_MAX};
use crate::wind::handler::Refusal;
use crate::wire::header::Lane;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ops::RangeInclusive;

const FIXED: usize = PREFIX_LEN + 8 + 8 + 4 + 4 + 4 + 4;
const FIRST_RANGE: usize = 4;
/// Bytes of the stream's id, which only GROUP_ACK has.
const STREAM: usize = 8;
const RANGE: usize = 8;
const REFUSED: usize = 9;

/// A message that the layer above refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RefusedMessage {
    /// Number of the message.
    pub number: u64,
    /// Reason of the refusal.
    pub refusal: Refusal,
}

/// Fields of an ACK frame besides ranges and refusals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AckFields {
    /// Lane of the datagrams that are acknowledged.
    pub lane: Lane,
    /// Total of all credit ever granted, in bytes.
    pub credit: u64,
    /// Nanoseconds between the arrival of the largest datagram number received and this frame.
    pub delay: u32,
    /// Number of datagrams that came marked CE, modulo 2³² (WIND-9.5).
    pub marked: u32,
    /// Number of bytes that the frame's receiver may have in flight (WIND-9.10).
    pub share: u32,
}

/// A checked ACK frame, in which all ranges and refusals are sound.
#[derive(Clone, Copy, Debug, PartialEq, Hash)]
pub struct Acknowledgement<'a> {
    /// The largest datagram number received.
    pub largest: u64,
    /// Other fields of the frame.
    pub fields: AckFields,
    /// `true` if there is no range, so that nothing is acknowledged.
    none: bool,
    below: u32,
    ranges: &'a [u8],
    refusals: &'a [u8],
}

impl<'a> Acknowledgement<'a> {
    /// Returns the length in bytes of a frame with this many ranges (at least 1) and refusals.
    #[must_use]
    pub const fn frame_len(ranges: usize, refusals: usize) -> usize {
        FIXED + FIRST_RANGE + ranges.saturating_sub(1) * RANGE + refusals * REFUSED
    }

    /// Returns the length in bytes of a GROUP_ACK frame with this many ranges and refusals.
    #[must_use]
    pub const fn group_frame_len(ranges: usize, refusals: usize) -> usize {
        STREAM + Acknowledgement::frame_len(ranges, refusals)
    }

    /// Returns the ranges, largest numbers first, disjoint and not touching.
    #[must_use]
    pub fn ranges(&self) -> RangesDescending<'a> {
        RangesDescending {
            next: (!self.none).then_some((self.largest, self.below)),
            rest: ByteReader(self.ranges),
        }
    }

    /// Returns the messages that were refused.
    #[must_use]
    pub fn refusals(&self) -> RefusalWalk<'a> {
        RefusalWalk(ByteReader(self.refusals))
    }

    /// Returns the same acknowledgement if it has one range of datagrams and no refusals. It then
    /// borrows nothing.
    #[must_use]
    pub fn alone(&self) -> Option<Acknowledgement<'static>> {
        let Acknowledgement { largest, fields, none, below, ranges, refusals } = *self;
        let alone = ranges.is_empty() && refusals.is_empty();
        alone.then_some(Acknowledgement {
            largest,
            fields,
            none,
            below,
            ranges: &[],
            refusals: &[],
        })
    }

    pub(super) fn parse(body: &mut ByteReader<'a>) -> Result<Acknowledgement<'a>, Invalid> {
        let fixed = body.array::<{ FIXED - PREFIX_LEN + FIRST_RANGE }>()?;
        let mut fixed = ByteReader(&fixed);
        let (largest, credit, delay) = (fixed.u64()?, fixed.u64()?, fixed.u32()?);
        let (ranges, refusals) = (usize::from(fixed.u8()?), usize::from(fixed.u8()?));
        let lane = fixed.code(Lane::from_code)?;
        fixed.zeros::<1>()?;
        let (marked, share) = (fixed.u32()?, fixed.u32()?);
        let below = fixed.u32()?;
        let many = ranges > ACK_RANGES_MAX || refusals > REFUSALS_MAX;
        if many || ranges == 0 && (largest > 0 || below > 0) {
            return Err(Invalid);
        }
        let frame = Acknowledgement {
            largest,
            fields: AckFields { lane, credit, delay, marked, share },
            none: ranges == 0,
            below,
            ranges: body.take(ranges.saturating_sub(1) * RANGE)?,
            refusals: body.take(refusals * REFUSED)?,
        };
        // Walk once, so that later readers need not check again.
        let sound = frame.ranges().count() == ranges && frame.refusals().count() == refusals;
        if sound { Ok(frame) } else { Err(Invalid) }
    }

    /// Writes a frame, which is GROUP_ACK if there is a stream. `ranges` are largest first. Ranges
    /// after the first [`ACK_RANGES_MAX`], or too far below, are left out.
    pub(super) fn write(
        into: &mut Vec<u8>,
        stream: Option<u64>,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        fields: AckFields,
        refusals: &[RefusedMessage],
    ) {
        let start = into.len();
        let mut ranges = ranges.take(ACK_RANGES_MAX).peekable();
        let largest = ranges.peek().map_or(0, |range| *range.end());
        let mut fixed = ArrayVec::<u8, { FIXED + STREAM }>::new();
        let kind = if stream.is_some() { kind::GROUP_ACK } else { kind::ACKNOWLEDGE };
        put_prefix(&mut fixed, kind, 0, 0);
        if let Some(stream) = stream {
            fixed.put_u64(stream);
        }
        let counts = start + fixed.len() + 20;
        fixed.put_u64(largest);
        fixed.put_u64(fields.credit);
        fixed.put_u32(fields.delay);
        fixed.put_u32(0);
        fixed.put_u32(fields.marked);
        fixed.put_u32(fields.share);
        into.put(&fixed);
        let mut count: u8 = 0;
        let mut smallest = 0;
        for range in ranges {
            let (low, high) = range.into_inner();
            if count > 0 {
                let Ok(gap) = u32::try_from(smallest - 1 - high) else { break };
                into.put_u32(gap);
            }
            // A run longer than 2^32 is told in part. The sender retransmits the rest, as if lost.
            let below = u32::try_from(high.saturating_sub(low)).unwrap_or(u32::MAX);
            into.put_u32(below);
            smallest = high - u64::from(below);
            count += 1;
        }
        if count == 0 {
            into.put_u32(0);
        }
        let refusals = refusals.get(..REFUSALS_MAX.min(refusals.len())).unwrap_or_default();
        for refused in refusals {
            into.put_u64(refused.number);
            into.put_u8(refused.refusal as u8);
        }
        let len = u16::try_from(into.len() - start).unwrap_or(0);
        patch(into, start + 2, &len.to_le_bytes());
        patch(into, counts, &[count, u8::try_from(refusals.len()).unwrap_or(0), fields.lane as u8]);
    }
}

fn patch(into: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = into.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Walks an acknowledgement's ranges. It stops early at a range that makes no sense.
#[derive(Clone, Debug)]
pub struct RangesDescending<'a> {
    next: Option<(u64, u32)>,
    rest: ByteReader<'a>,
}

impl Iterator for RangesDescending<'_> {
    type Item = RangeInclusive<u64>;

    fn next(&mut self) -> Option<RangeInclusive<u64>> {
        let (high, below) = self.next.take()?;
        let low = high.checked_sub(u64::from(below))?;
        if let (Ok(gap), Ok(below)) = (self.rest.u32(), self.rest.u32()) {
            // gap ≥ 1, because ranges that touch would be one range.
            self.next =
                low.checked_sub(u64::from(gap) + 1).filter(|_| gap > 0).map(|high| (high, below));
        }
        Some(low..=high)
    }
}

/// Walks an acknowledgement's refusals.
#[derive(Clone, Debug)]
pub struct RefusalWalk<'a>(ByteReader<'a>);

impl Iterator for RefusalWalk<'_> {
    type Item = RefusedMessage;

    fn next(&mut self) -> Option<RefusedMessage> {
        let number = self.0.u64().ok()?;
        let refusal = self.0.code(Refusal::from_code).ok()?;
        Some(RefusedMessage { number, refusal })
    }
}
