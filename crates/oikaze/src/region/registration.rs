//! A registration that changes: rights, length, its end, and a new one in its place.

use super::{Inner, LocalRegion};
use crate::engine::Failure;
use crate::node::{RealEngine, WaitSubject};
use crate::{Error, RegionId, Result};
use oikaze_os::memory::{Holder, MemoryError, Region};
use oikaze_protocol::rma::{Published, Rights};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

impl LocalRegion {
    /// Its number on this node, for operations by numbers
    /// ([`Job::transfer`](crate::Job::transfer)).
    #[must_use]
    pub fn id(&self) -> RegionId {
        self.inner.registered.id
    }

    /// Its place in the table, as long as it is registered. (A handle that a program keeps may be
    /// older than the registration that has the place now.)
    fn slot(&self, engine: &mut RealEngine) -> Option<u32> {
        engine.memory().slot(self.inner.registered.id)
    }

    fn granted(&self, engine: &mut RealEngine) -> Rights {
        let slot = self.slot(engine);
        slot.and_then(|slot| engine.memory().rights(slot)).unwrap_or(Rights::NONE)
    }

    /// Returns the rights of peers on every page that [`LocalRegion::protect`] has not singled out.
    /// A child of fork gets no rights.
    #[must_use]
    pub fn rights(&self) -> Rights {
        if self.inner.node.is_forked() {
            return Rights::NONE;
        }
        self.inner.node.with_engine(|engine| self.granted(engine))
    }

    /// Grant this to peers from now on, on every page. What it forbids does not happen any more
    /// when this returns, also not for operations under way; a put under way is refused at its end.
    /// (Datagrams that the network has already: WIND-5.5.)
    ///
    /// # Errors
    /// Rights that lent memory cannot grant; the region is not registered any more.
    pub fn set_rights(&self, rights: Rights) -> Result<()> {
        self.change_rights(None, rights)
    }

    /// As [`LocalRegion::set_rights`], of some pages: bytes in multiples of 4096, or to the
    /// region's end.
    ///
    /// # Errors
    /// As [`LocalRegion::set_rights`]; a range that cuts pages.
    pub fn protect(&self, range: Range<u64>, rights: Rights) -> Result<()> {
        self.change_rights(Some(range), rights)
    }

    fn change_rights(&self, pages: Option<Range<u64>>, rights: Rights) -> Result<()> {
        self.inner.node.check_process(|| "changing the rights of a region".into())?;
        self.inner.node.change_engine(|engine| {
            let slot = self.slot(engine).ok_or(MemoryError::NotRegistered)?;
            engine.set_rights(slot, pages, rights)
        })?;
        self.wait_for_others();
        self.tell_peers();
        Ok(())
    }

    /// Make it longer, up to its [capacity](Region::capacity): its memory stays where it is, its
    /// key and number stay as they are. Peers may use what was added at once; those that look it up
    /// again are told the new length.
    ///
    /// # Errors
    /// Shorter than it is, or longer than its capacity; not enough memory.
    pub fn grow(&self, len: usize) -> Result<()> {
        self.inner.node.check_process(|| "growing a region".into())?;
        self.inner.region.grow(len)?;
        self.tell_peers();
        Ok(())
    }

    /// The name stands for what the region is now (MEM-6.5).
    fn tell_peers(&self) {
        let Inner { node, region, registered, name, .. } = &*self.inner;
        node.with_engine(|engine| {
            // In the engine, as whoever takes the name away: it is this region's until then.
            let name = name.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(name) = name.as_deref() else { return };
            let rights = self.granted(engine);
            engine.republish(
                name,
                Published { key: registered.key, len: region.len() as u64, rights },
            );
        });
    }

    /// End the registration, and have the memory back: when this returns, nothing that was under
    /// way reads or writes it any more (but for datagrams that the network has already, which may
    /// be read as late as they are received: WIND-5.5). Peers are shut out at once; operations of
    /// this node that use the memory are waited for within the job's time limit, and cancelled
    /// then. What is begun with clones and slices of this region afterwards fails, and so does
    /// waiting for its words.
    ///
    /// If a local peer is in the middle of writing there that was given up while its process lives
    /// (somebody has stopped it), the memory moves to other pages, at the same addresses, and what
    /// is written there by others in the course of this call may be lost.
    ///
    /// # Errors
    /// It is not registered any more: another clone was deregistered. There are no other pages for
    /// the memory to move to.
    pub fn deregister(self) -> Result<Region> {
        self.retire()?;
        let Inner { node, region, registered, .. } = &*self.inner;
        node.change_engine(|engine| {
            self.cut_off(engine);
            engine.remove_region(registered.slot)
        });
        Ok(region.clone())
    }

    /// End the registration as [`LocalRegion::deregister`] does, and register the same memory in
    /// its place, with a new number and a new key: who knew the old ones can do nothing with them.
    /// A name stays, and stands for the new registration.
    ///
    /// # Errors
    /// As [`LocalRegion::deregister`]; rights that lent memory cannot grant; another region took
    /// the name meanwhile.
    pub fn reregister(self, rights: Rights) -> Result<LocalRegion> {
        let name = self.retire()?;
        let Inner { node, region, registered, limit, .. } = &*self.inner;
        let renewed = node.change_engine(|engine| {
            self.cut_off(engine);
            let registered = engine.renew_region(registered.slot, rights)?;
            let published = Published { key: registered.key, len: region.len() as u64, rights };
            let outcome = name.as_deref().map_or(Ok(()), |name| engine.publish(name, published));
            let inner = Inner {
                node: Arc::clone(node),
                region: region.clone(),
                registered,
                limit: *limit,
                name: Mutex::new(if outcome.is_ok() { name.clone() } else { None }),
                direct: super::Hazard::default(),
            };
            Ok((LocalRegion::hold(engine, inner), outcome))
        });
        let (region, outcome) = renewed.map_err(|error: MemoryError| error)?;
        let failed =
            |failure: Failure| Error::failed("registering a region again, under its name", failure);
        outcome.map(|()| region).map_err(failed)
    }

    /// The end of the registration but for its entry; the name it had.
    fn retire(&self) -> Result<Option<String>> {
        let node = &self.inner.node;
        node.check_process(|| "deregistering a region".into())?;
        // Peers: their key means nothing any more, answers to them are withdrawn. What this node
        // asks for with it from here on is refused.
        let name = node.change_engine(|engine| {
            // What it was asked for before may not be begun yet.
            engine.begin_waiting(node.now());
            let slot = self.slot(engine).ok_or(MemoryError::NotRegistered)?;
            if !engine.close_region(slot) {
                return Err(MemoryError::NotRegistered);
            }
            // Of two clones that end at once, one ends the registration and has the name.
            let name = self.inner.take_name();
            if let Some(name) = &name {
                engine.unpublish(name);
            }
            Ok(name)
        })?;
        self.inner.direct.end();
        // Some may wait for a word of it.
        node.tell_waiters();
        self.wait_for_own_operations();
        self.wait_for_others();
        self.leave_to_wedged_peers()?;
        Ok(name)
    }

    /// Moves this node's memory away from a peer that is in the middle of an access and cannot be
    /// waited for. That peer goes on with memory that belongs to no node (MEM-18.6).
    fn leave_to_wedged_peers(&self) -> Result<()> {
        let Inner { node, region, registered, .. } = &*self.inner;
        let inside = node.change_engine(|engine| {
            // Nothing of this node's own is written there meanwhile.
            self.cut_off(engine);
            engine.is_held(region)
        });
        if !inside {
            return Ok(());
        }
        // The same memory may be registered under another number, too, and mapped by others.
        self.keep_local_peers_out();
        // An exchange under another number takes no longer than its answer.
        let lock = node.wait(None, || region.lock_pages());
        let left = lock.map_or(Ok(()), |lock| lock.leave_memory());
        // Without other memory, it can be had when the local peer has left it meanwhile.
        if let Err(why) = left
            && node.with_engine(|engine| engine.is_held(region))
        {
            node.change_engine(|engine| engine.remove_region(registered.slot));
            return Err(Error::invalid(
                "having memory back that a local peer is in the middle of writing, which was given up while its process lives",
                format!("{why}; use the memory again when that process has gone on, or has ended"),
            ));
        }
        Ok(())
    }

    /// Waits for operations of this node that use the memory and are not settled.
    fn wait_for_own_operations(&self) {
        let Inner { node, limit, .. } = &*self.inner;
        let holder: Holder = self.inner.clone();
        // Who else counts the region may be a clone; looking through the operations in flight takes
        // longer.
        let unused = || {
            Arc::strong_count(&self.inner) == 2
                || !node.with_engine(|engine| engine.is_kept(&holder))
        };
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        let subject =
            || WaitSubject::other("operations that use a region to end before it is deregistered");
        let _: Option<()> = node.wait_on(&subject, deadline, || unused().then_some(()));
    }

    /// Cancels operations that have not ended in time. This happens in the same entry to the engine
    /// as the end of the registration, so that nothing gets in between.
    fn cut_off(&self, engine: &mut RealEngine) {
        if Arc::strong_count(&self.inner) > 1 {
            let holder: Holder = self.inner.clone();
            engine.cancel_keeping(&holder);
        }
    }

    /// Waits for those that reach the memory without asking this node's engine for each access:
    /// local peers that have mapped it, and threads of this node. New accesses are already refused
    /// (MEM-18.3).
    fn wait_for_others(&self) {
        self.wait_for_local_peers();
        let Inner { node, region, direct, .. } = &*self.inner;
        // An exchange of pages that a local peer was asked for takes no longer than its answer, or
        // its death.
        let reached = || region.pages_are_locked() || direct.is_ending();
        node.wait(None, || (!reached()).then_some(()));
    }

    /// Nobody stays inside for longer than a copy takes: who does is given up, and one that dies
    /// there is no local peer any more.
    pub(super) fn wait_for_local_peers(&self) {
        let Inner { node, region, .. } = &*self.inner;
        let reached = || node.with_engine(|engine| engine.is_reached(region));
        let deadline =
            Instant::now().checked_add(node.with_engine(|engine| engine.leave_time(region)));
        if node.wait(deadline, || (!reached()).then_some(())).is_none() {
            node.change_engine(|engine| engine.give_up_who_reaches(region, node.now()));
        }
    }
}
