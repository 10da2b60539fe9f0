//! Standard output of commands: an error unless all bytes are written.

use std::io::{self, ErrorKind, Write};

/// Prints text. A reader that closes the pipe is not an error, because it has read enough.
///
/// # Errors
/// The text cannot be written, e.g. because the disk is full.
pub fn print(text: &str) -> io::Result<()> {
    finish(io::stdout().lock().write_all(text.as_bytes()))
}

/// Ends a write to standard output, whose last bytes may still be in its buffer.
///
/// # Errors
/// As [`print`].
pub fn finish(written: io::Result<()>) -> io::Result<()> {
    match written.and_then(|()| io::stdout().flush()) {
        Err(why) if why.kind() == ErrorKind::BrokenPipe => Ok(()),
        finished => finished,
    }
}
