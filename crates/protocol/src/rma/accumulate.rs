//! The target of an accumulate (MEM-12): elements are combined as they arrive.
//!
//! A fragment may end in the middle of an element. Such an element waits, in as many bytes as have
//! come of it, until the rest is here; all others are combined directly out of the datagram, so
//! that no memory is taken for the body, however long it is.

use super::serve::{bytes_of, length, within};
use super::{Accumulation, Memory, Rights, Rma, Transfer};
use crate::Rank;
use crate::limits::CUT_ELEMENTS_PER_PEER;
use crate::planted::{Bug, planted};
use crate::wind::{Admission, Delivered, Refusal};
use alloc::collections::BTreeMap;

/// An accumulate, as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accumulate {
    pub key: u64,
    pub offset: u64,
    pub len: u64,
    pub how: Accumulation,
}

impl Accumulate {
    /// Everything that can be wrong is found before the first element changes (MEM-12.2).
    fn check(&self, memory: &mut impl Memory) -> Result<u32, Refusal> {
        let region = memory.locate(self.key, self.offset, self.len, Rights::ATOMIC)?;
        self.check_in(region, memory)
    }

    /// The same once more, when elements of it may have been combined: it is refused for absent
    /// pages no more (MEM-1.11).
    fn check_begun(&self, memory: &mut impl Memory) -> Result<u32, Refusal> {
        let region = memory.locate_begun(self.key, self.offset, self.len, Rights::ATOMIC)?;
        self.check_in(region, memory)
    }

    fn check_in(&self, region: u32, memory: &mut impl Memory) -> Result<u32, Refusal> {
        let Accumulate { offset, len, how, .. } = *self;
        let width = how.width().bytes();
        if !len.is_multiple_of(width) {
            return Err(Refusal::Malformed);
        }
        if !offset.is_multiple_of(width) {
            return Err(Refusal::Misaligned);
        }
        // Nothing, at the place of the first one: memory that was lent may be anywhere.
        memory.accumulate(region, offset, how, &[])?;
        Ok(region)
    }
}

/// An element of which not all bytes have come.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    bytes: [u8; 8],
    /// A bit for each that is here.
    have: u8,
}

/// All of one peer, by message and number of the element.
#[derive(Debug, Default)]
pub(super) struct Cuts(BTreeMap<(u64, u64), Cut>);

impl Cuts {
    /// Part of an element has come, from its byte `at` on: all of it, if that completes it.
    fn add(
        &mut self,
        message: u64,
        index: u64,
        width: usize,
        at: usize,
        part: &[u8],
    ) -> Result<Option<[u8; 8]>, Refusal> {
        if part.is_empty() {
            return Ok(None);
        }
        if self.0.len() >= CUT_ELEMENTS_PER_PEER && !self.0.contains_key(&(message, index)) {
            return Err(Refusal::NoRoom);
        }
        let cut = self.0.entry((message, index)).or_default();
        for (place, byte) in (at..width).zip(part) {
            if let Some(slot) = cut.bytes.get_mut(place) {
                *slot = *byte;
                cut.have |= 1 << place;
            }
        }
        if u32::from(cut.have) + 1 < 1 << width {
            return Ok(None);
        }
        Ok(self.0.remove(&(message, index)).map(|cut| cut.bytes))
    }

    /// A message has ended, well or not.
    pub fn forget(&mut self, message: u64) {
        while let Some((&key, _)) = self.0.range((message, 0)..=(message, u64::MAX)).next() {
            self.0.remove(&key);
        }
    }
}

impl Rma {
    pub(super) fn admit_accumulate(
        &mut self,
        from: Rank,
        number: u64,
        asked: Accumulate,
        memory: &mut impl Memory,
    ) -> Result<Admission, Refusal> {
        asked.check(memory)?;
        self.begin(from, number, Transfer::Accumulate { asked, missed: None })?;
        Ok(Admission::Place)
    }

    /// Bytes of an admitted accumulate, each once (MEM-12.4).
    pub(super) fn place_elements(
        &mut self,
        from: Rank,
        number: u64,
        asked: Accumulate,
        start: u64,
        bytes: &[u8],
        memory: &mut impl Memory,
    ) {
        let Some(peer) = self.peers.get_mut(&from) else { return };
        if let Err(refusal) = place(&mut peer.cuts, number, asked, start, bytes, memory)
            && let Some(Transfer::Accumulate { missed, .. }) = peer.transfers.get_mut(&number)
        {
            *missed = Some(refusal);
        }
    }

    /// An accumulate is whole: all of its elements are here, or have been combined.
    pub(super) fn deliver_accumulate(
        asked: Accumulate,
        transfer: Option<Transfer>,
        body: &Delivered<'_>,
        memory: &mut impl Memory,
    ) -> Result<(), Refusal> {
        debug_assert_eq!(asked.len, length(body));
        let region =
            if transfer.is_some() { asked.check_begun(memory)? } else { asked.check(memory)? };
        match (bytes_of(body), transfer) {
            (Some(bytes), _) => memory.accumulate(region, asked.offset, asked.how, bytes),
            (None, Some(Transfer::Accumulate { asked: begun, missed })) if begun == asked => {
                // MEM-12.5: some was not combined, and will not be.
                missed.map_or(Ok(()), Err)
            }
            (None, _) => Err(Refusal::Malformed),
        }
    }
}

/// Combine what is whole, keep the rest.
fn place(
    cuts: &mut Cuts,
    number: u64,
    asked: Accumulate,
    start: u64,
    bytes: &[u8],
    memory: &mut impl Memory,
) -> Result<(), Refusal> {
    let at = within(asked.offset, asked.len, start, bytes).ok_or(Refusal::Malformed)?;
    // By key again: the region may be gone by now, and its slot another's (MEM-3.4).
    let region = match planted(Bug::RefuseBegun) {
        true => memory.locate(asked.key, at, bytes.len() as u64, Rights::ATOMIC)?,
        false => memory.locate_begun(asked.key, at, bytes.len() as u64, Rights::ATOMIC)?,
    };
    let width = asked.how.width().bytes();
    let (wide, begun) = (width as usize, (start % width) as usize);
    let mut combine = |index: u64, elements: &[u8]| {
        if planted(Bug::RepeatElement) {
            memory.accumulate(region, asked.offset + index * width, asked.how, elements)?;
        }
        memory.accumulate(region, asked.offset + index * width, asked.how, elements)
    };
    let (first, rest) =
        bytes.split_at(if begun == 0 { 0 } else { (wide - begun).min(bytes.len()) });
    let (middle, last) = rest.split_at(rest.len() / wide * wide);
    let next = start.div_ceil(width);
    if !middle.is_empty() {
        combine(next, middle)?;
    }
    for (index, at, part) in
        [(start / width, begun, first), (next + (middle.len() / wide) as u64, 0, last)]
    {
        if let Some(element) = cuts.add(number, index, wide, at, part)? {
            combine(index, element.get(..wide).unwrap_or_default())?;
        }
    }
    Ok(())
}
