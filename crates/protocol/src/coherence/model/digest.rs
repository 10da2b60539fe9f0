//! Hash of a node's coherence for the model: equal for states that behave alike.

use crate::coherence::Coherence;
use crate::wind::Token;
use core::hash::{Hash, Hasher};

impl Hash for Coherence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Every field is named, so that whoever adds a field decides whether it is part of the
        // state. A field that is wrongly left out makes the model skip states.
        let Coherence {
            me,
            nodes,
            arrays,
            regions,
            epoch,
            dirty,
            guards,
            updates,
            fetches,
            touches,
            touches_due,
            knowledge,
            releases,
            team_acquires,
            collective,
            gather,
            locks,
            targets,
            managed,
            dead,
            lost_page,
            lost_diff,
            broken,
            left,
            leaving,
            leavers,
            // The model asks no questions, which are about lost messages (COH-13).
            questions: _,
            // Numbers of messages are only names, and the messages in flight tell what is posted.
            next_token: _,
            posted: _,
            owed,
            // Empty after every call of the model.
            local: _,
            out: _,
            events: _,
            statistics: _,
        } = self;
        (me, nodes, arrays, regions, epoch, dirty, fetches).hash(state);
        (guards, updates).hash(state);
        (touches, touches_due, knowledge, releases, collective, gather).hash(state);
        (locks, targets, managed, dead, lost_page, lost_diff, broken).hash(state);
        (left, leaving, leavers, team_acquires).hash(state);
        owed.iter().filter(|(_, count)| **count > 0).for_each(|owed| owed.hash(state));
    }
}

impl Coherence {
    /// Returns the place of a diff message among this node's diffs that are not settled, or `None`
    /// if the message is no diff.
    pub(super) fn place_of_diff(&self, token: Token) -> Option<usize> {
        let number = token.0 & !super::super::TOKENS;
        let outstanding = &self.releases.outstanding;
        outstanding.contains(&number).then(|| outstanding.range(..number).count())
    }
}
