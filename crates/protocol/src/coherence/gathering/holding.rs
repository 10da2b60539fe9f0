//! Copies that the nodes of a subtree may hold, and what a departure tells of them (COH-6.19).

use crate::Rank;
use crate::bytes::ByteReader;
use crate::coherence::clock::notices::{Interval, OwnedBytes, Runs};
use crate::coherence::pages::machine::ArrayId;
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::table::Arrays;
use crate::coherence::updating::page_sets::PageSets;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::vec::Vec;
use core::ops::Range;

/// Maximum number of runs of pages that a node keeps of each child's subtree. Beyond it, gaps are
/// closed. A departure then tells too much, never too little.
const HELD_MAX: usize = 1 << 12;

/// Maximum number of runs of gained pages, and of lost ones, in one message.
pub(crate) const CHANGES_MAX: usize = 1 << 16;

/// Pages that became copies, and pages that ceased to be, since the last arrival.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct CopyChanges {
    pub gained: Runs,
    pub lost: Runs,
}

impl CopyChanges {
    /// Takes the changes on this node.
    pub fn take(arrays: &mut Arrays) -> CopyChanges {
        let [gained, lost] = arrays.tell_copies();
        CopyChanges { gained: Runs::of_sets(&gained), lost: Runs::of_sets(&lost) }
    }

    pub fn merge(&mut self, other: &CopyChanges) {
        for (all, more) in [(&mut self.gained, &other.gained), (&mut self.lost, &other.lost)] {
            if !more.is_empty() {
                *all = Runs::union([&*all, more]);
            }
        }
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        self.gained.write(out);
        self.lost.write(out);
    }

    pub fn read(reader: &mut ByteReader<'_>, arrays: &Arrays) -> Result<CopyChanges, Refusal> {
        Ok(CopyChanges { gained: Runs::read(reader, arrays)?, lost: Runs::read(reader, arrays)? })
    }

    /// Bounds what a message tells: more as gained, and less as lost.
    pub fn bound(&mut self) {
        self.gained = core::mem::take(&mut self.gained).at_most(CHANGES_MAX);
        self.lost.truncate(CHANGES_MAX);
    }
}

/// Copies that the nodes of each child's subtree may hold, in the order of the children.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct HeldCopies(Vec<PageSets>);

impl HeldCopies {
    pub fn new(children: usize) -> HeldCopies {
        HeldCopies((0..children).map(|_| PageSets::default()).collect())
    }

    pub fn of(&self, child: usize) -> Option<&PageSets> {
        self.0.get(child)
    }

    /// Learns what changed in a child's subtree. Gained and lost pages of one collective are apart,
    /// so the order of its messages does not matter.
    pub fn learn(&mut self, child: usize, changes: &CopyChanges) {
        let Some(held) = self.0.get_mut(child).filter(|_| !planted(Bug::ForgetHeld)) else {
            return;
        };
        held.remove_all(&changes.lost);
        held.insert_all(&changes.gained);
        if held.ranges() > HELD_MAX {
            *held = PageSets::from(&held.runs().at_most(HELD_MAX / 2));
        }
    }

    /// Forgets freed arrays.
    pub fn forget(&mut self, freed: &NumberSet) {
        let numbers = freed.iter().flatten().filter_map(|number| ArrayId::try_from(number).ok());
        numbers.for_each(|array| self.0.iter_mut().for_each(|held| held.forget(array)));
    }

    /// Returns those of the `lost` pages that neither this node nor another child's subtree may
    /// hold.
    pub fn lost_by_all(&self, lost: &Runs, arrays: &Arrays) -> Runs {
        let mut by_all = PageSets::from(lost);
        for (number, pages) in lost.iter() {
            let own = arrays.get(*number).into_iter();
            own.flat_map(|array| array.copies.told(pages.clone()))
                .for_each(|part| by_all.remove(*number, part));
        }
        self.0.iter().for_each(|held| by_all.remove_all(&held.common(lost)));
        by_all.runs()
    }
}

/// Returns the pages of these intervals that a node of `subtree` must be told of: it may hold a
/// copy that is named for it (COH-10.9), or perhaps got all of a page that it does not hold
/// (COH-6.21).
fn needed_pages(intervals: &[Interval], subtree: &Range<Rank>, held: &PageSets) -> PageSets {
    let mut needed = PageSets::default();
    let news = intervals.iter().filter(|one| *subtree != (one.writer..one.writer + 1));
    for interval in news.clone() {
        let mut lacking = PageSets::from(&held.common(&interval.runs));
        let is_other = |rank: &Rank| subtree.contains(rank) && *rank != interval.writer;
        let others = subtree.len() - usize::from(subtree.contains(&interval.writer));
        for (ranks, runs) in interval.shared.groups() {
            let listed = ranks.iter().copied().filter(is_other).count();
            if listed == 0 {
                continue;
            }
            if listed == others || planted(Bug::OmitIfAnyListed) {
                lacking.remove_all(runs);
            }
            needed.insert_all(&runs.without(&held.common(runs)));
        }
        needed.insert_all(&lacking.runs());
        if interval.shared.is_empty() && subtree.contains(&interval.writer) {
            // It may be joined here (COH-4.5), and list nodes where the subtree adds it.
            needed.insert_all(&interval.runs.without(&held.common(&interval.runs)));
        }
    }
    if !planted(Bug::IgnoreCrossedWriters) {
        needed.insert_all(&held.common(&Runs::crossed(news)));
    }
    needed
}

/// Returns what the nodes of `subtree` need of these intervals, beside those that they have told
/// themselves.
pub(crate) fn needed(
    intervals: &[Interval],
    subtree: &Range<Rank>,
    held: &PageSets,
) -> Vec<Interval> {
    let pages = needed_pages(intervals, subtree, held);
    if pages.is_empty() {
        return Vec::new();
    }
    // A late interval may have been told by other nodes than its writer.
    let untold = intervals.iter().filter(|one| one.late || !subtree.contains(&one.writer));
    let cut = untold.map(|interval| {
        let runs = pages.common(&interval.runs);
        let shared = interval.shared.cut(subtree, |runs| pages.common(runs));
        Interval { runs, shared, owned: OwnedBytes::default(), ..*interval }
    });
    cut.filter(|interval| !interval.runs.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherence::clock::notices::Shared;

    fn runs(pages: impl IntoIterator<Item = u64>) -> Runs {
        Runs::from_pages(pages.into_iter().map(|page| (0, page)))
    }

    fn gained(pages: impl IntoIterator<Item = u64>) -> CopyChanges {
        CopyChanges { gained: runs(pages), lost: Runs::default() }
    }

    /// COH-6.19: too much is kept, never too little.
    #[test]
    fn held_copies_beyond_the_limit_close_gaps() {
        let mut held = HeldCopies::new(1);
        let changes = gained((0..=HELD_MAX as u64).map(|run| 2 * run));
        held.learn(0, &changes);
        let kept = held.of(0).expect("a child");
        assert!(kept.ranges() <= HELD_MAX, "{} runs", kept.ranges());
        assert!(changes.gained.without(&kept.runs()).is_empty());
    }

    /// COH-6.19.
    #[test]
    fn a_page_is_lost_when_no_child_may_hold_it() {
        let mut held = HeldCopies::new(2);
        held.learn(0, &gained(0..8));
        held.learn(1, &gained(4..6));
        let lost = runs(2..8);
        held.learn(0, &CopyChanges { gained: Runs::default(), lost: lost.clone() });
        assert_eq!(held.lost_by_all(&lost, &Arrays::default()), runs([2, 3, 6, 7]));
        assert_eq!(held.of(0).expect("a child").runs(), runs(0..2));
    }

    /// Returns an interval of a barrier, whose pages the nodes of `shares` got.
    fn interval(writer: Rank, pages: Range<u64>, shares: &[(u64, Rank)]) -> Interval {
        let (owned, runs) = (OwnedBytes::default(), runs(pages));
        let shares = shares.iter().map(|(page, rank)| (0, *page..*page + 1, alloc::vec![*rank]));
        let shared = Shared::of_written(shares, &runs);
        Interval { writer, first: 1, last: 1, late: false, unlocked: false, runs, shared, owned }
    }

    /// Returns the pages that are told to a subtree, which holds one page.
    fn told(intervals: &[Interval], subtree: Range<Rank>, held: u64) -> Runs {
        let held = PageSets::from(&runs(held..held + 1));
        Runs::union(needed(intervals, &subtree, &held).iter().map(|interval| &interval.runs))
    }

    /// COH-6.19: rank 0 tells node 1, which holds page 3, and node 2, which got page 5 whole.
    #[test]
    fn a_departure_has_pages_that_are_held_or_were_brought() {
        let told = |rank: Rank, held| told(&[interval(3, 0..8, &[(5, 2)])], rank..rank + 1, held);
        assert_eq!(told(1, 3), runs([3]));
        assert_eq!(told(1, 9), runs([]));
        assert_eq!(told(2, 3), runs([3, 5]));
        assert_eq!(told(2, 5), runs([]), "it has the page already");
        assert_eq!(told(3, 3), runs([]), "the writer");
    }

    /// COH-6.19: node 1 has brought page 5 to node 2, below it, and node 3 has written a part of
    /// the page. Node 1 has told too many runs, so its parent does not know of node 2. Node 1 does,
    /// and tells it.
    #[test]
    fn a_page_that_a_joined_interval_may_list_is_told() {
        let lists = interval(1, 0..8, &[(5, 2)]);
        let joined = Interval::join(1, core::iter::once(&lists));
        let part = interval(3, 4..7, &[]);
        assert_eq!(told(&[lists, part.clone()], 1..3, 9), runs([5]));
        assert_eq!(told(&[joined, part], 1..3, 9), runs(4..7));
    }

    /// Comparing each two of these intervals takes minutes.
    #[test]
    fn many_unlocks_are_not_compared_with_each_other() {
        let unlock = |number: u64| Interval {
            first: number,
            last: number,
            unlocked: true,
            ..interval(number as Rank % 8, 3..4, &[])
        };
        let unlocks: Vec<Interval> = (1..=40_000).map(unlock).collect();
        assert_eq!(told(&unlocks, 1..2, 3), runs([3]));
    }
}
