//! Start and stop of a node.

use super::coherence::CoherenceCalls;
use super::collectives::registry::Registry;
use super::driver::lock::CombiningLock;
use super::driver::task::Tasks;
use super::driver::wait_policy::WaitPolicy;
use super::driver::{Descriptors, helper};
use super::mail::queues::MailQueues;
use super::parts::Node;
use super::parts::clock::NodeClock;
use super::parts::departures::Departures;
use super::parts::engine::RealEngine;
use super::parts::fast_path::FastPath;
use super::parts::requests::Requests;
use super::parts::threads::Threads;
use super::waits::Waits;
use crate::error::{Error, Result};
use crate::observe::Publisher;
use crate::sync::lock;
use crossbeam_queue::SegQueue;
use oikaze_engine::{Failure, Submission};
use oikaze_launch::Bootstrap;
use oikaze_os::memory::tracking::Tracker;
use oikaze_os::net::Link;
use oikaze_os::origin::{Origin, OriginBound};
use oikaze_os::shm::Arena;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

impl Node {
    /// Starts a node's helper around its engine, and the clock of the node. With an arena, the
    /// nodes of the job compare their calls and give values to collectives there.
    pub fn start(
        mut engine: RealEngine,
        submissions: Arc<SegQueue<Submission>>,
        tracker: Option<Arc<dyn Tracker>>,
        (wait_policy, waits): (WaitPolicy, Arc<Waits>),
        bootstrap: Arc<dyn Bootstrap>,
        publisher: Publisher,
        arena: Option<Arc<Arena>>,
    ) -> Result<Arc<Self>> {
        let link = engine.link().properties();
        let descriptors = Descriptors::new(link.fd, engine.shm().descriptor(), tracker)
            .map_err(|(operation, error)| Error::system(operation, error))?;
        let mail = MailQueues::default();
        engine.set_posted(mail.posted());
        let node = Arc::new(Self {
            origin: Origin::here(),
            clock: NodeClock { start: Instant::now() },
            requests: Requests::new(
                submissions,
                Arc::clone(engine.ops().untaken()),
                engine.shown_groups(),
            ),
            threads: Threads::new(wait_policy, descriptors)?,
            tasks: Tasks::new()?,
            fast: FastPath::new(engine.channels(), Arc::clone(engine.ops().fences())),
            mail,
            coherence: CoherenceCalls::new(Arc::clone(engine.pages().guards()), arena.clone()),
            engine: OriginBound::new(CombiningLock::new(engine)),
            collectives: Arc::new(Registry::new(arena)),
            departures: Departures::new(Arc::clone(&bootstrap)),
            bootstrap,
            waits,
            publisher,
            closing: AtomicBool::new(false),
        });
        node.waits.set_node(&node);
        let helper = helper::spawn(Arc::clone(&node))
            .map_err(|error| Error::system("starting the helper thread", error))?;
        *lock(&node.threads.helper) = Some(helper);
        Ok(node)
    }

    /// Stops the helper. After that, only threads that wait run turns.
    pub fn stop(&self) {
        if self.enter().is_none() {
            return;
        }
        self.closing.store(true, Ordering::SeqCst);
        self.waits.close();
        if let Some(helper) = self.threads.end_helper(helper::is_of(self)) {
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
