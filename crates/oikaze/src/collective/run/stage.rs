//! Stages: the buffer on which one plan works, and what follows when the plan is done.

use super::long::RegionPool;
use super::memory::{plan_of, try_copy_of};
use super::work::{PartBytes, UntypedResult, Work};
use crate::collective::operator::Combiner;
use crate::memory::region::RegionSlice;
use oikaze_engine::{GroupState, ParcelBody, Request};
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{
    Arrival, CollectiveKind, Facts, Lengths, MemoryFacts, Order, Part, Plan, PlanRequest, PlanStep,
    RoundNumber, choose, may_send_whole, plan,
};
use oikaze_protocol::limits::GROUP_BODY_MIN;
use std::sync::Arc;

/// Lengths and place of a collective, from which its plan is made.
pub(in crate::collective) struct StageShape {
    pub kind: CollectiveKind,
    pub rank: Rank,
    pub root: Rank,
    pub machines: Arc<[u32]>,
    /// Ranks of the job, by rank of the team.
    pub nodes: Arc<[Rank]>,
    /// Some machine has several ranks, and there are several machines.
    pub several_machines: bool,
    /// Memory of long work buffers.
    pub pool: Arc<RegionPool>,
    /// Lengths of the blocks to each rank, and from each, if they differ.
    pub uneven: Option<(Vec<usize>, Vec<usize>)>,
    /// The team has memory that all ranks map.
    pub has_memory: bool,
}

/// Returns the nodes of all other ranks, sorted, if the root of a broadcast may send so many bytes
/// to all of them at once (COLL-2.7). `nodes` are the ranks of the job, by rank of the team.
pub(in crate::collective) fn group_of_root(
    nodes: &[Rank],
    machines: &[u32],
    root: Rank,
    bytes: usize,
) -> Option<Vec<Rank>> {
    if !may_send_whole(machines, nodes.len(), root, bytes) {
        return None;
    }
    let others = (0..).zip(nodes).filter(|(rank, _)| *rank != root);
    let mut group: Vec<Rank> = others.map(|(_, node)| *node).collect();
    group.sort_unstable();
    Some(group)
}

impl StageShape {
    fn ranks(&self) -> usize {
        self.machines.len()
    }

    /// Makes the plan for `count` elements: of the vector, or of one block.
    pub fn plan(&self, count: usize, element: usize, commutes: bool) -> Result<Plan, String> {
        let ranks = self.ranks();
        let elements = match (self.kind, &self.uneven) {
            (CollectiveKind::ReduceScatter, Some((_, received))) => {
                received.iter().sum::<usize>() / ranks.max(1)
            }
            (_, Some((sent, received))) => sent.iter().chain(received).copied().max().unwrap_or(0),
            (CollectiveKind::AllGather, _) => count.saturating_mul(ranks),
            _ => count,
        };
        let facts = Facts {
            kind: self.kind,
            // Blocks that differ are exchanged by the algorithm for long ones, which takes them.
            bytes: match self.kind {
                CollectiveKind::AllToAll if self.uneven.is_some() => usize::MAX,
                _ => elements.saturating_mul(element),
            },
            ranks,
            commutes,
            several_machines: self.several_machines && commutes,
            has_group: self
                .group(elements.saturating_mul(element))
                .is_some_and(|group| self.group_state(&group) == GroupState::Open),
        };
        let lengths = match &self.uneven {
            Some((sent, received)) => Lengths::Uneven { sent, received },
            None => Lengths::Even(count),
        };
        let request = PlanRequest {
            kind: self.kind,
            algorithm: self.fitting(choose(&facts)),
            rank: self.rank,
            ranks: Rank::try_from(ranks).unwrap_or(Rank::MAX),
            root: self.root,
            lengths,
            element,
            commutes,
            machines: &self.machines,
        };
        plan(&request).map_err(|error| error.to_string())
    }

    /// Returns the nodes of the group by which this rank may send so many bytes.
    fn group(&self, bytes: usize) -> Option<Vec<Rank>> {
        let is_root = self.kind == CollectiveKind::Broadcast && self.rank == self.root;
        if !is_root || self.uneven.is_some() {
            return None;
        }
        group_of_root(&self.nodes, &self.machines, self.root, bytes)
    }

    fn group_state(&self, group: &[Rank]) -> GroupState {
        self.pool.node().group_state(group)
    }

    /// Tells the engine for which nodes a group would be of use, if it does not know.
    fn want_group(&self, plan: &Plan, element: usize) {
        let group = if plan.sends_whole() {
            None
        } else {
            self.group(plan.output.len.saturating_mul(element))
        };
        if let Some(group) = group.filter(|group| self.group_state(group) == GroupState::Unknown) {
            self.pool.node().tell(Request::WantGroup(group));
        }
    }

    /// Returns the rank that may send all values at once, while their number is not known
    /// (COLL-2.7).
    fn whole_sender(&self) -> Option<Rank> {
        let Self { kind, rank, root, machines, .. } = self;
        let may = may_send_whole(machines, self.ranks(), *root, GROUP_BODY_MIN as usize);
        (*kind == CollectiveKind::Broadcast && rank != root && may).then_some(*root)
    }

    /// Returns the rank whose parcel is the first that this rank receives. It is the same for all
    /// lengths: the algorithms of kinds whose length only the root knows send along one tree.
    fn first_sender(&self) -> Option<Rank> {
        // As many elements as ranks, so that no part is empty.
        let plan = self.plan(self.ranks(), 1, true).ok()?;
        plan.steps.iter().find_map(|(_, step)| match step {
            PlanStep::Receive { from, .. } => Some(*from),
            _ => None,
        })
    }

    /// Recursive doubling gathers equal blocks only.
    fn fitting(
        &self,
        chosen: oikaze_protocol::collective::CollectiveAlgorithm,
    ) -> oikaze_protocol::collective::CollectiveAlgorithm {
        use oikaze_protocol::collective::CollectiveAlgorithm;
        match (chosen, &self.uneven) {
            (CollectiveAlgorithm::RecursiveDoubling, Some(_)) => CollectiveAlgorithm::Bruck,
            (chosen, _) => chosen,
        }
    }
}

/// Continuation after a plan.
pub(in crate::collective) enum End {
    /// The collective has this result.
    Result(UntypedResult),
    /// The collective goes on with another plan.
    Next(Box<Stage>),
}

/// Makes the second stage of a collective, of the result of the first.
pub(in crate::collective) type NextStage =
    Box<dyn FnOnce(UntypedResult) -> Result<Box<Stage>, String> + Send>;

/// A plan's work on a buffer of elements.
pub(in crate::collective) struct Stage {
    shape: StageShape,
    combiner: Option<Combiner>,
    work: Work,
    /// Plan of the first call, if this rank knows the count.
    plan: Option<Plan>,
    /// Lengths of the vectors that the result consists of, if it is not one.
    lens: Option<Vec<usize>>,
    next: Option<NextStage>,
}

impl Stage {
    /// Makes a stage of elements of `size` bytes, which may have an operator. Without
    /// [`prepare`](Self::prepare), the root knows how many elements there are.
    pub fn new(shape: StageShape, size: usize, combiner: Option<Combiner>) -> Box<Self> {
        let work = Work::new(size);
        Box::new(Stage { shape, combiner, work, plan: None, lens: None, next: None })
    }

    /// Cuts the result into vectors of these lengths, if there are any.
    pub fn cut(mut self: Box<Self>, lens: Option<Vec<usize>>) -> Box<Self> {
        self.lens = lens;
        self
    }

    /// Makes another stage follow.
    pub fn then(mut self: Box<Self>, next: NextStage) -> Box<Self> {
        self.next = Some(next);
        self
    }

    /// Makes the plan for `count` elements: of the vector, or of one block. `input` is what this
    /// rank gives.
    ///
    /// # Errors
    /// There is no plan for the lengths.
    pub fn prepare(&mut self, count: usize, input: &[u8]) -> Result<(), String> {
        let may_use_memory = self.shape.has_memory && self.shape.uneven.is_none();
        if may_use_memory && self.next.is_none() && plan_of(self.facts(), count).is_some() {
            self.work = self.work.with(try_copy_of(input)?);
            return Ok(());
        }
        let commutes = self.combiner.as_ref().is_none_or(|combiner| combiner.commutes);
        let plan = self.shape.plan(count, self.work.size(), commutes)?;
        self.shape.want_group(&plan, self.work.size());
        self.take_plan(plan, input)
    }

    /// Takes a plan. `input` is what this rank gives.
    pub(super) fn take_plan(&mut self, plan: Plan, input: &[u8]) -> Result<(), String> {
        self.work.fill(&plan, input, &self.shape.pool)?;
        self.plan = Some(plan);
        Ok(())
    }

    /// Takes a plan, and the memory of the caller in which it works: places in the work buffer, in
    /// bytes. The memory has the input of this rank.
    pub fn prepare_in(&mut self, plan: Plan, areas: Vec<(usize, RegionSlice)>) {
        self.work.lend(&self.shape.pool, areas);
        self.shape.want_group(&plan, self.work.size());
        self.plan = Some(plan);
    }

    /// Returns the plan. `count` is what another rank says, and is used if this rank does not know.
    /// Returns `None` if nobody has said.
    pub(super) fn plan(&mut self, count: Option<u64>) -> Result<Option<Plan>, String> {
        if self.plan.is_none()
            && let Some(count) = count
        {
            let count = usize::try_from(count).map_err(|_| "the count is too large".to_owned())?;
            let blocks =
                if self.shape.kind == CollectiveKind::Scatter { self.shape.ranks() } else { 1 };
            self.prepare(count / blocks.max(1), &[])?;
        }
        Ok(self.plan.take())
    }

    /// Returns the rank for which this rank waits while there is no plan.
    pub(super) fn first_sender(&self) -> Option<Rank> {
        self.shape.first_sender()
    }

    /// Returns the rank that may send all values at once while there is no plan.
    pub(super) fn whole_sender(&self) -> Option<Rank> {
        self.shape.whole_sender()
    }

    /// Returns the bytes of one element.
    pub(super) fn size(&self) -> usize {
        self.work.size()
    }

    /// Returns the bytes of a part.
    pub(super) fn bytes(&self, part: Part) -> PartBytes<'_> {
        self.work.bytes(part)
    }

    /// Returns the work buffer.
    pub(super) fn work(&mut self) -> &mut Work {
        &mut self.work
    }

    /// Takes a part that has come in this round, whose length was checked.
    pub(super) fn receive(
        &mut self,
        part: Part,
        how: Arrival,
        (round, body): (RoundNumber, &ParcelBody),
    ) {
        match (how, body, &self.combiner) {
            (Arrival::Replace, body, _) => self.work.replace(part, round, body),
            (Arrival::Combine(order), ParcelBody::Bytes(body), Some(combiner)) => {
                self.work.combine(part, body, |here, new| (combiner.combine)(here, new, order));
            }
            (Arrival::Combine(_), ..) => {}
        }
    }

    /// Combines two parts.
    pub(super) fn combine(&mut self, new: Part, into: usize, order: Order) {
        if let Some(Combiner { combine, .. }) = &self.combiner {
            let into = Part::new(into, new.len);
            self.work.combine_parts(new, into, |here, new| combine(here, new, order));
        }
    }

    /// Copies a part.
    pub(super) fn copy(&mut self, part: Part, into: usize) {
        self.work.copy(part, into);
    }

    /// Makes the values go by parcels.
    pub(super) fn by_parcels(mut self: Box<Self>) -> Box<Self> {
        self.shape.has_memory = false;
        self
    }

    /// Returns the facts of the collective, as one through memory.
    pub(super) fn facts(&self) -> MemoryFacts {
        let StageShape { kind, rank: me, root, .. } = self.shape;
        MemoryFacts { kind, me, root, ranks: self.shape.ranks(), size: self.work.size() }
    }

    /// Takes the values that this rank gives through memory.
    pub(super) fn take_given(&mut self) -> Vec<u8> {
        self.work.take_dense()
    }

    /// Returns the operator.
    pub(super) fn combiner(&self) -> Option<&Combiner> {
        self.combiner.as_ref()
    }

    /// Ends a collective through memory, which has this result.
    pub(super) fn end_with(self: Box<Self>, result: Vec<u8>) -> UntypedResult {
        let work = self.work.with(result);
        let len = work.len();
        UntypedResult::new(work, Part::new(0, len), None)
    }

    /// Ends the plan, whose result is this part.
    ///
    /// # Errors
    /// The next plan cannot be made. The collective fails on all ranks, for this reason.
    pub(super) fn end(self: Box<Self>, output: Part) -> Result<End, String> {
        let Stage { work, lens, next, .. } = *self;
        let result = UntypedResult::new(work, output, lens);
        match next {
            Some(next) => next(result).map(End::Next),
            None => Ok(End::Result(result)),
        }
    }
}
