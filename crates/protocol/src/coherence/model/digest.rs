//! Hash of a node's coherence for the model: equal for states that behave alike.

use crate::coherence::mailbox::Mailbox;
use crate::coherence::order::Coherence;
use crate::wind::Token;
use core::hash::{Hash, Hasher};

impl Hash for Coherence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Every field is named, so that whoever adds a field decides whether it is part of the
        // state. A field that is wrongly left out makes the model skip states.
        let Coherence {
            mail,
            clock,
            arrays,
            failing,
            updates,
            releasing,
            fetches,
            targets,
            locking,
            collectives,
            // The model asks no questions, which are about lost messages (COH-13).
            questions: _,
            statistics: _,
        } = self;
        (mail, clock, arrays, failing, updates, fetches).hash(state);
        releasing.digest(&mail.diffs, state);
        (targets, locking, collectives).hash(state);
    }
}

/// Returns the place of a diff message among a node's diffs that are not settled, or `None` if the
/// message is not a diff.
pub fn place_of_diff(of: &Coherence, token: Token) -> Option<usize> {
    let number = Mailbox::number(token)?;
    let numbers = &of.mail.diffs.numbers;
    numbers.contains_key(&number).then(|| numbers.range(..number).count())
}
