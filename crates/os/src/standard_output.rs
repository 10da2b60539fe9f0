//! Standard output of commands: an error unless all bytes are written.

use std::ffi::{c_char, c_int};
use std::io::{self, ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Set if this process was started without standard output.
static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Notes whether standard output is open. Before `main`, Rust's library opens `/dev/null` in place
/// of a closed standard output, so that every write succeeds.
extern "C" fn note_closed(_: c_int, _: *const *const c_char, _: *const *const c_char) {
    // SAFETY: F_GETFD takes no memory, and refuses a descriptor that is closed.
    if unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) } == -1 {
        WAS_CLOSED.store(true, Ordering::Relaxed);
    }
}

// SAFETY: The loader calls the functions of this section with argc, argv and envp before `main`, in
// the only thread. The function calls fcntl(2) alone, which needs nothing of Rust's library.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_CLOSED: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = note_closed;

/// Prints text. A reader that closes the pipe is not an error, because it has read enough.
///
/// # Errors
/// The text cannot be written, e.g. because the disk is full or standard output is closed.
pub fn print(text: &str) -> io::Result<()> {
    finish(io::stdout().lock().write_all(text.as_bytes()))
}

/// Ends a write to standard output, whose last bytes may still be in its buffer.
///
/// # Errors
/// As [`print`].
pub fn finish(written: io::Result<()>) -> io::Result<()> {
    if WAS_CLOSED.load(Ordering::Relaxed) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    match written.and_then(|()| io::stdout().flush()) {
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(()),
        finished => finished,
    }
}
