//! Packs bytes of regions into memory of ours: scattered bytes, and bytes that must not change from
//! now on.

use super::RegionTable;
use oikaze_protocol::wind::{Rows, Segment};

impl RegionTable {
    /// Appends a copy of a segment. Returns `false` if nothing can be
    /// [gathered](RegionTable::gather) there; nothing was appended then.
    #[must_use]
    pub fn pack(&self, segment: &Segment, into: &mut Vec<u8>) -> bool {
        self.gather(segment).map(|bytes| bytes.append_to(into)).is_some()
    }

    /// Appends `len` packed bytes of rows from `start` on. Returns `false` if some cannot be
    /// gathered, now or at all; the caller must then discard what was appended.
    #[must_use]
    pub fn pack_rows(&self, rows: &Rows, start: u64, len: u64, into: &mut Vec<u8>) -> bool {
        let Rows { region, block } = rows;
        let inside = start.checked_add(len).is_some_and(|end| end <= rows.len());
        let Some(entry) = self.entry(*region).filter(|_| inside) else { return false };
        let mut pieces = block.pieces(start, len);
        if entry.lost.is_some() {
            // The bytes between the rows need not be present.
            return pieces.all(|piece| {
                self.pack(
                    &Segment { region: *region, offset: piece.offset, len: piece.len as u64 },
                    into,
                )
            });
        }
        let hull = block.hull().and_then(|len| entry.region.lend(block.offset, len).ok());
        hull.is_some_and(|hull| {
            hull.with_bytes(|hull| {
                pieces.all(|piece| {
                    let begin = usize::try_from(piece.offset - block.offset).unwrap_or(usize::MAX);
                    hull.get(begin..begin.saturating_add(piece.len))
                        .map(|row| into.extend_from_slice(row))
                        .is_some()
                })
            })
        })
    }
}
