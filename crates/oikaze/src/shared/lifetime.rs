//! Operations of all nodes on a whole array: the end of it, and what each does for its blocks.

use crate::error::{Error, Result};
use crate::shared::array::SharedArray;
use crate::shared::core::ArrayCore;
use crate::shared::element::Element;
use oikaze_engine::{Request, Value};
use oikaze_protocol::coherence::{CallStep, Ownership, TargetOp, Values};
use oikaze_protocol::fnv::fnv1a;
use std::ops::Range;

/// Number of bytes that are filled at a time.
const FILL_BYTES: usize = 4096;

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
        self.core.free()
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
        self.core.fill(bytemuck::bytes_of(&value))
    }
}

impl ArrayCore {
    /// Frees the array as [`SharedArray::free`] does. The handle is of no use afterwards.
    #[track_caller]
    pub fn free(&self) -> Result<()> {
        let what = format!("free array \"{}\"", self.name);
        self.node.check_process(|| what.clone())?;
        self.node.coherence.check_no_guard(&self.node, &what)?;
        let request = Request::Free(self.memory.array());
        self.node.coherence.collective(&self.node, &what, request, self.limit).map(drop)
    }

    /// Fills as [`SharedArray::fill`] does, with the bytes of an element.
    #[track_caller]
    pub fn fill(&self, element: &[u8]) -> Result<()> {
        self.step("fill", (1, element), || Ok((0, ())))?;
        let elements = element.repeat((FILL_BYTES / element.len().max(1)).max(1));
        let filled = self.step("fill", (2, element), || {
            for block in self.home_blocks(self.node.rank()) {
                if self.is_segment() {
                    // No guard, which would be a copy where a node has a plain pointer (COH-16.8).
                    block.rows().into_iter().try_for_each(|row| self.fill_row(row, &elements))?;
                    continue;
                }
                let mut guard = self.write_block::<u8>(block, Ownership::Owned)?;
                let rows = guard.slices_mut().iter_mut();
                rows.flat_map(|row| row.chunks_mut(elements.len())).for_each(|chunk| {
                    chunk.copy_from_slice(elements.get(..chunk.len()).unwrap_or_default());
                });
            }
            Ok((0, ()))
        });
        filled.map(drop)
    }

    /// Writes these elements to a row, again and again.
    #[track_caller]
    fn fill_row(&self, row: Range<usize>, elements: &[u8]) -> Result<()> {
        let (size, each) = (self.element_size(), elements.len() / self.element_size());
        row.clone().step_by(each.max(1)).try_for_each(|first| {
            let part = elements.get(..(row.end - first).min(each) * size).unwrap_or_default();
            self.change_many("fill", first, TargetOp::Write, part)
        })
    }

    /// Does this node's part of a step of an operation of all nodes. The part returns also a
    /// number, and all nodes get the greatest one. If the part fails on any node, or the nodes do
    /// not take the same step of the same operation with the same `arguments`, all nodes get an
    /// error.
    #[track_caller]
    pub(super) fn step<R>(
        &self,
        doing: &str,
        (step, arguments): (u8, &[u8]),
        part: impl FnOnce() -> Result<(u64, R)>,
    ) -> Result<(u64, R)> {
        let call = format!("{doing} array \"{}\"", self.name);
        self.node.check_process(|| call.clone())?;
        self.node.coherence.check_no_guard(&self.node, &call)?;
        let (request, done) = match part() {
            Ok((number, done)) => {
                let arguments = fnv1a(arguments.iter().copied());
                let step = CallStep { call: call.clone(), step, arguments, number };
                (Request::Step(step), Ok(done))
            }
            Err(error) => (Request::Cannot(error.to_string()), Err(error)),
        };
        let agreed = self.node.coherence.collective(&self.node, &call, request, self.limit);
        // The error of this node says more than what the others are told.
        let done = done?;
        match agreed? {
            Value::Reduced(Values::U64(numbers)) if let [number] = numbers[..] => {
                Ok((number, done))
            }
            _ => Err(Error::invalid(call, "the result is of another type (a defect)")),
        }
    }
}
