//! Objects by handle. The header declares a type for each kind of object, so that a C compiler
//! finds mistakes. A pointer to such a type is a handle, not an address: it is never dereferenced,
//! and a stale one is an error and not a crash.

use crate::abi::call::{CallError, CallResult, Give, arguments, outputs};
use crate::abi::pointers::place;
use crate::status::oik_status;
use oikaze::ffi::{Handle, HandleTable, Keepable};
use std::mem::MaybeUninit;
use std::ptr::without_provenance_mut;
use std::sync::{Arc, LazyLock};

const _: () =
    assert!(size_of::<usize>() == size_of::<u64>(), "a handle needs a pointer of 64 bits");

/// Objects of all jobs of this process.
static TABLE: LazyLock<HandleTable> = LazyLock::new(HandleTable::new);

/// Type of the header for a kind of object.
pub trait Handled {
    /// The kept object.
    type Object: Keepable;
}

/// Declares types of handles: the name in the header, the object, and its name in errors.
macro_rules! handled {
    ($($name:ident: $object:ty, $what:literal;)*) => {$(
        impl crate::abi::objects::Handled for $name {
            type Object = $object;
        }

        impl oikaze::ffi::Keepable for $object {
            const WHAT: &'static str = $what;
        }
    )*};
}
pub(crate) use handled;

/// Returns the object of a handle.
#[inline]
pub fn find<H: Handled>(handle: *mut H) -> CallResult<Arc<H::Object>> {
    TABLE.kept(Handle::from_bits(handle.addr() as u64)).map_err(|error| unknown::<H>(handle, error))
}

/// Takes the object of a handle, which means nothing from then on.
#[inline]
pub fn take<H: Handled>(handle: *mut H) -> CallResult<Arc<H::Object>> {
    let bits = Handle::from_bits(handle.addr() as u64);
    TABLE.release(bits).map_err(|error| unknown::<H>(handle, error))
}

/// Returns the object of a handle, which means nothing from then on if `is_over` says so. The
/// second value tells which.
#[inline]
pub fn take_if<H: Handled>(
    handle: *mut H,
    is_over: impl FnOnce(&H::Object) -> bool,
) -> CallResult<(Arc<H::Object>, bool)> {
    let bits = Handle::from_bits(handle.addr() as u64);
    TABLE.release_if(bits, is_over).map_err(|error| unknown::<H>(handle, error))
}

#[cold]
fn unknown<H: Handled>(handle: *mut H, error: oikaze::Error) -> CallError {
    let what = H::Object::WHAT;
    if handle.is_null() {
        return CallError::invalid(format!("the {what} is NULL; pass one that Oikaze has made"));
    }
    let error = CallError::from(error);
    match error.status {
        oik_status::OIK_INVALID => CallError { status: oik_status::OIK_HANDLE, ..error },
        _ => error,
    }
}

/// Place in which C gets a handle. A call that fails leaves it alone.
pub type HandlePlace<'a, H> = &'a mut MaybeUninit<*mut H>;

/// Keeps an object, and gives C its handle.
pub fn keep<H: Handled>(out: HandlePlace<'_, H>, object: H::Object) -> CallResult<Arc<H::Object>> {
    let object = Arc::new(object);
    let handle = TABLE.keep_shared(Arc::clone(&object))?;
    out.write(without_provenance_mut(handle.to_bits() as usize));
    Ok(object)
}

/// Handle that means nothing after the call.
#[repr(transparent)]
pub struct Released<H>(*mut H);

/// Handle that may be NULL.
#[repr(transparent)]
pub struct Nullable<H>(*mut H);

arguments! { one:
    <H: Handled> *mut H: Arc<H::Object> = |it, _, _| find(*it);
    <H: Handled> Released<H>: Arc<H::Object> = |it, _, _| take(it.0);
    <H: Handled> Nullable<H>: Option<Arc<H::Object>> = |it, _, _| {
        if it.0.is_null() { Ok(None) } else { find(it.0).map(Some) }
    };
}

/// Place in which C gets the handle of a new object.
#[repr(transparent)]
pub struct New<H>(*mut *mut H);

outputs! {
    <H: Handled> New<H>: HandlePlace<'p, H> = |it, what| place(&mut it.0, what);
}

impl<H: Handled> Give<H::Object> for New<H> {
    #[inline]
    fn give(place: HandlePlace<'_, H>, value: H::Object) -> CallResult {
        keep(place, value).map(drop)
    }
}
