//! Models of the biased lock.

use super::*;
use crate::models::model;
use loom::sync::Arc;
use loom::thread;

/// Each of three threads is inside alone, and none sleeps for ever.
#[test]
fn loom_biased_lock_lets_all_in() {
    model(2, || {
        let lock = Arc::new(BiasedLock::new(0));
        let others = [(); 2].map(|()| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || *enter_often(&lock) += 1)
        });
        *enter_often(&lock) += 1;
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*lock.enter(), 3);
    });
}

/// A request of a thread that finds the lock held is seen by the holder when it leaves. The holder
/// then sees what was done before the request.
#[test]
fn loom_biased_lock_hears_questions() {
    model(3, || hears_questions(BiasedLock::new(())));
}

/// The bias owner sees requests too, although the requesting thread does not wait for it.
#[test]
fn loom_bias_owner_runs_what_it_is_asked() {
    model(4, || {
        let lock = BiasedLock::new(());
        drop(enter_often(&lock));
        hears_questions(lock);
    });
}

fn hears_questions(lock: BiasedLock<()>) {
    let lock = Arc::new(lock);
    let asked = Arc::new(AtomicU32::new(0));
    let other = {
        let (lock, asked) = (Arc::clone(&lock), Arc::clone(&asked));
        thread::spawn(move || {
            asked.store(1, Ordering::Relaxed);
            lock.ask();
            lock.try_enter().is_none()
        })
    };
    drop(enter_often(&lock));
    let heard = lock.is_asked();
    if heard {
        lock.enter().answer();
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
    assert!(!other.join().unwrap() || heard);
}

fn enter_often<T>(lock: &BiasedLock<T>) -> BiasedLockGuard<'_, T> {
    lock.try_enter_often().unwrap_or_else(|| lock.enter())
}

/// The bias owner enters and leaves while another thread revokes the bias. One thread at a time is
/// inside, and the lock is open when all are outside.
#[test]
fn loom_bias_is_revoked() {
    model(4, || {
        let lock = Arc::new(BiasedLock::new(0));
        *enter_often(&lock) += 1;
        let other = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || look_in(&lock))
        };
        let mut entered = 1;
        for _ in 0..2 {
            if let Some(mut inside) = lock.try_enter_often() {
                *inside += 1;
                entered += 1;
                assert!(lock.try_enter().is_none(), "not twice at once");
            }
        }
        let others = other.join().unwrap();
        assert_eq!(*lock.enter(), entered + others);
    });
}

/// Two threads try to enter while the bias owner enters and leaves, and none waits for it.
#[test]
fn loom_biased_lock_opens_after_all_who_look_in() {
    model(3, || {
        let lock = Arc::new(BiasedLock::new(0));
        *enter_often(&lock) += 1;
        let others = [(); 2].map(|()| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || look_in(&lock))
        });
        let entered = 1 + look_in(&lock) + look_in(&lock);
        let entered: u32 =
            entered + others.into_iter().map(|other| other.join().unwrap()).sum::<u32>();
        assert_eq!(*lock.try_enter().unwrap(), entered);
    });
}

fn look_in(lock: &BiasedLock<u32>) -> u32 {
    lock.try_enter_often().map_or(0, |mut inside| {
        *inside += 1;
        1
    })
}

/// Two threads sleep until the bias owner is outside, one of them until the other has left too.
#[test]
fn loom_bias_owner_wakes_all_that_wait() {
    model(3, || {
        let lock = Arc::new(BiasedLock::new(0));
        drop(enter_often(&lock));
        let mut inside = lock.enter();
        let others = [(); 2].map(|()| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || *lock.enter() += 1)
        });
        *inside += 1;
        drop(inside);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*lock.enter(), 3);
    });
}
