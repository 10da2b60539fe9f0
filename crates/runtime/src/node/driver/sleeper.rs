//! Sleep and wakeup of one thread. Other threads see here until when the thread sleeps, so that
//! they wake it only if necessary.

use crate::sync::{AtomicBool, AtomicU64, Ordering, fence};
use arrayvec::ArrayVec;
use oikaze_os::cpu::Event;
use oikaze_os::memory::tracking::Tracker;
use oikaze_protocol::time::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Bit of a sleep away from the socket. Without it, the word is the end of a sleep on the socket.
const AWAY: u64 = 1 << 63;

/// Signal that ends a sleep.
pub trait Bell {
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
pub struct Sleeper<B = Event> {
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
    /// Called with the longest sleep before the timers are checked, so that a timer set meanwhile
    /// signals. [`Sleeper::shorten`] follows with the time that the timers give.
    pub fn fall_asleep(&self, until: Time) {
        self.until.store(until.0.clamp(1, AWAY - 1), Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Announces that the sleep on the socket ends at this time, unless another thread has ended it
    /// or has [taken the socket](Sleeper::leave_socket).
    pub fn shorten(&self, until: Time) {
        self.replace_watch(|_| until.0.clamp(1, AWAY - 1));
    }

    /// Makes a sleep on the socket one away from it, because another thread polls the socket.
    pub fn leave_socket(&self) {
        self.replace_watch(|until| until | AWAY);
    }

    /// Replaces the word of a sleep on the socket.
    fn replace_watch(&self, by: impl Fn(u64) -> u64) {
        let word = |until| is_watch(until).then(|| by(until));
        // A sleep that has ended meanwhile stays ended.
        let _ended = self.until.fetch_update(Ordering::SeqCst, Ordering::SeqCst, word);
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

/// Claim of a thread on the link's descriptor. While there is any, the link's fast paths are shut,
/// because only sockets wake a thread. Claims change inside the engine only.
#[derive(Debug, Default)]
pub struct WatchClaim(AtomicBool);

impl WatchClaim {
    /// Returns `true` if the link is watched for this claim.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that the link is watched. Returns `yes`.
    pub(super) fn set(&self, yes: bool) -> bool {
        self.0.store(yes, Ordering::Relaxed);
        yes
    }

    /// Notes that the link is not watched. Returns `true` if it was.
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

#[inline]
fn is_watch(until: u64) -> bool {
    (1..AWAY).contains(&until)
}

/// Descriptors on which threads of a node sleep.
pub struct Descriptors {
    /// The socket of the link.
    socket: Option<OwnedFd>,
    /// Is readable when a local peer has woken this node, or has ended.
    local_peers: Option<OwnedFd>,
    /// Source of page faults.
    pub tracker: Option<Arc<dyn Tracker>>,
}

impl Descriptors {
    /// Duplicates the descriptors of a link and of the local peers.
    ///
    /// # Errors
    /// The text says what could not be duplicated.
    pub fn new(
        socket: Option<BorrowedFd<'_>>,
        local_peers: Option<BorrowedFd<'_>>,
        tracker: Option<Arc<dyn Tracker>>,
    ) -> Result<Descriptors, (&'static str, io::Error)> {
        let duplicate = |fd: Option<BorrowedFd<'_>>, operation| {
            let duplicate = fd.map(|fd| fd.try_clone_to_owned()).transpose();
            duplicate.map_err(|error| (operation, error))
        };
        Ok(Descriptors {
            socket: duplicate(socket, "duplicating the socket's descriptor")?,
            local_peers: duplicate(local_peers, "duplicating the local peers' descriptor")?,
            tracker,
        })
    }

    /// Returns `true` if any node shares memory with this one.
    #[inline]
    pub fn has_local_peers(&self) -> bool {
        self.local_peers.is_some()
    }

    /// Returns the descriptors that are readable when something has arrived.
    pub fn arrivals(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.socket.iter().chain(&self.local_peers).map(AsFd::as_fd)
    }

    /// Sleeps on the sleeper's event and, as asked, on the socket and the fault descriptor.
    pub fn poll(&self, sleeper: &Sleeper, socket: bool, faults: bool, timeout: Duration) -> Wakeup {
        let mut fds = ArrayVec::<PollFd<'_>, 4>::new();
        fds.push(PollFd::new(&sleeper.event, PollFlags::IN));
        for fd in self.arrivals().filter(|_| socket) {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
        }
        let fault_at = fds.len();
        if let Some(tracker) = self.tracker.as_ref().filter(|_| faults) {
            fds.push(PollFd::from_borrowed_fd(tracker.fd(), PollFlags::IN));
        }
        let timeout = Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        if poll(&mut fds, Some(&timeout)).is_err() {
            // Interrupted, so the caller checks everything again.
            return Wakeup::default();
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Wakeup {
            arrivals: fds.get(1..fault_at).is_some_and(|fds| fds.iter().any(is_ready)),
            faults: fds.get(fault_at).is_some_and(is_ready),
        }
    }
}

/// End of a sleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wakeup {
    /// Something has arrived on the socket, or a local peer has woken this node.
    pub arrivals: bool,
    /// Page faults wait to be served.
    pub faults: bool,
}
