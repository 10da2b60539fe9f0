//! Python bindings of Oikaze: the extension module `oikaze._native`.
//!
//! This crate only translates. Each class holds an object of the crate `oikaze`, and the Python
//! package `oikaze` adds what is easier to say in Python.
//!
//! | module | contents |
//! |---|---|
//! | [`job`] | the job, its settings, its end |
//! | [`memory`] | memory of this node and of its peers, puts with notice, FIFOs |
//! | [`message`] | messages |
//! | [`array`], [`collective`], [`short`] | shared arrays, collectives, teams |
//! | [`operation`], [`queue`] | operations under way, and the queue that tells `asyncio` of them |
//! | [`wait`] | waits without the interpreter's lock |
//! | [`interpreter`] | buffers, numbers, exceptions, the interpreter's end, places of calls |

mod array;
mod collective;
mod interpreter;
mod job;
mod memory;
mod message;
mod operation;
mod queue;
mod short;
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
    interpreter::place::name_calls(wait::keep_raised);
    module.add_class::<job::Job>()?;
    module.add_class::<memory::peer::Peer>()?;
    module.add_class::<message::Message>()?;
    module.add_class::<message::Received>()?;
    module.add_class::<memory::arrival::Arrivals>()?;
    module.add_class::<memory::arrival::Arrival>()?;
    module.add_class::<operation::Operation>()?;
    module.add_class::<queue::CompletionQueue>()?;
    module.add_class::<memory::region::Region>()?;
    module.add_class::<memory::remote::RemoteRegion>()?;
    module.add_class::<memory::remote::RemoteSignal>()?;
    module.add_class::<memory::fifo::Fifo>()?;
    module.add_class::<memory::fifo::RemoteFifo>()?;
    module.add_class::<job::Lock>()?;
    module.add_class::<array::Array>()?;
    module.add_class::<array::ArrayPlan>()?;
    module.add_class::<array::Distribution>()?;
    module.add_class::<array::Guard>()?;
    module.add_class::<collective::Team>()?;
    module.add_function(wrap_pyfunction!(collective::kinds, module)?)?;
    module.add_function(wrap_pyfunction!(collective::start_even, module)?)?;
    module.add_function(wrap_pyfunction!(short::short_all_reduce, module)?)?;
    module.add_function(wrap_pyfunction!(short::short_broadcast_into, module)?)?;
    module.add_function(wrap_pyfunction!(short::short_all_gather, module)?)?;
    module.add_function(wrap_pyfunction!(collective::start_uneven, module)?)?;
    module.add_function(wrap_pyfunction!(collective::refuse, module)?)?;
    module.add_function(wrap_pyfunction!(collective::sum_exact, module)?)?;
    module.add_function(wrap_pyfunction!(collective::split, module)?)?;
    module.add_function(wrap_pyfunction!(collective::shrink, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::finalization::end_threads, module)?)?;
    module.add_function(wrap_pyfunction!(interpreter::finalization::type_modified, module)?)?;
    module.add_function(wrap_pyfunction!(wait::change_fault_handlers, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("NODES_MAX", oikaze::limits::NODES_MAX)?;
    Ok(())
}
