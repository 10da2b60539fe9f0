//! FIFOs, into which peers push elements.

use crate::interpreter::buffer::with_bytes_of;
use crate::interpreter::number::Object;
use crate::job::cell::JobCell;
use crate::operation::{Operation, Outcome, bytes};
use crate::wait::{OrOfJob, limit_of, taken, wait};
use pyo3::prelude::*;
use std::sync::Arc;

/// A FIFO of this node; `job.fifo(name, slots, longest)` makes one.
#[pyclass(module = "oikaze", frozen, weakref)]
pub struct Fifo {
    fifo: oikaze::message::Fifo,
    /// Number of elements for which the FIFO has room.
    #[pyo3(get)]
    slots: u64,
    /// Maximum length of an element in bytes.
    #[pyo3(get)]
    longest: u64,
}

impl Fifo {
    /// Makes the object of a FIFO.
    pub fn new(fifo: oikaze::message::Fifo) -> Self {
        Self { slots: fifo.slots(), longest: fifo.longest(), fifo }
    }
}

#[pymethods]
impl Fifo {
    fn __repr__(&self) -> String {
        format!("<oikaze.Fifo of {} slots of {} bytes>", self.slots, self.longest)
    }

    /// Waits for an element and returns it, as `bytes`. `timeout` is in seconds.
    #[pyo3(signature = (timeout = None))]
    fn pop(&self, py: Python<'_>, timeout: Option<Object>) -> PyResult<Py<PyAny>> {
        let timeout = limit_of(timeout, "pop")?;
        taken(py, timeout, || self.try_pop(py), |limit| self.fifo.wait_ready(limit))
    }

    /// Returns an element if there is one, otherwise `None`.
    fn try_pop(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let mut element = Vec::new();
        let found =
            crate::interpreter::error::OrRaise::or_raise(self.fifo.try_pop(&mut element), py)?;
        Ok(found.then(|| bytes(py, &element)))
    }
}

/// A FIFO of a peer; `peer.fifo(name)` finds one.
#[pyclass(module = "oikaze", frozen)]
pub struct RemoteFifo {
    job: Arc<JobCell>,
    fifo: oikaze::message::RemoteFifo,
}

impl RemoteFifo {
    /// Makes the object of a peer's FIFO.
    pub fn new(job: &Arc<JobCell>, fifo: oikaze::message::RemoteFifo) -> Self {
        Self { job: Arc::clone(job), fifo }
    }
}

#[pymethods]
impl RemoteFifo {
    /// Rank of the owner.
    #[getter]
    fn rank(&self) -> u32 {
        self.fifo.peer().rank()
    }

    fn __repr__(&self) -> String {
        format!("<oikaze.RemoteFifo at node {}>", self.fifo.peer().rank())
    }

    /// Pushes an element and waits until it is in the FIFO, while the FIFO is full, too.
    ///
    /// `timeout` is in seconds. Raises `FullError` if the FIFO was full for all of that time.
    #[pyo3(signature = (element, timeout = None))]
    fn push(&self, py: Python<'_>, element: Object, timeout: Option<Object>) -> PyResult<()> {
        let timeout = limit_of(timeout, "push")?;
        self.job.get(py)?;
        let element = with_bytes_of(element, "pushing an element", <[u8]>::to_vec)?;
        let within = |limit| self.fifo.push_for(&element, limit);
        wait(py, || timeout.choose(within, || self.fifo.push(&element)))
    }

    /// Begins to push an element, and returns the `Operation`. A full FIFO refuses the element.
    fn post(&self, py: Python<'_>, element: Object) -> PyResult<Operation> {
        self.job.get(py)?;
        let post = |element: &[u8]| self.fifo.post(element);
        let posted = with_bytes_of(element, "pushing an element", post)?;
        Ok(Operation::new(&self.job, posted, Outcome::Nothing, None))
    }
}
