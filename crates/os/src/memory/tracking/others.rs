//! Guards of other nodes that map the memory of an array (COH-16.6), as the guards of this node
//! meet them.

use oikaze_protocol::Rank;
use std::fmt;
use std::ops::Range;
use std::panic::Location;

/// Purpose for which a guard covers its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardKind {
    /// Loads of all bytes.
    Read,
    /// Loads and stores of all bytes.
    Write,
    /// Stores of the bytes that have changed under a guard with a copy of its own.
    Merge,
    /// An operation on elements that only reads.
    ReadOperation,
    /// An operation on elements that changes them.
    Operation,
}

impl GuardKind {
    /// All kinds, in the order of the declaration.
    pub const ALL: [GuardKind; 5] = [
        GuardKind::Read,
        GuardKind::Write,
        GuardKind::Merge,
        GuardKind::ReadOperation,
        GuardKind::Operation,
    ];

    /// Returns `true` if one byte may not be covered for both purposes at the same time.
    #[must_use]
    pub fn conflicts(self, other: GuardKind) -> bool {
        use GuardKind::{Merge, Operation, Read, ReadOperation};
        !matches!(
            (self, other),
            (Read | ReadOperation, Read | ReadOperation)
                | (Merge, Merge)
                | (Operation | ReadOperation, Operation | ReadOperation)
        )
    }

    /// Returns `true` if one process may not lend one byte for both purposes at the same time.
    #[inline]
    #[must_use]
    pub fn excludes(self, other: GuardKind) -> bool {
        (self.writes() || other.writes()) && !(self.is_operation() && other.is_operation())
    }

    /// Returns `true` if bytes may change.
    #[inline]
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, GuardKind::Read | GuardKind::ReadOperation)
    }

    /// Returns `true` for an operation on elements.
    #[inline]
    #[must_use]
    pub fn is_operation(self) -> bool {
        matches!(self, GuardKind::ReadOperation | GuardKind::Operation)
    }

    /// Returns the verb of a text about a guard of this kind.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            GuardKind::Read => "reads",
            GuardKind::Write => "writes",
            GuardKind::Merge => "merges",
            GuardKind::ReadOperation | GuardKind::Operation => "operates on",
        }
    }
}

/// Bytes that a guard is about to cover.
#[derive(Clone, Debug)]
pub struct GuardBytes {
    /// Purpose of the guard.
    pub kind: GuardKind,
    /// Bytes from the first one to the last one.
    pub bytes: Range<u64>,
    /// Is `true` if the guard covers the block between the first and the last element, and not all
    /// bytes between them.
    pub is_block: bool,
    /// Is `true` if the guard lends a reference into the memory, and not its address.
    pub lends: bool,
    /// Line of the program, unless the caller is not written in Rust.
    pub taken_at: Option<&'static Location<'static>>,
}

/// How a guard begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// In place. Other nodes know of it by this entry until [`OtherNodes::end`].
    InPlace(usize),
    /// With a copy, because a node of this job stores through plain pointers (COH-16.8).
    Copies,
}

/// Outcome of an attempt at an operation on elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt<T> {
    /// The operation is done.
    Done(T),
    /// An operation of this node is in the way. Try again.
    Waits(Option<Rank>),
}

/// Other nodes that map the memory of an array. The texts of errors name a guard that is in the
/// way.
pub trait OtherNodes: Send + Sync + fmt::Debug {
    /// Begins a guard, unless a guard of another node is in the way.
    ///
    /// # Errors
    /// The guard that is in the way.
    fn begin(&self, guard: &GuardBytes) -> Result<Begun, String>;

    /// Ends a guard.
    fn end(&self, entry: usize);

    /// Tells the others that this node stores through plain pointers from now on.
    ///
    /// # Errors
    /// A guard of another node that lends a reference into the memory is alive.
    fn mark(&self) -> Result<(), String>;

    /// Returns the bytes of an element. Guards cover whole elements.
    fn element_len(&self) -> usize;

    /// Calls `store` for each range of elements that no guard of another node is in the way of,
    /// while the others know of it (COH-16.7). Returns the first guard that was in the way.
    fn merge(
        &self,
        runs: &[Range<u64>],
        taken_at: Option<&'static Location<'static>>,
        store: &mut dyn FnMut(&Range<u64>),
    ) -> Option<String>;

    /// Performs an operation on bytes as one step with respect to all other operations
    /// (COH-16.9), unless one of them is in the way for a while.
    ///
    /// # Errors
    /// The guard that is in the way.
    fn operate(
        &self,
        guard: &GuardBytes,
        operation: &mut dyn FnMut(),
    ) -> Result<Attempt<()>, String>;

    /// Notes that a guard of this node owns these bytes (COH-10.14).
    fn note_owned(&self, rows: &[Range<u64>]);

    /// Keeps a race that a guard has found when it ended. The next collective of this node reports
    /// it.
    fn keep_race(&self, text: String);
}
