//! Turns of a node's engine, and what follows from them.

use super::driver::WordPolls;
use super::driver::lock::CombiningLockGuard;
use super::parts::Node;
use super::parts::access::Access;
use super::parts::engine::RealEngine;
use oikaze_engine::{Request, Work};
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::cell::Cell;
use std::sync::atomic::{Ordering, fence};

impl Node {
    /// Runs `look` on the engine between turns. Callers refuse a child of fork before
    /// ([`Node::check_process`]).
    pub fn with_engine<T>(&self, look: impl FnOnce(&mut RealEngine) -> T) -> T {
        let access = self.access();
        if access == Access::Refused {
            // The engine may be in the middle of a turn of the parent's, and its rings are the
            // parent's.
            eprintln!(
                "oikaze: using the engine: {} (a defect of Oikaze, please report it); this process ends",
                self.forked()
            );
            std::process::abort();
        }
        let masked = self.engine.mask_for_entry();
        let visit = (access == Access::Requests).then(|| self.threads.engine_thread.visit());
        let value = look(&mut self.engine.enter());
        drop(visit);
        drop(masked);
        // Submissions that found the engine taken meanwhile.
        self.after_leaving();
        value
    }

    /// Runs `look` on the engine as [`Node::with_engine`] does. Returns `None` in a child of fork.
    pub fn try_engine<T>(&self, look: impl FnOnce(&mut RealEngine) -> T) -> Option<T> {
        self.enter().map(|node| node.with_engine(look))
    }

    /// Runs one turn, unless another thread is in one. That thread sees this thread's submissions.
    pub fn try_turn(&self, now: Time) -> Option<Work> {
        self.run_turns(now, RealEngine::turn)
    }

    pub(super) fn run_turns(
        &self,
        now: Time,
        turn: impl FnMut(&mut RealEngine, Time) -> Work,
    ) -> Option<Work> {
        match self.access() {
            Access::Refused => None,
            Access::Requests => {
                self.ring_engine();
                None
            }
            Access::Turns | Access::OwnTurns => {
                let _masked = self.engine.mask_for_turns();
                Some(self.run_turns_in(self.engine.try_enter()?, now, turn))
            }
        }
    }

    pub(super) fn run_turns_in<'n>(
        &'n self,
        engine: CombiningLockGuard<'n, RealEngine>,
        now: Time,
        mut turn: impl FnMut(&mut RealEngine, Time) -> Work,
    ) -> Work {
        debug_assert!(self.access().runs_turns(), "only the engine's own thread runs turns");
        let mut total = Work::default();
        let mut first = Some(now);
        let has_doorbell = Cell::new(false);
        let mut link_end = None;
        let one = |engine: &mut RealEngine| {
            let now = first.take().unwrap_or_else(|| self.now());
            let work = turn(engine, now);
            let next = self.clock.due(engine);
            self.collect(engine);
            has_doorbell.set(has_doorbell.get() | engine.shm_mut().take_doorbell());
            if let Some(why) = engine.take_link_end() {
                link_end = Some(why);
            }
            let without = self.coherence.without_engine();
            let mail = self.mail.mailbox.len();
            self.publisher.publish_if_due(engine, mail, without, now, || self.waits.board_text());
            total.add(work);
            if work.requests > 0 {
                self.threads.driver.note_request();
            }
            (work, next.unwrap_or(Time(u64::MAX)))
        };
        self.engine.run(engine, one, |work, next, sooner| {
            if sooner || work.more || work.settled > 0 || work.received > 0 {
                self.announce(work, next);
            }
            if has_doorbell.take() {
                self.threads.driver.wake_sleepers();
            }
        });
        if let Some(why) = link_end {
            // SERVE-5.2: no peer can be reached any more.
            self.departures.end_aborted(self, &why);
        }
        self.collectives.tick(now);
        self.collectives.run(self);
        self.coherence.calls.advance(self);
        if self.coherence.calls.has_granted_lock() {
            self.threads.driver.wake_waiters();
        }
        total
    }

    #[inline]
    pub(super) fn after_leaving(&self) {
        if self.engine.is_asked() {
            self.try_turn(self.now());
        }
    }

    /// Takes the events for the user out of the engine.
    pub(super) fn collect(&self, engine: &mut RealEngine) {
        self.mail.deposit(self, engine);
        while let Some(parcel) = engine.inbox().take_parcel() {
            self.collectives.deposit(parcel);
        }
        while let Some(death) = engine.inbox().take_death() {
            self.departures.note_death(death);
            self.wake_tasks();
        }
        while let Some(leaving) = engine.inbox().take_leaving() {
            self.departures.note_leaving(leaving);
            self.wake_tasks();
        }
        while let Some(warning) = engine.inbox().take_warning() {
            oikaze_os::signals::print_line(&format!(
                "oikaze: node {}: {warning}",
                self.bootstrap.rank()
            ));
        }
    }

    /// Wakes the tasks that wait for another node, because nodes have ended.
    pub(super) fn wake_tasks(&self) {
        self.mail.fail_posted(self);
        self.collectives.wake_all();
        self.mail.arrivals.wake_all();
    }

    /// Tells sleeping threads what a turn has changed, and when the next is due.
    pub(super) fn announce(&self, work: Work, next: Time) {
        // A thread that is about to sleep sees all changes made before its sleep time is read,
        // because it checks once more before it sleeps.
        fence(Ordering::SeqCst);
        let news = work.settled > 0 || work.received > 0;
        if news {
            self.wake_waiters(work.settled > 0);
        }
        self.threads.driver.notify_sleepers(news, work.more, next);
    }

    pub(super) fn wake_waiters(&self, settled: bool) {
        self.threads.driver.wake_waiters();
        if settled {
            self.tasks.watch_loop.report();
        }
    }

    /// Wakes waiting threads at once after a settlement that no turn made (END-2.4).
    pub fn tell_waiters(&self) {
        if self.enter().is_none() {
            return;
        }
        fence(Ordering::SeqCst);
        self.wake_waiters(true);
        self.threads.driver.sleep.wake();
    }

    /// Returns `true` if any node shares memory with this one.
    #[inline]
    pub fn has_local_peers(&self) -> bool {
        self.threads.descriptors.has_local_peers()
    }

    /// Returns `true` if polling a word that local peers may have mapped pays, before turns are
    /// run.
    #[inline]
    pub fn spins_on_words(&self) -> bool {
        self.has_local_peers() && self.threads.spin_limit.spins()
    }

    /// Returns the polls of words that other nodes of this machine write, before turns are run.
    #[inline]
    pub fn word_polls(&self) -> WordPolls {
        if self.has_local_peers() { self.threads.spin_limit.word_polls() } else { WordPolls::NONE }
    }

    /// Fences the operations to this peer, or to each. Operations that need no engine go through
    /// the engine from here on, until nothing earlier may hold them back.
    #[inline]
    pub fn fence(&self, peer: Option<Rank>) {
        self.fast.fences.ask();
        self.note(Request::Fence { peer });
    }

    /// Returns `true` if an operation may take place without the engine. It may not while a fence
    /// may hold it back, nor when the job is over.
    #[inline]
    pub fn may_go_direct(&self) -> bool {
        self.fast.fences.are_over()
            && !self.closing.load(Ordering::Relaxed)
            && self.enter().is_some()
    }

    /// Wakes the engine's thread if it sleeps, for a request that was put before.
    pub(super) fn ring_engine(&self) {
        // Either the engine's thread sees the request in its last check before it sleeps, or this
        // thread sees that it sleeps.
        fence(Ordering::SeqCst);
        self.threads.driver.sleep.wake();
        if self.access() == Access::Turns {
            // The engine's thread has ended meanwhile, and may not have seen the request.
            self.try_turn(self.now());
        }
    }
}
