//! Violation that a run found.

use crate::trace::Stamp;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::fmt;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Time of the violation.
    pub at: Time,
    /// Node at which it was seen.
    pub node: Rank,
    /// Description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "node {} at {}: {}",
            self.node,
            Stamp(self.at).to_string().trim_start(),
            self.what
        )
    }
}

/// Result of a check: fine, or the description of an error.
pub type Check = Result<(), String>;
