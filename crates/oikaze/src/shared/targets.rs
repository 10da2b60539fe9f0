//! Shared arrays as targets of one-sided operations, which act at the homes of the elements.

use crate::error::{Error, Result};
use crate::shared::array::SharedArray;
use crate::shared::core::ArrayCore;
use crate::shared::element::Element;
use oikaze_engine::{Failure, Request, Value};
use oikaze_os::memory::tracking::{Attempt, ElementOp};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::TargetOp;
use oikaze_protocol::rma::{Accumulation, Combine, Number, Width};
use oikaze_runtime::node::WaitSubject;
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::shape::ElementIndex;

/// Maximum number of bytes of one step of an operation on memory that all nodes map, as of one
/// message (COH-12.4). An element that is longer is one step.
const SEGMENT_MAX: usize = 32 << 10;

/// Number of attempts to enter groups of elements, and the time between two, before the wait counts
/// as one that may last.
const TRIES: u32 = 64;
const TRY_AGAIN: Duration = Duration::from_micros(100);
/// Time in which the process of a node ends that is lost because it was killed.
const END_OF_LOST: Duration = Duration::from_secs(1);

/// Maximum number of bytes that one request has. Longer operations are several requests.
const REQUEST_MAX: usize = 1 << 20;

impl<T: Element> SharedArray<T> {
    /// Copies elements of plain memory to the array, from element `first` in row-major order on.
    /// They are written at their homes, no page is fetched, and no guard is needed. The call
    /// returns when they are there.
    ///
    /// The elements count as written by this node since its last barrier or unlock, so other nodes
    /// see them after the next one, as writes under a guard. The same holds for the other
    /// operations of this kind.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let table = job.array::<f64>("table", 10_000)?;
    /// if job.rank() == 0 {
    ///     table.put(5000, &[1.5, 2.5])?;
    /// }
    /// job.barrier()?;
    /// assert_eq!(table.get(5000..5002)?, [1.5, 2.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The elements do not fit; a home is lost; the time limit passed.
    #[track_caller]
    pub fn put(&self, first: usize, elements: &[T]) -> Result<()> {
        self.core.change_many("put", first, TargetOp::Write, bytemuck::cast_slice(elements))
    }

    /// Returns copies of elements, in row-major order, as they are at their homes. No page is
    /// fetched, and this node's copies stay as they are.
    ///
    /// # Errors
    /// The range is out of bounds; a home is lost; the time limit passed.
    #[track_caller]
    pub fn get(&self, elements: Range<usize>) -> Result<Vec<T>> {
        let mut got = Vec::with_capacity(elements.len());
        self.core.get_parts(elements, |bytes| {
            for element in bytes.chunks_exact(size_of::<T>()) {
                got.push(bytemuck::checked::try_pod_read_unaligned(element).map_err(|_| {
                    let kind = std::any::type_name::<T>();
                    Error::invalid("get", format!("the bytes of an element are not a {kind}"))
                })?);
            }
            Ok(())
        })?;
        Ok(got)
    }
}

impl<T: Element + bytemuck::Pod + Number> SharedArray<T> {
    /// Adds to an element at its home, and returns the element from before. No other operation of
    /// this kind comes between. Integers wrap.
    ///
    /// Between two barriers, use an element either by such operations or by plain loads and stores.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let tickets = job.array::<u64>("tickets", [4, 4])?;
    /// let mine = tickets.fetch_add([1, 2], 1)?;
    /// assert!(mine < u64::from(job.size()));
    /// job.barrier()?;
    /// assert_eq!(tickets.read(tickets.whole())?[[1, 2]], u64::from(job.size()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The index is out of bounds; the home is lost; the time limit passed.
    #[track_caller]
    pub fn fetch_add(&self, index: impl ElementIndex, add: T) -> Result<T> {
        self.fetch_combine(index, Combine::Sum, add)
    }

    /// Combines an element with a number at its home, and returns the element from before, as
    /// [`fetch_add`](Self::fetch_add) does.
    ///
    /// # Errors
    /// As [`fetch_add`](Self::fetch_add).
    #[track_caller]
    pub fn fetch_combine(
        &self,
        index: impl ElementIndex,
        operator: impl Into<Combine>,
        other: T,
    ) -> Result<T> {
        let how = Accumulation { element: T::ELEMENT, combine: operator.into() };
        self.change_one("fetch_combine", index, TargetOp::Combine(how), &[other])
    }

    /// Replaces an element by `new` at its home if its bits are those of `expected`. Returns the
    /// element from before.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let owner = job.array::<u32>("owner", 1)?;
    /// let is_first = owner.compare_exchange(0, 0, job.rank() + 1)? == 0; // true on one node
    /// # job.barrier()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`fetch_add`](Self::fetch_add).
    #[track_caller]
    pub fn compare_exchange(&self, index: impl ElementIndex, expected: T, new: T) -> Result<T> {
        let width = if size_of::<T>() == 4 { Width::W32 } else { Width::W64 };
        let op = TargetOp::CompareExchange(width);
        self.change_one("compare_exchange", index, op, &[expected, new])
    }

    /// Combines numbers with the elements from `first` in row-major order on, at their homes. Each
    /// pair is combined once, as one step.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let sums = job.array::<f32>("sums", 1000)?;
    /// sums.accumulate(500, Sum, &[0.5; 10])?; // all nodes at once
    /// job.barrier()?;
    /// assert_eq!(sums.read(500..501)?[0], 0.5 * job.size() as f32);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The numbers do not fit; a home is lost; the time limit passed. Some numbers may have been
    /// combined then, none of them twice.
    #[track_caller]
    pub fn accumulate(
        &self,
        first: usize,
        operator: impl Into<Combine>,
        numbers: &[T],
    ) -> Result<()> {
        let op =
            TargetOp::Accumulate(Accumulation { element: T::ELEMENT, combine: operator.into() });
        self.core.change_many("accumulate", first, op, bytemuck::cast_slice(numbers))
    }

    #[track_caller]
    fn change_one(
        &self,
        doing: &str,
        index: impl ElementIndex,
        op: TargetOp,
        operands: &[T],
    ) -> Result<T> {
        let place = index.position(&self.shape());
        let old =
            self.core.change_place(doing, &index, place, op, bytemuck::cast_slice(operands))?;
        bytemuck::try_pod_read_unaligned(&old)
            .map_err(|_| Error::invalid(doing, "the home answered with another number of bytes"))
    }
}

impl ArrayCore {
    /// Sends the bytes of operands for the elements from `first` on to their homes.
    #[track_caller]
    pub(crate) fn change_many(
        &self,
        doing: &str,
        first: usize,
        op: TargetOp,
        operands: &[u8],
    ) -> Result<()> {
        let size = self.element_size();
        self.check_target(doing, &(first..first.saturating_add(operands.len() / size)))?;
        let each = (REQUEST_MAX / size).max(1);
        for (number, part) in operands.chunks(each * size).enumerate() {
            let start = first + number * each;
            self.act(doing, start..start + part.len() / size, op, part.to_vec())?;
        }
        Ok(())
    }

    /// Reads elements at their homes, and hands their bytes over piece by piece.
    #[track_caller]
    pub(crate) fn get_parts(
        &self,
        elements: Range<usize>,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        self.check_target("get", &elements)?;
        let size = self.element_size();
        let each = (REQUEST_MAX / size).max(1);
        for start in elements.clone().step_by(each) {
            let part = start..elements.end.min(start + each);
            let bytes = self.act("get", part.clone(), TargetOp::Read, Vec::new())?;
            if bytes.len() != part.len() * size {
                return Err(Error::invalid(
                    "get",
                    "the home answered with another number of bytes",
                ));
            }
            take(&bytes)?;
        }
        Ok(())
    }

    fn check_target(&self, doing: &str, elements: &Range<usize>) -> Result<()> {
        self.check_process()?;
        if elements.start <= elements.end && elements.end <= self.len() {
            return Ok(());
        }
        let Range { start, end } = elements;
        Err(Error::invalid(
            format!("{doing} of elements {start}..{end} of array \"{}\"", self.name),
            format!("the array has {} elements", self.len()),
        ))
    }

    /// Performs an operation on elements that are in bounds.
    #[track_caller]
    fn act(
        &self,
        doing: &str,
        elements: Range<usize>,
        op: TargetOp,
        operands: Vec<u8>,
    ) -> Result<Vec<u8>> {
        let bytes = self.bytes_of(&elements);
        let what = format!(
            "{doing} of elements {}..{} of array \"{}\"",
            elements.start, elements.end, self.name
        );
        if self.is_segment() {
            if let Some(failure) = self.node.departures.over() {
                return Err(self.node.departures.failure(&what, failure));
            }
            return self.operate(&what, &bytes, op, &operands);
        }
        let (array, offset, len) = (self.memory.array(), bytes.start, bytes.end - bytes.start);
        let request = Request::Target { array, offset, len, op, operands };
        let completion = self.node.submit(request, None);
        let subject = || WaitSubject::Operation { what: what.clone(), peer: None };
        match self.node.outcome_of(&subject, &what, || completion.outcome(), self.limit)? {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Ok(Vec::new()),
        }
    }

    /// Performs an operation on memory that all nodes map (COH-16.9), on at most
    /// [`SEGMENT_MAX`] bytes at a time.
    #[track_caller]
    fn operate(
        &self,
        what: &str,
        bytes: &Range<u64>,
        op: TargetOp,
        operands: &[u8],
    ) -> Result<Vec<u8>> {
        let (place, mut got) = (bytes.start as usize..bytes.end as usize, Vec::new());
        let size = self.element_size().max(1);
        let each = (SEGMENT_MAX / size).max(1) * size;
        for start in place.clone().step_by(each) {
            let part = start..place.end.min(start + each);
            let given = match op {
                TargetOp::CompareExchange(_) => operands,
                _ => operands.get(start - place.start..part.end - place.start).unwrap_or_default(),
            };
            let old = self.operate_at_once(what, &part, op, given)?;
            if op.has_result() {
                got.extend_from_slice(&old);
            }
        }
        Ok(got)
    }

    #[track_caller]
    fn operate_at_once(
        &self,
        what: &str,
        bytes: &Range<usize>,
        op: TargetOp,
        operands: &[u8],
    ) -> Result<Vec<u8>> {
        let change = |old: &[u8]| op.change(old, operands);
        let op = match op {
            TargetOp::Read => ElementOp::Read,
            TargetOp::Write => ElementOp::Write(operands),
            _ => ElementOp::Change(&change),
        };
        for _ in 0..TRIES {
            if let Attempt::Done(old) = self.memory.operate(bytes, &op)? {
                return Ok(old);
            }
            // The holder of a group was interrupted by the system, and wakes nobody when it ends.
            std::thread::sleep(TRY_AGAIN);
        }
        // Perhaps the holder is stopped.
        let (holder, mut refused, mut lost) = (Cell::new(None), None, None::<(Rank, Instant)>);
        let ready = || match self.memory.operate(bytes, &op) {
            Ok(Attempt::Done(old)) => Some(Ok(Value::Bytes(old))),
            Ok(Attempt::Waits(by)) => {
                holder.set(by);
                let failure = self.node.departures.loss_in(by.as_slice())?;
                // The group of a lost node is free as soon as its process has ended.
                let is_over = match failure {
                    Failure::PeerLost { peer, .. } => {
                        let known = lost.filter(|(rank, _)| *rank == peer);
                        let (_, since) = *lost.insert(known.unwrap_or((peer, Instant::now())));
                        since.elapsed() >= END_OF_LOST
                    }
                    _ => true,
                };
                is_over.then_some(Err(failure))
            }
            Err(why) => {
                refused = Some(why);
                Some(Ok(Value::Done))
            }
        };
        let subject = || WaitSubject::Operation { what: what.to_owned(), peer: holder.get() };
        let outcome = self.node.outcome_of(&subject, &what, ready, self.limit);
        match (refused, outcome?) {
            (Some(why), _) => Err(why.into()),
            (None, Value::Bytes(old)) => Ok(old),
            (None, _) => Ok(Vec::new()),
        }
    }

    /// Changes the element at a place in row-major order, and returns its bytes from before. The
    /// index is what the program gave.
    #[track_caller]
    pub(crate) fn change_place(
        &self,
        doing: &str,
        index: &dyn fmt::Debug,
        place: Option<usize>,
        op: TargetOp,
        operands: &[u8],
    ) -> Result<Vec<u8>> {
        self.check_process()?;
        let place = place.ok_or_else(|| {
            Error::invalid(
                format!("{doing} of element {index:?} of array \"{}\"", self.name),
                format!("the array has the shape {:?}", self.shape()),
            )
        })?;
        self.act(doing, place..place + 1, op, operands.to_vec())
    }
}
