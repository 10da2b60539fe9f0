//! Another node of the job.

use crate::interpreter::buffer::with_bytes_of;
use crate::interpreter::number::{Named, Object, optional, text};
use crate::job::cell::JobCell;
use crate::memory::fifo::RemoteFifo;
use crate::memory::remote::RemoteRegion;
use crate::operation::{Operation, Outcome};
use crate::wait::{OrOfJob, limit_of, wait};
use oikaze::message::Class;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

/// Another node of the job, or this node; `job.peer(rank)` makes one.
#[pyclass(module = "oikaze", frozen)]
pub struct Peer {
    job: Arc<JobCell>,
    peer: oikaze::Peer,
}

impl Peer {
    /// Makes the object of a peer.
    pub fn new(job: &Arc<JobCell>, peer: oikaze::Peer) -> Self {
        Self { job: Arc::clone(job), peer }
    }
}

/// Class of a message, from its name.
fn class_of(name: Option<Object>) -> PyResult<Class> {
    match name.map(|name| text(name, "send", "message_class")).transpose()? {
        None | Some("ordered") => Ok(Class::Ordered),
        Some("unordered") => Ok(Class::Unordered),
        Some("sync") => Ok(Class::Sync),
        Some(other) => {
            let text = format!(
                "message_class={other:?} is not known; give 'ordered', 'unordered' or 'sync'"
            );
            Err(PyValueError::new_err(text))
        }
    }
}

#[pymethods]
impl Peer {
    /// Rank of the peer.
    #[getter]
    fn rank(&self) -> u32 {
        self.peer.rank()
    }

    /// Address to which the peer's datagrams go, or `None` for this node itself.
    #[getter]
    fn address(&self) -> Option<String> {
        self.peer.address().map(|address| address.to_string())
    }

    /// Sends a message, and returns the `Operation`. The bytes are copied before the call returns.
    ///
    /// `data` is any contiguous buffer. `tag` is a number that the receiver sees. `message_class`
    /// is `"ordered"`, `"unordered"` or `"sync"`, whose wait ends when the peer has accepted it.
    #[pyo3(signature = (data, tag = None, message_class = None))]
    fn send(
        &self,
        py: Python<'_>,
        data: Object,
        tag: Option<Object>,
        message_class: Option<Object>,
    ) -> PyResult<Operation> {
        let tag: u64 = optional(tag, "send", "tag")?.unwrap_or(0);
        self.job.get(py)?;
        let class = class_of(message_class).named(py, "send")?;
        let send = |bytes: &[u8]| self.peer.send(class, tag, bytes);
        let sent = with_bytes_of(data, "sending a message", send)?;
        Ok(Operation::new(&self.job, sent, Outcome::Nothing, None))
    }

    /// Returns the region that this peer has published under a name. Waits until it is published.
    ///
    /// `timeout` is in seconds; without one, the limit of the job holds, or 10 s.
    #[pyo3(signature = (name, timeout = None))]
    fn region(&self, name: Object, timeout: Option<Object>) -> PyResult<RemoteRegion> {
        let py = name.py();
        let name = text(name, "region", "name")?;
        let timeout = limit_of(timeout, "region")?;
        self.job.get(py)?;
        let within = |limit| self.peer.region_for(name, limit);
        let region = wait(py, || timeout.choose(within, || self.peer.region(name)))?;
        Ok(RemoteRegion::new(&self.job, region))
    }

    /// Returns the FIFO that this peer has made under a name. Waits until it is made.
    #[pyo3(signature = (name, timeout = None))]
    fn fifo(&self, py: Python<'_>, name: Object, timeout: Option<Object>) -> PyResult<RemoteFifo> {
        let name = text(name, "fifo", "name")?;
        let timeout = limit_of(timeout, "fifo")?;
        self.job.get(py)?;
        let within = |limit| self.peer.fifo_for(name, limit);
        let fifo = wait(py, || timeout.choose(within, || self.peer.fifo(name)))?;
        Ok(RemoteFifo::new(&self.job, fifo))
    }

    /// Orders later operations to this peer after earlier ones. Returns at once.
    fn fence(&self, py: Python<'_>) -> PyResult<()> {
        self.job.get(py)?;
        self.peer.fence();
        Ok(())
    }

    /// Waits until all operations and messages to this peer have ended.
    #[pyo3(signature = (timeout = None))]
    fn flush(&self, py: Python<'_>, timeout: Option<Object>) -> PyResult<()> {
        let timeout = limit_of(timeout, "flush")?;
        self.job.get(py)?;
        wait(py, || timeout.choose(|limit| self.peer.flush_for(limit), || self.peer.flush()))
    }

    fn __repr__(&self) -> String {
        format!("<oikaze.Peer {}>", self.peer.rank())
    }
}
