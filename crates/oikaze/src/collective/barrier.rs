//! Barriers of all nodes, which make writes to shared arrays visible, and reductions with them.

/// Operation of a reduction that is also a barrier.
///
/// ```
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let last = job.barrier_reduce(u64::from(job.rank()), ReduceOp::Max)?;
/// assert_eq!(last, u64::from(job.size()) - 1);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::coherence::ReduceOp;

use crate::{Error, Job, Result};
use oikaze_engine::{Request, Value};
use oikaze_protocol::coherence::{Reduction, Values};
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
    /// node has still come to the barrier.
    ///
    /// # Errors
    /// As [`Job::barrier`].
    #[track_caller]
    pub fn barrier_for(&self, limit: Duration) -> Result<()> {
        self.barrier_within(Some(limit))
    }

    #[track_caller]
    fn barrier_within(&self, limit: Option<Duration>) -> Result<()> {
        self.node.check_no_guard("barrier")?;
        let number = self.node.next_barrier();
        self.node.collective(&format_args!("barrier {number}"), Request::Barrier, limit).map(drop)
    }

    /// Waits for all nodes as [`Job::barrier`] does, and combines one value of each, in rank order.
    /// All nodes get the same bits.
    ///
    /// # Errors
    /// As [`Job::barrier`].
    #[track_caller]
    pub fn barrier_reduce<T: Reducible>(&self, value: T, op: ReduceOp) -> Result<T> {
        let combined = self.barrier_reduce_all(&[value], op)?;
        combined
            .into_iter()
            .next()
            .ok_or_else(|| Error::invalid("reduce", "the result is empty (a defect)"))
    }

    /// Waits for all nodes as [`Job::barrier`] does, and combines vectors of equal length, element
    /// by element: at most [`REDUCE_MAX`](crate::limits::REDUCE_MAX) values (65,536).
    ///
    /// # Errors
    /// As [`Job::barrier`]; the lengths differ between nodes; there are too many values.
    #[track_caller]
    pub fn barrier_reduce_all<T: Reducible>(&self, values: &[T], op: ReduceOp) -> Result<Vec<T>> {
        self.node.check_no_guard("reduce")?;
        let reduction = Reduction { op, values: T::to_values(values) };
        match self.node.collective(&"reduce", Request::Reduce(reduction), self.limit)? {
            Value::Reduced(values) => T::from_values(values),
            _ => None,
        }
        .ok_or_else(|| Error::invalid("reduce", "the result is of another type (a defect)"))
    }
}

/// Value type that [`Job::barrier_reduce`] can combine.
///
/// ```
/// use oikaze::collective::Reducible;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// fn mean<T: Reducible + Into<f64>>(job: &Job, value: T) -> oikaze::Result<f64> {
///     let sum = job.barrier_reduce(value, ReduceOp::Sum)?;
///     Ok(sum.into() / f64::from(job.size()))
/// }
/// assert_eq!(mean(&job, 3.0)?, 3.0);
/// # Ok(())
/// # }
/// ```
pub trait Reducible: Copy {
    #[doc(hidden)]
    fn to_values(values: &[Self]) -> Values;
    #[doc(hidden)]
    fn from_values(values: Values) -> Option<Vec<Self>>;
}

macro_rules! reducible {
    ($($type:ty: $variant:ident),*) => {
        $(impl Reducible for $type {
            fn to_values(values: &[Self]) -> Values {
                Values::$variant(values.to_vec())
            }
            fn from_values(values: Values) -> Option<Vec<Self>> {
                match values {
                    Values::$variant(values) => Some(values),
                    _ => None,
                }
            }
        })*
    };
}
reducible!(f64: F64, i64: I64, u64: U64);
