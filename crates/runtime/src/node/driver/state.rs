//! The driver's role, the parked waiters and the helper's sleep. [`super`] has the table of
//! transitions.

#[cfg(test)]
mod tests;

use super::limits::{
    GAP_MAX_FACTOR, GAP_QUIET_NS, GAP_SHORT_NS, GAPS_AVERAGED, HELPER_SLEEP, HELPER_SLEEP_MAX,
    QUIET_GAPS,
};
use super::sleeper::{Bell, Sleeper, WatchClaim};
use crate::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, Thread, current, fence,
    park,
};
use oikaze_os::cpu::Event;
use oikaze_os::signals::{Locked, locked};
use oikaze_protocol::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// State machine of one node's driver, waiters and helper.
#[derive(Debug)]
pub struct Driver<B = Event> {
    /// Set while a thread drives. Set by compare-and-swap without the lock; cleared only under it.
    driven: AtomicBool,
    /// Number of parked waiters, so that [`Driver::wake_waiters`] takes no lock if there is none.
    parked: AtomicUsize,
    /// Time at which the role last became free, and the typical gap until it was taken, in
    /// nanoseconds. Only a driver writes them.
    left_at: AtomicU64,
    gap: AtomicU64,
    /// Number of gaps since a peer last asked this node for something. The driver adds, and any
    /// thread in the engine sets it to zero. A race of the two may lose an addition, or a reset
    /// until the next request.
    quiet_gaps: AtomicU64,
    state: Mutex<RoleState>,
    /// Sleep of the driver.
    pub sleep: Sleeper<B>,
    /// Sleep of the helper. It goes away under the lock, or when a driver takes its claim.
    pub helper: Sleeper<B>,
    /// Claim of the helper on the link, which a driver that polls takes.
    pub helper_claim: WatchClaim,
    /// Rounds that drivers have begun. A driver that stands still sleeps, or is in a signal handler
    /// that waits for a page.
    rounds: AtomicU64,
}

#[derive(Debug)]
struct RoleState {
    waiters: VecDeque<Arc<Waiter>>,
    /// Length of the helper's next sleep away from the socket.
    helper_sleep: Duration,
    /// Value of `left_at` at the helper's last check.
    seen_left: u64,
}

/// A parked thread.
#[derive(Debug)]
struct Waiter {
    thread: Thread,
    wake_source: WakeSource,
    /// Set under the lock when the waiter has been made the driver.
    handed: AtomicBool,
}

/// Selects what unparks a waiter, besides the driver's role and the waiter's time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeSource {
    /// [`Driver::wake_waiters`] unparks the waiter together with all others, after any completion
    /// or arrival. Each then checks its condition.
    Broadcast,
    /// As [`WakeSource::Broadcast`]. The condition may become true by a step of another node of
    /// this machine in the arena. So a thread that drives may sleep for that alone.
    Arena,
    /// Only the thread that makes the waiter's condition true unparks it.
    Direct,
}

/// Ownership of the role. [`DriverGuard::leave`] gives the role back. A drop (by a panic) gives it
/// back as [`DriverGuard::leave_to_helper`] does.
#[derive(Debug)]
#[must_use]
pub struct DriverGuard<'a, B: Bell = Event> {
    driver: &'a Driver<B>,
    left: bool,
}

/// Time at which a leaving driver comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverReturn {
    /// The thread may wait again, after a gap of the typical length.
    AfterGap,
    /// The thread sleeps until it is woken.
    WhenWoken,
}

/// Way in which the helper is to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperSleep {
    /// Sleeps on the socket, its event and all else, until the engine's next timer.
    Watch,
    /// Sleeps off the socket, for this long at most.
    Away(Duration),
}

impl Driver {
    /// Makes the role and the events that end sleeps. The role is free unless it is `reserved` for
    /// the engine's own thread, which [adopts](Driver::adopt) it.
    pub fn new(reserved: bool) -> std::io::Result<Self> {
        let driver = Self::with(Sleeper::new()?, Sleeper::new()?);
        driver.driven.store(reserved, Ordering::Relaxed);
        Ok(driver)
    }
}

impl<B: Bell> Driver<B> {
    fn with(sleep: Sleeper<B>, helper: Sleeper<B>) -> Self {
        Self {
            driven: AtomicBool::new(false),
            parked: AtomicUsize::new(0),
            left_at: AtomicU64::new(0),
            gap: AtomicU64::new(GAP_MAX_FACTOR * GAP_SHORT_NS),
            quiet_gaps: AtomicU64::new(0),
            state: Mutex::new(RoleState {
                waiters: VecDeque::new(),
                helper_sleep: HELPER_SLEEP,
                seen_left: 0,
            }),
            sleep,
            helper,
            helper_claim: WatchClaim::default(),
            rounds: AtomicU64::new(0),
        }
    }

    /// Becomes the driver for which the role was reserved. Called once, by the engine's own thread.
    pub fn adopt(&self) -> DriverGuard<'_, B> {
        self.held()
    }

    /// Becomes the driver, if there is none.
    pub fn try_drive(&self, now: Time) -> Option<DriverGuard<'_, B>> {
        let guard = self.take()?;
        let longest = GAP_MAX_FACTOR * self.short_gap();
        let gap = now.0.saturating_sub(self.left_at.load(Ordering::Relaxed)).min(longest);
        let typical = self.gap.load(Ordering::Relaxed).min(longest);
        let quiet = self.quiet_gaps.load(Ordering::Relaxed);
        self.quiet_gaps.store(quiet.saturating_add(1), Ordering::Relaxed);
        self.gap.store(typical - typical / GAPS_AVERAGED + gap / GAPS_AVERAGED, Ordering::Relaxed);
        Some(guard)
    }

    /// Becomes the driver again for a task that polls on, if there is none. The time since its last
    /// poll is not a gap between two waits.
    pub fn drive_on(&self) -> Option<DriverGuard<'_, B>> {
        self.take()
    }

    /// Notes that a peer has asked this node for something, and may wait for the answer. Until
    /// [`QUIET_GAPS`] gaps have passed, the helper watches in all gaps that are longer than
    /// [`GAP_SHORT_NS`].
    pub fn note_request(&self) {
        if self.quiet_gaps.load(Ordering::Relaxed) > 0 {
            self.quiet_gaps.store(0, Ordering::Relaxed);
        }
    }

    /// Returns `true` if a thread drives.
    pub fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }

    /// Notes that the driver begins a round.
    pub fn begin_round(&self) {
        self.rounds.store(self.rounds().wrapping_add(1), Ordering::Relaxed);
    }

    /// Returns the number of rounds that drivers have begun.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Parks until `ready` returns a value, or the role comes to this thread, or `limit` has passed
    /// (then there is neither). The caller uses the role or leaves it.
    ///
    /// `ready` is called again after each [`Driver::wake_waiters`], so a caller of that function
    /// makes `ready` true before. With [`WakeSource::Direct`], `ready` is called again whenever the
    /// thread is unparked.
    pub fn park<T>(
        &self,
        limit: Option<Duration>,
        wake_source: WakeSource,
        mut ready: impl FnMut() -> Option<T>,
    ) -> (Option<T>, Option<DriverGuard<'_, B>>) {
        let waiter = match self.enlist(wake_source) {
            Ok(waiter) => waiter,
            Err(guard) => return (None, Some(guard)),
        };
        let begun = limit.map(|limit| (std::time::Instant::now(), limit));
        loop {
            if waiter.handed.load(Ordering::Acquire) {
                return (None, Some(self.held()));
            }
            let value = ready();
            let rest = begun.map(|(begun, limit)| limit.saturating_sub(begun.elapsed()));
            if value.is_some() || rest.is_some_and(|rest| rest.is_zero()) {
                return (value, self.delist(&waiter));
            }
            park(rest);
        }
    }

    /// Wakes all waiters after a change, so that each checks its condition. Costs a fence and a
    /// load if there is none.
    pub fn wake_waiters(&self) {
        // Either this load sees the waiter, or the waiter sees the earlier changes, because it
        // checks its condition after it has enlisted.
        fence(Ordering::SeqCst);
        if self.parked.load(Ordering::Relaxed) > 0 {
            for waiter in
                self.lock().waiters.iter().filter(|waiter| waiter.wake_source != WakeSource::Direct)
            {
                waiter.thread.unpark();
            }
        }
    }

    /// Wakes the threads that sleep on the socket, as far as a turn concerns them: the driver for
    /// news or more work, the helper for more work, and both for a next turn that is due before
    /// their sleep ends. The caller has made the changes visible by a `SeqCst` fence.
    pub fn notify_sleepers(&self, news: bool, more: bool, next: Time) {
        let wake = |sleeper: &Sleeper<B>, at_once: bool| {
            if at_once { sleeper.wake() } else { sleeper.wake_before(next) }
        };
        wake(&self.sleep, news || more);
        wake(&self.helper, more);
    }

    /// Wakes the threads that sleep on the socket, so that they check everything again. A thread
    /// that is only about to sleep sees the results of the turn in its last check.
    pub fn wake_sleepers(&self) {
        fence(Ordering::SeqCst);
        self.sleep.wake();
        self.helper.wake();
    }

    /// Notes that the driver has taken the claim of the helper. A helper that sleeps on the socket
    /// is away from it now, so a leaving driver wakes it. A helper that is about to sleep on the
    /// socket finds its claim taken.
    pub fn send_helper_away(&self) {
        fence(Ordering::SeqCst);
        self.helper.leave_socket();
    }

    /// Returns where and for how long the helper is to sleep. Called by the helper before it
    /// sleeps.
    pub fn helper_sleeps(&self, now: Time) -> HelperSleep {
        let mut state = self.lock();
        let left_at = self.left_at.load(Ordering::Relaxed);
        let time = if !self.is_driven() {
            state.helper_sleep = HELPER_SLEEP;
            if !self.gaps_are_short() || now.0.saturating_sub(left_at) >= self.short_gap() {
                return HelperSleep::Watch;
            }
            // Between two drivers of an application that waits again and again. The application
            // will most likely be back before the helper.
            HELPER_SLEEP
        } else {
            if std::mem::replace(&mut state.seen_left, left_at) != left_at {
                // Drivers come and go, and a leaving driver would have to wake a helper that sleeps
                // longer.
                state.helper_sleep = HELPER_SLEEP;
            }
            let doubled = state.helper_sleep.saturating_mul(2).min(HELPER_SLEEP_MAX);
            std::mem::replace(&mut state.helper_sleep, doubled)
        };
        self.helper.go_away(now + time);
        HelperSleep::Away(time)
    }

    /// Returns `true` if the next driver is likely to take the role within `GAP_SHORT_NS` after the
    /// present one leaves it, judged by the gaps so far.
    pub fn predicts_quick_return(&self) -> bool {
        self.gap.load(Ordering::Relaxed) <= GAP_SHORT_NS
    }

    fn gaps_are_short(&self) -> bool {
        self.gap.load(Ordering::Relaxed) <= self.short_gap()
    }

    /// Returns the length in nanoseconds of the longest gap that counts as short.
    fn short_gap(&self) -> u64 {
        let is_quiet = self.quiet_gaps.load(Ordering::Relaxed) >= QUIET_GAPS;
        if is_quiet { GAP_QUIET_NS } else { GAP_SHORT_NS }
    }

    fn take(&self) -> Option<DriverGuard<'_, B>> {
        let free =
            self.driven.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        free.then(|| self.held())
    }

    fn held(&self) -> DriverGuard<'_, B> {
        DriverGuard { driver: self, left: false }
    }

    /// Enlists a waiter, or makes it the driver if there is none. The lock keeps a leaving driver
    /// from missing the waiter.
    fn enlist(&self, wake_source: WakeSource) -> Result<Arc<Waiter>, DriverGuard<'_, B>> {
        let mut state = self.lock();
        if let Some(guard) = self.take() {
            return Err(guard);
        }
        let waiter =
            Arc::new(Waiter { thread: current(), wake_source, handed: AtomicBool::new(false) });
        state.waiters.push_back(Arc::clone(&waiter));
        self.parked.store(state.waiters.len(), Ordering::Relaxed);
        drop(state);
        fence(Ordering::SeqCst);
        Ok(waiter)
    }

    /// Removes a waiter. A waiter that was made the driver meanwhile gets the role.
    fn delist(&self, waiter: &Arc<Waiter>) -> Option<DriverGuard<'_, B>> {
        let mut state = self.lock();
        if waiter.handed.load(Ordering::Relaxed) {
            return Some(self.held());
        }
        state.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        self.parked.store(state.waiters.len(), Ordering::Relaxed);
        None
    }

    fn release(&self, now: Time, back: DriverReturn) {
        let mut state = self.lock();
        if let Some(waiter) = state.waiters.pop_front() {
            self.parked.store(state.waiters.len(), Ordering::Relaxed);
            waiter.handed.store(true, Ordering::Release);
            drop(state);
            return waiter.thread.unpark();
        }
        // The helper must not wait for a driver that sleeps. Zero means that it left long ago.
        let left_at = if back == DriverReturn::WhenWoken { 0 } else { now.0 };
        self.left_at.store(left_at, Ordering::Relaxed);
        let gaps_are_short = back == DriverReturn::AfterGap && self.gaps_are_short();
        self.driven.store(false, Ordering::Release);
        let Some(until) = self.helper.away_until() else { return };
        if gaps_are_short && until <= now + HELPER_SLEEP {
            return;
        }
        // From here on the helper's sleeps are short again. Other leaving drivers need not wake it
        // again before it runs.
        state.helper_sleep = HELPER_SLEEP;
        let must_signal = self.helper.end();
        drop(state);
        if must_signal {
            self.helper.event.signal();
        }
    }

    fn lock(&self) -> Locked<MutexGuard<'_, RoleState>> {
        // No foreign code runs under this lock, so a panic cannot leave a change half done.
        locked(|| self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl<B: Bell> DriverGuard<'_, B> {
    /// Hands the role to the waiter that has waited longest, or else frees the role. Wakes the
    /// helper if nobody else would watch the socket soon.
    pub fn leave(mut self, now: Time) {
        self.left = true;
        self.driver.release(now, DriverReturn::AfterGap);
    }

    /// Leaves the role as [`DriverGuard::leave`] does, for a task that sleeps from here on until it
    /// is woken. The helper watches the socket if no waiter takes the role.
    pub fn leave_to_helper(mut self, now: Time) {
        self.left = true;
        self.driver.release(now, DriverReturn::WhenWoken);
    }
}

impl<B: Bell> Drop for DriverGuard<'_, B> {
    fn drop(&mut self) {
        if !self.left {
            // A panic. The helper must watch the socket, which the driver may have taken from it.
            self.driver.release(Time(0), DriverReturn::WhenWoken);
        }
    }
}
