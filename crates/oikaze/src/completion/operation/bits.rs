//! Operations whose outcome is given as bits.

use super::{Operation, OperationState, Outcome};

impl<T: Outcome> Operation<T> {
    /// Returns the same operation, yielding bits: the previous value of a word, otherwise 0.
    /// Operations of all kinds so have one type ([`crate::Job::keep`]).
    #[must_use = "an operation that is not waited for may fail unseen"]
    pub fn into_bits(self) -> Operation<u64> {
        Operation(match self.0 {
            OperationState::Begun(begun) => OperationState::Begun(begun),
            OperationState::InRing { marks, route, len, position } => {
                OperationState::InRing { marks, route, len, position }
            }
            OperationState::Done { told, outcome } => {
                OperationState::Done { told, outcome: outcome.to_bits() }
            }
        })
    }
}
