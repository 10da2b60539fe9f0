//! Operations of all nodes on a whole array: the end of it, and what each does for its blocks.

use super::{Element, SharedArray};
use crate::error::{Error, Result};
use oikaze_engine::{Request, Value};
use oikaze_protocol::coherence::{CoherenceError, ReduceOp, Reduction, Values};
use oikaze_protocol::fnv::fnv1a;

/// Why a call fails whose arguments differ between the nodes.
const DIFFERENT: &str = "the nodes name different arrays, or pass different values";

impl<T: Element> SharedArray<T> {
    /// Frees the array on all nodes: its memory, its address space and its name. Collective, and a
    /// barrier: all nodes free the same array.
    ///
    /// A program that drops the array on all nodes and calls a barrier frees it as well. Pages that
    /// are still on their way to a node are waited for here. A dropped array stays until a later
    /// barrier in this case.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// for step in 0..10 {
    ///     let scratch = job.array::<f64>("scratch", 1000)?; // the name is free again
    ///     scratch.fill(f64::from(step))?;
    ///     scratch.free()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Nodes disagree on the array; a node is lost; a guard of any array of this node is alive.
    #[track_caller]
    pub fn free(self) -> Result<()> {
        self.free_everywhere()
    }

    /// Frees the array as [`SharedArray::free`] does. The handle is of no use afterwards.
    #[track_caller]
    pub(crate) fn free_everywhere(&self) -> Result<()> {
        let what = format!("free array \"{}\"", self.name);
        self.node.check_process(|| what.clone())?;
        self.node.coherence.check_no_guard(&self.node, &what)?;
        let request = Request::Free(self.memory.array());
        self.node.coherence.collective(&self.node, &what, request, self.limit).map(drop)
    }

    /// Gives all elements one value. Collective, with a barrier at its begin and its end: each node
    /// fills its own blocks ([`home_blocks`](Self::home_blocks)) when no node reads the old
    /// elements any more, and afterwards all nodes see all new ones.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let ones = job.array::<i32>("ones", [50, 50])?;
    /// ones.fill(1)?;
    /// assert_eq!(ones.read(ones.whole())?.iter().sum::<i32>(), 2500);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A node could not write its elements (all nodes get the error); a node is lost; a guard of
    /// any array of this node is alive.
    #[track_caller]
    pub fn fill(&self, value: T) -> Result<()> {
        self.fill_units(&[value])
    }

    /// Fills as [`SharedArray::fill`] does, with an element of these units.
    #[track_caller]
    pub(crate) fn fill_units(&self, element: &[T]) -> Result<()> {
        self.together_alike("fill", bytemuck::cast_slice::<T, u8>(element), || Ok((0, ())))?;
        self.together("fill", || {
            let blocks = self.home_blocks(self.node.rank());
            blocks.into_iter().try_for_each(|block| {
                let mut guard = self.write(block)?;
                match element {
                    [value] => guard.fill(*value),
                    units => {
                        let rows = guard.slices_mut().iter_mut();
                        rows.flat_map(|row| row.chunks_exact_mut(units.len().max(1)))
                            .for_each(|place| place.copy_from_slice(units));
                    }
                }
                Ok(())
            })
        })
    }

    /// Does this node's part of a collective. If it fails on any node, all nodes get an error.
    #[track_caller]
    pub(super) fn together<R>(&self, doing: &str, part: impl FnOnce() -> Result<R>) -> Result<R> {
        self.agree(doing, || Ok((Request::Barrier, part()?))).map(|(_, done)| done)
    }

    /// Does this node's part as [`together`](Self::together) does. The part returns also a number,
    /// and all nodes get the greatest one. If the nodes name different arrays, or pass different
    /// bytes as `alike`, all nodes get an error.
    #[track_caller]
    pub(super) fn together_alike<R>(
        &self,
        doing: &str,
        alike: &[u8],
        part: impl FnOnce() -> Result<(u64, R)>,
    ) -> Result<(u64, R)> {
        let arguments = [self.name.as_bytes(), &[0], alike].into_iter().flatten();
        let hash = fnv1a(arguments.copied());
        let (value, done) = self.agree(doing, || {
            let (number, done) = part()?;
            let values = Values::U64(vec![number, hash, !hash]);
            Ok((Request::Reduce(Reduction { op: ReduceOp::Max, values }), done))
        })?;
        match value {
            // The greatest and the smallest hash are the same if all are.
            Value::Reduced(Values::U64(numbers)) => match numbers[..] {
                [number, most, least] if most == !least => Ok((number, done)),
                _ => Err(Error::failed(
                    format!("{doing} array \"{}\"", self.name),
                    CoherenceError::Mismatch(DIFFERENT.to_owned()).into(),
                )),
            },
            _ => Err(Error::invalid(doing, "the result is of another type (a defect)")),
        }
    }

    #[track_caller]
    fn agree<R>(
        &self,
        doing: &str,
        part: impl FnOnce() -> Result<(Request, R)>,
    ) -> Result<(Value, R)> {
        let what = format!("{doing} array \"{}\"", self.name);
        self.node.check_process(|| what.clone())?;
        self.node.coherence.check_no_guard(&self.node, &what)?;
        let (request, done) = match part() {
            Ok((request, done)) => (request, Ok(done)),
            Err(error) => (Request::Cannot(error.to_string()), Err(error)),
        };
        let agreed = self.node.coherence.collective(&self.node, &what, request, self.limit);
        // The error of this node says more than what the others are told.
        let done = done?;
        agreed.map(|value| (value, done))
    }
}
