//! Operations on elements of a segment (COH-16.9). An operation enters the groups of its pages
//! alone, so it is one step with respect to all other operations. A group whose holder's process
//! has ended is freed by the next one that enters.

use crate::shm::arena::points::pass_point;
use crate::shm::memory::{Memory, Ordering};
use crate::shm::planted::{Bug, planted};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::PAGE;
use std::ops::Range;

/// Number of groups of an array. Consecutive pages are in consecutive groups, round and round.
pub(super) const GROUPS: usize = 64;
/// Bytes of a group's word: a cache line.
const LINE: usize = 64;
/// Number of polls of a group before it is asked whether the holder lives.
const POLLS: u32 = 1024;

/// Bytes of the words of all groups.
pub(super) const GROUPS_LEN: usize = GROUPS * LINE;

/// Words of the groups of an array. A word is 0, or the holder's rank and one more.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    memory: Memory,
    me: u64,
}

/// Groups that an operation has entered. Leaves them when dropped.
pub(super) struct Entered<'a> {
    groups: &'a Groups,
    entered: Range<usize>,
}

impl Groups {
    /// Takes the words of the groups, which are zero at first, for the node of this rank.
    pub fn new(memory: Memory, me: Rank) -> Groups {
        Groups { memory, me: u64::from(me) + 1 }
    }

    /// Enters all groups of these bytes, in order. `has_ended` says that the process of a node has
    /// ended.
    ///
    /// # Errors
    /// Other operations stay in a group for a while: the node of one of them.
    pub fn enter(
        &self,
        bytes: &Range<u64>,
        has_ended: impl Fn(Rank) -> bool,
    ) -> Result<Entered<'_>, Option<Rank>> {
        let page = PAGE as u64;
        let (first, end) = (bytes.start / page, bytes.end.div_ceil(page));
        let count = usize::try_from(end - first).unwrap_or(usize::MAX).min(GROUPS);
        let start = (first % GROUPS as u64) as usize;
        // In the order of the groups: operations that enter several never wait in a circle.
        let wanted = if start + count > GROUPS { 0..GROUPS } else { start..start + count };
        let mut entered = Entered { groups: self, entered: wanted.start..wanted.start };
        for group in wanted {
            self.enter_one(group, &has_ended)?;
            entered.entered.end = group + 1;
            pass_point();
        }
        Ok(entered)
    }

    fn enter_one(
        &self,
        group: usize,
        has_ended: &impl Fn(Rank) -> bool,
    ) -> Result<(), Option<Rank>> {
        let (place, mut last) = (group * LINE, 0);
        for polls in 0..POLLS {
            let holder = self.memory.load(place, Ordering::Relaxed);
            if holder == 0 {
                if planted(Bug::EnterWithoutExchange) {
                    self.memory.store(place, self.me, Ordering::SeqCst);
                    return Ok(());
                }
                if self.memory.exchange(place, 0, self.me) {
                    return Ok(());
                }
            } else {
                last = holder;
            }
            pause(polls);
        }
        let rank = last.checked_sub(1).and_then(|rank| Rank::try_from(rank).ok());
        let is_over = rank.is_some_and(|rank| match has_ended(rank) {
            true => !planted(Bug::LeaveToEnded),
            false => planted(Bug::TakeOverLiving),
        });
        if is_over && self.memory.exchange(place, last, self.me) { Ok(()) } else { Err(rank) }
    }
}

#[cfg(not(all(test, loom)))]
fn pause(polls: u32) {
    // The holder may need this core.
    if polls % 64 == 63 { std::thread::yield_now() } else { std::hint::spin_loop() }
}

#[cfg(all(test, loom))]
fn pause(_: u32) {
    loom::thread::yield_now();
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        for group in self.entered.clone() {
            pass_point();
            self.groups.memory.store(group * LINE, 0, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::memory::mapping::Mapping;
    use std::sync::Arc;

    /// Returns the groups of an array for the first nodes.
    fn nodes<const N: usize>() -> [Groups; N] {
        let mapping = Arc::new(Mapping::anonymous(GROUPS_LEN).unwrap());
        let memory = Memory::new(mapping, 0, GROUPS_LEN);
        std::array::from_fn(|rank| Groups::new(memory.clone(), rank as u32))
    }

    const PAGES: u64 = PAGE as u64;

    #[test]
    fn group_of_a_living_holder_is_left_to_it() {
        let [one, other] = nodes();
        let held = one.enter(&(0..2 * PAGES), |_| false).unwrap();
        // Whether a third node lives is not the question.
        assert_eq!(other.enter(&(PAGES..PAGES + 8), |rank| rank != 0).err(), Some(Some(0)));
        assert!(other.enter(&(PAGES..3 * PAGES), |rank| rank != 0).is_err());
        // The second group was not entered meanwhile, and this one is free.
        let beside = other.enter(&(2 * PAGES..3 * PAGES), |_| false).unwrap();
        drop((held, beside));
        assert!(other.enter(&(0..3 * PAGES), |_| false).is_ok());
    }

    #[test]
    fn group_of_an_ended_holder_is_taken_over() {
        let [ended, one, other] = nodes();
        std::mem::forget(ended.enter(&(0..3 * PAGES), |_| false).unwrap());
        let has_ended = |rank| rank == 0;
        let taken = one.enter(&(PAGES..2 * PAGES), has_ended).unwrap();
        assert!(other.enter(&(0..3 * PAGES), has_ended).is_err(), "one group has a new holder");
        drop(taken);
        assert!(other.enter(&(0..3 * PAGES), has_ended).is_ok());
        assert!(one.enter(&(0..3 * PAGES), |_| false).is_ok(), "all groups are free");
    }

    #[test]
    fn operation_on_more_pages_than_there_are_groups_enters_each_group_once() {
        let [one, other] = nodes();
        for bytes in [0..100 * PAGES, 60 * PAGES..70 * PAGES, 7..7 + 64 * PAGES] {
            let all = one.enter(&bytes, |_| false).unwrap();
            for page in [0, 31, 63] {
                let start = page * PAGES;
                assert!(other.enter(&(start..start + 1), |_| false).is_err(), "{bytes:?} {page}");
            }
            drop(all);
            assert!(other.enter(&bytes, |_| false).is_ok());
        }
    }
}
