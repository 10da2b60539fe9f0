//! Pointers of C as values that Rust can use. A value of these types comes from a caller in C, who
//! keeps to the header: memory that an argument points to stays as it is until the function
//! returns, and has the length that stands beside it. In the header the types are plain pointers.

use crate::abi::call::{CallError, CallResult, Give, arguments, outputs};
use crate::status::oik_status;
use std::ffi::{CStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

/// Text of C: UTF-8 that ends with a zero byte.
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// Makes a text for C, which is valid for as long as `text` is.
    pub fn of(text: &CStr) -> Self {
        Self(text.as_ptr())
    }

    /// Returns the text; `what` names the argument.
    pub fn get(&self, what: &str) -> CallResult<&str> {
        if self.0.is_null() {
            return Err(null(what));
        }
        // SAFETY: the caller in C passes a string that ends with a zero byte and stays unchanged
        // during the call, which `self` does not outlive.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|why| CallError::invalid(format!("{what} is not UTF-8: {why}")))
    }

    /// Returns the text, or `None` for NULL.
    pub fn get_optional(&self, what: &str) -> CallResult<Option<&str>> {
        if self.0.is_null() { Ok(None) } else { self.get(what).map(Some) }
    }
}

fn null(what: &str) -> CallError {
    CallError::invalid(format!("{what} is NULL; pass a pointer to it"))
}

/// Checks the pointer and the length in bytes of an array.
fn checked<T>(pointer: *const T, count: usize, what: &str) -> CallResult<NonNull<T>> {
    let too_long = || {
        let why = format!("{what} has {count} elements, which is more than memory can have");
        CallError::invalid(why)
    };
    let len = count.checked_mul(size_of::<T>()).filter(|len| isize::try_from(*len).is_ok());
    let len = len.ok_or_else(too_long)?;
    let Some(found) = NonNull::new(pointer.cast_mut()) else {
        return if len == 0 { Ok(NonNull::dangling()) } else { Err(null(what)) };
    };
    if !found.is_aligned() {
        let align = align_of::<T>();
        let why = format!("{what} is not aligned; its address is to be a multiple of {align}");
        return Err(CallError::invalid(why));
    }
    if found.addr().get().checked_add(len).is_none() {
        return Err(too_long());
    }
    Ok(found)
}

/// Bytes for reading.
#[repr(transparent)]
pub struct Bytes(*const c_void);

impl Bytes {
    /// Returns the bytes; `what` names the argument.
    pub fn get(&self, len: usize, what: &str) -> CallResult<&[u8]> {
        let first = checked(self.0.cast::<u8>(), len, what)?;
        // SAFETY: as for arrays that C passes for reading, above.
        Ok(unsafe { slice::from_raw_parts(first.as_ptr(), len) })
    }

    /// Returns the checked address of bytes that an operation uses after the call.
    pub fn address(&self, len: usize, what: &str) -> CallResult<NonNull<u8>> {
        checked(self.0.cast(), len, what)
    }

    /// Makes a pointer for C; NULL without bytes.
    pub fn of(bytes: Option<&[u8]>) -> Self {
        Self(bytes.map_or(std::ptr::null(), |bytes| bytes.as_ptr().cast()))
    }
}

/// Bytes to be written.
#[repr(transparent)]
pub struct BytesMut(*mut c_void);

impl BytesMut {
    /// Makes a pointer for C.
    pub fn of(address: *mut u8) -> Self {
        Self(address.cast())
    }

    /// Returns `true` if the program wants no bytes.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Passes the pointer on to a function of the program.
    pub fn copy(&self) -> Self {
        Self(self.0)
    }

    /// Returns the bytes; `what` names the argument.
    pub fn get(&mut self, len: usize, what: &str) -> CallResult<&mut [MaybeUninit<u8>]> {
        let first = checked(self.0.cast::<MaybeUninit<u8>>().cast_const(), len, what)?;
        // SAFETY: as for arrays that C passes to be written, above.
        Ok(unsafe { slice::from_raw_parts_mut(first.as_ptr(), len) })
    }

    /// Returns the bytes as they are.
    pub fn get_set(&mut self, len: usize, what: &str) -> CallResult<&mut [u8]> {
        let first = checked(self.0.cast::<u8>().cast_const(), len, what)?;
        // SAFETY: as above. Memory of C has some value, which Rust does not know.
        Ok(unsafe { slice::from_raw_parts_mut(first.as_ptr(), len) })
    }

    /// Returns the checked address of bytes that an operation uses after the call.
    pub fn address(&self, len: usize, what: &str) -> CallResult<NonNull<u8>> {
        checked(self.0.cast::<u8>().cast_const(), len, what)
    }
}

/// Memory of the program in which it waits for a result.
pub struct Destination {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: the program leaves the memory alone until the operation has ended, so that the thread
// which waits for the operation is the only one to use it.
unsafe impl Send for Destination {}
// SAFETY: as above; only a mutable borrow reaches the memory.
unsafe impl Sync for Destination {}

impl Destination {
    /// Checks the memory; `what` names the argument.
    pub fn new(memory: &BytesMut, len: usize, what: &str) -> CallResult<Self> {
        Ok(Self { first: memory.address(len, what)?, len })
    }

    /// Returns `true` if any of these bytes are in the memory.
    pub fn overlaps(&self, bytes: &[u8]) -> bool {
        let (bytes, first) = (bytes.as_ptr_range(), self.first.as_ptr().cast_const());
        bytes.start < first.wrapping_add(self.len) && first < bytes.end
    }

    /// Returns the bytes.
    pub fn get(&mut self) -> &mut [u8] {
        // SAFETY: the header asks the program for this memory until the operation has ended. It was
        // checked when the operation began.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

/// Value that C passes by its address, or the first of several.
#[repr(transparent)]
pub struct Input<T>(*const T);

impl<T> Input<T> {
    /// Makes the address of no value.
    pub const NULL: Self = Self(std::ptr::null());

    /// Returns `true` if C passed NULL.
    #[inline]
    pub const fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Returns the value; `what` names the argument.
    pub fn get(&self, what: &str) -> CallResult<&T> {
        // SAFETY: the caller in C passes NULL or a value, which stays unchanged during the call,
        // which `self` does not outlive.
        unsafe { self.0.as_ref() }.ok_or_else(|| null(what))
    }

    /// Returns the values; `what` names the argument. NULL has no values.
    pub fn slice(&self, count: usize, what: &str) -> CallResult<&[T]> {
        let first = checked(self.0, count, what)?;
        // SAFETY: the caller in C passes this many values, which stay unchanged during the call,
        // which `self` does not outlive. `checked` has looked at the rest.
        Ok(unsafe { slice::from_raw_parts(first.as_ptr(), count) })
    }
}

/// Values that C passes to be changed.
#[repr(transparent)]
pub struct Slots<T>(*mut T);

impl<T> Slots<T> {
    fn slice(&mut self, count: usize, what: &str) -> CallResult<&mut [T]> {
        let first = checked(self.0.cast_const(), count, what)?;
        // SAFETY: the caller in C passes this many values, which nobody else uses during the call,
        // which `self` does not outlive.
        Ok(unsafe { slice::from_raw_parts_mut(first.as_ptr(), count) })
    }
}

/// Place in which C gets a result, or several.
#[repr(transparent)]
pub struct Room<T>(*mut T);

impl<T> Room<T> {
    fn slice(&mut self, count: usize, what: &str) -> CallResult<&mut [MaybeUninit<T>]> {
        let first = checked(self.0.cast_const(), count, what)?.cast();
        // SAFETY: the caller in C passes room for this many values, which nobody else uses during
        // the call, which `self` does not outlive.
        Ok(unsafe { slice::from_raw_parts_mut(first.as_ptr(), count) })
    }
}

/// Place in which a row writes a result itself, also one of a call that fails.
#[repr(transparent)]
pub struct Filled<T>(*mut T);

/// Place in which C gets a result, or NULL.
#[repr(transparent)]
pub struct Optional<T>(*mut T);

/// Returns a place of C; `None` for NULL.
#[inline]
pub fn place_at<T>(place: &mut *mut T) -> Option<&mut MaybeUninit<T>> {
    // SAFETY: the caller in C passes NULL or room for a value, which nobody else uses during the
    // call, which `place` does not outlive.
    unsafe { place.cast::<MaybeUninit<T>>().as_mut() }
}

/// Returns a place of C; `what` names the argument.
#[inline]
pub fn place<'p, T>(place: &'p mut *mut T, what: &str) -> CallResult<&'p mut MaybeUninit<T>> {
    place_at(place).ok_or_else(|| null(what))
}

arguments! { one:
    <> Text: &'v str = |it, _, what| it.get(what);
    <> Bytes: &'v mut Self = |it, _, _| Ok(it);
    <> BytesMut: &'v mut Self = |it, _, _| Ok(it);
    <T> Input<T>: &'v T = |it, _, what| it.get(what);
    <T> Room<T>: &'v mut MaybeUninit<T> = |it, _, what| place(&mut it.0, what);
    <T> Slots<T> [1]: &'v mut [T] = |it, [count], what| it.slice(count, what);
}

arguments! {
    <> Bytes [1]: &'v [u8] = |it, [len], what| it.get(len, what);
    <> BytesMut [1]: &'v mut [MaybeUninit<u8>] = |it, [len], what| it.get(len, what);
    <T> Input<T> [1]: &'v [T] = |it, [count], what| it.slice(count, what);
    <T> Room<T> [1]: &'v mut [MaybeUninit<T>] = |it, [count], what| it.slice(count, what);
}

outputs! {
    <T> Room<T>: &'p mut MaybeUninit<T> = |it, what| place(&mut it.0, what);
    <T> Filled<T>: &'p mut MaybeUninit<T> = |it, what| place(&mut it.0, what);
    <T> Optional<T>: Option<&'p mut MaybeUninit<T>> = |it, _| Ok(place_at(&mut it.0));
}

impl<T> Give<T> for Room<T> {
    #[inline]
    fn give(place: &mut MaybeUninit<T>, value: T) -> CallResult {
        place.write(value);
        Ok(())
    }
}

impl<T> Give<()> for Filled<T> {
    #[inline]
    fn give(_: &mut MaybeUninit<T>, (): ()) -> CallResult {
        Ok(())
    }
}

impl<T> Give<T> for Optional<T> {
    #[inline]
    fn give(place: Option<&mut MaybeUninit<T>>, value: T) -> CallResult {
        place.map_or(Ok(()), |place| Room::give(place, value))
    }
}

/// Copies `values` to the start of the room that C has for `what`.
pub fn fill<T: Copy>(room: &mut [MaybeUninit<T>], values: &[T], what: &str) -> CallResult {
    let capacity = room.len();
    let too_small = || {
        let why = format!("{} {what} do not fit into room for {capacity}", values.len());
        CallError::new(oik_status::OIK_TOO_SMALL, why)
    };
    room.get_mut(..values.len()).ok_or_else(too_small)?.write_copy_of_slice(values);
    Ok(())
}

/// Copies a text to the start of a buffer. Writes its length to `len`, even if there is too little
/// room.
pub fn fill_text(
    buffer: &mut [MaybeUninit<u8>],
    text: &str,
    len: &mut MaybeUninit<usize>,
) -> CallResult {
    len.write(text.len());
    fill(buffer, text.as_bytes(), "bytes")
}
