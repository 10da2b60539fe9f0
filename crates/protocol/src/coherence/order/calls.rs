//! Calls by this node's threads: each begins in one part.

use crate::Rank;
use crate::coherence::failing::doing::Doing;
use crate::coherence::fetching::target_op::TargetOp;
use crate::coherence::gathering::agreement::Call;
use crate::coherence::locking::lock_manager::LockView;
use crate::coherence::locking::team::release_to_team;
use crate::coherence::order::Coherence;
use crate::coherence::pages::array::Array;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::releasing::guards::{Ownership, Spans, WriteId};
use crate::coherence::statistics::{ArrayStatistics, CoherenceStatistics};
use crate::coherence::types::{CallStep, CoherenceError, Declaration, LockMode, Reduction};
use crate::coherence::updating::delivery::Delivery;
use crate::planted::{Bug, planted};
use crate::time::Time;
use crate::wind::{Class, Token};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

impl Coherence {
    /// Returns the number that the next [`Self::declare`] will give. Before `declare`, the array's
    /// memory must be in `pages` and its alias must be set by [`Self::set_alias_region`]. Other
    /// nodes may fetch from it as soon as all have declared it (COH-2.3).
    #[must_use]
    pub fn next_array(&self) -> ArrayId {
        self.arrays.next()
    }

    /// Sets the slot in the engine's region table of an array's alias.
    pub fn set_alias_region(&mut self, array: ArrayId, region: u32) {
        self.arrays.set_region(array, region);
    }

    /// Declares an array together with all other nodes. The operation is done, with the array's
    /// number, when all nodes have declared the same. Pages homed here are writable then, and all
    /// others are invalid.
    pub fn declare(
        &mut self,
        declaration: Declaration,
        token: Token,
        pages: &mut dyn Pages,
    ) -> ArrayId {
        let (up, mut w) = self.parts();
        let number = up.collectives.declare(declaration, token, &mut w.base);
        self.settle(pages);
        number
    }

    /// Takes this node's part in a declaration that it cannot join, so that all nodes learn why
    /// (COH-6.3). It uses up a number, as every declaration does.
    pub fn declare_unfit(
        &mut self,
        problem: String,
        token: Token,
        pages: &mut dyn Pages,
    ) -> ArrayId {
        let number = self.collectives.declare_unfit(problem, token, &mut self.arrays);
        self.settle(pages);
        number
    }

    /// Tells that no thread of this node will use the array any more. It is freed at a collective
    /// before which all nodes have dropped it (COH-14.1).
    pub fn drop_array(&mut self, array: ArrayId) {
        if self.arrays.drop_array(array) {
            self.fetches.forget_unrequested(array);
        }
    }

    /// Uses up all numbers of arrays below `next`, as declarations do that other nodes have made.
    pub fn skip_arrays(&mut self, next: ArrayId) {
        self.arrays.skip(next);
    }

    /// Frees an array that all nodes have dropped, or drop by this call. It is also a barrier.
    pub fn free(&mut self, array: ArrayId, token: Token, pages: &mut dyn Pages) {
        self.drop_array(array);
        let (up, mut w) = self.parts();
        up.collectives.free(array, token, &mut w.base);
        self.settle(pages);
    }

    /// Returns the name of an array and the number of its pages.
    #[must_use]
    pub fn array(&self, array: ArrayId) -> Option<(&str, u64)> {
        self.arrays.get(array).map(|array| (array.name.as_str(), array.pages))
    }

    /// Iterates over the arrays that are not freed: number, name and counters of each.
    pub fn arrays(&self) -> impl Iterator<Item = (ArrayId, &str, &ArrayStatistics)> {
        self.arrays.iter().map(|(number, array)| (number, array.name.as_str(), &array.statistics))
    }

    /// Iterates over the counters of freed arrays: the name, and the sum of the counters of all
    /// freed arrays of that name. Those that are not kept apart have the empty name.
    pub fn freed_arrays(&self) -> impl Iterator<Item = (&str, &ArrayStatistics)> {
        self.arrays.freed()
    }

    /// Returns the counters of one array.
    #[must_use]
    pub fn array_statistics(&self, array: ArrayId) -> Option<&ArrayStatistics> {
        self.arrays.get(array).map(|array| &array.statistics)
    }

    /// Returns the slot of an alias that is not needed any more. The engine removes it.
    pub fn poll_unused_region(&mut self) -> Option<u32> {
        self.arrays.poll_unused_region()
    }

    /// Sets how updates of an array that this node sends are delivered, and how it takes answers to
    /// its fetches. Without a delivery the runtime chooses for each transfer. The array must be as
    /// it was when it was declared.
    pub fn set_delivery(&mut self, array: ArrayId, delivery: Option<Delivery>) {
        self.arrays.change(array, |array| array.delivery = delivery);
    }

    /// Sets whether this node may ask to be the home of pages that it writes (COH-11.1). Nodes may
    /// differ in this.
    pub fn set_moving_homes(&mut self, array: ArrayId, may_ask: bool) {
        self.arrays.change(array, |array| array.moving.may_ask = may_ask);
    }

    /// Sets the class of the updates of an array that this node sends, [`Class::Unordered`] at
    /// first. An update that must follow an earlier one is [`Class::Sync`] in any case (COH-10.8).
    pub fn set_update_class(&mut self, array: ArrayId, class: Class) {
        self.arrays.change(array, |array| array.update_class = class);
    }

    /// Tells that this node writes the array under guards alone, so its pages are not tracked. All
    /// pages must be as they were when the array was declared.
    pub fn track_by_guards(&mut self, array: ArrayId) {
        self.arrays.change(array, |array| array.guarded = true);
    }

    /// Tells that all nodes map the memory of an array, so that it has no page states, and nothing
    /// of it is told (COH-16.2). The array must be as it was when it was declared.
    pub fn make_segment(&mut self, array: ArrayId) {
        self.arrays.change(array, Array::make_segment);
    }

    /// Returns `true` if the array is written under guards alone.
    #[must_use]
    pub fn is_guarded(&self, array: ArrayId) -> bool {
        self.arrays.is_guarded(array)
    }

    /// Tells that this node will also write the array with plain stores. From now on its pages are
    /// tracked (COH-10.13).
    pub fn track_by_pages(&mut self, array: ArrayId, pages: &mut dyn Pages) {
        self.arrays.track_by_pages(array, pages);
        self.settle(pages);
    }

    /// Subscribes this node to updates of these bytes, or ends the subscription. The pages' homes
    /// and remote writers learn of it with their next messages.
    ///
    /// # Errors
    /// There is no such array, or the bytes lie outside.
    pub fn subscribe(
        &mut self,
        array: ArrayId,
        bytes: Range<u64>,
        wanted: bool,
        pages: &mut dyn Pages,
    ) -> Result<(), CoherenceError> {
        let mut w = self.parts().1;
        let result = w.updates.feeds.subscribe(array, bytes, wanted, &mut w.base);
        self.settle(pages);
        result
    }

    /// Makes pages valid for `access`. The operation is done when each page has been valid since
    /// this call. Another thread's acquire may invalidate them again, or its release may end
    /// `Write`, so check [`Self::holds`] in the same turn.
    pub fn touch(
        &mut self,
        array: ArrayId,
        range: Range<u64>,
        access: Access,
        token: Token,
        pages: &mut dyn Pages,
    ) {
        self.touch_many(array, vec![range], access, token, pages);
    }

    /// Makes the pages of several ranges valid, as [`Self::touch`] does with one. Each home gets
    /// one request, as long as it fits into the limits ([`FETCH_RUNS_MAX`], [`FETCH_PAGES_MAX`]).
    pub fn touch_many(
        &mut self,
        array: ArrayId,
        ranges: Vec<Range<u64>>,
        access: Access,
        token: Token,
        pages: &mut dyn Pages,
    ) {
        let (up, mut w) = self.parts();
        up.fetches.begin_touch(array, ranges, access, token, &mut w);
        self.settle(pages);
    }

    /// Begins to fetch the invalid pages of these ranges for loads. No event follows. Beyond
    /// [`PREFETCH_PAGES_MAX`] pages on their way, pages are requested as others arrive.
    pub fn prefetch(&mut self, array: ArrayId, ranges: &[Range<u64>], pages: &mut dyn Pages) {
        self.fetches.begin_prefetch(array, ranges, &self.arrays);
        self.settle(pages);
    }

    /// Returns the home of a page that has been requested and has not arrived yet.
    #[must_use]
    pub fn fetching_from(&self, array: ArrayId, page: u64) -> Option<Rank> {
        self.arrays.fetching_from(array, page)
    }

    /// Returns `true` if all these pages are valid for `access` at this moment.
    #[must_use]
    pub fn holds(&self, array: ArrayId, range: Range<u64>, access: Access) -> bool {
        self.arrays.holds(array, range, access)
    }

    /// Returns `true` if all these pages are valid for loads at this moment. A guard begins to read
    /// them then.
    pub fn begin_read(&mut self, array: ArrayId, range: Range<u64>) -> bool {
        let holds = self.arrays.holds(array, range.clone(), Access::Read);
        if holds {
            self.updates.feeds.used(array, range);
        }
        holds
    }

    /// Called when a thread touched a page and sleeps. `access` is the access that it wanted if the
    /// tracker can tell. Otherwise a touch of a readable page counts as a write.
    pub fn fault(
        &mut self,
        array: ArrayId,
        page: u64,
        access: Option<Access>,
        pages: &mut dyn Pages,
    ) {
        let (up, mut w) = self.parts();
        up.fetches.take_fault((array, page), access, &mut w, pages);
        self.settle(pages);
    }

    /// Begins a write guard over these bytes, which are in order and disjoint. Returns `None` if a
    /// page is not valid: touch the pages, and try again.
    pub fn begin_write(
        &mut self,
        array: ArrayId,
        bytes: impl Into<Spans>,
        ownership: Ownership,
        pages: &mut dyn Pages,
    ) -> Option<WriteId> {
        let below = (&mut self.arrays, &mut self.updates.feeds);
        let guards = &mut self.releasing.guards;
        let guard = guards.begin(array, bytes.into(), ownership, below, pages)?;
        self.settle(pages);
        Some(guard)
    }

    /// Ends a write guard. Its bytes go to subscribers and to the nodes of `push` with the next
    /// barrier of this node, or earlier.
    pub fn end_write(&mut self, id: WriteId, push: &[Rank], pages: &mut dyn Pages) {
        let mut w = self.parts().1;
        w.releasing.guards.end(id, push, &mut w.updates.sending, &mut w.base, pages);
        self.settle(pages);
    }

    /// Ends a write guard under which nothing was written.
    pub fn abandon_write(&mut self, id: WriteId) {
        self.releasing.guards.abandon(id);
    }

    /// Performs an operation (COH-12.1) on the bytes from `offset` of an array on. The value of the
    /// operation is [`Value::Bytes`]: what it read, or the elements from before a change.
    /// `operands` has the bytes to write, an operand for each element, or expected and new element
    /// of a compare-exchange. `len` is the number of bytes of the array.
    #[allow(clippy::too_many_arguments)]
    pub fn target(
        &mut self,
        array: ArrayId,
        offset: u64,
        len: u64,
        op: TargetOp,
        operands: &[u8],
        token: Token,
        pages: &mut dyn Pages,
    ) {
        let bytes = offset..offset.saturating_add(len);
        let (up, mut w) = self.parts();
        if let Err(error) = up.targets.begin((array, bytes), op, operands, token, &mut w, pages) {
            self.mail.fail(token, error);
        }
        self.settle(pages);
    }

    /// Waits for all nodes. Writes of each node before the barrier are visible to all nodes after
    /// it.
    pub fn barrier(&mut self, token: Token, pages: &mut dyn Pages) {
        self.collectives.call(Call::Barrier, token);
        self.settle(pages);
    }

    /// Takes a step of an operation of all nodes. The operation is a barrier, and its value is the
    /// greatest number of all nodes ([`Values::U64`]).
    pub fn step(&mut self, step: CallStep, token: Token, pages: &mut dyn Pages) {
        self.collectives.call(Call::Step(step), token);
        self.settle(pages);
    }

    /// Takes part in a collective that this node cannot perform, so that all nodes learn why.
    pub fn cannot(&mut self, problem: String, token: Token, pages: &mut dyn Pages) {
        self.collectives.call(Call::Unfit(problem), token);
        self.settle(pages);
    }

    /// Combines one vector of each node in rank order, so that the result has the same bits on
    /// every node and in every run. It is also a barrier.
    pub fn reduce(&mut self, reduction: Reduction, token: Token, pages: &mut dyn Pages) {
        self.collectives.reduce(reduction, token);
        self.settle(pages);
    }

    /// Calls the last collective, a barrier after which this node answers nothing. Its death is
    /// then no error to other nodes.
    pub fn leave(&mut self, token: Token, pages: &mut dyn Pages) {
        let (up, mut w) = self.parts();
        up.collectives.announce_leaving(&mut up.locking.locks, &mut w, pages);
        up.collectives.call(Call::Leave, token);
        self.settle(pages);
    }

    /// Returns `true` if there is an array of which each node keeps pages, because it is not a
    /// segment (COH-16).
    #[must_use]
    pub fn has_pages(&self) -> bool {
        self.arrays.iter().any(|(_, array)| !array.is_segment)
    }

    /// Returns `true` if a barrier has anything to do for this node: there is an array of pages, an
    /// array was dropped, or a collective cannot succeed (COH-6.14, COH-16.3).
    #[must_use]
    pub fn has_to_tell(&mut self) -> bool {
        let has_pages = self.has_pages();
        let (_, w) = self.parts();
        let has_dropped = !w.base.arrays.dropped().is_empty();
        (has_pages && !planted(Bug::ForgetPagesToTell))
            || (has_dropped && !planted(Bug::ForgetDropsToTell))
            || w.base.collective_impediment(&Doing::Message).is_some()
    }

    /// Returns `true` if this node has begun to leave.
    #[must_use]
    pub fn is_leaving(&self, rank: Rank) -> bool {
        self.mail.is_leaving(rank)
    }

    /// Returns `true` if this node has passed its last collective.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.failing.left
    }

    /// Returns the nodes that are missing in the collective that other nodes have arrived at. Rank
    /// 0 knows, and with two nodes both know. Of nodes below other nodes, rank 0 hears within the
    /// failure time (COH-6.13). It is empty on other ranks.
    #[must_use]
    pub fn late(&self) -> Vec<Rank> {
        self.collectives.late(self.mail.nodes)
    }

    /// Returns the nodes that have arrived at the collective being gathered, in rank order, as far
    /// as this node knows (see [`Self::late`]).
    #[must_use]
    pub fn gathered(&self) -> Vec<Rank> {
        self.collectives.gathered()
    }

    /// Acquires a lock (any number). The operation is done when this node holds the lock, and
    /// everything that happened before its last unlock is visible.
    pub fn lock(&mut self, lock: u64, token: Token, pages: &mut dyn Pages) {
        self.lock_in_mode(lock, LockMode::default(), token, pages);
    }

    /// Acquires a lock as [`Coherence::lock`] does, in this mode. A request that tries is done with
    /// [`Value::LockTaken`] if the lock is not free.
    ///
    /// [`Value::LockTaken`]: crate::coherence::Value::LockTaken
    pub fn lock_in_mode(&mut self, lock: u64, mode: LockMode, token: Token, pages: &mut dyn Pages) {
        let (up, mut w) = self.parts();
        up.locking.locks.acquire(lock, mode, token, &mut w.base);
        self.settle(pages);
    }

    /// Releases a lock. The operation is done when the lock is given back. All writes of this node
    /// are at their homes then, or on their way to the next holder ahead of the lock (COH-5.6).
    pub fn unlock(&mut self, lock: u64, token: Token, pages: &mut dyn Pages) {
        let (up, mut w) = self.parts();
        up.locking.locks.release(lock, token, &mut w, pages);
        self.settle(pages);
    }

    /// Returns the rank of the node that manages this lock.
    #[must_use]
    pub fn manager(&self, lock: u64) -> Rank {
        self.mail.manager(lock)
    }

    /// Describes a lock that this node manages; `None` if another node manages it.
    #[must_use]
    pub fn lock_view(&self, lock: u64) -> Option<LockView> {
        (self.manager(lock) == self.mail.me).then(|| self.locking.managed.view(lock))
    }

    /// Brings all writes of this node home, and returns what it knows for the other members of a
    /// team ([`Value::Knowledge`]).
    pub fn release_to_team(&mut self, token: Token, pages: &mut dyn Pages) {
        release_to_team(token, &mut self.parts().1, pages);
        self.settle(pages);
    }

    /// Brings all writes of this node home, and then notifies the node `to`. The operation is done
    /// when the notification is on its way.
    pub fn notify(&mut self, to: Rank, token: Token, pages: &mut dyn Pages) {
        let (up, mut w) = self.parts();
        up.locking.notifications.begin(to, token, &mut w, pages);
        self.settle(pages);
    }

    /// Waits for the next notification of the node `from`, and for the updates that it counts
    /// (COH-15.7). The operation is done when this node has learnt what the notifier knew. If it
    /// does not take the notification, it is done when one that does would be done at once.
    pub fn wait_notify(&mut self, from: Rank, takes: bool, token: Token, pages: &mut dyn Pages) {
        self.locking.notifications.wait(from, takes, token);
        self.settle(pages);
    }

    /// Forgets the notifications for which nobody has waited. All nodes call it as often, when they
    /// are brought in step (COLL-3.7).
    pub fn forget_notifications(&mut self) {
        self.locking.notifications.forget();
    }

    /// Learns what these nodes know, as [`Coherence::release_to_team`] has returned it there.
    pub fn acquire_from_team(&mut self, bodies: &[Vec<u8>], token: Token, pages: &mut dyn Pages) {
        let (up, mut w) = self.parts();
        up.locking.teams.acquire(bodies, token, &mut w, pages);
        self.settle(pages);
    }

    /// Called when nobody waits any longer for this operation, as after a time limit. No event
    /// follows. A lock that is granted later is given back at once. A collective goes on, because
    /// the other nodes wait for it (COH-7.5).
    pub fn cancel(&mut self, token: Token, pages: &mut dyn Pages) {
        self.fetches.cancel(token);
        self.collectives.cancel(token);
        let (up, mut w) = self.parts();
        up.locking.cancel(token, &mut w.base);
        self.targets.cancel(token);
        self.releasing.cancel(token);
        self.settle(pages);
    }

    /// Asks about waits that have lasted for `every` (COH-13.1). Call it again at
    /// [`Self::next_question`].
    pub fn ask(&mut self, now: Time, every: Duration) {
        let (mut waits, questions) = self.waits();
        questions.ask(now, every, &mut waits);
    }

    /// Returns the time at which [`Self::ask`] has something to do, if ever.
    #[must_use]
    pub fn next_question(&self) -> Option<Time> {
        let (questions, reports) =
            (self.questions.rounds.next, self.collectives.gather.reports.next);
        questions.into_iter().chain(reports).min()
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> &CoherenceStatistics {
        &self.statistics
    }
}
