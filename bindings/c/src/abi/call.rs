//! Rows of the header's functions, and the frame of each: an error or a panic becomes a status and
//! a text.
//!
//! `functions!` makes a function of each row: checks of the arguments and of the place for the
//! result, the call, the status, and the text of a failure.
//!
//! A row is `name(argument: Type, …) -> result: Type = value;`, below the function's documentation.
//! - `argument: Type` has the type that C passes. The value may use the checked argument
//!   ([`Check::Value`]): the object of a handle, a time limit, a text.
//! - `argument[len]: Type` is followed by a second argument that C passes, such as a length.
//! - `-> result: Type` is the last argument, a place that gets the value ([`Give`]).
//! - The value may fail with `?`, or return early.
//!
//! `cargo xtask header` reads the same rows. A type with `repr(transparent)` is in the header what
//! it wraps.

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

/// Argument that C passes.
pub trait Argument {
    /// Type of the arguments in brackets behind it.
    type Extra;
}

/// Argument that a row checks, with `N` arguments in brackets.
pub trait Check<const N: usize>: Argument {
    /// Checked value, which the row uses.
    type Value<'v>
    where
        Self: 'v;

    /// Checks the argument; `what` names it.
    fn check(&mut self, extra: [Self::Extra; N], what: &str) -> CallResult<Self::Value<'_>>;
}

/// Last argument of a function that has a result.
pub trait Output {
    /// Checked place of the result.
    type Place<'p>
    where
        Self: 'p;

    /// Checks the place before the call; `what` names the argument.
    fn place(&mut self, what: &str) -> CallResult<Self::Place<'_>>;
}

/// Place that takes a result of type `V`.
pub trait Give<V>: Output {
    /// Hands the result to C.
    fn give(place: Self::Place<'_>, value: V) -> CallResult;
}

/// Makes functions of the header of rows.
macro_rules! functions {
    ($(
        $(#[$text:meta])+
        $name:ident($($argument:ident $([$($extra:ident),+])?: $type:ty),* $(,)?)
            $(-> $out:ident: $out_type:ty)? = $value:expr;
    )*) => {$(
        $(#[$text])+
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(
            $(
                mut $argument: $type,
                $($($extra: <$type as crate::abi::call::Argument>::Extra,)+)?
            )*
            $(mut $out: $out_type)?
        ) -> crate::status::oik_status {
            crate::abi::call::run(|| {
                $(let $out = crate::abi::call::Output::place(&mut $out, stringify!($out))?;)?
                $(
                    let extra = [$($($extra),+)?];
                    let name = stringify!($argument);
                    let $argument = crate::abi::call::Check::check(&mut $argument, extra, name)?;
                )*
                functions!(@give $value $(, $out: $out_type)?)
            })
        }
    )*};
    (@give $value:expr) => {{
        $value;
        Ok(())
    }};
    (@give $value:expr, $out:ident: $type:ty) => {{
        let value = $value;
        <$type as crate::abi::call::Give<_>>::give($out, value)
    }};
}
pub(crate) use functions;

/// Says how rows check arguments of a type: without others in brackets, or with as many as the
/// number in brackets says. The check gets the argument, those in brackets, and the name.
macro_rules! arguments {
    ($(
        <$($generic:ident $(: $bound:path)?)?> $type:ty $([$extra:literal])?: $value:ty =
            |$this:ident, $numbers:pat_param, $what:pat_param| $check:expr;
    )*) => {$(
        impl<$($generic $(: $bound)?)?> crate::abi::call::Check<{ 0 $(+ $extra)? }> for $type {
            type Value<'v>
                = $value
            where
                Self: 'v;

            #[inline]
            #[allow(clippy::needless_lifetimes, reason = "values of other types have it")]
            fn check<'v>(
                &'v mut self,
                $numbers: [usize; { 0 $(+ $extra)? }],
                $what: &str,
            ) -> crate::abi::call::CallResult<$value> {
                let $this = self;
                $check
            }
        }
    )*};
    (one: $(
        <$($generic:ident $(: $bound:path)?)?> $type:ty $([$extra:literal])?: $value:ty =
            |$this:ident, $numbers:pat_param, $what:pat_param| $check:expr;
    )*) => {$(
        impl<$($generic $(: $bound)?)?> crate::abi::call::Argument for $type {
            type Extra = usize;
        }

        crate::abi::call::arguments! {
            <$($generic $(: $bound)?)?> $type $([$extra])?: $value =
                |$this, $numbers, $what| $check;
        }
    )*};
}
pub(crate) use arguments;

/// Argument that a row checks by itself.
#[repr(transparent)]
pub struct Raw<T>(T);

arguments! { one:
    <> bool: Self = |it, _, _| Ok(*it);
    <> u16: Self = |it, _, _| Ok(*it);
    <> u32: Self = |it, _, _| Ok(*it);
    <> i32: Self = |it, _, _| Ok(*it);
    <> i64: Self = |it, _, _| Ok(*it);
    <> u64: Self = |it, _, _| Ok(*it);
    <> usize: Self = |it, _, _| Ok(*it);
    <T> Raw<T>: &'v mut T = |it, _, _| Ok(&mut it.0);
}

/// Says how places of a type are checked.
macro_rules! outputs {
    ($(
        <$($generic:ident $(: $bound:path)?)?> $type:ty: $place:ty =
            |$this:ident, $what:pat_param| $check:expr;
    )*) => {$(
        impl<$($generic $(: $bound)?)?> crate::abi::call::Output for $type {
            type Place<'p>
                = $place
            where
                Self: 'p;

            #[inline]
            fn place<'p>(&'p mut self, $what: &str) -> crate::abi::call::CallResult<$place> {
                let $this = self;
                $check
            }
        }
    )*};
}
pub(crate) use outputs;

/// Makes a struct of the header of the fields of the same names.
macro_rules! copied {
    ($to:ident of $from:ident: $($field:ident),+) => {
        $to { $($field: $from.$field),+ }
    };
}
pub(crate) use copied;
