//! Live guards, marks and owned bytes of all nodes over one array, as one node uses them.

use super::area::{Area, ENTRIES_LEN, GuardEntry, HEAD};
use super::entries::OwnEntries;
use super::extent::{ArrayForm, Extent};
use super::groups::{GROUPS_LEN, Groups};
use super::notes::SegmentNotes;
use super::owned::{HEADS_LEN, LIST_LEN, OwnedLists, OwnedRanges};
use super::places::{OwnPlaces, PLACES_LEN, place_text};

use crate::memory::mapping::{Mapping, whole_pages};
use crate::memory::tracking::{Attempt, Begun, GuardBytes, GuardKind, OtherNodes};
use crate::memory::{MemoryError, lasting_len, reserve_file};
use crate::processes::signals::{Locked, locked};
use crate::shm::arena::points::pass_point;
use crate::shm::memory::Memory;
use crate::shm::planted::{Bug, planted};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::PAGE;
use rustix::fd::{AsFd, OwnedFd};
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Place in a node's part of the heads of its lists of owned bytes.
const OWNED_HEADS: usize = 512;
/// Places in a node's part, which begins with a page of heads.
const PLACES: usize = PAGE;
const LISTS: usize = PLACES + PLACES_LEN;
const ENTRIES: usize = LISTS + 2 * LIST_LEN;
/// Bytes of the part of one node.
const NODE_LEN: usize = ENTRIES + ENTRIES_LEN;
/// Number of looks for guards that lend references, before a mark is refused.
const MARK_LOOKS: usize = 16;
/// Number of runs that are stored under entries of their own at a time.
const RUNS_AT_ONCE: usize = 64;

const _: () = assert!(HEAD <= OWNED_HEADS && OWNED_HEADS + HEADS_LEN <= PAGE);
const _: () = assert!(GROUPS_LEN.is_multiple_of(PAGE) && NODE_LEN.is_multiple_of(PAGE));

/// Returns the length in bytes of the file of an array of this length for this many nodes.
///
/// # Errors
/// The array is too long.
pub fn segment_file_len(bytes: usize, nodes: u32) -> Result<usize, MemoryError> {
    let control = GROUPS_LEN + nodes as usize * NODE_LEN;
    whole_pages(whole_pages(bytes.max(1))?.saturating_add(control))
}

/// Nodes that map a segment: which of them this one is, and how it knows of their ends.
#[derive(Clone)]
pub struct SegmentMembers {
    /// Rank of this node.
    pub me: Rank,
    /// Number of nodes.
    pub nodes: u32,
    /// Returns `true` if the kernel says that the process of a node has ended. A silent node may
    /// still have its guards.
    pub has_ended: Arc<dyn Fn(Rank) -> bool + Send + Sync>,
}

impl fmt::Debug for SegmentMembers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of {}", self.me, self.nodes)
    }
}

/// Guard of another node that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OtherGuard {
    /// A live guard.
    Alive {
        /// Node that has the guard.
        rank: Rank,
        /// Purpose and bytes of the guard.
        entry: GuardEntry,
        /// Line of the program at which it was taken, or an empty text.
        taken_at: String,
    },
    /// This node has no room to tell others of a further guard.
    NoRoom,
}

impl fmt::Display for OtherGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OtherGuard::Alive { rank, entry, taken_at } = self else {
            return f.write_str(
                "so many guards of this node are alive that there is no room for one more",
            );
        };
        let Range { start, end } = entry.extent.bytes;
        write!(f, "a guard of node {rank} that {} bytes {start}..{end}", entry.kind.verb())?;
        match taken_at.is_empty() {
            true => f.write_str(" is alive"),
            false => write!(f, ", taken at {taken_at}, is alive"),
        }
    }
}

/// One array that all nodes map: their live guards, marks and owned bytes.
#[derive(Debug)]
pub struct Segment {
    /// Name of the array.
    pub(super) name: String,
    members: SegmentMembers,
    form: ArrayForm,
    file: Arc<OwnedFd>,
    /// Place in the file of what the nodes tell each other.
    control: usize,
    areas: Vec<Area>,
    lists: Vec<OwnedLists>,
    places: Vec<Memory>,
    groups: Groups,
    own: Mutex<OwnPart>,
    owned: Mutex<OwnedRanges>,
    notes: Arc<SegmentNotes>,
}

/// This node's part, as it is in use.
#[derive(Debug, Default)]
struct OwnPart {
    entries: OwnEntries,
    places: OwnPlaces,
    /// Number of bytes of the entries that have memory.
    reserved: usize,
    has_places: bool,
    has_lists: [bool; 2],
}

impl Segment {
    /// Maps what the nodes tell each other about an array of this name and length in this file,
    /// which has [`segment_file_len`] bytes. The parts are zero.
    ///
    /// # Errors
    /// No memory or address space.
    pub fn new(
        file: &Arc<OwnedFd>,
        (name, bytes): (&str, usize),
        form: ArrayForm,
        members: SegmentMembers,
        notes: &Arc<SegmentNotes>,
    ) -> Result<Arc<Segment>, MemoryError> {
        let control = whole_pages(bytes.max(1))?;
        let whole = segment_file_len(bytes, members.nodes)?;
        // An access beyond the end of the file would end this process.
        if lasting_len(file).ok() != Some(whole as u64) {
            return Err(MemoryError::Length(whole));
        }
        let len = whole - control;
        let mapping = Arc::new(Mapping::of_part_of_file(file.as_fd(), control as u64, len, true)?);
        let part = |rank: Rank, at: usize, len: usize| {
            Memory::new(Arc::clone(&mapping), GROUPS_LEN + rank as usize * NODE_LEN + at, len)
        };
        let all = 0..members.nodes;
        let list = |rank, index| part(rank, LISTS + index * LIST_LEN, LIST_LEN);
        let segment = Arc::new(Segment {
            name: name.to_owned(),
            areas: all
                .clone()
                .map(|rank| Area::new(part(rank, 0, HEAD), part(rank, ENTRIES, ENTRIES_LEN)))
                .collect(),
            lists: all
                .clone()
                .map(|rank| {
                    let heads = part(rank, OWNED_HEADS, HEADS_LEN);
                    OwnedLists::new(heads, [list(rank, 0), list(rank, 1)])
                })
                .collect(),
            places: all.map(|rank| part(rank, PLACES, PLACES_LEN)).collect(),
            groups: Groups::new(Memory::new(Arc::clone(&mapping), 0, GROUPS_LEN), members.me),
            form,
            file: Arc::clone(file),
            control,
            own: Mutex::default(),
            owned: Mutex::default(),
            notes: Arc::clone(notes),
            members,
        });
        // Other nodes read these pages, and must find memory there.
        reserve_file(file, control, GROUPS_LEN)?;
        segment.reserve(0, PAGE)?;
        Ok(segment)
    }

    /// Finds memory for a range of this node's part.
    fn reserve(&self, at: usize, len: usize) -> Result<(), MemoryError> {
        let part = self.control + GROUPS_LEN + self.members.me as usize * NODE_LEN;
        reserve_file(&self.file, part + at, len)
    }

    fn own(&self) -> Locked<MutexGuard<'_, OwnPart>> {
        locked(|| self.own.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Publishes a guard of this node. Returns its entry, or `None` if there is no room.
    #[inline]
    fn publish(&self, own: &mut OwnPart, guard: &GuardEntry) -> Option<usize> {
        let entry = self.fill(own, guard);
        self.end_publishing();
        entry
    }

    #[inline]
    fn end_publishing(&self) {
        if let Some(area) = self.areas.get(self.members.me as usize) {
            area.end_publishing();
        }
    }

    /// Publishes a guard as [`Segment::publish`] does. The guards of other nodes may be read after
    /// [`Segment::end_publishing`].
    #[inline]
    fn fill(&self, own: &mut OwnPart, guard: &GuardEntry) -> Option<usize> {
        let area = self.areas.get(self.members.me as usize)?;
        let (index, sequence) = own.entries.take(guard.kind)?;
        if own.entries.used() * ENTRIES_LEN / super::area::ENTRIES > own.reserved {
            if self.reserve(ENTRIES + own.reserved, PAGE).is_err() {
                own.entries.give_back(index);
                return None;
            }
            own.reserved += PAGE;
        }
        area.fill(index, sequence, guard, own.entries.used());
        Some(index)
    }

    /// Returns the number of a line of the program.
    #[inline]
    fn place(&self, own: &mut OwnPart, taken_at: Option<&'static Location<'static>>) -> u16 {
        let Some(table) = self.places.get(self.members.me as usize) else { return 0 };
        if !own.has_places {
            own.has_places = self.reserve(PLACES, PLACES_LEN).is_ok();
        }
        if own.has_places { own.places.number(taken_at, table) } else { 0 }
    }

    /// Begins a guard, unless a guard of another node is in the way, which is the error.
    #[inline]
    fn begin_entry(&self, asked: &GuardBytes) -> Result<Begun, OtherGuard> {
        let GuardBytes { kind, bytes, is_block, lends, taken_at } = asked;
        let extent = Extent { bytes: bytes.clone(), is_block: *is_block };
        // Not only below: the others need not see an entry that is withdrawn at once.
        if *lends && self.is_marked() {
            return Ok(Begun::Copies);
        }
        let mut own = self.own();
        let place = self.place(&mut own, *taken_at);
        let guard = GuardEntry { kind: *kind, extent, lends: *lends, place };
        let entry = self.publish(&mut own, &guard).ok_or(OtherGuard::NoRoom)?;
        drop(own);
        if *lends && self.is_marked() {
            self.end_entry(entry);
            return Ok(Begun::Copies);
        }
        match self.in_the_way(&guard) {
            None => Ok(Begun::InPlace(entry)),
            Some(other) => {
                if !planted(Bug::KeepRefusedEntry) {
                    self.end_entry(entry);
                }
                Err(other)
            }
        }
    }

    /// Returns `true` if a node has marked the array.
    #[inline]
    fn is_marked(&self) -> bool {
        self.areas.iter().any(Area::is_marked) && !planted(Bug::LendMarked)
    }

    /// Ends a guard.
    #[inline]
    fn end_entry(&self, entry: usize) {
        self.end_all([entry]);
    }

    /// Ends several guards at once.
    #[inline]
    fn end_all(&self, entries: impl IntoIterator<Item = usize>) {
        let Some(area) = self.areas.get(self.members.me as usize) else { return };
        let mut own = self.own();
        for entry in entries {
            own.entries.give_back(entry);
            area.withdraw(entry, own.entries.used());
        }
    }

    /// Returns a guard of another node that conflicts with this one.
    #[inline]
    fn in_the_way(&self, guard: &GuardEntry) -> Option<OtherGuard> {
        self.find(|other| {
            other.kind.conflicts(guard.kind) && other.extent.meets(&guard.extent, &self.form)
        })
    }

    /// Returns a guard of another node that is sought, whose process lives.
    #[inline]
    fn find(&self, is_sought: impl Fn(&GuardEntry) -> bool) -> Option<OtherGuard> {
        let has_ended = |rank| (self.members.has_ended)(rank);
        let others = (0..).zip(&self.areas).filter(|(rank, _)| *rank != self.members.me);
        others.take_while(|(rank, _)| !planted(Bug::StopAtEnded) || !has_ended(*rank)).find_map(
            |(rank, area)| {
                let entry = area.find(&is_sought)?;
                let counts = !has_ended(rank) || planted(Bug::CountEnded);
                counts.then(|| self.other(rank, entry))
            },
        )
    }

    #[cold]
    fn other(&self, rank: Rank, entry: GuardEntry) -> OtherGuard {
        let table = self.places.get(rank as usize);
        let taken_at = table.map(|table| place_text(entry.place, table)).unwrap_or_default();
        OtherGuard::Alive { rank, entry, taken_at }
    }

    /// Takes the bytes that guards of this node have owned since they were taken last.
    pub(super) fn take_owned(&self) -> Vec<Range<u64>> {
        locked(|| self.owned.lock().unwrap_or_else(PoisonError::into_inner)).take()
    }

    /// Tells the others which bytes guards of this node owned, before it comes to a collective.
    pub(super) fn tell_owned(&self, number: u64, ranges: &[Range<u64>]) {
        let index = OwnedLists::index(number);
        let mut own = self.own();
        if own.has_lists.get(index) == Some(&false) {
            // Without memory, the bytes are not compared, as if there were too many of them.
            if self.reserve(LISTS + index * LIST_LEN, LIST_LEN).is_err() {
                return;
            }
            if let Some(has) = own.has_lists.get_mut(index) {
                *has = true;
            }
        }
        if let Some(lists) = self.lists.get(self.members.me as usize) {
            lists.write(number, ranges);
        }
    }

    /// Returns two nodes whose guards owned one byte before a collective that all have come to, and
    /// the first such bytes. All nodes find the same.
    pub(super) fn overlap(&self, number: u64) -> Option<([Rank; 2], Range<u64>)> {
        let told = |(rank, lists): (Rank, _)| Some((rank, OwnedLists::read(lists, number)?));
        let told: Vec<_> = (0..).zip(&self.lists).filter_map(told).collect();
        let found = told.iter().enumerate().find_map(|(at, (rank, list))| {
            let others = told.get(at + 1..).unwrap_or_default();
            others.iter().find_map(|(other, others)| {
                let meet = list.hull.start < others.hull.end && others.hull.start < list.hull.end;
                let common = meet.then(|| list.overlap(others)).flatten()?;
                Some(([*rank, *other], common))
            })
        })?;
        // Another thread may have begun the next collectives meanwhile.
        let is_certain = found.0.iter().all(|rank| {
            self.lists.get(*rank as usize).is_some_and(|lists| lists.is_still_of(number))
        });
        is_certain.then_some(found)
    }
}

/// Looks again and again for a moment. Returns a guard that stays.
fn lender_after_pause(lender: &impl Fn() -> Option<OtherGuard>) -> Option<OtherGuard> {
    (1..MARK_LOOKS).try_fold(None, |_, _| {
        std::thread::yield_now();
        lender().map(Some)
    })?
}

impl OtherNodes for Segment {
    #[inline]
    fn begin(&self, guard: &GuardBytes) -> Result<Begun, String> {
        self.begin_entry(guard).map_err(|other| other.to_string())
    }

    #[inline]
    fn end(&self, entry: usize) {
        self.end_entry(entry);
    }

    fn mark(&self) -> Result<(), String> {
        let Some(area) = self.areas.get(self.members.me as usize) else { return Ok(()) };
        let _own = self.own();
        if area.is_marked() {
            return Ok(());
        }
        area.set_mark(true);
        // A guard that began before it saw the mark may be about to end.
        let lender = || self.find(|other| other.lends);
        match lender().and_then(|_| lender_after_pause(&lender)) {
            None => Ok(()),
            Some(other) => {
                if !planted(Bug::KeepMark) {
                    area.set_mark(false);
                }
                Err(other.to_string())
            }
        }
    }

    fn element_len(&self) -> usize {
        self.form.element_len()
    }

    fn merge(
        &self,
        runs: &[Range<u64>],
        taken_at: Option<&'static Location<'static>>,
        store: &mut dyn FnMut(&Range<u64>),
    ) -> Option<String> {
        let (mut first, mut rest) = (None, runs);
        while !rest.is_empty() {
            let mut own = self.own();
            let place = self.place(&mut own, taken_at);
            let mut published = Vec::new();
            for bytes in rest.iter().take(RUNS_AT_ONCE) {
                let extent = Extent { bytes: bytes.clone(), is_block: false };
                let guard = GuardEntry { kind: GuardKind::Merge, extent, lends: false, place };
                let Some(entry) = self.fill(&mut own, &guard) else { break };
                published.push((guard, entry));
            }
            drop(own);
            if planted(Bug::StoreWithoutEntry) {
                self.end_all(published.iter().map(|(_, entry)| *entry));
            }
            self.end_publishing();
            if published.is_empty() {
                first = first.or(Some(OtherGuard::NoRoom));
                break;
            }
            let (now, later) = rest.split_at_checked(published.len()).unwrap_or((rest, &[]));
            // Mostly no guard is near any of the runs, which one search finds.
            let ends = now.first().zip(now.last());
            let bytes = ends.map_or(0..0, |(first, last)| first.start..last.end);
            let extent = Extent { bytes, is_block: false };
            let hull = GuardEntry { kind: GuardKind::Merge, extent, lends: false, place };
            let near = self.in_the_way(&hull);
            for ((guard, _), run) in published.iter().zip(now) {
                let other = match &near {
                    Some(_) if !planted(Bug::RefuseWholeMerge) => self.in_the_way(guard),
                    near => near.clone(),
                };
                match other {
                    None => {
                        pass_point();
                        store(run);
                    }
                    Some(other) => first = first.or(Some(other)),
                }
            }
            rest = later;
            self.end_all(published.iter().map(|(_, entry)| *entry));
        }
        first.map(|other| other.to_string())
    }

    fn operate(
        &self,
        guard: &GuardBytes,
        operation: &mut dyn FnMut(),
    ) -> Result<Attempt<()>, String> {
        let Begun::InPlace(entry) = self.begin(guard)? else { return Ok(Attempt::Waits(None)) };
        // A handler of this thread must find the groups free.
        let blocked = locked(|| ());
        let entered = self.groups.enter(&guard.bytes, |rank| (self.members.has_ended)(rank));
        let attempt = match entered {
            Ok(_entered) => {
                operation();
                Attempt::Done(())
            }
            Err(holder) => Attempt::Waits(holder),
        };
        drop(blocked);
        self.end(entry);
        Ok(attempt)
    }

    #[inline]
    fn note_owned(&self, rows: &[Range<u64>]) {
        let mut owned = locked(|| self.owned.lock().unwrap_or_else(PoisonError::into_inner));
        rows.iter().for_each(|row| owned.add(row.clone()));
        drop(owned);
        self.notes.note_owned();
    }

    fn keep_race(&self, text: String) {
        self.notes.keep_race(text);
    }
}
