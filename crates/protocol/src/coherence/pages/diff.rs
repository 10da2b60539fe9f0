//! Differences between a page and its twin (COH-5.2), found by 64-bit words and sent by bytes
//! (COH-1.2, 1.3).
//!
//! A diff never contains a byte that this node did not change, because another node may be writing
//! that byte at this moment. So a page is sent whole only if every byte of it has changed. A page
//! with scattered changes is sent as a bit per byte and the changed bytes. That form is never
//! longer than a page and an eighth.

use crate::bytes::{ByteReader, ByteWriter};
use crate::limits::PAGE;
use crate::wind::Refusal;
use alloc::vec::Vec;
use core::ops::Range;

/// Form of a diff that lists runs of changed bytes.
const RUNS: u8 = 0;
/// Form of a diff with one bit per byte and then the changed bytes.
const MASK: u8 = 1;
const MASK_LEN: usize = PAGE / 8;
/// Length of a diff, in bytes, that is not worth shortening ([`first_byte`]).
pub(crate) const SHORT: usize = 10;

/// Returns the ranges of bytes in which `now` differs from `twin`, with adjacent ranges merged.
pub(crate) fn changed(twin: &[u8], now: &[u8]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (word, (old, new)) in twin.chunks(8).zip(now.chunks(8)).enumerate() {
        // The compiler compares the two as one 64-bit word.
        if old == new {
            continue;
        }
        for (byte, (old, new)) in old.iter().zip(new).enumerate() {
            let at = word * 8 + byte;
            match runs.last_mut() {
                _ if old == new => {}
                Some(run) if run.end == at => run.end += 1,
                _ => runs.push(at..at + 1),
            }
        }
    }
    runs
}

/// Sorts runs, and joins those that overlap or are adjacent.
pub(crate) fn merge(runs: &mut Vec<Range<usize>>) {
    runs.sort_unstable_by_key(|run| run.start);
    runs.dedup_by(|next, run| {
        let joins = next.start <= run.end;
        run.end = if joins { run.end.max(next.end) } else { run.end };
        joins
    });
}

/// Appends these runs of bytes of one page, sorted and disjoint, to a message's body. Returns
/// `false` if there are none (COH-9.3).
pub(crate) fn encode_runs(page: u64, runs: &[Range<usize>], now: &[u8], out: &mut Vec<u8>) -> bool {
    if runs.is_empty() {
        return false;
    }
    out.put_leb128(page);
    // Each run costs two or three bytes of description.
    if runs.len() * 3 > MASK_LEN {
        encode_mask(runs, now, out);
        return true;
    }
    out.put_u8(RUNS);
    out.put_leb128(runs.len() as u64);
    let mut at = 0;
    for run in runs {
        out.put_leb128((run.start - at) as u64);
        at = run.end;
        out.put_prefixed(now.get(run.clone()).unwrap_or_default());
    }
    true
}

fn encode_mask(runs: &[Range<usize>], now: &[u8], out: &mut Vec<u8>) {
    let mut mask = [0u8; MASK_LEN];
    for at in runs.iter().cloned().flatten() {
        if let Some(bits) = mask.get_mut(at / 8) {
            *bits |= 1 << (at % 8);
        }
    }
    out.put_u8(MASK);
    out.put(&mask);
    for run in runs {
        out.put(now.get(run.clone()).unwrap_or_default());
    }
}

/// Reads a body made by [`encode`] and calls `apply(page, offset in the page, bytes)` for each run.
///
/// # Errors
/// [`Refusal::Malformed`]. `apply` may have been called for the sound part before the error, so
/// check first with an `apply` that does nothing.
pub(crate) fn decode<'a>(
    body: &'a [u8],
    mut apply: impl FnMut(u64, usize, &'a [u8]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut reader = ByteReader(body);
    while !reader.0.is_empty() {
        let page = reader.leb128()?;
        match reader.u8()? {
            RUNS => decode_runs(page, &mut reader, &mut apply)?,
            MASK => decode_mask(page, &mut reader, &mut apply)?,
            _ => return Err(Refusal::Malformed),
        }
    }
    Ok(())
}

fn decode_runs<'a>(
    page: u64,
    reader: &mut ByteReader<'a>,
    apply: &mut impl FnMut(u64, usize, &'a [u8]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut at = 0usize;
    for _ in 0..reader.count(3)? {
        let gap = usize::try_from(reader.leb128()?).map_err(|_| Refusal::Malformed)?;
        let bytes = reader.prefixed()?;
        let start = at.checked_add(gap).ok_or(Refusal::Malformed)?;
        at = start
            .checked_add(bytes.len())
            .filter(|end| *end <= PAGE)
            .ok_or(Refusal::OutOfBounds)?;
        if bytes.is_empty() {
            return Err(Refusal::Malformed);
        }
        apply(page, start, bytes)?;
    }
    Ok(())
}

fn decode_mask<'a>(
    page: u64,
    reader: &mut ByteReader<'a>,
    apply: &mut impl FnMut(u64, usize, &'a [u8]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mask = reader.take(MASK_LEN)?;
    let (mut start, mut last) = (None, 0);
    for (word, bits) in mask.as_chunks::<8>().0.iter().enumerate() {
        let bits = u64::from_le_bytes(*bits);
        // A bit is set where a run begins or ends.
        let mut edges = bits ^ (bits << 1 | last);
        last = bits >> 63;
        while edges != 0 {
            let at = word * 64 + edges.trailing_zeros() as usize;
            edges &= edges - 1;
            match start.take() {
                None => start = Some(at),
                Some(start) => apply(page, start, reader.take(at - start)?)?,
            }
        }
    }
    match start {
        Some(start) => apply(page, start, reader.take(PAGE - start)?),
        None => Ok(()),
    }
}

/// Bytes of a page that diffs contain, one bit per byte.
#[derive(PartialEq, Eq)]
pub(crate) struct DiffMask([u64; PAGE / 64]);

impl DiffMask {
    /// Returns the bytes that a checked diff of one page contains.
    pub fn of(diff: &[u8]) -> DiffMask {
        let mut mask = [0u64; PAGE / 64];
        // The diff has been checked.
        let _ = decode(diff, |_, at, bytes| {
            let end = at + bytes.len();
            let words = mask.iter_mut().enumerate().take(end.div_ceil(64)).skip(at / 64);
            for (word, bits) in words {
                let (first, last) = (at.saturating_sub(word * 64), (end - word * 64).min(64));
                *bits |= u64::MAX >> (64 - (last - first)) << first;
            }
            Ok(())
        });
        DiffMask(mask)
    }

    /// Returns `true` if all bytes of `other` are in this mask.
    pub fn covers(&self, other: &DiffMask) -> bool {
        self.0.iter().zip(&other.0).all(|(mine, theirs)| theirs & !mine == 0)
    }
}

/// Returns the beginning of a checked diff of one page: a diff of its first byte alone.
pub(crate) fn first_byte(diff: &[u8]) -> Option<Vec<u8>> {
    let mut first = None;
    let _ = decode(diff, |page, at, bytes| {
        first = first.or_else(|| Some((page, at, *bytes.first()?)));
        Ok(())
    });
    let (page, at, byte) = first?;
    let mut out = Vec::new();
    out.put_leb128(page).put_u8(RUNS).put_leb128(1).put_leb128(at as u64);
    out.put_prefixed(&[byte]);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn apply_to(page: &mut [u8], body: &[u8]) -> Result<(), Refusal> {
        decode(body, |_, at, bytes| {
            page[at..at + bytes.len()].copy_from_slice(bytes);
            Ok(())
        })
    }

    proptest! {
        /// COH-5.2: twin + diff = page, and the diff contains no unchanged byte (COH-9.3).
        #[test]
        fn a_diff_turns_the_twin_into_the_page(edits in prop::collection::vec((0..PAGE, 1..300usize, any::<u8>()), 0..40), dense in any::<bool>()) {
            let twin: Vec<u8> = (0..PAGE).map(|i| (i * 7) as u8).collect();
            let mut now = twin.clone();
            for (at, len, add) in edits {
                for i in (at..(at + len).min(PAGE)).step_by(if dense { 2 } else { 1 }) { now[i] = now[i].wrapping_add(add); }
            }
            let mut body = Vec::new();
            let differs = encode_runs(9, &changed(&twin, &now), &now, &mut body);
            prop_assert_eq!(differs, twin != now);
            prop_assert!(body.len() <= PAGE + MASK_LEN + 8);
            let mut rebuilt = twin.clone();
            apply_to(&mut rebuilt, &body).unwrap();
            prop_assert_eq!(&rebuilt, &now);
            let mut changed = vec![false; PAGE];
            decode(&body, |page, at, bytes| { assert_eq!(page, 9); changed[at..at + bytes.len()].fill(true); Ok(()) }).unwrap();
            for i in 0..PAGE { prop_assert_eq!(changed[i], twin[i] != now[i]); }
        }

        /// COH-10.17: a mask has exactly the bytes of the diff, and the beginning of a diff is one
        /// of them.
        #[test]
        fn masks_and_beginnings_are_those_of_the_diff(runs in prop::collection::vec((0..PAGE, 1..300usize), 1..40), more in prop::collection::vec((0..PAGE, 1..300usize), 0..3), every in 1..3usize) {
            let now: Vec<u8> = (0..PAGE).map(|i| (i * 7) as u8).collect();
            let diff_of = |runs: &[(usize, usize)]| {
                let bytes = runs.iter().flat_map(|(at, len)| (*at..(at + len).min(PAGE)).step_by(every));
                let mut runs: Vec<Range<usize>> = bytes.map(|at| at..at + 1).collect();
                merge(&mut runs);
                let mut diff = Vec::new();
                assert!(encode_runs(9, &runs, &now, &mut diff));
                (runs, diff)
            };
            let (ranges, diff) = diff_of(&runs);
            let mask = DiffMask::of(&diff);
            for at in 0..PAGE {
                let is_set = mask.0[at / 64] >> (at % 64) & 1 == 1;
                prop_assert_eq!(is_set, ranges.iter().any(|run| run.contains(&at)), "byte {}", at);
            }
            let all: Vec<_> = runs.iter().chain(&more).copied().collect();
            let (larger, larger_diff) = diff_of(&all);
            prop_assert!(DiffMask::of(&larger_diff).covers(&mask));
            prop_assert_eq!(mask.covers(&DiffMask::of(&larger_diff)), larger == ranges);
            let first = first_byte(&diff).unwrap();
            let mut found = Vec::new();
            decode(&first, |page, at, bytes| { found.push((page, at, bytes.to_vec())); Ok(()) }).unwrap();
            let at = ranges[0].start;
            prop_assert_eq!(found, vec![(9, at, vec![now[at]])]);
            prop_assert!(first.len() <= SHORT);
        }

        /// COH-9.1: bytes from the network never panic.
        #[test]
        fn hostile_bodies_are_refused_or_harmless(body in prop::collection::vec(any::<u8>(), 0..700)) {
            let _ = decode(&body, |_, at, bytes| { assert!(at + bytes.len() <= PAGE); Ok(()) });
        }
    }

    #[test]
    fn truncation_is_refused() {
        let (twin, now) = (vec![0u8; PAGE], (0..PAGE).map(|i| (i % 5) as u8).collect::<Vec<_>>());
        let mut body = Vec::new();
        assert!(encode_runs(1, &changed(&twin, &now), &now, &mut body));
        for len in 1..body.len() {
            assert!(decode(&body[..len], |_, _, _| Ok(())).is_err(), "cut at {len}");
        }
    }
}
