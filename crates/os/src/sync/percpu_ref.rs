//! A reference count whose fast path uses per-thread counters instead of atomic read-modify-writes,
//! as the Linux kernel's `percpu_ref` does.
//!
//! Cloning or dropping an `Arc` takes a locked instruction, which waits until all earlier stores
//! have reached the cache. A [`Guest`] is counted by plain stores in a cache line of its own
//! thread, so the total is unknown. When the [`Host`] goes, the counters of all threads are added
//! up, and from then on each change is counted by an atomic. A [`Rundown`] keeps both ways of
//! counting apart.
//!
//! A guest is a number of two bytes instead of an address, so its holder is returned in two
//! registers. A larger value would be stored in parts and loaded as a whole, which stalls on store
//! forwarding.

use super::PLACES;
use super::Rundown;
#[cfg(all(test, loom))]
use super::models::place;
#[cfg(not(all(test, loom)))]
use super::place;
use crate::origin::Origin;
#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicUsize, fence};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicUsize, fence};
use std::sync::{Mutex, PoisonError};

/// Count that stands for the host. It is more than the number of guests can be.
const HOST: usize = usize::MAX / 2;
/// Maximum number of hosts, including those that only guests keep, at the same time.
const HOUSES: usize = u16::MAX as usize + 1;

static HOUSE: [AtomicPtr<()>; HOUSES] = [const { AtomicPtr::new(std::ptr::null_mut()) }; HOUSES];
/// Free numbers: those that were given back, and the first that was never used.
static FREE: Mutex<(Vec<u16>, usize)> = Mutex::new((Vec::new(), 0));

/// The owner's handle of a shared object, which creates guests. Dropping the host ends the creation
/// of guests, and does not wait for guests to be dropped.
pub struct Host<T>(u16, PhantomData<House<T>>);

/// A counted reference to a shared object. The object is dropped with its last guest or with its
/// host, whichever is later.
pub struct Guest<T>(u16, PhantomData<House<T>>);

struct House<T> {
    inside: T,
    /// Ends when the host is dropped.
    rundown: Rundown,
    /// Guests created and dropped, by thread.
    counts: [Count; PLACES],
    /// Number of guests that no thread's count holds, plus [`HOST`] while the host exists.
    others: AtomicUsize,
    origin: Origin,
}

/// Guests created minus guests dropped in one thread, which alone writes this count. The count is
/// negative if the thread drops guests that other threads created, so only the sum of all counts is
/// meaningful.
#[repr(align(64))]
struct Count(AtomicUsize);

// SAFETY: all hold a shared reference to what is inside, and whichever is the last drops it, as
// with an `Arc`.
unsafe impl<T: Send + Sync> Send for Host<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Host<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Send for Guest<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Guest<T> {}

impl<T> Host<T> {
    /// Creates a host without guests. Returns `None` if there are too many hosts.
    pub fn new(inside: T) -> Option<Host<T>> {
        let number = {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            let next = u16::try_from(free.1).ok();
            let number = free.0.pop().or(next)?;
            free.1 += usize::from(Some(number) == next);
            number
        };
        let counts = std::array::from_fn(|_| Count(AtomicUsize::new(0)));
        let house = House {
            inside,
            rundown: Rundown::default(),
            counts,
            others: AtomicUsize::new(HOST),
            origin: Origin::here(),
        };
        HOUSE[usize::from(number)].store(Box::into_raw(Box::new(house)).cast(), Ordering::Relaxed);
        Some(Host(number, PhantomData))
    }

    /// Creates a guest.
    #[inline]
    #[must_use]
    pub fn invite(&self) -> Guest<T> {
        let house = self.house();
        match house.count() {
            Some(count) => {
                count.0.store(count.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed)
            }
            None => _ = house.others.fetch_add(1, Ordering::Relaxed),
        }
        Guest(self.0, PhantomData)
    }

    fn house(&self) -> &House<T> {
        // SAFETY: the house of this number was built with what is inside of it, and stands while
        // its host is there.
        unsafe { &*House::at(self.0) }
    }
}

impl<T> House<T> {
    #[inline]
    fn at(number: u16) -> *mut House<T> {
        HOUSE[usize::from(number)].load(Ordering::Relaxed).cast()
    }

    /// Drops the object and frees its number.
    ///
    /// # Safety
    /// The house of this number was built with a `T` inside, and nobody is in, or can come.
    #[cold]
    unsafe fn take_down(number: u16) {
        // SAFETY: as the caller says.
        drop(unsafe { Box::from_raw(House::<T>::at(number)) });
        FREE.lock().unwrap_or_else(PoisonError::into_inner).0.push(number);
    }

    /// Returns this thread's count.
    #[inline]
    fn count(&self) -> Option<&Count> {
        self.counts.get(place()?)
    }

    /// Returns the sum of all threads' counts. Call it when no guest can be created any more, and
    /// dropped guests are counted in `others`.
    fn sum(&self) -> usize {
        self.counts.iter().fold(0, |sum, count| sum.wrapping_add(count.0.load(Ordering::Relaxed)))
    }

    /// Subtracts `many` from `others`, and returns `true` if nothing is left.
    fn gone(&self, many: usize) -> bool {
        let last = self.others.fetch_sub(many, Ordering::Release) == many;
        if last {
            // All uses of the object happen before it is dropped.
            fence(Ordering::Acquire);
        }
        last
    }
}

impl<T> Drop for Host<T> {
    fn drop(&mut self) {
        let house = self.house();
        // Threads that a child of fork does not have stay inside for ever there (MEM-24.2).
        if !house.origin.is_here() {
            return;
        }
        house.rundown.close();
        while house.rundown.is_draining() {
            pause();
        }
        if house.gone(HOST.wrapping_sub(house.sum())) {
            // SAFETY: nobody is in, or can come.
            unsafe { House::<T>::take_down(self.0) };
        }
    }
}

impl<T> Drop for Guest<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the house of this number was built with what is inside of it, and stands while a
        // guest is there.
        let house = unsafe { &*House::<T>::at(self.0) };
        if let Some(count) = house.count()
            && let Some(_inside) = house.rundown.enter_by_mark()
        {
            count.0.store(count.0.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
        } else {
            self.leave_uncounted();
        }
    }
}

impl<T> Guest<T> {
    /// Drops a guest when this thread's mark is in use or the host is gone. This is a separate
    /// function, so that the fast path saves no registers.
    #[cold]
    fn leave_uncounted(&self) {
        // SAFETY: as in `drop`. (No argument: the last to leave takes it down.)
        let house = unsafe { &*House::<T>::at(self.0) };
        if house.gone(1) {
            // SAFETY: the host has gone, and so have all other guests.
            unsafe { House::<T>::take_down(self.0) };
        }
    }
}

#[cfg(not(all(test, loom)))]
fn pause() {
    std::thread::yield_now();
}

#[cfg(all(test, loom))]
fn pause() {
    loom::thread::yield_now();
}

impl<T> Deref for Host<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.house().inside
    }
}

impl<T> Deref for Guest<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: as in `drop`.
        unsafe { &(*House::<T>::at(self.0)).inside }
    }
}

impl<T: fmt::Debug> fmt::Debug for Host<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&**self).finish()
    }
}

impl<T: fmt::Debug> fmt::Debug for Guest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guest").field(&**self).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;
    use std::sync::{Arc, Barrier};

    struct Inside(Arc<AtomicBool>);

    impl Drop for Inside {
        fn drop(&mut self) {
            assert!(!self.0.swap(true, Ordering::AcqRel), "twice");
        }
    }

    fn house() -> (Host<Inside>, impl Fn() -> bool) {
        let over = Arc::new(AtomicBool::new(false));
        (Host::new(Inside(Arc::clone(&over))).unwrap(), move || over.load(Ordering::Acquire))
    }

    #[test]
    fn the_last_to_go_takes_it_down() {
        let (host, is_over) = house();
        let [one, other] = [host.invite(), host.invite()];
        drop(one);
        drop(host);
        assert!(!is_over());
        drop(other);
        assert!(is_over());
        let (host, is_over) = house();
        drop(host.invite());
        assert!(!is_over());
        drop(host);
        assert!(is_over());
    }

    /// Guests are dropped in other threads than those that created them, before and after the host.
    /// There are more threads than places.
    #[test]
    fn guests_go_wherever_they_like() {
        let (host, is_over) = house();
        let threads = PLACES + 8;
        let together = Barrier::new(threads);
        let (sender, stay) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let (host, sender, together) = (&host, sender.clone(), &together);
                scope.spawn(move || {
                    together.wait();
                    for n in 0..1000 {
                        let guest = host.invite();
                        if n % 10 == 0 {
                            sender.send(guest).unwrap();
                        }
                    }
                    together.wait();
                });
            }
        });
        drop(sender);
        let mut stay: Vec<_> = stay.into_iter().collect();
        assert_eq!(stay.len(), threads * 100);
        stay.drain(..200).for_each(drop);
        drop(host);
        let last = stay.pop();
        std::thread::scope(|scope| {
            for some in stay.chunks_mut(500) {
                scope.spawn(move || some.len());
            }
        });
        drop(stay);
        assert!(!is_over());
        drop(last);
        assert!(is_over());
    }

    /// The host is dropped while guests are.
    #[test]
    fn all_go_at_once() {
        for _ in 0..200 {
            let (host, is_over) = house();
            let guests: Vec<Vec<_>> =
                (0..3).map(|_| (0..50).map(|_| host.invite()).collect()).collect();
            std::thread::scope(|scope| {
                for some in guests {
                    scope.spawn(|| drop(some));
                }
                drop(host);
            });
            assert!(is_over());
        }
    }
}
