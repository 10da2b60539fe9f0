//! Waits of Python threads: without the interpreter's lock, and ended by signals.
//!
//! A wait gives the interpreter's lock back, so that other Python threads run meanwhile. Python
//! runs handlers of signals only in its main thread, and only between two steps of a program. So a
//! wait of the main thread asks the interpreter now and then whether a handler has raised an
//! exception, such as `KeyboardInterrupt`. The exception takes the place of the wait's result.

use crate::error::OrRaise;
use oikaze::ffi::{InterruptionCheck, interruptible};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

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

fn raised() -> std::sync::MutexGuard<'static, Option<PyErr>> {
    RAISED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs handlers of signals that have arrived. Returns `true` if one has raised an exception.
fn has_raised() -> bool {
    if raised().is_some() {
        return true;
    }
    let outcome = Python::attach(|py| py.check_signals());
    if let Err(error) = outcome {
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
    let (outcome, is_checked) = py.detach(|| match CHECK.with(Clone::clone) {
        Some(check) => (interruptible(check, work), true),
        None => (work(), false),
    });
    match is_checked.then(|| raised().take()).flatten() {
        Some(error) => Err(error),
        None => Ok(outcome),
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
    let begun = thread.spawn(move || sender.send(work()).map_err(drop));
    begun.map_err(|why| oikaze::Error::system("starting a thread", why)).or_raise(py)?;
    let receiver = Mutex::new(receiver);
    loop {
        let next = || {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(SIGNAL_INTERVAL)
        };
        match py.detach(next) {
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

impl<'a, 'py> FromPyObject<'a, 'py> for Timeout {
    type Error = PyErr;

    fn extract(object: Borrowed<'a, 'py, PyAny>) -> PyResult<Self> {
        let seconds: f64 = object.extract()?;
        if seconds.is_nan() || seconds < 0.0 {
            let text = format!("timeout is {seconds}; give seconds, 0 or more, or None");
            return Err(PyValueError::new_err(text));
        }
        Ok(Self(Duration::from_secs_f64(seconds.min(SECONDS_MAX))))
    }
}
