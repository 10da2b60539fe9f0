//! Pages of an array that were lost with their homes. A thread that touched one continues with old
//! bytes (COH-8.3).

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::processes::signals::locked;
use oikaze_protocol::Rank;
use oikaze_protocol::limits::PAGE;

use super::shared_memory::SharedMemory;

/// Lost pages, each with the rank of its home.
#[derive(Debug, Default)]
pub(super) struct LostPages {
    /// Set when the list is not empty, so that guards search it only then.
    are_any: AtomicBool,
    list: Mutex<Vec<(u64, Rank)>>,
}

impl LostPages {
    pub fn add(&self, page: u64, home: Rank) {
        locked(|| self.list.lock().unwrap_or_else(PoisonError::into_inner)).push((page, home));
        self.are_any.store(true, Ordering::Release);
    }
}

impl SharedMemory {
    /// Returns a page with any of these bytes that was lost with its home, and the home's rank. The
    /// bytes in it are old (COH-8.8).
    #[must_use]
    pub fn lost_page(&self, bytes: &Range<usize>) -> Option<(u64, Rank)> {
        if !self.lost.are_any.load(Ordering::Acquire) || bytes.is_empty() {
            return None;
        }
        let pages = (bytes.start / PAGE) as u64..bytes.end.div_ceil(PAGE) as u64;
        let list = locked(|| self.lost.list.lock().unwrap_or_else(PoisonError::into_inner));
        list.iter().find(|(page, _)| pages.contains(page)).copied()
    }
}
