//! Work buffers as ropes: pieces that were received, or are to be sent, where they are.
//!
//! A received part stays in the memory that it was received into, and is sent on from there. A part
//! that is sent is shared with the sender and not copied. The result is copied once.

use oikaze_protocol::wind::SharedBytes;
use oikaze_runtime::node::{PooledBytes, WorkPool};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a work buffer in pieces, by the place of the first byte. Pieces do not overlap.
#[derive(Default)]
pub(super) struct Rope(BTreeMap<usize, Piece>);

enum Piece {
    /// Nobody else sees it.
    Own(PooledBytes),
    /// It was received, or was sent. It stays as it is.
    Shared(SharedBytes),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes.as_ref(),
            Piece::Shared(bytes) => bytes,
        }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn into_shared(self) -> SharedBytes {
        match self {
            Piece::Own(bytes) => SharedBytes::new(bytes),
            Piece::Shared(bytes) => bytes,
        }
    }
}

impl Rope {
    /// Places shared bytes at `at`, over what is there.
    pub fn insert(&mut self, at: usize, bytes: SharedBytes) {
        self.replace(at, Piece::Shared(bytes));
    }

    /// Places bytes that nobody else sees at `at`, over what is there.
    pub fn insert_own(&mut self, at: usize, bytes: PooledBytes) {
        self.replace(at, Piece::Own(bytes));
    }

    fn replace(&mut self, at: usize, new: Piece) {
        let end = at + new.len();
        if at == end {
            return;
        }
        let before = self.0.range(..at).next_back().map(|(start, _)| *start);
        let within = self.0.range(at..end).map(|(start, _)| *start);
        for start in before.into_iter().chain(within).collect::<Vec<_>>() {
            let Some(old) = self.0.remove(&start) else { continue };
            let len = old.len();
            if start + len <= at {
                self.0.insert(start, old);
                continue;
            }
            let old = old.into_shared();
            if start < at {
                self.0.insert(start, Piece::Shared(old.slice(0..at - start)));
            }
            if start + len > end {
                self.0.insert(end, Piece::Shared(old.slice(end - start..len)));
            }
        }
        self.0.insert(at, new);
    }

    /// Returns a range of bytes, without a copy if they lie in one piece.
    pub fn bytes(&mut self, range: Range<usize>, pool: &Arc<WorkPool>) -> SharedBytes {
        let start = self.0.range(..=range.start).next_back().map(|(start, _)| *start);
        let start = start.filter(|start| {
            self.0.get(start).is_some_and(|piece| start + piece.len() >= range.end)
        });
        match start.and_then(|start| Some((start, self.0.remove(&start)?))) {
            Some((start, piece)) => {
                let all = piece.into_shared();
                let part = all.slice(range.start - start..range.end - start);
                self.0.insert(start, Piece::Shared(all));
                part
            }
            None => SharedBytes::new(pool.filled(range.len(), |into| self.read(range.start, into))),
        }
    }

    /// Changes a range of bytes, piece by piece. `change` gets the bytes of a piece and their place
    /// in the range. Bytes of no piece are 0 before.
    pub fn change(
        &mut self,
        range: Range<usize>,
        pool: &Arc<WorkPool>,
        mut change: impl FnMut(&mut [u8], usize),
    ) {
        let first = self.0.range(..=range.start).next_back().map_or(range.start, |(at, _)| *at);
        let has = self.0.range(first..range.end.max(first)).map(|(start, piece)| {
            (start + piece.len()).min(range.end).saturating_sub((*start).max(range.start))
        });
        if has.sum::<usize>() < range.len() {
            let all = pool.filled(range.len(), |into| self.read(range.start, into));
            self.insert_own(range.start, all);
        }
        for (start, piece) in self.0.range_mut(first..range.end.max(first)) {
            let (from, to) = ((*start).max(range.start), (start + piece.len()).min(range.end));
            if from >= to {
                continue;
            }
            if let Piece::Shared(bytes) = piece {
                *piece = Piece::Own(pool.copy_of(bytes));
            }
            if let Piece::Own(bytes) = piece
                && let Some(bytes) = bytes.as_mut().get_mut(from - start..to - start)
            {
                change(bytes, from - range.start);
            }
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
                (into.get_mut(from - at..to - at), piece.bytes().get(from - start..to - start))
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
                if n % 3 == 0 {
                    rope.insert_own(at, pool.copy_of(&vec![n; len]));
                } else {
                    rope.insert(at, SharedBytes::new(vec![n; len]));
                }
                let from = below(LEN);
                let to = from + below(LEN - from + 1);
                let mut read = vec![99; to - from];
                rope.read(from, &mut read);
                assert_eq!(read, plain[from..to]);
                let shared = rope.bytes(from..to, &pool);
                assert_eq!(shared[..], plain[from..to]);
                let was = plain;
                rope.change(from..to, &pool, |bytes, _| bytes.iter_mut().for_each(|b| *b ^= 1));
                rope.change(from..to, &pool, |bytes, at| bytes[0] ^= at as u8);
                assert_eq!(shared[..], was[from..to], "what was sent stays");
                rope.read(0, &mut plain);
                assert!(plain[..from] == was[..from] && plain[to..] == was[to..]);
            }
        }
    }

    #[test]
    fn bytes_of_one_piece_are_not_copied() {
        let pool = Arc::new(WorkPool::default());
        let mut rope = Rope::default();
        let own = pool.copy_of(&[3; 50]);
        let place = own.as_ref().as_ptr();
        rope.insert_own(100, own);
        rope.change(100..150, &pool, |bytes, _| assert_eq!(bytes.as_ptr(), place));
        assert_eq!(rope.bytes(100..150, &pool).as_ptr(), place);
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
