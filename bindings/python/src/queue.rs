//! Completion queues, as Python objects.

use crate::interpreter::error::exception;
use crate::interpreter::number::{Object, optional};
use crate::wait::{limit_of, taken};
use oikaze::completion::Completed;
use pyo3::prelude::*;

/// Queue in which operations report their end; `job.completion_queue()` makes one.
#[pyclass(module = "oikaze", frozen)]
pub struct CompletionQueue {
    queue: oikaze::completion::CompletionQueue,
}

/// An operation that has ended: its context, its value, and its exception or `None`.
type Ended = (u64, u64, Option<Py<PyAny>>);

impl CompletionQueue {
    /// Makes the object of a queue.
    pub fn new(queue: oikaze::completion::CompletionQueue) -> Self {
        Self { queue }
    }

    /// Returns the queue of the library.
    pub fn inner(&self) -> &oikaze::completion::CompletionQueue {
        &self.queue
    }
}

fn told(py: Python<'_>, ended: Vec<Completed>) -> Vec<Ended> {
    let tell = |Completed { context, outcome }| match outcome {
        Ok(bits) => (context, bits, None),
        Err(error) => (context, 0, Some(exception(py, &error).into_value(py).into_any())),
    };
    ended.into_iter().map(tell).collect()
}

#[pymethods]
impl CompletionQueue {
    /// Takes all operations that have ended: a list of `(context, value, exception)`.
    ///
    /// `value` is the previous value of a word for an atomic that fetches, as unsigned bits,
    /// otherwise 0. `exception` is `None` if the operation succeeded.
    fn poll(&self, py: Python<'_>) -> Vec<Ended> {
        let mut ended = Vec::new();
        self.queue.poll(&mut ended);
        told(py, ended)
    }

    /// Waits until at least `at_least` operations have ended, and takes all as `poll` does.
    ///
    /// `timeout` is in seconds. After a `TimeoutError` the operations stay in the queue.
    #[pyo3(signature = (at_least = None, timeout = None))]
    fn wait(
        &self,
        py: Python<'_>,
        at_least: Option<Object>,
        timeout: Option<Object>,
    ) -> PyResult<Vec<Ended>> {
        let at_least: usize = optional(at_least, "wait", "at_least")?.unwrap_or(1);
        let timeout = limit_of(timeout, "wait")?;
        let take = || {
            let mut ended = Vec::new();
            Ok(self.queue.poll_if(at_least, &mut ended).then(|| told(py, ended)))
        };
        taken(py, timeout, take, |limit| self.queue.wait_ready(at_least, limit))
    }

    fn __len__(&self) -> usize {
        self.queue.len()
    }

    fn __repr__(&self) -> String {
        format!("<oikaze.CompletionQueue, {} operations have ended>", self.queue.len())
    }
}
