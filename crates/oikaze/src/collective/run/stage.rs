//! Stages: the typed buffer on which one plan works, and what follows when the plan is done.

use super::slot::{CollectiveFailure, Fail};
use super::work::{Output, PartBytes, Work};
use crate::collective::operator::{Item, Operator};
use oikaze_engine::Body;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{
    Arrival, CollectiveKind, Facts, Lengths, Order, Part, Plan, PlanRequest, PlanStep, choose, plan,
};
use oikaze_runtime::node::WorkPool;
use std::sync::Arc;
use std::task::Waker;

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
    /// The outcome is in its slot; the task is to be woken.
    Settled(Option<Waker>),
    /// The collective goes on with another plan.
    Next(Box<dyn Stage>),
    /// The collective fails on all ranks, for this reason.
    Mistake(String),
}

/// A plan's work on a typed buffer.
pub(in crate::collective) trait Stage: Send {
    /// Returns the plan. `count` is what another rank says, and is used if this rank does not know.
    /// Returns `None` if nobody has said.
    fn plan(&mut self, count: Option<u64>) -> Result<Option<Plan>, String>;
    /// Returns the rank for which this rank waits while there is no plan.
    fn first_sender(&self) -> Option<Rank>;
    /// Returns the bytes of one element.
    fn element(&self) -> usize;
    /// Returns the bytes of a part.
    fn bytes(&mut self, part: Part) -> PartBytes<'_>;
    /// Takes a part that has come, whose length was checked.
    fn receive(&mut self, part: Part, how: Arrival, body: Body);
    /// Combines two parts.
    fn combine(&mut self, new: Part, into: usize, order: Order);
    /// Copies a part.
    fn copy(&mut self, part: Part, into: usize);
    /// Ends the plan, whose result is this part.
    fn end(self: Box<Self>, output: Part) -> End;
    /// Settles the outcome with a failure.
    fn fail(&self, failure: CollectiveFailure) -> Option<Waker>;
}

/// Use of the result of a plan.
pub(in crate::collective) type Finish<T> = Box<dyn FnOnce(Output<T>) -> End + Send>;

/// Stage over elements of type `T` with an operator.
pub(in crate::collective) struct Vector<T: Item, O> {
    shape: StageShape,
    operator: O,
    work: Work<T>,
    /// Plan of the first call, if this rank knows the count.
    plan: Option<Plan>,
    finish: Finish<T>,
    slot: Arc<dyn Fail>,
}

impl<T: Item, O: Operator<T>> Vector<T, O> {
    /// Makes a stage. `count` is the number of elements of the vector or block, or `None` if the
    /// root knows it.
    ///
    /// # Errors
    /// There is no plan for the lengths.
    pub fn new(
        shape: StageShape,
        operator: O,
        count: Option<usize>,
        input: &[T],
        finish: Finish<T>,
        slot: Arc<dyn Fail>,
    ) -> Result<Box<Self>, String> {
        let work = Work::new(Arc::clone(&shape.pool));
        let mut stage = Box::new(Vector { shape, operator, work, plan: None, finish, slot });
        if let Some(count) = count {
            stage.prepare(count, input)?;
        }
        Ok(stage)
    }

    fn prepare(&mut self, count: usize, input: &[T]) -> Result<(), String> {
        let plan = self.shape.plan(count, size_of::<T>(), self.operator.commutes())?;
        self.work.fill(&plan, input)?;
        self.plan = Some(plan);
        Ok(())
    }
}

/// Combines each element of `new`, which need not be aligned, into `here`.
#[inline]
fn combine_all<T: Item, O: Operator<T>>(operator: &O, here: &mut [T], new: &[u8], order: Order) {
    let new = new.chunks_exact(size_of::<T>().max(1)).map(bytemuck::pod_read_unaligned::<T>);
    match order {
        Order::NewFirst => {
            here.iter_mut().zip(new).for_each(|(here, new)| *here = operator.combine(new, *here));
        }
        Order::NewLast => {
            here.iter_mut().zip(new).for_each(|(here, new)| *here = operator.combine(*here, new));
        }
    }
}

impl<T: Item, O: Operator<T>> Stage for Vector<T, O> {
    fn plan(&mut self, count: Option<u64>) -> Result<Option<Plan>, String> {
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

    fn first_sender(&self) -> Option<Rank> {
        self.shape.first_sender()
    }

    fn element(&self) -> usize {
        size_of::<T>()
    }

    fn bytes(&mut self, part: Part) -> PartBytes<'_> {
        self.work.bytes(part)
    }

    fn receive(&mut self, part: Part, how: Arrival, body: Body) {
        match how {
            Arrival::Replace => self.work.replace(part, body),
            Arrival::Combine(order) => {
                let with = |here: &mut [T], new: &[u8]| {
                    combine_all(&self.operator, here, new, order);
                };
                self.work.combine(part, &body, with);
            }
        }
    }

    fn combine(&mut self, new: Part, into: usize, order: Order) {
        let with = |here: &mut [T], new: &[u8]| combine_all(&self.operator, here, new, order);
        self.work.combine_parts(new, Part::new(into, new.len), with);
    }

    fn copy(&mut self, part: Part, into: usize) {
        self.work.copy(part, into);
    }

    fn end(self: Box<Self>, output: Part) -> End {
        let Vector { work, finish, .. } = *self;
        finish(Output::new(work, output))
    }

    fn fail(&self, failure: CollectiveFailure) -> Option<Waker> {
        self.slot.fail(failure)
    }
}
