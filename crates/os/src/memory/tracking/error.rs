//! Errors of shared memory, each with a remedy.

use std::borrow::Cow;
use std::io;

use crate::memory::MemoryError;

/// Remedy of what a guard is in the way of.
pub(super) const END_GUARD: &str = "End that guard first (drop(guard) in Rust, guard.release() in Python, oik_guard_release(guard) in C)";

/// A failed system call or a refused request: the operation, the cause, and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{tried}: {why}. {remedy}")]
pub struct SharedError {
    tried: Cow<'static, str>,
    #[source]
    why: io::Error,
    remedy: Cow<'static, str>,
}

impl SharedError {
    /// Makes an error from its three parts. `tried` has no full stop, `remedy` is a sentence.
    #[must_use]
    pub fn new(
        tried: impl Into<Cow<'static, str>>,
        why: io::Error,
        remedy: impl Into<Cow<'static, str>>,
    ) -> SharedError {
        SharedError { tried: tried.into(), why, remedy: remedy.into() }
    }

    /// Makes an error for a wrong request, before any system call.
    #[must_use]
    pub fn invalid(
        tried: impl Into<Cow<'static, str>>,
        why: impl Into<String>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> SharedError {
        SharedError::new(tried, io::Error::new(io::ErrorKind::InvalidInput, why.into()), remedy)
    }

    /// Makes an error for memory that could not be allocated.
    #[must_use]
    pub fn memory(tried: impl Into<Cow<'static, str>>, e: MemoryError) -> SharedError {
        match e {
            MemoryError::System { why, remedy, .. } => {
                SharedError::new(tried, why.into(), sentence(remedy))
            }
            other => SharedError::new(
                tried,
                io::Error::new(io::ErrorKind::OutOfMemory, other),
                "Use more nodes or a smaller array.",
            ),
        }
    }

    /// Returns the operation and the cause, without the remedy.
    #[must_use]
    pub fn reason(&self) -> String {
        format!("{}: {}", self.tried, self.why)
    }

    /// Returns the remedy.
    #[must_use]
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// Returns the system's error number, if a system call failed.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.why.raw_os_error()
    }

    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.why.kind()
    }
}

/// Makes a sentence of a [`MemoryError`]'s remedy, which is written to follow a semicolon.
fn sentence(remedy: &str) -> String {
    let mut letters = remedy.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).chain(['.']).collect())
        .unwrap_or_default()
}
