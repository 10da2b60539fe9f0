//! Hand-over of the role, step by step. With `RUSTFLAGS="--cfg loom" cargo test -p oikaze --profile
//! loom --lib loom`, it runs in every interleaving of two or three threads.

use super::{Handover, Role, Sleep, Wakes};

#[cfg(not(loom))]
mod steps {
    use super::*;
    use crate::node::driver::election::{
        GAP_MAX, GAP_MEMORY, GAP_SHORT, LOOK_AGAIN, LOOK_LATE, LOOK_SOON,
    };
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    fn away(role: &Role, now: u64) -> u64 {
        match role.helper_sleeps(now) {
            Sleep::Away(time) => u64::try_from(time.as_nanos()).unwrap(),
            Sleep::Watch => panic!("watches although there is a driver"),
        }
    }

    #[test]
    fn one_driver_at_a_time() {
        let role = Role::new();
        let driving = role.try_drive(0).unwrap();
        assert!(role.is_driven() && role.try_drive(0).is_none() && !role.helper_may_watch());
        assert_eq!(driving.leave(1), Handover::Free);
        assert!(!role.is_driven() && role.try_drive(2).is_some());
    }

    #[test]
    fn who_waits_while_nobody_drives_drives() {
        let role = Role::new();
        let turn = role.wait_turn(None, Wakes::WithAll, || None::<()>);
        assert!(turn.value.is_none() && turn.driving.is_some());
    }

    #[test]
    fn a_wait_ends_with_its_limit_or_its_value() {
        let role = Role::new();
        let driving = role.try_drive(0).unwrap();
        let turn = role.wait_turn(Some(Duration::from_millis(1)), Wakes::WithAll, || None::<()>);
        assert!(turn.value.is_none() && turn.driving.is_none());
        let turn = role.wait_turn(None, Wakes::WithAll, || Some(5));
        assert!(turn.value == Some(5) && turn.driving.is_none());
        assert_eq!(driving.leave(1), Handover::Free, "neither is a waiter any more");
    }

    /// A waiter that is woken alone sleeps through other news.
    #[test]
    fn who_is_woken_alone_is_woken_once() {
        let role = Role::new();
        let driving = role.try_drive(0).unwrap();
        let (asked, reached) = (AtomicU64::new(0), AtomicBool::new(false));
        let (tell, waiting) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let turn = role.wait_turn(None, Wakes::Alone, || {
                    // This check does not see changes that the other thread makes after it has been
                    // told.
                    let there = reached.load(Ordering::SeqCst).then_some(());
                    asked.fetch_add(1, Ordering::SeqCst);
                    let _ = tell.send(std::thread::current());
                    there
                });
                assert!(turn.value.is_some() && turn.driving.is_none());
            });
            let thread = waiting.recv().unwrap();
            for _ in 0..1000 {
                role.wake_all();
            }
            reached.store(true, Ordering::SeqCst);
            thread.unpark();
            waiter.join().unwrap();
        });
        // A park may end spuriously, but not a thousand times.
        assert!((2..10).contains(&asked.load(Ordering::SeqCst)));
        assert_eq!(driving.leave(1), Handover::Free);
    }

    #[test]
    fn a_driver_that_panics_gives_the_role_back() {
        let role = Role::new();
        drop(role.try_drive(0));
        assert!(role.try_drive(0).is_some());
    }

    /// Rule 3: a watching helper is left alone. A helper that is away is woken, once.
    #[test]
    fn the_helper_is_woken_when_gaps_are_long() {
        let role = Role::new();
        assert_eq!(role.helper_sleeps(0), Sleep::Watch);
        let driving = role.try_drive(10).unwrap();
        assert_eq!(driving.leave(20), Handover::Free, "it watches");
        let driving = role.try_drive(30).unwrap();
        role.helper_woke();
        assert_eq!(away(&role, 40), LOOK_SOON);
        let driving = match driving.leave(50) {
            Handover::WakeHelper => role.try_drive(1_000_000).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(driving.leave(1_000_010), Handover::Free, "it is being woken");
        role.helper_woke();
        assert_eq!(role.helper_sleeps(1_000_020), Sleep::Watch);
    }

    #[test]
    fn the_helper_is_spared_while_gaps_are_short() {
        let role = Role::new();
        let mut now = 0;
        let mut woken = 0;
        for _ in 0..100 {
            let driving = role.try_drive(now).unwrap();
            role.helper_woke();
            assert!(away(&role, now) <= LOOK_SOON, "each time the role was free for a moment");
            woken += u32::from(driving.leave(now + 10) == Handover::WakeHelper);
            role.helper_woke();
            role.helper_sleeps(now + 10);
            now += 10 + GAP_SHORT / 10;
        }
        assert_eq!(
            role.helper_sleeps(now),
            Sleep::Away(Duration::from_nanos(LOOK_AGAIN)),
            "a driver will soon be back"
        );
        assert_eq!(role.helper_sleeps(now + LOOK_AGAIN), Sleep::Watch, "none came");
        assert!(
            (1..=2 * GAP_MEMORY as u32).contains(&woken),
            "only until the gaps are known to be short: {woken}"
        );
        let mut spared = true;
        for _ in 0..GAP_MEMORY {
            let driving = role.try_drive(now).unwrap();
            role.helper_woke();
            away(&role, now);
            spared = driving.leave(now + 10) == Handover::Free;
            now += 10 + GAP_MAX;
        }
        assert!(!spared, "gaps have become long again");
    }

    /// A helper that polls ever more rarely is woken whatever the gaps are.
    #[test]
    fn a_helper_that_would_look_late_is_woken() {
        let role = Role::new();
        for now in (0..200).map(|step| step * 100) {
            let _ = role.try_drive(now).unwrap().leave(now + 10);
        }
        let driving = role.try_drive(20_000).unwrap();
        let mut sleeps: Vec<u64> = Vec::new();
        let mut now = 20_000;
        for _ in 0..12 {
            role.helper_woke();
            sleeps.push(away(&role, now));
            now += sleeps.last().unwrap();
        }
        assert_eq!(sleeps[..3], [LOOK_SOON, 2 * LOOK_SOON, 4 * LOOK_SOON]);
        assert_eq!(sleeps.last(), Some(&LOOK_LATE));
        assert_eq!(driving.leave(now - LOOK_LATE), Handover::WakeHelper);
    }

    /// Real threads, each of which wants a thousand turns of its own. No thread is ever without a
    /// driver, and no turn overlaps another.
    #[test]
    fn many_threads_share_the_role() {
        let (role, inside, turns) = (Role::new(), AtomicBool::new(false), AtomicU64::new(0));
        let drive = |driving: crate::node::driver::election::Driving<'_>| {
            assert!(!inside.swap(true, Ordering::SeqCst), "two drivers");
            turns.fetch_add(1, Ordering::SeqCst);
            inside.store(false, Ordering::SeqCst);
            role.wake_all();
            let _ = driving.leave(0);
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut driven = false;
                        while !driven {
                            let driving = role.try_drive(0).or_else(|| {
                                role.wait_turn(None, Wakes::WithAll, || None::<()>).driving
                            });
                            driven = driving.map(drive).is_some();
                        }
                    }
                });
            }
        });
        assert_eq!(turns.load(Ordering::SeqCst), 4000);
        assert!(!role.is_driven());
    }
}

#[cfg(loom)]
mod models {
    use super::*;
    use crate::node::driver::election::Driving;
    use crate::sync::model;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use loom::thread;

    /// A role, and an engine whose turn must not be entered twice.
    struct World {
        role: Role,
        inside: AtomicBool,
        turns: AtomicUsize,
    }

    impl World {
        fn new() -> Arc<Self> {
            Arc::new(World {
                role: Role::new(),
                inside: AtomicBool::new(false),
                turns: AtomicUsize::new(0),
            })
        }

        /// Runs a turn and checks rule 1.
        fn turn(&self) {
            assert!(!self.inside.swap(true, Ordering::Relaxed), "two drivers");
            self.turns.fetch_add(1, Ordering::Relaxed);
            self.inside.store(false, Ordering::Relaxed);
            self.role.wake_all();
        }

        fn turn_and_leave(&self, driving: Driving<'_>) -> Handover {
            self.turn();
            driving.leave(0)
        }

        /// Waits until this thread has driven one turn itself.
        fn insist(&self) -> Handover {
            loop {
                let driving = self
                    .role
                    .try_drive(0)
                    .or_else(|| self.role.wait_turn(None, Wakes::WithAll, || None::<()>).driving);
                if let Some(driving) = driving {
                    return self.turn_and_leave(driving);
                }
            }
        }

        /// Waits until any thread has driven a turn.
        fn wait(&self) -> Handover {
            let ready = || (self.turns.load(Ordering::Relaxed) > 0).then_some(());
            let turn = self.role.wait_turn(None, Wakes::WithAll, ready);
            match turn {
                super::super::Turn { value: Some(()), driving: Some(driving) } => driving.leave(0),
                super::super::Turn { value: Some(()), driving: None } => Handover::Free,
                super::super::Turn { value: None, driving: Some(driving) } => {
                    self.turn_and_leave(driving)
                }
                super::super::Turn { value: None, driving: None } => {
                    panic!("a wait without limit ended with nothing")
                }
            }
        }
    }

    /// Rules 1 and 2: each of two threads gets the role, or loom finds both asleep.
    #[test]
    fn loom_two_threads_each_drive() {
        model(None, || {
            let world = World::new();
            let other = Arc::clone(&world);
            let thread = thread::spawn(move || other.insist());
            let _ = world.insist();
            let _ = thread.join().unwrap();
            assert_eq!(world.turns.load(Ordering::Relaxed), 2);
            assert!(!world.role.is_driven());
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
            let _ = world.insist();
            for thread in threads {
                let _ = thread.join().unwrap();
            }
            assert!(!world.role.is_driven());
        });
    }

    /// Rule 4: a thread is woken when another's turn makes its condition true. It passes the role
    /// on if it got the role.
    #[test]
    fn loom_a_value_made_by_another_is_seen() {
        model(Some(3), || {
            let world = World::new();
            let other = Arc::clone(&world);
            let thread = thread::spawn(move || other.wait());
            let third = Arc::clone(&world);
            let third = thread::spawn(move || third.wait());
            let _ = world.wait();
            let _ = thread.join().unwrap();
            let _ = third.join().unwrap();
            assert!(!world.role.is_driven(), "nobody kept the role");
        });
    }

    /// Rule 4 while the driver stays: a thread that does not drive (the helper, a submitter) makes
    /// a condition true. The waiter sees that, too, without a hand-over.
    #[test]
    fn loom_a_value_made_beside_the_driver_is_seen() {
        model(None, || {
            let world = World::new();
            let driving = world.role.try_drive(0).unwrap();
            let waiter = Arc::clone(&world);
            let waiter = thread::spawn(move || waiter.wait());
            world.turns.fetch_add(1, Ordering::Relaxed);
            world.role.wake_all();
            assert_eq!(waiter.join().unwrap(), Handover::Free);
            let _ = driving.leave(0);
        });
    }

    /// Rule 3, when gaps are long: the helper ends up watching, or loom finds it asleep for good.
    /// Its own limit does not help, because time stands still in a model.
    #[test]
    fn loom_the_helper_watches_in_the_end() {
        model(Some(3), || {
            let world = World::new();
            let other = Arc::clone(&world);
            let helper = thread::spawn(move || {
                while other.role.helper_sleeps(0) != Sleep::Watch {
                    thread::park();
                    other.role.helper_woke();
                }
            });
            let another = Arc::clone(&world);
            let waker = helper.thread().clone();
            let another = thread::spawn(move || {
                if another.insist() == Handover::WakeHelper {
                    waker.unpark();
                }
            });
            if world.insist() == Handover::WakeHelper {
                helper.thread().unpark();
            }
            another.join().unwrap();
            helper.join().unwrap();
        });
    }
}
