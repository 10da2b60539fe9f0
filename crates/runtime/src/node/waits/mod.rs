//! Registry of waits that explain themselves (MEM-21): the blocked threads of this node, with
//! subject, start and cause.
//!
//! A wait costs nothing until it has lasted [`REGISTER_AFTER`], because the waiting thread reads
//! the clock anyway. Then the thread enters its wait here, and removes it at the end. A thread of
//! its own ([`watcher`]) explains long waits. It starts with the first entry and sleeps while there
//! is none.

mod answers;
mod cause;
pub(super) mod faults;
mod interruption;
mod place;
mod report;
mod subject;
#[cfg(all(test, not(loom)))]
mod tests;
mod watcher;

pub use interruption::{InterruptionCheck, interruptible};
pub use place::{CallPlace, line_of};
pub use place::{PlaceFinder, find_places_by};
pub use subject::WaitSubject;

use super::parts::Node;
use crate::error::Cause;
use crate::error::{Error, Result};
use crate::observe::page::BOARD_BYTES;
use crate::sync::lock;
use interruption::Interruption;
use oikaze_launch::Bootstrap;
use oikaze_protocol::time::Time;
use place::SourceLine;
use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};
use subject::WaitingThread;

/// Length of a wait from which on it is registered, if it is not to be explained sooner.
const REGISTER_AFTER: Duration = Duration::from_secs(1);
/// Length of a wait from which on it is explained, unless the user says otherwise (MEM-21.1).
const EXPLAIN_AFTER: Duration = Duration::from_secs(5);
/// Maximum number of locks whose names a node remembers.
const LOCK_NAMES_MAX: usize = 4096;
/// Maximum time that an error of a wait which took too long spends on asking other nodes why. A
/// shorter wait asks for no longer than it lasted, so that a program may poll with short limits.
const CAUSE_TIME: Duration = Duration::from_millis(500);

/// The registry of a node's waits.
pub struct Waits {
    bootstrap: Arc<dyn Bootstrap>,
    /// Set once the engine runs; before that, the node waits for others to join.
    node: OnceLock<Weak<Node>>,
    /// `None`: no wait is ever explained on stderr.
    explain_after: Option<Duration>,
    entries: Mutex<Entries>,
    /// Signalled when an entry is added, and at the node's end.
    changed: Condvar,
    /// Number of entries, for readers that need no lock.
    count: AtomicUsize,
    /// Set while another node asks about this one. Waits then register at once, however short.
    asked: AtomicBool,
    /// Locks of the job that this node holds.
    held: Mutex<Vec<HeldLock>>,
    /// Number of locks that this node has taken.
    taken: AtomicU64,
    /// Names of the locks that the program has named, by number.
    lock_names: Mutex<BTreeMap<u64, String>>,
}

#[derive(Default)]
struct Entries {
    waits: Vec<Arc<Wait>>,
    watched: bool,
    closed: bool,
}

/// One wait of one thread.
struct Wait {
    subject: WaitSubject,
    /// Call that waits, if it is known.
    place: Option<CallPlace>,
    begun: Instant,
    thread: WaitingThread,
    state: Mutex<WaitState>,
}

#[derive(Default)]
struct WaitState {
    /// Age of the wait at which it is explained again; not decided before the watcher has seen it.
    next: Option<Duration>,
    /// Number of explanations printed.
    explanations: u32,
    /// Cause of the wait, as found out last.
    cause: Option<String>,
}

struct HeldLock {
    lock: u64,
    /// Number of the taking, because several threads may read under one lock.
    taking: u64,
    since: Instant,
    thread: WaitingThread,
    /// Line that took the lock, in a Rust program.
    place: Option<SourceLine>,
}

impl Waits {
    pub fn new(bootstrap: Arc<dyn Bootstrap>) -> Arc<Self> {
        let explain_after = bootstrap.settings().explain_after.unwrap_or(EXPLAIN_AFTER);
        let waits = Arc::new(Self {
            node: OnceLock::new(),
            explain_after: Some(explain_after).filter(|after| !after.is_zero()),
            entries: Mutex::default(),
            changed: Condvar::new(),
            count: AtomicUsize::new(0),
            asked: AtomicBool::new(false),
            held: Mutex::default(),
            taken: AtomicU64::new(0),
            lock_names: Mutex::default(),
            bootstrap,
        });
        // Not an `Arc`: the bootstrap keeps the function, and the registry the bootstrap.
        let answering = Arc::downgrade(&waits);
        waits.bootstrap.on_question(Box::new(move |question| {
            answering
                .upgrade()
                .map_or_else(|| "has left the job".to_owned(), |waits| waits.answer(question))
        }));
        waits
    }

    /// Makes SIGQUIT report this node's waits from now on (MEM-21.6).
    pub fn report_on_quit(self: &Arc<Self>) {
        report::begin(self);
    }

    /// Sets the node once its engine runs, so that its state can be reported.
    pub fn set_node(&self, node: &Arc<Node>) {
        let _ = self.node.set(Arc::downgrade(node));
    }

    /// Length of a wait from which on it is registered.
    fn register_after(&self) -> Duration {
        self.explain_after.map_or(REGISTER_AFTER, |after| after.min(REGISTER_AFTER))
    }

    /// Returns `true` if waits are to register at once.
    #[inline]
    fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// Registers a wait of the calling thread until the entry is dropped. The thread waits in the
    /// call at this place.
    pub fn register(
        self: &Arc<Self>,
        subject: WaitSubject,
        begun: Instant,
        place: Option<CallPlace>,
    ) -> Registered {
        let wait = Arc::new(Wait {
            subject,
            place,
            begun,
            thread: WaitingThread::current(),
            state: Mutex::default(),
        });
        let mut entries = lock(&self.entries);
        entries.waits.push(Arc::clone(&wait));
        self.count.store(entries.waits.len(), Ordering::Relaxed);
        if !entries.watched && !entries.closed {
            // Without a watcher nothing is explained; everything else goes on.
            entries.watched = watcher::spawn(Arc::clone(self)).is_ok();
        }
        drop(entries);
        self.changed.notify_all();
        Registered { waits: Arc::clone(self), wait }
    }

    /// Notes that a thread of this node holds this lock of the job from now on. Returns the number
    /// of the taking, by which the lock is given back.
    #[track_caller]
    pub fn took_lock(&self, number: u64) -> u64 {
        let taking = self.taken.fetch_add(1, Ordering::Relaxed);
        lock(&self.held).push(HeldLock {
            lock: number,
            taking,
            since: Instant::now(),
            thread: WaitingThread::current(),
            place: line_of(Location::caller()),
        });
        taking
    }

    /// Returns since when and where the calling thread holds this lock of the job, as in "3.0 s ago
    /// at src/main.rs:40", if it took the lock.
    fn holds_lock(&self, number: u64) -> Option<String> {
        let held = lock(&self.held);
        let mine = held.iter().find(|held| held.lock == number && held.thread.is_current())?;
        let place = mine.place.map_or_else(String::new, |place| format!(" at {place}"));
        Some(format!("{:.1} s ago{place}", mine.since.elapsed().as_secs_f64()))
    }

    /// Refuses a lock that the calling thread has taken, and that was not given back: the thread
    /// would wait for itself (COH-7.8).
    pub fn check_lock_is_not_mine(&self, number: u64) -> Result<()> {
        let Some(since) = self.holds_lock(number) else { return Ok(()) };
        let why = format!(
            "this thread took the lock {since}, and it was not given back; locks are not \
             recursive: give it back first"
        );
        Err(Error::invalid(self.lock_text(number), why))
    }

    /// Notes the name that the program gives a lock.
    pub fn name_lock(&self, number: u64, name: &str) {
        let mut names = lock(&self.lock_names);
        if names.len() < LOCK_NAMES_MAX {
            names.entry(number).or_insert_with(|| name.to_owned());
        }
    }

    /// Returns how texts name a lock: by the name that the program gave it, else by its number.
    pub fn lock_text(&self, number: u64) -> String {
        let name = lock(&self.lock_names).get(&number).cloned();
        name.map_or_else(|| format!("lock {number}"), |name| format!("lock \"{name}\""))
    }

    /// Notes that this node gives back the lock that this taking has got.
    pub fn gave_lock_back(&self, taking: u64) {
        let mut held = lock(&self.held);
        if let Some(at) = held.iter().position(|held| held.taking == taking) {
            held.swap_remove(at);
        }
    }

    /// Returns why a thread of this node waits for this. Asks other nodes for at most `limit`.
    pub fn cause(&self, subject: &WaitSubject, limit: Duration) -> String {
        let facts = answers::Asking::new(self, limit);
        cause::cause(&facts, subject, Some(&WaitingThread::current())).text
    }

    /// Adds to the error of the caller's wait where it was (MEM-21.5) if nodes have called
    /// different things, and also why if it took too long (MEM-21.4).
    #[track_caller]
    pub fn explain_timeout(&self, error: Error, subject: &WaitSubject) -> Error {
        let line = line_of(Location::caller());
        let misfits = error.is_mismatch() || error.is_timeout();
        let error = if misfits { error.at(line) } else { error };
        match error.into_cause() {
            Cause::Timeout { what, waited } => {
                let cause = self.cause(subject, waited.min(CAUSE_TIME));
                Cause::Timeout { what: format!("{what} ({cause})"), waited }.into()
            }
            other => other.into(),
        }
    }

    /// Returns the longest waits, for the node's board: one line of at most [`BOARD_BYTES`] bytes.
    pub fn board_text(&self) -> String {
        if self.count.load(Ordering::Relaxed) == 0 {
            return String::new();
        }
        let mut waits = lock(&self.entries).waits.clone();
        waits.sort_by_key(|wait| wait.begun);
        let mut text = String::new();
        for wait in waits {
            let cause = lock(&wait.state)
                .cause
                .as_ref()
                .map_or_else(String::new, |cause| format!(": {cause}"));
            let one =
                format!("{:.0} s for {}{cause}", wait.begun.elapsed().as_secs_f64(), wait.text());
            if !text.is_empty() {
                text.push_str(" | ");
            }
            text.push_str(&one);
            if text.len() > BOARD_BYTES {
                break;
            }
        }
        text
    }

    /// Ends the explanations, because the node ends.
    pub fn close(&self) {
        lock(&self.entries).closed = true;
        self.changed.notify_all();
        report::end();
    }

    fn is_closed(&self) -> bool {
        lock(&self.entries).closed
    }
}

impl Wait {
    /// Returns the subject and the place, as in "barrier 3 at src/main.rs:40".
    fn text(&self) -> String {
        let place = self.place.as_ref();
        place.map_or_else(
            || self.subject.to_string(),
            |place| format!("{} at {place}", self.subject),
        )
    }
}

/// An entry in the registry; dropping it removes the entry.
pub struct Registered {
    waits: Arc<Waits>,
    wait: Arc<Wait>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let mut entries = lock(&self.waits.entries);
        entries.waits.retain(|wait| !Arc::ptr_eq(wait, &self.wait));
        self.waits.count.store(entries.waits.len(), Ordering::Relaxed);
    }
}

/// A wait of the calling thread that is registered if it lasts.
pub struct LongWait<'s> {
    waits: &'s Arc<Waits>,
    subject: Option<&'s dyn Fn() -> WaitSubject>,
    begun: Instant,
    place: &'static Location<'static>,
    /// Node time at which the wait registers.
    due: Time,
    registered: Option<Registered>,
    interruption: Interruption,
}

impl<'s> LongWait<'s> {
    /// Begins a wait of the caller, for which `subject` gives the subject if it lasts.
    #[track_caller]
    pub fn new(node: &'s Node, subject: &'s dyn Fn() -> WaitSubject) -> LongWait<'s> {
        let begun = Instant::now();
        let now = node.clock.time_of(begun);
        LongWait {
            waits: &node.waits,
            subject: Some(subject),
            begun,
            place: Location::caller(),
            due: now + node.waits.register_after(),
            registered: None,
            interruption: Interruption::of_thread(now),
        }
    }

    /// Begins a wait that is never explained: it is short, or part of one that is.
    #[track_caller]
    pub fn short(node: &'s Node) -> LongWait<'s> {
        LongWait {
            waits: &node.waits,
            subject: None,
            begun: node.clock.start,
            place: Location::caller(),
            due: Time(u64::MAX),
            registered: None,
            interruption: Interruption::never(),
        }
    }

    /// Returns when the wait began.
    #[inline]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Registers the wait if it has lasted long, or if another node asks. Called with the present
    /// time whenever the waiting thread has polled.
    #[inline]
    pub fn check(&mut self, now: Time) {
        if now >= self.due || self.waits.is_asked() {
            self.register();
        }
        self.interruption.check(now);
    }

    /// Returns `true` if the program has interrupted the wait, which then ends as if its time limit
    /// had passed.
    #[inline]
    pub fn is_interrupted(&self) -> bool {
        self.interruption.is_over()
    }

    #[cold]
    fn register(&mut self) {
        self.due = Time(u64::MAX);
        if let (Some(subject), None) = (self.subject, &self.registered) {
            let place = CallPlace::of_call(self.place);
            self.registered = Some(self.waits.register(subject(), self.begun, place));
        }
    }
}
