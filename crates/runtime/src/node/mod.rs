//! Node with its threads: runs of the engine's turns, waits, and the handover between threads.
//!
//! *A waiting thread drives*: it runs turns itself if no other thread does. A helper thread serves
//! the socket only while there is no driver, and page faults always. Any thread that submits runs
//! one turn at once, so that nothing waits to be sent. A thread that finds the engine taken leaves
//! the work to its holder ([`driver::lock`]). In thread mode all of this is the work of the
//! engine's own thread ([`engine_thread`]).

mod access;
mod clock;
mod coherence;
mod collectives;
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
mod threads;
mod waits;

pub use crate::sync::lock;
pub use access::{check_not_forked, note_joined};
pub use collectives::{POOLED_MIN, PooledBytes, RegisteredTeam, Registry, WORLD, WorkPool};
pub use departures::Needs;
pub use driver::helper::Helper;
pub use driver::mode::EngineMode;
pub use driver::mode::NoLink;
pub use driver::task::LoopProgress;
pub use driver::task::{TaskWait, pending};
pub use driver::wait_policy::{WaitMode, WaitPolicy, WaitSettings};
pub use driver::waiters::Waiters;
pub use mail::{PostedReceive, ReceiveMemory, RegisteredMemory, next_or_end};
pub use shm_route::ShmRoute;
pub use submitting::LEFT_MAX;
pub use waits::Faults;
pub use waits::{CallPlace, LongWait, WaitSubject, Waits, line_of};
pub use waits::{InterruptionCheck, PlaceFinder, find_places_by, interruptible};

use crate::error::{Error, Result};
use crate::observe::Publisher;
use access::Access;
use clock::NodeClock;
use coherence::CoherenceCalls;
use crossbeam_queue::SegQueue;
use departures::Departures;
use driver::Descriptors;
use driver::lock::{CombiningLock, CombiningLockGuard};
use driver::task::Tasks;
use mail::MailQueues;
use oikaze_engine::{Engine, Failure, Request, Submission, Work};
use oikaze_launch::Bootstrap;
use oikaze_os::memory::tracking::{PageSet, Tracker};
use oikaze_os::net::Link;
use oikaze_os::origin::{Origin, OriginBound};
use oikaze_protocol::Rank;
use oikaze_protocol::time::Time;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Instant;
use submitting::Requests;
use threads::Threads;

/// Engine of a real node.
pub type RealEngine = Engine<Box<dyn Link>, PageSet>;

/// A node, shared by all its threads.
pub struct Node {
    /// The process that joined.
    origin: Origin,
    clock: NodeClock,
    /// Source of the reason why another node ended, for a node that a launcher started.
    pub bootstrap: Arc<dyn Bootstrap>,
    pub engine: OriginBound<CombiningLock<RealEngine>>,
    pub requests: Requests,
    pub threads: Threads,
    pub tasks: Tasks,
    pub fast: fast_path::FastPath,
    pub mail: MailQueues,
    pub coherence: CoherenceCalls,
    pub collectives: Arc<Registry>,
    pub departures: Departures,
    pub waits: Arc<Waits>,
    pub publisher: Publisher,
    pub closing: AtomicBool,
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
        let link = engine.link().properties();
        let descriptors = Descriptors::new(link.fd, engine.shm().descriptor(), tracker)
            .map_err(|(operation, error)| Error::system(operation, error))?;
        let mail = MailQueues::default();
        engine.set_posted(mail.posted());
        let node = Arc::new(Self {
            origin: Origin::here(),
            clock: NodeClock { start },
            requests: Requests::new(submissions, Arc::clone(engine.ops().untaken())),
            threads: Threads::new(wait_policy, descriptors)?,
            tasks: Tasks::new()?,
            fast: fast_path::FastPath::new(engine.channels(), Arc::clone(engine.ops().fences())),
            mail,
            coherence: CoherenceCalls::new(Arc::clone(engine.pages().guards())),
            engine: OriginBound::new(CombiningLock::new(engine)),
            collectives: Arc::default(),
            departures: Departures::new(Arc::clone(&bootstrap)),
            bootstrap,
            waits,
            publisher,
            closing: AtomicBool::new(false),
        });
        node.waits.set_node(&node);
        let helper = driver::helper::spawn(Arc::clone(&node))
            .map_err(|error| Error::system("starting the helper thread", error))?;
        *lock(&node.threads.helper) = Some(helper);
        Ok(node)
    }

    /// Returns the nanoseconds since the node's start.
    #[inline]
    pub fn now(&self) -> Time {
        self.clock.now()
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
            let next = self.clock.due(engine);
            self.collect(engine);
            rung.set(rung.get() | engine.shm_mut().take_rung());
            if let Some(why) = engine.take_link_end() {
                link_end = Some(why);
            }
            self.publisher.look(engine, self.mail.mailbox.len(), now, || self.waits.board_text());
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
            if rung.take() {
                self.threads.driver.wake_sleepers();
            }
        });
        if let Some(why) = link_end {
            // SERVE-5.2: no peer can be reached any more.
            self.departures.end_aborted(self, &why);
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
            oikaze_os::signals::say(&format!("oikaze: node {}: {warning}", self.bootstrap.rank()));
        }
    }

    /// Wakes the tasks that wait for another node, because nodes have ended.
    fn wake_tasks(&self) {
        self.mail.fail_posted(self);
        self.collectives.wake_all();
        self.mail.arrivals.wake_all();
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
        self.threads.driver.tell_sleepers(news, work.more, next);
    }

    fn wake_waiters(&self, settled: bool) {
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

    /// Stops the helper. After that, only threads that wait run turns.
    pub fn stop(&self) {
        if self.enter().is_none() {
            return;
        }
        self.closing.store(true, Ordering::SeqCst);
        self.waits.close();
        if let Some(helper) = self.threads.end_helper(driver::helper::is_of(self)) {
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
        self.threads.driver.wake_waiters();
        self.threads.driver.sleep.event.signal();
    }
}
