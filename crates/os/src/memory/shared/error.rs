//! What went wrong with shared memory, and what to do about it.

use std::borrow::Cow;
use std::io;

use crate::memory::MemoryError;

/// A failed system call or a refused request: what was tried, why it failed, what to do.
#[derive(Debug, thiserror::Error)]
#[error("{tried}: {why}. {remedy}")]
pub struct SharedError {
    tried: Cow<'static, str>,
    #[source]
    why: io::Error,
    remedy: Cow<'static, str>,
}

impl SharedError {
    /// An error from its three parts. `tried` has no full stop, `remedy` is a sentence.
    #[must_use]
    pub fn new(
        tried: impl Into<Cow<'static, str>>,
        why: io::Error,
        remedy: impl Into<Cow<'static, str>>,
    ) -> SharedError {
        SharedError { tried: tried.into(), why, remedy: remedy.into() }
    }

    /// The request itself was wrong: no system call was made.
    #[must_use]
    pub fn invalid(
        tried: impl Into<Cow<'static, str>>,
        why: impl Into<String>,
        remedy: impl Into<Cow<'static, str>>,
    ) -> SharedError {
        SharedError::new(tried, io::Error::new(io::ErrorKind::InvalidInput, why.into()), remedy)
    }

    /// Memory could not be had.
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

    /// What was tried and why it failed, without what to do about it.
    #[must_use]
    pub fn reason(&self) -> String {
        format!("{}: {}", self.tried, self.why)
    }

    /// What to do about it.
    #[must_use]
    pub fn remedy(&self) -> &str {
        &self.remedy
    }

    /// What the system answered, if it was asked.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        self.why.raw_os_error()
    }

    /// What kind of failure it was.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        self.why.kind()
    }
}

/// Remedies of memory are written to follow a semicolon.
fn sentence(remedy: &str) -> String {
    let mut letters = remedy.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters).chain(['.']).collect())
        .unwrap_or_default()
}
