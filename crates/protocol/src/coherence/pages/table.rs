//! All shared arrays of this node, the states of their pages (COH-3.2), and the end of their lives
//! (COH-14).

use crate::Rank;
use crate::coherence::pages::array::Array;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::number_set::{NumberSet, common};
use crate::coherence::pages::page::{PageId, PageState, bytes_of, pages_of, ranges};
use crate::coherence::statistics::ArrayStatistics;
use crate::coherence::updating::delivery::Delivery;
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Number of pages that the first touch of a page homed here maps around it: 2 MiB.
const FIRST_TOUCH: u64 = 512;

/// Result of an attempt to make a page valid without its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opened {
    /// The page is valid now.
    Valid,
    /// The page must be fetched.
    Absent,
    /// The page is on its way.
    Requested,
    /// There is no such array.
    Unknown,
}

/// Arrays by number. A number is used once in a job.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Arrays {
    /// Number of the next declaration.
    next: ArrayId,
    known: BTreeMap<ArrayId, Array>,
    /// Slots of the arrays' aliases in the engine's region table.
    regions: BTreeMap<ArrayId, u32>,
    /// Pages written since the last release. Such a page has a twin if its home is elsewhere, or is
    /// shared if its home is here.
    pub dirty: BTreeSet<PageId>,
    /// `true` while this node holds a lock. A grant of the lock tells what was written to pages of
    /// which twins are kept (COH-10.17).
    pub holds_locks: bool,
    /// Arrays that this node has dropped and that are not freed.
    dropped: NumberSet,
    /// Freed arrays whose memory messages of this node may still read.
    ending: Vec<ArrayId>,
    /// Slots of aliases that the engine can remove.
    unused: Vec<u32>,
    /// Sums of the counters of freed arrays by name. Those for which there is no room have the
    /// empty name.
    counted: BTreeMap<String, ArrayStatistics>,
}

/// Maximum number of names of freed arrays whose counters are kept apart.
const FREED_NAMES_MAX: usize = 64;

/// Leaves out the counters.
#[cfg(test)]
impl core::hash::Hash for Arrays {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Arrays { next, known, regions, dirty, holds_locks, dropped, ending, unused, .. } = self;
        (next, known, regions, dirty, holds_locks, dropped, ending, unused).hash(state);
    }
}

impl Arrays {
    /// Returns the number of the next declaration.
    pub fn next(&self) -> ArrayId {
        self.next
    }

    /// Uses up the next number. There is no array of that number unless one is given.
    pub fn add(&mut self, array: Option<Array>) -> ArrayId {
        let number = self.next;
        // 2³² declarations take weeks.
        self.next = self.next.saturating_add(1);
        if let Some(array) = array {
            self.known.insert(number, array);
        }
        number
    }

    /// Uses up all numbers below this one.
    pub fn skip(&mut self, next: ArrayId) {
        self.next = self.next.max(next);
    }

    #[inline]
    pub fn get(&self, number: ArrayId) -> Option<&Array> {
        self.known.get(&number)
    }

    /// Changes a setting of an array, if there is such an array.
    pub fn change(&mut self, number: ArrayId, change: impl FnOnce(&mut Array)) {
        self.get_mut(number).map(change);
    }

    #[inline]
    pub fn get_mut(&mut self, number: ArrayId) -> Option<&mut Array> {
        self.known.get_mut(&number)
    }

    /// Returns `true` if an array that this node has not dropped has the name.
    pub fn has_name(&self, name: &str, except: Option<ArrayId>) -> bool {
        let is_meant =
            |number: ArrayId| Some(number) != except && !self.dropped.contains(u64::from(number));
        self.known.iter().any(|(number, array)| array.name == name && is_meant(*number))
    }

    /// Returns `true` if the number was declared, and its array was freed or not agreed on.
    pub fn is_over(&self, number: ArrayId) -> bool {
        number < self.next && !self.known.contains_key(&number)
    }

    /// Adds the counters of an array that ends to those of its name.
    pub fn keep_counters(&mut self, array: ArrayId) {
        let Some(ended) = self.known.get(&array) else { return };
        let has_room =
            self.counted.contains_key(&ended.name) || self.counted.len() < FREED_NAMES_MAX;
        let name = if has_room { ended.name.clone() } else { String::new() };
        let counted = self.counted.entry(name).or_default();
        let (sums, more) = (counted.values(), ended.statistics.values());
        *counted = ArrayStatistics::from_values(core::array::from_fn(|at| {
            let (sum, more) = (sums.get(at), more.get(at));
            sum.copied().unwrap_or(0).saturating_add(more.copied().unwrap_or(0))
        }));
    }

    /// Checks that these pages exist. Pages of a freed array do, because a message that names them
    /// may be old (COH-14.4).
    pub fn check(&self, number: ArrayId, first: u64, count: u64) -> Result<(), Refusal> {
        match self.get(number) {
            Some(array) if array.contains(first, count) => Ok(()),
            Some(_) => Err(Refusal::OutOfBounds),
            None if self.is_over(number) => Ok(()),
            None => Err(Refusal::UnknownObject),
        }
    }

    /// Sets the slot in the engine's region table of an array's alias.
    pub fn set_region(&mut self, array: ArrayId, region: u32) {
        self.regions.insert(array, region);
    }

    #[inline]
    pub fn region(&self, array: ArrayId) -> Option<u32> {
        self.regions.get(&array).copied()
    }

    /// Returns `true` if the array is written under guards alone.
    #[inline]
    pub fn is_guarded(&self, array: ArrayId) -> bool {
        self.get(array).is_some_and(|array| array.guarded)
    }

    /// As [`Array::mapping`], of an array by its number.
    #[inline]
    pub fn mapping(&self, array: ArrayId, access: Access) -> Access {
        self.get(array).map_or(access, |array| array.mapping(access))
    }

    /// Returns `true` if answers for this array are handed up whole (message through).
    pub fn takes_whole(&self, array: ArrayId) -> bool {
        self.get(array).is_some_and(|known| known.delivery == Some(Delivery::MessageThrough))
    }

    /// Returns `true` if all these pages are valid for `access` at this moment.
    pub fn holds(&self, array: ArrayId, range: Range<u64>, access: Access) -> bool {
        let known = self.get(array);
        known.is_some_and(|known| {
            range.end <= known.pages && range.clone().all(|page| known.state(page).holds(access))
        })
    }

    /// Makes a page valid for `access` if this needs no other node.
    pub fn open(&mut self, id: PageId, access: Access, pages: &mut dyn Pages) -> Opened {
        let (array, page) = id;
        let Some(known) = self.known.get_mut(&array) else { return Opened::Unknown };
        let one = page..page + 1;
        let guarded = known.guarded;
        let for_loads = known.mapping(Access::Read);
        match (known.state(page), access) {
            (state, access) if state.holds(access) => {}
            (PageState::HomeUntouched, _) => {
                let window = page / FIRST_TOUCH * FIRST_TOUCH;
                let row = known.row(page, window..window + FIRST_TOUCH);
                row.clone().for_each(|page| known.set(page, PageState::HomePrivate));
                pages.install(array, row, Access::Write);
            }
            (PageState::HomeShared, Access::Read) => {
                known.set(page, PageState::HomeRead);
                pages.install(array, one, for_loads);
            }
            (PageState::HomeShared, Access::Write) => {
                let needs_twin = known.may_leave(page);
                known.set(page, PageState::HomeWrite);
                self.dirty.insert(id);
                if needs_twin {
                    self.copy_to_twin(id, pages);
                }
                pages.install(array, one, Access::Write);
            }
            (PageState::HomeRead, _) if guarded => {}
            (PageState::HomeRead, _) => {
                let has_readers = !known.subscribers(page).is_empty();
                let needs_twin = self.holds_locks || has_readers || known.may_leave(page);
                known.set(page, PageState::HomeWrite);
                self.dirty.insert(id);
                if needs_twin {
                    self.copy_to_twin(id, pages);
                }
                pages.set_access(array, one, Access::Write);
            }
            (PageState::Read, _) if guarded => {}
            (PageState::Read, _) => {
                self.make_twin(id, pages);
                pages.set_access(array, one, Access::Write);
            }
            (PageState::Invalid, _) => return Opened::Absent,
            (PageState::Fetching | PageState::Stale, _) => return Opened::Requested,
            (PageState::Write | PageState::HomePrivate | PageState::HomeWrite, _) => {}
        }
        Opened::Valid
    }

    /// Marks a page on its way as stale, because a notice names it.
    pub fn mark_stale(&mut self, id: PageId) {
        if let Some(array) = self.get_mut(id.0).filter(|_| !planted(Bug::ForgetStaleFetch)) {
            array.set(id.1, PageState::Stale);
        }
    }

    /// Counts the private ones of these pages as shared and written, because other nodes get
    /// copies.
    pub fn share_private(&mut self, array: ArrayId, range: Range<u64>) {
        let Some(known) = self.known.get_mut(&array) else { return };
        for page in range {
            if known.state(page) == PageState::HomePrivate {
                known.set(page, PageState::HomeWrite);
                self.dirty.insert((array, page));
            }
        }
    }

    /// Keeps a copy of a clean page before it is written. The page is dirty from now on.
    pub fn make_twin(&mut self, id: PageId, pages: &mut dyn Pages) {
        self.copy_to_twin(id, pages);
        if let Some(array) = self.known.get_mut(&id.0) {
            array.set(id.1, PageState::Write);
            self.dirty.insert(id);
        }
    }

    /// Keeps a copy of a page, to find later what was written to it.
    pub fn copy_to_twin(&mut self, id: PageId, pages: &mut dyn Pages) {
        let mut twin = vec![0u8; PAGE].into_boxed_slice();
        pages.read(id.0, id.1, &mut twin);
        if let Some(array) = self.get_mut(id.0) {
            array.twins.insert(id.1, twin);
        }
    }

    /// Returns how many of the `len` bytes from the byte `at` of the array on are in copies of
    /// pages that are valid here, up to the first page that is not.
    pub fn valid_len(&self, id: ArrayId, at: u64, len: usize) -> usize {
        let is_valid = |state| matches!(state, Some(PageState::Read | PageState::Write));
        self.len_while(id, at, len, is_valid)
    }

    /// Returns how many of the `len` bytes from the byte `at` of the array on are in pages of the
    /// same state as the first one.
    pub fn alike_len(&self, id: ArrayId, at: u64, len: usize) -> usize {
        let first = self.get(id).map(|array| array.state(at / PAGE as u64));
        self.len_while(id, at, len, |state| state == first)
    }

    fn len_while(
        &self,
        id: ArrayId,
        at: u64,
        len: usize,
        fits: impl Fn(Option<PageState>) -> bool,
    ) -> usize {
        let (array, bytes) = (self.get(id), at..at + len as u64);
        let fits = |page: &u64| fits(array.map(|array| array.state(*page)));
        let last = pages_of(&bytes).take_while(fits).last();
        last.map_or(0, |last| (bytes_of(last).end.min(bytes.end) - at) as usize)
    }

    /// Writes bytes of another node into valid pages, from the byte `at` of the array on, and into
    /// the pages' twins, because the bytes are not a change of this node's. A call for several
    /// pages copies faster than one for each.
    pub fn apply_change(&mut self, id: ArrayId, at: u64, bytes: &[u8], pages: &mut dyn Pages) {
        pages.merge(id, at, bytes);
        let Some(array) = self.get_mut(id).filter(|array| !array.twins.is_empty()) else { return };
        let changed = at..at + bytes.len() as u64;
        for (page, twin) in array.twins.range_mut(pages_of(&changed)) {
            let (start, part) = (bytes_of(*page).start, common(&changed, &bytes_of(*page)));
            let into = twin.get_mut((part.start - start) as usize..(part.end - start) as usize);
            let from = bytes.get((part.start - at) as usize..(part.end - at) as usize);
            if let (Some(into), Some(from)) = (into, from) {
                into.copy_from_slice(from);
            }
        }
    }

    /// Records a change of a page homed here, after `epoch` collectives.
    pub fn note_change(&mut self, id: PageId, epoch: u64) {
        let readers = self.get_mut(id.0).and_then(|array| array.readers.get_mut(&id.1));
        if let Some(readers) = readers {
            readers.change(epoch + 1);
        }
    }

    /// Tells that this node will also write the array with plain stores. From now on its pages are
    /// tracked (COH-10.13).
    pub fn track_by_pages(&mut self, array: ArrayId, pages: &mut dyn Pages) {
        let Some(known) = self.get_mut(array).filter(|known| known.guarded) else { return };
        known.guarded = false;
        let mut clean: Vec<PageId> = Vec::new();
        let mut written: Vec<PageId> = Vec::new();
        let mut leaving: Vec<PageId> = Vec::new();
        for page in 0..known.pages {
            match known.state(page) {
                PageState::Read | PageState::HomeRead => clean.push((array, page)),
                PageState::Write if !known.twins.contains_key(&page) => written.push((array, page)),
                PageState::HomeWrite
                    if known.may_leave(page) && !known.twins.contains_key(&page) =>
                {
                    leaving.push((array, page));
                }
                _ => {}
            }
        }
        for (array, range) in ranges(clean) {
            pages.set_access(array, range, Access::Read);
        }
        // The twin has the bytes that guards have written so far. Plain stores from here on differ
        // from it. A twin that is there already shows what a guard that merges has written.
        written.into_iter().for_each(|id| self.make_twin(id, pages));
        leaving.into_iter().for_each(|id| self.copy_to_twin(id, pages));
    }

    /// Ends the tracking of pages whose copies are all invalid, after a collective that told all
    /// nodes this node's intervals up to `interval_reported`. Those are pages that the intervals
    /// name and that nobody has fetched since.
    pub fn untrack(&mut self, interval_reported: u64, pages: &mut dyn Pages) {
        let Arrays { known, dirty, .. } = self;
        for (id, array) in known {
            let (id, guarded) = (*id, array.guarded);
            let mut free = Vec::new();
            let noticed = core::mem::take(&mut array.noticed);
            for (page, interval) in noticed {
                if interval > interval_reported {
                    array.noticed.insert(page, interval);
                    continue;
                }
                match array.state(page) {
                    PageState::HomeShared => array.set(page, PageState::HomeUntouched),
                    PageState::HomeRead => {
                        array.set(page, PageState::HomePrivate);
                        free.push((id, page));
                    }
                    PageState::HomeWrite => {
                        array.set(page, PageState::HomePrivate);
                        array.twins.remove(&page);
                        dirty.remove(&(id, page));
                    }
                    _ => {}
                }
            }
            for (array, range) in ranges(free).into_iter().filter(|_| !guarded) {
                pages.set_access(array, range, Access::Write);
            }
        }
    }

    /// Returns the home of a page that has been requested and has not arrived yet.
    pub fn fetching_from(&self, array: ArrayId, page: u64) -> Option<Rank> {
        let known = self.get(array).filter(|array| array.contains(page, 1))?;
        known.state(page).is_requested().then(|| known.home(page))
    }

    /// Tells that no thread of this node will use the array any more. Returns `false` if there is
    /// no such array.
    pub fn drop_array(&mut self, array: ArrayId) -> bool {
        let is_known = self.known.contains_key(&array);
        if is_known {
            self.dropped.insert(u64::from(array)..u64::from(array) + 1);
        }
        is_known
    }

    /// Returns the numbers of the arrays that this node has dropped and that are not freed.
    pub fn dropped(&self) -> &NumberSet {
        &self.dropped
    }

    /// Returns the pages that became copies here and that this node has not told its parent.
    pub fn untold_copies(&self) -> BTreeMap<ArrayId, NumberSet> {
        let untold = self.known.iter().map(|(number, array)| (*number, array.untold_copies()));
        untold.filter(|(_, pages)| !pages.is_empty()).collect()
    }

    /// Takes the pages that became copies here since the last call, and those that ceased to be.
    pub fn tell_copies(&mut self) -> [BTreeMap<ArrayId, NumberSet>; 2] {
        let [mut gained, mut lost] = [BTreeMap::new(), BTreeMap::new()];
        for (number, array) in &mut self.known {
            let (new, old) = (array.untold_copies(), array.lost_copies());
            array.copies.tell(&new, &old);
            let told = [(&mut gained, new), (&mut lost, old)];
            for (all, pages) in told.into_iter().filter(|(_, pages)| !pages.is_empty()) {
                all.insert(*number, pages);
            }
        }
        [gained, lost]
    }

    /// Removes an array. Returns the slot of its alias.
    pub fn remove(&mut self, array: ArrayId) -> Option<u32> {
        self.known.remove(&array);
        self.dropped.remove(u64::from(array)..u64::from(array) + 1);
        self.dirty.retain(|id| id.0 != array);
        self.regions.remove(&array)
    }

    /// Keeps a removed array until no message of this node reads its memory any more.
    pub fn retire(&mut self, array: ArrayId, slot: Option<u32>) {
        self.unused.extend(slot);
        self.ending.push(array);
    }

    /// Gives back the memory of removed arrays that no message reads any more.
    pub fn end_retired(&mut self, is_read: impl Fn(ArrayId) -> bool, pages: &mut dyn Pages) {
        self.ending.retain(|array| {
            let is_over = !is_read(*array);
            if is_over {
                pages.free(*array);
            }
            !is_over
        });
    }

    /// As [`Self::iter`], for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ArrayId, &mut Array)> {
        self.known.iter_mut().map(|(number, array)| (*number, array))
    }

    /// Iterates over the arrays that are not freed.
    pub fn iter(&self) -> impl Iterator<Item = (ArrayId, &Array)> {
        self.known.iter().map(|(number, array)| (*number, array))
    }

    /// Iterates over the counters of freed arrays by name.
    pub fn freed(&self) -> impl Iterator<Item = (&str, &ArrayStatistics)> {
        self.counted.iter().map(|(name, counters)| (name.as_str(), counters))
    }

    /// Returns the slot of an alias that is not needed any more.
    pub fn poll_unused_region(&mut self) -> Option<u32> {
        // A retransmission may read any alias until the messages of the ending arrays are settled.
        if self.ending.is_empty() { self.unused.pop() } else { None }
    }
}
