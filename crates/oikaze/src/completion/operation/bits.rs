//! Operations whose outcome is given as bits.

use super::{Operation, Outcome, State};

impl<T: Outcome> Operation<T> {
    /// Returns the same operation, yielding bits: the previous value of a word, otherwise 0.
    /// Operations of all kinds so have one type ([`crate::Job::keep`]).
    #[must_use = "an operation that is not waited for may fail unseen"]
    pub fn into_bits(self) -> Operation<u64> {
        Operation(match self.0 {
            State::Begun(begun) => State::Begun(begun),
            State::InRing { marks, route, len, position } => {
                State::InRing { marks, route, len, position }
            }
            State::Done { told, outcome } => State::Done { told, outcome: outcome.to_bits() },
        })
    }
}
