//! Memory of peers: put, get, atomics and signals. No operation needs a call at the target.
//!
//! The operations on a [`RemoteRegion`] are in one file for each kind of operation.

mod accumulate;
mod block;
mod direct;
mod elements;
mod exchange;
mod list;
mod lookup;
pub(crate) mod put;
pub(crate) mod region;
pub(crate) mod words;

pub use crate::memory::region::remote_id::RemoteId;
pub use elements::RemoteElements;
/// Reason why a peer has refused an operation.
///
/// ```
/// use oikaze::memory::remote::RefusalReason;
/// use oikaze::prelude::*;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::shared(64)?, Rights::WRITE)?;
/// let there = job.peer(0)?.region("inbox")?;
/// let error = there.put_copy(60, b"too long")?.wait().unwrap_err();
/// assert_eq!(error.refusal(), Some(RefusalReason::OutOfBounds));
/// # job.barrier()?;
/// # drop(inbox);
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use oikaze_protocol::wind::Refusal as RefusalReason;
pub use put::{COPY_MAX, RemoteSignal};
pub use region::RemoteRegion;
