//! The error type of the public interface. An error names the operation, the cause and the remedy.

mod class;
mod parts;

use crate::received::Received;
pub use class::ErrorClass;
use oikaze_engine::Failure;
use oikaze_launch::JobError;
use oikaze_os::memory::fifo::FifoError;
use oikaze_os::memory::placement::PlacementError;
use oikaze_os::memory::tracking::SharedError;
use oikaze_os::memory::{AccessError, MemoryError};
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::CoherenceError;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::wind::Refusal;
pub use parts::ErrorParts;
use std::fmt;
use std::time::Duration;

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of an operation of this crate. Its text names the operation, the cause and the remedy.
///
/// A program tells causes apart by the methods of this type:
///
/// ```
/// use oikaze::prelude::*;
/// use std::time::Duration;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let inbox = job.publish("inbox", Region::shared(4096)?, Rights::ATOMIC)?;
/// let error = inbox.wait_until_for(0, Duration::from_millis(1), |word| word > 0).unwrap_err();
/// assert!(error.is_timeout() && error.lost_peer().is_none() && error.refusal().is_none());
/// # job.barrier()?;
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Cause>);

/// Cause of an [`Error`].
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The time limit of a wait has passed. An `Operation` goes on
    /// and may be waited for again. A collective goes on without its caller. A lock is no longer
    /// asked for.
    #[error("{what}: not done after {:.3} s. A longer limit can be set (OIKAZE_TIMEOUT, in milliseconds)", waited.as_secs_f64())]
    Timeout {
        /// Event that the caller waited for.
        what: String,
        /// Time that the wait lasted.
        waited: Duration,
    },
    /// An operation failed.
    #[error("{}", failed_text(what, failure, launcher_says.as_deref()))]
    Failed {
        /// Operation that was tried.
        what: String,
        /// Cause of the failure.
        failure: Failure,
        /// The launcher's words on how a lost node ended, if a node is lost and the launcher knows.
        launcher_says: Option<String>,
    },
    /// Operations have failed, and no caller had waited for them.
    #[error("{}", unseen_text(*count, first.as_deref()))]
    Unseen {
        /// Number of failed operations.
        count: u64,
        /// The first of the failures, unless it is no longer known.
        first: Option<Box<Error>>,
    },
    /// The process could not find, start or reach the job.
    #[error(transparent)]
    Job(JobError),
    /// The machine could not give memory, or a way to track it.
    #[error(transparent)]
    Memory(MemoryError),
    /// Shared memory could not be allocated or tracked.
    #[error(transparent)]
    Shared(SharedError),
    /// The memory of a FIFO was overwritten.
    #[error(transparent)]
    Fifo(FifoError),
    /// An access was outside the bounds of its memory.
    #[error(transparent)]
    Access(AccessError),
    /// Pages cannot be exchanged.
    #[error(transparent)]
    Placement(PlacementError),
    /// The caller's arguments do not fit.
    #[error("{what}: {why}")]
    Invalid {
        /// Operation that was tried.
        what: String,
        /// Reason why the arguments do not fit.
        why: String,
    },
    /// A system call failed.
    #[error("{what}: {source}{}", oikaze_os::error_text::remedy_of(source))]
    System {
        /// Operation that was tried.
        what: String,
        /// Error that the system returned.
        source: std::io::Error,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

/// Makes an [`Error`] of errors of this project's other crates.
macro_rules! from {
    ($($(#[$attribute:meta])* $error:ty: $variant:ident),* $(,)?) => {
        $($(#[$attribute])* impl From<$error> for Error {
            fn from(error: $error) -> Self {
                Cause::$variant(error).into()
            }
        })*
    };
}
from! {
    MemoryError: Memory,
    AccessError: Access,
    #[doc(hidden)] JobError: Job,
    #[doc(hidden)] SharedError: Shared,
    #[doc(hidden)] FifoError: Fifo,
    #[doc(hidden)] PlacementError: Placement,
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Error(Box::new(cause))
    }
}

/// Prints the message, as `Display` does, so that `fn main() -> oikaze::Result<()>` ends with text
/// a person can read.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        oikaze_os::error_text::write_message(self, f)
    }
}

impl Error {
    pub fn failed(what: impl Into<String>, failure: Failure) -> Self {
        Cause::Failed { what: what.into(), failure, launcher_says: None }.into()
    }

    /// Makes the error of a program's own check: arguments of `what` do not fit, for this reason.
    #[must_use]
    pub fn invalid(what: impl Into<String>, why: impl Into<String>) -> Self {
        Cause::Invalid { what: what.into(), why: why.into() }.into()
    }

    /// Adds the launcher's words on how the lost node ended.
    pub fn with_reason(mut self, reason: Option<String>) -> Self {
        if let Cause::Failed { launcher_says, .. } = &mut *self.0 {
            *launcher_says = reason;
        }
        self
    }

    /// Names the operation by what the caller has called.
    pub fn renamed(mut self, name: &str) -> Self {
        if let Cause::Timeout { what, .. }
        | Cause::Failed { what, .. }
        | Cause::Invalid { what, .. } = &mut *self.0
        {
            name.clone_into(what);
        }
        self
    }

    /// Adds where the program has called the operation, if it is known.
    pub fn at(mut self, place: Option<impl fmt::Display>) -> Self {
        if let (
            Some(place),
            Cause::Timeout { what, .. } | Cause::Failed { what, .. } | Cause::Invalid { what, .. },
        ) = (place, &mut *self.0)
        {
            *what = format!("{what} at {place}");
        }
        self
    }

    /// Returns the cause.
    pub fn cause(&self) -> &Cause {
        &self.0
    }

    /// Returns the cause, for a new error.
    pub fn into_cause(self) -> Cause {
        *self.0
    }

    /// Returns `true` if a time limit has passed. An operation then goes on, and may be waited for
    /// again. A collective goes on without its caller. A lock is no longer asked for.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        matches!(*self.0, Cause::Timeout { .. })
    }

    /// Returns the number of failed operations that this error reports, if it is the error of
    /// operations that nobody had waited for (`Job::flush`).
    #[must_use]
    pub fn unreported(&self) -> Option<u64> {
        match *self.0 {
            Cause::Unseen { count, .. } => Some(count),
            _ => None,
        }
    }

    /// Returns `true` if a FIFO was full. The push may be tried again once its owner has taken an
    /// element out.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            *self.0,
            Cause::Failed { failure: Failure::Remote(RmaError::Refused(Refusal::Full)), .. }
        )
    }

    /// Returns `true` if nothing was sent because too much is queued to the peer. The caller may
    /// try again when earlier operations have ended.
    #[must_use]
    pub fn is_queue_full(&self) -> bool {
        match &*self.0 {
            Cause::Failed { failure, .. } => {
                matches!(failure, Failure::QueueFull { .. } | Failure::TooMany { .. })
            }
            Cause::Unseen { first: Some(first), .. } => first.is_queue_full(),
            _ => false,
        }
    }

    /// Returns `true` if the nodes did not agree on a collective operation, which then failed on
    /// all of them.
    pub fn is_mismatch(&self) -> bool {
        matches!(
            *self.0,
            Cause::Failed { failure: Failure::Coherence(CoherenceError::Mismatch(_)), .. }
        )
    }

    /// Adds what the loss of a node leaves unknown about the operation.
    pub fn of_unknown_fate(mut self, fate: Option<&str>) -> Self {
        if let (Cause::Failed { what, failure: Failure::PeerLost { .. }, .. }, Some(fate)) =
            (&mut *self.0, fate)
        {
            *what = format!("{what}, {fate}");
        }
        self
    }

    /// Adds the time for which the operation was tried again and again.
    pub fn after(mut self, limit: Duration) -> Self {
        if let Cause::Failed { what, .. } = &mut *self.0 {
            *what = format!("{what}, waited for {} s", limit.as_secs_f64());
        }
        self
    }

    /// Makes the error of a system call that failed in `what`.
    #[must_use]
    pub fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Cause::System { what: what.into(), source: source.into() }.into()
    }

    /// Returns why the peer refused the operation, if the peer did. A refused operation has changed
    /// nothing there.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        match &*self.0 {
            Cause::Failed { failure: Failure::Remote(RmaError::Refused(refusal)), .. } => {
                Some(*refusal)
            }
            Cause::Unseen { first: Some(first), .. } => first.refusal(),
            _ => None,
        }
    }

    /// Describes the message, if a posted receive failed because the message is longer than the
    /// posted memory. The message was kept, and can still be received.
    #[must_use]
    pub fn kept_message(&self) -> Option<Received> {
        match &*self.0 {
            Cause::Failed { failure: Failure::NoRoomForMessage { from, tag, len, .. }, .. } => {
                Some(Received { from: *from, tag: *tag, len: *len })
            }
            _ => None,
        }
    }

    /// Returns the peer that is lost or has not done its part, if that caused the error.
    #[must_use]
    pub fn lost_peer(&self) -> Option<Rank> {
        match &*self.0 {
            Cause::Failed {
                failure: Failure::PeerLost { peer, .. } | Failure::InUse { peer },
                ..
            } => Some(*peer),
            Cause::Unseen { first: Some(first), .. } => first.lost_peer(),
            Cause::Failed {
                failure:
                    Failure::Coherence(
                        CoherenceError::NodeDead { rank, .. }
                        | CoherenceError::PageLost { rank, .. }
                        | CoherenceError::LockBroken { rank, .. }
                        | CoherenceError::NotReleased { rank },
                    )
                    | Failure::Remote(RmaError::PeerDead(rank) | RmaError::BadAnswer(rank)),
                ..
            } => Some(*rank),
            _ => None,
        }
    }
}

fn unseen_text(count: u64, first: Option<&Error>) -> String {
    let operations =
        if count == 1 { "1 operation has" } else { &format!("{count} operations have") };
    let first = first.map_or(String::new(), |first| format!(". The first: {first}"));
    format!("{operations} failed that nobody waited for{first}")
}

fn failed_text(what: &str, failure: &Failure, launcher_says: Option<&str>) -> String {
    let mut text = failure.to_string();
    // The text of a coherence error may already begin with the operation.
    if !text.starts_with(what) {
        text = format!("{what}: {text}");
    }
    match launcher_says {
        Some(launcher_says) => text + ". The launcher says: " + launcher_says,
        None => text + advice(failure),
    }
}

pub fn advice(failure: &Failure) -> &'static str {
    match failure {
        Failure::Remote(RmaError::Refused(Refusal::UnknownKey)) => {
            ". Ask the peer for the region again, by its name"
        }
        Failure::Remote(RmaError::Refused(Refusal::OutOfBounds)) => {
            ". Compare with the length of the region"
        }
        Failure::Remote(RmaError::Refused(Refusal::NotPermitted)) => {
            ". Puts take the right write, gets read, atomics and signals atomic. Its owner decides, when it publishes the region and while it is used, and sees what it has refused among the refused accesses of its job"
        }
        Failure::Remote(RmaError::Refused(Refusal::Misaligned)) => {
            ". Use an offset that is a multiple of 8 (of 4 for words of 32 bits)"
        }
        Failure::Remote(RmaError::Refused(Refusal::Full)) => {
            ". Try again later, or take elements out faster, or make it with more slots"
        }
        Failure::Remote(RmaError::Refused(Refusal::NoFifo)) => {
            ". Its owner makes the FIFO under this name; nobody else may write its region"
        }
        Failure::Remote(RmaError::Refused(Refusal::TooLong)) => {
            ". Its owner decides how long elements may be, when it makes the FIFO"
        }
        Failure::Remote(RmaError::Refused(Refusal::NoRoom)) => {
            ". Too much is under way at once: wait for some of it first"
        }
        Failure::Remote(RmaError::Refused(Refusal::Withdrawn)) => {
            ". Its owner keeps it until all who look it up have it (a barrier before it is dropped), or publishes it again"
        }
        Failure::Remote(RmaError::Refused(Refusal::NoMemory)) => {
            ". Send it in shorter messages, or put it into a region that the receiver has made"
        }
        Failure::Remote(RmaError::Refused(Refusal::NotPresent)) => {
            ". Try again, or have its owner read them first"
        }
        Failure::Forked { .. } => {
            ". Call exec in the child, fork before joining, or use threads; a program that becomes a daemon does so before it joins"
        }
        Failure::InUse { .. } => {
            ". The region stays registered, closed to all; call this again when the process of that node has ended or gone on"
        }
        Failure::PeerLost { .. } => {
            ". Its own output says why it ended (a program that exits without leaving its job is lost to the others, too); a node \
             that only stalls needs a longer OIKAZE_FAILURE_TIME"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `fn main() -> Result` prints by `Debug`.
    #[test]
    fn debug_of_an_error_is_its_message() {
        let dead = CoherenceError::NodeDead { doing: "barrier".into(), rank: 1 };
        let job = || JobError::Refused { why: "it is full".into() };
        let system = std::io::Error::from_raw_os_error(2);
        for error in [
            Error::failed("barrier", Failure::Coherence(dead)),
            Error::from(job()),
            Error::system("opening", system),
        ] {
            assert_eq!(format!("{error:?}"), error.to_string());
        }
        assert_eq!(format!("{:?}", job()), job().to_string());
        let launch = oikaze_launch::launcher::LaunchError::from(job());
        assert_eq!(format!("{launch:?}"), launch.to_string());
    }
}
