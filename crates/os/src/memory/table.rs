//! The regions of one engine.

use super::region::Side;
use super::{AccessError, Gather, MemoryError, Region, RegionKind, Scatter};
use core::hash::{BuildHasherDefault, Hasher};
use oikaze_protocol::rma::{Accumulation, AtomicOp, Memory, Rights};
use oikaze_protocol::wind::{Refusal, Segment};
use std::collections::{HashMap, VecDeque};

/// Low bits of a slot: its place in the table. The rest is the place's generation.
const INDEX_BITS: u32 = 20;
/// Regions registered at the same time.
const REGIONS_MAX: usize = 1 << INDEX_BITS;
/// A place is used again only when at least so many are free: a number from before is then known for stale for
/// `REUSE_AFTER` × 2^12 insertions.
const REUSE_AFTER: usize = 64;
/// Keys drawn at a time.
const KEYS_DRAWN: usize = 32;

/// A region that peers can reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its number here, for [`Segment::region`].
    pub slot: u32,
    /// What a peer must know: random, never zero, never used twice (MEM-1.1).
    pub key: u64,
}

/// Regions by slot (our own segments) and by key (peers' requests). Everything a peer can say is checked here.
#[derive(Debug, Default)]
pub struct RegionTable {
    places: Vec<Place>,
    free: VecDeque<u32>,
    keys: HashMap<u64, u32, BuildHasherDefault<KeyHasher>>,
    drawn: Vec<u64>,
    strays: u64,
}

#[derive(Debug, Default)]
struct Place {
    generation: u32,
    entry: Option<Entry>,
}

#[derive(Debug)]
struct Entry {
    region: Region,
    rights: Rights,
    key: Option<u64>,
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
        if !region.rights().contains(rights) {
            return Err(MemoryError::ReadOnly);
        }
        let key = self.draw_key()?;
        let slot = self.put(Entry { region, rights, key: Some(key) })?;
        self.keys.insert(key, slot);
        Ok(Registered { slot, key })
    }

    /// Register a region for our own sends and gets; no peer can reach it.
    ///
    /// # Errors
    /// [`MemoryError::TableFull`].
    pub fn insert_local(&mut self, region: Region) -> Result<u32, MemoryError> {
        self.put(Entry { region, rights: Rights::NONE, key: None })
    }

    /// Forget a region: its slot and key mean nothing from now on. The region, if the slot was live.
    pub fn remove(&mut self, slot: u32) -> Option<Region> {
        let (index, generation) = split(slot);
        let place = self.places.get_mut(index).filter(|place| place.generation == generation)?;
        let entry = place.entry.take()?;
        place.generation = (generation + 1) & (u32::MAX >> INDEX_BITS);
        if let Some(key) = entry.key {
            self.keys.remove(&key);
        }
        self.free.push_back(index as u32);
        Some(entry.region)
    }

    /// The region in a live slot.
    #[must_use]
    pub fn region(&self, slot: u32) -> Option<&Region> {
        self.entry(slot).map(|entry| &entry.region)
    }

    /// Bytes to be sent, kept in place until the answer is dropped. `None` if the segment is not inside a live region, or the
    /// scope that lent the memory has ended.
    #[must_use]
    pub fn gather(&self, segment: Segment) -> Option<Gather> {
        let (at, hold) = self.entry(segment.region)?.region.hold(segment.offset, segment.len).ok()?;
        Some(Gather::new(at, usize::try_from(segment.len).ok()?, hold))
    }

    /// Bytes to be received straight into their place, kept there until the answer is dropped. `None` as for [`RegionTable::gather`], if
    /// the memory was lent for reading, and for shared arrays, whose pages may never hold what was not verified.
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
        let (index, generation) = split(slot);
        self.places.get(index).filter(|place| place.generation == generation)?.entry.as_ref()
    }

    fn put(&mut self, entry: Entry) -> Result<u32, MemoryError> {
        let may_grow = self.places.len() < REGIONS_MAX;
        let free = if may_grow && self.free.len() < REUSE_AFTER { None } else { self.free.pop_front() };
        let index = match free {
            Some(index) => index,
            None if may_grow => {
                self.places.push(Place::default());
                (self.places.len() - 1) as u32
            }
            None => return Err(MemoryError::TableFull(REGIONS_MAX)),
        };
        let place = self.places.get_mut(index as usize).ok_or(MemoryError::TableFull(REGIONS_MAX))?;
        place.entry = Some(entry);
        Ok(place.generation << INDEX_BITS | index)
    }

    fn draw_key(&mut self) -> Result<u64, MemoryError> {
        loop {
            if self.drawn.is_empty() {
                let mut bytes = [0; KEYS_DRAWN * 8];
                getrandom::fill(&mut bytes).map_err(|_| MemoryError::Random("getrandom failed"))?;
                self.drawn.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)));
            }
            match self.drawn.pop() {
                Some(key) if key != 0 && !self.keys.contains_key(&key) => return Ok(key),
                _ => {}
            }
        }
    }
}

/// Place and generation of a slot.
fn split(slot: u32) -> (usize, u32) {
    ((slot & (REGIONS_MAX as u32 - 1)) as usize, slot >> INDEX_BITS)
}

/// What peers may ask (spec/memory.md, MEM-1): everything is checked here, without overflow, and goes through the alias.
impl Memory for RegionTable {
    fn locate(&self, key: u64, offset: u64, len: u64, right: Rights) -> Result<u32, Refusal> {
        let slot = *self.keys.get(&key).ok_or(Refusal::UnknownKey)?;
        let entry = self.entry(slot).filter(|entry| !entry.region.is_closed()).ok_or(Refusal::UnknownKey)?;
        if !entry.rights.contains(right) {
            return Err(Refusal::NotPermitted);
        }
        entry.region.check_bounds(offset, len).map_err(refusal)?;
        Ok(slot)
    }

    /// Also `false` for memory that was lent for reading: nothing can land there.
    fn covers(&self, region: u32, offset: u64, len: u64) -> bool {
        self.region(region).is_some_and(|region| {
            region.rights().contains(Rights::WRITE) && !region.is_closed() && region.check_bounds(offset, len).is_ok()
        })
    }

    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) {
        let written = self.region(region).is_some_and(|region| region.write_from(Side::Runtime, offset, bytes).is_ok());
        self.strays += u64::from(!written);
    }

    fn read(&self, region: u32, offset: u64, into: &mut [u8]) -> bool {
        self.region(region).is_some_and(|region| region.read_from(Side::Runtime, offset, into).is_ok())
    }

    fn atomic(&mut self, region: u32, offset: u64, op: AtomicOp) -> Result<u64, Refusal> {
        let region = self.region(region).ok_or(Refusal::OutOfBounds)?;
        let width = op.width().bytes();
        region.check_bounds(offset, width).map_err(refusal)?;
        // MEM-5.1 speaks of the offset; the region sees to the address.
        if !offset.is_multiple_of(width) {
            return Err(Refusal::Misaligned);
        }
        region.atomic_from(Side::Runtime, offset, op).map_err(refusal)
    }

    fn accumulate(&mut self, region: u32, offset: u64, how: Accumulation, elements: &[u8]) -> Result<(), Refusal> {
        let region = self.region(region).ok_or(Refusal::OutOfBounds)?;
        region.accumulate_from(Side::Runtime, offset, how, elements).map_err(refusal)
    }
}

fn refusal(error: AccessError) -> Refusal {
    match error {
        AccessError::OutOfBounds { .. } => Refusal::OutOfBounds,
        AccessError::Misaligned { .. } => Refusal::Misaligned,
        AccessError::ReadOnly => Refusal::NotPermitted,
        AccessError::Closed => Refusal::UnknownKey,
    }
}

/// Keys are random already, and chosen by us: nothing to hash.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
