//! Reassembly of one fragmented message.

use crate::limits::BODY_RANGES_MAX;
use crate::planted::{Bug, planted};
use crate::wind::ack::ranges::RangeSet;
use crate::wind::send::message::{Class, Head};
use crate::wire::group::Carrier;
use alloc::vec::Vec;
use core::ops::Range;

/// Destination of the bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BodyDestination {
    /// The upper layer places the bytes.
    Place,
    /// The bytes go into this buffer, which grows to the body's length.
    Collect(Vec<u8>),
}

/// Fragmented message whose beginning is known.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Assembly {
    pub class: Class,
    /// Bytes of the body that cost credit, or `None` if the message costs none.
    pub charge: Option<u64>,
    pub head: Head,
    pub len: u64,
    pub destination: BodyDestination,
    /// Whether only group datagrams have told the beginning so far. What the connection says
    /// replaces it (WIND-12.12).
    pub is_begun_by_group: bool,
    /// Whether group datagrams have brought bytes.
    has_group_bytes: bool,
    have: RangeSet,
}

/// Result of processing a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    New,
    Nothing,
    /// The fragment lies beyond the body's end.
    Outside,
    /// There are too many pieces. The fragment must be sent again when the gaps below it are
    /// filled.
    TooScattered,
}

impl Assembly {
    pub fn new(
        class: Class,
        charge: Option<u64>,
        head: Head,
        len: u64,
        destination: BodyDestination,
    ) -> Assembly {
        Assembly {
            class,
            charge,
            head,
            len,
            destination,
            is_begun_by_group: false,
            has_group_bytes: false,
            have: RangeSet::new(),
        }
    }

    /// Notes that a group datagram began the message and brought all bytes so far.
    pub fn begun_by_group(&mut self) {
        (self.is_begun_by_group, self.has_group_bytes) = (true, true);
    }

    pub fn is_whole(&self) -> bool {
        self.have.covers(&(0..self.len))
    }

    /// Returns the first range from `from` on of which nothing has arrived.
    pub fn missing(&self, from: u64) -> Option<Range<u64>> {
        self.have.missing(from..self.len).next()
    }

    /// Processes bytes of the body. Calls `place` once for each range that has not arrived before
    /// (WIRE-3.5, WIND-4.1). In a buffer, bytes of the connection replace those of group datagrams
    /// (WIND-12.12).
    pub fn fill(
        &mut self,
        carrier: Carrier,
        offset: u64,
        bytes: &[u8],
        mut place: impl FnMut(u64, &[u8]),
    ) -> Filled {
        let Some(end) = offset.checked_add(bytes.len() as u64).filter(|end| *end <= self.len)
        else {
            return Filled::Outside;
        };
        let range = offset..end;
        if self.have.pieces() >= BODY_RANGES_MAX
            && self.have.would_add_piece(&range)
            && offset != self.have.first_missing(0)
        {
            return Filled::TooScattered;
        }
        match carrier {
            Carrier::Group => self.has_group_bytes = true,
            Carrier::Connection if self.has_group_bytes => self.replace(&range, bytes),
            Carrier::Connection => {}
        }
        for new in self.have.missing(range.clone()) {
            let Some(part) = part(bytes, offset, &new) else { continue };
            let at = misplaced(new.start);
            match &mut self.destination {
                BodyDestination::Place => place(at, part),
                BodyDestination::Collect(buffer) => copy(buffer, at, part),
            }
        }
        if self.have.insert(range) { Filled::New } else { Filled::Nothing }
    }

    /// Writes bytes over those that a buffer has of this range.
    fn replace(&mut self, range: &Range<u64>, bytes: &[u8]) {
        let BodyDestination::Collect(buffer) = &mut self.destination else { return };
        let filled = usize::try_from(range.start).ok().and_then(|start| buffer.get_mut(start..));
        for (place, byte) in filled.into_iter().flatten().zip(bytes) {
            *place = *byte;
        }
    }
}

/// Returns the part of `bytes` (which begin at `offset`) that is `wanted`.
fn part<'b>(bytes: &'b [u8], offset: u64, wanted: &Range<u64>) -> Option<&'b [u8]> {
    let start = usize::try_from(wanted.start - offset).ok()?;
    let end = usize::try_from(wanted.end - offset).ok()?;
    bytes.get(start..end)
}

/// Copies bytes to their place in a buffer that is as long as the bytes that have arrived so far.
/// Gaps hold zeros until they are filled.
fn copy(buffer: &mut Vec<u8>, at: u64, bytes: &[u8]) {
    let Ok(at) = usize::try_from(at) else { return };
    if at >= buffer.len() {
        buffer.resize(at, 0);
        buffer.extend_from_slice(bytes);
        return;
    }
    if buffer.len() < at + bytes.len() {
        buffer.resize(at + bytes.len(), 0);
    }
    if let Some(place) = buffer.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Returns where a fragment goes: to its own offset, unless the bug is planted.
fn misplaced(offset: u64) -> u64 {
    if planted(Bug::MisplaceFragment) { offset.saturating_sub(1) } else { offset }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    proptest! {
        /// WIRE-3.5: each byte is placed once and in its place, however the pieces overlap.
        #[test]
        fn each_byte_once(len in 1..200u64, pieces in prop::collection::vec((0..220u64, 1..40usize), 1..60)) {
            let source: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let mut assembly = Assembly::new(Class::Unordered, None, Head::new(), len, BodyDestination::Place);
            let mut times = vec![0; len as usize];
            for (offset, size) in pieces {
                let end = offset + size as u64;
                if end > len {
                    prop_assert_eq!(assembly.fill(Carrier::Connection, offset, &vec![0; size], |_, _| panic!()), Filled::Outside);
                    continue;
                }
                assembly.fill(Carrier::Connection, offset, &source[offset as usize..end as usize], |at, bytes| {
                    for (n, byte) in bytes.iter().enumerate() {
                        assert_eq!(*byte, source[at as usize + n]);
                        times[at as usize + n] += 1;
                    }
                });
            }
            prop_assert!(times.iter().all(|n| *n <= 1));
            prop_assert_eq!(assembly.is_whole(), times.iter().all(|n| *n == 1));
        }
    }

    #[test]
    fn scattered_pieces_are_bounded_and_the_lowest_always_get_in() {
        let len = 4 * BODY_RANGES_MAX as u64;
        let mut assembly =
            Assembly::new(Class::Unordered, None, Head::new(), len, BodyDestination::Place);
        for n in 0..BODY_RANGES_MAX as u64 {
            assert_eq!(assembly.fill(Carrier::Connection, 2 * n + 1, &[0], |_, _| {}), Filled::New);
        }
        assert_eq!(
            assembly.fill(Carrier::Connection, len - 1, &[0], |_, _| {}),
            Filled::TooScattered
        );
        assert_eq!(assembly.fill(Carrier::Connection, 0, &[0], |_, _| {}), Filled::New);
    }
}
