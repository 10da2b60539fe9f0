//! Violation that a run found.

use crate::trace::Stamp;
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::fmt;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Time,
    /// At which node it was seen.
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

/// A check: fine, or what is wrong.
pub type Check = Result<(), String>;
