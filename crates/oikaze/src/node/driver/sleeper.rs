//! Sleep and wakeup of one thread. Other threads see here until when the thread sleeps, so that
//! they wake it only if necessary.

use crate::sync::{AtomicU64, Ordering, fence};
use oikaze_os::cpu::Event;
use oikaze_protocol::time::Time;

/// Bit of a sleep away from the socket. Without it, the word is the end of a sleep on the socket.
const AWAY: u64 = 1 << 63;

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

/// Sleep of the driver or of the helper. The thread is awake, watches the socket until a time, or
/// is away from the socket until a time.
#[derive(Debug)]
pub(crate) struct Sleeper<B = Event> {
    /// Ends the sleep.
    pub event: B,
    /// End of the sleep in nanoseconds of the node's clock, with [`AWAY`] if away; 0 if awake.
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

    /// Announces a sleep on the socket: from here on, threads with news signal. The caller must
    /// check earlier news once more before it sleeps.
    ///
    /// Called twice: with the longest sleep before the timers are checked, so that a timer set
    /// meanwhile signals, and then with the time that the timers give.
    pub fn fall_asleep(&self, until: Time) {
        self.until.store(until.0.clamp(1, AWAY - 1), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Announces a sleep away from the socket, which only [`Sleeper::end`] ends early.
    pub fn go_away(&self, until: Time) {
        self.until.store(until.0 | AWAY, Ordering::SeqCst);
    }

    /// Returns `true` if a sleep on the socket has been announced, and no thread has ended it.
    #[inline]
    pub fn is_watching(&self) -> bool {
        is_watch(self.until.load(Ordering::Relaxed))
    }

    /// Returns the end of a sleep away from the socket.
    pub fn away_until(&self) -> Option<Time> {
        let until = self.until.load(Ordering::SeqCst);
        (until & AWAY != 0).then_some(Time(until & !AWAY))
    }

    /// Notes that this thread is awake again.
    pub fn wake_up(&self) {
        self.until.store(0, Ordering::SeqCst);
        self.event.clear();
    }

    /// Wakes the thread if it watches the socket past `next`. The caller has made its news visible
    /// before (by a `SeqCst` fence).
    pub fn wake_before(&self, next: Time) {
        let until = self.until.load(Ordering::SeqCst);
        if is_watch(until) && next.0 < until && self.end() {
            self.event.signal();
        }
    }

    /// Wakes the thread if it watches the socket, under the condition of [`Sleeper::wake_before`].
    /// One signal is enough, because it may take long until a woken thread gets a core.
    ///
    /// A waker that loses its core between the swap and the signal delays the wakeup for as long as
    /// that lasts, although other wakers come after it. The sleeper never sleeps longer than it
    /// would without any news, [`SLEEP_MAX`](super::limits::SLEEP_MAX).
    pub fn wake(&self) {
        if is_watch(self.until.load(Ordering::SeqCst)) && self.end() {
            self.event.signal();
        }
    }

    /// Ends the sleep. Returns `true` if the caller must signal.
    #[must_use]
    pub fn end(&self) -> bool {
        self.until.swap(0, Ordering::SeqCst) != 0
    }
}

#[inline]
fn is_watch(until: u64) -> bool {
    (1..AWAY).contains(&until)
}
