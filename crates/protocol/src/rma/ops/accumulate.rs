//! The target of an accumulate (MEM-12), which combines elements as they arrive.
//!
//! A fragment may end in the middle of an element. The arrived bytes of such an element wait until
//! the rest arrives. All other elements are combined directly out of the datagram, so the body
//! takes no memory, however long it is.

use crate::Rank;
use crate::limits::CUT_ELEMENTS_PER_PEER;
use crate::planted::{Bug, planted};
use crate::rma::memory::{Memory, Rights};
use crate::rma::ops::body::{bytes_of, length, within};
use crate::rma::ops::element::Accumulation;
use crate::rma::{Rma, Transfer};
use crate::wind::{Admission, Delivered, Refusal};
use alloc::collections::BTreeMap;

/// An accumulate as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accumulate {
    pub key: u64,
    pub offset: u64,
    pub len: u64,
    pub how: Accumulation,
}

impl Accumulate {
    /// Checks everything that can be wrong before the first element changes (MEM-12.2).
    fn check(&self, memory: &mut impl Memory) -> Result<u32, Refusal> {
        let region = memory.locate(self.key, self.offset, self.len, Rights::ATOMIC)?;
        self.check_in(region, memory)
    }

    /// Checks the same once more, when elements may have been combined. It no longer refuses for
    /// absent pages (MEM-1.11).
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
        // Check with no elements, at the place of the first one, because lent memory may be
        // anywhere.
        memory.accumulate(region, offset, how, &[])?;
        Ok(region)
    }
}

/// An element of which not all bytes have arrived.
#[derive(Clone, Copy, Debug, Default)]
struct Cut {
    bytes: [u8; 8],
    /// Bit for each byte that has arrived.
    have: u8,
}

/// Incomplete elements of one peer, by message and number of the element.
#[derive(Debug, Default)]
pub(crate) struct Cuts(BTreeMap<(u64, u64), Cut>);

impl Cuts {
    /// Adds a part of an element that begins at its byte `at`. Returns the element if that
    /// completes it.
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

    /// Forgets a message that has ended, with success or not.
    pub fn forget(&mut self, message: u64) {
        while let Some((&key, _)) = self.0.range((message, 0)..=(message, u64::MAX)).next() {
            self.0.remove(&key);
        }
    }
}

impl Rma {
    pub(crate) fn admit_accumulate(
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

    /// Combines bytes of an admitted accumulate, each once (MEM-12.4).
    pub(crate) fn place_elements(
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

    /// Called when an accumulate is whole. All of its elements are here, or have been combined.
    pub(crate) fn deliver_accumulate(
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
                // MEM-12.5: some element was not combined, and will not be.
                missed.map_or(Ok(()), Err)
            }
            (None, _) => Err(Refusal::Malformed),
        }
    }
}

/// Combines whole elements and keeps the rest.
fn place(
    cuts: &mut Cuts,
    number: u64,
    asked: Accumulate,
    start: u64,
    bytes: &[u8],
    memory: &mut impl Memory,
) -> Result<(), Refusal> {
    let at = within(asked.offset, asked.len, start, bytes).ok_or(Refusal::Malformed)?;
    // Locate by key again, because the region may be gone by now, and its slot another's (MEM-3.4).
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
