//! Helper thread. It serves page faults always, and the socket while no thread drives. In thread
//! mode it is the driver for good.

use super::drive::WaitLoop;
use super::limits::HELPER_SLEEP;
use super::link_watch::LinkWatch;
use super::wait_policy::WaitMode;
use super::{HelperSleep, Wakeup};
use crate::node::parts::Node;
use crate::node::parts::engine_thread::EngineThread;
use crate::node::waits::LongWait;
use crate::node::waits::faults::Faults;
use oikaze_engine::{Request, Submission};
use oikaze_os::cpu::{CpuId, TimerSlack, raise_on_shared_core, yield_core};
use oikaze_os::memory::tracking::SharedError;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

thread_local! {
    /// Address of the node whose helper this thread is, or 0.
    static HELPS: Cell<usize> = const { Cell::new(0) };
}

/// Returns `true` if the calling thread is the helper of this node.
pub fn is_of(node: &Node) -> bool {
    HELPS.get() == std::ptr::from_ref(node).addr()
}

pub fn spawn(node: Arc<Node>) -> std::io::Result<JoinHandle<()>> {
    oikaze_os::signals::spawn("oikaze", move || {
        let _guard = EndTogether;
        HELPS.set(Arc::as_ptr(&node).addr());
        let helper = Helper(&node);
        helper.take_priority();
        match node.threads.wait_policy.mode.drive().own_thread() {
            None => helper.help(),
            Some(cores) => helper.drive_for_good(cores),
        }
    })
}

/// Ends the process if the helper panics (a defect), and the launcher and the peers notice. Without
/// the helper, threads would sleep in page faults for ever, and the job would wait for this node.
struct EndTogether;

impl Drop for EndTogether {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "oikaze: the helper thread has panicked (a defect of Oikaze, please report it); this process ends"
            );
            std::process::abort();
        }
    }
}

/// Work of the helper thread of a node.
pub struct Helper<'n>(pub &'n Node);

impl Helper<'_> {
    /// Gives the calling thread the priority of the settings. The node works without it.
    fn take_priority(&self) {
        let node = self.0;
        let Some(priority) = node.threads.wait_policy.priority else { return };
        if let Err(why) = priority.apply() {
            oikaze_os::signals::print_line(&format!(
                "oikaze: node {}: the engine's thread has no priority {priority}: {why}",
                node.bootstrap.rank()
            ));
        }
    }

    fn help(&self) {
        let node = self.0;
        let mut watch = LinkWatch::new(node, &node.threads.driver.helper_claim);
        let mut timers = TimerSlack::new(HELPER_SLEEP);
        let mut fetched = 0;
        // Rounds that drivers had begun at the helper's last wakeup. If the count stays the same,
        // the driver stands still: it sleeps, or is in a signal handler. The handler may wait for a
        // page, or a lock may have been handed to it (COH-8.7).
        let mut rounds_before = node.threads.driver.rounds();
        let mut stands_still = false;
        let mut open_faults = Faults::default();
        while !node.closing.load(Ordering::SeqCst) {
            let rounds = node.threads.driver.rounds();
            let (watched, ready) = match node.threads.driver.helper_sleeps(node.now()) {
                HelperSleep::Watch => {
                    timers.set_lax(false);
                    stands_still = false;
                    (true, self.watch(&mut watch))
                }
                HelperSleep::Away(limit) => {
                    watch.release();
                    // The driver keeps its core.
                    timers.set_lax(true);
                    // While a page is awaited, the waiter may be a driver that stands still, and
                    // then no thread watches the socket.
                    let is_needed = open_faults.are_any();
                    let limit = if is_needed { limit.min(HELPER_SLEEP) } else { limit };
                    let ready = node.threads.descriptors.poll(
                        &node.threads.driver.helper,
                        stands_still && is_needed,
                        true,
                        limit,
                    );
                    node.threads.driver.helper.wake_up();
                    stands_still = node.threads.driver.rounds() == rounds_before;
                    (stands_still, ready)
                }
            };
            let for_loop =
                watched && ready.arrivals && node.tasks.watch_loop.takes_over(node, rounds);
            let watched = watched && !for_loop;
            let faults = ready.faults;
            rounds_before = node.threads.driver.rounds();
            node.coherence.handlers.check_by_helper(|| node.now());
            if faults {
                self.take_faults(&mut open_faults);
            }
            open_faults.check(node);
            // After a sleep away from the socket, the helper checks the role first. A watch returns
            // at once if there is something to do.
            if (faults || (watched && (stands_still || !node.threads.driver.is_driven())))
                && let Some(work) = node.try_turn(node.now())
                && work.received + work.settled > 0
            {
                let before = std::mem::replace(&mut fetched, self.fetched_pages());
                if work.settled > 0 || fetched > before {
                    // A thread of this node goes on with the result, and may wait for this core.
                    // Accesses of peers to the memory are not a reason to yield. A thread that
                    // sleeps keeps a claim to its core, and yielding would lose that claim and the
                    // next few milliseconds.
                    yield_core();
                }
            }
        }
    }

    /// Returns the number of pages of shared arrays that were fetched. The threads that touched
    /// them go on.
    fn fetched_pages(&self) -> u64 {
        let node = self.0;
        node.with_engine(|engine| engine.coherence().statistics().fetched_pages)
    }

    /// Sleeps on socket and faults, until the next timer.
    fn watch(&self, watch: &mut LinkWatch<'_>) -> Wakeup {
        let node = self.0;
        if let Some(interval) = node.threads.spin_limit.interval() {
            return node.threads.descriptors.poll(
                &node.threads.driver.helper,
                false,
                true,
                interval,
            );
        }
        let most = watch.hold();
        let sleeper = &node.threads.driver.helper;
        sleeper.fall_asleep(node.now() + most);
        let next = node.next_timeout();
        let timeout = node.clock.span_until(next).min(most);
        sleeper.shorten(node.now() + timeout);
        // Work that came between the last turn and the sleep: its maker may not have seen this
        // thread sleep. Neither may a driver that has taken the claim.
        let quiet = node.requests.submissions.is_empty()
            && !node.closing.load(Ordering::SeqCst)
            && !watch.was_taken();
        let ready = match quiet {
            true => node.threads.descriptors.poll(sleeper, true, true, timeout),
            false => Wakeup::default(),
        };
        sleeper.wake_up();
        ready
    }

    /// Turns the waiting faults into submissions.
    pub fn take_faults(&self, open: &mut Faults) {
        let node = self.0;
        let Some(tracker) = &node.threads.descriptors.tracker else { return };
        let mut faults = Vec::new();
        let read = tracker.faults(&mut faults);
        // The faults that were read before the error would not be read again.
        for fault in faults {
            open.add(&fault);
            let request =
                Request::Fault { array: fault.array, page: fault.page, access: fault.access };
            node.leave_to_holder(Submission { request, completion: None, keep: None });
        }
        if let Err(error) = read {
            let error = SharedError::new("reading page faults", error, "Please report this.");
            node.with_engine(|engine| engine.pages().fail(&error));
        }
    }

    /// Drives in thread mode: this thread holds the role until the node is closed.
    fn drive_for_good(&self, cores: &[CpuId]) {
        let node = self.0;
        if !cores.is_empty()
            && let Err(why) = oikaze_os::cpu::bind_to_cores(cores)
        {
            // A container's cpuset may forbid the cores. The node works without them.
            node.publisher.paths().unpinned();
            oikaze_os::signals::print_line(&format!(
                "oikaze: node {}: the engine's thread is not bound, and may slow the application down: {why}",
                node.bootstrap.rank()
            ));
        }
        if !cores.is_empty()
            && node.threads.wait_policy.priority.is_none()
            && node.threads.wait_policy.wait != WaitMode::Spin
        {
            raise_on_shared_core();
        }
        EngineThread::begin(node.number());
        let driving = node.threads.driver.adopt();
        let mut open_faults = Faults::default();
        let mut check = || {
            let faults = node.engine.masks_turns()
                && node
                    .threads
                    .descriptors
                    .poll(&node.threads.driver.helper, false, true, Duration::ZERO)
                    .faults;
            if faults {
                self.take_faults(&mut open_faults);
            }
            open_faults.check(node);
            node.closing.load(Ordering::SeqCst).then_some(())
        };
        let mut long = LongWait::short(node);
        let mut waiting = WaitLoop::new(node, None, &mut long);
        while waiting.drive(node.now(), &mut check).0.is_none() {}
        node.threads.engine_thread.end();
        // A request that was put after the last turn, by a thread that took this one for running.
        node.try_turn(node.now());
        driving.leave(node.now());
    }
}
