//! State of one page under mprotect, in a word that threads can sleep on.
//!
//! Bits: 0–1 access (0 unmapped, 1 read, 2 write) · 2 a thread waits to read · 3 a thread waits to
//! write · 4–31 number of access changes. A sleeper passes the whole word to `futex`, so a change
//! between its load and its sleep keeps it awake, and no wakeup is lost. Only the tracker changes
//! the access; only sleepers set the waiting bits. All of it is async-signal-safe.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::processes::signals::SignalsBlocked;
use oikaze_protocol::coherence::Access;

const ACCESS: u32 = 0b11;
const WAITS_READ: u32 = 1 << 2;
const WAITS_WRITE: u32 = 1 << 3;
const CHANGES: u32 = 4;

/// Access that a page's mapping permits, as a number. A greater level permits more.
pub(super) type Level = u32;
/// No access is permitted.
pub(super) const UNMAPPED: Level = 0;
/// Loads are permitted.
pub(super) const READABLE: Level = 1;
/// Loads and stores are permitted.
pub(super) const WRITABLE: Level = 2;

pub(super) fn level_of(access: Access) -> Level {
    match access {
        Access::Read => READABLE,
        Access::Write => WRITABLE,
    }
}

/// State word of a page. Starts unmapped, without waiters.
#[derive(Debug, Default)]
pub(super) struct PageWord(AtomicU32);

impl PageWord {
    pub(super) fn level(&self) -> Level {
        self.0.load(Ordering::Acquire) & ACCESS
    }

    /// Sets the page's level, for the tracker, one thread at a time. Returns `true` if a thread may
    /// sleep on the word. Then call [`wake`](Self::wake).
    pub(super) fn change(&self, level: Level) -> bool {
        let changes = (self.0.load(Ordering::Relaxed) >> CHANGES).wrapping_add(1);
        let old = self.0.swap((changes << CHANGES) | level, Ordering::AcqRel);
        old & (WAITS_READ | WAITS_WRITE) != 0
    }

    /// Wakes all threads that sleep on the word.
    pub(super) fn wake(&self) {
        futex(&self.0, libc::FUTEX_WAKE, i32::MAX as u32);
    }

    /// Sleeps until the page may permit the access, for the touching thread, which then tries
    /// again.
    ///
    /// `wanted` is the access that the processor reported, if any. Otherwise a touch of an unmapped
    /// page counts as a load and one of a readable page as a store. `report` reports the fault. It
    /// runs once for each time that no thread waits for the same access yet.
    pub(super) fn wait(&self, wanted: Option<Access>, report: impl Fn(Option<Access>)) {
        let first = self.level();
        let needed = wanted.map_or(first + 1, level_of);
        loop {
            let seen = self.0.load(Ordering::Acquire);
            let level = seen & ACCESS;
            // If `needed` is beyond `WRITABLE`, the page became writable before the first load.
            if level >= needed || level == WRITABLE {
                return;
            }
            let bit = if needed == WRITABLE { WAITS_WRITE } else { WAITS_READ };
            if seen & bit == 0 {
                // Block signals: a handler between the two steps would see the bit, and sleep on a
                // fault that nobody has been told of.
                let _calm = SignalsBlocked::begin();
                if self
                    .0
                    .compare_exchange(seen, seen | bit, Ordering::AcqRel, Ordering::Relaxed)
                    .is_err()
                {
                    continue;
                }
                report(wanted.or((needed == WRITABLE).then_some(Access::Write)));
            }
            // Interrupted, woken, or the word has changed: load it again.
            futex(&self.0, libc::FUTEX_WAIT, seen | bit);
        }
    }
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    // SAFETY: the word is live for the whole call and 4-byte aligned; no time limit, no second
    // word. A failure (changed word, interruption) is what callers expect.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            operation | libc::FUTEX_PRIVATE_FLAG,
            value,
            std::ptr::null::<libc::timespec>(),
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    #[test]
    fn a_page_that_already_permits_is_not_waited_for() {
        let word = PageWord::default();
        assert!(!word.change(READABLE));
        word.wait(Some(Access::Read), |_| panic!("nothing to tell"));
        assert!(!word.change(WRITABLE));
        word.wait(Some(Access::Write), |_| panic!("nothing to tell"));
        word.wait(None, |_| panic!("nothing to tell"));
    }

    #[test]
    fn sleepers_tell_once_and_wake_when_the_page_is_ready() {
        let word = PageWord::default();
        let told = AtomicUsize::new(0);
        let (ask, asked) = mpsc::channel();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                let (word, told, ask) = (&word, &told, ask.clone());
                threads.spawn(move || {
                    word.wait(Some(Access::Write), |access| {
                        told.fetch_add(1, Ordering::Relaxed);
                        ask.send(access).unwrap();
                    });
                    assert_eq!(word.level(), WRITABLE);
                });
            }
            assert_eq!(asked.recv(), Ok(Some(Access::Write)));
            // An insufficient change wakes them, and they report again.
            assert!(word.change(READABLE));
            word.wake();
            assert_eq!(asked.recv(), Ok(Some(Access::Write)));
            if word.change(WRITABLE) {
                word.wake();
            }
        });
        assert_eq!(told.load(Ordering::Relaxed), 2);
    }

    /// Page word that the handler of the next test waits on.
    static NESTED: PageWord = PageWord(AtomicU32::new(0));

    extern "C" fn touch_the_same_page(_signal: libc::c_int) {
        NESTED.wait(Some(Access::Read), |_| {});
    }

    /// COH-8.7: a signal handler that touches the page whose fault its thread is about to report
    /// does not delay the report.
    #[test]
    fn fault_is_told_before_a_handler_sleeps_on_the_same_page() {
        let handler: extern "C" fn(libc::c_int) = touch_the_same_page;
        // SAFETY: the handler is async-signal-safe: it waits on a futex.
        assert_ne!(unsafe { libc::signal(libc::SIGURG, handler as usize) }, libc::SIG_ERR);
        let (ask, asked) = mpsc::channel();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                NESTED.wait(Some(Access::Read), |_| {
                    // SAFETY: raises a signal that has a handler.
                    assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
                    ask.send(()).unwrap();
                });
            });
            let told = asked.recv_timeout(std::time::Duration::from_secs(30));
            if NESTED.change(READABLE) {
                NESTED.wake();
            }
            assert_eq!(told, Ok(()));
        });
    }

    #[test]
    fn without_the_processors_word_a_load_is_guessed_first() {
        let word = PageWord::default();
        let (ask, asked) = mpsc::channel();
        std::thread::scope(|threads| {
            let word = &word;
            threads.spawn(move || {
                for _ in 0..2 {
                    word.wait(None, |access| ask.send(access).unwrap());
                }
            });
            for (access, level) in [(None, READABLE), (Some(Access::Write), WRITABLE)] {
                assert_eq!(asked.recv(), Ok(access));
                if word.change(level) {
                    word.wake();
                }
            }
        });
    }
}
