//! Releases (COH-5). A node's writes go to their homes and are acknowledged there before any node
//! is told.

use crate::Rank;
use crate::coherence::base::Base;
use crate::coherence::clock::notices::{OwnedBytes, Runs, Shared};
use crate::coherence::clock::vector::Vector;
use crate::coherence::codec::Headline;
#[cfg(test)]
use crate::coherence::mailbox::UnsettledDiffs;
use crate::coherence::mailbox::{Mailbox, Purpose};
use crate::coherence::pages::diff;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::number_set::NumberSet;
use crate::coherence::pages::page::{PageId, PageState, ranges};
use crate::coherence::pages::table::Arrays;
use crate::coherence::releasing::guards::Guards;
use crate::coherence::updating::head::CountedUpdates;
use crate::coherence::updating::page_sets::PageSets;
use crate::coherence::updating::send::UpdateSender;
use crate::coherence::updating::shares::PageShares;
use crate::coherence::updating::updates::Updates;
use crate::limits::PAGE;
use crate::planted::{Bug, planted};
use crate::wind::{Class, Token};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Length of a diff message's body, in bytes, at which it is sent.
const DIFF_BODY: usize = 32 << 10;

/// Maximum size of the changes that an unlock keeps for the next holder, in bytes. A node keeps as
/// many of one lock (COH-10.17).
pub(crate) const CHANGES_MAX: usize = 64 << 10;

/// Bytes that an interval or a page counts for beside its changes.
pub(crate) const CHANGES_OVERHEAD: usize = 24;

/// Changes of some pages by one interval: for each page all that the interval wrote to it, as a
/// page diff (COH-9.3).
pub(crate) type PageChanges = Vec<(PageId, Vec<u8>)>;

/// Action that follows when all changes are at their homes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) enum AfterRelease {
    /// Arrive at the collective.
    Arrive,
    /// Tell the caller what this node knows, for the other members of its team.
    ReportToTeam { token: Token },
    /// Notify this node.
    Notify { to: Rank, token: Token },
    /// Give a lock back.
    Unlock { lock: u64, request: u64, token: Token },
    /// Tell the other nodes that this one sends nothing more, because it leaves.
    FallSilent,
}

/// A release that waits for its diffs.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Release {
    /// Number below which all diff messages must be settled.
    boundary: u64,
    /// Vector time of this node when the release began. No more may be told, because later changes
    /// are perhaps not at their homes yet.
    pub vector: Vector,
    /// Updates that the release's notification counts. Later ones are of intervals that it does not
    /// tell.
    pub updates: CountedUpdates,
    /// Changes by the interval, if an unlock has closed it (COH-10.17).
    pub changes: PageChanges,
    pub then: AfterRelease,
}

/// Whether a release sends updates, by what closes the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    /// An unlock or a barrier of a team sends none (COH-10.9, COH-15.3), nor does a node that
    /// leaves.
    Unlock,
    Notification,
    Arrival,
}

impl Closing {
    fn of(then: &AfterRelease) -> Closing {
        match then {
            AfterRelease::Arrive => Closing::Arrival,
            AfterRelease::Notify { .. } => Closing::Notification,
            AfterRelease::ReportToTeam { .. }
            | AfterRelease::Unlock { .. }
            | AfterRelease::FallSilent => Closing::Unlock,
        }
    }

    fn sends_updates(self) -> bool {
        self != Closing::Unlock
    }
}

/// Write guards of this node, and releases under way, which finish in the order in which they
/// began.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Releasing {
    pub guards: Guards,
    /// Pages whose changes went home before their interval was closed, because another node's
    /// notice named them.
    early: BTreeSet<PageId>,
    queue: VecDeque<Release>,
    /// Actions after releases that begin when no home may move any more (COH-11.3).
    deferred: VecDeque<AfterRelease>,
}

/// Changes collected for each home.
struct Parcels {
    /// `true` if the release sends updates.
    sends_updates: bool,
    bodies: BTreeMap<(ArrayId, Rank), Vec<u8>>,
    /// Homes to which earlier changes were still on their way when this collection began.
    behind: BTreeSet<Rank>,
    /// Pages that messages on their way read from memory, before this collection began. Their
    /// receivers may get bytes that the twins of these pages do not show (COH-10.21).
    read: PageSets,
    /// Changes of whole pages for the next holder of a lock, and their size, if an unlock closes
    /// the interval.
    changes: Option<(PageChanges, usize)>,
}

impl Parcels {
    fn new(sends_updates: bool, keeps_changes: bool, mail: &Mailbox) -> Parcels {
        let mut read = PageSets::default();
        mail.reads().for_each(|(array, pages)| read.insert(array, pages));
        let (bodies, behind) = (BTreeMap::new(), mail.diffs.homes().collect());
        let changes = keeps_changes.then(|| (PageChanges::new(), CHANGES_OVERHEAD));
        Parcels { sends_updates, bodies, behind, read, changes }
    }

    /// Returns `true` if so many changed bytes of a page may be kept for the next holder: if there
    /// is room, and if they are all that was written to the page.
    fn may_keep(&self, id: PageId, len: usize, sending: &UpdateSender) -> bool {
        let has_room =
            |(_, size): &(PageChanges, usize)| *size + CHANGES_OVERHEAD + len <= CHANGES_MAX;
        self.changes.as_ref().is_some_and(has_room) && !sending.is_untold(id)
    }

    /// Keeps the changes of a page for the next holder, if it may.
    fn keep_changes(&mut self, id: PageId, diff: &[u8], sending: &UpdateSender) {
        if self.may_keep(id, diff.len(), sending)
            && let Some((changes, size)) = &mut self.changes
        {
            *size += CHANGES_OVERHEAD + diff.len();
            changes.push((id, diff.to_vec()));
        }
    }

    /// Returns the bytes of a page that were changed in the interval, as its twin and what was sent
    /// before the end of the interval tell. The twin does not tell all if a message has read the
    /// page (COH-10.21).
    fn changes(
        &self,
        id: PageId,
        twin: Option<&[u8]>,
        now: &[u8],
        sending: &mut UpdateSender,
    ) -> Vec<Range<usize>> {
        if twin.is_some() && self.read.contains(id) && !planted(Bug::TrustTwinOfRead) {
            sending.note_untold(id);
        }
        let mut runs = twin.map_or_else(Vec::new, |twin| diff::changed(twin, now));
        runs.extend(sending.take_shown(id));
        diff::merge(&mut runs);
        runs
    }
}

impl Releasing {
    /// Makes the interval name a page that this node has changed at its home.
    pub fn name(&mut self, id: PageId) {
        self.early.insert(id);
    }

    /// Forgets a freed array.
    pub fn forget(&mut self, array: ArrayId) {
        self.guards.forget(array);
        self.early.retain(|id| id.0 != array);
    }

    /// Hashes the state for the model. Numbers of messages, which are only names, are replaced by
    /// their places in the order.
    #[cfg(test)]
    pub fn digest(&self, diffs: &UnsettledDiffs, state: &mut impl core::hash::Hasher) {
        use core::hash::Hash;
        let Releasing { guards, early, queue, deferred } = self;
        (guards, early, deferred, queue.len()).hash(state);
        for Release { boundary, vector, updates, changes, then } in queue {
            let before = diffs.numbers.range(..boundary).count();
            (before, vector, updates, changes, then).hash(state);
        }
    }

    /// Called when nobody waits for this unlock any longer.
    pub fn cancel(&mut self, cancelled: Token) {
        let queued = self.queue.iter_mut().map(|release| &mut release.then);
        for then in queued.chain(&mut self.deferred) {
            if let AfterRelease::Unlock { token, .. }
            | AfterRelease::ReportToTeam { token }
            | AfterRelease::Notify { token, .. } = then
                && *token == cancelled
            {
                *token = Token::NONE;
            }
        }
    }

    /// Leaves a release until homes have moved.
    pub fn defer(&mut self, then: AfterRelease) {
        self.deferred.push_back(then);
    }

    /// Takes the first release that was left.
    pub fn take_deferred(&mut self) -> Option<AfterRelease> {
        self.deferred.pop_front()
    }

    /// Closes the interval, sends its changes to their homes, and does `then` when they have
    /// arrived.
    pub fn begin(
        &mut self,
        then: AfterRelease,
        updates: &mut Updates,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        let is_unlock = matches!(then, AfterRelease::Unlock { .. });
        let changes = self.close_interval(Closing::of(&then), is_unlock, updates, base, pages);
        let (boundary, vector) = (base.mail.next(), base.clock.knowledge.vector.clone());
        let count = match &then {
            AfterRelease::Notify { to, .. } => {
                updates.sending.sent_until(*to, vector.get(base.mail.me))
            }
            _ => 0,
        };
        let updates = CountedUpdates { epoch: base.clock.open_epoch(), count };
        self.queue.push_back(Release { boundary, vector, updates, changes, then });
    }

    /// COH-5.1: makes all dirty pages read-only *first*, so that later stores of other threads trap
    /// into a new interval. Pages of guarded arrays stay writable. For an unlock, it returns what
    /// the interval wrote.
    fn close_interval(
        &mut self,
        closing: Closing,
        is_unlock: bool,
        updates: &mut Updates,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) -> PageChanges {
        let (arrives, sends) = (closing == Closing::Arrival, closing.sends_updates());
        // Another node may have written the same bytes before it gave back a lock.
        let is_compared = arrives && !self.guards.under_lock;
        self.guards.under_lock = base.arrays.holds_locks;
        let is_empty = base.arrays.dirty.is_empty() && self.early.is_empty();
        if is_empty && self.guards.are_idle() && updates.sending.is_idle() {
            return PageChanges::new();
        }
        let dirty = core::mem::take(&mut base.arrays.dirty);
        let tracked = dirty.iter().copied().filter(|id| !base.arrays.is_guarded(id.0));
        for (array, range) in ranges(tracked) {
            pages.set_access(array, range, Access::Read);
        }
        self.guards.withhold_live(&dirty, &mut updates.sending);
        let mut parcels = Parcels::new(sends, is_unlock, base.mail);
        if sends {
            updates.sending.send_offers(base, pages);
        } else {
            updates.sending.withdraw_offers();
        }
        // Before the parcels take them.
        let owned = OwnedBytes::of_barrier(is_compared, self.guards.written());
        let early = core::mem::take(&mut self.early);
        // Readers of these pages and the next holder lack what went home early.
        early.iter().for_each(|id| match planted(Bug::TellEarlyPages) {
            true => updates.sending.share_with_none(*id),
            false => updates.sending.note_untold(*id),
        });
        let mut written: Vec<PageId> = Vec::new();
        let mut homed: Vec<PageId> = Vec::new();
        let mut elsewhere: Vec<PageId> = Vec::new();
        for id in dirty {
            let Some(array) = base.arrays.get_mut(id.0) else { continue };
            if array.state(id.1) == PageState::HomeWrite {
                array.set(id.1, PageState::HomeRead);
                homed.push(id);
                written.push(id);
                self.share_home_changes(id, &mut parcels, updates, base, pages);
            } else {
                array.set(id.1, PageState::Read);
                let keeps_twin = self.is_written_on(id, base);
                if self.parcel(id, keeps_twin, &mut parcels, updates, base, pages) {
                    written.push(id);
                    elsewhere.push(id);
                }
            }
        }
        updates.sending.send_packed(base);
        let changes = parcels.changes.take().map_or_else(PageChanges::new, |(changes, _)| changes);
        send_parcels(parcels, base);
        self.guards.end_interval();
        let shares = updates.sending.take_shares();
        self.guards.write_live_again(base.arrays, pages);
        for (id, pages) in ranges(elsewhere) {
            base.arrays.change(id, |array| array.moving.note_written(pages));
        }
        // Pages that no other node has need no notice. The bytes of their guards are compared.
        let runs = Runs::union([&Runs::from_pages(early), &Runs::from_pages(written)]);
        if runs.is_empty() && owned.is_empty() {
            return PageChanges::new();
        }
        let late = base.clock.is_waiting();
        let number = base.clock.knowledge.open_interval();
        for id in &homed {
            base.arrays.note_change(*id, base.clock.epoch);
            let is_shared = shares.of(*id).is_some_and(|share| !share.is_empty());
            // A next holder that gets the changes keeps its copy (COH-3.5).
            let is_kept = changes.binary_search_by_key(id, |(of, _)| *of).is_ok()
                && !planted(Bug::ForgetListedCopies);
            let Some(array) = base.arrays.get_mut(id.0) else { continue };
            if is_kept {
                array.noticed.remove(&id.1);
            } else if !is_shared {
                array.noticed.insert(id.1, number);
            }
        }
        // The departure that may tell a late interval does not count its updates (COH-10.9).
        let shares = if late { PageShares::default() } else { shares };
        let shared = Shared::of_written(shares.into_runs(), &runs);
        base.statistics.notices += runs.pages();
        base.clock.knowledge.close(runs, shared, owned, late, !arrives);
        changes
    }

    /// Sends what this node wrote to a page homed here to the page's subscribers, if a twin tells
    /// what it is. Keeps it for the next holder of a lock, if a twin or guards tell it.
    fn share_home_changes(
        &mut self,
        id: PageId,
        parcels: &mut Parcels,
        updates: &mut Updates,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        let keeps_twin = self.is_written_on(id, base);
        let Some(array) = base.arrays.get_mut(id.0) else { return };
        let (twin, guarded) = (array.twins.remove(&id.1), array.guarded);
        let mut keeps_changes =
            (twin.is_some() || guarded) && !keeps_twin && parcels.may_keep(id, 0, &updates.sending);
        let mut owned = NumberSet::default();
        if keeps_changes {
            owned = self.guards.take_owned(id);
            let len = owned.iter().map(|run| (run.end - run.start) as usize).sum();
            keeps_changes = parcels.may_keep(id, len, &updates.sending);
        }
        if twin.is_none() && !guarded {
            updates.sending.share_with_none(id);
        }
        if twin.is_none() && !keeps_changes {
            return;
        }
        let mut now = vec![0u8; PAGE];
        pages.read(id.0, id.1, &mut now);
        let mut runs = parcels.changes(id, twin.as_deref(), &now, &mut updates.sending);
        if twin.is_some() && parcels.sends_updates {
            updates.sending.send_changes(id, &runs, &now, base);
        } else if twin.is_some() {
            updates.sending.share_with_none(id);
        }
        if keeps_changes {
            runs.extend(owned.iter().map(|run| run.start as usize..run.end as usize));
            diff::merge(&mut runs);
            let mut diff = Vec::new();
            if diff::encode_runs(id.1, &runs, &now, &mut diff) {
                parcels.keep_changes(id, &diff, &updates.sending);
            }
        }
        keep_twin(id, keeps_twin && twin.is_some(), now, base.arrays);
    }

    /// Returns `true` if a live guard goes on writing a page without a trap.
    fn is_written_on(&self, id: PageId, base: &Base<'_>) -> bool {
        base.arrays.is_guarded(id.0) && self.guards.live_ownership(id).is_some()
    }

    /// Finds what this node wrote to a page. That is the bytes of guards, and the bytes that differ
    /// from the page's twin, which ends here. Adds them to the parcel for the page's home. Returns
    /// `true` if there are any (COH-5.3).
    fn parcel(
        &mut self,
        id: PageId,
        keeps_twin: bool,
        parcels: &mut Parcels,
        updates: &mut Updates,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) -> bool {
        let owned = self.guards.take_owned(id);
        let Some(array) = base.arrays.get_mut(id.0) else { return false };
        let twin = array.twins.remove(&id.1);
        if twin.is_none() && owned.is_empty() {
            return false;
        }
        let home = array.home(id.1);
        let mut now = vec![0u8; PAGE];
        pages.read(id.0, id.1, &mut now);
        let mut runs = parcels.changes(id, twin.as_deref(), &now, &mut updates.sending);
        let is_hidden = runs.is_empty() && updates.sending.is_shared_with_none(id);
        match parcels.sends_updates {
            _ if runs.is_empty() => {}
            true => updates.sending.send_changes(id, &runs, &now, base),
            false => updates.sending.share_with_none(id),
        }
        runs.extend(owned.iter().map(|run| run.start as usize..run.end as usize));
        diff::merge(&mut runs);
        if planted(Bug::SkipDiffOfGuard) && updates.sending.has_shared(id) {
            return true;
        }
        let mut diff = Vec::new();
        let is_changed = diff::encode_runs(id.1, &runs, &now, &mut diff);
        keep_twin(id, keeps_twin && twin.is_some(), now, base.arrays);
        if !is_changed {
            return is_hidden;
        }
        base.statistics.diffs += 1;
        if !keeps_twin {
            parcels.keep_changes(id, &diff, &updates.sending);
        }
        let parcel = parcels.bodies.entry((id.0, home)).or_default();
        match parcel.is_empty() {
            true => *parcel = diff,
            false => parcel.extend(diff),
        }
        if parcel.len() >= DIFF_BODY {
            let full = core::mem::take(parcel);
            let is_behind = parcels.behind.contains(&home);
            send_diff(id.0, home, full, is_behind, base);
        }
        true
    }

    /// COH-4.4: invalidates copies of pages that other nodes have written. A copy that is dirty
    /// here (two writers on one page) sends its changes to its home first. This node's next
    /// interval names such pages.
    pub fn invalidate(
        &mut self,
        runs: &Runs,
        updates: &mut Updates,
        base: &mut Base<'_>,
        pages: &mut dyn Pages,
    ) {
        if runs.is_empty() {
            return;
        }
        let mut clean: Vec<PageId> = Vec::new();
        let mut dirty: Vec<PageId> = Vec::new();
        for (id, range) in runs.iter() {
            updates.receiving.drop_invalid(*id, range, base.arrays);
            let mut rest = range.clone();
            // A notice may name a whole array, of which this node has a few pages.
            while let Some(array) = base.arrays.get_mut(*id)
                && let Some(page) = array.first_held(&rest)
            {
                rest.start = page + 1;
                match array.state(page) {
                    PageState::Read => clean.push((*id, page)),
                    PageState::Write => dirty.push((*id, page)),
                    _ => {
                        base.arrays.mark_stale((*id, page));
                        continue;
                    }
                }
                array.set(page, PageState::Invalid);
                array.moving.note_other_writer(&(page..page + 1));
            }
        }
        base.statistics.invalidated_pages += (clean.len() + dirty.len()) as u64;
        // Unmap first. A store of another thread from here on traps, and is not lost between diff
        // and unmapping.
        let mut all: Vec<PageId> = clean.iter().chain(&dirty).copied().collect();
        all.sort_unstable();
        for (array, range) in ranges(all) {
            pages.invalidate(array, range);
        }
        if dirty.is_empty() {
            return;
        }
        let mut parcels = Parcels::new(false, false, base.mail);
        for id in dirty {
            base.arrays.dirty.remove(&id);
            self.guards.note_early(id);
            if self.parcel(id, false, &mut parcels, updates, base, pages) {
                self.early.insert(id);
                updates.sending.share_with_none(id);
            }
        }
        send_parcels(parcels, base);
    }

    /// Finishes the first release if its diffs are settled. Diffs to the node that gets a lock by
    /// this release need not be (COH-5.6).
    #[inline]
    pub fn advance(
        &mut self,
        base: &Base<'_>,
        receiver: impl Fn(u64, u64, &Base<'_>) -> Option<Rank>,
    ) -> Option<Release> {
        let Release { boundary, then, .. } = self.queue.front()?;
        let receiver = match then {
            AfterRelease::Unlock { lock, request, .. } => receiver(*lock, *request, base),
            _ => None,
        };
        let waits = base.mail.diffs.has_any_before(*boundary, receiver);
        if waits && !(receiver.is_some() && planted(Bug::GrantBeforeHomes)) {
            return None;
        }
        self.queue.pop_front()
    }
}

/// Makes the bytes that a release has compared the twin for the next interval, if a live guard
/// goes on writing the page. Its thread may store at any moment. A store between this copy and
/// a later one would be in no diff.
fn keep_twin(id: PageId, keeps: bool, now: Vec<u8>, arrays: &mut Arrays) {
    if let Some(array) = arrays.get_mut(id.0).filter(|_| keeps) {
        array.twins.insert(id.1, now.into_boxed_slice());
    }
}

fn send_parcels(parcels: Parcels, base: &mut Base<'_>) {
    for ((array, home), parcel) in parcels.bodies {
        if !parcel.is_empty() {
            send_diff(array, home, parcel, parcels.behind.contains(&home), base);
        }
    }
}

fn send_diff(array: ArrayId, home: Rank, body: Vec<u8>, is_behind: bool, base: &mut Base<'_>) {
    if base.mail.is_dead(home) {
        base.failing.lose_diff(home);
        return;
    }
    base.statistics.diff_bytes += body.len() as u64;
    if let Some(known) = base.arrays.get_mut(array) {
        known.statistics.diffs_sent += 1;
        known.statistics.diff_bytes += body.len() as u64;
    }
    // An unordered message is settled when it is delivered, which here means applied. But an
    // earlier change to the same page must not be applied after this one. If one may be on its
    // way, this message is synchronous, and settled only when delivered (COH-5.5).
    let class = if is_behind { Class::Sync } else { Class::Unordered };
    base.mail.post(home, class, Headline::Diff { array }, body.into(), Purpose::Diff);
}
