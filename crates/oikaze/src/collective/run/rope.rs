//! Work buffers as ropes: pieces that were received, or are to be sent, where they are.
//!
//! A collective that combines nothing only moves bytes. In a rope, a received part stays in the
//! memory that it was received into, and is sent on from there. The result is copied once.

use super::pool::WorkPool;
use oikaze_protocol::wind::SharedBytes;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a work buffer in pieces, by the place of the first byte. Pieces do not overlap.
#[derive(Default)]
pub(super) struct Rope(BTreeMap<usize, SharedBytes>);

impl Rope {
    /// Places bytes at `at`, over what is there.
    pub fn insert(&mut self, at: usize, bytes: SharedBytes) {
        let end = at + bytes.len();
        if at == end {
            return;
        }
        let before = self.0.range(..at).next_back().map(|(start, _)| *start);
        let within = self.0.range(at..end).map(|(start, _)| *start);
        for start in before.into_iter().chain(within).collect::<Vec<_>>() {
            let Some(old) = self.0.remove(&start) else { continue };
            let len = old.len();
            if start < at {
                self.0.insert(start, old.slice(0..len.min(at - start)));
            }
            if start + len > end {
                self.0.insert(end, old.slice(end - start..len));
            }
        }
        self.0.insert(at, bytes);
    }

    /// Returns a range of bytes, without a copy if they lie in one piece.
    pub fn bytes(&self, range: Range<usize>, pool: &Arc<WorkPool>) -> SharedBytes {
        let piece = self.0.range(..=range.start).next_back();
        match piece.filter(|(start, piece)| **start + piece.len() >= range.end) {
            Some((start, piece)) => piece.slice(range.start - start..range.end - start),
            None => SharedBytes::new(pool.filled(range.len(), |into| self.read(range.start, into))),
        }
    }

    /// Copies the bytes from `at` on. Bytes of no piece become 0.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        let end = at + into.len();
        let mut done = at;
        let first = self.0.range(..=at).next_back().map_or(at, |(start, _)| *start);
        for (start, piece) in self.0.range(first..end.max(first)) {
            let (from, to) = ((*start).max(done), (start + piece.len()).min(end));
            if from >= to {
                continue;
            }
            if let Some(gap) = into.get_mut(done - at..from - at) {
                gap.fill(0);
            }
            if let (Some(into), Some(piece)) =
                (into.get_mut(from - at..to - at), piece.get(from - start..to - start))
            {
                into.copy_from_slice(piece);
            }
            done = to;
        }
        if let Some(gap) = into.get_mut(done - at..) {
            gap.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::random::Random;

    /// A rope has the bytes of a plain buffer with the same writes.
    #[test]
    fn pieces_have_the_bytes_that_were_written_last() {
        const LEN: usize = 100;
        let pool = Arc::new(WorkPool::default());
        let mut random = Random::new(7);
        let mut below = |most: usize| random.below(most);
        for _ in 0..200 {
            let (mut rope, mut plain) = (Rope::default(), [0; LEN]);
            for n in 1..20 {
                let at = below(LEN);
                let len = below(LEN - at + 1);
                plain[at..at + len].fill(n);
                rope.insert(at, SharedBytes::new(vec![n; len]));
                let from = below(LEN);
                let to = from + below(LEN - from + 1);
                let mut read = vec![99; to - from];
                rope.read(from, &mut read);
                assert_eq!(read, plain[from..to]);
                assert_eq!(rope.bytes(from..to, &pool)[..], plain[from..to]);
            }
        }
    }

    #[test]
    fn bytes_of_one_piece_are_not_copied() {
        let pool = Arc::new(WorkPool::default());
        let mut rope = Rope::default();
        let (one, other) = (SharedBytes::new(vec![1; 50]), SharedBytes::new(vec![2; 50]));
        rope.insert(0, one.clone());
        rope.insert(50, other.clone());
        assert_eq!(rope.bytes(10..50, &pool).as_ptr(), one[10..].as_ptr());
        assert_eq!(rope.bytes(50..100, &pool).as_ptr(), other.as_ptr());
        rope.insert(20, other);
        assert_eq!(rope.bytes(0..20, &pool).as_ptr(), one.as_ptr());
        assert_eq!(rope.bytes(60..70, &pool)[..], [2; 10]);
    }
}
