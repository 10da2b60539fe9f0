//! Node with its threads: runs of the engine's turns, waits, and the handover between threads.
//!
//! *A waiting thread drives*: it runs turns itself if no other thread does. A helper thread serves
//! the socket only while there is no driver, and page faults always. Any thread that submits runs
//! one turn at once, so that nothing waits to be sent. A thread that finds the engine taken leaves
//! the work to its holder ([`driver::lock`]). In thread mode all of this is the work of the
//! engine's own thread ([`engine_thread`]).

mod access;
mod coherence;
mod cork;
mod departures;
mod driver;
mod engine_thread;
mod fast_path;
mod leave;
mod mail;
mod outcomes;
mod regions;
mod shm_route;
mod submitting;
#[cfg(all(test, not(loom)))]
mod tests;
mod waits;

pub(crate) use access::{check_not_forked, note_joined};
pub(crate) use departures::Needs;
pub(crate) use driver::mode::{Inline, NoLink, OwnThread, Served};
pub use driver::task::LoopProgress;
pub(crate) use driver::task::{TaskWait, pending};
pub use driver::wait_policy::{EngineMode, WaitMode, WaitPolicy, WaitSettings};
pub(crate) use driver::waiters::Waiters;
#[cfg(all(test, not(loom)))]
pub(crate) use engine_thread::tests::noting_callers;
pub(crate) use mail::mailbox::{PostedReceive, next_or_end};
pub(crate) use shm_route::ShmRoute;
pub(crate) use waits::{BOARD_BYTES, CallPlace, LongWait, WaitSubject, Waits, line_of};
pub use waits::{PlaceFinder, find_places_by};

use crate::collective::Registry;
use crate::memory::LocalRegion;
use crate::observe::Publisher;
use crate::{Error, Result};
use access::Access;
use coherence::{call_order, signal_masking};
use crossbeam_queue::SegQueue;
use driver::lock::{CombiningLock, CombiningLockGuard};
use driver::task::{LoopWatch, TaskTurns};
use driver::{Descriptors, Driver, SpinLimit};
use engine_thread::EngineThread;
use mail::arrivals::ArrivalQueue;
use mail::mailbox::{self, Mailbox};
use oikaze_engine::{
    Arrived, Completion, Engine, Failure, Request, Submission, UnreportedFailures, Work,
};
use oikaze_launch::Bootstrap;
use oikaze_os::memory::tracking::{LiveGuards, PageSet, Tracker};
use oikaze_os::net::Link;
use oikaze_os::origin::{Origin, OriginBound};
use oikaze_os::signals::{Locked, locked};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{Pattern, RmaError};
use oikaze_protocol::time::Time;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Engine of a real node.
pub(crate) type RealEngine = Engine<Box<dyn Link>, PageSet>;

/// A node, shared by all its threads.
pub(crate) struct Node {
    /// Failures that no caller has been told of.
    pub(crate) untaken: Arc<UnreportedFailures>,
    /// The process that joined.
    origin: Origin,
    engine: OriginBound<CombiningLock<RealEngine>>,
    /// Requests that were made while the engine was taken.
    submissions: Arc<SegQueue<Submission>>,
    driver: Driver,
    engine_thread: EngineThread,
    pub(crate) watch_loop: LoopWatch,
    task_turns: TaskTurns,
    descriptors: Descriptors,
    pub(crate) fast: fast_path::FastPath,
    /// Guards of this node's arrays that are alive.
    guards: Arc<LiveGuards>,
    start: Instant,
    wait_policy: WaitPolicy,
    pub(crate) waits: Arc<Waits>,
    spin_limit: SpinLimit,
    /// Source of the reason why another node ended, for a node that a launcher started.
    bootstrap: Arc<dyn Bootstrap>,
    mailbox: Arc<Mailbox>,
    arrivals: ArrivalQueue,
    pub(crate) collectives: Arc<Registry>,
    pub(crate) call_order: call_order::CallOrder,
    pub(crate) departures: departures::Departures,
    pub(crate) handlers: signal_masking::HandlerCheck,
    pub(crate) publisher: Publisher,
    closing: AtomicBool,
    helper_thread: Mutex<Option<JoinHandle<()>>>,
}

impl Node {
    /// Starts a node's helper around its engine.
    pub fn start(
        mut engine: RealEngine,
        submissions: Arc<SegQueue<Submission>>,
        tracker: Option<Arc<dyn Tracker>>,
        (wait_policy, waits): (WaitPolicy, Arc<Waits>),
        start: Instant,
        bootstrap: Arc<dyn Bootstrap>,
        publisher: Publisher,
    ) -> Result<Arc<Self>> {
        let no_event = |error| Error::system("making an event descriptor", error);
        let link = engine.link().properties();
        let descriptors = Descriptors::new(link.fd, engine.shm().descriptor(), tracker)
            .map_err(|(operation, error)| Error::system(operation, error))?;
        let fast = fast_path::FastPath::new(engine.channels(), Arc::clone(engine.ops().fences()));
        let guards = Arc::clone(engine.pages().guards());
        let mailbox = Arc::new(Mailbox::default());
        engine.set_posted(Arc::new(mailbox::Receives(Arc::clone(&mailbox))));
        let has_own_thread = wait_policy.mode.drive().own_thread().is_some();
        let node = Arc::new(Self {
            fast,
            untaken: Arc::clone(engine.ops().untaken()),
            origin: Origin::here(),
            engine: OriginBound::new(CombiningLock::new(engine)),
            submissions,
            driver: Driver::new(has_own_thread).map_err(no_event)?,
            engine_thread: EngineThread::new(has_own_thread),
            watch_loop: LoopWatch::new().map_err(no_event)?,
            task_turns: TaskTurns::default(),
            descriptors,
            guards,
            start,
            spin_limit: SpinLimit::new(wait_policy.wait, wait_policy.has_room),
            wait_policy,
            waits,
            mailbox,
            arrivals: ArrivalQueue::default(),
            collectives: Arc::default(),
            call_order: call_order::CallOrder::default(),
            departures: departures::Departures::new(Arc::clone(&bootstrap)),
            bootstrap,
            handlers: signal_masking::HandlerCheck::default(),
            publisher,
            closing: AtomicBool::new(false),
            helper_thread: Mutex::new(None),
        });
        node.waits.set_node(&node);
        let helper = driver::helper::spawn(Arc::clone(&node))
            .map_err(|error| Error::system("starting the helper thread", error))?;
        *lock(&node.helper_thread) = Some(helper);
        Ok(node)
    }

    /// Called when an array is made. From now on handlers may touch its pages.
    pub fn expect_handlers(&self) {
        self.engine.mask_signals();
        self.handlers.look(self.now());
    }

    /// Returns the nanoseconds since the node's start.
    pub fn now(&self) -> Time {
        self.time_of(Instant::now())
    }

    fn time_of(&self, at: Instant) -> Time {
        Time(u64::try_from(at.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX))
    }

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
        let visit = (access == Access::Requests).then(|| self.engine_thread.visit());
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
    fn try_turn(&self, now: Time) -> Option<Work> {
        self.run_turns(now, RealEngine::turn)
    }

    fn run_turns(
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

    fn run_turns_in<'n>(
        &'n self,
        engine: CombiningLockGuard<'n, RealEngine>,
        now: Time,
        mut turn: impl FnMut(&mut RealEngine, Time) -> Work,
    ) -> Work {
        debug_assert!(self.access().runs_turns(), "only the engine's own thread runs turns");
        let mut total = Work::default();
        let mut first = Some(now);
        let rung = Cell::new(false);
        let mut link_end = None;
        let one = |engine: &mut RealEngine| {
            let now = first.take().unwrap_or_else(|| self.now());
            let work = turn(engine, now);
            let next = self.due(engine);
            self.collect(engine);
            rung.set(rung.get() | engine.shm_mut().take_rung());
            if let Some(why) = engine.take_link_end() {
                link_end = Some(why);
            }
            self.publisher.look(engine, self.mailbox.len(), now, || self.waits.board_text());
            total.add(work);
            if work.requests > 0 {
                self.driver.note_request();
            }
            (work, next.unwrap_or(Time(u64::MAX)))
        };
        self.engine.run(engine, one, |work, next, sooner| {
            if sooner || work.more || work.settled > 0 || work.received > 0 {
                self.announce(work, next);
            }
            if rung.take() {
                self.driver.wake_sleepers();
            }
        });
        if let Some(why) = link_end {
            // SERVE-5.2: no peer can be reached any more.
            self.end_aborted(&why);
        }
        self.collectives.tick(now);
        self.collectives.run(self);
        total
    }

    #[inline]
    fn after_leaving(&self) {
        if self.engine.is_asked() {
            self.try_turn(self.now());
        }
    }

    /// Takes the events for the user out of the engine.
    fn collect(&self, engine: &mut RealEngine) {
        let entries = self.arrivals.deposit(|| engine.inbox().take_placed());
        for read in self.mailbox.deposit_with(|| engine.inbox().take_arrived(), entries) {
            self.leave_to_holder(Submission { request: read, completion: None, keep: None });
        }
        if self.mailbox.take_restored() {
            self.fail_posted();
        }
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
            oikaze_os::signals::say(&format!("oikaze: node {}: {warning}", self.bootstrap.rank()));
        }
    }

    /// Wakes the tasks that wait for another node, because nodes have ended.
    fn wake_tasks(&self) {
        self.fail_posted();
        self.collectives.wake_all();
        self.arrivals.wake_all();
    }

    /// Fails the posted receives for which no message will come any more (MEM-26.6).
    fn fail_posted(&self) {
        self.mailbox.fail_posted(|from| self.departures.loss_of(from, Needs::Messages));
    }

    /// Tells sleeping threads what a turn has changed, and when the next is due.
    fn announce(&self, work: Work, next: Time) {
        // A thread that is about to sleep sees all changes made before its sleep time is read,
        // because it checks once more before it sleeps.
        fence(Ordering::SeqCst);
        let news = work.settled > 0 || work.received > 0;
        if news {
            self.wake_waiters(work.settled > 0);
        }
        self.driver.tell_sleepers(news, work.more, next);
    }

    /// Wakes every waiting thread at once, so that each registers its wait.
    fn wake_for_question(&self) {
        self.driver.wake_waiters();
        self.driver.wake_sleepers();
    }

    fn wake_waiters(&self, settled: bool) {
        self.driver.wake_waiters();
        if settled {
            self.watch_loop.report();
        }
    }

    /// Wakes waiting threads at once after a settlement that no turn made (END-2.4).
    pub fn tell_waiters(&self) {
        if self.enter().is_none() {
            return;
        }
        fence(Ordering::SeqCst);
        self.wake_waiters(true);
        self.driver.sleep.wake();
    }

    /// Returns `true` if any node shares memory with this one.
    pub fn has_local_peers(&self) -> bool {
        self.descriptors.has_local_peers()
    }

    /// Returns `true` if polling a word that local peers may have mapped pays, before turns are
    /// run.
    #[inline]
    pub fn spins_on_words(&self) -> bool {
        self.has_local_peers() && self.spin_limit.spins()
    }

    /// Fences the operations to this peer, or to each. Operations that need no engine go through
    /// the engine from here on, until nothing earlier may hold them back.
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

    /// Takes the oldest message for the user, from this peer or any.
    #[inline]
    pub fn take_mail(&self, from: Option<Rank>) -> Option<Arrived> {
        let (arrived, read) = self.mailbox.take(from)?;
        if let Some(read) = read {
            self.tell(read);
        }
        Some(arrived)
    }

    /// Describes the message that [`Node::take_mail`] would take: sender, tag and length.
    pub fn probe_mail(&self, from: Option<Rank>) -> Option<(Rank, u64, u64)> {
        self.mailbox.probe(from)
    }

    /// Posts a receive, whose completion gets the outcome (MEM-26).
    pub fn post_receive(&self, pattern: Pattern, receive: PostedReceive) {
        if self.enter().is_none() {
            return receive.completion.settle(Err(self.forked()));
        }
        let nodes = self.bootstrap.size();
        if let Some(rank) = pattern.from.filter(|rank| *rank >= nodes) {
            return receive.completion.settle(Err(Failure::NoSuchNode { rank, nodes }));
        }
        let loss = || self.departures.loss_of(pattern.from, Needs::Messages);
        let (read, waits) = self.mailbox.post(pattern, receive, loss);
        if let Some(read) = read {
            self.tell(read);
        } else if waits {
            // A message may have been taken out of a ring for a reader that has not come.
            self.tell(Request::Collect);
        }
    }

    /// Ends the posted receives into a region that is being deregistered (MEM-26.5).
    pub fn end_receives_into(&self, region: &LocalRegion) {
        self.mailbox.end_posted(|_, receive| {
            receive.into.is_of(region).then_some(Failure::Remote(RmaError::DestinationGone))
        });
    }

    /// Cancels a posted receive, if it waits.
    pub fn cancel_receive(&self, completion: &Arc<Completion>) {
        if let Some(node) = self.enter() {
            node.mailbox.cancel_posted(completion);
            node.tell_waiters();
        }
    }

    /// Takes at most `wanted` of the oldest messages. Waits until that many are there, and is woken
    /// once, by the last of them. Messages that arrive meanwhile take none of their senders' credit
    /// any more.
    #[track_caller]
    pub fn take_batch(&self, wanted: usize, deadline: Option<Instant>) -> Vec<Arrived> {
        let mut batch = Vec::new();
        let mut is_late = false;
        if self.enter().is_none() {
            return batch;
        }
        loop {
            self.mailbox
                .take_batch(wanted, &mut batch)
                .into_iter()
                .for_each(|read| self.tell(read));
            while batch.len() < wanted
                && let Some(arrived) = self.fast.take_soon(self, None)
            {
                batch.push(arrived);
            }
            let missing = wanted - batch.len();
            if missing == 0 || is_late {
                return batch;
            }
            is_late = !self.wait_for_batch(missing, deadline);
        }
    }

    /// Waits until this many messages are there, and leaves them. Returns `false` if the deadline
    /// has passed, or no more messages come.
    #[track_caller]
    pub fn wait_for_batch(&self, wanted: usize, deadline: Option<Instant>) -> bool {
        self.mailbox.enlist(wanted).into_iter().for_each(|read| self.tell(read));
        let there = || (self.mailbox.len() >= wanted).then_some(());
        let subject = || WaitSubject::Message { from: None, count: wanted };
        let next = || self.departures.next_or_loss(None, Needs::Messages, there);
        let waited = self.wait_quietly(&subject, deadline, next);
        self.mailbox.delist();
        matches!(waited, Some(Ok(())))
    }

    /// Takes at most `wanted` of the oldest messages, if at least `at_least` are there.
    pub fn take_waiting(&self, wanted: usize, at_least: usize) -> Option<Vec<Arrived>> {
        self.enter()?;
        // Takes messages out of the rings of local peers first.
        let _ = self.fast.probe_if_there(self, None);
        let mut batch = Vec::new();
        self.mailbox
            .take_batch_of(wanted, at_least, &mut batch)?
            .into_iter()
            .for_each(|read| self.tell(read));
        Some(batch)
    }

    /// Says goodbye to all peers, once they have all that was sent to them, and sees that it goes
    /// out. A peer without that goodbye would wait for this node until it takes the node for dead.
    pub fn say_goodbye(&self, limit: Duration) {
        if self.enter().is_none() {
            return;
        }
        if self.departures.is_aborted() {
            return self.let_reason_arrive();
        }
        let deadline = Instant::now().checked_add(limit);
        let _: Option<()> =
            self.wait(deadline, || self.with_engine(|engine| engine.is_settled()).then_some(()));
        let completion = self.submit(Request::Close, None);
        let _: Option<()> = self.wait(deadline, || {
            let gone =
                completion.is_done() && self.with_engine(|engine| engine.has_parted(self.now()));
            gone.then_some(())
        });
    }

    /// Stops the helper. After that, only threads that wait run turns.
    pub fn stop(&self) {
        if self.enter().is_none() {
            return;
        }
        self.closing.store(true, Ordering::SeqCst);
        self.waits.close();
        self.driver.sleep.event.signal();
        self.driver.helper.event.signal();
        if let Some(helper) = lock(&self.helper_thread).take()
            && !driver::helper::is_of(self)
        {
            // The runtime has printed the helper's own panic, and there is nothing left to do about
            // it here.
            let _ = helper.join();
        }
        self.with_engine(|engine| {
            engine.end(&Failure::Left);
            self.departures.note_left();
            self.wake_tasks();
            self.publisher.end();
            // No thread serves page faults any more. A thread that touches an array from here on
            // sees its last bytes, and does not wait.
            engine.pages().release();
        });
        self.driver.wake_waiters();
        self.driver.sleep.event.signal();
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Locked<MutexGuard<'_, T>> {
    locked(|| mutex.lock().unwrap_or_else(PoisonError::into_inner))
}
