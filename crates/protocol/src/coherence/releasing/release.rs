//! Releases (COH-5). A node's writes go to their homes and are acknowledged there before any node
//! is told.

use crate::Rank;
use crate::coherence::array::{PageId, PageState};
use crate::coherence::clock::notices::{OwnedBytes, Runs, Shared};
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::Headline;
use crate::coherence::failure::Doing;
use crate::coherence::machine::{Access, ArrayId, Pages};
use crate::coherence::mailbox::Purpose;
use crate::coherence::types::Value;
use crate::coherence::{Coherence, array, diff};
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Class, Token};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

/// Length of a diff message's body, in bytes, at which it is sent.
const DIFF_BODY: usize = 32 << 10;

/// Action that follows when all changes are at their homes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum Then {
    /// Arrive at the collective.
    Arrive,
    /// Tell the caller what this node knows, for the other members of its team.
    TellTeam { token: Token },
    /// Give a lock back.
    Unlock { lock: u64, request: u64, token: Token },
}

/// A release that waits for its diffs.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
struct Release {
    /// Number below which all diff messages must be settled.
    boundary: u64,
    /// Vector time of this node when the release began. No more may be told, because later changes
    /// are perhaps not at their homes yet.
    vector: Vector,
    then: Then,
}

/// Releases under way, which finish in the order in which they began.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Releases {
    /// Numbers of diff messages that are not settled.
    pub outstanding: BTreeSet<u64>,
    /// Number of unsettled diff messages to each home.
    pub diffs_to: BTreeMap<Rank, u32>,
    /// Pages whose changes went home before their interval was closed, because another node's
    /// notice named them.
    early: BTreeSet<PageId>,
    queue: VecDeque<Release>,
}

/// Replaces the numbers of messages, which are only names, by their places in the order.
#[cfg(test)]
impl core::hash::Hash for Releases {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Releases { outstanding, diffs_to, early, queue } = self;
        outstanding.len().hash(state);
        diffs_to.iter().filter(|(_, count)| **count > 0).for_each(|to| to.hash(state));
        (early, queue.len()).hash(state);
        for Release { boundary, vector, then } in queue {
            (outstanding.range(..boundary).count(), vector, then).hash(state);
        }
    }
}

/// Changes collected for each home.
#[derive(Default)]
struct Parcels {
    bodies: BTreeMap<(ArrayId, Rank), Vec<u8>>,
    /// Homes to which earlier changes were still on their way when this collection began.
    behind: BTreeSet<Rank>,
}

impl Releases {
    /// Makes the interval name a page that this node has changed at its home.
    pub fn name(&mut self, id: PageId) {
        self.early.insert(id);
    }

    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.early.retain(|id| id.0 != array);
    }

    /// Called when a diff message is settled, or never will be.
    pub fn settled(&mut self, number: u64, to: Rank) {
        if self.outstanding.remove(&number)
            && let Some(count) = self.diffs_to.get_mut(&to)
        {
            *count = count.saturating_sub(1);
        }
    }

    /// Returns `true` if this home has not yet acknowledged all of this node's changes.
    pub fn are_on_their_way_to(&self, home: Rank) -> bool {
        self.diffs_to.get(&home).is_some_and(|count| *count > 0)
    }

    /// Returns `true` if this lock will be given back when the changes are at their homes.
    pub fn will_unlock(&self, lock: u64, request: u64) -> bool {
        let unlocks = |then: &Then| matches!(then, Then::Unlock { lock: l, request: r, .. } if (*l, *r) == (lock, request));
        self.queue.iter().any(|release| unlocks(&release.then))
    }

    fn parcels(&self) -> Parcels {
        let behind =
            self.diffs_to.iter().filter(|(_, count)| **count > 0).map(|(home, _)| *home).collect();
        Parcels { bodies: BTreeMap::new(), behind }
    }

    /// Called when nobody waits for this unlock any longer.
    pub fn cancel(&mut self, cancelled: Token) {
        for release in &mut self.queue {
            if let Then::Unlock { token, .. } | Then::TellTeam { token } = &mut release.then
                && *token == cancelled
            {
                *token = Token::NONE;
            }
        }
    }
}

impl Coherence {
    /// Closes the interval, sends its changes to their homes, and does `then` when they have
    /// arrived.
    pub(crate) fn begin_release(&mut self, then: Then, pages: &mut dyn Pages) {
        self.close_interval(then == Then::Arrive, pages);
        let (boundary, vector) = (self.next_token, self.knowledge.vector.clone());
        self.releases.queue.push_back(Release { boundary, vector, then });
    }

    /// COH-5.1: makes all dirty pages read-only *first*, so that later stores of other threads trap
    /// into a new interval. Pages of guarded arrays stay writable.
    fn close_interval(&mut self, arrives: bool, pages: &mut dyn Pages) {
        let dirty = core::mem::take(&mut self.dirty);
        let tracked = dirty.iter().copied().filter(|id| !self.is_guarded(id.0));
        for (array, range) in array::ranges(tracked) {
            pages.set_access(array, range, Access::Read);
        }
        self.withhold_live(&dirty);
        if arrives {
            self.send_offers(pages);
        } else {
            self.withdraw_offers();
        }
        // Another node may have written the same bytes before it gave back a lock.
        let is_compared = arrives && !self.guards.under_lock;
        self.guards.under_lock = self.locks.are_held();
        // Before the parcels take them.
        let ranges = OwnedBytes::of_barrier(is_compared, self.guards.written());
        let mut written = core::mem::take(&mut self.releases.early);
        // A reader of these pages lacks what went home early.
        written.iter().for_each(|id| self.updates.sending.share_with_none(*id));
        let mut homed: Vec<PageId> = Vec::new();
        let mut parcels = self.releases.parcels();
        for id in dirty {
            let Some(array) = self.arrays.get_mut(id.0) else { continue };
            if array.state(id.1) == PageState::HomeWrite {
                array.set(id.1, PageState::HomeRead);
                homed.push(id);
                written.insert(id);
                self.share_home_changes(id, arrives, pages);
            } else {
                array.set(id.1, PageState::Read);
                let keeps_twin = self.is_written_on(id);
                if self.parcel(id, arrives, keeps_twin, &mut parcels, pages) {
                    written.insert(id);
                }
            }
        }
        self.send_packed();
        self.send_parcels(parcels);
        self.guards.end_interval();
        let shares = self.updates.sending.take_shares();
        self.write_live_again(pages);
        // Pages that no other node has need no notice. The bytes of their guards are compared.
        if written.is_empty() && ranges.is_empty() {
            return;
        }
        let late = self.collective.is_waiting();
        let number = self.knowledge.open_interval();
        for id in &homed {
            self.changed(*id);
            let is_shared = shares.get(id).is_some_and(|share| !share.is_empty());
            if let Some(array) = self.arrays.get_mut(id.0).filter(|_| !is_shared) {
                array.noticed.insert(id.1, number);
            }
        }
        let shared = Shared::of_pages(shares.into_iter().filter(|(id, _)| written.contains(id)));
        let runs = Runs::from_pages(written);
        self.statistics.notices += runs.pages();
        self.knowledge.close(runs, shared, ranges, late, !arrives);
    }

    /// Sends what this node wrote to a page homed here to the page's subscribers, if a twin tells
    /// what it is.
    fn share_home_changes(&mut self, id: PageId, arrives: bool, pages: &mut dyn Pages) {
        let keeps_twin = self.is_written_on(id);
        let Some(array) = self.arrays.get_mut(id.0) else { return };
        let Some(twin) = array.twins.remove(&id.1) else {
            if !array.guarded {
                self.updates.sending.share_with_none(id);
            }
            return;
        };
        let mut now = vec![0u8; PAGE];
        pages.read(id.0, id.1, &mut now);
        match arrives {
            true => self.send_changes(id, &diff::changed(&twin, &now), &now),
            false => self.updates.sending.share_with_none(id),
        }
        self.keep_twin(id, keeps_twin, now);
    }

    /// Returns `true` if a live guard goes on writing a page without a trap.
    fn is_written_on(&self, id: PageId) -> bool {
        self.is_guarded(id.0) && self.guards.live_ownership(id).is_some()
    }

    /// Makes the bytes that a release has compared the twin for the next interval, if a live guard
    /// goes on writing the page. Its thread may store at any moment. A store between this copy and
    /// a later one would be in no diff.
    fn keep_twin(&mut self, id: PageId, keeps: bool, now: Vec<u8>) {
        if let Some(array) = self.arrays.get_mut(id.0).filter(|_| keeps) {
            array.twins.insert(id.1, now.into_boxed_slice());
        }
    }

    /// Finds what this node wrote to a page. That is the bytes of guards, and the bytes that differ
    /// from the page's twin, which ends here. Adds them to the parcel for the page's home. Returns
    /// `true` if there are any (COH-5.3).
    fn parcel(
        &mut self,
        id: PageId,
        arrives: bool,
        keeps_twin: bool,
        parcels: &mut Parcels,
        pages: &mut dyn Pages,
    ) -> bool {
        let owned = self.guards.take_owned(id);
        let Some(array) = self.arrays.get_mut(id.0) else { return false };
        let twin = array.twins.remove(&id.1);
        if twin.is_none() && owned.is_empty() {
            return false;
        }
        let home = array.home(id.1);
        let mut now = vec![0u8; PAGE];
        pages.read(id.0, id.1, &mut now);
        let mut runs = twin.as_ref().map_or_else(Vec::new, |twin| diff::changed(twin, &now));
        match arrives {
            _ if runs.is_empty() => {}
            true => self.send_changes(id, &runs, &now),
            false => self.updates.sending.share_with_none(id),
        }
        runs.extend(owned.iter().map(|run| run.start as usize..run.end as usize));
        diff::merge(&mut runs);
        if planted(Bug::SkipDiffOfGuard) && self.updates.sending.has_shared(id) {
            return true;
        }
        let parcel = parcels.bodies.entry((id.0, home)).or_default();
        let is_changed = diff::encode_runs(id.1, &runs, &now, parcel);
        self.keep_twin(id, keeps_twin && twin.is_some(), now);
        if !is_changed {
            return false;
        }
        self.statistics.diffs += 1;
        if parcel.len() >= DIFF_BODY {
            let full = core::mem::take(parcel);
            let is_behind = parcels.behind.contains(&home);
            self.send_diff(id.0, home, full, is_behind);
        }
        true
    }

    fn send_parcels(&mut self, parcels: Parcels) {
        for ((array, home), parcel) in parcels.bodies {
            if !parcel.is_empty() {
                self.send_diff(array, home, parcel, parcels.behind.contains(&home));
            }
        }
    }

    fn send_diff(&mut self, array: ArrayId, home: Rank, body: Vec<u8>, is_behind: bool) {
        if self.dead.contains(&home) {
            self.lost_diff.get_or_insert(home);
            return;
        }
        self.statistics.diff_bytes += body.len() as u64;
        if let Some(known) = self.arrays.get_mut(array) {
            known.statistics.diffs_sent += 1;
            known.statistics.diff_bytes += body.len() as u64;
        }
        // An unordered message is settled when it is delivered, which here means applied. But an
        // earlier change to the same page must not be applied after this one. If one may be on its
        // way, this message is synchronous, and settled only when delivered (COH-5.5).
        let class = if is_behind { Class::Sync } else { Class::Unordered };
        self.post(home, class, Headline::Diff { array }, body, Purpose::Diff);
    }

    /// COH-4.4: invalidates copies of pages that other nodes have written. A copy that is dirty
    /// here (two writers on one page) sends its changes to its home first. This node's next
    /// interval names such pages.
    pub(crate) fn invalidate(&mut self, runs: &Runs, pages: &mut dyn Pages) {
        let mut clean: Vec<PageId> = Vec::new();
        let mut dirty: Vec<PageId> = Vec::new();
        for (id, range) in runs.iter() {
            for page in range.clone() {
                let Some(array) = self.arrays.get_mut(*id) else { break };
                match array.state(page) {
                    PageState::Read => clean.push((*id, page)),
                    PageState::Write => dirty.push((*id, page)),
                    PageState::Fetching => {
                        self.mark_stale((*id, page));
                        continue;
                    }
                    PageState::Invalid => {
                        self.updates.receiving.drop_kept((*id, page));
                        continue;
                    }
                    _ => continue,
                }
                array.set(page, PageState::Invalid);
            }
        }
        self.statistics.invalidated_pages += (clean.len() + dirty.len()) as u64;
        // Unmap first. A store of another thread from here on traps, and is not lost between diff
        // and unmapping.
        let mut all: Vec<PageId> = clean.iter().chain(&dirty).copied().collect();
        all.sort_unstable();
        for (array, range) in array::ranges(all) {
            pages.invalidate(array, range);
        }
        let mut parcels = self.releases.parcels();
        for id in dirty {
            self.dirty.remove(&id);
            if self.parcel(id, false, false, &mut parcels, pages) {
                self.releases.early.insert(id);
                self.updates.sending.share_with_none(id);
            }
        }
        self.send_parcels(parcels);
    }

    /// Finishes the first release if its diffs are settled. Returns `true` if it did.
    pub(crate) fn advance_releases(&mut self) -> bool {
        let Some(release) = self.releases.queue.front() else { return false };
        if self.releases.outstanding.first().is_some_and(|number| *number < release.boundary) {
            return false;
        }
        let Some(release) = self.releases.queue.pop_front() else { return false };
        match release.then {
            Then::Arrive => self.arrive(&release.vector),
            Then::TellTeam { token } => self.tell_team(token, &release.vector),
            Then::Unlock { lock, request, token } => {
                // The lock is given back in any case, so that other nodes get it or their own
                // error.
                self.give_back(lock, request, &release.vector);
                match self.lock_impediment(Doing::Unlock(lock), lock) {
                    Some(error) => self.fail(token, error),
                    None => self.done(token, Value::None),
                }
            }
        }
        true
    }
}
