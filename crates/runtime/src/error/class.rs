//! Classes of errors, for bindings that give each class a status or an exception of its own.

use super::{Cause, Error};
use oikaze_engine::Failure;
use oikaze_launch::JobError;
use oikaze_os::memory::MemoryError;
use oikaze_os::memory::tracking::SharedError;
use oikaze_protocol::coherence::CoherenceError;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::wind::Refusal;
use std::error::Error as _;
use std::io;

/// Class of an [`Error`], by what a program can do about it.
///
/// ```
/// use oikaze::ffi::ErrorClass;
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let error = job.peer(job.size()).unwrap_err();
/// assert_eq!(error.class(), ErrorClass::Invalid);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// An argument makes no sense: the program is to be mended.
    Invalid,
    /// The memory of a posted receive is too small for its message, which was kept.
    TooSmall,
    /// A time limit has passed. The wait may be repeated.
    Timeout,
    /// A node is lost, or has not done its part.
    PeerLost,
    /// A node is leaving the job, and will not do what is waited for.
    PeerLeaving,
    /// The peer refused the operation, which has changed nothing there.
    Refused,
    /// A FIFO is full. The push may be repeated.
    Full,
    /// Too much is queued to the peer. The operation may be repeated later.
    QueueFull,
    /// A collective failed on all ranks: they did not call the same, or one of them gave arguments
    /// that make no sense.
    Mismatch,
    /// The job was ended by one of its nodes or by its launcher.
    Aborted,
    /// This node has left the job.
    Left,
    /// This process is a child of fork, and not the node.
    Forked,
    /// The operation was cancelled.
    Cancelled,
    /// Operations have failed that nobody waited for.
    Unreported,
    /// There is not enough memory, or no way to track it.
    Memory,
    /// The job could not be found, started or reached.
    Join,
    /// The machine or its system refused a request.
    System,
}

impl Error {
    /// Returns the class of the error.
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self.cause() {
            Cause::Timeout { .. } => ErrorClass::Timeout,
            Cause::Failed { failure, .. } => of_failure(failure),
            Cause::Unseen { .. } => ErrorClass::Unreported,
            Cause::Job(error) => of_job(error),
            Cause::Memory(error) => of_memory(error),
            Cause::Shared(error) => of_shared(error),
            Cause::Fifo(_) | Cause::Access(_) | Cause::Placement(_) | Cause::Invalid { .. } => {
                ErrorClass::Invalid
            }
            Cause::System { .. } => ErrorClass::System,
        }
    }
}

fn of_failure(failure: &Failure) -> ErrorClass {
    match failure {
        Failure::Remote(RmaError::Refused(Refusal::Full)) => ErrorClass::Full,
        Failure::Remote(RmaError::Refused(_) | RmaError::UnknownName { .. }) => ErrorClass::Refused,
        Failure::Remote(RmaError::PeerDead(_) | RmaError::BadAnswer(_)) => ErrorClass::PeerLost,
        Failure::Remote(RmaError::Absent) => ErrorClass::System,
        Failure::Remote(RmaError::Cancelled) => ErrorClass::Cancelled,
        Failure::Remote(RmaError::TooMany) => ErrorClass::QueueFull,
        Failure::NoRoomForMessage { .. } => ErrorClass::TooSmall,
        Failure::Remote(_) | Failure::NoSuchNode { .. } => ErrorClass::Invalid,
        Failure::PeerLost { .. } | Failure::InUse { .. } => ErrorClass::PeerLost,
        Failure::Leaving { .. } => ErrorClass::PeerLeaving,
        Failure::Aborted(_) => ErrorClass::Aborted,
        Failure::Coherence(error) => of_coherence(error),
        Failure::TooMany { .. } | Failure::QueueFull { .. } => ErrorClass::QueueFull,
        Failure::Cancelled => ErrorClass::Cancelled,
        Failure::Memory(error) => of_memory(error),
        Failure::Left => ErrorClass::Left,
        Failure::Forked { .. } => ErrorClass::Forked,
        Failure::Machine(_) => ErrorClass::System,
    }
}

fn of_coherence(error: &CoherenceError) -> ErrorClass {
    match error {
        CoherenceError::NodeDead { .. }
        | CoherenceError::PageLost { .. }
        | CoherenceError::LockBroken { .. }
        | CoherenceError::NotReleased { .. } => ErrorClass::PeerLost,
        CoherenceError::NodeLeaving { .. } => ErrorClass::PeerLeaving,
        CoherenceError::Mismatch(_) => ErrorClass::Mismatch,
        CoherenceError::Refused { .. } => ErrorClass::Refused,
        CoherenceError::Machine(_) => ErrorClass::System,
        CoherenceError::Left { .. } => ErrorClass::Left,
        CoherenceError::NotHeld { .. }
        | CoherenceError::UnknownArray { .. }
        | CoherenceError::OutOfRange { .. }
        | CoherenceError::TooLarge { .. } => ErrorClass::Invalid,
    }
}

fn of_memory(error: &MemoryError) -> ErrorClass {
    match error {
        MemoryError::System { .. }
        | MemoryError::NotAvailable { .. }
        | MemoryError::Torn
        | MemoryError::TableFull(_)
        | MemoryError::Random(_) => ErrorClass::Memory,
        _ => ErrorClass::Invalid,
    }
}

/// Classes an error of shared memory: the program's mistake, or a refusal by the system.
fn of_shared(error: &SharedError) -> ErrorClass {
    let system = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    let is_mistake = system.is_some_and(|error| error.kind() == io::ErrorKind::InvalidInput);
    if is_mistake { ErrorClass::Invalid } else { ErrorClass::Memory }
}

fn of_job(error: &JobError) -> ErrorClass {
    match error {
        JobError::Aborted { .. } => ErrorClass::Aborted,
        JobError::NodeEnded { .. } => ErrorClass::PeerLost,
        JobError::TimedOut { .. } => ErrorClass::Timeout,
        _ => ErrorClass::Join,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_peers_and_of_the_machine_are_no_mistakes_of_the_program() {
        let class = |failure: Failure| Error::failed("wait", failure).class();
        let not_released = CoherenceError::NotReleased { rank: 1 };
        assert_eq!(class(Failure::Coherence(not_released)), ErrorClass::PeerLost);
        assert_eq!(class(Failure::Remote(RmaError::BadAnswer(1))), ErrorClass::PeerLost);
        assert_eq!(class(Failure::Remote(RmaError::Absent)), ErrorClass::System);
        let not_held = CoherenceError::NotHeld { lock: 1 };
        assert_eq!(class(Failure::Coherence(not_held)), ErrorClass::Invalid);
    }
}
