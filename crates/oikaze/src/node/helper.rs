//! The helper thread: page faults always, the socket while nobody drives; or, in thread mode, the
//! driver for good.

use super::waits::Faults;
use super::watch::LinkWatch;
use super::{EngineMode, Node};
use crate::engine::{Request, Submission};
use crate::role::{LOOK_SOON, Sleep};
use oikaze_os::cpu::TimerSlack;
use oikaze_os::memory::shared::SharedError;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

pub(super) fn spawn(node: Arc<Node>) -> std::io::Result<JoinHandle<()>> {
    oikaze_os::signals::spawn("oikaze", move || {
        let _guard = EndTogether;
        if let EngineMode::Thread { core } = node.waiting.mode {
            node.drive_for_good(core);
        } else {
            node.help();
        }
    })
}

/// Without the helper nobody answers page faults: threads would sleep in them for ever, and the job
/// would wait for this node. So a helper that panics (a defect) ends the process; the launcher and
/// the peers notice.
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

impl Node {
    fn help(&self) {
        let mut watch = LinkWatch::new(self);
        let mut timers = TimerSlack::new(Duration::from_nanos(LOOK_SOON));
        let mut fetched = 0;
        // Rounds that drivers had begun when the helper last woke up. Without another one since
        // then the driver stands still: it sleeps, or is in a signal handler, which may wait for a
        // page or be what a lock was handed to (COH-8.7).
        let mut rounds_before = self.rounds.load(Ordering::Relaxed);
        let mut stands_still = false;
        let mut open_faults = Faults::default();
        while !self.closing.load(Ordering::SeqCst) {
            let (watched, faults) = match self.role.helper_sleeps(self.now().0) {
                Sleep::Watch => {
                    timers.set_lax(false);
                    stands_still = false;
                    (true, self.watch(&mut watch))
                }
                Sleep::Away(limit) => {
                    watch.release();
                    // Whoever drives keeps its core.
                    timers.set_lax(true);
                    // While a page is waited for, a driver that stands still may be who waits: then
                    // nobody watches the socket.
                    let is_needed = open_faults.are_any();
                    let limit =
                        if is_needed { limit.min(Duration::from_nanos(LOOK_SOON)) } else { limit };
                    let faults = self.poll(&self.helper, stands_still && is_needed, true, limit);
                    self.helper.wake_up();
                    stands_still = self.rounds.load(Ordering::Relaxed) == rounds_before;
                    (stands_still, faults)
                }
            };
            rounds_before = self.rounds.load(Ordering::Relaxed);
            self.role.helper_woke();
            self.look_at_handlers_rarely();
            if faults {
                self.take_faults(&mut open_faults);
            }
            open_faults.look(self);
            // Back from away it looks at the role first: to watch returns at once if there is
            // something to do.
            if (faults || (watched && (stands_still || self.role.helper_may_watch())))
                && let Some(work) = self.try_turn(self.now())
                && work.received + work.settled > 0
            {
                let before = std::mem::replace(&mut fetched, self.fetched_pages());
                if work.settled > 0 || fetched > before {
                    // A thread of this node goes on with that, and may wait for this core. What
                    // peers do in its memory is none of its business: giving the core away for that
                    // would lose the claim to it that who sleeps has, and with it the next few
                    // milliseconds.
                    std::thread::yield_now();
                }
            }
        }
    }

    /// Pages of shared arrays that were brought here: who touched them goes on.
    fn fetched_pages(&self) -> u64 {
        self.with_engine(|engine| engine.coherence().statistics().fetched_pages)
    }

    /// Sleep on socket and faults, until the next timer; true if there are faults.
    fn watch(&self, watch: &mut LinkWatch<'_>) -> bool {
        let most = watch.hold();
        self.helper.fall_asleep(self.now() + most);
        let next = self.next_timeout();
        let timeout = self.span_until(next).min(most);
        self.helper.fall_asleep(self.now() + timeout);
        // What came between the last turn and falling asleep: its maker may not have seen us sleep.
        let quiet = self.submissions.is_empty() && !self.closing.load(Ordering::SeqCst);
        let faults = quiet && self.poll(&self.helper, true, true, timeout);
        self.helper.wake_up();
        faults
    }

    /// Turn the faults that wait into submissions.
    pub(super) fn take_faults(&self, open: &mut Faults) {
        let Some(tracker) = &self.tracker else { return };
        let mut faults = Vec::new();
        let read = tracker.faults(&mut faults);
        // What was read before it failed nobody will read again.
        for fault in faults {
            open.add(&fault);
            let request =
                Request::Fault { array: fault.array, page: fault.page, access: fault.access };
            self.leave_to_holder(Submission { request, completion: None, keep: None });
        }
        if let Err(error) = read {
            let error = SharedError::new("reading page faults", error, "Please report this.");
            self.with_engine(|engine| engine.pages().fail(&error));
        }
    }

    /// Thread mode: this thread holds the role until the node is closed.
    fn drive_for_good(&self, core: Option<usize>) {
        if let Some(core) = core {
            // A core that cannot be had (a container's set) leaves the thread where the kernel puts
            // it.
            if oikaze_os::cpu::pin_to_core(core).is_err() {
                self.paths().unpinned();
            }
        }
        let mut open_faults = Faults::default();
        while !self.closing.load(Ordering::SeqCst) {
            let look = || {
                let faults = self
                    .tracker
                    .as_ref()
                    .is_some_and(|_| self.poll(&self.helper, false, true, Duration::ZERO));
                if faults {
                    self.take_faults(&mut open_faults);
                }
                open_faults.look(self);
                self.closing.load(Ordering::SeqCst).then_some(())
            };
            self.wait(None, look);
        }
    }
}
