//! Operations as futures: `operation.await`.

use super::{Operation, Outcome};
use crate::error::Result;
use oikaze_engine::Sink;
use oikaze_runtime::node::{TaskWait, lock, pending};
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Future of an [`Operation`], made by `.await`. It has no time limit; dropping it does not end the
/// operation.
///
/// No runtime is needed. Polls drive the engine, for as long as a blocking wait would spin, and the
/// helper thread does while all threads sleep in an executor.
///
/// # Errors
/// The output is what [`Operation::wait`] returns. It is also an error if a queue or a counter is
/// told of the operation already.
///
/// ```
/// use oikaze::completion::OperationFuture;
/// use oikaze::prelude::*;
/// use std::pin::Pin;
/// use std::task::{Context, Poll, Waker};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::shared(64)?, Rights::ATOMIC)?;
/// let there = job.peer(0)?.region("inbox")?;
/// let mut future: OperationFuture<u64> = there.fetch_add(0, 1).into_future();
/// let mut context = Context::from_waker(Waker::noop()); // an executor wakes the task instead
/// let before = loop {
///     if let Poll::Ready(outcome) = Pin::new(&mut future).poll(&mut context) {
///         break outcome?;
///     }
/// };
/// assert!(before < u64::from(job.size()));
/// # job.barrier()?;
/// # drop(inbox);
/// # Ok(())
/// # }
/// ```
#[must_use = "a future does nothing until it is polled"]
pub struct OperationFuture<T> {
    operation: Operation<T>,
    /// Present once the engine has been asked to wake the task.
    task: Option<Arc<Task>>,
    wait: TaskWait,
}

impl<T> Unpin for OperationFuture<T> {}

impl<T: Outcome> OperationFuture<T> {
    fn taken(&mut self) -> Option<Result<T>> {
        let outcome = self.operation.try_take()?;
        if self.wait.is_under_way()
            && let Some(node) = self.operation.node()
        {
            self.wait.end(&node);
        }
        Some(outcome)
    }
}

impl<T> fmt::Debug for OperationFuture<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationFuture").finish_non_exhaustive()
    }
}

/// Task that is woken when the operation ends.
#[derive(Debug, Default)]
struct Task(Mutex<Option<Waker>>);

#[derive(Debug)]
struct ToTask(Arc<Task>);

impl Sink for ToTask {
    fn told(&self, _: &oikaze_engine::Outcome, _: u64) {
        self.0.wake();
    }
}

impl Task {
    fn wake(&self) {
        // The lock is released first: a waker may poll the future at once.
        let waker = lock(&self.0).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T: Outcome> Future for OperationFuture<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        if let Some(outcome) = self.taken() {
            return Poll::Ready(outcome);
        }
        let is_first = self.task.is_none();
        let task = Arc::clone(self.task.get_or_insert_default());
        *lock(&task.0) = Some(context.waker().clone());
        if is_first {
            let told = Arc::clone(&task);
            if let Err(error) = self.operation.tell(|_| Box::new(ToTask(told)), |_| task.wake()) {
                return Poll::Ready(Err(error));
            }
        }
        let polls_on =
            self.operation.node().is_some_and(|node| node.tasks.drive(&node, &mut self.wait));
        // It may have ended before the waker was there, or just now.
        if let Some(outcome) = self.taken() {
            return Poll::Ready(outcome);
        }
        pending(polls_on, context)
    }
}

impl<T: Outcome> IntoFuture for Operation<T> {
    type Output = Result<T>;
    type IntoFuture = OperationFuture<T>;

    fn into_future(self) -> OperationFuture<T> {
        OperationFuture { operation: self, task: None, wait: TaskWait::New }
    }
}
