//! Lets one thread sleep on the socket, and lets others see that it sleeps, so that they know
//! whether a wakeup is needed.

use crate::sync::{AtomicU64, Ordering, fence};
use oikaze_os::cpu::Event;
use oikaze_protocol::time::Time;

/// Signal that ends a sleep.
pub(super) trait Bell {
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

/// One sleeper: the driver, or the helper.
pub(super) struct Sleeper<B = Event> {
    /// Ends the sleep.
    pub event: B,
    /// Until when it sleeps, in nanoseconds of the node's clock; 0: awake.
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

    /// From here on whoever has news signals. What came before must be looked at once more before
    /// sleeping.
    ///
    /// Called twice: with the longest sleep before the timers are looked at, so that a timer set
    /// meanwhile signals, and then with what they say.
    pub fn fall_asleep(&self, until: Time) {
        self.until.store(until.0.max(1), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Has it been announced to sleep, and nobody woken it?
    pub fn is_asleep(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    pub fn wake_up(&self) {
        self.until.store(0, Ordering::SeqCst);
        self.event.clear();
    }

    /// Wake it if it sleeps past `next`. What it is woken for was made visible before (by a
    /// `SeqCst` fence).
    pub fn wake_before(&self, next: Time) {
        if next.0 < self.until.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Wake it if it sleeps, as [`Sleeper::wake_before`]. One signal is enough: it may take long
    /// until a woken thread gets a core.
    ///
    /// A thread that loses its core between the two lets the sleeper sleep for as long as that
    /// lasts, although others come after it; and no longer than the sleeper would without any news,
    /// [`SLEEP_MAX`](super::drive::SLEEP_MAX).
    pub fn wake(&self) {
        if self.until.load(Ordering::SeqCst) != 0 && self.until.swap(0, Ordering::SeqCst) != 0 {
            self.event.signal();
        }
    }
}
