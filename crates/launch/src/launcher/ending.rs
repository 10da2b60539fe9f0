//! End of a node's process, and the status that a shell would give it.

use oikaze_os::process::signal_name;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The time limit of the whole job passed (as `timeout(1)`).
pub const STATUS_TIMED_OUT: u8 = 124;
/// The launcher itself could not do its work.
pub const STATUS_LAUNCHER: u8 = 125;
/// A node ended with status 0 and had not left the job.
pub const STATUS_NOT_LEFT: u8 = 1;
/// The program is there but cannot be run (as in sh).
pub const STATUS_NOT_EXECUTABLE: u8 = 126;
/// The program is not there (as in sh).
pub const STATUS_NOT_FOUND: u8 = 127;

/// End of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The node ended by itself, with this status.
    Status(u8),
    /// The node ended by a signal.
    Signal(i32),
    /// The node never started, its host was lost, or it did not leave the job. The launcher's
    /// status for that is the second value.
    Lost(String, u8),
}

impl Ending {
    /// Returns the end of a node that had joined the job, and ended with status 0 without leaving
    /// it (LAUNCH-3.4).
    #[must_use]
    pub fn without_leaving() -> Ending {
        Ending::Lost("ended with status 0 without leaving the job".into(), STATUS_NOT_LEFT)
    }

    /// Returns the end of a node that had called `MPI_Init`, and ended with status 0 without
    /// `MPI_Finalize` (LAUNCH-10.5).
    #[must_use]
    pub fn without_finalizing() -> Ending {
        Ending::Lost("ended with status 0 without MPI_Finalize".into(), STATUS_NOT_LEFT)
    }

    /// Returns `true` if the node ended in good order.
    #[must_use]
    pub fn is_success(&self) -> bool {
        *self == Ending::Status(0)
    }

    /// Returns the status as a shell's `$?`.
    #[must_use]
    pub fn status(&self) -> u8 {
        match self {
            Ending::Status(status) | Ending::Lost(_, status) => *status,
            Ending::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Ending {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Status(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Ending::Signal(signal),
            (None, None) => Ending::Lost(
                "stopped in a way that the system does not tell".into(),
                STATUS_LAUNCHER,
            ),
        }
    }
}

/// Writes the predicate of a sentence that begins with "node 2".
impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Status(status) => write!(f, "ended with status {status}"),
            Ending::Signal(signal) => {
                write!(f, "was killed by signal {signal} ({})", signal_name(*signal))
            }
            Ending::Lost(why, _) => f.write_str(why),
        }
    }
}
