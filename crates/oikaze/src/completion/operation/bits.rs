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

impl Operation<u64> {
    /// Makes an operation that has ended well, with these bits. A binding returns it for something
    /// that was done at once, where it returns an operation otherwise.
    ///
    /// ```
    /// # fn main() -> oikaze::Result<()> {
    /// let done = oikaze::completion::Operation::ended(7);
    /// assert!(done.is_done());
    /// assert_eq!(done.wait()?, 7);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "an operation that is not waited for may fail unseen"]
    pub fn ended(bits: u64) -> Operation<u64> {
        Operation::done(bits)
    }
}
