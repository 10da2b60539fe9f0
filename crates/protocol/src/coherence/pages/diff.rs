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
