//! Beginning of collectives, which all forms of a collective share.

use super::operator::{Item, NoOperator, Operator, OperatorCode};
use crate::collective::pending::Pending;
use crate::collective::run::slot::{CollectiveFailure, Slot};
use crate::collective::run::stage::{End, Finish, Stage, StageShape, Vector};
use crate::collective::run::work::{Output, PartBytes};
use crate::collective::team::Team;
use oikaze_engine::Body;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{
    Arrival, CollectiveCall, CollectiveKind, ElementCode, Order, Part, Plan, hash_of_lengths,
};
use oikaze_runtime::node::WORLD;
use std::sync::Arc;
use std::task::Waker;

/// Starts collectives of a team without waiting for them. Its methods have the names of the
/// blocking ones ([`Collectives`](super::Collectives)), and return [`Pending`] results.
///
/// ```
/// use oikaze::collective::Start;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let start: Start<'_> = job.start();
/// let (sums, ranks) = (start.all_reduce(&[1_u32], Sum), start.all_gather(&[job.rank()]));
/// assert_eq!(sums.wait()?, [ranks.wait()?.len() as u32]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Start<'t> {
    pub(super) team: &'t Team,
    /// Code of what the values are beyond their type (COLL-3.8); 0 for nothing.
    pub(super) meaning: u32,
    /// Call of the program, if this collective carries it (COLL-3.10).
    pub(super) carries: Carries,
}

/// Call of a program that a collective carries.
#[derive(Clone, Copy, Debug)]
pub(super) enum Carries {
    /// The collective itself.
    Nothing,
    /// Exchange of what the members of a team know (COH-15.1).
    TeamBarrier,
    /// Exchange of colors and keys (COLL-5.1).
    Split,
    /// Values that only a binding understands. With a collective and an operator, each rank
    /// combines them by itself.
    Values(Option<(CollectiveKind, OperatorCode)>),
}

impl Carries {
    /// Returns the call that the ranks compare, from the call that carries it.
    fn call_of(self, call: CollectiveCall) -> CollectiveCall {
        match self {
            Carries::Nothing => call,
            Carries::TeamBarrier => CollectiveCall { element: ElementCode::KNOWLEDGE, ..call },
            Carries::Split => CollectiveCall { element: ElementCode::SPLIT, ..call },
            Carries::Values(combined) => {
                let (kind, operator) = combined.unwrap_or((call.kind, call.operator));
                CollectiveCall { kind, operator, element: call.element.as_values(), ..call }
            }
        }
    }
}

/// Arguments of a collective, before it begins.
struct Arguments<'a, T, O> {
    kind: CollectiveKind,
    root: Rank,
    operator: O,
    /// Elements of the vector or of one block; `None`: the root knows.
    count: Option<usize>,
    input: &'a [T],
    /// Why the arguments do not fit, if so.
    sound: Result<(), String>,
}

/// Stage of a collective whose arguments do not fit.
struct Broken<R>(Arc<Slot<R>>);

impl<R: Send> Stage for Broken<R> {
    fn plan(&mut self, _: Option<u64>) -> Result<Option<Plan>, String> {
        Ok(None)
    }
    fn first_sender(&self) -> Option<Rank> {
        None
    }
    fn element(&self) -> usize {
        1
    }
    fn bytes(&mut self, _: Part) -> PartBytes<'_> {
        PartBytes::Lent(&[])
    }
    fn receive(&mut self, _: Part, _: Arrival, _: Body) {}
    fn combine(&mut self, _: Part, _: usize, _: Order) {}
    fn copy(&mut self, _: Part, _: usize) {}
    fn end(self: Box<Self>, _: Part) -> End {
        End::Settled(None)
    }
    fn fail(&self, failure: CollectiveFailure) -> Option<Waker> {
        self.0.settle(Err(failure))
    }
}

/// Returns the end of a plan whose result, after `finish`, is the outcome of a slot.
fn settles<T: Item, R: Send + 'static>(
    slot: &Arc<Slot<R>>,
    finish: impl FnOnce(Output<T>) -> R + Send + 'static,
) -> Finish<T> {
    let slot = Arc::clone(slot);
    Box::new(move |output| End::Settled(slot.settle(Ok(finish(output)))))
}

impl<'t> Start<'t> {
    pub(super) fn of(team: &'t Team) -> Self {
        Self { team, meaning: 0, carries: Carries::Nothing }
    }

    fn code_of<T>(self) -> ElementCode {
        let code = ElementCode::new(std::any::type_name::<T>(), size_of::<T>());
        code.with_meaning(self.meaning)
    }

    fn shape(&self, kind: CollectiveKind, root: Rank) -> StageShape {
        let Team { core, node, machines, several_machines, .. } = self.team;
        let (rank, machines) = (core.me(), Arc::clone(machines));
        StageShape {
            kind,
            rank,
            root,
            machines,
            several_machines: *several_machines,
            pool: Arc::clone(node.collectives.pool()),
            uneven: None,
        }
    }

    /// Returns why a root is none, if so.
    fn check_root(&self, root: Rank) -> Result<(), String> {
        let size = self.team.size();
        if root < size {
            return Ok(());
        }
        Err(format!(
            "root {root} is not a rank of this team of {size}; ranks are 0 to {}",
            size - 1
        ))
    }

    fn begin<T: Item, O: Operator<T>, R: Send + 'static>(
        self,
        arguments: Arguments<'_, T, O>,
        finish: impl FnOnce(Output<T>) -> R + Send + 'static,
    ) -> Pending<R> {
        let Arguments { kind, root, operator, count, input, sound } = arguments;
        let total = match kind {
            CollectiveKind::Scatter => count.map(|_| input.len()),
            _ => count,
        };
        let call = CollectiveCall {
            kind,
            uneven: false,
            element: self.code_of::<T>(),
            operator: operator.code(),
            root,
            count: total.map(|total| total as u64),
        };
        let slot = Arc::new(Slot::default());
        let finish = settles(&slot, finish);
        let stage = sound.and_then(|()| {
            let failing = Arc::clone(&slot);
            Vector::new(self.shape(kind, root), operator, count, input, finish, failing)
        });
        self.begin_stage(call, stage.map(|stage| stage as Box<dyn Stage>), slot)
    }

    fn begin_stage<R: Send + 'static>(
        self,
        call: CollectiveCall,
        stage: Result<Box<dyn Stage>, String>,
        slot: Arc<Slot<R>>,
    ) -> Pending<R> {
        let Team { core, node, limit, .. } = self.team;
        let call = self.carries.call_of(call);
        let (stage, sound) = match stage {
            Ok(stage) => (stage, Ok(())),
            Err(why) => (Box::new(Broken(Arc::clone(&slot))) as Box<dyn Stage>, Err(why)),
        };
        if !self.team.is_channel {
            node.coherence.forget_interrupted();
        }
        let number = node.enter().map(|_| core.begin(node, call, stage, sound));
        let number = number.map(|number| (number + 1, core.id() == WORLD));
        Pending::new(slot, node, call, number, *limit)
    }

    /// Begins a collective with a root. `finish` makes the outcome of the result.
    pub(super) fn rooted<T: Item, O: Operator<T>, R: Send + 'static>(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: &[T],
        operator: O,
        finish: impl FnOnce(Output<T>) -> R + Send + 'static,
    ) -> Pending<R> {
        let is_root = self.team.rank() == root;
        let (len, sound) = (values.len(), self.check_root(root));
        let (count, input, sound) = match kind {
            CollectiveKind::Broadcast => (is_root.then_some(len), values, sound),
            CollectiveKind::Scatter if is_root => {
                let block = self.block(len);
                let count = *block.as_ref().unwrap_or(&0);
                (Some(count), values, sound.and(block.map(drop)))
            }
            CollectiveKind::Scatter => (None, &[][..], sound),
            _ => (Some(len), values, sound),
        };
        self.begin(Arguments { kind, root, operator, count, input, sound }, finish)
    }

    /// Begins a collective without a root. `finish` makes the outcome of the result.
    pub(super) fn symmetric<T: Item, O: Operator<T>, R: Send + 'static>(
        self,
        kind: CollectiveKind,
        values: &[T],
        operator: O,
        finish: impl FnOnce(Output<T>) -> R + Send + 'static,
    ) -> Pending<R> {
        let count = match kind {
            CollectiveKind::ReduceScatter | CollectiveKind::AllToAll => self.block(values.len()),
            _ => Ok(values.len()),
        };
        self.counted(kind, values, count, operator, finish)
    }

    fn counted<T: Item, O: Operator<T>, R: Send + 'static>(
        self,
        kind: CollectiveKind,
        input: &[T],
        count: Result<usize, String>,
        operator: O,
        finish: impl FnOnce(Output<T>) -> R + Send + 'static,
    ) -> Pending<R> {
        let arguments = Arguments {
            kind,
            root: 0,
            operator,
            count: Some(*count.as_ref().unwrap_or(&input.len())),
            input,
            sound: count.map(drop),
        };
        self.begin(arguments, finish)
    }

    /// Begins a collective whose arguments are none, for this reason. It fails on all ranks.
    pub(super) fn refused<T: Item, R: Send + 'static>(
        self,
        kind: CollectiveKind,
        why: String,
    ) -> Pending<R> {
        let call = CollectiveCall {
            kind,
            uneven: false,
            element: self.code_of::<T>(),
            operator: OperatorCode::None,
            root: 0,
            count: None,
        };
        self.begin_stage(call, Err(why), Arc::new(Slot::default()))
    }

    /// Sends the root's elements to all ranks. The argument counts only at the root.
    pub fn broadcast<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<T>> {
        self.rooted(CollectiveKind::Broadcast, root, values, NoOperator, Output::into_vec)
    }

    /// Sends as many elements of the root to all ranks as the slice has on each of them.
    pub(super) fn broadcast_counted<T: Item>(self, root: Rank, values: &[T]) -> Pending<Output<T>> {
        let input = if self.team.rank() == root { values } else { &[] };
        let arguments = Arguments {
            kind: CollectiveKind::Broadcast,
            root,
            operator: NoOperator,
            count: Some(values.len()),
            input,
            sound: self.check_root(root),
        };
        self.begin(arguments, |output| output)
    }

    /// Collects the elements of all ranks at the root, in the order of ranks. Other ranks get an
    /// empty vector.
    pub fn gather<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<T>> {
        self.rooted(CollectiveKind::Gather, root, values, NoOperator, Output::into_vec)
    }

    /// Collects the elements of all ranks on all ranks, in the order of ranks.
    pub fn all_gather<T: Item>(self, values: &[T]) -> Pending<Vec<T>> {
        self.symmetric(CollectiveKind::AllGather, values, NoOperator, Output::into_vec)
    }

    /// Divides the root's elements among all ranks, in equal blocks. The argument counts only at
    /// the root.
    pub fn scatter<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<T>> {
        self.rooted(CollectiveKind::Scatter, root, values, NoOperator, Output::into_vec)
    }

    /// Returns the length of one block of so many elements.
    fn block(&self, len: usize) -> Result<usize, String> {
        let size = self.team.size() as usize;
        if len.is_multiple_of(size) {
            return Ok(len / size);
        }
        Err(format!(
            "{len} elements cannot be divided among {size} ranks equally: pad them, or use the form with unequal counts"
        ))
    }

    /// Combines the elements of all ranks one by one, at the root. Other ranks get an empty vector.
    pub fn reduce<T: Item, O: Operator<T>>(
        self,
        root: Rank,
        values: &[T],
        operator: O,
    ) -> Pending<Vec<T>> {
        self.rooted(CollectiveKind::Reduce, root, values, operator, Output::into_vec)
    }

    /// Combines the elements of all ranks one by one, on all ranks. All get the same bits.
    pub fn all_reduce<T: Item, O: Operator<T>>(self, values: &[T], operator: O) -> Pending<Vec<T>> {
        self.symmetric(CollectiveKind::AllReduce, values, operator, Output::into_vec)
    }

    /// Combines the elements of all ranks one by one, and divides the result among the ranks in
    /// equal blocks.
    pub fn reduce_scatter<T: Item, O: Operator<T>>(
        self,
        values: &[T],
        operator: O,
    ) -> Pending<Vec<T>> {
        self.symmetric(CollectiveKind::ReduceScatter, values, operator, Output::into_vec)
    }

    /// Combines the vectors of all ranks element by element. Rank `r` gets the combined vectors
    /// `r`. All ranks give vectors of the same lengths, which may differ between vectors.
    pub fn reduce_scatter_uneven<T: Item, O: Operator<T>>(
        self,
        vectors: &[Vec<T>],
        operator: O,
    ) -> Pending<Vec<T>> {
        self.reduce_scatter_uneven_then(vectors, operator, Output::into_vec)
    }

    pub(super) fn reduce_scatter_uneven_then<T: Item, O: Operator<T>, R: Send + 'static>(
        self,
        vectors: &[Vec<T>],
        operator: O,
        finish: impl FnOnce(Output<T>) -> R + Send + 'static,
    ) -> Pending<R> {
        let kind = CollectiveKind::ReduceScatter;
        let lens: Vec<usize> = vectors.iter().map(Vec::len).collect();
        let sum = lens.iter().try_fold(0_usize, |sum, len| sum.checked_add(*len));
        let call = CollectiveCall {
            kind,
            uneven: true,
            element: self.code_of::<T>(),
            operator: operator.code(),
            root: hash_of_lengths(&lens),
            count: sum.map(|sum| sum as u64),
        };
        let slot = Arc::new(Slot::default());
        let (finish, failing) = (settles(&slot, finish), Arc::clone(&slot));
        let sound = check_vectors(vectors.len(), self.team.size() as usize);
        let fits = sum.map(drop).ok_or_else(|| "the lengths are too large".to_owned());
        let stage = sound.and(fits).and_then(|()| {
            let shape = StageShape { uneven: Some((Vec::new(), lens)), ..self.shape(kind, 0) };
            Vector::new(shape, operator, Some(0), &vectors.concat(), finish, failing)
        });
        self.begin_stage(call, stage.map(|stage| stage as Box<dyn Stage>), slot)
    }

    /// Combines the elements of all lower ranks and this one.
    pub fn scan<T: Item, O: Operator<T>>(self, values: &[T], operator: O) -> Pending<Vec<T>> {
        self.symmetric(CollectiveKind::Scan, values, operator, Output::into_vec)
    }

    /// Combines the elements of all lower ranks. Rank 0 gets an empty vector.
    pub fn exclusive_scan<T: Item, O: Operator<T>>(
        self,
        values: &[T],
        operator: O,
    ) -> Pending<Vec<T>> {
        self.symmetric(CollectiveKind::ExclusiveScan, values, operator, Output::into_vec)
    }

    /// Sends block `r` of the elements to rank `r`. The result has the blocks of all ranks for this
    /// one, in the order of ranks. Blocks are equal.
    pub fn all_to_all<T: Item>(self, values: &[T]) -> Pending<Vec<T>> {
        self.symmetric(CollectiveKind::AllToAll, values, NoOperator, Output::into_vec)
    }

    /// Moves elements as [`Start::all_gather`] or [`Start::all_to_all`] does, for a caller that
    /// copies the result to `room` elements.
    pub(super) fn exchange_counted<T: Item>(
        self,
        kind: CollectiveKind,
        values: &[T],
        room: usize,
    ) -> Pending<Output<T>> {
        let (count, result) = match kind {
            CollectiveKind::AllToAll => (self.block(values.len()), Some(values.len())),
            _ => (Ok(values.len()), values.len().checked_mul(self.team.size() as usize)),
        };
        let count = count.and_then(|count| match result {
            Some(result) if result == room => Ok(count),
            _ => Err(format!(
                "{room} elements are given for the result of {} elements of this rank among {} ranks",
                values.len(),
                self.team.size()
            )),
        });
        self.counted(kind, values, count, NoOperator, |output| output)
    }

    /// Collects the elements of all ranks at the root, one vector a rank. Lengths may differ. Other
    /// ranks get no vectors.
    pub fn gather_uneven<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<Vec<T>>> {
        self.gather_uneven_then(root, values, |vectors| vectors)
    }

    /// Collects the elements of all ranks on all ranks, one vector a rank. Lengths may differ.
    pub fn all_gather_uneven<T: Item>(self, values: &[T]) -> Pending<Vec<Vec<T>>> {
        self.all_gather_uneven_then(values, |vectors| vectors)
    }

    pub(super) fn gather_uneven_then<T: Item, R: Send + 'static>(
        self,
        root: Rank,
        values: &[T],
        then: impl FnOnce(Vec<Vec<T>>) -> R + Send + 'static,
    ) -> Pending<R> {
        let (call, sound) = (self.uneven::<T>(CollectiveKind::Gather, root), self.check_root(root));
        self.gather_of_any_length(call, values, sound, then)
    }

    pub(super) fn all_gather_uneven_then<T: Item, R: Send + 'static>(
        self,
        values: &[T],
        then: impl FnOnce(Vec<Vec<T>>) -> R + Send + 'static,
    ) -> Pending<R> {
        self.gather_of_any_length(
            self.uneven::<T>(CollectiveKind::AllGather, 0),
            values,
            Ok(()),
            then,
        )
    }

    /// Collects the colors and keys of a split (COLL-5.1). No collective of a program fits it.
    pub(super) fn exchange_colors(self, mine: [u64; 2]) -> Pending<Vec<[u64; 2]>> {
        Self { carries: Carries::Split, ..self }.all_gather(&[mine])
    }

    /// Collects what the ranks know at a barrier of the team (COH-15.1). No collective of a program
    /// fits it.
    pub(super) fn exchange_knowledge(self, mine: &[u8]) -> Pending<Vec<Vec<u8>>> {
        Self { carries: Carries::TeamBarrier, ..self }.all_gather_uneven(mine)
    }

    fn gather_of_any_length<T: Item, R: Send + 'static>(
        self,
        call: CollectiveCall,
        values: &[T],
        sound: Result<(), String>,
        then: impl FnOnce(Vec<Vec<T>>) -> R + Send + 'static,
    ) -> Pending<R> {
        let input = [values.len() as u64];
        let counts = (self.shape(CollectiveKind::AllGather, 0), Some(1), &input[..]);
        let takes = call.kind == CollectiveKind::AllGather || call.root == self.team.rank();
        self.begin_uneven(call, sound, counts, values.to_vec(), move |counts| {
            let received = lens_of(&counts)?;
            let results = if takes { received.clone() } else { Vec::new() };
            let sent = vec![0; received.len()];
            Ok(UnevenPlan {
                sent,
                received,
                finish: Box::new(move |all| then(cut(&all, &results))),
            })
        })
    }

    /// Sends vector `r` of the root to rank `r`. Lengths may differ. The argument counts only at
    /// the root. The result is the vector for this rank.
    pub fn scatter_uneven<T: Item>(self, root: Rank, vectors: &[Vec<T>]) -> Pending<Vec<T>> {
        self.scatter_uneven_then(root, vectors, |mine| mine)
    }

    pub(super) fn scatter_uneven_then<T: Item, R: Send + 'static>(
        self,
        root: Rank,
        vectors: &[Vec<T>],
        then: impl FnOnce(Vec<T>) -> R + Send + 'static,
    ) -> Pending<R> {
        let size = self.team.size() as usize;
        let vectors = if self.team.rank() == root { Some(vectors) } else { None };
        let sound = self
            .check_root(root)
            .and_then(|()| vectors.map_or(Ok(()), |vectors| check_vectors(vectors.len(), size)));
        let vectors = vectors.unwrap_or_default();
        let input: Vec<u64> = vectors.iter().map(|one| one.len() as u64).collect();
        let counts = (self.shape(CollectiveKind::Broadcast, root), Some(size), &input[..]);
        let call = self.uneven::<T>(CollectiveKind::Scatter, root);
        self.begin_uneven(call, sound, counts, vectors.concat(), move |counts| {
            let sent = lens_of(&counts)?;
            let received = vec![0; sent.len()];
            Ok(UnevenPlan { sent, received, finish: Box::new(then) })
        })
    }

    /// Sends vector `r` to rank `r`. Lengths may differ. The result has the vectors of all ranks
    /// for this one, in the order of ranks.
    pub fn all_to_all_uneven<T: Item>(self, vectors: &[Vec<T>]) -> Pending<Vec<Vec<T>>> {
        self.all_to_all_uneven_then(vectors, |vectors| vectors)
    }

    pub(super) fn all_to_all_uneven_then<T: Item, R: Send + 'static>(
        self,
        vectors: &[Vec<T>],
        then: impl FnOnce(Vec<Vec<T>>) -> R + Send + 'static,
    ) -> Pending<R> {
        let sound = check_vectors(vectors.len(), self.team.size() as usize);
        let input: Vec<u64> = vectors.iter().map(|one| one.len() as u64).collect();
        let sent: Vec<usize> = vectors.iter().map(Vec::len).collect();
        let counts = (self.shape(CollectiveKind::AllToAll, 0), Some(1), &input[..]);
        let call = self.uneven::<T>(CollectiveKind::AllToAll, 0);
        self.begin_uneven(call, sound, counts, vectors.concat(), move |counts| {
            let received = lens_of(&counts)?;
            let results = received.clone();
            Ok(UnevenPlan {
                sent,
                received,
                finish: Box::new(move |all| then(cut(&all, &results))),
            })
        })
    }

    /// Returns the call of a collective whose blocks may differ in length.
    fn uneven<T>(self, kind: CollectiveKind, root: Rank) -> CollectiveCall {
        CollectiveCall {
            kind,
            uneven: true,
            element: self.code_of::<T>(),
            operator: OperatorCode::None,
            root,
            count: None,
        }
    }

    /// Begins a collective of two plans (COLL-2.5). The first exchanges lengths, by a shape, a
    /// count and an input. The second moves the data, as `lens` says.
    fn begin_uneven<T: Item, R: Send + 'static>(
        self,
        call: CollectiveCall,
        sound: Result<(), String>,
        (counts, count, input): (StageShape, Option<usize>, &[u64]),
        values: Vec<T>,
        lens: impl FnOnce(Vec<u64>) -> Result<UnevenPlan<T, R>, String> + Send + 'static,
    ) -> Pending<R> {
        let slot = Arc::new(Slot::default());
        let (settled, failing) = (Arc::clone(&slot), Arc::clone(&slot));
        let shape = self.shape(call.kind, call.root);
        let then = Box::new(move |counts: Output<u64>| {
            let made = lens(counts.into_vec()).and_then(|UnevenPlan { sent, received, finish }| {
                let shape = StageShape { uneven: Some((sent, received)), ..shape };
                let finish = settles(&settled, |all: Output<T>| finish(all.into_vec()));
                Vector::new(shape, NoOperator, Some(0), &values, finish, failing)
            });
            match made {
                Ok(stage) => End::Next(stage),
                Err(why) => End::Mistake(why),
            }
        });
        let stage = sound.and_then(|()| {
            Vector::new(counts, NoOperator, count, input, then, Arc::clone(&slot) as _)
        });
        self.begin_stage(call, stage.map(|stage| stage as Box<dyn Stage>), slot)
    }
}

/// Lengths of the second plan of a collective with unequal counts, and what becomes of its result.
struct UnevenPlan<T, R> {
    /// Length of the block to each rank.
    sent: Vec<usize>,
    /// Length of the block of each rank.
    received: Vec<usize>,
    finish: Box<dyn FnOnce(Vec<T>) -> R + Send>,
}

fn check_vectors(given: usize, size: usize) -> Result<(), String> {
    if given == size {
        return Ok(());
    }
    Err(format!("{given} vectors are given for {size} ranks: give one for each rank"))
}

fn lens_of(counts: &[u64]) -> Result<Vec<usize>, String> {
    let lens = counts.iter().map(|count| usize::try_from(*count));
    lens.collect::<Result<_, _>>().map_err(|_| "a length is too large".to_owned())
}

/// Cuts elements into vectors of these lengths.
fn cut<T: Item>(mut values: &[T], lens: &[usize]) -> Vec<Vec<T>> {
    let mut vectors = Vec::with_capacity(lens.len());
    for len in lens {
        let (first, rest) = values.split_at_checked(*len).unwrap_or((values, &[]));
        vectors.push(first.to_vec());
        values = rest;
    }
    vectors
}
