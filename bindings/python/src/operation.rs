//! Operations under way, as Python objects.

use crate::buffer::Loan;
use crate::error::{OrRaise, exception};
use crate::job::JobCell;
use crate::queue::CompletionQueue;
use crate::wait::{Timeout, wait};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is under way.
pub enum Work {
    /// An operation of the library, with the bits of its outcome.
    Bits(oikaze::completion::Operation<u64>),
}

/// What the program gets when the operation has ended.
pub enum Outcome {
    /// `None`.
    Nothing,
    /// The previous value of a word: of this many bits, signed or not.
    Word { bits: u32, signed: bool },
    /// This object, which the operation has filled.
    Object(Py<PyAny>),
}

/// An operation under way, such as a put, a get, an atomic, a message or a collective.
///
/// `operation.wait(timeout=None)` waits for its end and returns its result; `await operation` does
/// the same in a coroutine. Dropping the object does not end the operation, and memory that was
/// passed to it is kept until its end.
#[pyclass(module = "oikaze", frozen, weakref)]
pub struct Operation {
    job: Arc<JobCell>,
    work: Arc<Work>,
    state: Mutex<State>,
}

struct State {
    outcome: Outcome,
    loan: Option<Loan>,
    /// Function of the program that makes the result of the outcome.
    convert: Option<Py<PyAny>>,
    result: Option<Py<PyAny>>,
}

/// An operation whose Python object is gone, and its memory, which must outlive it.
pub struct Running {
    work: Arc<Work>,
    _loan: Loan,
}

impl Running {
    /// Returns `true` while the operation may still use the memory.
    pub fn is_running(&self) -> bool {
        !self.work.is_done()
    }
}

impl Work {
    fn is_done(&self) -> bool {
        match self {
            Self::Bits(operation) => operation.is_done(),
        }
    }

    fn wait(&self, timeout: Timeout) -> oikaze::Result<u64> {
        match self {
            Self::Bits(operation) => {
                timeout.choose(|limit| operation.wait_for(limit), || operation.wait())
            }
        }
    }
}

impl Operation {
    /// Makes the object of an operation of the library.
    pub fn new<T: oikaze::completion::Outcome>(
        job: &Arc<JobCell>,
        operation: oikaze::completion::Operation<T>,
        outcome: Outcome,
        loan: Option<Loan>,
    ) -> Self {
        let work = Work::Bits(operation.into_bits());
        // Most small operations are done by now, and need their memory no more.
        let loan = loan.filter(|_| !work.is_done());
        let state = State { outcome, loan, convert: None, result: None };
        Self { job: Arc::clone(job), work: Arc::new(work), state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the result of an operation that has ended, and releases its memory.
    fn finish(&self, py: Python<'_>, ended: oikaze::Result<u64>) -> PyResult<Py<PyAny>> {
        let (bits, convert, loan) = {
            let mut state = self.state();
            if let Some(result) = &state.result {
                return Ok(result.clone_ref(py));
            }
            let loan = state.loan.take_if(|_| self.work.is_done());
            (ended, state.convert.take(), loan)
        };
        drop(loan);
        let bits = bits.map_err(|error| exception(py, &error))?;
        let result = self.result_of(py, bits)?;
        let result = match convert {
            Some(convert) => convert.call1(py, (result,))?,
            None => result,
        };
        let mut state = self.state();
        Ok(state.result.get_or_insert(result).clone_ref(py))
    }

    fn result_of(&self, py: Python<'_>, bits: u64) -> PyResult<Py<PyAny>> {
        Ok(match &self.state().outcome {
            Outcome::Nothing => py.None(),
            Outcome::Word { signed: false, .. } => bits.into_pyobject(py)?.into_any().unbind(),
            Outcome::Word { bits: 32, .. } => {
                let word = (bits as u32).cast_signed();
                word.into_pyobject(py)?.into_any().unbind()
            }
            Outcome::Word { .. } => bits.cast_signed().into_pyobject(py)?.into_any().unbind(),
            Outcome::Object(object) => object.clone_ref(py),
        })
    }
}

#[pymethods]
impl Operation {
    /// Waits for the end, and returns the result.
    ///
    /// `timeout` is in seconds; without one, the limit of the job holds. After a
    /// `TimeoutError` the operation goes on, and may be waited for again. An operation that has
    /// failed raises an `oikaze.Error` with operation, cause and remedy.
    #[pyo3(signature = (timeout = Timeout::default()))]
    fn wait(&self, py: Python<'_>, timeout: Timeout) -> PyResult<Py<PyAny>> {
        let ended = match self.work.is_done() {
            true => self.work.wait(timeout),
            false => {
                let work = &self.work;
                match wait(py, move || Ok(work.wait(timeout)))? {
                    // What has not ended keeps its memory.
                    Err(error) if !self.work.is_done() => return Err(exception(py, &error)),
                    ended => ended,
                }
            }
        };
        self.finish(py, ended)
    }

    /// Whether the operation has ended, well or not.
    #[getter]
    fn done(&self) -> bool {
        self.work.is_done()
    }

    /// Ends the operation, if it has not ended. Whether it took place at the peer is unknown then.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let Work::Bits(operation) = &*self.work;
        wait(py, || operation.cancel().map(drop).or(Ok(())))
    }

    /// Makes the queue report the end once, by the number `context`.
    fn report_to(&self, py: Python<'_>, queue: &CompletionQueue, context: u64) -> PyResult<()> {
        let Work::Bits(operation) = &*self.work;
        operation.report_to(queue.inner(), context).or_raise(py)
    }

    /// Makes `wait` return what `function` makes of the result. Returns this object.
    fn then<'py>(slf: Bound<'py, Self>, function: Py<PyAny>) -> Bound<'py, Self> {
        slf.get().state().convert = Some(function);
        slf
    }

    /// The job of the operation's node, for `asyncio`.
    #[getter]
    fn _job(&self) -> usize {
        Arc::as_ptr(&self.job).addr()
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        py.import("oikaze._aio")?.call_method1("wait", (slf,))?.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let state = if self.work.is_done() { "done" } else { "under way" };
        format!("<oikaze.Operation {state}>")
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let loan = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).loan.take();
        if let Some(loan) = loan
            && !self.work.is_done()
        {
            self.job.keep_running(Running { work: Arc::clone(&self.work), _loan: loan });
        }
    }
}

/// Makes an object of `bytes`.
pub fn bytes(py: Python<'_>, bytes: &[u8]) -> Py<PyAny> {
    PyBytes::new(py, bytes).into_any().unbind()
}
