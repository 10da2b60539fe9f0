//! The regions of one engine: the path table. An entry is all there is to a registration, however
//! long the memory; nothing is touched or pinned.

mod asked;
mod changes;
mod id;
mod keys;
mod pack;
mod pages;
mod presence;
#[cfg(test)]
mod tests;

use super::residence::{Fetcher, Lost};
use super::{Gather, MemoryError, Region, RegionKind, Scatter};
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

/// Low bits of a number: its place in the table. The rest is the place's generation.
const INDEX_BITS: u32 = 20;
/// Regions registered at the same time.
pub const REGIONS_MAX: usize = 1 << INDEX_BITS;
/// A place is used again only when at least so many are free: a slot from before is then known for
/// stale for `REUSE_AFTER` × 2^12 insertions. (What is in flight is cut off when its region goes;
/// this is the second line.)
const REUSE_AFTER: usize = 64;
/// Generations are counted to here: at a registration a microsecond, that is half a year in one
/// place.
const GENERATION_MASK: u64 = u64::MAX >> INDEX_BITS;

/// A region that peers can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its number for as long as it is registered, for [`Segment::region`]: index and the low bits
    /// of the generation.
    pub slot: u32,
    /// Its name for good.
    pub id: RegionId,
    /// What a peer must know: random, never zero, never used twice (MEM-1.1).
    pub key: u64,
}

/// Whoever keeps a region registered, for those who know it by its number alone.
pub type Holder = Arc<dyn Any + Send + Sync>;

/// Regions by slot (our own segments) and by key (peers' requests). Everything a peer can say is
/// checked here.
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
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    region: Region,
    /// Of every page, unless `pages` says otherwise.
    rights: Rights,
    key: Option<u64>,
    /// Where some pages grant something else (MEM-1.6). Few regions have such: the others pay one
    /// look at a pointer.
    pages: Option<Box<PageRights>>,
    holder: Option<Weak<dyn Any + Send + Sync>>,
    /// It is being deregistered (MEM-1.8).
    closed: bool,
    /// Pages of it may be absent (MEM-1.10); those that could not be fetched. Few regions are so,
    /// and the others pay one look at a pointer.
    lost: Option<Arc<Lost>>,
}

impl Entry {
    fn new(region: Region, rights: Rights, key: Option<u64>) -> Entry {
        let lost = region.may_be_absent().then(Arc::default);
        Entry { region, rights, key, pages: None, holder: None, closed: false, lost }
    }

    /// May this be done with the range? Bounds are checked.
    fn permits(&self, offset: u64, len: u64, right: Rights) -> bool {
        match &self.pages {
            None => self.rights.contains(right),
            Some(pages) => pages.grant(pages_of(offset, len), right),
        }
    }
}

impl RegionTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> RegionTable {
        RegionTable::default()
    }

    /// Open a region to peers that know its key.
    ///
    /// # Errors
    /// [`MemoryError`]: rights that lent memory cannot grant, a full table, no randomness.
    pub fn insert(&mut self, region: Region, rights: Rights) -> Result<Registered, MemoryError> {
        grantable(&region, rights)?;
        let key = self.keys.draw()?;
        let id = self.put(Entry::new(region, rights, Some(key)))?;
        let slot = slot_of(id);
        self.keys.insert(key, slot);
        Ok(Registered { slot, id, key })
    }

    /// Register a region for our own sends and gets; no peer can reach it.
    ///
    /// # Errors
    /// [`MemoryError::TableFull`].
    pub fn insert_local(&mut self, region: Region) -> Result<u32, MemoryError> {
        self.put(Entry::new(region, Rights::NONE, None)).map(slot_of)
    }

    /// Forget a region: its slot, id and key mean nothing from now on. The region, if the slot was
    /// live.
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

    /// What peers may do on every page, unless [`RegionTable::has_page_rights`].
    #[must_use]
    pub fn rights(&self, slot: u32) -> Option<Rights> {
        self.entry(slot).map(|entry| entry.rights)
    }

    /// Do some pages of the region grant something else than others?
    #[must_use]
    pub fn has_page_rights(&self, slot: u32) -> bool {
        self.entry(slot).is_some_and(|entry| entry.pages.is_some())
    }

    /// Whoever drops the last of these ends the registration; those who know the region by its
    /// number keep it by one of them.
    pub fn set_holder(&mut self, slot: u32, holder: &Holder) {
        if let Some(entry) = self.entry_mut(slot) {
            entry.holder = Some(Arc::downgrade(holder));
        }
    }

    /// The region of this name, for an operation: its slot, its length, and what keeps it. `None`:
    /// it is registered no more, or being deregistered (MEM-1.5).
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

    /// The slot of a registration that has not ended, whether or not operations may begin.
    #[must_use]
    pub fn slot(&self, id: RegionId) -> Option<u32> {
        let place =
            self.places.get(id.index()).filter(|place| place.generation == id.generation())?;
        place.entry.as_ref().map(|_| slot_of(id))
    }

    /// Is it being deregistered, or gone?
    #[must_use]
    pub fn is_closed(&self, slot: u32) -> bool {
        self.entry(slot).is_none_or(|entry| entry.closed)
    }

    /// May an operation begin with it? `keep`, which is what the operation keeps, tells the
    /// registration from a later one with the same slot: slots, other than ids, are used again.
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

    /// The name of the region in a live slot.
    #[must_use]
    pub fn id(&self, slot: u32) -> Option<RegionId> {
        let place = self
            .places
            .get(index_of(slot))
            .filter(|place| place.has(slot) && place.entry.is_some())?;
        Some(place.id(index_of(slot)))
    }

    /// Whoever keeps the region in this slot registered.
    #[must_use]
    pub fn holder(&self, slot: u32) -> Option<Holder> {
        self.entry(slot)?.holder.as_ref()?.upgrade()
    }

    /// The region that peers reach by this key.
    #[must_use]
    pub fn of_key(&self, key: u64) -> Option<&Region> {
        self.region(self.keys.find(key)?)
    }

    /// The region in a live slot.
    #[must_use]
    pub fn region(&self, slot: u32) -> Option<&Region> {
        self.entry(slot).map(|entry| &entry.region)
    }

    /// Where this memory is registered, under whatever number.
    #[must_use]
    pub fn slots_of(&self, region: &Region) -> Vec<u32> {
        let is_it =
            |place: &Place| place.entry.as_ref().is_some_and(|entry| entry.region.is_same(region));
        let found = self.places.iter().enumerate().filter(|(_, place)| is_it(place));
        found.map(|(index, place)| slot_of(place.id(index))).collect()
    }

    /// The region with this key, its slot and rights, if a local peer may reach it by itself: its
    /// memory is a file, and every page grants the same, reading, or writing and what else there is
    /// (MEM-18.1).
    #[must_use]
    pub fn mappable(&self, key: u64) -> Option<(u32, &Region, Rights)> {
        let slot = self.keys.find(key)?;
        let entry = self.entry(slot).filter(|entry| !entry.closed && entry.pages.is_none())?;
        // Where only PUSH is granted, a mapping would let a peer harm the FIFO (MEM-13.4).
        let whole = [Rights::READ, Rights::WRITE, Rights::ATOMIC]
            .into_iter()
            .any(|right| entry.rights.contains(right));
        (entry.region.kind() == RegionKind::Shared && whole).then_some((
            slot,
            &entry.region,
            entry.rights,
        ))
    }

    /// Bytes to be sent, kept in place until the answer is dropped. `None` if the segment is not
    /// inside a live region, or the scope that lent the memory has ended.
    #[must_use]
    pub fn gather(&self, segment: &Segment) -> Option<Gather> {
        let entry = self.entry(segment.region)?;
        if let Some(lost) = &entry.lost {
            // Absent: lost as on a bad wire, and gathered again (MEM-1.12).
            self.fetch_source(segment.region, entry, lost, segment.offset, segment.len)?;
        }
        let (at, hold) = entry.region.hold(segment.offset, segment.len).ok()?;
        Some(Gather::new(at, usize::try_from(segment.len).ok()?, hold))
    }

    /// Does this begin with a page, of memory that [may be read late](Gather::may_be_read_late)?
    #[must_use]
    pub fn begins_with_page(&self, segment: &Segment) -> bool {
        let region = self
            .entry(segment.region)
            .map(|entry| &entry.region)
            .filter(|region| region.may_be_read_late());
        let begin = region.and_then(|region| region.hold(segment.offset, segment.len).ok());
        begin.is_some_and(|(at, _)| at.addr().get() % PAGE == 0)
    }

    /// Bytes to be received directly into their place, kept there until the answer is dropped.
    /// `None` as for [`RegionTable::gather`], if the memory was lent for reading, and for shared
    /// arrays, whose pages may never hold what was not verified.
    #[must_use]
    pub fn scatter(&self, segment: Segment) -> Option<Scatter> {
        let region = self.region(segment.region)?;
        if region.kind() == RegionKind::Alias || !region.rights().contains(Rights::WRITE) {
            return None;
        }
        let (at, hold) = region.hold(segment.offset, segment.len).ok()?;
        Some(Scatter::new(at, usize::try_from(segment.len).ok()?, hold))
    }

    /// Live regions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// No live region?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes that met no live range and were ignored.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.strays
    }

    fn entry(&self, slot: u32) -> Option<&Entry> {
        self.places.get(index_of(slot)).filter(|place| place.has(slot))?.entry.as_ref()
    }

    fn entry_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.places.get_mut(index_of(slot)).filter(|place| place.has(slot))?.entry.as_mut()
    }

    fn put(&mut self, entry: Entry) -> Result<RegionId, MemoryError> {
        let may_grow = self.places.len() < REGIONS_MAX;
        let free =
            if may_grow && self.free.len() < REUSE_AFTER { None } else { self.free.pop_front() };
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
    /// Is this slot of the registration that is here now? (By the bits of the generation that a
    /// slot has.)
    fn has(&self, slot: u32) -> bool {
        self.generation as u32 & (u32::MAX >> INDEX_BITS) == slot >> INDEX_BITS
    }

    fn id(&self, index: usize) -> RegionId {
        RegionId::new(self.generation, index)
    }
}

/// Can the memory itself grant this?
fn grantable(region: &Region, rights: Rights) -> Result<(), MemoryError> {
    match region.rights().contains(rights) {
        true if rights != Rights::NONE && region.is_torn() => Err(MemoryError::Torn),
        true => Ok(()),
        false => Err(MemoryError::ReadOnly),
    }
}

/// The low bits of an id: index and some of the generation.
fn slot_of(id: RegionId) -> u32 {
    id.to_bits() as u32
}

fn index_of(slot: u32) -> usize {
    (slot & (REGIONS_MAX as u32 - 1)) as usize
}

/// The pages that a range touches; one of length 0 stands on the page where it begins.
fn pages_of(offset: u64, len: u64) -> Range<u64> {
    let last = offset.saturating_add(len.saturating_sub(1));
    offset / PAGE as u64..last / PAGE as u64 + 1
}
