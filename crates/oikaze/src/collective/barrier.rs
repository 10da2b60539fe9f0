//! Barriers of all nodes, which make writes to shared arrays visible, and reductions with them.

use super::reducible::Reducible;
use crate::error::{Error, Result};
use crate::job::handle::Job;
use oikaze_engine::{Request, Value};
use oikaze_protocol::coherence::{ReduceOp, Reduction};
use oikaze_protocol::rma::Combine;
use std::time::Duration;

impl Job {
    /// Waits for all nodes. After the barrier, all nodes see all that any node wrote before it. One
    /// thread of each node calls it.
    ///
    /// # Errors
    /// A node is lost; nodes do different things; the time limit passed; or a guard of any array of
    /// this node is alive. In the last case this node does not arrive, and the others go on waiting
    /// for it.
    #[track_caller]
    pub fn barrier(&self) -> Result<()> {
        self.barrier_within(self.limit)
    }

    /// Waits for all nodes as [`Job::barrier`] does, with this time limit. After a timeout, this
    /// node has still come to the barrier. If the next collective that it calls is a barrier again,
    /// with or without a limit, it goes on to wait for the same barrier. What the node has written
    /// since the first call becomes visible with the collective after that.
    ///
    /// # Errors
    /// As [`Job::barrier`].
    #[track_caller]
    pub fn barrier_for(&self, limit: Duration) -> Result<()> {
        self.barrier_within(Some(limit))
    }

    #[track_caller]
    fn barrier_within(&self, limit: Option<Duration>) -> Result<()> {
        self.node.coherence.check_no_guard(&self.node, "barrier")?;
        let number = self.node.coherence.barrier_number();
        self.node
            .coherence
            .collective(&self.node, &format_args!("barrier {number}"), Request::Barrier, limit)
            .map(drop)
    }

    /// Waits for all nodes as [`Job::barrier`] does, and combines one value of each, in rank order:
    /// by `Sum`, `Min` or `Max` of [`operator`](super::operator). All nodes get the same bits.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let last = job.barrier_reduce(u64::from(job.rank()), Max)?;
    /// assert_eq!(last, u64::from(job.size()) - 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A number has 64 bits ([`Reducible`]). Other numbers, and an operator that a barrier does not
    /// have, are refused by the compiler.
    ///
    /// ```compile_fail
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// job.barrier_reduce(1_u32, Max)?; // u64::from(1_u32) is combined
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ```compile_fail
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// job.barrier_reduce(1_u64, Product)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Job::barrier`]. After a timeout, the same call with the same value may be repeated.
    #[track_caller]
    pub fn barrier_reduce<T: Reducible>(
        &self,
        value: T,
        operator: impl Into<Combine>,
    ) -> Result<T> {
        let combined = self.barrier_reduce_all(&[value], operator)?;
        combined
            .into_iter()
            .next()
            .ok_or_else(|| Error::invalid("barrier_reduce", "the result is empty (a defect)"))
    }

    /// Waits for all nodes as [`Job::barrier`] does, and combines vectors of equal length, element
    /// by element: at most [`REDUCE_MAX`](crate::limits::REDUCE_MAX) values (65,536).
    ///
    /// # Errors
    /// As [`Job::barrier`]; the lengths differ between nodes; there are too many values.
    #[track_caller]
    pub fn barrier_reduce_all<T: Reducible>(
        &self,
        values: &[T],
        operator: impl Into<Combine>,
    ) -> Result<Vec<T>> {
        self.node.coherence.check_no_guard(&self.node, "barrier_reduce")?;
        let reduction = Reduction { op: op_of(operator.into()), values: T::values_of(values) };
        match self.node.coherence.collective(
            &self.node,
            &"barrier_reduce",
            Request::Reduce(reduction),
            self.limit,
        )? {
            Value::Reduced(values) => T::numbers_of(values),
            _ => None,
        }
        .ok_or_else(|| Error::invalid("barrier_reduce", "the result is of another type (a defect)"))
    }
}

/// Returns the operator as a barrier knows it.
fn op_of(operator: Combine) -> ReduceOp {
    match operator {
        Combine::Sum => ReduceOp::Sum,
        Combine::Min => ReduceOp::Min,
        Combine::Max => ReduceOp::Max,
    }
}
