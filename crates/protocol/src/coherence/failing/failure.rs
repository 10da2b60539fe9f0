//! Reasons for which shared memory ends on this node (COH-8). Nobody waits for ever, and every
//! error is reported.

use crate::Rank;
use crate::coherence::failing::doing::Doing;
use crate::coherence::mailbox::Mailbox;
use crate::coherence::pages::machine::{Access, Pages};
use crate::coherence::pages::page::{PageId, PageState};
use crate::coherence::pages::table::Arrays;
use crate::coherence::types::CoherenceError;
use crate::limits::PAGE;
use crate::wind::Refusal;
use alloc::string::ToString;
use alloc::vec;

/// First page that was read with old bytes.
#[derive(Clone, Debug)]
#[cfg_attr(test, derive(Hash))]
struct Lost {
    page: PageId,
    home: Rank,
}

/// Failures of this node that cannot be made good any more.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone, Hash))]
pub(crate) struct Failing {
    lost_page: Option<Lost>,
    /// Rank of a dead home that did not receive this node's changes.
    lost_diff: Option<Rank>,
    broken: Option<CoherenceError>,
    /// `true` until the waiting operations have failed, after shared memory broke.
    is_news: bool,
    /// `true` once this node has passed its last collective.
    pub left: bool,
}

impl Failing {
    /// Returns why shared memory is broken on this node, if it is.
    #[inline]
    pub fn broken(&self) -> Option<&CoherenceError> {
        self.broken.as_ref()
    }

    /// Returns the rank of a dead home that did not receive this node's changes.
    #[inline]
    pub fn lost_diff(&self) -> Option<Rank> {
        self.lost_diff
    }

    /// Records that changes did not reach their home because it is dead.
    pub fn lose_diff(&mut self, home: Rank) {
        self.lost_diff.get_or_insert(home);
    }

    /// Returns why a synchronisation cannot succeed any more, whatever nodes it needs.
    fn impediment(&self, doing: &Doing, arrays: &Arrays) -> Option<CoherenceError> {
        if self.left {
            return Some(CoherenceError::Left { doing: doing.to_string() });
        }
        if let Some(broken) = &self.broken {
            return Some(broken.clone());
        }
        let lost = self.lost_page.as_ref()?;
        let array = arrays.get(lost.page.0).map(|array| array.name.clone()).unwrap_or_default();
        let (doing, page) = (doing.to_string(), lost.page.1);
        Some(CoherenceError::PageLost { doing, array, page, rank: lost.home })
    }

    /// Returns why a collective, which needs every node, cannot succeed.
    pub fn collective_impediment(
        &self,
        doing: &Doing,
        arrays: &Arrays,
        mail: &Mailbox,
    ) -> Option<CoherenceError> {
        let dead = || {
            let rank = mail.first_dead()?;
            Some(CoherenceError::NodeDead { doing: doing.to_string(), rank })
        };
        self.impediment(doing, arrays).or_else(dead)
    }

    /// Returns why this lock cannot be acquired or given back.
    pub fn lock_impediment(
        &self,
        doing: &Doing,
        lock: u64,
        arrays: &Arrays,
        mail: &Mailbox,
    ) -> Option<CoherenceError> {
        let manager = mail.manager(lock);
        let dead = || {
            let rank = self.lost_diff.or_else(|| mail.is_dead(manager).then_some(manager))?;
            Some(CoherenceError::NodeDead { doing: doing.to_string(), rank })
        };
        self.impediment(doing, arrays).or_else(dead)
    }

    /// Gives up a page that cannot be fetched. The thread goes on with its last bytes, and the next
    /// synchronisation reports that (COH-8.3).
    pub fn lose_page(
        &mut self,
        id: PageId,
        home: Rank,
        access: Access,
        arrays: &mut Arrays,
        pages: &mut dyn Pages,
    ) {
        self.lost_page.get_or_insert(Lost { page: id, home });
        pages.lost(id.0, id.1, home);
        if let Some(array) = arrays.get_mut(id.0) {
            array.set(id.1, PageState::Read);
        }
        // The page may never have been here, and a page that was never written through the alias
        // cannot be mapped.
        let mut last = vec![0u8; PAGE];
        pages.read(id.0, id.1, &mut last);
        pages.write(id.0, id.1 * PAGE as u64, &last);
        if access == Access::Write {
            arrays.make_twin(id, pages);
        }
        pages.install(id.0, id.1..id.1 + 1, access);
    }

    /// Called when a message was refused, or a message to this node itself made no sense. Shared
    /// memory cannot go on. Every pending and later synchronisation of this node fails, and takes
    /// part in collectives only to make them fail everywhere (COH-8.4).
    pub fn break_down(&mut self, doing: &Doing, rank: Rank, refusal: Refusal) {
        self.break_with(CoherenceError::Refused { doing: doing.to_string(), rank, refusal });
    }

    /// Breaks shared memory on this node if the machine could not make a change (COH-8.5).
    #[inline]
    pub fn check_machine(&mut self, pages: &dyn Pages) {
        if self.broken.is_none()
            && let Some(why) = pages.failure()
        {
            self.break_with(CoherenceError::Machine(why.into()));
        }
    }

    /// Called when this node does not hear of moves of homes because a node is dead. It may know
    /// wrong homes from now on (COH-11.7).
    pub fn lose_moves(&mut self, rank: Rank) {
        self.break_with(CoherenceError::NodeDead { doing: Doing::Barrier.to_string(), rank });
    }

    fn break_with(&mut self, error: CoherenceError) {
        if !self.left && self.broken.is_none() {
            self.broken = Some(error);
            self.is_news = true;
        }
    }

    /// Takes the reason for which shared memory has broken since the last call. The operations that
    /// wait must fail with it.
    #[inline]
    pub fn take_news(&mut self) -> Option<CoherenceError> {
        core::mem::take(&mut self.is_news).then(|| self.broken.clone()).flatten()
    }
}
