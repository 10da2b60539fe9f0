//! Memory of Python objects, lent to operations, and memory of the library, shown to Python.
//!
//! All unsafe code of the bindings is in this module. Two contracts hold it together:
//!
//! - A Python buffer (PEP 3118) that is held keeps its memory at its address, until it is released.
//!   A [`Loan`] holds the buffer until the library has taken the memory back out of use.
//! - A view that Python gets of the library's memory holds a reference to the object that owns it.

use crate::interpreter::error::{OrRaise, invalid, wrong_type};
use crate::interpreter::finalization::{Arguments, call};
use crate::interpreter::number::Object;
use oikaze::Job;
use oikaze::memory::{LocalRegion, Region};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use std::ffi::c_int;
use std::ptr::NonNull;

/// Contiguous memory of a Python object, which stays where it is while this value lives.
pub struct Memory {
    buffer: PyUntypedBuffer,
}

impl Memory {
    /// Gets the memory of an object for reading: of its buffer, or by DLPack.
    pub fn readable(object: Object, operation: &str) -> PyResult<Self> {
        let buffer = buffer_of(object, false, operation)?;
        let py = object.py();
        if !buffer.is_c_contiguous() {
            let remedy = "pass a contiguous copy, such as numpy.ascontiguousarray(array)";
            return Err(invalid(py, operation, "the buffer is not contiguous", remedy));
        }
        Ok(Self { buffer })
    }

    /// Gets the memory of an object for writing.
    pub fn writable(object: Object, operation: &str) -> PyResult<Self> {
        let py = object.py();
        let buffer = buffer_of(object, true, operation)?;
        if buffer.readonly() {
            let remedy = "pass memory that may be written, such as a bytearray or numpy.empty(n)";
            return Err(invalid(py, operation, "the buffer is read-only", remedy));
        }
        if !buffer.is_c_contiguous() {
            let remedy = "pass a contiguous array, and copy from it into yours afterwards";
            return Err(invalid(py, operation, "the buffer is not contiguous", remedy));
        }
        Ok(Self { buffer })
    }

    /// Gets the memory of an object whose rows may have gaps between them.
    pub fn strided(object: Object, writable: bool, operation: &str) -> PyResult<Self> {
        let py = object.py();
        let buffer = buffer_of(object, writable, operation)?;
        if writable && buffer.readonly() {
            let remedy = "pass memory that may be written, such as numpy.empty(shape)";
            return Err(invalid(py, operation, "the buffer is read-only", remedy));
        }
        if buffer.suboffsets().is_some() {
            let remedy = "pass a NumPy array";
            return Err(invalid(py, operation, "the buffer is one of pointers", remedy));
        }
        Ok(Self { buffer })
    }

    /// Returns the number of elements along each axis.
    pub fn shape(&self) -> &[usize] {
        self.buffer.shape()
    }

    /// Returns the distance in bytes along each axis.
    pub fn strides(&self) -> &[isize] {
        self.buffer.strides()
    }

    /// Returns `true` if the elements follow one another without gaps.
    pub fn is_in_one_piece(&self) -> bool {
        self.buffer.is_c_contiguous()
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.buffer.len_bytes()
    }

    /// Returns the size of an element in bytes.
    pub fn item_size(&self) -> usize {
        self.buffer.item_size()
    }

    /// Returns the code of the elements' type, as the module `struct` writes it.
    pub fn format(&self) -> &std::ffi::CStr {
        self.buffer.format()
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> usize {
        self.buffer.buf_ptr().addr()
    }

    /// Calls `look` with the bytes. Python code of other threads does not run meanwhile, as the
    /// caller holds the interpreter's lock. So `look` must do no more than copy the bytes.
    pub fn with_bytes<R>(&self, _: Python<'_>, look: impl FnOnce(&[u8]) -> R) -> R {
        let Some(at) = NonNull::new(self.buffer.buf_ptr().cast::<u8>()) else {
            return look(&[]);
        };
        // SAFETY: the held buffer is contiguous and has `len` bytes at `at`. The slice lives only
        // while `look` copies it, and bytes have no invalid values. A writer without the lock (a
        // peer, another thread) leaves some mixture in the copy.
        look(unsafe { std::slice::from_raw_parts(at.as_ptr(), self.len()) })
    }

    /// Copies bytes to the front of the memory, which was got by [`Memory::writable`].
    pub fn fill(&self, _: Python<'_>, bytes: &[u8]) {
        let len = bytes.len().min(self.len());
        if self.buffer.readonly() || len == 0 {
            return;
        }
        // SAFETY: the held buffer is writable, contiguous and has at least `len` bytes. `bytes` is
        // memory of the library, so the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.buffer.buf_ptr().cast(), len) }
    }

    /// Returns the length in bytes from the first element to the end of the last one. Strides are
    /// positive.
    pub fn span(&self) -> usize {
        if self.buffer.is_c_contiguous() {
            return self.len();
        }
        let axes = self.shape().iter().zip(self.strides());
        axes.fold(self.item_size(), |span, (count, stride)| {
            span.saturating_add(count.saturating_sub(1).saturating_mul(stride.unsigned_abs()))
        })
    }

    /// Lends the memory to the library, as a region.
    fn lend(&self, writable: bool) -> Region {
        let at = NonNull::new(self.buffer.buf_ptr().cast::<u8>()).unwrap_or(NonNull::dangling());
        // SAFETY: the buffer is held by the caller's `Loan` until `end_loan` has returned, so its
        // bytes stay mapped, and writable if it is not read-only. Gaps between rows lie between
        // elements of one allocation, and the library touches rows only. Rust makes no references
        // to the bytes, except for the time of a copy.
        unsafe { Region::lent(at, self.span(), writable && !self.buffer.readonly()) }
    }
}

/// Calls `look` with the bytes of an object, which must do no more than copy them. Small `bytes`
/// are what programs send most, and take no buffer.
pub fn with_bytes_of<R>(
    object: Object,
    operation: &str,
    look: impl FnOnce(&[u8]) -> R,
) -> PyResult<R> {
    match object.cast_exact::<PyBytes>() {
        Ok(bytes) => Ok(look(bytes.as_bytes())),
        Err(_) => Ok(Memory::readable(object, operation)?.with_bytes(object.py(), look)),
    }
}

/// Module that says what arrays mean beyond their bytes.
const VALUES: &str = "oikaze._values";

/// Calls a function of the module that says what arrays mean.
fn of_values<'py>(
    py: Python<'py>,
    name: &str,
    arguments: impl Arguments<'py>,
) -> PyResult<Bound<'py, PyAny>> {
    call(&py.import(VALUES)?.getattr(name)?, arguments)
}

/// Refuses an array whose class gives its bytes another meaning, such as a masked one.
fn check_class(object: Object, operation: &str) -> PyResult<()> {
    static ARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let py = object.py();
    let import = || Ok::<_, PyErr>(py.import("numpy")?.getattr("ndarray")?.unbind());
    let array = ARRAY.get_or_try_init(py, import)?.bind(py);
    if !object.get_type().is(array) && object.is_instance(array)? {
        of_values(py, "check_bytes", (object, operation))?;
    }
    Ok(())
}

/// Returns the buffer of an object, if need be by DLPack, for writing if so said.
fn buffer_of(object: Object, writable: bool, operation: &str) -> PyResult<PyUntypedBuffer> {
    let py = object.py();
    check_class(object, operation)?;
    match PyUntypedBuffer::get(object) {
        Ok(buffer) if buffer.format().to_bytes().contains(&b'O') => {
            let cause = "its elements are Python objects, whose addresses mean nothing elsewhere";
            Err(invalid(py, operation, cause, "send numbers, or pickle.dumps(object)"))
        }
        Ok(buffer) => Ok(buffer),
        // A buffer without axes has no shape, and one of ctypes has no strides.
        Err(error)
            if error.is_instance_of::<PyBufferError>(py)
                || object.hasattr("__array_interface__")? =>
        {
            let made = of_values(py, "with_axes", (object, operation));
            PyUntypedBuffer::get(&made?)
        }
        Err(_) if object.hasattr("__dlpack__")? => {
            let made = of_values(py, "of_dlpack", (object, writable, operation));
            PyUntypedBuffer::get(&made?)
        }
        Err(_) => {
            let kind = object.get_type().name()?;
            let cause = format!("an object of type {kind} has no buffer");
            let remedy = "pass bytes, a bytearray, a memoryview, a NumPy array or a tensor";
            Err(wrong_type(py, operation, &cause, remedy))
        }
    }
}

/// Memory of a Python object that the library uses, until this value is dropped.
pub struct Loan {
    registered: Option<LocalRegion>,
    region: Region,
    memory: Option<Memory>,
    /// Other loans, which end with this one.
    others: Vec<Loan>,
}

impl Loan {
    /// Lends memory to operations of this node.
    pub fn new(py: Python<'_>, job: &Job, memory: Memory, writable: bool) -> PyResult<Self> {
        Self::with(py, memory, writable, |region| job.register(region))
    }

    /// Lends memory, and registers it by a function of the library.
    pub fn with(
        py: Python<'_>,
        memory: Memory,
        writable: bool,
        register: impl FnOnce(Region) -> oikaze::Result<LocalRegion>,
    ) -> PyResult<Self> {
        let region = memory.lend(writable);
        // From here on, dropping the loan ends it.
        let (memory, others) = (Some(memory), Vec::new());
        let mut loan = Self { registered: None, region, memory, others };
        loan.registered = Some(register(loan.region.clone()).or_raise(py)?);
        Ok(loan)
    }

    /// Joins loans, which then end together.
    pub fn join(loans: Vec<Self>) -> Option<Self> {
        let mut loans = loans.into_iter();
        let mut first = loans.next()?;
        first.others.extend(loans);
        Some(first)
    }

    /// Returns the registered region.
    pub fn registered(&self) -> Option<&LocalRegion> {
        self.registered.as_ref()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.registered = None;
        self.region.end_loan();
        // The buffer is released last.
        self.memory = None;
    }
}

/// Where the interpreter wants the description of a buffer.
pub type View = *mut ffi::Py_buffer;

/// Shows memory to Python as a buffer of bytes. `owner` keeps the memory at its address for as long
/// as Python has the view.
///
/// # Safety
/// `view` comes from the interpreter's call of `__getbuffer__`. The `len` bytes at `at` stay
/// mapped, and writable if so said, for as long as `owner` lives.
pub unsafe fn show(
    view: View,
    flags: c_int,
    owner: Bound<'_, PyAny>,
    (at, len): (*mut u8, usize),
    writable: bool,
) -> PyResult<()> {
    let py = owner.py();
    let len = ffi::Py_ssize_t::try_from(len)
        .map_err(|_| PyBufferError::new_err("the memory is too long for Python"))?;
    let readonly = c_int::from(!writable);
    // SAFETY: the caller vouches for the view and the memory. The function takes a reference of its
    // own to the owner, and checks `flags` against `readonly`.
    let failed =
        unsafe { ffi::PyBuffer_FillInfo(view, owner.as_ptr(), at.cast(), len, readonly, flags) };
    if failed == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}
