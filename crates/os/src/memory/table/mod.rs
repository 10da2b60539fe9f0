//! The region table of one engine, also called path table. A registration is only a table entry,
//! however long the memory. Registering touches and pins no memory.

mod id;
mod keys;
mod pack;
mod pages;
mod paging;
mod remote_access;
mod rights;
#[cfg(test)]
mod tests;

use super::error::MemoryError;
use super::gather::Gather;
use super::region::{Region, RegionKind};
use super::scatter::Scatter;
use crate::memory::paging::{Fetcher, Lost};
use core::any::Any;
use core::cell::Cell;
use core::ops::Range;
pub use id::RegionId;
use keys::Keys;
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::Segment;
use pages::PageRights;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Number of low bits of a slot number that are its index in the table. The rest is the generation
/// of that place.
const INDEX_BITS: u32 = 20;
/// Maximum number of regions registered at the same time.
pub const REGIONS_MAX: usize = 1 << INDEX_BITS;
/// Minimum number of free places before one is reused. A stale slot is thus detected for
/// `REUSE_FREE_MIN` × 2^12 insertions. (Operations in flight are cut off when their region goes;
/// this is the second line of defence.)
const REUSE_FREE_MIN: usize = 64;
/// Maximum generation. With one registration per microsecond, one place lasts half a year.
const GENERATION_MASK: u64 = u64::MAX >> INDEX_BITS;

/// A region that peers can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Slot number while the region is registered, for [`Segment::region`]: index and low bits of
    /// the generation.
    pub slot: u32,
    /// Permanent identifier of the registration.
    pub id: RegionId,
    /// Key that a peer must know: random, never zero, never used twice (MEM-1.1).
    pub key: u64,
}

/// Object that keeps a region registered, for holders that know the region by its number alone.
pub type Holder = Arc<dyn Any + Send + Sync>;

/// Regions by slot (for our own segments) and by key (for peers' requests). Everything that a peer
/// sends is checked here.
#[derive(Debug, Default)]
pub struct RegionTable {
    places: Vec<Place>,
    free: VecDeque<u32>,
    keys: Keys,
    strays: u64,
    fetcher: Fetcher,
    /// See [`RegionTable::wait_for_pages`].
    waits: bool,
    /// See [`RegionTable::take_broken`].
    broken: Cell<Option<u32>>,
}

#[derive(Debug)]
struct Place {
    generation: u64,
    entry: Option<TableEntry>,
}

#[derive(Debug)]
struct TableEntry {
    region: Region,
    /// Rights on every page, unless `pages` is set.
    rights: Rights,
    key: Option<u64>,
    /// Rights per page where they differ (MEM-1.6). Few regions have such pages; the others pay one
    /// check of a pointer.
    pages: Option<Box<PageRights>>,
    holder: Option<Weak<dyn Any + Send + Sync>>,
    /// Set while the region is being deregistered (MEM-1.8).
    closed: bool,
    /// Failed fetches, if pages of the region may be absent (MEM-1.10). Few regions have it; the
    /// others pay one check of a pointer.
    lost: Option<Arc<Lost>>,
}

impl TableEntry {
    fn new(region: Region, rights: Rights, key: Option<u64>) -> TableEntry {
        let lost = region.may_be_absent().then(Arc::default);
        TableEntry { region, rights, key, pages: None, holder: None, closed: false, lost }
    }

    /// Returns `true` if `right` is granted on the range. The caller has checked the bounds.
    fn permits(&self, offset: u64, len: u64, right: Rights) -> bool {
        match &self.pages {
            None => self.rights.contains(right),
            Some(pages) => pages.grant(pages_of(offset, len), right),
        }
    }
}

impl RegionTable {
    /// Returns an empty table.
    #[must_use]
    pub fn new() -> RegionTable {
        RegionTable::default()
    }

    /// Registers a region for peers that know its key.
    ///
    /// # Errors
    /// [`MemoryError`]: rights that lent memory cannot grant, a full table, no randomness.
    pub fn insert(&mut self, region: Region, rights: Rights) -> Result<Registered, MemoryError> {
        grantable(&region, rights)?;
        let key = self.keys.draw()?;
        let id = self.put(TableEntry::new(region, rights, Some(key)))?;
        let slot = slot_of(id);
        self.keys.insert(key, slot);
        Ok(Registered { slot, id, key })
    }

    /// Registers a region for our own sends and gets; no peer can reach it.
    ///
    /// # Errors
    /// [`MemoryError::TableFull`].
    pub fn insert_local(&mut self, region: Region) -> Result<u32, MemoryError> {
        self.put(TableEntry::new(region, Rights::NONE, None)).map(slot_of)
    }

    /// Removes a region and returns it, if the slot was live. The slot, id and key are invalid from
    /// now on.
    pub fn remove(&mut self, slot: u32) -> Option<Region> {
        let place = self.places.get_mut(index_of(slot)).filter(|place| place.has(slot))?;
        let entry = place.entry.take()?;
        place.generation = (place.generation + 1) & GENERATION_MASK;
        if let Some(key) = entry.key {
            self.keys.remove(key);
        }
        self.free.push_back(index_of(slot) as u32);
        Some(entry.region)
    }

    /// Returns the rights of peers on every page, unless [`RegionTable::has_page_rights`].
    #[must_use]
    pub fn rights(&self, slot: u32) -> Option<Rights> {
        self.entry(slot).map(|entry| entry.rights)
    }

    /// Returns `true` if rights differ between pages of the region.
    #[must_use]
    pub fn has_page_rights(&self, slot: u32) -> bool {
        self.entry(slot).is_some_and(|entry| entry.pages.is_some())
    }

    /// Sets the object whose last reference ends the registration. Those who know the region by its
    /// number keep a reference.
    pub fn set_holder(&mut self, slot: u32, holder: &Holder) {
        if let Some(entry) = self.entry_mut(slot) {
            entry.holder = Some(Arc::downgrade(holder));
        }
    }

    /// Resolves a region's name for an operation, to its slot, the region, and its holder. Returns
    /// `None` if the region is not registered any more or is being deregistered (MEM-1.5).
    #[must_use]
    pub fn resolve(&self, id: RegionId) -> Option<(u32, &Region, Option<Holder>)> {
        let place =
            self.places.get(id.index()).filter(|place| place.generation == id.generation())?;
        let entry = place.entry.as_ref().filter(|entry| !entry.closed)?;
        let holder = match &entry.holder {
            None => None,
            Some(holder) => Some(holder.upgrade()?),
        };
        Some((slot_of(id), &entry.region, holder))
    }

    /// Returns the slot of a registration that has not ended, whether or not operations may begin.
    #[must_use]
    pub fn slot(&self, id: RegionId) -> Option<u32> {
        let place =
            self.places.get(id.index()).filter(|place| place.generation == id.generation())?;
        place.entry.as_ref().map(|_| slot_of(id))
    }

    /// Returns `true` if the region is being deregistered or gone.
    #[must_use]
    pub fn is_closed(&self, slot: u32) -> bool {
        self.entry(slot).is_none_or(|entry| entry.closed)
    }

    /// Returns `true` if an operation may begin on the slot. `keep` is the holder that the
    /// operation keeps. It tells the registration from a later one with the same slot, because
    /// slots, unlike ids, are reused.
    #[must_use]
    pub fn may_begin(&self, slot: u32, keep: Option<&Holder>) -> bool {
        let is_other = |holder: &Weak<_>, keep: &Holder| {
            !core::ptr::addr_eq(holder.as_ptr(), Arc::as_ptr(keep))
        };
        self.entry(slot).is_some_and(|entry| {
            let other = entry
                .holder
                .as_ref()
                .zip(keep)
                .is_some_and(|(holder, keep)| is_other(holder, keep));
            !entry.closed && !other
        })
    }

    /// Returns the name of the region in a live slot.
    #[must_use]
    pub fn id(&self, slot: u32) -> Option<RegionId> {
        let place = self
            .places
            .get(index_of(slot))
            .filter(|place| place.has(slot) && place.entry.is_some())?;
        Some(place.id(index_of(slot)))
    }

    /// Returns the object that keeps the region in this slot registered.
    #[must_use]
    pub fn holder(&self, slot: u32) -> Option<Holder> {
        self.entry(slot)?.holder.as_ref()?.upgrade()
    }

    /// Returns the region that peers reach by this key.
    #[must_use]
    pub fn of_key(&self, key: u64) -> Option<&Region> {
        self.region(self.keys.find(key)?)
    }

    /// Returns the region in a live slot.
    #[must_use]
    pub fn region(&self, slot: u32) -> Option<&Region> {
        self.entry(slot).map(|entry| &entry.region)
    }

    /// Returns all slots in which this memory is registered.
    #[must_use]
    pub fn slots_of(&self, region: &Region) -> Vec<u32> {
        let is_it =
            |place: &Place| place.entry.as_ref().is_some_and(|entry| entry.region.is_same(region));
        let found = self.places.iter().enumerate().filter(|(_, place)| is_it(place));
        found.map(|(index, place)| slot_of(place.id(index))).collect()
    }

    /// Returns the slot, region and rights of this key, if a local peer may map the memory. Its
    /// memory must be a file, and all pages must grant the same, including at least reading,
    /// writing or atomics (MEM-18.1).
    #[must_use]
    pub fn mappable(&self, key: u64) -> Option<(u32, &Region, Rights)> {
        let slot = self.keys.find(key)?;
        let entry = self.entry(slot).filter(|entry| !entry.closed && entry.pages.is_none())?;
        // If only PUSH is granted, a mapping would let a peer damage the FIFO (MEM-13.4).
        let whole = [Rights::READ, Rights::WRITE, Rights::ATOMIC]
            .into_iter()
            .any(|right| entry.rights.contains(right));
        (entry.region.kind() == RegionKind::Shared && whole).then_some((
            slot,
            &entry.region,
            entry.rights,
        ))
    }

    /// Returns bytes to be sent, held in place until the [`Gather`] is dropped. Returns `None` if
    /// the segment is not inside a live region, or the scope that lent the memory has ended.
    #[must_use]
    pub fn gather(&self, segment: &Segment) -> Option<Gather> {
        let entry = self.entry(segment.region)?;
        if let Some(lost) = &entry.lost {
            // Absent pages count as lost on the wire and are gathered again (MEM-1.12).
            self.fetch_source(segment.region, entry, lost, segment.offset, segment.len)?;
        }
        let (at, hold) = entry.region.hold(segment.offset, segment.len).ok()?;
        Some(Gather::new(at, usize::try_from(segment.len).ok()?, hold))
    }

    /// Returns `true` if the segment begins at a page boundary, in memory that [may be read
    /// late](Gather::may_be_read_late).
    #[must_use]
    pub fn begins_with_page(&self, segment: &Segment) -> bool {
        let region = self
            .entry(segment.region)
            .map(|entry| &entry.region)
            .filter(|region| region.may_be_read_late());
        let begin = region.and_then(|region| region.hold(segment.offset, segment.len).ok());
        begin.is_some_and(|(at, _)| at.addr().get() % PAGE == 0)
    }

    /// Returns bytes to be received into directly, held in place until the [`Scatter`] is dropped.
    /// Returns `None` as for [`RegionTable::gather`], and if the memory was lent for reading. Also
    /// returns `None` for shared arrays, whose pages must not hold unverified bytes.
    #[must_use]
    pub fn scatter(&self, segment: Segment) -> Option<Scatter> {
        self.region(segment.region)?.scatter(segment.offset, segment.len)
    }

    /// As [`scatter`](Self::scatter), for pages of a shared array that are on their way to this
    /// node. They are not mapped, so no thread sees unverified bytes (COH-3.3).
    #[must_use]
    pub fn scatter_pages(&self, segment: Segment) -> Option<Scatter> {
        self.region(segment.region)?.scatter_pages(segment.offset, segment.len)
    }

    /// Returns the number of live regions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Returns `true` if no region is live.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of writes ignored because they met no live range.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    fn entry(&self, slot: u32) -> Option<&TableEntry> {
        self.places.get(index_of(slot)).filter(|place| place.has(slot))?.entry.as_ref()
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut TableEntry> {
        self.places.get_mut(index_of(slot)).filter(|place| place.has(slot))?.entry.as_mut()
    }

    fn put(&mut self, entry: TableEntry) -> Result<RegionId, MemoryError> {
        let may_grow = self.places.len() < REGIONS_MAX;
        let free =
            if may_grow && self.free.len() < REUSE_FREE_MIN { None } else { self.free.pop_front() };
        let index = match free {
            Some(index) => index as usize,
            None if may_grow => {
                self.places.push(Place { generation: 1, entry: None });
                self.places.len() - 1
            }
            None => return Err(MemoryError::TableFull(REGIONS_MAX)),
        };
        let place = self.places.get_mut(index).ok_or(MemoryError::TableFull(REGIONS_MAX))?;
        place.entry = Some(entry);
        Ok(place.id(index))
    }
}

impl Place {
    /// Returns `true` if this slot belongs to the current registration here, as far as the slot's
    /// bits of the generation tell.
    fn has(&self, slot: u32) -> bool {
        self.generation as u32 & (u32::MAX >> INDEX_BITS) == slot >> INDEX_BITS
    }

    fn id(&self, index: usize) -> RegionId {
        RegionId::new(self.generation, index)
    }
}

/// Checks that the memory itself can grant these rights.
fn grantable(region: &Region, rights: Rights) -> Result<(), MemoryError> {
    match region.rights().contains(rights) {
        true if rights != Rights::NONE && region.is_torn() => Err(MemoryError::Torn),
        true => Ok(()),
        false => Err(MemoryError::ReadOnly),
    }
}

/// Returns the low bits of an id: the index and some of the generation.
fn slot_of(id: RegionId) -> u32 {
    id.to_bits() as u32
}

fn index_of(slot: u32) -> usize {
    (slot & (REGIONS_MAX as u32 - 1)) as usize
}

/// Returns the pages that a range touches. A range of length 0 touches the page where it begins.
fn pages_of(offset: u64, len: u64) -> Range<u64> {
    let last = offset.saturating_add(len.saturating_sub(1));
    offset / PAGE as u64..last / PAGE as u64 + 1
}
