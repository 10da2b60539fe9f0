//! Messages that this node has received.

use crate::interpreter::buffer::show;
use oikaze::message::Class;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::c_int;

/// Description of a message that a posted receive has got (`job.post_receive`), or that is the next
/// to be received (`job.probe`).
#[pyclass(module = "oikaze", frozen)]
pub struct Received {
    message: oikaze::message::Received,
}

impl Received {
    /// Makes the object of a description.
    pub fn new(message: oikaze::message::Received) -> Self {
        Self { message }
    }
}

#[pymethods]
impl Received {
    /// Rank of the sender.
    #[getter]
    fn source(&self) -> u32 {
        self.message.from
    }

    /// Tag that the sender chose.
    #[getter]
    fn tag(&self) -> u64 {
        self.message.tag
    }

    /// Length of the message in bytes.
    #[getter]
    fn length(&self) -> u64 {
        self.message.len
    }

    fn __repr__(&self) -> String {
        let oikaze::message::Received { from, tag, len } = self.message;
        format!("<oikaze.Received of {len} bytes from {from}, tag {tag}>")
    }
}

/// A message that this node has received.
///
/// `message.data` copies the content into `bytes`. The message itself is a read-only buffer of the
/// content, so `memoryview(message)` and `numpy.frombuffer(message, dtype)` need no copy.
#[pyclass(module = "oikaze", frozen)]
pub struct Message {
    message: oikaze::message::Message,
}

impl Message {
    /// Makes the object of a message.
    pub fn new(message: oikaze::message::Message) -> Self {
        Self { message }
    }
}

#[pymethods]
impl Message {
    /// Rank of the sender.
    #[getter]
    fn source(&self) -> u32 {
        self.message.from()
    }

    /// Number that the sender chose.
    #[getter]
    fn tag(&self) -> u64 {
        self.message.tag()
    }

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
        let (from, tag, len) =
            (self.message.from(), self.message.tag(), self.message.bytes().len());
        format!("<oikaze.Message of {len} bytes from {from}, tag {tag}>")
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = slf.get().message.bytes();
        let at = (bytes.as_ptr().cast_mut(), bytes.len());
        // SAFETY: the message owns its bytes, at one address, and is frozen. The view is read-only.
        unsafe { show(view, flags, slf.into_any(), at, false) }
    }
}
