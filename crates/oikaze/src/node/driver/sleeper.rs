//! Lets one thread sleep on the socket, and lets others see that it sleeps, so that they know
//! whether a wakeup is needed.

use crate::sync::{AtomicU64, Ordering, fence};
use oikaze_os::cpu::Event;
use oikaze_protocol::time::Time;

/// Signal that ends a sleep.
pub(crate) trait Bell {
    fn signal(&self);
    fn clear(&self);
}

impl Bell for Event {
    fn signal(&self) {
        Event::signal(self);
    }

    fn clear(&self) {
        Event::clear(self);
    }
}

/// Sleeper for one thread: the driver, or the helper.
pub(crate) struct Sleeper<B = Event> {
    /// Ends the sleep.
    pub event: B,
    /// End of the sleep, in nanoseconds of the node's clock; 0 if awake.
    until: AtomicU64,
}

impl Sleeper {
    pub fn new() -> std::io::Result<Self> {
        Ok(Self::with(Event::new()?))
    }
}

impl<B: Bell> Sleeper<B> {
    pub fn with(event: B) -> Self {
        Self { event, until: AtomicU64::new(0) }
    }

    /// Announces the sleep: from here on, threads with news signal. The caller must check earlier
    /// news once more before it sleeps.
    ///
    /// Called twice: with the longest sleep before the timers are checked, so that a timer set
    /// meanwhile signals, and then with the time that the timers give.
    pub fn fall_asleep(&self, until: Time) {
        self.until.store(until.0.max(1), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Returns `true` if a sleep has been announced, and no thread has ended it.
    pub fn is_asleep(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    pub fn wake_up(&self) {
        self.until.store(0, Ordering::SeqCst);
        self.event.clear();
    }

    /// Wakes the thread if it sleeps past `next`. The caller has made its news visible before (by a
    /// `SeqCst` fence).
    pub fn wake_before(&self, next: Time) {
        if next.0 < self.until.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Wakes the thread if it sleeps, under the condition of [`Sleeper::wake_before`]. One signal
    /// is enough, because it may take long until a woken thread gets a core.
    ///
    /// A waker that loses its core between the swap and the signal delays the wakeup for as long as
    /// that lasts, although other wakers come after it. The sleeper never sleeps longer than it
    /// would without any news, [`SLEEP_MAX`](super::drive::SLEEP_MAX).
    pub fn wake(&self) {
        if self.until.load(Ordering::SeqCst) != 0 && self.until.swap(0, Ordering::SeqCst) != 0 {
            self.event.signal();
        }
    }
}
