//! Interruption of waits by the program, for languages whose signal handlers run in the interpreter
//! (MEM-19.4).

use oikaze_protocol::time::Time;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Time between two checks of one wait. A check may take a lock of the interpreter, so it is rare.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Check of a thread ([`interruptible`]), which returns `true` if the wait is to end.
pub type InterruptionCheck = Rc<dyn Fn() -> bool>;

thread_local! {
    static CHECK: RefCell<Option<InterruptionCheck>> = const { RefCell::new(None) };
}

/// Puts the check back that was there before, when a call ends in whatever way.
struct Restored(Option<InterruptionCheck>);

impl Drop for Restored {
    fn drop(&mut self) {
        exchange(self.0.take());
    }
}

/// Sets the check of this thread, and returns the one before. A thread whose thread-locals were
/// destroyed has none: it runs functions of atexit(3), for example.
fn exchange(check: Option<InterruptionCheck>) -> Option<InterruptionCheck> {
    CHECK.try_with(|current| current.replace(check)).unwrap_or_default()
}

/// Runs `work`, whose waits on this thread ask `check` about 20 times a second whether to end. A
/// wait that ends so returns the error of a time limit that has passed. What the wait was for goes
/// on, as after a time limit.
///
/// A thread never asks while it is inside the engine, so `check` may take a lock of an interpreter.
/// From the first `true` on, all further waits of `work` end soon.
///
/// ```
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let word = job.register(oikaze::memory::Region::zeroed(8)?)?;
/// let check = std::rc::Rc::new(|| true); // a signal has arrived, for example
/// let waited = oikaze::ffi::interruptible(check, || word.wait_until(0, |word| word > 0));
/// assert!(waited.unwrap_err().is_timeout());
/// # job.barrier()?; // nobody leaves before
/// # Ok(())
/// # }
/// ```
pub fn interruptible<T>(check: InterruptionCheck, work: impl FnOnce() -> T) -> T {
    let _restored = Restored(exchange(Some(check)));
    work()
}

/// Interruption of one wait of the calling thread.
pub struct Interruption {
    check: Option<InterruptionCheck>,
    due: Time,
    is_over: bool,
}

impl Interruption {
    /// Begins a wait at this time.
    pub fn of_thread(now: Time) -> Self {
        let check = CHECK.try_with(|check| check.borrow().clone()).unwrap_or_default();
        Self { check, due: now + CHECK_INTERVAL, is_over: false }
    }

    /// Makes a wait that cannot be interrupted.
    pub const fn never() -> Self {
        Self { check: None, due: Time(u64::MAX), is_over: false }
    }

    /// Asks the program if that is due.
    #[inline]
    pub fn check(&mut self, now: Time) {
        if now >= self.due
            && let Some(check) = &self.check
        {
            self.due = now + CHECK_INTERVAL;
            self.is_over |= check();
        }
    }

    /// Returns `true` if the wait is to end.
    #[inline]
    pub const fn is_over(&self) -> bool {
        self.is_over
    }
}
