//! States of pages whose homes move (COH-11): the old home keeps a copy, and another copy becomes
//! the home.

use crate::coherence::pages::array::Array;
use crate::coherence::pages::page::PageState;
use crate::planted::{Bug, planted};
use crate::wind::Refusal;
use alloc::vec::Vec;
use core::ops::Range;

impl Array {
    /// Returns `true` if this node serves fetches and changes of a page.
    #[inline]
    pub fn serves(&self, page: u64) -> bool {
        self.state(page).is_home() || self.moving.offers(page)
    }

    /// Checks that this node serves these pages. One whose home has moved is elsewhere (COH-11.5).
    pub fn check_served(&self, pages: Range<u64>) -> Result<(), Refusal> {
        match pages.into_iter().find(|page| !self.serves(*page)) {
            None => Ok(()),
            Some(page) if self.moving.home(page).is_some() && !planted(Bug::RefuseMovedPages) => {
                Err(Refusal::Moved)
            }
            Some(_) => Err(Refusal::NotPermitted),
        }
    }

    /// Returns `true` if the page is homed here and may get another home in the round that is under
    /// way. A twin then tells what is stored there (COH-11.6).
    #[inline]
    pub fn may_leave(&self, page: u64) -> bool {
        self.moving.is_proposed(page)
            && self.state(page).is_home()
            && !planted(Bug::ForgetStoresOfOldHome)
    }

    /// Returns `true` if no node sends an update of a page, because it is homed here. An update may
    /// come late for a page that has moved here, and early for one that moves away (COH-11.6).
    pub fn refuses_updates(&self, page: u64) -> bool {
        let moving = &self.moving;
        let may_have_moved =
            moving.home(page).is_some() || moving.offers(page) || moving.is_proposed(page);
        self.state(page).is_home() && !may_have_moved
    }

    /// Returns `true` if the home of a page is elsewhere and the copy here is valid.
    fn has_valid_copy(&self, page: u64) -> bool {
        matches!(self.state(page), PageState::Read | PageState::Write)
    }

    /// Returns the pages for which this node asks after `epoch` collectives (COH-11.1).
    pub fn asked(&self, epoch: u64) -> impl Iterator<Item = u64> + '_ {
        let may_ask = self.moving.may_ask && self.agreed;
        let wanted = may_ask.then(|| self.moving.wanted(epoch)).into_iter().flatten();
        let is_copy = |page: u64| match planted(Bug::MoveInvalidPages) {
            true => !self.state(page).is_home(),
            false => self.has_valid_copy(page),
        };
        wanted.filter(move |page| is_copy(*page))
    }

    /// Returns those of these pages whose homes are elsewhere and whose copies here are valid.
    pub fn valid_copies(&self, pages: Range<u64>) -> Vec<u64> {
        pages.filter(|page| self.has_valid_copy(*page)).collect()
    }

    /// Begins to serve as the home of these pages (COH-11.4).
    pub fn offer(&mut self, pages: &[u64]) {
        pages.iter().for_each(|page| self.moving.offer(*page));
    }

    /// Counts these pages homed here as shared, because another node has a copy or gets one.
    /// Returns those whose stores must trap from now on.
    pub fn share(&mut self, pages: Range<u64>) -> Vec<u64> {
        let mut mapped = Vec::new();
        let noticed: Vec<u64> = self.noticed.range(pages.clone()).map(|(page, _)| *page).collect();
        noticed.iter().for_each(|page| {
            self.noticed.remove(page);
        });
        for page in pages {
            match self.state(page) {
                PageState::HomeUntouched => self.set(page, PageState::HomeShared),
                PageState::HomePrivate => {
                    self.set(page, PageState::HomeRead);
                    mapped.push(page);
                }
                _ => {}
            }
        }
        if self.guarded { Vec::new() } else { mapped }
    }

    /// Becomes the home of a page that this node serves already. Another node that comes with a
    /// fetch or a change knows that the page has moved. Nothing changes in the machine, because the
    /// copy is valid. Returns `false` if this node is the home already.
    pub fn become_home(&mut self, page: u64) -> bool {
        match self.state(page) {
            PageState::Read => self.set(page, PageState::HomeRead),
            PageState::Write => self.set(page, PageState::HomeWrite),
            _ => return false,
        }
        if let Some(subscribers) = self.remote_subscribers.remove(&page) {
            self.readers.entry(page).or_default().subscribers = subscribers;
        }
        // Writers are told the list when their next changes come.
        self.subscription += 1;
        self.statistics.homes_moved += 1;
        true
    }

    /// Keeps the copy of a page that was homed here. What this node has stored since it arrived is
    /// a change of a copy from now on, which a twin or guards tell (COH-11.6).
    fn become_copy(&mut self, page: u64) {
        let state = match self.state(page) {
            PageState::HomeRead => PageState::Read,
            PageState::HomeWrite => PageState::Write,
            _ => PageState::Invalid,
        };
        self.set(page, state);
        self.readers.remove(&page);
        self.noticed.remove(&page);
    }

    /// Keeps copies of those of these pages that were homed here.
    pub fn leave_home(&mut self, pages: Range<u64>) {
        for page in pages {
            if self.state(page).is_home() {
                self.become_copy(page);
            }
        }
    }
}
