//! Bytes that arrived for memory under live guards and wait until those guards end (COH-3.9).

use std::collections::BTreeMap;
use std::ops::Range;

use oikaze_protocol::limits::PAGE;

/// Waiting bytes of one array, by page. Empty unless the program has a data race.
#[derive(Debug, Default)]
pub(super) struct PendingBytes {
    pages: BTreeMap<usize, Box<PendingPage>>,
}

#[derive(Debug)]
struct PendingPage {
    /// One bit per byte, set if the byte waits.
    waits: [u64; PAGE / 64],
    /// The bytes that arrived.
    arrived: [u8; PAGE],
    /// The bytes that were in memory at that time.
    kept: [u8; PAGE],
}

impl PendingPage {
    fn waits(&self, at: usize) -> bool {
        self.waits[at / 64] & (1 << (at % 64)) != 0
    }
}

impl PendingBytes {
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Stores the byte that arrived for `at`, where memory holds `kept` for now.
    pub fn set(&mut self, at: usize, arrived: u8, kept: u8) {
        let page = self.pages.entry(at / PAGE).or_insert_with(|| {
            Box::new(PendingPage { waits: [0; PAGE / 64], arrived: [0; PAGE], kept: [0; PAGE] })
        });
        let at = at % PAGE;
        page.waits[at / 64] |= 1 << (at % 64);
        page.arrived[at] = arrived;
        page.kept[at] = kept;
    }

    /// Drops the byte at `at`, which is out of date.
    pub fn clear(&mut self, at: usize) {
        let Some(page) = self.pages.get_mut(&(at / PAGE)) else { return };
        page.waits[at % PAGE / 64] &= !(1 << (at % 64));
        if page.waits.iter().all(|word| *word == 0) {
            self.pages.remove(&(at / PAGE));
        }
    }

    /// Returns `true` if any byte of these pages waits.
    pub fn touches(&self, pages: Range<usize>) -> bool {
        self.pages.range(pages).next().is_some()
    }

    /// Copies the waiting bytes into `copy`, a copy of memory from `start` on.
    pub fn overlay(&self, start: usize, copy: &mut [u8]) {
        let end = start + copy.len();
        for (number, page) in self.pages.range(start / PAGE..end.div_ceil(PAGE)) {
            for at in (0..PAGE).filter(|at| page.waits(*at)) {
                let place = (number * PAGE + at).checked_sub(start).and_then(|at| copy.get_mut(at));
                if let Some(place) = place {
                    *place = page.arrived[at];
                }
            }
        }
    }

    /// Removes the bytes for which `is_free` holds. Calls `apply` for each, with its place, the
    /// byte that arrived, and the byte that memory held then.
    pub fn take(&mut self, is_free: impl Fn(usize) -> bool, mut apply: impl FnMut(usize, u8, u8)) {
        self.pages.retain(|number, page| {
            for at in 0..PAGE {
                if page.waits(at) && is_free(number * PAGE + at) {
                    page.waits[at / 64] &= !(1 << (at % 64));
                    apply(number * PAGE + at, page.arrived[at], page.kept[at]);
                }
            }
            page.waits.iter().any(|word| *word != 0)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_until_they_are_free_and_the_last_to_arrive_counts() {
        let mut pending = PendingBytes::default();
        pending.set(10, 1, 0);
        pending.set(10, 2, 0);
        pending.set(PAGE + 3, 7, 5);
        pending.set(PAGE + 4, 9, 0);
        pending.clear(PAGE + 4);
        assert!(pending.touches(0..1) && pending.touches(1..2) && !pending.touches(2..9));
        let mut copy = [0; 8];
        pending.overlay(PAGE - 1, &mut copy);
        assert_eq!(copy, [0, 0, 0, 0, 7, 0, 0, 0]);
        let mut taken = Vec::new();
        pending.take(|at| at < PAGE, |at, arrived, kept| taken.push((at, arrived, kept)));
        assert_eq!(taken, [(10, 2, 0)]);
        pending.take(|_| true, |at, arrived, kept| taken.push((at, arrived, kept)));
        assert_eq!(taken.last(), Some(&(PAGE + 3, 7, 5)));
        assert!(pending.is_empty());
    }
}
