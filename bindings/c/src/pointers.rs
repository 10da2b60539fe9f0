//! Pointers of C as values that Rust can use. A value of these types comes from a caller in C, who
//! keeps to the header: memory that an argument points to stays as it is until the function
//! returns, and has the length that stands beside it. In the header the types are plain pointers.

use crate::call::{CallError, CallResult};
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

/// Declares a type of arrays that C passes for reading.
macro_rules! input {
    ($($(#[$doc:meta])* $name:ident of $element:ty;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name(*const $element);

        impl Default for $name {
            fn default() -> Self {
                Self(std::ptr::null())
            }
        }

        impl $name {
            /// Returns the elements; `what` names the argument. NULL has no elements.
            pub fn get(&self, count: usize, what: &str) -> CallResult<&[$element]> {
                let first = checked(self.0, count, what)?;
                // SAFETY: the caller in C passes this many elements, which stay unchanged during
                // the call, which `self` does not outlive. `checked` has looked at the rest.
                Ok(unsafe { slice::from_raw_parts(first.as_ptr(), count) })
            }
        }
    )*};
}

/// Declares a type of arrays that C passes to be written.
macro_rules! output {
    ($($(#[$doc:meta])* $name:ident of $element:ty;)*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        pub struct $name(*mut $element);

        impl $name {
            /// Returns the elements, which may be uninitialised; `what` names the argument.
            pub fn get(
                &mut self,
                count: usize,
                what: &str,
            ) -> CallResult<&mut [MaybeUninit<$element>]> {
                let first = checked(self.0.cast_const(), count, what)?.cast();
                // SAFETY: the caller in C passes room for this many elements, which nobody else
                // uses during the call, which `self` does not outlive.
                Ok(unsafe { slice::from_raw_parts_mut(first.as_ptr(), count) })
            }
        }
    )*};
}

input! {
    /// Ranks of nodes.
    Ranks of u32;
    /// Lengths or extents.
    Sizes of usize;
    /// Ranges of axes.
    Ranges of crate::array::oik_range;
    /// Fields of a struct.
    Fields of crate::array::oik_field;
    /// Vectors of different lengths.
    Vectors of crate::collective::oik_vector;
    /// Pieces of a list.
    Pieces of crate::remote::oik_piece;
}

output! {
    /// Room for ranks.
    RanksOut of u32;
    /// Room for lengths or extents.
    SizesOut of usize;
    /// Room for refused accesses.
    RefusedOut of crate::remote::oik_refused_access;
    /// Room for ranges of axes.
    RangesOut of crate::array::oik_range;
    /// Room for ended operations.
    CompletedOut of crate::operation::oik_completed;
    /// Room for handles of messages.
    MessagesOut of *mut crate::message::oik_message;
}

/// Handles of operations, which are set to NULL when the operations have ended.
#[repr(transparent)]
pub struct Operations(*mut *mut crate::operation::oik_operation);

impl Operations {
    /// Returns the handles; `what` names the argument.
    pub fn get(
        &mut self,
        count: usize,
        what: &str,
    ) -> CallResult<&mut [*mut crate::operation::oik_operation]> {
        let first = checked(self.0.cast_const(), count, what)?;
        // SAFETY: the caller in C passes this many handles, which nobody else uses during the call,
        // which `self` does not outlive.
        Ok(unsafe { slice::from_raw_parts_mut(first.as_ptr(), count) })
    }
}

impl Fields {
    /// Returns the fields that a struct of C points to.
    pub fn of(first: *const crate::array::oik_field) -> Self {
        Self(first)
    }
}

impl Ranges {
    /// Returns `true` if the program passes no ranges.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }
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

    /// Copies `bytes` to the start of room for `capacity` bytes. Writes the length to `len`, even
    /// if there is too little room.
    pub fn fill(
        &mut self,
        capacity: usize,
        bytes: &[u8],
        len: Option<&mut MaybeUninit<usize>>,
    ) -> CallResult {
        place(len, "len")?.write(bytes.len());
        let room = self.get(capacity, "buffer")?;
        let Some(room) = room.get_mut(..bytes.len()) else {
            let why = format!("{} bytes do not fit into a buffer of {capacity}", bytes.len());
            return Err(CallError::new(crate::status::oik_status::OIK_TOO_SMALL, why));
        };
        room.write_copy_of_slice(bytes);
        Ok(())
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

    /// Returns the bytes.
    pub fn get(&mut self) -> &mut [u8] {
        // SAFETY: the header asks the program for this memory until the operation has ended. It was
        // checked when the operation began.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.len) }
    }
}

/// Returns the place for a result; `what` names the argument.
pub fn place<'a, T>(
    out: Option<&'a mut MaybeUninit<T>>,
    what: &str,
) -> CallResult<&'a mut MaybeUninit<T>> {
    out.ok_or_else(|| null(what))
}

/// Writes a result that C may not want.
pub fn give<T>(out: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(out) = out {
        out.write(value);
    }
}

/// Returns the value that an argument points to; `what` names the argument.
pub fn given<'a, T>(value: Option<&'a T>, what: &str) -> CallResult<&'a T> {
    value.ok_or_else(|| null(what))
}
