//! The collectives of teams and jobs, in their typed forms: those that wait, and those that do not.

use super::exact::{Accumulator, Float};
use super::operator::{Combiner, Item, Operator, SumExact};
use crate::collective::begin::{Carries, Start, Values};
use crate::collective::pending::Pending;
use crate::collective::run::memory::{InPlace, IntoSlice, IntoVector};
use crate::collective::run::work::UntypedResult;
use crate::collective::team::Team;
use crate::error::Result;
use crate::job::handle::Job;
use crate::tables::element_kind::ItemType;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::CollectiveKind::{self, *};

/// Collectives of a [`Team`], and of a [`Job`] as the team of all its nodes.
///
/// All ranks of a team call the same collectives in the same order, with the same root, operator,
/// type and length. If they do not, the call fails on all ranks, with an error that names two of
/// them and what each called. A rank whose part was done before the mistake was found gets the
/// error from its next collective.
///
/// A collective returns when this rank's part is done. Only [`Job::barrier`] and its relatives make
/// writes to shared arrays visible.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let table = job.broadcast(0, &[1.5, 2.5])?; // the argument counts at rank 0
/// let ranks = job.all_gather(&[job.rank()])?;
/// let sum = job.all_reduce(table[0], Sum)?;
/// assert_eq!(sum, 1.5 * ranks.len() as f64);
/// let before_me = job.scan(&[1_u32], Sum)?[0] - 1;
/// assert_eq!(before_me, job.rank());
/// # Ok(())
/// # }
/// ```
pub trait Collectives {
    /// Returns the team. A job is the team of all its nodes.
    fn team(&self) -> &Team;

    /// Starts collectives without waiting for them.
    fn start(&self) -> Start<'_> {
        Start::of(self.team())
    }

    /// Sends the root's elements to all ranks. The argument counts only at the root.
    ///
    /// # Errors
    /// The ranks do not call the same; a root is not a rank of the team; a node is lost; or the
    /// job's time limit passed, after which the collective goes on without its caller.
    #[track_caller]
    fn broadcast<T: Item>(&self, root: Rank, values: &[T]) -> Result<Vec<T>> {
        self.start().moved(Broadcast, root, values)
    }

    /// Sends the root's elements to all ranks, into a slice that is equally long on all ranks.
    ///
    /// After an error, the slice may have been written in part.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`].
    #[track_caller]
    fn broadcast_into<T: Item>(&self, root: Rank, values: &mut [T]) -> Result<()> {
        let room = Some(values.len());
        self.start().run_in_place(Broadcast, root, values, None, room)
    }

    /// Collects the elements of all ranks at the root, in the order of ranks. Other ranks get an
    /// empty vector.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`].
    #[track_caller]
    fn gather<T: Item>(&self, root: Rank, values: &[T]) -> Result<Vec<T>> {
        self.start().moved(Gather, root, values)
    }

    /// Collects the elements of all ranks at the root, one vector a rank. Lengths may differ. Other
    /// ranks get no vectors.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`].
    #[track_caller]
    fn gather_uneven<T: Item>(&self, root: Rank, values: &[T]) -> Result<Vec<Vec<T>>> {
        self.start().gather_uneven(root, values).wait()
    }

    /// Collects the elements of all ranks on all ranks, in the order of ranks.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`].
    #[track_caller]
    fn all_gather<T: Item>(&self, values: &[T]) -> Result<Vec<T>> {
        self.start().moved(AllGather, 0, values)
    }

    /// Collects the elements of all ranks on all ranks, in a slice with room for all of them.
    ///
    /// After an error, the slice may have been written in part.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let mut ranks = vec![0; job.size() as usize];
    /// job.all_gather_into(&[job.rank()], &mut ranks)?;
    /// assert!(ranks.iter().copied().eq(0..job.size()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::broadcast`]; or the slice has another length than the result.
    #[track_caller]
    fn all_gather_into<T: Item>(&self, values: &[T], all: &mut [T]) -> Result<()> {
        self.start().moved_into(AllGather, values, all)
    }

    /// Collects the elements of all ranks on all ranks, one vector a rank. Lengths may differ.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`].
    #[track_caller]
    fn all_gather_uneven<T: Item>(&self, values: &[T]) -> Result<Vec<Vec<T>>> {
        self.start().all_gather_uneven(values).wait()
    }

    /// Divides the root's elements among all ranks, in equal blocks. The argument counts only at
    /// the root.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`]; or the elements cannot be divided equally.
    #[track_caller]
    fn scatter<T: Item>(&self, root: Rank, values: &[T]) -> Result<Vec<T>> {
        self.start().moved(Scatter, root, values)
    }

    /// Sends vector `r` of the root to rank `r`. Lengths may differ. The argument counts only at
    /// the root. The result is the vector for this rank.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`]; or there is not one vector for each rank.
    #[track_caller]
    fn scatter_uneven<T: Item>(&self, root: Rank, vectors: &[Vec<T>]) -> Result<Vec<T>> {
        self.start().scatter_uneven(root, vectors).wait()
    }

    /// Combines the elements of all ranks one by one, at the root. Other ranks get an empty vector.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`]; or the operator panics.
    #[track_caller]
    fn reduce<T: Item, O: Operator<T>>(
        &self,
        root: Rank,
        values: &[T],
        operator: O,
    ) -> Result<Vec<T>> {
        self.start().combined(Reduce, root, values, operator)
    }

    /// Combines one value of each rank. All ranks get the same bits.
    ///
    /// # Errors
    /// As [`Collectives::reduce`].
    #[track_caller]
    fn all_reduce<T: Item, O: Operator<T>>(&self, value: T, operator: O) -> Result<T> {
        let mut combined = [value];
        self.all_reduce_into(&mut combined, operator)?;
        let [combined] = combined;
        Ok(combined)
    }

    /// Combines the elements of all ranks one by one, in place. All ranks get the same bits.
    ///
    /// After an error, the slice may have been written in part.
    ///
    /// # Errors
    /// As [`Collectives::reduce`].
    #[track_caller]
    fn all_reduce_into<T: Item, O: Operator<T>>(
        &self,
        values: &mut [T],
        operator: O,
    ) -> Result<()> {
        self.start().run_in_place(AllReduce, 0, values, Some(Combiner::of(operator)), None)
    }

    /// Returns the sum of all elements of all ranks, correctly rounded. The sum has the same bits
    /// for any number of ranks and any order of elements. NaN and infinities add as in IEEE 754.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let mine = [1e100, 0.1, -1e100]; // adding in this order would give 0
    /// assert_eq!(job.sum_exact(&mine)?, 0.1 * f64::from(job.size()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::broadcast`].
    #[track_caller]
    fn sum_exact<F: Float>(&self, values: &[F]) -> Result<F> {
        let mine = Accumulator::of(values);
        let words = self.start().all_reduce(mine.words(), SumExact).wait()?;
        Ok(F::of_accumulator(&Accumulator::of_words(&words)))
    }

    /// Combines the elements of all ranks one by one, and divides the result among the ranks in
    /// equal blocks.
    ///
    /// # Errors
    /// As [`Collectives::reduce`]; or the elements cannot be divided equally.
    #[track_caller]
    fn reduce_scatter<T: Item, O: Operator<T>>(&self, values: &[T], operator: O) -> Result<Vec<T>> {
        self.start().combined(ReduceScatter, 0, values, operator)
    }

    /// Combines the vectors of all ranks element by element. Rank `r` gets the combined vectors
    /// `r`. All ranks give vectors of the same lengths, which may differ between vectors.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let lens = 1..=job.size() as usize; // one element for rank 0, two for rank 1, ...
    /// let vectors: Vec<Vec<u32>> = lens.map(|len| vec![1; len]).collect();
    /// let mine = job.reduce_scatter_uneven(&vectors, Sum)?;
    /// assert_eq!(mine, vec![job.size(); job.rank() as usize + 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Collectives::reduce`]; there is not one vector for each rank; or the lengths differ
    /// between ranks.
    #[track_caller]
    fn reduce_scatter_uneven<T: Item, O: Operator<T>>(
        &self,
        vectors: &[Vec<T>],
        operator: O,
    ) -> Result<Vec<T>> {
        self.start().reduce_scatter_uneven(vectors, operator).wait()
    }

    /// Combines the elements of all lower ranks and this one.
    ///
    /// # Errors
    /// As [`Collectives::reduce`].
    #[track_caller]
    fn scan<T: Item, O: Operator<T>>(&self, values: &[T], operator: O) -> Result<Vec<T>> {
        self.start().combined(Scan, 0, values, operator)
    }

    /// Combines the elements of all lower ranks. Rank 0 gets an empty vector.
    ///
    /// # Errors
    /// As [`Collectives::reduce`].
    #[track_caller]
    fn exclusive_scan<T: Item, O: Operator<T>>(&self, values: &[T], operator: O) -> Result<Vec<T>> {
        self.start().combined(ExclusiveScan, 0, values, operator)
    }

    /// Sends block `r` of the elements to rank `r`. The result has the blocks of all ranks for this
    /// one, in the order of ranks. Blocks are equal.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`]; or the elements cannot be divided equally.
    #[track_caller]
    fn all_to_all<T: Item>(&self, values: &[T]) -> Result<Vec<T>> {
        self.start().moved(AllToAll, 0, values)
    }

    /// Sends block `r` of the elements to rank `r`, as [`Collectives::all_to_all`] does, and writes
    /// the result to a slice of the same length.
    ///
    /// After an error, the slice may have been written in part.
    ///
    /// # Errors
    /// As [`Collectives::all_to_all`]; or the slice has another length than the result.
    #[track_caller]
    fn all_to_all_into<T: Item>(&self, values: &[T], received: &mut [T]) -> Result<()> {
        self.start().moved_into(AllToAll, values, received)
    }

    /// Sends vector `r` to rank `r`. Lengths may differ. The result has the vectors of all ranks
    /// for this one, in the order of ranks.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`]; or there is not one vector for each rank.
    #[track_caller]
    fn all_to_all_uneven<T: Item>(&self, vectors: &[Vec<T>]) -> Result<Vec<Vec<T>>> {
        self.start().all_to_all_uneven(vectors).wait()
    }

    /// Splits the team: ranks of the same color form a new team, in the order of their keys, and of
    /// their ranks if keys are equal. A rank without a color gets no team. All ranks call it.
    ///
    /// # Errors
    /// As [`Collectives::broadcast`].
    #[track_caller]
    fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Team>> {
        self.team().split_by(color, key)
    }

    /// Makes a team of the ranks that live: those that are not dead and have not begun to leave, in
    /// their order. After a death, the collectives of a team fail, and so does
    /// [`Collectives::split`]. Survivors then go on in the new team. All living ranks call it, and
    /// all get the same ranks, also if more of them die meanwhile. A death that comes later makes
    /// the new team fail in turn.
    ///
    /// The job must let survivors go on
    /// ([`JobBuilder::keep_going`](crate::job::JobBuilder::keep_going)).
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// // After an error with a lost peer:
    /// let team = job.shrink()?;
    /// assert_eq!(team.all_reduce(1, Sum)?, team.size());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The job is over; the other ranks count this one as dead; or the job's time limit passed.
    #[track_caller]
    fn shrink(&self) -> Result<Team> {
        self.team().shrink_to_living()
    }
}

impl Collectives for Team {
    fn team(&self) -> &Team {
        self
    }
}

impl Collectives for Job {
    fn team(&self) -> &Team {
        &self.world
    }
}

/// Collectives that wait.
impl Start<'_> {
    #[track_caller]
    fn moved<T: Item>(self, kind: CollectiveKind, root: Rank, values: &[T]) -> Result<Vec<T>> {
        self.run_into_vector(kind, root, values, None)
    }

    #[track_caller]
    fn combined<T: Item>(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: &[T],
        operator: impl Operator<T>,
    ) -> Result<Vec<T>> {
        self.run_into_vector(kind, root, values, Some(Combiner::of(operator)))
    }

    #[track_caller]
    fn run_into_vector<T: Item>(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: &[T],
        combiner: Option<Combiner>,
    ) -> Result<Vec<T>> {
        let item = ItemType::of::<T>();
        if item.size == 0 {
            // Bytes do not say how many elements there are.
            let values = Values::of(values);
            return self.begin_even((kind, root), item, values, combiner, None).elements().wait();
        }
        let mut result = Vec::new();
        let mut buffers = IntoVector { given: bytemuck::cast_slice(values), result: &mut result };
        self.run_even((kind, root), item, (&mut buffers, values.len()), combiner, None)?;
        Ok(result)
    }

    #[track_caller]
    fn moved_into<T: Item>(
        self,
        kind: CollectiveKind,
        values: &[T],
        result: &mut [T],
    ) -> Result<()> {
        let room = Some(result.len());
        let (given, result) = (bytemuck::cast_slice(values), bytemuck::cast_slice_mut(result));
        let buffers = &mut IntoSlice { given, result };
        self.run_even((kind, 0), ItemType::of::<T>(), (buffers, values.len()), None, room)
    }

    #[track_caller]
    fn run_in_place<T: Item>(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: &mut [T],
        combiner: Option<Combiner>,
        room: Option<usize>,
    ) -> Result<()> {
        let len = values.len();
        let buffers = &mut InPlace(bytemuck::cast_slice_mut(values));
        self.run_even((kind, root), ItemType::of::<T>(), (buffers, len), combiner, room)
    }
}

impl Start<'_> {
    /// Begins a collective of equal parts that moves elements.
    fn moves<T: Item>(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: &[T],
    ) -> Pending<UntypedResult> {
        self.begin_even((kind, root), ItemType::of::<T>(), Values::of(values), None, None)
    }

    /// Begins a collective of equal parts that combines elements.
    fn combines<T: Item>(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: &[T],
        operator: impl Operator<T>,
    ) -> Pending<UntypedResult> {
        let (item, combiner) = (ItemType::of::<T>(), Combiner::of(operator));
        self.begin_even((kind, root), item, Values::of(values), Some(combiner), None)
    }

    fn uneven<T: Item>(
        self,
        kind: CollectiveKind,
        root: Rank,
        vectors: &[Vec<T>],
    ) -> Pending<UntypedResult> {
        self.begin_uneven((kind, root), ItemType::of::<T>(), &values_of(vectors))
    }

    fn uneven_of_one<T: Item>(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: &[T],
    ) -> Pending<UntypedResult> {
        self.begin_uneven((kind, root), ItemType::of::<T>(), &[Values::of(values)])
    }

    /// Begins [`broadcast`](super::Collectives::broadcast) without waiting for it.
    pub fn broadcast<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<T>> {
        self.moves(Broadcast, root, values).elements()
    }

    /// Begins [`gather`](super::Collectives::gather) without waiting for it.
    pub fn gather<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<T>> {
        self.moves(Gather, root, values).elements()
    }

    /// Begins [`all_gather`](super::Collectives::all_gather) without waiting for it.
    pub fn all_gather<T: Item>(self, values: &[T]) -> Pending<Vec<T>> {
        self.moves(AllGather, 0, values).elements()
    }

    /// Begins [`scatter`](super::Collectives::scatter) without waiting for it.
    pub fn scatter<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<T>> {
        self.moves(Scatter, root, values).elements()
    }

    /// Begins [`all_to_all`](super::Collectives::all_to_all) without waiting for it.
    pub fn all_to_all<T: Item>(self, values: &[T]) -> Pending<Vec<T>> {
        self.moves(AllToAll, 0, values).elements()
    }

    /// Begins [`reduce`](super::Collectives::reduce) without waiting for it.
    pub fn reduce<T: Item, O: Operator<T>>(
        self,
        root: Rank,
        values: &[T],
        operator: O,
    ) -> Pending<Vec<T>> {
        self.combines(Reduce, root, values, operator).elements()
    }

    /// Begins [`all_reduce`](super::Collectives::all_reduce) of several elements, without waiting.
    pub fn all_reduce<T: Item, O: Operator<T>>(self, values: &[T], operator: O) -> Pending<Vec<T>> {
        self.combines(AllReduce, 0, values, operator).elements()
    }

    /// Begins [`reduce_scatter`](super::Collectives::reduce_scatter) without waiting for it.
    pub fn reduce_scatter<T: Item, O: Operator<T>>(
        self,
        values: &[T],
        operator: O,
    ) -> Pending<Vec<T>> {
        self.combines(ReduceScatter, 0, values, operator).elements()
    }

    /// Begins [`scan`](super::Collectives::scan) without waiting for it.
    pub fn scan<T: Item, O: Operator<T>>(self, values: &[T], operator: O) -> Pending<Vec<T>> {
        self.combines(Scan, 0, values, operator).elements()
    }

    /// Begins [`exclusive_scan`](super::Collectives::exclusive_scan) without waiting for it.
    pub fn exclusive_scan<T: Item, O: Operator<T>>(
        self,
        values: &[T],
        operator: O,
    ) -> Pending<Vec<T>> {
        self.combines(ExclusiveScan, 0, values, operator).elements()
    }

    /// Begins [`gather_uneven`](super::Collectives::gather_uneven) without waiting for it.
    pub fn gather_uneven<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<Vec<T>>> {
        self.uneven_of_one(Gather, root, values).vectors()
    }

    /// Begins [`all_gather_uneven`](super::Collectives::all_gather_uneven) without waiting for it.
    pub fn all_gather_uneven<T: Item>(self, values: &[T]) -> Pending<Vec<Vec<T>>> {
        self.uneven_of_one(AllGather, 0, values).vectors()
    }

    /// Begins [`scatter_uneven`](super::Collectives::scatter_uneven) without waiting for it.
    pub fn scatter_uneven<T: Item>(self, root: Rank, vectors: &[Vec<T>]) -> Pending<Vec<T>> {
        self.uneven(Scatter, root, vectors).elements()
    }

    /// Begins [`all_to_all_uneven`](super::Collectives::all_to_all_uneven) without waiting for it.
    pub fn all_to_all_uneven<T: Item>(self, vectors: &[Vec<T>]) -> Pending<Vec<Vec<T>>> {
        self.uneven(AllToAll, 0, vectors).vectors()
    }

    /// Begins a reduce_scatter of vectors of different lengths, without waiting for it.
    pub fn reduce_scatter_uneven<T: Item, O: Operator<T>>(
        self,
        vectors: &[Vec<T>],
        operator: O,
    ) -> Pending<Vec<T>> {
        let (item, combiner) = (ItemType::of::<T>(), Combiner::of(operator));
        self.begin_reduce_scatter_uneven(item, &values_of(vectors), combiner).elements()
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
}

impl Pending<UntypedResult> {
    fn elements<T: Item>(self) -> Pending<Vec<T>> {
        self.then(UntypedResult::into_elements)
    }

    fn vectors<T: Item>(self) -> Pending<Vec<Vec<T>>> {
        self.then(UntypedResult::into_vectors_of)
    }
}

fn values_of<T: Item>(vectors: &[Vec<T>]) -> Vec<Values<'_>> {
    vectors.iter().map(|vector| Values::of(vector)).collect()
}
