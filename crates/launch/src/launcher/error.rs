//! Errors of starting a job.

use super::ending::{STATUS_LAUNCHER, STATUS_NOT_EXECUTABLE, STATUS_NOT_FOUND};
use crate::JobError;
use std::ffi::OsString;

/// Error of starting a job.
#[derive(thiserror::Error)]
pub enum LaunchError {
    /// The user's options contradict each other.
    #[error("{0}")]
    Usage(String),
    /// No such program.
    #[error("program {program:?} was not found {place}{hint}")]
    NotFound {
        /// Program as given.
        program: OsString,
        /// Place where the launcher looked for it.
        place: String,
        /// Suggestion of the program that the user may have meant.
        hint: String,
    },
    /// The program is there, but cannot be run.
    #[error("{program:?} cannot be run: {why}")]
    NotExecutable {
        /// Program as given.
        program: OsString,
        /// Reason why it cannot be run.
        why: String,
    },
    /// The `ip` command failed.
    #[error("network namespaces (--netns) cannot be made: `{command}` {why}")]
    Network {
        /// Command that was run.
        command: String,
        /// Output of the command, and the remedy.
        why: String,
    },
    /// The store failed.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The system refused something.
    #[error("cannot {doing}: {source}{}", oikaze_os::error_text::remedy_of(source))]
    System {
        /// Operation that failed.
        doing: String,
        /// Error that the system returned.
        source: std::io::Error,
    },
}

/// Prints the message, as `Display` does: `fn main() -> Result` prints errors by `Debug`.
impl std::fmt::Debug for LaunchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        oikaze_os::error_text::write_message(self, f)
    }
}

impl LaunchError {
    pub(super) fn system(doing: impl Into<String>) -> impl FnOnce(std::io::Error) -> LaunchError {
        let doing = doing.into();
        move |source| LaunchError::System { doing, source }
    }

    /// Returns the launcher's exit status.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            LaunchError::Usage(_) => 2,
            LaunchError::NotFound { .. } => STATUS_NOT_FOUND,
            LaunchError::NotExecutable { .. } => STATUS_NOT_EXECUTABLE,
            _ => STATUS_LAUNCHER,
        }
    }
}
