//! Shared arrays (spec/coherence.md): home-based lazy release consistency (COH-1.1).

mod clock;
mod codec;
mod failing;
mod fetching;
mod gathering;
mod locking;
mod mailbox;
#[cfg(test)]
mod model;
mod pages;
mod questions;
mod releasing;
mod statistics;
mod sync {
    pub(crate) use crate::coherence::gathering::*;
    pub(crate) use crate::coherence::locking::*;
    pub(crate) use crate::coherence::releasing::release;
}
mod types;
mod updating;

use failing::failure;
use fetching::{fetch, prefetch, targets, touch as access};
use pages::{array, diff, homes, machine, number_set, table as arrays};
use releasing::guards;
use updating as update;

pub use array::ARRAY_PAGES_MAX;
pub use codec::purpose;
pub use fetch::{FETCH_PAGES_MAX, FETCH_RUN_MAX, FETCH_RUNS_MAX};
pub use guards::{Ownership, Spans, WriteId};
pub use homes::{AxisHomes, Homes, Spread};
pub use machine::{Access, ArrayId, Pages};
pub use mailbox::CONTROL_MAX;
pub use prefetch::PREFETCH_PAGES_MAX;
pub use statistics::{ArrayStatistics, CoherenceStatistics};
pub use sync::agreement::{AXES_MAX, REDUCE_MAX};
pub use sync::lock_manager::LockView;
pub use sync::tree::BarrierLinks;
pub use targets::TargetOp;
pub use types::{
    CoherenceError, CoherenceEvent, Declaration, Element, Field, ReduceOp, Reduction, Value, Values,
};
pub use update::delivery::Delivery;

use crate::Rank;
use crate::rma::MessageKind;
use crate::wind::{Admission, Message, Refusal, Token};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use array::{Array, PageId};
use arrays::Arrays;
use core::ops::Range;
use sync::agreement::{Call, Declared};

/// First byte of the head of every coherence message. The engine passes such messages to this
/// module.
pub const KIND: u8 = MessageKind::Coherence as u8;

/// Top byte of the tokens of messages that coherence posts: see [`Coherence::owns`].
const TOKENS: u64 = 0xC0 << 56;

/// One node's view of all shared arrays, its part in locks and collectives, and its duties as a
/// home and as a manager.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Coherence {
    me: Rank,
    nodes: u32,
    arrays: Arrays,
    /// Slots of the arrays' aliases in the engine's region table.
    regions: BTreeMap<ArrayId, u32>,
    /// Number of collectives that this node has passed.
    epoch: u64,
    /// Pages written since the last release. Such a page has a twin if its home is elsewhere, or is
    /// shared if its home is here.
    dirty: BTreeSet<PageId>,
    guards: guards::Guards,
    updates: update::Updates,
    fetches: fetch::Fetches,
    touches: Vec<access::Touch>,
    touches_due: bool,
    knowledge: clock::vector::Knowledge,
    releases: sync::release::Releases,
    team_acquires: sync::team::TeamAcquires,
    collective: sync::collective::Collective,
    /// Arrivals at collectives, and this node's place in the tree.
    gather: sync::gather::Gather,
    locks: sync::lock::Locks,
    targets: targets::Targets,
    managed: sync::lock_manager::Managed,
    /// Dead nodes, in the order in which this node heard of them. The first one is the cause. Later
    /// ones may have ended because of it (COH-8.2).
    dead: Vec<Rank>,
    lost_page: Option<failure::Lost>,
    /// Rank of a dead home that did not receive this node's changes.
    lost_diff: Option<Rank>,
    broken: Option<CoherenceError>,
    left: bool,
    leaving: Option<Token>,
    /// Nodes that have begun to leave.
    leavers: sync::leaving::Leavers,
    questions: questions::Questions,
    next_token: u64,
    posted: BTreeMap<u64, mailbox::Posted>,
    /// Number of answers to each peer that it has not acknowledged.
    owed: BTreeMap<Rank, usize>,
    /// Messages from this node to itself.
    local: VecDeque<(codec::Headline, Vec<u8>)>,
    out: VecDeque<(Rank, Message)>,
    events: VecDeque<CoherenceEvent>,
    statistics: CoherenceStatistics,
}

impl Coherence {
    /// Creates the coherence of node `me` in a job of `nodes` nodes.
    #[must_use]
    pub fn new(me: Rank, nodes: u32) -> Self {
        Coherence {
            me,
            nodes,
            arrays: Arrays::default(),
            regions: BTreeMap::new(),
            epoch: 0,
            dirty: BTreeSet::new(),
            guards: guards::Guards::default(),
            updates: update::Updates::default(),
            fetches: fetch::Fetches::default(),
            touches: Vec::new(),
            touches_due: false,
            knowledge: clock::vector::Knowledge::new(me, nodes),
            releases: sync::release::Releases::default(),
            team_acquires: sync::team::TeamAcquires::default(),
            collective: sync::collective::Collective::default(),
            gather: sync::gather::Gather::new(me, nodes),
            locks: sync::lock::Locks::default(),
            targets: targets::Targets::default(),
            managed: sync::lock_manager::Managed::new(nodes),
            dead: Vec::new(),
            lost_page: None,
            lost_diff: None,
            broken: None,
            left: false,
            leaving: None,
            leavers: sync::leaving::Leavers::default(),
            questions: questions::Questions::default(),
            next_token: 0,
            posted: BTreeMap::new(),
            owed: BTreeMap::new(),
            local: VecDeque::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            statistics: CoherenceStatistics::default(),
        }
    }

    /// Returns `true` if this is the token of a message that coherence posted. The engine then
    /// reports its settling to [`Self::acknowledged`] and the like.
    #[must_use]
    pub fn owns(token: Token) -> bool {
        token.0 >> 56 == TOKENS >> 56
    }

    /// Returns the number that the next [`Self::declare`] will give. Before `declare`, the array's
    /// memory must be in `pages` and its alias must be set by [`Self::set_alias_region`]. Other
    /// nodes may fetch from it as soon as all have declared it (COH-2.3).
    #[must_use]
    pub fn next_array(&self) -> ArrayId {
        self.arrays.next()
    }

    /// Sets the slot in the engine's region table of an array's alias.
    pub fn set_alias_region(&mut self, array: ArrayId, region: u32) {
        self.regions.insert(array, region);
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
        let taken = self.arrays.has_name(&declaration.name, declaration.replaces);
        let problem = if taken {
            Some("an array of that name exists already".into())
        } else {
            declaration.problem(self.nodes)
        };
        if let Some(problem) = problem {
            let problem = format!("declare array \"{}\": {problem}", declaration.name);
            return self.declare_unfit(problem, token, pages);
        }
        let number = self.next_array();
        let call = Call::Declare(Declared::new(number, &declaration));
        self.arrays.add(Some(Array::new(declaration, self.me, self.nodes)));
        self.collective.call(call, token);
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
        let number = self.arrays.add(None);
        self.collective.call(Call::Unfit(problem), token);
        self.settle(pages);
        number
    }

    /// Returns the name of an array and the number of its pages.
    #[must_use]
    pub fn array(&self, array: ArrayId) -> Option<(&str, u64)> {
        self.arrays.get(array).map(|array| (array.name.as_str(), array.pages))
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
        self.begin_touch(array, ranges, access, token);
        self.settle(pages);
    }

    /// Begins to fetch the invalid pages of these ranges for loads. No event follows. Beyond
    /// [`PREFETCH_PAGES_MAX`] pages on their way, pages are requested as others arrive.
    pub fn prefetch(&mut self, array: ArrayId, ranges: &[Range<u64>], pages: &mut dyn Pages) {
        self.begin_prefetch(array, ranges);
        self.settle(pages);
    }

    /// Returns the home of a page that has been requested and has not arrived yet.
    #[must_use]
    pub fn fetching_from(&self, array: ArrayId, page: u64) -> Option<Rank> {
        let known = self.arrays.get(array).filter(|array| array.contains(page, 1))?;
        (known.state(page) == array::PageState::Fetching).then(|| known.home(page))
    }

    /// Returns `true` if all these pages are valid for `access` at this moment.
    #[must_use]
    pub fn holds(&self, array: ArrayId, range: Range<u64>, access: Access) -> bool {
        let known = self.arrays.get(array);
        known.is_some_and(|known| {
            range.end <= known.pages && range.clone().all(|page| known.state(page).holds(access))
        })
    }

    /// Returns `true` if all these pages are valid for loads at this moment. A guard begins to read
    /// them then.
    pub fn begin_read(&mut self, array: ArrayId, range: Range<u64>) -> bool {
        let holds = self.holds(array, range.clone(), Access::Read);
        if holds {
            self.used(array, range);
        }
        holds
    }

    /// Returns the counters of one array.
    #[must_use]
    pub fn array_statistics(&self, array: ArrayId) -> Option<&ArrayStatistics> {
        self.arrays.get(array).map(|array| &array.statistics)
    }

    /// As [`Array::mapping`], of an array by its number.
    fn mapping(&self, array: ArrayId, access: Access) -> Access {
        self.arrays.get(array).map_or(access, |array| array.mapping(access))
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
        self.take_fault((array, page), access, pages);
        self.settle(pages);
    }

    /// Waits for all nodes. Writes of each node before the barrier are visible to all nodes after
    /// it.
    pub fn barrier(&mut self, token: Token, pages: &mut dyn Pages) {
        self.collective.call(Call::Barrier, token);
        self.settle(pages);
    }

    /// Frees an array that all nodes have dropped, or drop by this call. It is also a barrier.
    pub fn free(&mut self, array: ArrayId, token: Token, pages: &mut dyn Pages) {
        let Some(known) = self.arrays.get(array) else {
            let doing = String::from("free");
            return self.fail(token, CoherenceError::UnknownArray { doing, array });
        };
        let call = Call::Free { number: array, name: known.name.clone() };
        self.drop_array(array);
        self.collective.call(call, token);
        self.settle(pages);
    }

    /// Returns how many collectives this node has called. All nodes that made the same calls have
    /// the same number.
    #[must_use]
    pub fn collectives_called(&self) -> u64 {
        let collective = &self.collective;
        self.epoch + u64::from(collective.current.is_some()) + collective.queue.len() as u64
    }

    /// Uses up all numbers of arrays below `next`, as declarations do that other nodes have made.
    pub fn skip_arrays(&mut self, next: ArrayId) {
        self.arrays.skip(next);
    }

    /// Takes part in a collective that this node cannot perform, so that all nodes learn why.
    pub fn cannot(&mut self, problem: String, token: Token, pages: &mut dyn Pages) {
        self.collective.call(Call::Unfit(problem), token);
        self.settle(pages);
    }

    /// Combines one vector of each node in rank order, so that the result has the same bits on
    /// every node and in every run. It is also a barrier.
    pub fn reduce(&mut self, reduction: Reduction, token: Token, pages: &mut dyn Pages) {
        let count = reduction.values.len();
        let call = if count <= REDUCE_MAX {
            Call::Reduce(reduction)
        } else {
            Call::Unfit(format!("reduce {count} values at once, the limit is {REDUCE_MAX}"))
        };
        self.collective.call(call, token);
        self.settle(pages);
    }

    /// Calls the last collective, a barrier after which this node answers nothing. Its death is
    /// then no error to other nodes.
    pub fn leave(&mut self, token: Token, pages: &mut dyn Pages) {
        self.announce_leaving(pages);
        self.collective.call(Call::Leave, token);
        self.settle(pages);
    }

    /// Acquires a lock (any number). The operation is done when this node holds the lock, and
    /// everything that happened before its last unlock is visible.
    pub fn lock(&mut self, lock: u64, token: Token, pages: &mut dyn Pages) {
        self.acquire(lock, token);
        self.settle(pages);
    }

    /// Releases a lock. The operation is done when all writes of this node are at their homes and
    /// the lock is given back.
    pub fn unlock(&mut self, lock: u64, token: Token, pages: &mut dyn Pages) {
        self.release_lock(lock, token, pages);
        self.settle(pages);
    }

    /// Called when nobody waits any longer for this operation, as after a time limit. No event
    /// follows. A lock that is granted later is given back at once. A collective goes on, because
    /// the other nodes wait for it (COH-7.5).
    pub fn cancel(&mut self, token: Token, pages: &mut dyn Pages) {
        self.touches.retain(|touch| touch.token != token);
        self.collective.cancel(token);
        self.locks.cancel(token);
        self.targets.cancel(token);
        self.releases.cancel(token);
        self.team_acquires.cancel(token);
        self.settle(pages);
    }

    /// Called with a whole coherence message (its head begins with [`KIND`]) that was not admitted
    /// with [`Admission::Place`].
    ///
    /// # Errors
    /// A refusal, if the message makes no sense. Nothing has been changed then.
    pub fn receive(
        &mut self,
        from: Rank,
        head: &[u8],
        body: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let result = self
            .check_sender(from)
            .and_then(|()| self.handle(from, codec::Headline::read(head)?, body, pages));
        self.statistics.refused += u64::from(result.is_err());
        self.settle(pages);
        result
    }

    fn check_sender(&self, from: Rank) -> Result<(), Refusal> {
        if from < self.nodes && from != self.me { Ok(()) } else { Err(Refusal::Malformed) }
    }

    /// Called when a message of several fragments has begun.
    pub fn admit(&mut self, from: Rank, number: u64, head: &[u8], len: u64) -> Admission {
        let admission = match self.check_sender(from) {
            Ok(()) => self.decide(from, number, head, len),
            Err(refusal) => Admission::Refuse(refusal),
        };
        self.statistics.refused += u64::from(matches!(admission, Admission::Refuse(_)));
        admission
    }

    /// Called with bytes of an admitted message.
    pub fn place(
        &mut self,
        from: Rank,
        number: u64,
        offset: u64,
        bytes: &[u8],
        pages: &mut dyn Pages,
    ) {
        if !self.place_update(from, number, offset, bytes, pages) {
            self.place_pages(from, number, offset, bytes, pages);
        }
        self.settle(pages);
    }

    /// Called when a message admitted with [`Admission::Place`] is whole.
    ///
    /// # Errors
    /// A refusal, if no such message was admitted.
    pub fn arrived(
        &mut self,
        from: Rank,
        number: u64,
        head: &[u8],
        pages: &mut dyn Pages,
    ) -> Result<(), Refusal> {
        let result =
            codec::Headline::read(head).and_then(|_| match self.update_arrived(from, number) {
                true => Ok(()),
                false => self.pages_arrived(from, number, pages),
            });
        self.settle(pages);
        result
    }

    /// Called when a message posted here is settled at its receiver.
    pub fn acknowledged(&mut self, token: Token, pages: &mut dyn Pages) {
        if Self::owns(token) {
            self.message_settled(token.0 & !TOKENS);
        }
        self.settle(pages);
    }

    /// Called when a message posted here was refused.
    pub fn refused(&mut self, token: Token, refusal: Refusal, pages: &mut dyn Pages) {
        if Self::owns(token) {
            self.message_refused(token.0 & !TOKENS, refusal, pages);
        }
        self.settle(pages);
    }

    /// Called when a message posted here will never be settled because its receiver is dead.
    pub fn failed(&mut self, token: Token, pages: &mut dyn Pages) {
        let posted = self.posted.get(&(token.0 & !TOKENS)).filter(|_| Self::owns(token));
        if let Some(rank) = posted.map(|posted| posted.to) {
            self.report_death(rank, pages);
        }
        self.settle(pages);
    }

    /// Called when a node is dead, or has restarted, which this node treats alike.
    pub fn node_died(&mut self, rank: Rank, pages: &mut dyn Pages) {
        self.report_death(rank, pages);
        self.settle(pages);
    }

    /// Returns the next message to post.
    pub fn poll_message(&mut self) -> Option<(Rank, Message)> {
        self.out.pop_front()
    }

    /// Returns `true` if [`Self::poll_message`] has a message.
    #[must_use]
    pub fn owes(&self) -> bool {
        !self.out.is_empty()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<CoherenceEvent> {
        self.events.pop_front()
    }

    /// Returns the counters.
    #[must_use]
    pub fn statistics(&self) -> &CoherenceStatistics {
        &self.statistics
    }
}
