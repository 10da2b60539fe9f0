//! Bytes of a region that an iovec may be filled into.

use super::region::Hold;
use arrayvec::ArrayVec;
use core::ops::Range;
use core::ptr::NonNull;
use oikaze_protocol::limits::FORESEEN_MAX;

/// Checked, writable bytes of a region that stay in place for as long as this lives: where a link
/// may receive payloads that belong there.
///
/// Short-lived, as a [`Gather`](super::Gather): a scope that lent the memory waits for it.
#[derive(Debug)]
pub struct Scatter {
    at: NonNull<u8>,
    len: usize,
    hold: Hold,
}

// SAFETY: the bytes stay valid while the hold lives, on whatever thread; they are reached by raw
// copies (see the module about races).
unsafe impl Send for Scatter {}

impl Scatter {
    /// `len` bytes at `at`, valid and writable while `hold` lives.
    pub(super) fn new(at: NonNull<u8>, len: usize, hold: Hold) -> Scatter {
        Scatter { at, len, hold }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Could a byte of the one be a byte of the other? One memory may be registered twice, and be
    /// at two addresses.
    fn may_overlap(&self, other: &Scatter) -> bool {
        let (here, there) = (self.addresses(), other.addresses());
        (here.start < there.end && there.start < here.end) || self.hold.may_be_also(&other.hold)
    }

    fn addresses(&self) -> Range<usize> {
        let start = self.at.as_ptr().addr();
        start..start + self.len
    }

    /// Address of `len` bytes from `start` on, for an iovec; `None` if they stick out. Not to be
    /// used after this value is gone.
    pub(crate) fn place(&mut self, start: usize, len: usize) -> Option<*mut u8> {
        let inside = start.checked_add(len)? <= self.len;
        // SAFETY: inside the bytes that the hold keeps.
        inside.then(|| unsafe { self.at.as_ptr().add(start) })
    }

    /// The bytes as they are now; `None` if they stick out. A program that writes there meanwhile,
    /// which it may not (MEM-3.3), is in a race with whoever looks, and what was received is found
    /// damaged.
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> Option<&[u8]> {
        let inside = start.checked_add(len)? <= self.len;
        // SAFETY: inside the bytes that the hold keeps; bytes have no invalid values.
        inside.then(|| unsafe { core::slice::from_raw_parts(self.at.as_ptr().add(start), len) })
    }

    /// Copy in, as the kernel would: for links that are none of the kernel's. Nothing happens if
    /// the bytes stick out.
    pub fn fill(&mut self, start: usize, bytes: &[u8]) {
        if let Some(at) = self.place(start, bytes.len()) {
            // SAFETY: `place` has checked that so many bytes are ours to write; who reads there
            // meanwhile is under the rule of `crate::memory` about races.
            unsafe { core::ptr::copy(bytes.as_ptr(), at, bytes.len()) }
        }
    }
}

/// Several of these, counted as one behind the other, no byte in two of them. What is asked for
/// lies in one of them.
#[derive(Debug, Default)]
pub struct Places(ArrayVec<Scatter, FORESEEN_MAX>);

impl Places {
    /// One more; false if there is no room, or if what is received there could overwrite what was
    /// received to one that is here.
    #[must_use]
    pub fn push(&mut self, scatter: Scatter) -> bool {
        !self.0.iter().any(|here| here.may_overlap(&scatter)) && self.0.try_push(scatter).is_ok()
    }

    /// Bytes of all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Scatter::len).sum()
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which, and where in it.
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

    /// Can there be a place in the first of these and then one in the second, of so many bytes at
    /// these offsets?
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
            // One memory by two registrations, and two.
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
