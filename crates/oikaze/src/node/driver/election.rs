//! Driver election: one of the threads that wait runs the engine's turns.
//!
//! Threads that wait for something compete for the role of the *driver*, which runs turns and
//! watches the socket. There is one driver, because two threads that poll one socket cost more than
//! ten times what one costs. The others park. A driver whose condition is fulfilled hands the role
//! to a parked thread, or leaves it free. Then the *helper*, an otherwise idle thread, watches the
//! socket, so that this node answers its peers although no thread waits.
//!
//! A wakeup of the helper costs a system call and a thread switch, which a program that waits again
//! microseconds later pays for nothing. While there is a driver, the helper therefore sleeps with a
//! limit, away from the socket. A leaving driver wakes it only if its limit is far or the gaps
//! between two drivers have lately been long ([`GAP_SHORT`]). In the worst case nobody watches the
//! socket for [`LOOK_SOON`] once, and then the helper polls by itself.
//!
//! Properties that loom checks in every interleaving (`tests.rs`):
//! 1. There are never two drivers.
//! 2. While a thread waits, there is a driver: a leaving driver hands over under the same lock
//!    under which a waiter enlists.
//! 3. While there is no driver, the helper watches, or is being woken, or polls again within
//!    [`LOOK_SOON`].
//! 4. A waiter whose condition came true before [`Role::wake_all`] sees it and does not sleep on.
//!    ([`Wakes::Alone`] leaves that to others.)

#[cfg(test)]
mod tests;

use crate::sync::{
    Arc, AtomicBool, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, Thread, current, fence,
    park,
};
use oikaze_os::signals::{Locked, locked};
use std::collections::VecDeque;
use std::time::Duration;

/// Longest gap between two drivers, in nanoseconds, for which waking the helper would be a waste.
pub(crate) const GAP_SHORT: u64 = 50_000;
/// Time in nanoseconds within which a helper polls by itself, so that a short gap need not wake it.
/// The time may be twice as long where that spares an interrupt.
pub(crate) const LOOK_SOON: u64 = 2_000_000;
/// Longest time between the helper's polls. While one driver stays, the helper polls ever more
/// rarely, up to this time. Then a leaving driver always wakes the helper.
const LOOK_LATE: u64 = 32 * LOOK_SOON;
/// Time in nanoseconds after which a helper that happened to poll in a short gap polls again. Each
/// poll takes the core away from the application for a moment.
const LOOK_AGAIN: u64 = LOOK_SOON;
/// Maximum length of a gap in nanoseconds that counts, so that a long pause is forgotten after some
/// short ones.
const GAP_MAX: u64 = 4 * GAP_SHORT;
/// Number of gaps in the moving average. A gap in which this thread lost its core does not decide
/// alone. The helper that is woken for it would take the core away again, and so on.
const GAP_MEMORY: u64 = 16;

/// The state machine. Times are nanoseconds of the caller's own clock.
#[derive(Debug)]
pub(crate) struct Role {
    /// Set while a thread drives. Set by compare-and-swap without the lock; cleared only under it.
    driven: AtomicBool,
    /// Number of enlisted waiters, so that [`Role::wake_all`] is one load when there is none.
    waiting: AtomicUsize,
    /// Time at which the role last became free, and the typical gap until it was taken. Only a
    /// driver writes them.
    left_at: AtomicU64,
    gap: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    waiters: VecDeque<Arc<Waiter>>,
    helper: Helper,
    /// Length of the helper's next sleep away from the socket.
    patience: u64,
    /// Value of `left_at` at the helper's last check.
    seen_left: u64,
}

/// State of the helper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Helper {
    /// Runs, or is being woken. It calls [`Role::helper_sleeps`] before it sleeps again.
    Awake,
    /// Sleeps on the socket.
    Watching,
    /// Sleeps away from the socket, until this time.
    Away(u64),
}

/// A parked thread.
#[derive(Debug)]
struct Waiter {
    thread: Thread,
    wakes: Wakes,
    /// Set under the lock when the waiter has been made the driver.
    handed: AtomicBool,
}

/// Event that ends a waiter's sleep, besides the role and the waiter's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakes {
    /// Woken by [`Role::wake_all`].
    WithAll,
    /// Woken only by the thread that makes its condition true, and unparks it then.
    Alone,
}

/// Ownership of the role. [`Driving::leave`] gives the role back. A drop (by a panic) gives it back
/// without waking the helper.
#[derive(Debug)]
#[must_use]
pub(crate) struct Driving<'a> {
    role: &'a Role,
    left: bool,
}

/// Outcome of giving the role up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Handover {
    /// A waiter has the role.
    Waiter,
    /// The role is free, and the helper watches the socket, or will very soon.
    Free,
    /// The role is free, and the caller must wake the helper.
    WakeHelper,
}

/// Result of a wait for a turn.
#[derive(Debug)]
#[must_use]
pub(crate) struct Turn<'a, T> {
    /// The awaited value, if it is there.
    pub value: Option<T>,
    /// The role, if it came to this thread, which has to use it or leave it.
    pub driving: Option<Driving<'a>>,
}

/// Way in which the helper is to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// Sleeps on the socket, its event and all else, until the engine's next timer.
    Watch,
    /// Sleeps off the socket, for this long at most.
    Away(Duration),
}

impl Role {
    /// Makes a free role.
    pub fn new() -> Self {
        Self {
            driven: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            left_at: AtomicU64::new(0),
            gap: AtomicU64::new(GAP_MAX),
            state: Mutex::new(State {
                waiters: VecDeque::new(),
                helper: Helper::Awake,
                patience: LOOK_SOON,
                seen_left: 0,
            }),
        }
    }

    /// Becomes the driver, if there is none.
    pub fn try_drive(&self, now: u64) -> Option<Driving<'_>> {
        let driving = self.take()?;
        let gap = now.saturating_sub(self.left_at.load(Ordering::Relaxed)).min(GAP_MAX);
        let typical = self.gap.load(Ordering::Relaxed);
        self.gap.store(typical - typical / GAP_MEMORY + gap / GAP_MEMORY, Ordering::Relaxed);
        Some(driving)
    }

    /// Returns `true` if a thread drives.
    pub fn is_driven(&self) -> bool {
        self.driven.load(Ordering::Acquire)
    }

    /// Parks until `ready` returns a value, or the role comes to this thread, or `limit` has passed
    /// (then there is neither).
    ///
    /// `ready` is called again after each [`Role::wake_all`], so a caller of that function makes
    /// `ready` true before. With [`Wakes::Alone`], `ready` is called again whenever the thread is
    /// unparked.
    pub fn wait_turn<T>(
        &self,
        limit: Option<Duration>,
        wakes: Wakes,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Turn<'_, T> {
        let waiter = match self.enlist(wakes) {
            Ok(waiter) => waiter,
            Err(driving) => return Turn { value: None, driving: Some(driving) },
        };
        let begun = limit.map(|limit| (std::time::Instant::now(), limit));
        loop {
            if waiter.handed.load(Ordering::Acquire) {
                return Turn { value: None, driving: Some(self.held()) };
            }
            if let Some(value) = ready() {
                return Turn { value: Some(value), driving: self.delist(&waiter) };
            }
            let rest = begun.map(|(begun, limit)| limit.saturating_sub(begun.elapsed()));
            if rest.is_some_and(|rest| rest.is_zero()) {
                return Turn { value: None, driving: self.delist(&waiter) };
            }
            park(rest);
        }
    }

    /// Wakes all waiters after a change, so that each checks its condition. Costs one load if there
    /// is none.
    pub fn wake_all(&self) {
        // Either this load sees the waiter, or the waiter sees the earlier changes, because it
        // checks its condition after it has enlisted.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            for waiter in self.lock().waiters.iter().filter(|waiter| waiter.wakes == Wakes::WithAll)
            {
                waiter.thread.unpark();
            }
        }
    }

    /// Returns where and for how long the helper is to sleep. Called by the helper before it
    /// sleeps.
    pub fn helper_sleeps(&self, now: u64) -> Sleep {
        let mut state = self.lock();
        let left_at = self.left_at.load(Ordering::Relaxed);
        if !self.is_driven() {
            state.patience = LOOK_SOON;
            if self.gaps_are_short() && now.saturating_sub(left_at) < GAP_SHORT {
                // Between two drivers of an application that waits again and again. The application
                // will most likely be back before the helper.
                state.helper = Helper::Away(now.saturating_add(LOOK_AGAIN));
                return Sleep::Away(Duration::from_nanos(LOOK_AGAIN));
            }
            state.helper = Helper::Watching;
            return Sleep::Watch;
        }
        if std::mem::replace(&mut state.seen_left, left_at) != left_at {
            // Drivers come and go, and a leaving driver would have to wake a helper that sleeps
            // longer.
            state.patience = LOOK_SOON;
        }
        let patience = state.patience;
        state.patience = patience.saturating_mul(2).min(LOOK_LATE);
        state.helper = Helper::Away(now.saturating_add(patience));
        Sleep::Away(Duration::from_nanos(patience))
    }

    /// Notes that a sleep of the helper has ended.
    pub fn helper_woke(&self) {
        self.lock().helper = Helper::Awake;
    }

    /// Returns `true` if the helper may serve the socket now. The helper must take the role to be
    /// sure.
    pub fn helper_may_watch(&self) -> bool {
        !self.is_driven()
    }

    fn gaps_are_short(&self) -> bool {
        self.gap.load(Ordering::Relaxed) <= GAP_SHORT
    }

    fn take(&self) -> Option<Driving<'_>> {
        let free =
            self.driven.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        free.then(|| self.held())
    }

    fn held(&self) -> Driving<'_> {
        Driving { role: self, left: false }
    }

    /// Enlists a waiter, or makes it the driver if there is none. The lock keeps a leaving driver
    /// from missing the waiter.
    fn enlist(&self, wakes: Wakes) -> Result<Arc<Waiter>, Driving<'_>> {
        let mut state = self.lock();
        if let Some(driving) = self.take() {
            return Err(driving);
        }
        let waiter = Arc::new(Waiter { thread: current(), wakes, handed: AtomicBool::new(false) });
        state.waiters.push_back(Arc::clone(&waiter));
        self.waiting.store(state.waiters.len(), Ordering::Relaxed);
        drop(state);
        fence(Ordering::SeqCst);
        Ok(waiter)
    }

    /// Removes a waiter. A waiter that was made the driver meanwhile gets the role.
    fn delist(&self, waiter: &Arc<Waiter>) -> Option<Driving<'_>> {
        let mut state = self.lock();
        if waiter.handed.load(Ordering::Relaxed) {
            return Some(self.held());
        }
        state.waiters.retain(|other| !Arc::ptr_eq(other, waiter));
        self.waiting.store(state.waiters.len(), Ordering::Relaxed);
        None
    }

    fn release(&self, now: Option<u64>) -> Handover {
        let mut state = self.lock();
        if let Some(waiter) = state.waiters.pop_front() {
            self.waiting.store(state.waiters.len(), Ordering::Relaxed);
            waiter.handed.store(true, Ordering::Release);
            drop(state);
            waiter.thread.unpark();
            return Handover::Waiter;
        }
        let Some(now) = now else {
            self.driven.store(false, Ordering::Release);
            return Handover::Free;
        };
        self.left_at.store(now, Ordering::Relaxed);
        let gaps_are_short = self.gaps_are_short();
        self.driven.store(false, Ordering::Release);
        match state.helper {
            Helper::Awake | Helper::Watching => Handover::Free,
            Helper::Away(until) if gaps_are_short && until <= now.saturating_add(LOOK_SOON) => {
                Handover::Free
            }
            Helper::Away(_) => {
                // Other leaving drivers need not wake the helper again before it runs. From here on
                // its sleeps are short again.
                (state.helper, state.patience) = (Helper::Awake, LOOK_SOON);
                Handover::WakeHelper
            }
        }
    }

    fn lock(&self) -> Locked<MutexGuard<'_, State>> {
        // No foreign code runs under this lock, so a panic cannot leave a change half done.
        locked(|| self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Driving<'_> {
    /// Hands the role to the waiter that has waited longest, or else frees the role.
    pub fn leave(mut self, now: u64) -> Handover {
        self.left = true;
        self.role.release(Some(now))
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        if !self.left {
            // A helper that is away polls by itself, because its sleeps are limited.
            let _ = self.role.release(None);
        }
    }
}
