//! Types of objects that a job keeps for bindings, and the calls that keep them (MEM-19).

use super::handles::{Handle, Keepable, describe, unknown};
use crate::completion::counter::Counter;
use crate::completion::operation::Operation;
use crate::completion::queue::CompletionQueue;
use crate::error::Result;
use crate::job::handle::Job;
use crate::memory::region::LocalRegion;
use crate::memory::remote::region::RemoteRegion;
use crate::message::fifo::Fifo;
use crate::message::remote_fifo::RemoteFifo;
use std::sync::Arc;

macro_rules! keepable {
    ($($object:ty: $what:literal),*) => {
        $(impl Keepable for $object {
            const WHAT: &'static str = $what;
        })*
    };
}
keepable!(
    Operation<u64>: "operation",
    LocalRegion: "region",
    RemoteRegion: "region of a peer",
    Fifo: "FIFO",
    RemoteFifo: "FIFO of a peer",
    CompletionQueue: "completion queue",
    Counter: "counter"
);

impl Job {
    /// Keeps an object until it is [released](Job::release) or the process leaves the job. A
    /// binding for another language reaches the object by the returned handle.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// use oikaze::prelude::*;
    /// use oikaze::ffi::Handle;
    /// let job = oikaze::join()?;
    /// let inbox = job.publish("inbox", Region::shared(4096)?, Rights::WRITE)?;
    /// let there = job.peer(0)?.region("inbox")?;
    /// let put = job.keep(there.put_copy(0, b"hello")?.into_bits())?.to_bits(); // a number, for C
    /// // …
    /// let handle = Handle::from_bits(put);
    /// job.kept::<Operation<u64>>(handle)?.wait()?;
    /// job.release(handle)?;
    /// # job.barrier()?;
    /// # drop(inbox);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The job already keeps 16,777,216 objects.
    pub fn keep<T: Keepable>(&self, object: T) -> Result<Handle> {
        self.node.check_process(|| format!("keeping one {} more", T::WHAT))?;
        self.handles.keep(object)
    }

    /// Returns the object of this handle.
    ///
    /// # Errors
    /// The object was released, belongs to another job, or is of another type (MEM-19.2).
    pub fn kept<T: Keepable>(&self, handle: Handle) -> Result<Arc<T>> {
        self.node.check_process(|| describe(T::WHAT, handle))?;
        self.handles.kept(handle)
    }

    /// Stops keeping the object; a thread that is using the object still has it. An operation goes
    /// on. The registration of a region ends with its last user.
    ///
    /// # Errors
    /// The object was released already, or belongs to another job.
    pub fn release(&self, handle: Handle) -> Result<()> {
        self.node.check_process(|| describe("object", handle))?;
        // Dropped here, not under the lock: that may take the engine.
        self.handles.remove(handle).map(drop).ok_or_else(|| unknown("object", handle))
    }
}
