//! Stages: the buffer on which one plan works, and what follows when the plan is done.

use super::exchange::{fits_slot, sources};
use super::work::{PartBytes, UntypedResult, Work};
use crate::collective::operator::Combiner;
use oikaze_engine::Body;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{
    Arrival, CollectiveKind, Facts, Lengths, Order, Part, Plan, PlanRequest, PlanStep, choose, plan,
};
use oikaze_runtime::node::WorkPool;
use std::ops::Range;
use std::sync::Arc;

/// Lengths and place of a collective, from which its plan is made.
pub(in crate::collective) struct StageShape {
    pub kind: CollectiveKind,
    pub rank: Rank,
    pub root: Rank,
    pub machines: Arc<[u32]>,
    /// Some machine has several ranks, and there are several machines.
    pub several_machines: bool,
    /// Memory of long work buffers.
    pub pool: Arc<WorkPool>,
    /// Lengths of the blocks to each rank, and from each, if they differ.
    pub uneven: Option<(Vec<usize>, Vec<usize>)>,
    /// The team has slots for short values.
    pub has_slots: bool,
}

impl StageShape {
    fn ranks(&self) -> usize {
        self.machines.len()
    }

    /// Makes the plan for `count` elements: of the vector, or of one block.
    fn plan(&self, count: usize, element: usize, commutes: bool) -> Result<Plan, String> {
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
    /// The values go through a slot. There is no plan.
    is_in_slot: bool,
}

impl Stage {
    /// Makes a stage of elements of `size` bytes, which may have an operator. Without
    /// [`prepare`](Self::prepare), the root knows how many elements there are.
    pub fn new(shape: StageShape, size: usize, combiner: Option<Combiner>) -> Box<Self> {
        let work = Work::new(size, Arc::clone(&shape.pool));
        Box::new(Stage {
            shape,
            combiner,
            work,
            plan: None,
            lens: None,
            next: None,
            is_in_slot: false,
        })
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
        let StageShape { kind, has_slots, ref uneven, .. } = self.shape;
        let is_short = fits_slot(kind, count, self.work.size(), self.shape.ranks());
        if has_slots && is_short && uneven.is_none() && self.next.is_none() {
            self.work = self.work.with(input.to_vec());
            self.is_in_slot = true;
            return Ok(());
        }
        let commutes = self.combiner.as_ref().is_none_or(|combiner| combiner.commutes);
        let plan = self.shape.plan(count, self.work.size(), commutes)?;
        self.work.fill(&plan, input)?;
        self.plan = Some(plan);
        Ok(())
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

    /// Returns the bytes of one element.
    pub(super) fn size(&self) -> usize {
        self.work.size()
    }

    /// Returns the bytes of a part.
    pub(super) fn bytes(&mut self, part: Part) -> PartBytes<'_> {
        self.work.bytes(part)
    }

    /// Takes a part that has come, whose length was checked.
    pub(super) fn receive(&mut self, part: Part, how: Arrival, body: Body) {
        match (how, &self.combiner) {
            (Arrival::Replace, _) => self.work.replace(part, body),
            (Arrival::Combine(order), Some(combiner)) => {
                self.work.combine(part, &body, |here, new| (combiner.combine)(here, new, order));
            }
            (Arrival::Combine(_), None) => {}
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

    /// Returns the values of this rank, if they go through a slot.
    pub(super) fn slot_values(&mut self) -> Option<PartBytes<'_>> {
        let all = Part::new(0, self.work.len());
        self.is_in_slot.then(|| self.work.bytes(all))
    }

    /// Makes the values go by parcels.
    pub(super) fn leave_slots(&mut self) {
        self.shape.has_slots = false;
    }

    /// Returns the ranks for which this rank waits in slots.
    pub(super) fn sources(&self) -> Range<Rank> {
        let StageShape { kind, rank, root, .. } = self.shape;
        sources(kind, rank, root, self.shape.ranks())
    }

    /// Makes the result of the values in slots. The root of a kind that has one gives `count`
    /// elements. `read` copies values of a rank from some byte on.
    pub(super) fn end_in_slots(
        self: Box<Self>,
        count: usize,
        read: &dyn Fn(Rank, usize, &mut [u8]),
    ) -> UntypedResult {
        let Stage { shape, combiner, work, .. } = *self;
        let StageShape { kind, rank: me, root, .. } = shape;
        let (size, ranks) = (work.size(), shape.ranks());
        let work_of = |bytes: Vec<u8>| {
            let work = work.with(bytes);
            let len = work.len();
            UntypedResult::new(work, Part::new(0, len), None)
        };
        let Some(mine) = work.dense() else { return work_of(Vec::new()) };
        let len = mine.len();
        let block = len / ranks.max(1);
        let copy = |rank: usize, at: usize, into: &mut [u8]| match Rank::try_from(rank) {
            Ok(rank) if rank == me => {
                let part = mine.get(at..at.saturating_add(into.len())).unwrap_or_default();
                into.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
            }
            Ok(rank) => read(rank, at, into),
            Err(_) => {}
        };
        let one = |rank: usize, at: usize, len: usize| {
            let mut bytes = vec![0; len];
            copy(rank, at, &mut bytes);
            bytes
        };
        let all = |at: usize, len: usize| {
            let mut bytes = vec![0; len.saturating_mul(ranks)];
            for (rank, into) in bytes.chunks_exact_mut(len.max(1)).enumerate() {
                copy(rank, at, into);
            }
            bytes
        };
        let combined = |ranks: usize, at: usize, len: usize| {
            let combine = |here: &mut [u8], new: &[u8]| {
                if let Some(combiner) = &combiner {
                    (combiner.combine)(here, new, Order::NewLast);
                }
            };
            combine_in_order(ranks, &|rank| one(rank, at, len), &combine)
        };
        let place = me as usize;
        work_of(match kind {
            CollectiveKind::Broadcast => one(root as usize, 0, count.saturating_mul(size)),
            CollectiveKind::Scatter => {
                let block = count / ranks.max(1) * size;
                one(root as usize, place * block, block)
            }
            CollectiveKind::Gather | CollectiveKind::Reduce if me != root => Vec::new(),
            CollectiveKind::Gather | CollectiveKind::AllGather => all(0, len),
            CollectiveKind::AllToAll => all(place * block, block),
            CollectiveKind::Reduce | CollectiveKind::AllReduce => combined(ranks, 0, len),
            CollectiveKind::ReduceScatter => combined(ranks, place * block, block),
            CollectiveKind::Scan => combined(place + 1, 0, len),
            CollectiveKind::ExclusiveScan if me == 0 => Vec::new(),
            CollectiveKind::ExclusiveScan => combined(place, 0, len),
            CollectiveKind::Shrink => Vec::new(),
        })
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

/// Combines the values of the first `ranks` ranks, in the tree of recursive doubling: all ranks get
/// the bits that all_reduce by parcels gives them (COLL-7.3).
fn combine_in_order(
    ranks: usize,
    values: &dyn Fn(usize) -> Vec<u8>,
    combine: &dyn Fn(&mut [u8], &[u8]),
) -> Vec<u8> {
    let size = 1 << ranks.checked_ilog2().unwrap_or(0);
    // The first ranks form pairs, so that a power of two of places is left.
    let pairs = ranks.saturating_sub(size);
    let place = |place: usize| {
        if place >= pairs {
            return values(place + pairs);
        }
        let mut both = values(2 * place);
        combine(&mut both, &values(2 * place + 1));
        both
    };
    tree(0..size, &place, combine)
}

fn tree(
    places: Range<usize>,
    place: &dyn Fn(usize) -> Vec<u8>,
    combine: &dyn Fn(&mut [u8], &[u8]),
) -> Vec<u8> {
    let half = places.len() / 2;
    if half == 0 {
        return place(places.start);
    }
    let mut low = tree(places.start..places.start + half, place, combine);
    combine(&mut low, &tree(places.start + half..places.end, place, combine));
    low
}
