//! Memory of this node.

use crate::interpreter::buffer::{Loan, Memory, View, show};
use crate::interpreter::error::{OrRaise, exception, invalid};
use crate::interpreter::finalization::{attached, call, detached};
use crate::interpreter::number::{Object, number, optional, word};
use crate::job::cell::{JobCell, lock};
use crate::memory::arrival::Arrivals;
use crate::operation::bytes;
use crate::wait::{OrOfJob, limit_of, wait};
use oikaze::Error;
use oikaze::ffi::{AtomicOp, Change, Width};
use oikaze::memory::{LocalRegion, Region as Allocated, RegionSlice, Rights};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard};

/// Returns the rights that these bits are.
pub fn rights_of(object: Object, operation: &str) -> PyResult<Rights> {
    let bits = number(object, operation, "rights")?;
    if Rights::ALL.contains(Rights(bits)) {
        return Ok(Rights(bits));
    }
    let cause = format!("{bits} are not rights");
    Err(invalid(object.py(), operation, &cause, "combine members of oikaze.Rights"))
}

/// Returns the memory of an object as source or destination, and what keeps it. A region of this
/// node is registered already.
pub fn lend(
    cell: &JobCell,
    job: &oikaze::Job,
    object: Object,
    writable: bool,
    operation: &str,
) -> PyResult<(RegionSlice, Option<Loan>)> {
    if let Ok(region) = object.cast::<Region>() {
        return Ok((region.get().all(object.py())?, None));
    }
    let memory = match writable {
        true => Memory::writable(object, operation)?,
        false => Memory::readable(object, operation)?,
    };
    cell.lend(object.py(), job, memory, writable)
}

/// Returns the number of bytes that an object asks for, unless it has memory of its own. An array
/// of one integer without axes converts to a number, too, but its elements can be set.
fn length_of(object: Object) -> PyResult<Option<usize>> {
    let is_number = object.is_instance_of::<PyInt>()
        || (object.hasattr("__index__")? && !object.hasattr("__setitem__")?);
    if is_number { number(object, "registering memory", "memory").map(Some) } else { Ok(None) }
}

/// Memory of this node that operations may use, and that peers may reach if it is published.
///
/// The region is a writable buffer: `memoryview(region)` and `numpy.frombuffer(region, dtype)` show
/// its bytes without a copy. Peers may change them at any time. A region ends with its last
/// reference or with `close`; as a context manager it closes at the end.
#[pyclass(module = "oikaze", frozen, weakref)]
pub struct Region {
    job: Arc<JobCell>,
    /// The memory, which stays mapped while this object lives. `None` for memory of another object.
    memory: Option<Allocated>,
    state: Mutex<State>,
}

struct State {
    /// `None` once the region is closed.
    registered: Option<LocalRegion>,
    loan: Option<Loan>,
}

impl Region {
    /// Makes a region of a number of bytes, or of the buffer of an object.
    pub fn make(
        job: &Arc<JobCell>,
        memory: Object,
        register: impl FnOnce(Allocated) -> oikaze::Result<LocalRegion>,
    ) -> PyResult<Self> {
        let py = memory.py();
        job.release_ended();
        let (memory, loan, registered) = if let Some(len) = length_of(memory)? {
            let memory = Allocated::shared(len).or_raise(py)?;
            let registered = register(memory.clone()).or_raise(py)?;
            (Some(memory), None, Some(registered))
        } else {
            let lent = Memory::writable(memory, "registering memory")?;
            let loan = Loan::with(py, lent, true, register)?;
            let registered = loan.registered().cloned();
            (None, Some(loan), registered)
        };
        if let Some(registered) = &registered {
            job.add_region(registered);
        }
        let state = Mutex::new(State { registered, loan });
        Ok(Self { job: Arc::clone(job), memory, state })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the registered region.
    pub fn registered(&self, py: Python<'_>) -> PyResult<LocalRegion> {
        let closed = || {
            let why = "it is closed; keep it open while it is used, or make another one";
            exception(py, &Error::invalid("using a region", why))
        };
        self.state().registered.clone().ok_or_else(closed)
    }

    /// Returns all of the region, as source or destination of an operation.
    pub fn all(&self, py: Python<'_>) -> PyResult<RegionSlice> {
        Ok(self.registered(py)?.all())
    }

    /// Takes the region out of the table of the job. Returns what is left to end.
    fn retire(&self) -> (Option<LocalRegion>, Option<Loan>) {
        let (registered, loan) = {
            let mut state = self.state();
            (state.registered.take(), state.loan.take())
        };
        if let Some(range) = registered.as_ref().and_then(|region| region.addresses()) {
            self.job.remove_region(range.start);
        }
        (registered, loan)
    }
}

/// A condition on a word, for which `Region.wait_until` waits.
enum Condition {
    AtLeast(u64),
    Equal(u64),
    Function(Py<PyAny>, Arc<Mutex<Option<PyErr>>>),
}

impl Condition {
    fn holds(&self, word: u64) -> bool {
        match self {
            Self::AtLeast(least) => word >= *least,
            Self::Equal(value) => word == *value,
            Self::Function(function, failed) => {
                let answer = attached(|py| call(function.bind(py), (word,))?.is_truthy());
                // An exception of the function ends the wait, and is raised there.
                answer.unwrap_or_else(|error| {
                    *lock(failed) = Some(error);
                    true
                })
            }
        }
    }
}

#[pymethods]
impl Region {
    fn __len__(&self) -> usize {
        self.state().registered.as_ref().map_or(0, |region| region.len())
    }

    /// Rights of peers, as bits of `oikaze.Rights`.
    #[getter]
    fn rights(&self, py: Python<'_>) -> PyResult<u8> {
        Ok(self.registered(py)?.rights().0)
    }

    /// Whether the region is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.state().registered.is_none()
    }

    /// Key of the region, by which an `Arrival` names it.
    #[getter]
    fn key(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.registered(py)?.key())
    }

    /// Returns the queue of puts with notice to this region alone.
    ///
    /// An entry that is taken here is no longer in `job.arrivals()`.
    fn arrivals(&self, py: Python<'_>) -> PyResult<Arrivals> {
        Ok(Arrivals::new(&self.job, self.registered(py)?.arrivals()))
    }

    /// Id of the region as 24 bytes, by which a peer finds it: `job.remote(id)`.
    #[getter]
    fn remote_id<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.registered(py)?.remote_id().to_bytes()))
    }

    /// Changes the rights of peers to the whole region.
    fn set_rights(&self, py: Python<'_>, rights: Object) -> PyResult<()> {
        let (region, rights) = (self.registered(py)?, rights_of(rights, "set_rights")?);
        wait(py, || region.set_rights(rights))
    }

    /// Changes the rights of peers to the bytes `start` to `end`, whole pages of 4096 bytes.
    fn protect(&self, py: Python<'_>, start: Object, end: Object, rights: Object) -> PyResult<()> {
        let start: u64 = number(start, "protect", "start")?;
        let end: u64 = number(end, "protect", "end")?;
        let (region, rights) = (self.registered(py)?, rights_of(rights, "protect")?);
        wait(py, || region.protect(start..end, rights))
    }

    /// Copies `length` bytes out, from `offset` on.
    fn read(&self, py: Python<'_>, offset: Object, length: Object) -> PyResult<Py<PyAny>> {
        let offset: u64 = number(offset, "read", "offset")?;
        let length: usize = number(length, "read", "length")?;
        let region = self.registered(py)?;
        let end = offset.checked_add(length as u64);
        if end.is_none_or(|end| end > region.len() as u64) {
            let why = format!(
                "{length} bytes at offset {offset} lie outside of {} bytes; read fewer",
                region.len()
            );
            return Err(exception(py, &Error::invalid("reading a region", why)));
        }
        let mut copy = vec![0; length];
        region.read(offset, &mut copy).or_raise(py)?;
        Ok(bytes(py, &copy))
    }

    /// Copies the bytes of a buffer in, from `offset` on.
    fn write(&self, py: Python<'_>, offset: Object, data: Object) -> PyResult<()> {
        let offset: u64 = number(offset, "write", "offset")?;
        let region = self.registered(py)?;
        let memory = Memory::readable(data, "writing a region")?;
        memory.with_bytes(py, |bytes| region.write(offset, bytes)).or_raise(py)
    }

    /// Reads the 64-bit word at `offset` atomically.
    fn load(&self, py: Python<'_>, offset: Object) -> PyResult<u64> {
        let offset: u64 = number(offset, "load", "offset")?;
        self.registered(py)?.load_u64(offset).or_raise(py)
    }

    /// Stores the 64-bit word at `offset` atomically.
    fn store(&self, py: Python<'_>, offset: Object, value: Object) -> PyResult<()> {
        let offset: u64 = number(offset, "store", "offset")?;
        let value: u64 = word(value, "store", "value")?;
        self.registered(py)?.store_u64(offset, value).or_raise(py)
    }

    /// Adds to the 64-bit word at `offset` atomically, and returns the previous value.
    fn fetch_add(&self, py: Python<'_>, offset: Object, add: Object) -> PyResult<u64> {
        let offset: u64 = number(offset, "fetch_add", "offset")?;
        let add: u64 = word(add, "fetch_add", "add")?;
        let op = AtomicOp::new(Width::W64, Change::Add(add));
        self.registered(py)?.atomic(offset, op).or_raise(py)
    }

    /// Waits until the 64-bit word at `offset` is at least `at_least`, or equals `equal`, or
    /// satisfies the function `condition`. Returns the word.
    ///
    /// `source` is the rank of the peer that is to change it, whose loss ends the wait. `timeout`
    /// is in seconds.
    #[pyo3(signature = (
        offset, *, at_least = None, equal = None, condition = None, source = None,
        timeout = None
    ))]
    #[allow(clippy::too_many_arguments)] // Keywords of a Python function.
    fn wait_until(
        &self,
        py: Python<'_>,
        offset: Object,
        at_least: Option<Object>,
        equal: Option<Object>,
        condition: Option<Py<PyAny>>,
        source: Option<Object>,
        timeout: Option<Object>,
    ) -> PyResult<u64> {
        let offset: u64 = number(offset, "wait_until", "offset")?;
        let at_least: Option<u64> = optional(at_least, "wait_until", "at_least")?;
        let equal: Option<u64> = optional(equal, "wait_until", "equal")?;
        let source: Option<u32> = optional(source, "wait_until", "source")?;
        let timeout = limit_of(timeout, "wait_until")?;
        let region = self.registered(py)?;
        let failed = Arc::new(Mutex::new(None));
        let condition = match (at_least, equal, condition) {
            (Some(least), None, None) => Condition::AtLeast(least),
            (None, Some(value), None) => Condition::Equal(value),
            (None, None, Some(function)) => Condition::Function(function, Arc::clone(&failed)),
            _ => {
                let cause = "no condition, or more than one, is given";
                let remedy = "give one of the keywords at_least, equal and condition";
                return Err(invalid(py, "wait_until", cause, remedy));
            }
        };
        let holds = |word| condition.holds(word);
        let word = wait(py, || match (source, timeout.choose(Some, || None)) {
            (None, None) => region.wait_until(offset, holds),
            (None, Some(limit)) => region.wait_until_for(offset, limit, holds),
            (Some(peer), None) => region.wait_until_by(peer, offset, holds),
            (Some(peer), Some(limit)) => region.wait_until_by_for(peer, offset, limit, holds),
        })?;
        match lock(&failed).take() {
            Some(error) => Err(error),
            None => Ok(word),
        }
    }

    /// Ends the registration: waits for operations under way, and takes the memory from peers.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let (registered, loan) = self.retire();
        let Some(registered) = registered else { return Ok(()) };
        let closed = wait(py, || registered.deregister().map(drop));
        // The memory of another object goes back to it now.
        drop((registered, loan));
        closed
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Object) -> PyResult<()> {
        self.close(py)
    }

    /// Returns a view of some of the bytes: `region[64:128]`.
    fn __getitem__<'py>(
        slf: &Bound<'py, Self>,
        index: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        pyo3::types::PyMemoryView::from(slf.as_any())?.get_item(index)
    }

    /// # Safety
    /// Called by the interpreter.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: View, flags: c_int) -> PyResult<()> {
        let py = slf.py();
        let len = slf.get().registered(py)?.len();
        let Some(memory) = &slf.get().memory else {
            let why = "its memory belongs to another object; use that object";
            return Err(exception(py, &Error::invalid("viewing a region", why)));
        };
        let at = (memory.view_ptr(), len);
        // SAFETY: this object holds the memory, which stays mapped at its address, closed or not.
        unsafe { show(view, flags, slf.into_any(), at, true) }
    }

    fn __repr__(&self) -> String {
        match &self.state().registered {
            Some(region) => format!("<oikaze.Region of {} bytes>", region.len()),
            None => "<oikaze.Region, closed>".to_owned(),
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let (registered, loan) = self.retire();
        if registered.is_none() && loan.is_none() {
            return;
        }
        // Waiting for operations of peers takes no lock of the interpreter.
        Python::try_attach(|py| {
            if loan.is_some() {
                // Lent memory must be out of use before its object may free it.
                let _ = detached(py, || registered.as_ref().map(LocalRegion::deregister));
            }
            drop(registered);
            drop(loan);
        });
    }
}
