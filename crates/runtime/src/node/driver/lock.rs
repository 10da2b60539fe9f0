//! Combining lock around the engine: one thread is inside, and others leave their requests to it.
//!
//! Entry is one try-lock; a thread that enters often holds a bias and pays no atomic
//! read-modify-write. A thread that finds the lock taken sets the request bit
//! ([`CombiningLock::ask`]) and tries once more. The holder checks the bit after it has let go.
//! Lock and request bit are one word ([`BiasedLock`]), so one of the two comes second. A later
//! holder sees the request. A later requester finds the lock open, or taken by a thread that has
//! not checked yet. Either way one of them does the work, and neither needs a fence.
//!
//! Properties 5 and 6 of [`super`] are this lock's. Only turns that bring the next turn forward say
//! so to sleepers.

use crate::sync::{AtomicU64, Ordering};
use oikaze_os::cpu::{BiasedLock, BiasedLockGuard};
use oikaze_os::signals::{SignalsBlocked, are_known_to_be_handled};
use oikaze_protocol::time::Time;
use std::sync::atomic::{AtomicBool as StdAtomicBool, Ordering as StdOrdering};

/// Guard of the thread that is inside.
pub type CombiningLockGuard<'t, T> = BiasedLockGuard<'t, T>;

/// Combining lock around a value that one thread at a time may enter.
pub struct CombiningLock<T> {
    lock: BiasedLock<T>,
    /// Set once arrays exist. The thread inside then runs no signal handlers. A handler that
    /// touches a page of an array would wait for a turn, and so for its own thread (COH-8.7).
    masks_signals: StdAtomicBool,
    /// Time at which the next turn is due at the latest, as of the latest turn. Written by the
    /// thread inside.
    next: AtomicU64,
}

impl<T> CombiningLock<T> {
    pub fn new(inside: T) -> CombiningLock<T> {
        CombiningLock {
            lock: BiasedLock::new(inside),
            masks_signals: StdAtomicBool::new(false),
            next: AtomicU64::new(u64::MAX),
        }
    }

    /// Blocks signals during turns from now on. Once the program is known to have handlers, signals
    /// are also blocked during entries that are too short to be worth two system calls otherwise.
    pub fn mask_signals(&self) {
        self.masks_signals.store(true, StdOrdering::Relaxed);
    }

    /// Blocks signals before a short entry, if needed. The caller drops the result after the entry.
    #[inline]
    #[must_use]
    pub fn mask_for_entry(&self) -> Option<SignalsBlocked> {
        self.masks_entries().then(SignalsBlocked::begin)
    }

    /// Blocks signals before turns, if needed.
    #[must_use]
    pub fn mask_for_turns(&self) -> Option<SignalsBlocked> {
        self.masks_turns().then(SignalsBlocked::begin)
    }

    /// Returns `true` if short entries need [`CombiningLock::mask_for_entry`]. The fast paths for
    /// single small messages are not taken then. A turn blocks signals by itself.
    #[inline]
    pub fn masks_entries(&self) -> bool {
        self.masks_turns() && are_known_to_be_handled()
    }

    /// Returns `true` once there are shared arrays.
    #[inline]
    pub fn masks_turns(&self) -> bool {
        self.masks_signals.load(StdOrdering::Relaxed)
    }

    /// Waits until the lock is free, and enters. A thread that leaves without having run turns
    /// checks whether a turn [was requested](CombiningLock::is_asked).
    pub fn enter(&self) -> CombiningLockGuard<'_, T> {
        self.lock.enter()
    }

    /// Enters unless another thread is inside.
    #[inline]
    pub fn try_enter(&self) -> Option<CombiningLockGuard<'_, T>> {
        self.lock.try_enter()
    }

    /// Enters for a short and frequent use, unless another thread is inside; see
    /// [`BiasedLock::try_enter_often`].
    #[inline]
    pub fn try_enter_often(&self) -> Option<CombiningLockGuard<'_, T>> {
        self.lock.try_enter_often()
    }

    /// Requests a turn of the thread inside, for work that the caller has put before where a turn
    /// finds it. The thread inside may just have left, so the caller must try to enter, too.
    pub fn ask(&self) {
        self.lock.ask();
    }

    /// Returns `true` if another thread has requested a turn. A thread that has left sees all
    /// requests made before. A thread that is inside may see a request late.
    #[inline]
    pub fn is_asked(&self) -> bool {
        self.lock.is_asked()
    }

    /// Runs one turn, and another for as long as other threads request one. Each turn returns the
    /// time at which the next is due. After a turn, and with no thread inside, `report` gets its
    /// result. Its last argument says whether the next turn is due sooner than was told before.
    pub fn run<'t, R>(
        &'t self,
        mut inside: CombiningLockGuard<'t, T>,
        mut turn: impl FnMut(&mut T) -> (R, Time),
        mut report: impl FnMut(R, Time, bool),
    ) {
        loop {
            if self.is_asked() {
                // This turn finds the work of the requests.
                inside.answer();
            }
            let (done, next) = turn(&mut inside);
            let sooner = next.0 < self.next.load(Ordering::Relaxed);
            self.next.store(next.0, Ordering::Relaxed);
            drop(inside);
            report(done, next, sooner);
            if !self.is_asked() {
                return;
            }
            let Some(again) = self.try_enter() else { return };
            inside = again;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod steps {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn a_turn_is_repeated_while_somebody_asks() {
        let combining_lock = CombiningLock::new(0);
        let inside = combining_lock.enter();
        assert!(combining_lock.try_enter().is_none());
        combining_lock.ask();
        combining_lock.ask();
        let left = Cell::new(2);
        let turn = |turns: &mut u32| {
            *turns += 1;
            if left.get() > 0 {
                left.set(left.get() - 1);
                combining_lock.ask();
            }
            ((), Time(5))
        };
        combining_lock.run(inside, turn, |(), _, _| ());
        assert_eq!((*combining_lock.enter(), combining_lock.is_asked()), (3, false));
    }

    #[test]
    fn only_what_is_due_sooner_is_told_as_that() {
        let combining_lock = CombiningLock::new([7u64, 9, 9, 8].into_iter());
        let reports = RefCell::new(Vec::new());
        for _ in 0..4 {
            let turn = |due: &mut std::array::IntoIter<u64, 4>| ((), Time(due.next().unwrap()));
            combining_lock.run(combining_lock.enter(), turn, |(), next, sooner| {
                reports.borrow_mut().push((next.0, sooner))
            });
        }
        assert_eq!(reports.into_inner(), [(7, true), (9, false), (9, false), (8, true)]);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::super::sleeper::{Bell, Sleeper};
    use super::*;
    use crate::sync::{fence, model};
    use loom::sync::Arc;
    use loom::sync::Notify;
    use loom::sync::atomic::AtomicUsize;
    use loom::thread;

    /// An engine that counts the items that it took from a queue.
    #[derive(Default)]
    struct Engine {
        taken: usize,
        due: u64,
    }

    struct World {
        combining_lock: CombiningLock<Engine>,
        queue: AtomicUsize,
        sleeper: Sleeper<Notify>,
    }

    impl Bell for Notify {
        fn signal(&self) {
            self.notify();
        }

        fn clear(&self) {}
    }

    const LATE: u64 = 10;
    const SOON: u64 = 5;

    impl World {
        fn new() -> Arc<World> {
            let world = World {
                combining_lock: CombiningLock::new(Engine { taken: 0, due: LATE }),
                queue: AtomicUsize::new(0),
                sleeper: Sleeper::with(Notify::new()),
            };
            world.combining_lock.next.store(LATE, Ordering::Relaxed);
            Arc::new(world)
        }

        /// Runs turns as `Node::run_turns` does. A turn that finds work has the next one soon.
        fn try_turns(&self) {
            let Some(inside) = self.combining_lock.try_enter() else { return };
            let turn = |engine: &mut Engine| {
                let found = self.queue.swap(0, Ordering::AcqRel);
                engine.taken += found;
                if found > 0 {
                    engine.due = SOON;
                }
                ((), Time(engine.due))
            };
            self.combining_lock.run(inside, turn, |(), next, sooner| {
                if sooner {
                    fence(Ordering::SeqCst);
                    self.sleeper.wake_before(next);
                }
            });
        }

        /// Leaves work as `Node::push` does where the engine is taken.
        fn leave(&self) {
            self.queue.fetch_add(1, Ordering::Release);
            self.combining_lock.ask();
            self.try_turns();
        }

        /// Enters as `Node::with_engine` does.
        fn with_engine<V>(&self, with_engine: impl FnOnce(&mut Engine) -> V) -> V {
            let value = with_engine(&mut self.combining_lock.enter());
            if self.combining_lock.is_asked() {
                self.try_turns();
            }
            value
        }

        /// Sleeps as `Node::sleep_on_socket` does, until the sleep ends by itself when a turn is
        /// due.
        fn sleep(&self) {
            loop {
                self.sleeper.fall_asleep(Time(u64::MAX));
                let next = self.with_engine(|engine| engine.due);
                self.sleeper.shorten(Time(next));
                if next > SOON {
                    self.sleeper.event.wait();
                }
                self.sleeper.wake_up();
                if next == SOON {
                    return;
                }
            }
        }

        fn taken(&self) -> usize {
            self.combining_lock.enter().taken
        }
    }

    /// Property 5: each of three threads leaves work, one of them twice. When all threads have
    /// gone, all work has been taken.
    #[test]
    fn loom_what_is_left_to_the_holder_is_taken_up() {
        model(Some(3), || {
            let world = World::new();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let world = Arc::clone(&world);
                    thread::spawn(move || world.leave())
                })
                .collect();
            world.leave();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!((world.taken(), world.queue.load(Ordering::Relaxed)), (3, 0));
        });
    }

    /// Property 5, where the holder only runs `with_engine`.
    #[test]
    fn loom_also_to_one_who_only_looks() {
        model(None, || {
            let world = World::new();
            let other = Arc::clone(&world);
            let thread = thread::spawn(move || other.leave());
            world.with_engine(|_| ());
            thread.join().unwrap();
            assert_eq!((world.taken(), world.queue.load(Ordering::Relaxed)), (1, 0));
        });
    }

    /// Property 6: loom would find a sleeper that no thread wakes. One thread brings the next turn
    /// forward. Another thread runs a turn that does not, and so wakes no thread.
    #[test]
    fn loom_nobody_sleeps_past_the_next_turn() {
        model(Some(3), || {
            let world = World::new();
            let (sleeper, other) = (Arc::clone(&world), Arc::clone(&world));
            let sleeper = thread::spawn(move || sleeper.sleep());
            let other = thread::spawn(move || other.try_turns());
            world.leave();
            other.join().unwrap();
            sleeper.join().unwrap();
        });
    }
}
