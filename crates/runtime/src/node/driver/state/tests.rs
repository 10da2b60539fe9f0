//! Hand-over of the role, step by step. With `RUSTFLAGS="--cfg loom" cargo test -p oikaze --profile
//! loom --lib loom`, it runs in every interleaving of two or three threads.

use super::{Driver, DriverGuard, HelperSleep, WakeSource};
use crate::node::driver::sleeper::Sleeper;
use oikaze_protocol::time::Time;

#[cfg(not(loom))]
mod steps {
    use super::*;
    use crate::node::driver::limits::{
        GAP_MAX_FACTOR, GAP_QUIET_NS, GAP_SHORT_NS, GAPS_AVERAGED, HELPER_SLEEP, HELPER_SLEEP_MAX,
        QUIET_GAPS,
    };
    use crate::node::driver::sleeper::Bell;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    /// Counts the signals sent.
    #[derive(Default)]
    struct Signals(AtomicU64);

    impl Bell for Signals {
        fn signal(&self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }

        fn clear(&self) {}
    }

    fn driver() -> Driver<Signals> {
        Driver::with(Sleeper::with(Signals::default()), Sleeper::with(Signals::default()))
    }

    /// Leaves, and returns `true` if the helper is woken.
    fn wakes_helper(guard: DriverGuard<'_, Signals>, now: u64) -> bool {
        let signals = &guard.driver.helper.event.0;
        let before = signals.load(Ordering::SeqCst);
        guard.leave(Time(now));
        signals.load(Ordering::SeqCst) > before
    }

    fn away(driver: &Driver<Signals>, now: u64) -> Duration {
        match driver.helper_sleeps(Time(now)) {
            HelperSleep::Away(time) => time,
            HelperSleep::Watch => panic!("watches although there is a driver"),
        }
    }

    #[test]
    fn second_driver_is_refused() {
        let driver = driver();
        let guard = driver.try_drive(Time(0)).unwrap();
        assert!(driver.is_driven() && driver.try_drive(Time(0)).is_none());
        assert!(!wakes_helper(guard, 1));
        assert!(!driver.is_driven() && driver.try_drive(Time(2)).is_some());
    }

    #[test]
    fn waiter_drives_if_the_role_is_free() {
        let driver = driver();
        let (value, guard) = driver.park(None, WakeSource::Broadcast, || None::<()>);
        assert!(value.is_none() && guard.is_some());
    }

    #[test]
    fn park_ends_with_its_limit_or_its_value() {
        let driver = driver();
        let guard = driver.try_drive(Time(0)).unwrap();
        let limit = Some(Duration::from_millis(1));
        let (value, role) = driver.park(limit, WakeSource::Broadcast, || None::<()>);
        assert!(value.is_none() && role.is_none());
        let (value, role) = driver.park(None, WakeSource::Broadcast, || Some(5));
        assert!(value == Some(5) && role.is_none());
        guard.leave(Time(1));
        assert!(!driver.is_driven(), "neither is a waiter any more");
    }

    /// A waiter that is woken alone sleeps through other news.
    #[test]
    fn waiter_woken_alone_is_woken_once() {
        let driver = driver();
        let guard = driver.try_drive(Time(0)).unwrap();
        let (asked, reached) = (AtomicU64::new(0), AtomicBool::new(false));
        let (tell, waiting) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let (value, role) = driver.park(None, WakeSource::Direct, || {
                    // This check does not see changes that the other thread makes after it has been
                    // told.
                    let there = reached.load(Ordering::SeqCst).then_some(());
                    asked.fetch_add(1, Ordering::SeqCst);
                    let _ = tell.send(crate::sync::current());
                    there
                });
                assert!(value.is_some() && role.is_none());
            });
            let thread = waiting.recv().unwrap();
            for _ in 0..1000 {
                driver.wake_waiters();
            }
            reached.store(true, Ordering::SeqCst);
            thread.unpark();
            waiter.join().unwrap();
        });
        // A park may end spuriously, but not a thousand times.
        assert!((2..10).contains(&asked.load(Ordering::SeqCst)));
        guard.leave(Time(1));
        assert!(!driver.is_driven());
    }

    #[test]
    fn driver_that_panics_gives_the_role_back() {
        let driver = driver();
        drop(driver.try_drive(Time(0)));
        assert!(!driver.is_driven());
    }

    /// Property 3: a watching helper is left alone. A helper that is away is woken, once.
    #[test]
    fn helper_is_woken_when_gaps_are_long() {
        let driver = driver();
        assert_eq!(driver.helper_sleeps(Time(0)), HelperSleep::Watch);
        driver.helper.fall_asleep(Time(1_000_000));
        let guard = driver.try_drive(Time(10)).unwrap();
        assert!(!wakes_helper(guard, 20), "it watches");
        let guard = driver.try_drive(Time(30)).unwrap();
        driver.helper.wake_up();
        assert_eq!(away(&driver, 40), HELPER_SLEEP);
        assert!(wakes_helper(guard, 50));
        let guard = driver.try_drive(Time(1_000_000)).unwrap();
        assert!(!wakes_helper(guard, 1_000_010), "it is being woken");
        driver.helper.wake_up();
        assert_eq!(driver.helper_sleeps(Time(1_000_020)), HelperSleep::Watch);
    }

    /// A driver that polls takes the socket from a helper that sleeps on it, and wakes the helper
    /// when it leaves. A helper that is not yet asleep is left to find its claim taken.
    #[test]
    fn helper_whose_socket_was_taken_is_woken_by_the_leaving_driver() {
        let driver = driver();
        let guard = driver.try_drive(Time(10)).unwrap();
        driver.send_helper_away();
        assert_eq!(driver.helper.away_until(), None, "it is awake");
        driver.helper.fall_asleep(Time(1_000_000));
        driver.send_helper_away();
        driver.helper.shorten(Time(500_000));
        assert_eq!(driver.helper.away_until(), Some(Time(1_000_000)));
        assert!(wakes_helper(guard, 20));
        driver.helper.shorten(Time(500_000));
        assert!(!driver.helper.is_watching(), "its sleep has ended");
    }

    /// Drivers come and go without pause, until the average gap is short. Returns the time after
    /// that.
    fn make_gaps_short(driver: &Driver<Signals>) -> u64 {
        let mut now = 0;
        while !driver.gaps_are_short() {
            driver.try_drive(Time(now)).unwrap().leave(Time(now + 1));
            now += 2;
        }
        now
    }

    /// A task that sleeps until it is woken leaves the socket to the helper, however short the gaps
    /// between drivers have been.
    #[test]
    fn task_that_sleeps_wakes_the_helper() {
        let driver = driver();
        let now = make_gaps_short(&driver);
        let guard = driver.try_drive(Time(now)).unwrap();
        assert_eq!(away(&driver, now), HELPER_SLEEP);
        assert!(!wakes_helper(guard, now + 1), "a thread is likely to be back soon");
        let guard = driver.drive_on().unwrap();
        guard.leave_to_helper(Time(now + 2));
        assert_eq!(driver.helper.event.0.load(Ordering::SeqCst), 1);
        driver.helper.wake_up();
        let later = GAP_QUIET_NS + now;
        assert_eq!(driver.helper_sleeps(Time(later)), HelperSleep::Watch);
    }

    /// A task that polls again and again does not make gaps look short.
    #[test]
    fn polls_of_one_task_are_no_gaps() {
        let driver = driver();
        for now in 0..100 {
            driver.drive_on().unwrap().leave(Time(now));
        }
        assert!(!driver.gaps_are_short());
    }

    #[test]
    fn helper_is_spared_while_gaps_are_short() {
        let driver = driver();
        let mut now = 0;
        let mut woken = 0;
        for _ in 0..100 {
            let guard = driver.try_drive(Time(now)).unwrap();
            driver.helper.wake_up();
            assert!(away(&driver, now) <= HELPER_SLEEP, "each time the role was free for a moment");
            woken += u32::from(wakes_helper(guard, now + 10));
            driver.helper.wake_up();
            driver.helper_sleeps(Time(now + 10));
            now += 10 + GAP_SHORT_NS / 10;
        }
        let soon = HelperSleep::Away(HELPER_SLEEP);
        assert_eq!(driver.helper_sleeps(Time(now)), soon, "a driver will soon be back");
        let later = Time(now) + HELPER_SLEEP;
        assert_eq!(driver.helper_sleeps(later), HelperSleep::Watch, "none came");
        assert!(
            (1..=2 * GAPS_AVERAGED as u32).contains(&woken),
            "only until the gaps are known to be short: {woken}"
        );
        let mut spared = true;
        for _ in 0..GAPS_AVERAGED {
            let guard = driver.try_drive(Time(now)).unwrap();
            driver.helper.wake_up();
            away(&driver, now);
            spared = !wakes_helper(guard, now + 10);
            now += 10 + GAP_MAX_FACTOR * GAP_QUIET_NS;
        }
        assert!(!spared, "gaps have become long again");
    }

    /// Nobody watches the socket in gaps of a millisecond if no peer asks for anything, and the
    /// helper does as soon as one asks.
    #[test]
    fn longer_gaps_are_watched_once_a_peer_asks_for_something() {
        let driver = driver();
        let mut now = 0;
        let mut woken = |gaps: u64, asks: bool| -> u64 {
            let wake_source = (0..gaps).map(|_| {
                let guard = driver.try_drive(Time(now)).unwrap();
                if asks {
                    driver.note_request();
                }
                driver.helper.wake_up();
                away(&driver, now);
                let wake_source = wakes_helper(guard, now + 10);
                now += 10 + GAP_QUIET_NS / 2;
                u64::from(wake_source)
            });
            wake_source.sum()
        };
        assert_eq!(woken(100, true), 100);
        assert_eq!(woken(100, false), QUIET_GAPS - 1);
        assert_eq!(woken(1, true), 1, "a peer has asked");
        assert_eq!(woken(100, false), QUIET_GAPS - 1);
    }

    /// A helper that polls ever more rarely is woken whatever the gaps are.
    #[test]
    fn helper_that_would_poll_late_is_woken() {
        let driver = driver();
        for now in (0..200).map(|step| step * 100) {
            driver.try_drive(Time(now)).unwrap().leave(Time(now + 10));
        }
        let guard = driver.try_drive(Time(20_000)).unwrap();
        let mut sleeps = Vec::new();
        let mut now = Time(20_000);
        let mut last = now;
        for _ in 0..12 {
            driver.helper.wake_up();
            let time = away(&driver, now.0);
            sleeps.push(time);
            (last, now) = (now, now + time);
        }
        assert_eq!(sleeps[..3], [HELPER_SLEEP, 2 * HELPER_SLEEP, 4 * HELPER_SLEEP]);
        assert_eq!(sleeps.last(), Some(&HELPER_SLEEP_MAX));
        assert!(wakes_helper(guard, last.0));
    }

    /// A turn wakes the driver for news, and the helper for work only if it watches.
    #[test]
    fn sleepers_are_told_of_what_concerns_them() {
        let driver = driver();
        let wakes = |news, more, next| {
            let sleepers = [&driver.sleep, &driver.helper];
            let before = sleepers.map(|sleeper| sleeper.event.0.swap(0, Ordering::SeqCst));
            assert_eq!(before, [0, 0]);
            driver.notify_sleepers(news, more, Time(next));
            sleepers.map(|sleeper| sleeper.event.0.swap(0, Ordering::SeqCst) > 0)
        };
        let sleep = |until| {
            driver.sleep.fall_asleep(Time(until));
            driver.helper.fall_asleep(Time(until));
        };
        assert_eq!(wakes(true, true, 0), [false, false], "both are awake");
        sleep(100);
        assert_eq!(wakes(false, false, 100), [false, false], "the next turn is due with their end");
        assert_eq!(wakes(true, false, 100), [true, false]);
        assert_eq!(wakes(true, false, 100), [false, false], "one signal is enough");
        sleep(100);
        assert_eq!(wakes(false, false, 99), [true, true]);
        sleep(100);
        assert_eq!(wakes(false, true, u64::MAX), [true, true]);
        driver.helper.go_away(Time(100));
        assert_eq!(wakes(true, true, 0), [false, false], "the helper is away");
        assert_eq!(driver.helper.away_until(), Some(Time(100)));
        assert!(!driver.helper.is_watching());
    }

    /// Real threads, each of which wants a thousand turns of its own. No thread is ever without a
    /// driver, and no turn overlaps another.
    #[test]
    fn many_threads_share_the_role() {
        let (driver, inside, turns) = (driver(), AtomicBool::new(false), AtomicU64::new(0));
        let drive = |guard: DriverGuard<'_, Signals>| {
            assert!(!inside.swap(true, Ordering::SeqCst), "two drivers");
            turns.fetch_add(1, Ordering::SeqCst);
            inside.store(false, Ordering::SeqCst);
            driver.wake_waiters();
            guard.leave(Time(0));
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut driven = false;
                        while !driven {
                            let guard = driver.try_drive(Time(0)).or_else(|| {
                                driver.park(None, WakeSource::Broadcast, || None::<()>).1
                            });
                            driven = guard.map(drive).is_some();
                        }
                    }
                });
            }
        });
        assert_eq!(turns.load(Ordering::SeqCst), 4000);
        assert!(!driver.is_driven());
    }
}

#[cfg(loom)]
mod models {
    use super::*;
    use crate::sync::model;
    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use loom::sync::{Arc, Mutex, Notify};
    use loom::thread;

    /// A role, and an engine whose turn must not be entered twice.
    struct World {
        driver: Driver<Notify>,
        inside: AtomicBool,
        turns: AtomicUsize,
    }

    impl World {
        fn new() -> Arc<Self> {
            let sleeper = || Sleeper::with(Notify::new());
            Arc::new(World {
                driver: Driver::with(sleeper(), sleeper()),
                inside: AtomicBool::new(false),
                turns: AtomicUsize::new(0),
            })
        }

        /// Runs a turn and checks property 1.
        fn turn_and_leave(&self, guard: DriverGuard<'_, Notify>) {
            assert!(!self.inside.swap(true, Ordering::Relaxed), "two drivers");
            self.turns.fetch_add(1, Ordering::Relaxed);
            self.inside.store(false, Ordering::Relaxed);
            self.driver.wake_waiters();
            guard.leave(Time(0));
        }

        /// Waits until this thread has driven one turn itself.
        fn insist(&self) {
            loop {
                let guard = self
                    .driver
                    .try_drive(Time(0))
                    .or_else(|| self.driver.park(None, WakeSource::Broadcast, || None::<()>).1);
                if let Some(guard) = guard {
                    return self.turn_and_leave(guard);
                }
            }
        }

        /// Waits until any thread has driven a turn.
        fn wait(&self) {
            let ready = || (self.turns.load(Ordering::Relaxed) > 0).then_some(());
            match self.driver.park(None, WakeSource::Broadcast, ready) {
                (Some(()), Some(guard)) => guard.leave(Time(0)),
                (Some(()), None) => {}
                (None, Some(guard)) => self.turn_and_leave(guard),
                (None, None) => panic!("a wait without limit ended with nothing"),
            }
        }
    }

    /// Properties 1 and 2: each of two threads gets the role, or loom finds both asleep.
    #[test]
    fn loom_two_threads_each_drive() {
        model(None, || {
            let world = World::new();
            let other = Arc::clone(&world);
            let thread = thread::spawn(move || other.insist());
            world.insist();
            thread.join().unwrap();
            assert_eq!(world.turns.load(Ordering::Relaxed), 2);
            assert!(!world.driver.is_driven());
        });
    }

    /// The same with a third: two may be enlisted at once.
    #[test]
    fn loom_three_threads_each_drive() {
        model(Some(2), || {
            let world = World::new();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let world = Arc::clone(&world);
                    thread::spawn(move || world.insist())
                })
                .collect();
            world.insist();
            for thread in threads {
                thread.join().unwrap();
            }
            assert!(!world.driver.is_driven());
        });
    }

    /// Property 4: a thread is woken when another's turn makes its condition true. It passes the
    /// role on if it got the role.
    #[test]
    fn loom_value_made_by_another_is_seen() {
        model(Some(3), || {
            let world = World::new();
            let other = Arc::clone(&world);
            let thread = thread::spawn(move || other.wait());
            let third = Arc::clone(&world);
            let third = thread::spawn(move || third.wait());
            world.wait();
            thread.join().unwrap();
            third.join().unwrap();
            assert!(!world.driver.is_driven(), "nobody kept the role");
        });
    }

    /// Property 4 while the driver stays: a thread that does not drive (the helper, a submitter)
    /// makes a condition true. The waiter sees that, too, without a hand-over.
    #[test]
    fn loom_value_made_beside_the_driver_is_seen() {
        model(None, || {
            let world = World::new();
            let guard = world.driver.try_drive(Time(0)).unwrap();
            let waiter = Arc::clone(&world);
            let waiter = thread::spawn(move || waiter.wait());
            world.turns.fetch_add(1, Ordering::Relaxed);
            world.driver.wake_waiters();
            waiter.join().unwrap();
            assert!(world.driver.is_driven(), "the waiter did not get the role");
            guard.leave(Time(0));
        });
    }

    /// Property 3, when gaps are long: the helper ends up watching, or loom finds it asleep for
    /// good. Its own limit does not help, because time stands still in a model.
    #[test]
    fn loom_helper_watches_in_the_end() {
        model(Some(3), || {
            let world = World::new();
            let other = Arc::clone(&world);
            let helper = thread::spawn(move || {
                while other.driver.helper_sleeps(Time(0)) != HelperSleep::Watch {
                    other.driver.helper.event.wait();
                    other.driver.helper.wake_up();
                }
            });
            let another = Arc::clone(&world);
            let another = thread::spawn(move || another.insist());
            world.insist();
            another.join().unwrap();
            helper.join().unwrap();
        });
    }

    /// The link, which only changes inside the engine.
    struct Engine {
        is_watched: bool,
        has_datagram: bool,
    }

    /// Property 3 beside drivers that take the link: after the last one has left, the helper hears
    /// what comes, or loom finds it asleep for good.
    #[test]
    fn loom_helper_hears_what_comes_after_the_last_driver() {
        model(Some(3), || {
            let world = World::new();
            let engine = Mutex::new(Engine { is_watched: false, has_datagram: false });
            let engine = Arc::new(engine);
            let (other, link) = (Arc::clone(&world), Arc::clone(&engine));
            let helper = thread::spawn(move || {
                let (helper, claim) = (&other.driver.helper, &other.driver.helper_claim);
                loop {
                    if other.driver.helper_sleeps(Time(0)) == HelperSleep::Watch {
                        if !claim.is_held() {
                            let mut engine = link.lock().unwrap();
                            engine.is_watched = claim.set(true);
                            if engine.has_datagram {
                                helper.event.notify();
                            }
                        }
                        helper.fall_asleep(Time(1));
                        if claim.is_held() {
                            helper.event.wait();
                        }
                    } else {
                        if claim.is_held() {
                            let mut engine = link.lock().unwrap();
                            engine.is_watched &= !claim.take();
                        }
                        helper.event.wait();
                    }
                    helper.wake_up();
                    if link.lock().unwrap().has_datagram {
                        return;
                    }
                }
            });
            for _ in 0..2 {
                let guard = world.driver.try_drive(Time(0)).unwrap();
                let claim = &world.driver.helper_claim;
                if claim.is_held() {
                    let mut engine = engine.lock().unwrap();
                    engine.is_watched &= !claim.take();
                    drop(engine);
                    world.driver.send_helper_away();
                }
                world.turn_and_leave(guard);
            }
            let mut engine = engine.lock().unwrap();
            engine.has_datagram = true;
            if engine.is_watched {
                world.driver.helper.event.notify();
            }
            drop(engine);
            helper.join().unwrap();
        });
    }
}
