//! Objects by number, for bindings of languages that have neither ownership nor lifetimes.
//!
//! The documentation of the crate leaves it out, because Rust programs have the objects themselves.
//! A binding keeps each object that Rust would own ([`Job::keep`](crate::Job::keep), or a
//! [`HandleTable`] of its own) and hands out its [`Handle`].
//! Types that Rust knows at compile time are given as values: [`AtomicOp`], [`Accumulation`],
//! [`ElementType`]. Arrays and collectives of such types are the ones of Rust programs:
//! [`UntypedArray`], [`Untyped`].

mod calls;
pub(crate) mod handles;
mod jobs;
mod kept;
mod leave;
mod readiness;
mod regions;
mod words;

pub use crate::collective::run::work::UntypedResult;
pub use crate::collective::untyped::{Untyped, UntypedOperator};
pub use crate::shared::element::ElementType;
pub use crate::shared::untyped::{
    PlainMemory, UntypedArray, UntypedArrayBuilder, UntypedReadGuard, UntypedWriteGuard,
};
pub use crate::tables::{ElementKind, KindClass};
pub use calls::{CallCounter, CallCounts};
pub use handles::{Handle, HandleTable, Keepable};
#[doc(inline)]
pub use oikaze_os::memory::RegionId;
#[doc(inline)]
pub use oikaze_protocol::coherence::LockMode;
#[doc(inline)]
pub use oikaze_protocol::collective::CollectiveKind;
#[doc(inline)]
pub use oikaze_protocol::rma::{Accumulation, AtomicOp, Change, NumberKind, Width};
pub use oikaze_runtime::error::{ErrorClass, ErrorParts};
pub use oikaze_runtime::node::{InterruptionCheck, interruptible};
pub use oikaze_runtime::node::{PlaceFinder, find_places_by};

/// Changes fault handlers (SIGSEGV, SIGBUS) by `change`, which finds the handlers of the program
/// in place of those of Oikaze. Afterwards Oikaze's handlers are in front of them again, and this
/// thread lets both signals through (COH-8.6). Pages of shared arrays must not be touched
/// meanwhile. It only calls `change` if no array needs a handler.
///
/// ```
/// # fn main() -> oikaze::Result<()> {
/// let answer = oikaze::ffi::change_fault_handlers(|| 42)?; // such as libc::sigaction
/// assert_eq!(answer, 42);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The handlers cannot be installed again.
pub fn change_fault_handlers<R>(change: impl FnOnce() -> R) -> crate::error::Result<R> {
    oikaze_os::memory::tracking::set_aside();
    let result = change();
    oikaze_os::memory::tracking::put_back().map_err(|error| {
        crate::error::Error::system("installing the handler for page faults", error)
    })?;
    Ok(result)
}
