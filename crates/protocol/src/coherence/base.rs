//! Parts that all other parts of coherence work with.

use crate::Rank;
use crate::coherence::clock::epoch::Clock;
use crate::coherence::failing::doing::Doing;
use crate::coherence::failing::failure::Failing;
use crate::coherence::mailbox::Mailbox;
use crate::coherence::pages::machine::{Access, ArrayId, Pages};
use crate::coherence::pages::page::PageId;
use crate::coherence::pages::table::Arrays;
use crate::coherence::statistics::CoherenceStatistics;
use crate::coherence::types::{CoherenceError, Value};
use crate::coherence::updating::delivery::Delivery;
use crate::wind::Token;

/// Parts that all other parts work with: mailbox, clock, arrays, failures and counters.
pub(crate) struct Base<'c> {
    pub mail: &'c mut Mailbox,
    pub clock: &'c mut Clock,
    pub arrays: &'c mut Arrays,
    pub failing: &'c mut Failing,
    pub statistics: &'c mut CoherenceStatistics,
}

impl Base<'_> {
    /// Returns why a collective, which needs every node, cannot succeed.
    pub fn collective_impediment(&self, doing: &Doing) -> Option<CoherenceError> {
        self.failing.collective_impediment(doing, self.arrays, self.mail)
    }

    /// Returns why this lock cannot be acquired or given back.
    pub fn lock_impediment(&self, doing: &Doing, lock: u64) -> Option<CoherenceError> {
        self.failing.lock_impediment(doing, lock, self.arrays, self.mail)
    }

    /// Gives up a page, as [`Failing::lose_page`] does.
    pub fn lose_page(&mut self, id: PageId, home: Rank, access: Access, pages: &mut dyn Pages) {
        self.failing.lose_page(id, home, access, self.arrays, pages);
    }

    /// Returns how many collectives another node may have passed by now.
    #[inline]
    pub fn epoch_possible(&self) -> u64 {
        self.clock.epoch_possible(!self.mail.dead().is_empty())
    }

    /// Reports the end of an operation.
    pub fn end(&mut self, token: Token, result: Result<Value, CoherenceError>) {
        match result {
            Ok(value) => self.mail.done(token, value),
            Err(error) => self.mail.fail(token, error),
        }
    }

    /// Becomes the home of those of these pages for which this node serves as the home. A message
    /// about them shows that their moves are confirmed (COH-11.4).
    pub fn accept_homes(&mut self, array: ArrayId, pages: impl Iterator<Item = u64>) {
        let Some(known) = self.arrays.get_mut(array) else { return };
        for page in pages {
            if known.moving.offers(page) && known.become_home(page) {
                self.statistics.homes_moved += 1;
            }
        }
    }

    /// Counts a transfer that has been delivered.
    pub fn count_delivery(&mut self, delivery: Delivery) {
        let statistics = &mut *self.statistics;
        let counter = match delivery {
            Delivery::DirectMap => &mut statistics.direct_map,
            Delivery::HeaderThrough => &mut statistics.header_through,
            Delivery::MessageThrough => &mut statistics.message_through,
            Delivery::DirectDiffDecode => &mut statistics.direct_diff_decode,
            Delivery::HeaderThroughDiffDecode => &mut statistics.header_through_diff_decode,
        };
        *counter += 1;
    }
}
