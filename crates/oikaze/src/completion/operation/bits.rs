//! Operations whose outcome is given as bits.

use super::{Operation, OperationState, Outcome};
use oikaze_runtime::received::Received;

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
    /// Returns sender, tag and length of the message, for a posted receive that has got one.
    ///
    /// ```
    /// use oikaze::prelude::*;
    /// # fn main() -> oikaze::Result<()> {
    /// let job = oikaze::join()?;
    /// let page = job.register(Region::zeroed(64)?)?;
    /// let receive = job.post_receive(Some(job.rank()), 0, 0, page.all()).into_bits();
    /// assert!(receive.received().is_none());
    /// job.peer(job.rank())?.send(Class::Ordered, 5, b"note").wait()?;
    /// assert_eq!(receive.wait()?, 4); // the length
    /// assert_eq!(receive.received().map(|message| message.tag), Some(5));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn received(&self) -> Option<Received> {
        let outcome = self.completion()?.outcome()?;
        outcome.ok().and_then(Received::from_value)
    }

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
