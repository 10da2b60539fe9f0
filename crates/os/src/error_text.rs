//! Text of errors: remedies for errors of system calls, and messages with their sources.

use rustix::io::Errno;
use std::fmt;

/// Returns the remedy that an error's text ends with, after the system's own message. Returns an
/// empty string if there is none.
#[must_use]
pub fn remedy(why: Errno) -> &'static str {
    match why {
        Errno::MFILE => "; raise ulimit -n",
        Errno::NFILE => "; raise fs.file-max",
        Errno::AGAIN => "; more threads than ulimit -u or the container's pids limit allows?",
        Errno::NOMEM | Errno::NOBUFS => {
            "; use less memory, or look at ulimit -v and the container's memory limit"
        }
        Errno::PERM | Errno::ACCESS => "; the sandbox forbids it: see `oikaze doctor`",
        Errno::FBIG => {
            "; a file (in memory, too) may not grow beyond ulimit -f: use `ulimit -f unlimited`"
        }
        _ => "",
    }
}

/// Returns the remedy for an error of a system call, as [`remedy`] does. Returns an empty string if
/// the error has no system error number.
#[must_use]
pub fn remedy_of(source: &std::io::Error) -> &'static str {
    Errno::from_io_error(source).map_or("", remedy)
}

/// Writes an error's message, and those of its sources that the message does not repeat.
///
/// # Errors
/// The formatter fails.
pub fn write_message(error: &dyn std::error::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    f.write_str(&text)
}
