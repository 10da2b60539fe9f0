//! Python bindings of Oikaze: the extension module `oikaze._native`.
//!
//! This crate only translates. Each class holds an object of the crate `oikaze`, and the Python
//! package `oikaze` adds what is easier to say in Python.
//!
//! | module | contents |
//! |---|---|
//! | [`job`] | the job, its settings, its end |
//! | [`peer`], [`message`], [`fifo`] | messages and FIFOs |
//! | [`region`], [`remote`], [`block`] | memory of this node and of its peers |
//! | [`arrival`] | puts with notice that have arrived |
//! | [`array`], [`collective`] | shared arrays, collectives, teams |
//! | [`operation`], [`queue`] | operations under way, and the queue that tells `asyncio` of them |
//! | [`buffer`] | memory of other Python objects; most unsafe code |
//! | [`number`], [`wait`], [`error`] | numbers, waits without the interpreter's lock, exceptions |
//! | [`finalization`] | threads and exits while the interpreter ends |
//! | [`place`] | file and line of the program's calls, for explanations of long waits |

mod array;
mod arrival;
mod block;
mod buffer;
mod collective;
mod error;
mod fifo;
mod finalization;
mod job;
mod message;
mod number;
mod operation;
mod peer;
mod place;
mod queue;
mod region;
mod remote;
mod wait;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use std::sync::OnceLock;

/// Refuses a second interpreter of this process: a process has one place in a job, and objects of
/// one interpreter mean nothing in another.
fn check_interpreter(py: Python<'_>) -> PyResult<()> {
    /// Address of the module `sys` of the first interpreter, which each interpreter has its own of.
    static FIRST: OnceLock<usize> = OnceLock::new();
    let sys = py.import("sys")?.as_ptr().addr();
    if *FIRST.get_or_init(|| sys) == sys {
        return Ok(());
    }
    Err(PyImportError::new_err(
        "importing oikaze: another interpreter of this process has imported it; use one interpreter, \
         with threads or processes (oikaze.local)",
    ))
}

/// The extension module.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    check_interpreter(module.py())?;
    wait::note_main_thread(module.py())?;
    place::name_calls(wait::keep_raised);
    module.add_class::<job::Job>()?;
    module.add_class::<peer::Peer>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<message::Received>()?;
    module.add_class::<arrival::Arrivals>()?;
    module.add_class::<arrival::Arrival>()?;
    module.add_class::<operation::Operation>()?;
    module.add_class::<queue::CompletionQueue>()?;
    module.add_class::<region::Region>()?;
    module.add_class::<remote::RemoteRegion>()?;
    module.add_class::<remote::RemoteSignal>()?;
    module.add_class::<fifo::Fifo>()?;
    module.add_class::<fifo::RemoteFifo>()?;
    module.add_class::<job::Lock>()?;
    module.add_class::<array::Array>()?;
    module.add_class::<array::ArrayPlan>()?;
    module.add_class::<array::Distribution>()?;
    module.add_class::<array::Guard>()?;
    module.add_class::<collective::Team>()?;
    module.add_function(wrap_pyfunction!(collective::kinds, module)?)?;
    module.add_function(wrap_pyfunction!(collective::start_even, module)?)?;
    module.add_function(wrap_pyfunction!(collective::start_uneven, module)?)?;
    module.add_function(wrap_pyfunction!(collective::refuse, module)?)?;
    module.add_function(wrap_pyfunction!(collective::sum_exact, module)?)?;
    module.add_function(wrap_pyfunction!(collective::split, module)?)?;
    module.add_function(wrap_pyfunction!(collective::shrink, module)?)?;
    module.add_function(wrap_pyfunction!(finalization::end_threads, module)?)?;
    module.add_function(wrap_pyfunction!(finalization::type_modified, module)?)?;
    module.add_function(wrap_pyfunction!(wait::change_fault_handlers, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    Ok(())
}
