//! Requests of peers to regions, by key, and the engine's work for them.

use super::super::region::Side;
use super::RegionTable;
use crate::memory::AccessError;
use oikaze_protocol::rma::{Accumulation, AtomicOp, Memory, Rights};
use oikaze_protocol::wind::Refusal;

/// Peers' requests (spec/memory.md, MEM-1). All of them are checked here, without overflow, and go
/// through the alias.
impl RegionTable {
    fn locate_present(
        &self,
        key: u64,
        offset: u64,
        len: u64,
        right: Rights,
        waits: bool,
    ) -> Result<u32, Refusal> {
        let slot = self.keys.find(key).ok_or(Refusal::UnknownKey)?;
        let entry = self
            .entry(slot)
            .filter(|entry| !entry.region.is_closed())
            .ok_or(Refusal::UnknownKey)?;
        let inside = entry.region.check_bounds(offset, len).map_err(refusal);
        // Check rights before bounds, so that an unauthorised peer cannot learn the length. Outside
        // the bounds there are no pages, so only the region's own rights count.
        let permitted = if inside.is_ok() {
            entry.permits(offset, len, right)
        } else {
            entry.rights.contains(right)
        };
        if !permitted {
            return Err(Refusal::NotPermitted);
        }
        inside?;
        match &entry.lost {
            None => Ok(slot),
            Some(lost) => self.fetch(entry, lost, offset, len, right, waits).map(|()| slot),
        }
    }
}

impl Memory for RegionTable {
    fn locate(&self, key: u64, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal> {
        self.locate_present(key, offset, len, right, self.waits)
    }

    fn locate_begun(&self, key: u64, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal> {
        self.locate_present(key, offset, len, right, true)
    }

    fn has_had(&self, key: u64) -> bool {
        self.keys.has_been_valid(key)
    }

    /// Also returns `false` for memory lent for reading, because nothing can be written there.
    fn covers(&self, region: u32, offset: u64, len: u64) -> bool {
        self.region(region).is_some_and(|region| {
            region.rights().contains(Rights::WRITE)
                && !region.is_closed()
                && region.make_present(offset, len, Rights::WRITE).is_ok()
        })
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) {
        // Pages made present when the operation began are rarely absent again. If they are, this
        // turn waits.
        let written = self.region(region).is_some_and(|region| {
            region.make_present(offset, bytes.len() as u64, Rights::WRITE).is_ok()
                && region.write_from(Side::Runtime, offset, bytes).is_ok()
        });
        self.strays += u64::from(!written);
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> bool {
        let Some(entry) = self.entry(region) else { return false };
        let there = match &entry.lost {
            None => true,
            Some(lost) => {
                self.fetch_source(region, entry, lost, offset, into.len() as u64).is_some()
            }
        };
        there && entry.region.read_from(Side::Runtime, offset, into).is_ok()
    }

    fn atomic(&mut self, region: u32, offset: u64, op: AtomicOp) -> Result<u64, Refusal> {
        let region = self.region(region).ok_or(Refusal::OutOfBounds)?;
        let width = op.width().bytes();
        region.check_bounds(offset, width).map_err(refusal)?;
        // MEM-5.1 is about the offset; the region checks the address.
        if !offset.is_multiple_of(width) {
            return Err(Refusal::Misaligned);
        }
        region.atomic_from(Side::Runtime, offset, op).map_err(refusal)
    }

    fn accumulate(
        &mut self,
        region: u32,
        offset: u64,
        how: Accumulation,
        elements: &[u8],
    ) -> Result<(), Refusal> {
        let region = self.region(region).ok_or(Refusal::OutOfBounds)?;
        region.accumulate_from(Side::Runtime, offset, how, elements).map_err(refusal)
    }

    fn fifo_element(&self, region: u32) -> Result<u64, Refusal> {
        Ok(self.region(region).ok_or(Refusal::NoFifo)?.fifo_shape()?.element())
    }

    fn push(&mut self, region: u32, element: &[u8]) -> Result<(), Refusal> {
        let entry = self.entry(region).ok_or(Refusal::NoFifo)?;
        let shape = entry.region.fifo_shape()?;
        if !entry.permits(0, shape.bytes(), Rights::PUSH) && entry.key.is_some() {
            return Err(Refusal::NotPermitted);
        }
        entry.region.fifo_push(Side::Runtime, shape, element)
    }
}

pub(super) fn refusal(error: AccessError) -> Refusal {
    match error {
        AccessError::OutOfBounds { .. } => Refusal::OutOfBounds,
        AccessError::Misaligned { .. } => Refusal::Misaligned,
        AccessError::Lost { .. } => Refusal::Lost,
        AccessError::ReadOnly => Refusal::NotPermitted,
        AccessError::Closed => Refusal::UnknownKey,
    }
}
