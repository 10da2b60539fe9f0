//! Frame of each function of the header: an error or a panic becomes a status and a text.

use crate::status::oik_status;
use oikaze::Error;
use oikaze::memory::{AccessError, MemoryError};
use std::any::Any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Failure of a function, as C gets it.
pub struct CallError {
    pub status: oik_status,
    pub text: Cow<'static, str>,
    /// Rank of the node whose loss is the cause.
    pub lost_peer: Option<u32>,
}

/// Result of a call.
pub type CallResult<T = ()> = Result<T, CallError>;

impl CallError {
    pub fn new(status: oik_status, text: impl Into<Cow<'static, str>>) -> Self {
        Self { status, text: text.into(), lost_peer: None }
    }

    /// Makes the error of an argument that makes no sense.
    pub fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(oik_status::OIK_INVALID, text)
    }

    /// Makes the error of a poll that found nothing.
    pub fn not_ready() -> Self {
        Self::new(oik_status::OIK_NOT_READY, "nothing is there yet; wait for it, or ask again")
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        Self {
            status: error.class().into(),
            text: error.to_string().into(),
            lost_peer: error.lost_peer(),
        }
    }
}

impl From<AccessError> for CallError {
    fn from(error: AccessError) -> Self {
        Error::from(error).into()
    }
}

impl From<MemoryError> for CallError {
    fn from(error: MemoryError) -> Self {
        Error::from(error).into()
    }
}

/// The last failure of a thread.
struct LastFailure {
    error: CallError,
    /// The text as C gets it, made when C asks for it.
    text: CString,
}

thread_local! {
    /// Without a destructor of its own, so that calls of an ending thread have a text, too.
    static LAST: RefCell<ManuallyDrop<Option<LastFailure>>> =
        const { RefCell::new(ManuallyDrop::new(None)) };
    static FREED_AT_END: FreeLast = const { FreeLast };
}

/// Frees the last failure of a thread that ends. A failure after that is freed with the process, or
/// by the thread's next failure.
struct FreeLast;

impl Drop for FreeLast {
    fn drop(&mut self) {
        set_last(None);
    }
}

fn set_last(last: Option<LastFailure>) {
    let before = LAST.with(|place| place.replace(ManuallyDrop::new(last)));
    drop(ManuallyDrop::into_inner(before));
}

/// Runs the work of a function. No panic crosses the border to C.
#[inline]
pub fn run(work: impl FnOnce() -> CallResult) -> oik_status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => oik_status::OIK_OK,
        Ok(Err(error)) => remember(error),
        Err(panic) => remember(CallError::new(oik_status::OIK_DEFECT, text_of(panic.as_ref()))),
    }
}

/// Remembers a failure for `oik_error`.
#[cold]
pub fn remember(error: CallError) -> oik_status {
    let status = error.status;
    // Refused to a thread that ends already.
    let _ = FREED_AT_END.try_with(|_| ());
    set_last(Some(LastFailure { error, text: CString::default() }));
    status
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    format!("a defect of Oikaze: {text}; report it, please")
}

/// Passes the text of this thread's last failure to `with`; `None` if no call has failed.
pub fn with_last_text<R>(with: impl FnOnce(Option<&CString>) -> R) -> R {
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        let last = last.as_mut().map(|last| {
            if last.text.is_empty() {
                last.text = CString::new(last.error.text.replace('\0', " ")).unwrap_or_default();
            }
            &last.text
        });
        with(last)
    })
}

/// Returns the lost peer that caused this thread's last failure.
pub fn last_lost_peer() -> Option<u32> {
    LAST.with(|last| last.borrow().as_ref()?.error.lost_peer)
}
