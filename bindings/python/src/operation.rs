//! Operations under way, as Python objects.

use crate::interpreter::buffer::{Loan, Memory};
use crate::interpreter::error::{OrRaise, exception_of_call, invalid};
use crate::interpreter::finalization::{call, detached};
use crate::interpreter::number::{Object, number, object};
use crate::job::cell::{JobCell, lock};
use crate::message::Received;
use crate::queue::CompletionQueue;
use crate::wait::{OrOfJob, Timeout, limit_of, wait};
use oikaze::collective::Pending;
use oikaze::ffi::UntypedResult;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// Operation or collective that is under way.
pub enum Work {
    /// An operation of the library, with the bits of its outcome.
    Bits(oikaze::completion::Operation<u64>),
    /// A collective of a team or job.
    Collective(Pending<UntypedResult>),
}

/// Result as the library gives it.
pub enum Ended {
    Bits(u64),
    Collective(UntypedResult),
}

/// Result that the program gets when the operation has ended.
pub enum Outcome {
    /// The result is `None`.
    Nothing,
    /// Result of the library as it came: a `bytearray`, or a list of them.
    Raw,
    /// This object, into whose memory the result is copied.
    Copied(Py<PyAny>, Memory),
    /// The previous value of a word: of this many bits, signed or not.
    Word { bits: u32, signed: bool },
    /// This object, which the operation has filled.
    Object(Py<PyAny>),
    /// Description of the message that a posted receive has got.
    Received,
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
    /// Meaning of the values of a collective, where the library's text of the call does not say it.
    meaning: Box<str>,
    /// Thread that makes the result, of which there is one at a time.
    finisher: Mutex<Option<ThreadId>>,
    finished: Condvar,
}

struct State {
    outcome: Outcome,
    loan: Option<Loan>,
    /// Result as far as it is made, once it was taken from the library.
    value: Option<Py<PyAny>>,
    /// Exception of the operation itself.
    failed: Option<PyErr>,
    /// Functions that are still to be called, each with what the one before returned.
    convert: VecDeque<Py<PyAny>>,
}

/// Right of one thread to make the result of an operation.
struct Finishing<'o>(&'o Operation);

impl Drop for Finishing<'_> {
    fn drop(&mut self) {
        *lock(&self.0.finisher) = None;
        self.0.finished.notify_all();
    }
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
            Self::Collective(pending) => pending.is_done(),
        }
    }

    fn wait(&self, timeout: Option<Timeout>, of_job: Option<Duration>) -> oikaze::Result<Ended> {
        // A collective is waited for by reference, which takes a limit.
        let limit = timeout.choose(Some, || of_job).unwrap_or(Duration::MAX);
        match self {
            Self::Bits(operation) => timeout
                .choose(|limit| operation.wait_for(limit), || operation.wait())
                .map(Ended::Bits),
            Self::Collective(pending) => pending.wait_for(limit).map(Ended::Collective),
        }
    }

    /// Waits for the end. What the operation ended by is left for [`Work::wait`].
    fn wait_ended(&self, timeout: Option<Timeout>, of_job: Option<Duration>) -> oikaze::Result<()> {
        let limit = timeout.choose(Some, || of_job).unwrap_or(Duration::MAX);
        let ended = match self {
            Self::Bits(_) => self.wait(timeout, of_job).map(drop),
            Self::Collective(pending) => pending.wait_ended(limit),
        };
        if self.is_done() { Ok(()) } else { ended }
    }

    fn report_to(&self, queue: &CompletionQueue, context: u64) -> oikaze::Result<()> {
        match self {
            Self::Bits(operation) => operation.report_to(queue.inner(), context),
            Self::Collective(pending) => pending.report_to(queue.inner(), context),
        }
    }
}

/// Makes the object of a result as it came.
fn raw(py: Python<'_>, ended: Ended) -> PyResult<Py<PyAny>> {
    Ok(match ended {
        Ended::Bits(bits) => bits.into_pyobject(py)?.into_any().unbind(),
        Ended::Collective(result) if result.has_vectors() => {
            let vectors = result.into_vectors();
            let vectors = vectors.iter().map(|bytes| PyByteArray::new(py, bytes));
            PyList::new(py, vectors.collect::<Vec<_>>())?.into_any().unbind()
        }
        Ended::Collective(result) => {
            let len = result.len();
            let copy = |bytes: &mut [u8]| result.copy_to(bytes).or_raise(py);
            PyByteArray::new_with(py, len, copy)?.into_any().unbind()
        }
    })
}

impl Operation {
    /// Makes the object of an operation of the library.
    pub fn new<T: oikaze::completion::Outcome>(
        job: &Arc<JobCell>,
        operation: oikaze::completion::Operation<T>,
        outcome: Outcome,
        loan: Option<Loan>,
    ) -> Self {
        Self::of_work(job, Work::Bits(operation.into_bits()), outcome, loan)
    }

    /// Makes the object of something under way.
    pub fn of_work(job: &Arc<JobCell>, work: Work, outcome: Outcome, loan: Option<Loan>) -> Self {
        // Most small operations are done by now, and need their memory no more.
        let loan = loan.filter(|_| !work.is_done());
        let state = State { outcome, loan, value: None, failed: None, convert: VecDeque::new() };
        Self {
            job: Arc::clone(job),
            work: Arc::new(work),
            state: Mutex::new(state),
            meaning: Box::default(),
            finisher: Mutex::default(),
            finished: Condvar::new(),
        }
    }

    /// Adds what a collective passes, for the text of a mismatch.
    pub fn meaning(mut self, meaning: &str) -> Self {
        self.meaning = meaning.into();
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Returns the result, if it is made.
    fn result(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let state = self.state();
        state.value.as_ref().filter(|_| state.convert.is_empty()).map(|value| value.clone_ref(py))
    }

    /// Waits until no other thread makes the result.
    fn begin_finish(&self, py: Python<'_>) -> PyResult<Finishing<'_>> {
        let me = std::thread::current().id();
        let claim = |finisher: &mut Option<ThreadId>| {
            let before = *finisher;
            finisher.get_or_insert(me);
            before
        };
        // Most operations are waited for by one thread, which keeps the interpreter's lock.
        let mut before = claim(&mut lock(&self.finisher));
        if before.is_some_and(|other| other != me) {
            before = detached(py, || {
                let busy = |other: &mut Option<ThreadId>| other.is_some_and(|other| other != me);
                let finisher = self.finished.wait_while(lock(&self.finisher), busy);
                claim(&mut finisher.unwrap_or_else(PoisonError::into_inner))
            });
        }
        if before == Some(me) {
            let why = "a function that makes its result waits for it";
            return Err(invalid(py, "waiting", why, "use the argument of the function"));
        }
        Ok(Finishing(self))
    }

    /// Makes the result of an operation that has ended, and releases its memory.
    ///
    /// If a function raises an exception, what it was called with stays. Another wait calls the
    /// function again, so that an exception such as `KeyboardInterrupt` loses no result.
    fn finish(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let _finishing = self.begin_finish(py)?;
        let loan = self.state().loan.take();
        drop(loan);
        let mut value = match self.made(py)? {
            Some(value) => value,
            None => {
                // It has ended, so this does not wait.
                let made = match self.work.wait(None, None) {
                    Ok(ended) => self.result_of(py, ended),
                    Err(error) => Err(exception_of_call(py, &error, &self.meaning)),
                };
                let mut state = self.state();
                match made {
                    Ok(value) => state.value.insert(value).clone_ref(py),
                    Err(error) => return Err(state.failed.insert(error).clone_ref(py)),
                }
            }
        };
        loop {
            // The lock is not held while the program's function runs.
            let function = self.state().convert.front().map(|function| function.clone_ref(py));
            let Some(function) = function else { return Ok(value) };
            value = call(function.bind(py), (value,))?.unbind();
            let used = {
                let mut state = self.state();
                (state.convert.pop_front(), state.value.replace(value.clone_ref(py)))
            };
            // Dropped without the lock: that may run a destructor of the program.
            drop(used);
        }
    }

    /// Returns the result as far as it is made, or the exception of the operation.
    fn made(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let state = self.state();
        match &state.failed {
            Some(error) => Err(error.clone_ref(py)),
            None => Ok(state.value.as_ref().map(|value| value.clone_ref(py))),
        }
    }

    /// Makes the description of the message that a posted receive has got.
    fn received(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let received = match &*self.work {
            Work::Bits(operation) => operation.received(),
            Work::Collective(_) => None,
        };
        Ok(match received {
            Some(message) => Received::new(message).into_pyobject(py)?.into_any().unbind(),
            None => py.None(),
        })
    }

    /// Makes the result, once.
    fn result_of(&self, py: Python<'_>, ended: Ended) -> PyResult<Py<PyAny>> {
        // The lock is not held while Python makes objects, which may run the program's destructors.
        let outcome = std::mem::replace(&mut self.state().outcome, Outcome::Nothing);
        Ok(match (&outcome, ended) {
            (Outcome::Nothing, _) => py.None(),
            (Outcome::Object(object), _) => object.clone_ref(py),
            (Outcome::Received, _) => self.received(py)?,
            (Outcome::Copied(object, memory), Ended::Collective(result)) => {
                let len = result.len();
                if len != memory.len() {
                    let why = format!("{len} bytes have come for {} bytes of out", memory.len());
                    let remedy = "pass an array of the result's shape and dtype";
                    return Err(invalid(py, "taking the result", &why, remedy));
                }
                memory.fill(py, &result.into_vec());
                object.clone_ref(py)
            }
            (Outcome::Word { bits: 32, signed: true }, Ended::Bits(bits)) => {
                (bits as u32).cast_signed().into_pyobject(py)?.into_any().unbind()
            }
            (Outcome::Word { signed: true, .. }, Ended::Bits(bits)) => {
                bits.cast_signed().into_pyobject(py)?.into_any().unbind()
            }
            (_, ended) => raw(py, ended)?,
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
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Object>) -> PyResult<Py<PyAny>> {
        let timeout = limit_of(timeout, "waiting")?;
        if let Some(result) = self.result(py) {
            return Ok(result);
        }
        if !self.work.is_done() {
            let (work, of_job) = (&self.work, self.job.time_limit());
            wait(py, move || work.wait_ended(timeout, of_job))?;
        }
        self.finish(py)
    }

    /// Whether the operation has ended, well or not.
    #[getter]
    fn done(&self) -> bool {
        self.work.is_done()
    }

    /// Ends the operation, if it has not ended. Whether it took place at the peer is unknown then.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let Work::Bits(operation) = &*self.work else {
            let remedy = "wait for its end; all ranks take part in it";
            return Err(invalid(py, "cancelling", "a collective cannot be cancelled", remedy));
        };
        wait(py, || operation.cancel().map(drop).or(Ok(())))
    }

    /// Makes the queue report the end once, by the number `context`.
    fn report_to(&self, py: Python<'_>, queue: Object, context: Object) -> PyResult<()> {
        let context: u64 = number(context, "report_to", "context")?;
        let what = "job.completion_queue()";
        let queue = object::<CompletionQueue>(queue, "report_to", "queue", what)?;
        self.work.report_to(queue.get(), context).or_raise(py)
    }

    /// Makes `wait` return what `function` makes of the result. Returns this object.
    ///
    /// The function is called by the first wait, once. If it raises an exception, the next wait
    /// calls it again.
    fn then<'py>(slf: Bound<'py, Self>, function: Py<PyAny>) -> Bound<'py, Self> {
        slf.get().state().convert.push_back(function);
        slf
    }

    /// The job of the operation's node, for `asyncio`.
    #[getter]
    fn _job(&self) -> usize {
        Arc::as_ptr(&self.job).addr()
    }

    fn __await__<'py>(slf: Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let wait = py.import("oikaze._aio")?.getattr("wait")?;
        call(&wait, (slf,))?.call_method0("__await__")
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
