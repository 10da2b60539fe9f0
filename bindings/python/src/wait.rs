//! Waits of Python threads: without the interpreter's lock, and ended by signals.
//!
//! A wait gives the interpreter's lock back, so that other Python threads run meanwhile. Python
//! runs handlers of signals only in its main thread, and only between two steps of a program. So a
//! wait of the main thread asks the interpreter now and then whether a handler has raised an
//! exception, such as `KeyboardInterrupt`. The exception takes the place of the wait's result. So a
//! wait for a value that is taken once, such as a message, takes nothing by itself ([`taken()`]).

use crate::interpreter::error::{OrRaise, invalid, wrong_type};
use crate::interpreter::finalization::detached;
use crate::interpreter::number::Object;
use crate::interpreter::place;
use oikaze::ffi::{InterruptionCheck, interruptible};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Longest time limit in seconds, which is longer than any program runs.
const SECONDS_MAX: f64 = 1e9;

/// Time between two looks for signals while another thread works.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// The interpreter's main thread, if it imported this module.
static MAIN_THREAD: OnceLock<ThreadId> = OnceLock::new();

/// Exception of a signal's handler, for the wait of the main thread that it ended.
static RAISED: Mutex<Option<PyErr>> = Mutex::new(None);

thread_local! {
    /// Check of this thread, made once. Other threads than the main thread have none.
    static CHECK: Option<InterruptionCheck> = {
        let may_check = MAIN_THREAD.get().is_none_or(|main| *main == std::thread::current().id());
        may_check.then(|| Rc::new(has_raised) as InterruptionCheck)
    };
}

/// Notes the calling thread, if it is the interpreter's main thread.
pub fn note_main_thread(py: Python<'_>) -> PyResult<()> {
    let threading = py.import("threading")?;
    let is_main =
        threading.call_method0("main_thread")?.is(&threading.call_method0("current_thread")?);
    if is_main {
        let _ = MAIN_THREAD.set(std::thread::current().id());
    }
    Ok(())
}

/// Calls a Python function that changes handlers of SIGSEGV or SIGBUS
/// ([`oikaze::ffi::change_fault_handlers`]).
#[pyfunction]
pub fn change_fault_handlers<'py>(change: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = change.py();
    oikaze::ffi::change_fault_handlers(|| change.call0()).or_raise(py)?
}

fn raised() -> std::sync::MutexGuard<'static, Option<PyErr>> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an exception of a signal's handler for the wait of the main thread. It ends that wait.
pub fn keep_raised(error: PyErr) {
    if MAIN_THREAD.get().is_some_and(|main| *main == std::thread::current().id()) {
        raised().get_or_insert(error);
    }
}

/// Runs handlers of signals that have arrived. Returns `true` if one has raised an exception.
fn has_raised() -> bool {
    if raised().is_some() {
        return true;
    }
    // A thread that the interpreter does not let in any more runs no handler.
    if let Some(Err(error)) = Python::try_attach(|py| py.check_signals()) {
        *raised() = Some(error);
        return true;
    }
    false
}

/// Runs `work` without the interpreter's lock. An exception of a signal's handler ends its waits.
pub fn wait<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> oikaze::Result<T> + Send,
) -> PyResult<T> {
    wait_for(py, work)?.or_raise(py)
}

/// Runs `work` as [`wait()`] does, whatever its result is.
pub fn wait_for<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    detached(py, || {
        // A thread whose thread-locals were destroyed is not a main thread.
        let Some(check) = CHECK.try_with(Clone::clone).unwrap_or_default() else {
            return Ok(work());
        };
        let outcome = interruptible(check, work);
        match raised().take() {
            // What the work has brought is dropped here: that may wait, as the end of a lock does.
            Some(error) => {
                drop(outcome);
                Err(error)
            }
            None => Ok(outcome),
        }
    })
}

/// Waits for a value that is taken once. `take` takes it if it is there, and does not wait; `ready`
/// waits until it is likely to be there, and leaves it. So an exception of a signal's handler that
/// ends the wait leaves the value to the next call, whenever the signal has come.
pub fn taken<T>(
    py: Python<'_>,
    timeout: Option<Timeout>,
    mut take: impl FnMut() -> PyResult<Option<T>>,
    ready: impl Fn(Option<Duration>) -> oikaze::Result<()> + Send + Sync,
) -> PyResult<T> {
    let mut left = TimeLeft::new(timeout);
    loop {
        if let Some(value) = take()? {
            return Ok(value);
        }
        let limit = left.next();
        wait(py, || ready(limit))?;
        // A signal may have come since the wait last looked for it.
        py.check_signals()?;
    }
}

/// Rest of a time limit, for a call of several waits.
pub struct TimeLeft {
    limit: Option<Duration>,
    begun: Instant,
}

impl TimeLeft {
    /// Begins a call with this time limit.
    pub fn new(timeout: Option<Timeout>) -> Self {
        Self { limit: timeout.map(|Timeout(limit)| limit), begun: Instant::now() }
    }

    /// Returns the limit of the next wait; `None` is that of the job.
    pub fn next(&mut self) -> Option<Duration> {
        self.limit.map(|limit| limit.saturating_sub(self.begun.elapsed()))
    }
}

/// Runs work that does not look for signals in a thread of its own, and waits for its end. After an
/// exception of a signal's handler, the thread goes on without its caller.
pub fn wait_in_thread<T: Send + 'static>(
    py: Python<'_>,
    name: &str,
    work: impl FnOnce() -> oikaze::Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name(name.to_owned());
    // Nobody takes what is sent after an exception. It is dropped there.
    let caller = place::of_call(py)?;
    let begun = thread.spawn(move || {
        place::work_for(caller);
        sender.send(work()).map_err(drop)
    });
    begun.map_err(|why| oikaze::Error::system("starting a thread", why)).or_raise(py)?;
    let receiver = Mutex::new(receiver);
    loop {
        let next = || {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(SIGNAL_INTERVAL)
        };
        match detached(py, next) {
            Ok(outcome) => return outcome.or_raise(py),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err(format!("the thread {name} has panicked")));
            }
        }
    }
}

/// Time limit of a call, in seconds in Python.
#[derive(Clone, Copy, Debug)]
pub struct Timeout(pub Duration);

/// Optional time limits, without which the limit of the job holds.
pub trait OrOfJob {
    /// Calls the form with a limit of its own, or the form with the limit of the job.
    fn choose<T>(self, within: impl FnOnce(Duration) -> T, plain: impl FnOnce() -> T) -> T;
}

impl OrOfJob for Option<Timeout> {
    fn choose<T>(self, within: impl FnOnce(Duration) -> T, plain: impl FnOnce() -> T) -> T {
        match self {
            Some(Timeout(limit)) => within(limit),
            None => plain(),
        }
    }
}

/// Returns the time limit that an argument is, or `None`.
pub fn limit_of(object: Option<Object>, operation: &str) -> PyResult<Option<Timeout>> {
    let Some(object) = object.filter(|object| !object.is_none()) else { return Ok(None) };
    let (py, remedy) = (object.py(), "give seconds, 0 or more, or None");
    let Ok(seconds) = object.extract::<f64>() else {
        let cause = format!("timeout is {}, which is not a number", object.repr()?);
        return Err(wrong_type(py, operation, &cause, remedy));
    };
    if seconds.is_nan() || seconds < 0.0 {
        return Err(invalid(py, operation, &format!("timeout is {seconds}"), remedy));
    }
    Ok(Some(Timeout(Duration::from_secs_f64(seconds.min(SECONDS_MAX)))))
}
