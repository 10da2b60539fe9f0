//! Changes by intervals under a lock, as grants carry them (COH-10.17). Pages that a grant brings
//! up to date stay valid, so the next holder fetches none of them.

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter};
use crate::coherence::clock::notices::{Interval, Runs};
use crate::coherence::clock::vector::Vector;
use crate::coherence::pages::diff::{self, DiffMask};
use crate::coherence::pages::page::PageId;
use crate::coherence::pages::table::Arrays;
use crate::coherence::releasing::release::{CHANGES_MAX, CHANGES_OVERHEAD, PageChanges};
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Maximum size of the lists that were used last, in bytes. As many bytes of older lists are kept.
const YOUNG_MAX: usize = 2 << 20;

/// Numbers of intervals that have written under a lock.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct WrittenCounts {
    /// Number of all intervals.
    pub all: u64,
    /// Number of intervals that the manager was told of.
    pub told: u64,
}

/// Changes by one interval that an unlock of the lock closed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Written {
    /// Place among all intervals of the lock.
    pub position: u64,
    pub writer: Rank,
    pub interval: u64,
    pub changes: PageChanges,
}

impl Written {
    fn size(&self) -> usize {
        let pages = self.changes.iter().map(|(_, diff)| CHANGES_OVERHEAD + diff.len());
        CHANGES_OVERHEAD + pages.sum::<usize>()
    }

    /// Returns `true` if a node of rank `me` that knows `known` learns the interval from one that
    /// knows `vector`.
    fn is_news(&self, me: Rank, known: &Vector, vector: &Vector) -> bool {
        let unknown = self.interval > known.get(self.writer) || planted(Bug::ApplyKnownWritten);
        self.writer != me && unknown && self.interval <= vector.get(self.writer)
    }

    /// Returns the pages of which this is all that the interval wrote.
    fn pages(&self) -> Runs {
        Runs::from_pages(self.changes.iter().map(|(page, _)| *page))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_leb128(self.position).put_leb128(u64::from(self.writer));
        out.put_leb128(self.interval).put_leb128(self.changes.len() as u64);
        for ((array, _), diff) in &self.changes {
            out.put_leb128(u64::from(*array)).put_prefixed(diff);
        }
    }

    fn read(reader: &mut ByteReader<'_>, nodes: u32, arrays: &Arrays) -> Result<Written, Refusal> {
        let (position, writer) = (reader.leb128()?, reader.leb128_u32()?);
        let (interval, count) = (reader.leb128()?, reader.count(3)?);
        let mut changes = PageChanges::new();
        for _ in 0..count {
            let (array, diff) = (reader.leb128_u32()?, reader.prefixed()?);
            let mut page = None;
            diff::decode(diff, |of, _, _| match page.replace(of) {
                Some(other) if other != of => Err(Refusal::Malformed),
                _ => Ok(()),
            })?;
            let page = page.ok_or(Refusal::Malformed)?;
            arrays.check(array, page, 1)?;
            if changes.last().is_some_and(|(last, _)| *last >= (array, page)) {
                return Err(Refusal::Malformed);
            }
            changes.push(((array, page), diff.to_vec()));
        }
        if writer >= nodes {
            return Err(Refusal::Malformed);
        }
        Ok(Written { position, writer, interval, changes })
    }

    /// Writes a list for a message.
    pub fn write_all<'a>(list: impl Iterator<Item = &'a Written> + Clone, out: &mut Vec<u8>) {
        out.put_leb128(list.clone().count() as u64);
        list.for_each(|one| one.write(out));
    }

    /// Reads a list, in the order of the positions.
    pub fn read_all(
        reader: &mut ByteReader<'_>,
        nodes: u32,
        arrays: &Arrays,
    ) -> Result<Vec<Written>, Refusal> {
        let mut list: Vec<Written> = Vec::new();
        let mut size = 0;
        for _ in 0..reader.count(4)? {
            let one = Written::read(reader, nodes, arrays)?;
            size += one.size();
            let is_behind = list.last().is_none_or(|last| last.position < one.position);
            if !is_behind || size > CHANGES_MAX {
                return Err(Refusal::Malformed);
            }
            list.push(one);
        }
        Ok(list)
    }
}

/// Splits what an acquirer learns by what the grant brings. Returns the pages that it must
/// invalidate, and the intervals of `list` that it learns. Pages of those that are not among the
/// pages to invalidate are brought up to date by them.
pub(crate) fn named_beside<'a, 'w>(
    news: impl Iterator<Item = &'a Interval>,
    list: &'w [Written],
    me: Rank,
    (known, vector): (&Vector, &Vector),
) -> (Runs, Vec<&'w Written>) {
    let learnt: Vec<&Written> = list.iter().filter(|one| one.is_news(me, known, vector)).collect();
    let lacking = |interval: &Interval| {
        let is_of = |one: &&&Written| {
            (one.writer, one.interval, one.interval)
                == (interval.writer, interval.first, interval.last)
        };
        match learnt.iter().find(is_of) {
            Some(one) => interval.runs.without(&one.pages()),
            None if planted(Bug::TrustPartOfWritten) && !learnt.is_empty() => Runs::default(),
            None => interval.runs.clone(),
        }
    };
    let named = Runs::union(&news.map(lacking).collect::<Vec<Runs>>());
    (named, learnt)
}

/// Changes by the newest intervals of one lock, by position.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
struct WrittenList {
    intervals: BTreeMap<u64, Written>,
    size: usize,
}

impl WrittenList {
    fn add(&mut self, one: Written) {
        for ((page, diff), position) in one.changes.iter().zip(core::iter::repeat(one.position)) {
            self.shorten_before(position, *page, diff);
        }
        self.size += one.size();
        if let Some(other) = self.intervals.insert(one.position, one) {
            self.size -= other.size();
        }
        while self.size > CHANGES_MAX
            && let Some((_, oldest)) = self.intervals.pop_first()
        {
            self.size -= oldest.size();
        }
    }

    /// Keeps one byte of what an earlier interval wrote to a page, if this later diff overwrites
    /// all of it. A node that lacks the earlier interval lacks the later one, too (COH-7.3), and
    /// applies both. The list still says that all of the earlier interval is in it.
    fn shorten_before(&mut self, position: u64, page: PageId, later: &[u8]) {
        if later.len() <= diff::SHORT {
            return;
        }
        let before = self.intervals.range_mut(..position).rev().take(LOOK_BACK);
        let find = |one: &mut Written| one.changes.binary_search_by_key(&page, |(id, _)| *id).ok();
        let found = before.map(|(_, one)| one).find_map(|one| {
            let place = find(one)?;
            one.changes.get_mut(place).map(|(_, diff)| diff)
        });
        let Some(earlier) = found.filter(|earlier| earlier.len() > diff::SHORT) else { return };
        let is_covered = DiffMask::of(later).covers(&DiffMask::of(earlier));
        if !is_covered && !planted(Bug::ShortenPartly) {
            return;
        }
        if let Some(short) = diff::first_byte(earlier) {
            self.size -= earlier.len() - short.len();
            *earlier = short;
        }
    }
}

/// Number of entries before a new one in which a page is looked for.
const LOOK_BACK: usize = 8;

/// Changes under the locks that this node has held or manages. Lists that are not used are
/// forgotten, which costs fetches.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct WrittenLists {
    young: BTreeMap<u64, WrittenList>,
    young_size: usize,
    old: BTreeMap<u64, WrittenList>,
}

impl WrittenLists {
    /// Adds what intervals wrote under a lock.
    pub fn add(&mut self, lock: u64, written: Vec<Written>) {
        if written.is_empty() {
            return;
        }
        if !self.young.contains_key(&lock) {
            let list = self.old.remove(&lock).unwrap_or_default();
            self.young_size += list.size;
            self.young.insert(lock, list);
        }
        if let Some(list) = self.young.get_mut(&lock) {
            let before = list.size;
            written.into_iter().for_each(|one| list.add(one));
            self.young_size = self.young_size + list.size - before;
        }
        if self.young_size > YOUNG_MAX {
            self.old = core::mem::take(&mut self.young);
            self.young_size = 0;
        }
    }

    /// Returns what was written under a lock from a position on, in order.
    pub fn since(
        &self,
        lock: u64,
        position: u64,
    ) -> impl DoubleEndedIterator<Item = &Written> + Clone {
        let list = self.young.get(&lock).or_else(|| self.old.get(&lock)).into_iter();
        list.flat_map(move |list| list.intervals.range(position..)).map(|(_, one)| one)
    }

    /// Returns what was written under a lock that a node of rank `to` learns if it knows `known`
    /// and is told `vector`. A node that knows or wrote an entry knows all entries before it.
    pub fn news(&self, lock: u64, to: Rank, known: &Vector, vector: &Vector) -> Vec<&Written> {
        let told = |one: &&Written| one.interval <= vector.get(one.writer);
        let newest = self.since(lock, 0).rev().skip_while(|one| !told(one));
        let mut news: Vec<&Written> =
            newest.take_while(|one| one.is_news(to, known, vector)).collect();
        news.reverse();
        news
    }
}

#[cfg(test)]
mod tests {
    use super::{CHANGES_MAX, Written, WrittenLists};
    use alloc::vec;

    fn written(position: u64, len: usize) -> Written {
        Written { position, writer: 1, interval: 1, changes: vec![((0, 0), vec![0; len])] }
    }

    /// COH-9.1, COH-10.17: an entry that takes the place of another counts instead of it.
    #[test]
    fn a_list_counts_what_it_holds() {
        let mut lists = WrittenLists::default();
        for len in [1, CHANGES_MAX - 200, 3, CHANGES_MAX - 100, 7] {
            lists.add(5, vec![written(0, len), written(1, 9)]);
            let sizes: usize = lists.since(5, 0).map(Written::size).sum();
            assert_eq!((lists.young[&5].size, lists.young_size), (sizes, sizes));
            assert!(sizes <= CHANGES_MAX);
        }
    }
}
