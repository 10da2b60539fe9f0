//! The collective of coherence in whose wait this node was interrupted (COLL-3.11).

use oikaze_engine::Request;
use oikaze_protocol::coherence::{ArrayId, Reduction, Values};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Call that a program can repeat after its wait was interrupted, by what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepeatableCall {
    Barrier,
    /// A reduction with this digest of operation and values.
    Reduce(u64),
    Free(ArrayId),
}

impl RepeatableCall {
    /// Returns the call of a request, or `None` if a request of its kind is always a new one.
    #[inline]
    pub fn of(request: &Request) -> Option<RepeatableCall> {
        match request {
            Request::Barrier => Some(RepeatableCall::Barrier),
            Request::Reduce(reduction) => Some(RepeatableCall::Reduce(digest(reduction))),
            Request::Free(array) => Some(RepeatableCall::Free(*array)),
            _ => None,
        }
    }

    /// Returns `true` if both are reductions, of different values.
    fn differs_in_values(self, other: RepeatableCall) -> bool {
        let are_reductions = matches!((self, other), (Self::Reduce(_), Self::Reduce(_)));
        are_reductions && self != other
    }
}

/// Returns a hash of a reduction, by words.
fn digest(Reduction { op, values }: &Reduction) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    let add = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    let (kind, sum) = match values {
        Values::F64(all) => (0, all.iter().fold(OFFSET, |sum, value| add(sum, value.to_bits()))),
        Values::I64(all) => (1, all.iter().fold(OFFSET, |sum, value| add(sum, *value as u64))),
        Values::U64(all) => (2, all.iter().fold(OFFSET, |sum, value| add(sum, *value))),
    };
    [kind, *op as u64, values.len() as u64].into_iter().fold(sum, add)
}

/// A call whose wait was interrupted. It goes on, because other nodes wait for this node in it.
pub(super) struct InterruptedCall<C> {
    pub call: RepeatableCall,
    /// Count of the call among this node's collectives of coherence.
    pub number: u64,
    /// Where the call goes on.
    pub begun: C,
}

/// Relation of a call to the one that was interrupted.
pub(super) enum Repetition<C> {
    /// It is another call, which other nodes make after the interrupted one.
    None,
    /// It is the interrupted call, which it goes on to wait for.
    Same(InterruptedCall<C>),
    /// It is a reduction, of other values than the interrupted one.
    OtherValues,
}

/// The latest interrupted call of a node, until the program repeats it or makes another one.
pub(super) struct Interrupted<C> {
    /// Number of calls that have begun.
    calls: AtomicU64,
    /// `false` is a promise that there is none, which costs one load.
    is_any: AtomicBool,
    latest: Mutex<Option<InterruptedCall<C>>>,
}

impl<C> Default for Interrupted<C> {
    fn default() -> Self {
        Interrupted {
            calls: AtomicU64::default(),
            is_any: AtomicBool::default(),
            latest: Mutex::default(),
        }
    }
}

impl<C> Interrupted<C> {
    /// Keeps a call whose wait was interrupted, by the count that [`Interrupted::resume`] returned
    /// for it. If another thread has begun a later call meanwhile, there is nothing to repeat.
    pub fn keep(&self, call: InterruptedCall<C>, count: u64) {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = Some(call);
        self.is_any.store(true, Ordering::SeqCst);
        drop(latest);
        // A call that begins from now on finds the kept one, and one that has begun is seen here.
        if self.calls.load(Ordering::SeqCst) != count {
            drop(self.taken());
        }
    }

    /// Counts a call that begins. Returns the count, and the interrupted call if there is one,
    /// which is forgotten.
    #[inline]
    pub fn take(&self) -> (u64, Option<InterruptedCall<C>>) {
        let count = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        (count, if self.is_any.load(Ordering::SeqCst) { self.taken() } else { None })
    }

    fn taken(&self) -> Option<InterruptedCall<C>> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_any.store(false, Ordering::SeqCst);
        latest.take()
    }

    /// Counts a call that begins. Returns the count, and how the call relates to the interrupted
    /// one, which is forgotten.
    #[inline]
    pub fn resume(&self, call: Option<RepeatableCall>) -> (u64, Repetition<C>) {
        let (count, interrupted) = self.take();
        let repetition = match (interrupted, call) {
            (Some(interrupted), Some(call)) if interrupted.call == call => {
                Repetition::Same(interrupted)
            }
            (Some(interrupted), Some(call)) if call.differs_in_values(interrupted.call) => {
                Repetition::OtherValues
            }
            _ => Repetition::None,
        };
        (count, repetition)
    }

    /// Returns `true` if this call was interrupted.
    pub fn is(&self, call: RepeatableCall) -> bool {
        self.is_any.load(Ordering::Acquire)
            && self
                .latest
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .is_some_and(|interrupted| interrupted.call == call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_protocol::coherence::ReduceOp;

    fn reduce(op: ReduceOp, values: Values) -> Option<RepeatableCall> {
        RepeatableCall::of(&Request::Reduce(Reduction { op, values }))
    }

    /// COLL-3.11.
    #[test]
    fn calls_that_differ_are_no_repetition() {
        let kept = |call: Option<RepeatableCall>| {
            let interrupted = Interrupted::default();
            let call = call.unwrap();
            interrupted.keep(InterruptedCall { call, number: 7, begun: () }, 0);
            interrupted
        };
        let barrier = RepeatableCall::of(&Request::Barrier);
        let one = reduce(ReduceOp::Sum, Values::U64(vec![1]));
        let others = [
            reduce(ReduceOp::Max, Values::U64(vec![1])),
            reduce(ReduceOp::Sum, Values::I64(vec![1])),
            reduce(ReduceOp::Sum, Values::U64(vec![1, 1])),
            reduce(ReduceOp::Sum, Values::U64(vec![2])),
        ];
        assert!(matches!(kept(one).resume(one).1, Repetition::Same(_)));
        for other in others {
            let interrupted = kept(one);
            assert!(matches!(interrupted.resume(other).1, Repetition::OtherValues));
            assert!(matches!(interrupted.resume(one).1, Repetition::None), "it is forgotten");
        }
        assert!(matches!(kept(barrier).resume(one).1, Repetition::None));
        assert!(matches!(kept(barrier).resume(None).1, Repetition::None));
        assert!(matches!(kept(barrier).resume(barrier).1, Repetition::Same(_)));
        assert!(!Interrupted::<()>::default().is(RepeatableCall::Barrier));
        let overtaken = Interrupted::default();
        let (before, _) = overtaken.resume(barrier);
        assert!(matches!(overtaken.resume(None).1, Repetition::None));
        let call = RepeatableCall::Barrier;
        overtaken.keep(InterruptedCall { call, number: 7, begun: () }, before);
        assert!(matches!(overtaken.resume(barrier).1, Repetition::None), "a later call has begun");
    }
}
