//! Statuses of calls, and the classes of errors behind them.

use oikaze::ffi::ErrorClass;

/// Outcome of a call. `OIK_OK` is 0; all others are failures, whose text `oik_error` returns.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum oik_status {
    /// The call succeeded.
    OIK_OK = 0,
    /// Nothing is there yet. Only calls that poll return this.
    OIK_NOT_READY = 1,
    /// An argument makes no sense: NULL, a bad length, an unknown constant, a wrong root.
    OIK_INVALID = 2,
    /// The handle means nothing: the object was released, or the handle was never one.
    OIK_HANDLE = 3,
    /// The buffer is too small. The call has told the length, and has lost nothing.
    OIK_TOO_SMALL = 4,
    /// A time limit has passed. An operation goes on, and may be waited for again.
    OIK_TIMEOUT = 5,
    /// A node is lost, or has not done its part (`oik_error_lost_peer`).
    OIK_PEER_LOST = 6,
    /// A node is leaving the job, and will not do what is waited for.
    OIK_PEER_LEAVING = 7,
    /// The peer refused the operation (rights, bounds, a name that it has not published), which has
    /// changed nothing there.
    OIK_REFUSED = 8,
    /// A FIFO is full. Push again later.
    OIK_FULL = 9,
    /// Too much is queued to the peer. Wait for earlier operations first.
    OIK_QUEUE_FULL = 10,
    /// A collective failed on all ranks: they did not call the same, or one of them gave arguments
    /// that make no sense.
    OIK_MISMATCH = 11,
    /// A node or the launcher ended the job.
    OIK_ABORTED = 12,
    /// This node has left the job.
    OIK_LEFT = 13,
    /// This process is a child of fork, and not the node.
    OIK_FORKED = 14,
    /// The operation was cancelled.
    OIK_CANCELLED = 15,
    /// Operations have failed that nobody waited for.
    OIK_UNREPORTED = 16,
    /// There is not enough memory, or no way to track it.
    OIK_MEMORY = 17,
    /// The job could not be found, started or reached.
    OIK_JOB = 18,
    /// The machine or its system refused a request.
    OIK_SYSTEM = 19,
    /// Oikaze has a defect. Nothing that the job does from here on is certain.
    OIK_DEFECT = 20,
}

impl From<ErrorClass> for oik_status {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::Invalid => Self::OIK_INVALID,
            ErrorClass::TooSmall => Self::OIK_TOO_SMALL,
            ErrorClass::Timeout => Self::OIK_TIMEOUT,
            ErrorClass::PeerLost => Self::OIK_PEER_LOST,
            ErrorClass::PeerLeaving => Self::OIK_PEER_LEAVING,
            ErrorClass::Refused => Self::OIK_REFUSED,
            ErrorClass::Full => Self::OIK_FULL,
            ErrorClass::QueueFull => Self::OIK_QUEUE_FULL,
            ErrorClass::Mismatch => Self::OIK_MISMATCH,
            ErrorClass::Aborted => Self::OIK_ABORTED,
            ErrorClass::Left => Self::OIK_LEFT,
            ErrorClass::Forked => Self::OIK_FORKED,
            ErrorClass::Cancelled => Self::OIK_CANCELLED,
            ErrorClass::Unreported => Self::OIK_UNREPORTED,
            ErrorClass::Memory => Self::OIK_MEMORY,
            ErrorClass::Join => Self::OIK_JOB,
            ErrorClass::System => Self::OIK_SYSTEM,
        }
    }
}
