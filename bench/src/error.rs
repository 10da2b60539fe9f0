//! Errors of benches. Each says what was tried, why it failed, and what to do.

use std::fmt;

/// Error of a bench that could not be run.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    /// Makes an error from its message.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Makes an error from what was tried and the system's error.
    pub fn io(tried: impl fmt::Display, why: &std::io::Error) -> Self {
        Self(format!("{tried}: {why}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Converts an `io` error and adds what was tried.
pub trait Tried<T> {
    /// Adds what was tried to the error.
    fn tried(self, what: impl fmt::Display) -> Result<T, Error>;
}

impl<T> Tried<T> for Result<T, std::io::Error> {
    fn tried(self, what: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|why| Error::io(what, &why))
    }
}

impl<T> Tried<T> for rustix::io::Result<T> {
    fn tried(self, what: impl fmt::Display) -> Result<T, Error> {
        self.map_err(|why| Error::io(what, &why.into()))
    }
}
