//! Messages that this node has received.

use crate::interpreter::buffer::{View, show};
use oikaze::message::Class;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::c_int;

/// Description of a message that a posted receive has got (`job.post_receive`), or that is the next
/// to be received (`job.probe`).
#[pyclass(module = "oikaze", frozen, get_all)]
pub struct Received {
    /// Rank of the sender.
    source: u32,
    /// Tag that the sender chose.
    tag: u64,
    /// Length of the message in bytes.
    length: u64,
}

impl Received {
    /// Makes the object of a description.
    pub fn new(oikaze::message::Received { from, tag, len }: oikaze::message::Received) -> Self {
        Self { source: from, tag, length: len }
    }
}

#[pymethods]
impl Received {
    fn __repr__(&self) -> String {
        let Self { source, tag, length } = self;
        format!("<oikaze.Received of {length} bytes from {source}, tag {tag}>")
    }
}

/// A message that this node has received.
///
/// `message.data` copies the content into `bytes`. The message itself is a read-only buffer of the
/// content, so `memoryview(message)` and `numpy.frombuffer(message, dtype)` need no copy.
#[pyclass(module = "oikaze", frozen)]
pub struct Message {
    message: oikaze::message::Message,
    /// Rank of the sender.
    #[pyo3(get)]
    source: u32,
    /// Number that the sender chose.
    #[pyo3(get)]
    tag: u64,
}

impl Message {
    /// Makes the object of a message.
    pub fn new(message: oikaze::message::Message) -> Self {
        Self { source: message.from(), tag: message.tag(), message }
    }
}

#[pymethods]
impl Message {
    /// Class of the message: `"ordered"`, `"unordered"` or `"sync"`.
    #[getter]
    fn message_class(&self) -> &'static str {
        match self.message.class() {
            Class::Ordered => "ordered",
            Class::Unordered => "unordered",
            Class::Sync => "sync",
        }
    }

    /// Content, as `bytes`.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.message.bytes())
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        self.data(py)
    }

    fn __len__(&self) -> usize {
        self.message.bytes().len()
    }

    fn __repr__(&self) -> String {
        let (source, tag, len) = (self.source, self.tag, self.__len__());
        format!("<oikaze.Message of {len} bytes from {source}, tag {tag}>")
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: View, flags: c_int) -> PyResult<()> {
        let bytes = slf.get().message.bytes();
        let at = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: the message owns its bytes, at one address, and is frozen. The view is read-only.
        unsafe { show(view, flags, slf.into_any(), at, false) }
    }
}
