//! The collectives of teams and jobs, in their forms that do not wait.

use super::operator::{Combiner, Item, Operator};
use crate::collective::begin::{Carries, Start, Values};
use crate::collective::pending::Pending;
use crate::collective::run::work::UntypedResult;
use crate::tables::element_kind::ItemType;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::CollectiveKind::{self, *};

impl Start<'_> {
    /// Begins a collective of equal parts that moves elements.
    pub(super) fn moves<T: Item>(
        self,
        kind: CollectiveKind,
        root: Rank,
        values: &[T],
        room: Option<usize>,
    ) -> Pending<UntypedResult> {
        let item = ItemType::of::<T>();
        self.begin_even((kind, root), item, Values::of(values), None, room)
    }

    /// Begins a collective of equal parts that combines elements.
    pub(super) fn combines<T: Item>(
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
        self.moves(Broadcast, root, values, None).elements()
    }

    /// Begins [`gather`](super::Collectives::gather) without waiting for it.
    pub fn gather<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<T>> {
        self.moves(Gather, root, values, None).elements()
    }

    /// Begins [`all_gather`](super::Collectives::all_gather) without waiting for it.
    pub fn all_gather<T: Item>(self, values: &[T]) -> Pending<Vec<T>> {
        self.moves(AllGather, 0, values, None).elements()
    }

    /// Begins [`scatter`](super::Collectives::scatter) without waiting for it.
    pub fn scatter<T: Item>(self, root: Rank, values: &[T]) -> Pending<Vec<T>> {
        self.moves(Scatter, root, values, None).elements()
    }

    /// Begins [`all_to_all`](super::Collectives::all_to_all) without waiting for it.
    pub fn all_to_all<T: Item>(self, values: &[T]) -> Pending<Vec<T>> {
        self.moves(AllToAll, 0, values, None).elements()
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
