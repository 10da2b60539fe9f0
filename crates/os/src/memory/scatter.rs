//! Bytes of a region to be filled by an iovec.

use super::region::Hold;
use arrayvec::ArrayVec;
use core::ops::Range;
use core::ptr::NonNull;
use oikaze_protocol::limits::FORESEEN_MAX;

/// Checked, writable bytes of a region that stay in place for as long as this lives. A link may
/// receive payloads directly into them.
///
/// Keep it only briefly, as a [`Gather`](super::Gather): a scope that lent the memory waits for it.
#[derive(Debug)]
pub struct Scatter {
    at: NonNull<u8>,
    len: usize,
    hold: Hold,
}

// SAFETY: the bytes stay valid while the hold lives, on any thread; they are reached by raw copies
// (see the module about races).
unsafe impl Send for Scatter {}

impl Scatter {
    /// Wraps `len` bytes at `at`, valid and writable while `hold` lives.
    pub(super) fn new(at: NonNull<u8>, len: usize, hold: Hold) -> Scatter {
        Scatter { at, len, hold }
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `true` if the two may share a byte. One memory may be registered twice, and be
    /// mapped at two addresses.
    fn may_overlap(&self, other: &Scatter) -> bool {
        let (here, there) = (self.addresses(), other.addresses());
        (here.start < there.end && there.start < here.end) || self.hold.may_be_also(&other.hold)
    }

    fn addresses(&self) -> Range<usize> {
        let start = self.at.as_ptr().addr();
        start..start + self.len
    }

    /// Returns the address of `len` bytes from `start` on, for an iovec, or `None` if they are not
    /// inside. Not to be used after this value is dropped.
    pub(crate) fn place(&mut self, start: usize, len: usize) -> Option<*mut u8> {
        let inside = start.checked_add(len)? <= self.len;
        // SAFETY: inside the bytes that the hold keeps.
        inside.then(|| unsafe { self.at.as_ptr().add(start) })
    }

    /// Returns the current bytes, or `None` if they are not inside. A program must not write there
    /// meanwhile (MEM-3.3). If the program does, it races with the reader, and the received data is
    /// found damaged.
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> Option<&[u8]> {
        let inside = start.checked_add(len)? <= self.len;
        // SAFETY: inside the bytes that the hold keeps; bytes have no invalid values.
        inside.then(|| unsafe { core::slice::from_raw_parts(self.at.as_ptr().add(start), len) })
    }

    /// Copies bytes in as the kernel would, for links without the kernel. Does nothing if the bytes
    /// are not inside.
    pub fn fill(&mut self, start: usize, bytes: &[u8]) {
        if let Some(at) = self.place(start, bytes.len()) {
            // SAFETY: `place` has checked that these bytes are ours to write; concurrent readers
            // are under the rule of `crate::memory` about races.
            unsafe { core::ptr::copy(bytes.as_ptr(), at, bytes.len()) }
        }
    }
}

/// A sequence of [`Scatter`]s, counted as consecutive, without a common byte. Every range asked for
/// lies in one of them.
#[derive(Debug, Default)]
pub struct Places(ArrayVec<Scatter, FORESEEN_MAX>);

impl Places {
    /// Appends one. Returns `false` if there is no room, or if data received there could overwrite
    /// data received into an earlier one.
    #[must_use]
    pub fn push(&mut self, scatter: Scatter) -> bool {
        !self.0.iter().any(|here| here.may_overlap(&scatter)) && self.0.try_push(scatter).is_ok()
    }

    /// Returns the total length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Scatter::len).sum()
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the index of the scatter that holds `start`, and the offset in it.
    fn find(&self, mut start: usize) -> Option<(usize, usize)> {
        for (index, scatter) in self.0.iter().enumerate() {
            match start.checked_sub(scatter.len()) {
                None => return Some((index, start)),
                Some(beyond) => start = beyond,
            }
        }
        None
    }

    /// As [`Scatter::place`].
    pub(crate) fn place(&mut self, start: usize, len: usize) -> Option<*mut u8> {
        let (index, start) = self.find(start)?;
        self.0.get_mut(index)?.place(start, len)
    }

    /// As [`Scatter::part`].
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> Option<&[u8]> {
        let (index, start) = self.find(start)?;
        self.0.get(index)?.part(start, len)
    }

    /// As [`Scatter::fill`].
    pub fn fill(&mut self, start: usize, bytes: &[u8]) {
        if let Some((index, start)) = self.find(start)
            && let Some(scatter) = self.0.get_mut(index)
        {
            scatter.fill(start, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Region, RegionTable, with_borrowed_mut};
    use super::*;
    use oikaze_protocol::limits::PAGE;
    use oikaze_protocol::wind::Segment;
    use std::os::fd::AsFd;

    /// Returns `true` if ranges of `len` bytes at these offsets, one in each region, can be pushed
    /// together.
    fn together(regions: [&Region; 2], offsets: [u64; 2], len: u64) -> bool {
        let (mut table, mut places) = (RegionTable::new(), Places::default());
        let pushed = regions.into_iter().zip(offsets).map(|(region, offset)| {
            let region = table.insert_local(region.clone()).unwrap();
            places.push(table.scatter(Segment { region, offset, len }).unwrap())
        });
        pushed.collect::<Vec<_>>() == [true, true]
    }

    /// MEM-3.7.
    #[test]
    fn no_byte_is_in_two_places() {
        let (one, other) = (Region::private(PAGE).unwrap(), Region::private(PAGE).unwrap());
        for (offsets, apart) in [
            ([0, 100], true),
            ([100, 0], true),
            ([0, 99], false),
            ([99, 0], false),
            ([7, 7], false),
        ] {
            // Two registrations of one memory, then two memories.
            assert_eq!(together([&one, &one], offsets, 100), apart, "{offsets:?}");
            assert!(together([&one, &other], offsets, 100));
        }
    }

    /// MEM-3.7.
    #[test]
    fn memory_that_may_be_at_two_addresses_has_one_place() {
        let (shared, other) = (Region::shared(PAGE).unwrap(), Region::shared(PAGE).unwrap());
        assert!(together([&shared, &other], [0, 0], 100), "files of their own");
        let mut lent = [0; 300];
        with_borrowed_mut(&mut lent, |lent| {
            assert!(together([lent, lent], [0, 100], 100));
            assert!(together([lent, &Region::private(PAGE).unwrap()], [0, 0], 100));
            assert!(
                !together([lent, &shared], [0, 0], 100),
                "it could be the program's view of that"
            );
            assert!(!together([&shared, lent], [0, 0], 100));
        });
        let file = super::super::memfd::sparse("oikaze-test", PAGE).unwrap();
        let map = || Region::of_file(file.as_fd(), 0, PAGE, true).unwrap();
        let (file, again) = (map(), map());
        assert!(together([&file, &file], [0, 100], 100));
        assert!(!together([&file, &again], [0, 100], 100));
    }
}
