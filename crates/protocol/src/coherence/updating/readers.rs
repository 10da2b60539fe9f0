//! History of the readers of one page, which its home keeps (COH-10.18).

use crate::Rank;
use alloc::vec::Vec;

/// History of one page, kept by its home from the first fetch on.
#[derive(Clone, Debug, Default)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Readers {
    /// Epoch of the last change, and of the last change before that epoch.
    changed: u64,
    before: Option<u64>,
    /// Last change that each node's last demand came after.
    pub demands: Vec<(Rank, u64)>,
    pub subscribers: Vec<Rank>,
}

impl Readers {
    /// Records a change of the page.
    pub fn change(&mut self, epoch: u64) {
        if self.changed != epoch {
            self.before = Some(core::mem::replace(&mut self.changed, epoch));
        }
    }

    /// Records a demand. Returns `true` if the node is subscribed from now on (COH-10.18).
    pub fn demand(&mut self, from: Rank) -> bool {
        if self.subscribers.contains(&from) {
            return false;
        }
        match self.demands.iter_mut().find(|(rank, _)| *rank == from) {
            Some((_, after)) => {
                let last = core::mem::replace(after, self.changed);
                if Some(last) != self.before {
                    return false;
                }
                self.subscribers.push(from);
                true
            }
            None => {
                self.demands.push((from, self.changed));
                false
            }
        }
    }
}
