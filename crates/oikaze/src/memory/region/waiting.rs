//! Waits for a word of a region that peers change.

use super::{Inner, LocalRegion};
use crate::error::Result;
use oikaze_engine::Failure;
use oikaze_os::cpu::between_looks;
use oikaze_os::memory::{MemoryError, RegionKind};
use oikaze_protocol::Rank;
use oikaze_runtime::node::{LongWait, Needs, WaitSubject, next_or_end};
use std::time::{Duration, Instant};

impl LocalRegion {
    /// Waits until the 64-bit word at `offset` satisfies `until`, and returns the word. Peers
    /// change the word by signals and atomics. `until` is called once, and again whenever the word
    /// has changed. The job's time limit applies.
    ///
    /// # Errors
    /// The offset is bad; the time limit passed; the region is no longer registered; all other
    /// nodes are lost, or this one has left.
    #[track_caller]
    pub fn wait_until(&self, offset: u64, until: impl FnMut(u64) -> bool) -> Result<u64> {
        self.wait_within(None, offset, self.inner.limit, until)
    }

    /// Waits as [`LocalRegion::wait_until`] does, with this time limit.
    ///
    /// # Errors
    /// As [`LocalRegion::wait_until`].
    #[track_caller]
    pub fn wait_until_for(
        &self,
        offset: u64,
        limit: Duration,
        until: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        self.wait_within(None, offset, Some(limit), until)
    }

    /// Waits as [`LocalRegion::wait_until`] does, for a word that this peer is to change. If the
    /// peer is lost, the wait ends.
    ///
    /// # Errors
    /// As [`LocalRegion::wait_until`]; the peer is lost.
    #[track_caller]
    pub fn wait_until_by(
        &self,
        peer: Rank,
        offset: u64,
        until: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        self.wait_within(Some(peer), offset, self.inner.limit, until)
    }

    /// Waits as [`LocalRegion::wait_until_by`] does, with this time limit.
    ///
    /// # Errors
    /// As [`LocalRegion::wait_until_by`].
    #[track_caller]
    pub fn wait_until_by_for(
        &self,
        peer: Rank,
        offset: u64,
        limit: Duration,
        until: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        self.wait_within(Some(peer), offset, Some(limit), until)
    }

    #[inline]
    #[track_caller]
    fn wait_within(
        &self,
        by: Option<Rank>,
        offset: u64,
        limit: Option<Duration>,
        mut until: impl FnMut(u64) -> bool,
    ) -> Result<u64> {
        let Inner { node, region, .. } = &*self.inner;
        node.check_process(|| format!("waiting for the word at offset {offset} of a region"))?;
        by.map_or(Ok(()), |rank| node.departures.check_rank(rank))?;
        let (mut begun, mut changes) = (None, 0);
        let subject = || WaitSubject::Word { offset, region: self.name(), by };
        let mut long = None;
        let mut word = region.load_u64(offset)?;
        // `until` may touch shared arrays or wait itself, so it is never called while this thread
        // drives the engine.
        while !until(word) {
            // Others may change the word without end to values that do not satisfy `until`.
            if changes == CHANGES {
                let begun: Instant = *begun.get_or_insert_with(Instant::now);
                let end = self.nobody_changes_it(by);
                if end.is_some() || limit.is_some_and(|limit| begun.elapsed() >= limit) {
                    // All changes before that end are visible now.
                    word = region.load_u64(offset)?;
                    return if until(word) {
                        Ok(word)
                    } else {
                        self.awaited(offset, begun, end.map(Err))
                    };
                }
                changes = 0;
            }
            changes += 1;
            let changed = || region.load_u64(offset).ok().filter(|&now| now != word);
            // No turn reports a store of a local peer, so spinning on the word alone sees it
            // soonest.
            if let Some(now) = self.may_be_stored_to().then(|| spin(changed)).flatten() {
                word = now;
                continue;
            }
            let begun = *begun.get_or_insert_with(Instant::now);
            let long = match &mut long {
                Some(long) => long,
                // Not in a closure, which has a place of its own.
                none => none.insert(LongWait::new(&self.inner.node, &subject)),
            };
            word = self.wait_for_change(by, offset, word, (begun, long), limit)?;
        }
        Ok(word)
    }

    /// Waits by driving the engine, or by sleeping. A function of its own, so that the spinning
    /// path does not bear its cost.
    #[inline(never)]
    fn wait_for_change(
        &self,
        by: Option<Rank>,
        offset: u64,
        word: u64,
        (begun, long): (Instant, &mut LongWait<'_>),
        limit: Option<Duration>,
    ) -> Result<u64> {
        let Inner { node, region, .. } = &*self.inner;
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let changed = || region.load_u64(offset).ok().filter(|&now| now != word);
        let word = node
            .wait_within(long, deadline, || next_or_end(changed, || self.nobody_changes_it(by)));
        self.awaited(offset, begun, word)
    }

    /// Returns why no node changes the word any more, if that is so.
    fn nobody_changes_it(&self, by: Option<Rank>) -> Option<Failure> {
        let Inner { node, direct, .. } = &*self.inner;
        direct
            .is_closed()
            .then_some(MemoryError::NotRegistered.into())
            .or_else(|| node.departures.loss_of(by, Needs::Memory))
    }

    /// Returns the word that the wait has brought. The error says that no node changes the word any
    /// more, or that the wait has lasted too long.
    #[inline(never)]
    fn awaited(
        &self,
        offset: u64,
        begun: Instant,
        brought: Option<Result<u64, Failure>>,
    ) -> Result<u64> {
        self.inner.node.awaited(
            || format!("waiting for the word at offset {offset} of a region"),
            begun,
            brought,
        )
    }

    /// Returns `true` if a local peer may have mapped the region.
    fn may_be_stored_to(&self) -> bool {
        self.inner.region.kind() == RegionKind::Shared && self.inner.node.spins_on_words()
    }
}

/// Changes of an awaited word between two checks of the clock and of lost nodes.
const CHANGES: u32 = 64;

/// Busy polls for some microseconds.
fn spin<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    const LOOKS: u32 = 256;
    for _ in 0..LOOKS {
        if let Some(found) = look() {
            return Some(found);
        }
        between_looks();
    }
    None
}
