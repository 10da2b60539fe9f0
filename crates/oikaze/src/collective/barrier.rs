//! Barriers of all nodes, which make writes to shared arrays visible, and reductions with them.

use crate::Job;
use crate::error::{Error, Result};
use oikaze_engine::{Request, Value};
use oikaze_protocol::coherence::{ReduceOp, Reduction, Values};
use oikaze_protocol::rma::{Combine, Number, NumberKind};
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
        self.node.coherence.check_no_guard(&self.node, "barrier")?;
        let number = self.node.coherence.order.next_barrier();
        self.node
            .coherence
            .collective(&self.node, &format_args!("barrier {number}"), Request::Barrier, limit)
            .map(drop)
    }

    /// Waits for all nodes as [`Job::barrier`] does, and combines one value of each, in rank order:
    /// by `Sum`, `Min` or `Max` of [`operator`](super::operator). All nodes get the same bits.
    /// A NaN stays a NaN, unlike in other collectives.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let last = job.barrier_reduce(job.rank(), Max)?;
    /// assert_eq!(last, job.size() - 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Numbers of 32 bits travel as numbers of 64 bits. An operator that a barrier does not have is
    /// refused by the compiler.
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
    /// As [`Job::barrier`].
    #[track_caller]
    pub fn barrier_reduce<T: Number>(&self, value: T, operator: impl Into<Combine>) -> Result<T> {
        let combined = self.barrier_reduce_all(&[value], operator)?;
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
    pub fn barrier_reduce_all<T: Number>(
        &self,
        values: &[T],
        operator: impl Into<Combine>,
    ) -> Result<Vec<T>> {
        self.node.coherence.check_no_guard(&self.node, "reduce")?;
        let reduction = Reduction { op: op_of(operator.into()), values: values_of(values) };
        match self.node.coherence.collective(
            &self.node,
            &"reduce",
            Request::Reduce(reduction),
            self.limit,
        )? {
            Value::Reduced(values) => numbers_of(values),
            _ => None,
        }
        .ok_or_else(|| Error::invalid("reduce", "the result is of another type (a defect)"))
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

/// Returns numbers as they travel with a barrier, with 64 bits.
fn values_of<T: Number>(numbers: &[T]) -> Values {
    let bits = numbers.iter().map(|number| number.bits());
    match T::ELEMENT {
        NumberKind::U32 | NumberKind::U64 => Values::U64(bits.collect()),
        NumberKind::I32 => {
            Values::I64(bits.map(|bits| i64::from((bits as u32).cast_signed())).collect())
        }
        NumberKind::I64 => Values::I64(bits.map(u64::cast_signed).collect()),
        NumberKind::F32 => {
            Values::F64(bits.map(|bits| f64::from(f32::from_bits(bits as u32))).collect())
        }
        NumberKind::F64 => Values::F64(bits.map(f64::from_bits).collect()),
    }
}

/// Returns the numbers that have travelled with a barrier, or `None` if they are of another type.
fn numbers_of<T: Number>(values: Values) -> Option<Vec<T>> {
    Some(match (T::ELEMENT, values) {
        (NumberKind::U32 | NumberKind::U64, Values::U64(values)) => {
            values.into_iter().map(T::of_bits).collect()
        }
        (NumberKind::I32 | NumberKind::I64, Values::I64(values)) => {
            values.into_iter().map(|value| T::of_bits(value.cast_unsigned())).collect()
        }
        (NumberKind::F32, Values::F64(values)) => {
            let bits = |value: f64| u64::from((value as f32).to_bits());
            values.into_iter().map(|value| T::of_bits(bits(value))).collect()
        }
        (NumberKind::F64, Values::F64(values)) => {
            values.into_iter().map(|value| T::of_bits(value.to_bits())).collect()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back<T: Number>(numbers: &[T]) -> Vec<T> {
        numbers_of(values_of(numbers)).unwrap()
    }

    #[test]
    fn numbers_come_back_as_they_were() {
        assert_eq!(back(&[0, 7, u32::MAX]), [0, 7, u32::MAX]);
        assert_eq!(back(&[i32::MIN, -1, i32::MAX]), [i32::MIN, -1, i32::MAX]);
        assert_eq!(back(&[u64::MAX]), [u64::MAX]);
        assert_eq!(back(&[i64::MIN, -1]), [i64::MIN, -1]);
        assert_eq!(back(&[-0.5_f32, f32::MAX]), [-0.5, f32::MAX]);
        assert_eq!(back(&[1e300_f64]), [1e300]);
        assert!(numbers_of::<u32>(values_of(&[1.0])).is_none());
    }

    /// A sum of 32-bit integers that travels with 64 bits wraps as one of 32 bits does.
    #[test]
    fn integers_of_32_bits_wrap() {
        assert_eq!(numbers_of::<u32>(Values::U64(vec![(1 << 32) + 5])), Some(vec![5]));
        let sum = 2 * i64::from(i32::MIN) + 3;
        assert_eq!(numbers_of::<i32>(Values::I64(vec![sum])), Some(vec![3]));
    }
}
