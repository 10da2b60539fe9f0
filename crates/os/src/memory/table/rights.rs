//! Changes of registrations: closing, renewal, and other rights.

use super::super::MemoryError;
use super::{
    GENERATION_MASK, PageRights, RegionTable, Registered, TableEntry, grantable, index_of, slot_of,
};
use core::ops::Range;
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::rma::Rights;

impl RegionTable {
    /// Closes a region to peers for good: its key and its number become invalid. Our own operations
    /// that know its slot go on.
    pub fn close(&mut self, slot: u32) {
        let Some(entry) = self.entry_mut(slot) else { return };
        entry.closed = true;
        let key = entry.key.take();
        if let Some(key) = key {
            self.keys.remove(key);
        }
    }

    /// Registers the same memory anew in the same place. Everything known of the old registration
    /// becomes invalid (MEM-1.8).
    ///
    /// # Errors
    /// As [`RegionTable::insert`]; [`MemoryError::NotRegistered`].
    pub fn renew(&mut self, slot: u32, rights: Rights) -> Result<Registered, MemoryError> {
        grantable(self.region(slot).ok_or(MemoryError::NotRegistered)?, rights)?;
        let key = self.keys.draw()?;
        let index = index_of(slot);
        let place = self.places.get_mut(index).ok_or(MemoryError::NotRegistered)?;
        let old = place.entry.take().ok_or(MemoryError::NotRegistered)?;
        place.generation = (place.generation + 1) & GENERATION_MASK;
        place.entry = Some(TableEntry::new(old.region, rights, Some(key)));
        let id = place.id(index);
        if let Some(key) = old.key {
            self.keys.remove(key);
        }
        self.keys.insert(key, slot_of(id));
        Ok(Registered { slot: slot_of(id), id, key })
    }

    /// Sets the rights of peers on every page from now on (MEM-1.7).
    ///
    /// # Errors
    /// Rights that lent memory cannot grant; no such region.
    pub fn set_rights(&mut self, slot: u32, rights: Rights) -> Result<(), MemoryError> {
        let entry = self.entry_mut(slot).ok_or(MemoryError::NotRegistered)?;
        grantable(&entry.region, rights)?;
        entry.rights = rights;
        entry.pages = None;
        Ok(())
    }

    /// Sets the rights of peers on these pages from now on (MEM-1.6). The range is in whole pages,
    /// or extends to the region's end.
    ///
    /// # Errors
    /// A range that cuts pages or lies outside; rights that lent memory cannot grant; no such
    /// region.
    pub fn protect(
        &mut self,
        slot: u32,
        range: Range<u64>,
        rights: Rights,
    ) -> Result<(), MemoryError> {
        let entry = self.entry_mut(slot).ok_or(MemoryError::NotRegistered)?;
        grantable(&entry.region, rights)?;
        let (Range { start, end }, size) = (range, entry.region.len() as u64);
        let whole = |at: u64| at.is_multiple_of(PAGE as u64);
        if start > end || end > size || !whole(start) || !(whole(end) || end == size) {
            return Err(MemoryError::NotPages { start, end, size });
        }
        let mut pages =
            entry.pages.take().unwrap_or_else(|| Box::new(PageRights::uniform(entry.rights)));
        pages.set(start / PAGE as u64..end.div_ceil(PAGE as u64), rights);
        // If all pages have equal rights again, no lookup is needed.
        entry.pages = (!pages.is_uniform()).then_some(pages);
        Ok(())
    }
}
