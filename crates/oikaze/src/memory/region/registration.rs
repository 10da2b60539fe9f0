//! Changes of a registration: rights, length, its end, and a new registration in its place.

use super::{Inner, LocalRegion};
use crate::error::{Error, Result};
use crate::memory::range::{OffsetRange, resolve};
use oikaze_engine::Failure;
use oikaze_os::memory::{Holder, MemoryError, Region};
use oikaze_protocol::rma::{Published, Rights};
use oikaze_runtime::node::{RealEngine, RegisteredMemory, WaitSubject};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

impl LocalRegion {
    /// Returns the region's place in the table, as long as it is registered. (A handle that a
    /// program keeps may be older than the registration that has the place now.)
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
        let granted = self.inner.node.try_engine(|engine| self.granted(engine));
        granted.unwrap_or(Rights::NONE)
    }

    /// Grants these rights to peers from now on, on every page. When this call returns, no
    /// forbidden access happens any more, not even by operations under way. A put under way is
    /// refused at its end. (Datagrams that the network has already: WIND-5.5.)
    ///
    /// # Errors
    /// The memory is lent and cannot grant these rights; the region is no longer registered.
    pub fn set_rights(&self, rights: Rights) -> Result<()> {
        self.change_rights(None, rights)
    }

    /// Grants rights as [`LocalRegion::set_rights`] does, on some pages. The range is in multiples
    /// of 4096 bytes, or extends to the region's end.
    ///
    /// # Errors
    /// As [`LocalRegion::set_rights`]; the range cuts a page, or is none.
    pub fn protect(&self, range: impl OffsetRange, rights: Rights) -> Result<()> {
        let what = || "changing the rights of pages".into();
        let range = resolve(range, self.inner.region.len() as u64, what)?;
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

    /// Makes the region longer, up to its [capacity](Region::capacity). Its memory stays where it
    /// is, and its key and number stay as they are. Peers may use the added bytes at once. A peer
    /// that looks the region up again gets the new length.
    ///
    /// # Errors
    /// `len` is less than the present length, or more than the capacity; there is not enough
    /// memory.
    pub fn grow(&self, len: usize) -> Result<()> {
        self.inner.node.check_process(|| "growing a region".into())?;
        self.inner.region.grow(len)?;
        self.tell_peers();
        Ok(())
    }

    /// Publishes the region's present length and rights under its name (MEM-6.5).
    fn tell_peers(&self) {
        let Inner { node, region, registered, name, .. } = &*self.inner;
        node.with_engine(|engine| {
            // Inside the engine, as when the name is taken away, so that the name is this region's
            // until then.
            let name = name.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(name) = name.as_deref() else { return };
            let rights = self.granted(engine);
            engine.rma().republish(
                name,
                Published { key: registered.key, len: region.len() as u64, rights },
            );
        });
    }

    /// Ends the registration, and returns the memory. When this call returns, no operation that was
    /// under way reads or writes the memory any more. (Datagrams that the network has already may
    /// be read as late as they are received: WIND-5.5.)
    ///
    /// Peers are shut out at once. The call waits for operations of this node that use the memory,
    /// within the job's time limit, and then cancels them. Later operations with clones and slices
    /// of this region fail, and so do waits for its words.
    ///
    /// # Errors
    /// - The region is no longer registered, because another clone was deregistered.
    /// - A local peer was given up, because it was stopped or faulty, in the middle of an access to
    ///   the memory ([`Error::lost_peer`]). Its process lives and may finish that one access at any
    ///   time. The region stays registered and keeps its bytes, but it has no name any more and no
    ///   operation can use it. Call this again when that process has ended or gone on. Dropping the
    ///   region and its memory is safe at any time: the kernel keeps the pages for that process.
    pub fn deregister(&self) -> Result<Region> {
        self.retire()?;
        let Inner { node, region, registered, .. } = &*self.inner;
        node.change_engine(|engine| {
            self.cut_off(engine);
            engine.remove_region(registered.slot)
        });
        Ok(region.clone())
    }

    /// Ends the registration as [`LocalRegion::deregister`] does, and registers the same memory in
    /// its place, with a new number and a new key. The old number and key are useless to those that
    /// know them. A name stays, and stands for the new registration.
    ///
    /// # Errors
    /// As [`LocalRegion::deregister`]; the memory is lent and cannot grant these rights; another
    /// region took the name meanwhile.
    pub fn reregister(&self, rights: Rights) -> Result<LocalRegion> {
        let name = self.retire()?;
        let Inner { node, region, registered, limit, .. } = &*self.inner;
        let renewed = node.change_engine(|engine| {
            self.cut_off(engine);
            let registered = engine.renew_region(registered.slot, rights)?;
            let published = Published { key: registered.key, len: region.len() as u64, rights };
            let outcome = name.as_deref().map_or(Ok(()), |name| {
                engine.rma().publish(name, published).map_err(Failure::from)
            });
            let inner = Inner {
                node: Arc::clone(node),
                region: region.clone(),
                registered,
                limit: *limit,
                name: Mutex::new(if outcome.is_ok() { name.clone() } else { None }),
                is_left_closed: AtomicBool::new(false),
                direct: super::Rundown::default(),
            };
            Ok((LocalRegion::hold(engine, inner), outcome))
        });
        let (region, outcome) = renewed.map_err(|error: MemoryError| error)?;
        let failed =
            |failure: Failure| Error::failed("registering a region again, under its name", failure);
        outcome.map(|()| region).map_err(failed)
    }

    /// Ends the registration except for its entry in the table. Returns the name that the region
    /// had.
    fn retire(&self) -> Result<Option<String>> {
        let node = &self.inner.node;
        node.check_process(|| "deregistering a region".into())?;
        // The key of the region means nothing to peers any more, and answers to them are withdrawn.
        // Later requests of this node that use the region are refused.
        let name = node.change_engine(|engine| {
            // Earlier requests may not have begun yet.
            engine.begin_waiting(node.now());
            let slot = self.slot(engine).ok_or(MemoryError::NotRegistered)?;
            // One of several concurrent calls goes on.
            let closed = engine.close_region(slot);
            if !closed && !self.inner.is_left_closed.swap(false, Ordering::Relaxed) {
                return Err(MemoryError::NotRegistered);
            }
            // If two clones end at once, one of them ends the registration and gets the name.
            let name = self.inner.take_name();
            if let Some(name) = &name {
                engine.rma().withdraw(name);
            }
            Ok(name)
        })?;
        self.inner.direct.close();
        let memory: Arc<dyn RegisteredMemory> = Arc::<Inner>::clone(&self.inner);
        node.mail.end_receives_into(&memory);
        // Some threads may wait for a word of the region.
        node.tell_waiters();
        self.wait_for_own_operations();
        self.wait_for_others();
        self.check_unused(name.as_deref())?;
        Ok(name)
    }

    /// Returns an error if a local peer that was given up is in the middle of an access. Nobody
    /// waits for that peer, which may be stopped for ever (MEM-18.6).
    fn check_unused(&self, name: Option<&str>) -> Result<()> {
        let Inner { node, region, is_left_closed, .. } = &*self.inner;
        let Some(peer) = node.with_engine(|engine| engine.shm_mut().wedged_inside(region)) else {
            return Ok(());
        };
        is_left_closed.store(true, Ordering::Relaxed);
        let what = match name {
            Some(name) => format!("deregistering the region \"{name}\""),
            None => format!("deregistering a region of {} bytes", region.len()),
        };
        Err(Error::failed(what, Failure::InUse { peer }))
    }

    /// Waits for operations of this node that use the memory and are not settled.
    fn wait_for_own_operations(&self) {
        let Inner { node, limit, .. } = &*self.inner;
        let holder: Holder = self.inner.clone();
        // Another user of the region may be a clone. Checking the operations in flight takes
        // longer.
        let unused = || {
            Arc::strong_count(&self.inner) == 2
                || !node.with_engine(|engine| engine.ops().is_kept(&holder))
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

    /// Waits for local peers that have mapped the memory, and for threads of this node. Both reach
    /// the memory without asking this node's engine for each access. New accesses are already
    /// refused (MEM-18.3).
    fn wait_for_others(&self) {
        self.wait_for_local_peers();
        let Inner { node, region, direct, .. } = &*self.inner;
        // An exchange of pages that a local peer was asked for takes no longer than its answer, or
        // its death.
        let reached = || region.pages_are_locked() || direct.is_draining();
        node.wait(None, || (!reached()).then_some(()));
    }

    /// Waits for local peers that are inside an access, which takes no longer than a copy. A local
    /// peer that stays longer is given up. A local peer that dies there is no longer one.
    pub(super) fn wait_for_local_peers(&self) {
        let Inner { node, region, .. } = &*self.inner;
        let reached = || node.with_engine(|engine| engine.shm().is_reached(region));
        let deadline =
            Instant::now().checked_add(node.with_engine(|engine| engine.shm().leave_time(region)));
        if node.wait(deadline, || (!reached()).then_some(())).is_none() {
            node.change_engine(|engine| engine.give_up_peers_inside(region, node.now()));
        }
    }
}
