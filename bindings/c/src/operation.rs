//! Operations under way, and the ways to learn of their end.

use crate::abi::call::{CallError, CallResult, Give, Raw, arguments, functions, outputs, remember};
use crate::abi::objects::{HandlePlace, New, Released, find, handled, keep, take, take_if};
use crate::abi::pointers::{BytesMut, Filled, Optional, Room, Slots, place_at};
use crate::collective::calls::StartedCollective;
use crate::job::{JoinedJob, Limit, check_joined, oik_job};
use crate::memory::region::Loan;
use crate::message::{oik_received, received_of};
use crate::status::oik_status;
use oikaze::completion::{Completed, CompletionQueue, Counter, Counts, Operation, Outcome};
use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// An operation under way: a put, a get, an atomic, a message, a posted receive, a collective. Its
/// handle means nothing any more once a wait for it has ended, well or with an error. After
/// `OIK_TIMEOUT` it may be waited for again. A call that is given NULL as the place of the handle
/// returns the failure of an operation that has failed at once; `oik_flush` and `oik_leave` report
/// later failures.
pub struct oik_operation;

/// An operation, and the memory that the program has lent to it.
pub enum KeptOperation {
    /// An operation on memory, or a message.
    Single(Operation<u64>, #[expect(dead_code, reason = "its end ends the loan")] Option<Loan>),
    /// A posted receive.
    Receive(Operation<u64>, #[expect(dead_code, reason = "its end ends the loan")] Option<Loan>),
    /// A collective under way.
    Collective(Box<StartedCollective>),
}

handled! { oik_operation: KeptOperation, "operation"; }

/// Handle of an operation, for functions that wait.
#[repr(transparent)]
pub struct Waited(*mut oik_operation);

arguments! { one:
    <> Waited: *mut oik_operation = |it, _, _| Ok(it.0);
}

/// Place in which C gets the handle of an operation that has begun, or NULL.
#[repr(transparent)]
pub struct Begun(*mut *mut oik_operation);

outputs! {
    <> Begun: Option<HandlePlace<'p, oik_operation>> = |it, _| Ok(place_at(&mut it.0));
}

impl<O: Outcome> Give<Operation<O>> for Begun {
    #[inline]
    fn give(place: Self::Place<'_>, operation: Operation<O>) -> CallResult {
        match place {
            Some(out) => keep(out, KeptOperation::Single(operation.into_bits(), None)).map(drop),
            // Of an operation that has failed at once, such as one of a job that was left, the
            // caller learns here. Another goes on, and its failure is reported by a flush, or when
            // the node leaves.
            None if operation.is_done() => Ok(operation.wait().map(drop)?),
            None => Ok(()),
        }
    }
}

/// An operation that may use lent memory. Without a handle, C gets the memory back at once.
impl<O: Outcome> Give<(Operation<O>, Option<Loan>)> for Begun {
    #[inline]
    fn give(place: Self::Place<'_>, (operation, loan): (Operation<O>, Option<Loan>)) -> CallResult {
        match (place, loan) {
            (place, None) => Self::give(place, operation),
            (None, Some(_loan)) => Ok(operation.wait().map(drop)?),
            (Some(out), loan) => {
                keep(out, KeptOperation::Single(operation.into_bits(), loan)).map(drop)
            }
        }
    }
}

/// Waits for a posted receive, and releases it unless it goes on. `wait` returns `None` if the
/// receive has not ended. The message is described also if it was too long.
pub fn finish_receive(
    handle: *mut oik_operation,
    message: &mut MaybeUninit<oik_received>,
    wait: impl FnOnce(&Operation<u64>) -> Option<oikaze::Result<u64>>,
) -> CallResult {
    let kept = find(handle)?;
    let KeptOperation::Receive(receive, _) = &*kept else {
        let why = "the operation is not a posted receive; wait for it by oik_wait";
        return Err(CallError::invalid(why));
    };
    let outcome = wait(receive).ok_or_else(CallError::not_ready)?;
    let (received, outcome) = match outcome {
        Ok(_) => (receive.received(), Ok(())),
        Err(error) => (error.kept_message(), Err(CallError::from(error))),
    };
    if let Some(received) = received {
        message.write(received_of(received));
    }
    if !outcome.as_ref().is_err_and(|error| error.status == oik_status::OIK_TIMEOUT) {
        // Another thread that has waited too may have released it.
        let _ = take(handle);
    }
    outcome
}

impl KeptOperation {
    fn is_done(&self) -> bool {
        match self {
            Self::Single(operation, _) | Self::Receive(operation, _) => operation.is_done(),
            Self::Collective(started) => started.is_done(),
        }
    }

    /// Waits for the end, within the job's time limit.
    fn wait(&self) -> CallResult<u64> {
        match self {
            Self::Single(operation, _) | Self::Receive(operation, _) => Ok(operation.wait()?),
            Self::Collective(started) => started.wait(started.limit()),
        }
    }

    fn wait_for(&self, limit: Duration) -> CallResult<u64> {
        match self {
            Self::Single(operation, _) | Self::Receive(operation, _) => {
                Ok(operation.wait_for(limit)?)
            }
            Self::Collective(started) => started.wait(limit),
        }
    }

    fn try_take(&self) -> Option<CallResult<u64>> {
        match self {
            Self::Single(operation, _) | Self::Receive(operation, _) => {
                Some(operation.try_take()?.map_err(Into::into))
            }
            Self::Collective(started) => started.is_done().then(|| started.wait(Duration::ZERO)),
        }
    }

    fn cancel(&self) -> CallResult<u64> {
        match self {
            Self::Single(operation, _) | Self::Receive(operation, _) => Ok(operation.cancel()?),
            // `oik_cancel` refuses collectives.
            Self::Collective(started) => started.wait(started.limit()),
        }
    }

    fn report_to(&self, queue: &CompletionQueue, context: u64) -> CallResult {
        match self {
            Self::Single(operation, _) | Self::Receive(operation, _) => {
                Ok(operation.report_to(queue, context)?)
            }
            Self::Collective(started) => started.report_to(queue, context),
        }
    }

    fn count_in(&self, counter: &Counter) -> CallResult {
        match self {
            Self::Single(operation, _) | Self::Receive(operation, _) => {
                Ok(operation.count_in(counter)?)
            }
            Self::Collective(started) => started.count_in(counter),
        }
    }
}

/// Waits for an operation, and releases it unless a time limit has passed.
fn finish(
    handle: *mut oik_operation,
    wait: impl FnOnce(&KeptOperation) -> CallResult<u64>,
) -> CallResult<u64> {
    // Most operations have ended, and cost one look into the table.
    let (kept, is_taken) = take_if(handle, KeptOperation::is_done)?;
    let outcome = wait(&kept);
    if !is_taken && !outcome.as_ref().is_err_and(|error| error.status == oik_status::OIK_TIMEOUT) {
        // Another thread that has waited too may have released it.
        let _ = take(handle);
    }
    outcome
}

functions! {
    /// Waits for an operation within the job's time limit, and releases it. Returns its outcome.
    /// Thread-safe.
    oik_wait(operation: Waited) = finish(operation, KeptOperation::wait)?;
    /// Waits as `oik_wait` does, and writes the previous value of the word that an atomic changed
    /// (its bits, if it has 32), or 0 for other operations. Thread-safe.
    oik_wait_value(operation: Waited) -> value: Room<u64> = finish(operation, KeptOperation::wait)?;
    /// Waits as `oik_wait_value` does, with this time limit in seconds. `value` may be NULL. After
    /// `OIK_TIMEOUT` the operation goes on. Thread-safe.
    oik_wait_for(operation: Waited, seconds: Limit) -> value: Optional<u64> =
        finish(operation, |operation| operation.wait_for(seconds))?;
    /// Waits for `count` operations as `oik_wait` does, and releases all of them. NULL stands for
    /// an operation that has ended. Returns the first failure. After `OIK_TIMEOUT`, the operation
    /// that did not end and all after it may be waited for again. Thread-safe.
    oik_wait_all(operations[count]: Slots<*mut oik_operation>) = {
        let mut first = Ok(());
        for operation in operations.iter_mut().filter(|operation| !operation.is_null()) {
            match finish(*operation, KeptOperation::wait) {
                Err(error) if error.status == oik_status::OIK_TIMEOUT => return Err(error),
                outcome => first = first.and(outcome.map(drop)),
            }
            *operation = std::ptr::null_mut();
        }
        first?
    };
    /// Returns `OIK_NOT_READY` if the operation has not ended. Otherwise releases it and returns
    /// its outcome, as `oik_wait_value` does. `value` may be NULL. Thread-safe.
    oik_test(operation: Waited) -> value: Optional<u64> = {
        let (kept, is_taken) = take_if(operation, KeptOperation::is_done)?;
        let outcome = if is_taken { kept.try_take() } else { None };
        outcome.ok_or_else(CallError::not_ready)??
    };
    /// Cancels an operation (not a collective), waits until it uses no memory of the program any
    /// more, and releases it. Returns `OIK_OK` if it had ended well, and `OIK_CANCELLED` if it may
    /// not have taken place. Thread-safe.
    oik_cancel(operation: Waited) = {
        if let KeptOperation::Collective(_) = &*find(operation)? {
            return Err(CallError::invalid(
                "a collective cannot be cancelled: other ranks need it; wait for it, or release it",
            ));
        }
        finish(operation, KeptOperation::cancel)?
    };
    /// Releases an operation, which goes on. If the program's memory was lent to it, the call waits
    /// until it does not use that memory any more. A failure is reported by `oik_flush` or
    /// `oik_leave`. A posted receive is cancelled. Thread-safe.
    oik_operation_release(operation: Released<oik_operation>) = {
        if let KeptOperation::Receive(receive, _) = &*operation {
            // It has taken no message, or has ended.
            let _ = receive.cancel();
        }
    };
    /// Waits until all operations and messages that this node has begun have ended, to all peers,
    /// within the job's time limit. Returns `OIK_UNREPORTED` if some have failed that no call has
    /// reported; each failure is reported once. Thread-safe.
    oik_flush(job: *mut oik_job) = job.job.flush()?;
    /// Flushes as `oik_flush` does, with this time limit in seconds. Thread-safe.
    oik_flush_for(job: *mut oik_job, seconds: Limit) = job.job.flush_for(seconds)?;
    /// Flushes as `oik_flush` does, operations to one peer only. Thread-safe.
    oik_flush_peer(job: *mut oik_job, rank: u32) = job.peer(rank)?.flush()?;
    /// Flushes as `oik_flush_peer` does, with this time limit in seconds. Thread-safe.
    oik_flush_peer_for(job: *mut oik_job, rank: u32, seconds: Limit) =
        job.peer(rank)?.flush_for(seconds)?;
    /// Orders operations and messages to each peer: those begun after the fence take place at the
    /// peer after those begun before it. Returns at once. Thread-safe.
    oik_fence(job: *mut oik_job) = job.job.fence();
    /// Orders operations as `oik_fence` does, to one peer only. Thread-safe.
    oik_fence_peer(job: *mut oik_job, rank: u32) = job.peer(rank)?.fence();
    /// Calls `posts(context)` on the calling thread. The operations that it begins leave together
    /// at its end, in as few datagrams as hold them. Many small operations so have several times
    /// the rate. `posts` returns normally: neither longjmp nor an exception of C++ leaves it.
    /// Thread-safe.
    oik_batch(job: *mut oik_job, posts: Raw<Option<extern "C" fn(context: BytesMut)>>,
        context: Raw<BytesMut>) = {
        let posts = posts.ok_or_else(|| CallError::invalid("posts is NULL; pass a function"))?;
        job.job.batch(|| posts(context.copy()));
    };
}

/// A queue in which operations report their end.
pub struct oik_queue;

/// A queue, and what was taken out of it for a caller that had too little room.
pub struct KeptQueue {
    job: Weak<JoinedJob>,
    queue: CompletionQueue,
    rest: Mutex<VecDeque<Completed>>,
}

handled! { oik_queue: KeptQueue, "completion queue"; }

/// An operation that has ended.
#[repr(C)]
pub struct oik_completed {
    /// Context that the program gave to the operation.
    pub context: u64,
    /// Previous value, for an atomic (its bits, if it has 32). Length, for a posted receive.
    /// Otherwise 0.
    pub value: u64,
    /// Outcome of the operation.
    pub status: oik_status,
}

impl KeptQueue {
    /// Waits for operations, unless enough have been taken out before, and hands out all there is
    /// room for.
    fn take(
        &self,
        room: &mut [MaybeUninit<oik_completed>],
        count: &mut MaybeUninit<usize>,
        at_least: usize,
        limit: Option<Duration>,
    ) -> CallResult {
        count.write(0);
        let capacity = room.len();
        if at_least > capacity {
            let why = format!("{at_least} operations do not fit into room for {capacity}");
            return Err(CallError::invalid(why));
        }
        let rest = || self.rest.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = at_least.saturating_sub(rest().len());
        let mut taken = Vec::new();
        match limit {
            _ if missing == 0 => self.queue.poll(&mut taken),
            None => self.queue.wait(missing, &mut taken)?,
            Some(limit) => self.queue.wait_for(missing, limit, &mut taken)?,
        };
        let mut rest = rest();
        rest.extend(taken);
        let handed = rest.len().min(capacity);
        for (room, completed) in room.iter_mut().zip(rest.drain(..handed)) {
            let Completed { context, outcome } = completed;
            let (value, status) = match outcome {
                Ok(value) => (value, oik_status::OIK_OK),
                Err(error) => (0, remember(error.into())),
            };
            room.write(oik_completed { context, value, status });
        }
        count.write(handed);
        // No operation will end any more.
        if handed == 0 { check_joined(&self.job) } else { Ok(()) }
    }
}

functions! {
    /// Makes a queue in which operations report their end (`oik_report_to`). Thread-safe.
    oik_queue_new(job: *mut oik_job) -> queue: New<oik_queue> = {
        let (queue, rest) = (job.job.completion_queue(), Mutex::default());
        KeptQueue { job: Arc::downgrade(&job), queue, rest }
    };
    /// Lets a queue report the end of an operation, with this context. The operation is still to be
    /// waited for or released. Thread-safe.
    oik_report_to(operation: *mut oik_operation, queue: *mut oik_queue, context: u64) =
        operation.report_to(&queue.queue, context)?;
    /// Takes operations that have ended out of the queue without waiting, at most `capacity` of
    /// them. `count` gets their number, which may be 0. If some have failed, `oik_error` gives the
    /// text of the last of them. Thread-safe.
    oik_queue_poll(queue: *mut oik_queue, completed[capacity]: Room<oik_completed>)
        -> count: Filled<usize> =
        queue.take(completed, count, 0, None)?;
    /// Waits within the job's time limit until at least `at_least` operations have ended, and takes
    /// them out of the queue as `oik_queue_poll` does. Thread-safe.
    oik_queue_wait(queue: *mut oik_queue, at_least: usize, completed[capacity]: Room<oik_completed>)
        -> count: Filled<usize> =
        queue.take(completed, count, at_least, None)?;
    /// Waits as `oik_queue_wait` does, with this time limit in seconds. Thread-safe.
    oik_queue_wait_for(queue: *mut oik_queue, at_least: usize, seconds: Limit,
        completed[capacity]: Room<oik_completed>)
        -> count: Filled<usize> =
        queue.take(completed, count, at_least, Some(seconds))?;
    /// Releases a queue. Thread-safe.
    oik_queue_release(queue: Released<oik_queue>) = drop(queue);
}

/// A counter of operations that have ended.
pub struct oik_counter;

/// A counter that C has the handle of.
pub struct KeptCounter(Counter);

handled! { oik_counter: KeptCounter, "counter"; }

/// Numbers of operations that have ended since a counter was made.
#[repr(C)]
pub struct oik_counts {
    /// Number of operations that succeeded.
    pub succeeded: u64,
    /// Number of operations that failed.
    pub failed: u64,
}

fn counts_of(Counts { succeeded, failed }: Counts) -> oik_counts {
    oik_counts { succeeded, failed }
}

functions! {
    /// Makes a counter of operations that have ended (`oik_count_in`). A thread that waits for the
    /// last of many operations is woken once. Thread-safe.
    oik_counter_new(job: *mut oik_job) -> counter: New<oik_counter> =
        KeptCounter(job.job.counter());
    /// Lets a counter count an operation when it ends. The operation is still to be waited for or
    /// released. Thread-safe.
    oik_count_in(operation: *mut oik_operation, counter: *mut oik_counter) =
        operation.count_in(&counter.0)?;
    /// Writes how many operations have ended. Thread-safe.
    oik_counter_counts(counter: *mut oik_counter) -> counts: Room<oik_counts> =
        counts_of(counter.0.counts());
    /// Waits within the job's time limit until at least `ended` operations have ended. `counts` may
    /// be NULL. Thread-safe.
    oik_counter_wait(counter: *mut oik_counter, ended: u64) -> counts: Optional<oik_counts> =
        counts_of(counter.0.wait(ended)?);
    /// Waits as `oik_counter_wait` does, with this time limit in seconds. Thread-safe.
    oik_counter_wait_for(counter: *mut oik_counter, ended: u64, seconds: Limit)
        -> counts: Optional<oik_counts> =
        counts_of(counter.0.wait_for(ended, seconds)?);
    /// Releases a counter. Thread-safe.
    oik_counter_release(counter: Released<oik_counter>) = drop(counter);
}
