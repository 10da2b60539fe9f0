//! Puts with notice, as their target learns of them.

use crate::interpreter::finalization::call;
use crate::interpreter::number::Object;
use crate::job::cell::JobCell;
use crate::wait::{limit_of, taken};
use pyo3::prelude::*;
use std::sync::Arc;

/// Queue of the puts with notice that have arrived; `job.arrivals()` and `region.arrivals()` make
/// one.
///
/// Each entry is taken once, by whoever asks first. An entry that is not taken costs its sender 128
/// bytes of the 16 MiB that unread messages and entries may cost. A sender without credit holds its
/// puts with notice, and its messages, back.
#[pyclass(module = "oikaze", frozen)]
pub struct Arrivals {
    job: Arc<JobCell>,
    arrivals: oikaze::memory::arrivals::Arrivals,
}

/// A put with notice that has arrived: all its bytes are in place and visible.
#[pyclass(module = "oikaze", frozen, get_all)]
pub struct Arrival {
    /// Rank of the node that put the bytes.
    source: u32,
    /// Tag that the sender chose.
    tag: u64,
    /// Key of the region, as `region.key`.
    key: u64,
    /// Offset of the bytes from the start of the region.
    offset: u64,
    /// Number of bytes.
    length: u64,
}

impl Arrivals {
    /// Makes the object of a queue.
    pub fn new(job: &Arc<JobCell>, arrivals: oikaze::memory::arrivals::Arrivals) -> Self {
        Self { job: Arc::clone(job), arrivals }
    }
}

#[pymethods]
impl Arrivals {
    /// Waits for an entry, takes it and returns it.
    ///
    /// `timeout` is in seconds; without one, the limit of the job holds. Raises `PeerLostError` if
    /// no put can come any more.
    #[pyo3(signature = (timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<Object>) -> PyResult<Arrival> {
        let timeout = limit_of(timeout, "next")?;
        self.job.get(py)?;
        taken(py, timeout, || self.try_next(py), |limit| self.arrivals.wait_ready(limit))
    }

    /// Takes the oldest entry and returns it, or returns `None` if there is none.
    fn try_next(&self, py: Python<'_>) -> PyResult<Option<Arrival>> {
        self.job.get(py)?;
        Ok(self.arrivals.try_next().map(|arrival| Arrival {
            source: arrival.from(),
            tag: arrival.tag(),
            key: arrival.key(),
            offset: arrival.offset(),
            length: arrival.len(),
        }))
    }

    /// Returns a coroutine that waits for an entry, takes it and returns it.
    fn next_async<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        call(&py.import("oikaze._aio")?.getattr("next_arrival")?, (slf,))
    }

    fn __len__(&self) -> usize {
        self.arrivals.len()
    }

    fn __repr__(&self) -> String {
        format!("<oikaze.Arrivals, {} entries>", self.arrivals.len())
    }

    /// The job of the queue's node, for `asyncio`.
    #[getter]
    fn _job(&self) -> usize {
        Arc::as_ptr(&self.job).addr()
    }
}

#[pymethods]
impl Arrival {
    fn __repr__(&self) -> String {
        let Self { source, tag, offset, length, .. } = self;
        format!("<oikaze.Arrival of {length} bytes at {offset} from {source}, tag {tag}>")
    }
}
