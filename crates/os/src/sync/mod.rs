//! Tracks threads that are using an object, so that teardown can wait for them: hazard marks
//! (Michael 2004), set and cleared by plain stores.
//!
//! A thread that enters sets its mark first and then checks whether the object has ended. A thread
//! that ends the object says so first and then checks the marks. With a fence between the two steps
//! of each, one of them sees the other (Dekker's argument). Entering is frequent and ending is
//! rare. So where the kernel permits it, the ending thread makes the fence for all others
//! (`fences`).
//!
//! Each thread has a place for its mark; threads without a place are counted instead. [`Hazard`] is
//! for threads of this process; marks shared by two processes lie in memory that both map
//! (`shm::marks`).

#[cfg_attr(all(test, loom), allow(dead_code))]
pub(crate) mod asymmetric_fence;
#[cfg(all(test, loom))]
pub(crate) mod models;
mod percpu_ref;
#[cfg(not(all(test, loom)))]
mod place;

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicBool, AtomicUsize};
#[cfg(all(test, loom))]
use models::{heavy, light, place};
#[cfg(not(all(test, loom)))]
pub(crate) use place::place;
use std::sync::atomic::Ordering;
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicBool, AtomicUsize};

use asymmetric_fence::Reach;
pub use percpu_ref::{Guest, Host};

/// Maximum number of threads that have a place at the same time.
#[cfg(not(all(test, loom)))]
pub(crate) const PLACES: usize = 64;
#[cfg(all(test, loom))]
pub(crate) const PLACES: usize = 2;

/// The mark of one thread: name of the hazard that the thread is inside, or 0. Only that thread
/// writes its mark, and writes it often.
#[repr(align(128))]
#[derive(Debug)]
struct Mark(AtomicUsize);

#[cfg(not(all(test, loom)))]
static MARKS: [Mark; PLACES] = [const { Mark(AtomicUsize::new(0)) }; PLACES];
#[cfg(all(test, loom))]
loom::lazy_static! {
    static ref MARKS: [Mark; PLACES] = [Mark(AtomicUsize::new(0)), Mark(AtomicUsize::new(0))];
}

/// Returns `true` if this process makes fences for processes that share memory with it. The kernel
/// is asked once, which is cheap while the process has one thread.
#[must_use]
pub fn makes_fences() -> bool {
    asymmetric_fence::are_asymmetric(Reach::Machine)
}

/// Makes the fences. Call this between a store of this process (that something has ended, that it
/// sleeps) and the loads that depend on it.
pub fn make_fences() {
    asymmetric_fence::heavy(Reach::Machine);
}

/// An object of this process that threads enter, and that ends once.
#[derive(Debug, Default)]
pub struct Hazard {
    over: AtomicBool,
    /// Number of threads inside that have set no mark.
    counted: AtomicUsize,
}

/// A thread's use of a hazard, which lasts until this is dropped.
#[derive(Debug)]
pub struct Inside<'h> {
    hazard: &'h Hazard,
    mark: Option<&'static Mark>,
}

impl Hazard {
    /// Enters, unless the hazard has ended.
    #[inline]
    #[must_use]
    pub fn enter(&self) -> Option<Inside<'_>> {
        self.enter_by(place(), light)
    }

    /// As [`Hazard::enter`], but only if this thread's mark is free.
    #[inline]
    fn enter_by_mark(&self) -> Option<Inside<'_>> {
        self.set(free_mark(place())?).unless_over(light)
    }

    #[inline]
    fn enter_by(&self, place: Option<usize>, light: impl FnOnce()) -> Option<Inside<'_>> {
        let inside = match free_mark(place) {
            Some(mark) => self.set(mark),
            None => {
                self.counted.fetch_add(1, Ordering::Relaxed);
                Inside { hazard: self, mark: None }
            }
        };
        inside.unless_over(light)
    }

    #[inline]
    fn set(&self, mark: &'static Mark) -> Inside<'_> {
        // A thread that waits for the hazard that this mark named before may see this name instead.
        mark.0.store(self.name(), Ordering::Release);
        Inside { hazard: self, mark: Some(mark) }
    }

    /// Ends the hazard, so that no thread can enter any more. Threads that have entered are
    /// [inside](Hazard::is_inside).
    pub fn end(&self) {
        self.end_by(heavy);
    }

    fn end_by(&self, heavy: impl FnOnce()) {
        self.over.store(true, Ordering::Relaxed);
        heavy();
    }

    /// Returns `true` if the hazard has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Returns `true` if the hazard has ended and a thread is still inside.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.over.load(Ordering::Relaxed) && self.is_inside()
    }

    /// Returns `true` if a thread is inside. The answer is reliable only once the hazard has ended.
    fn is_inside(&self) -> bool {
        self.counted.load(Ordering::Acquire) != 0
            || MARKS.iter().any(|mark| mark.0.load(Ordering::Acquire) == self.name())
    }

    /// Name that marks carry for this hazard: its address, which stays the same while a thread is
    /// inside.
    fn name(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }
}

#[cfg(not(all(test, loom)))]
#[inline]
fn light() {
    asymmetric_fence::light(asymmetric_fence::are_asymmetric(Reach::Process));
}

#[cfg(not(all(test, loom)))]
fn heavy() {
    asymmetric_fence::heavy(Reach::Process);
}

/// Returns this thread's mark unless it is in use, because the thread is inside another hazard.
#[inline]
fn free_mark(place: Option<usize>) -> Option<&'static Mark> {
    place.and_then(|place| MARKS.get(place)).filter(|mark| mark.0.load(Ordering::Relaxed) == 0)
}

impl Inside<'_> {
    #[inline]
    fn unless_over(self, light: impl FnOnce()) -> Option<Self> {
        light();
        (!self.hazard.over.load(Ordering::Acquire)).then_some(self)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.mark {
            Some(mark) => mark.0.store(0, Ordering::Release),
            None => _ = self.hazard.counted.fetch_sub(1, Ordering::Release),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Hazard, PLACES, place};
    use std::sync::{Arc, Barrier, mpsc};

    #[test]
    fn nobody_gets_in_after_the_end_and_who_is_inside_is_seen() {
        let (one, other) = (Hazard::default(), Hazard::default());
        let outer = one.enter().unwrap();
        // The thread is inside two hazards at once, so one of them is counted.
        let inner = other.enter().unwrap();
        one.end();
        assert!(
            one.enter().is_none()
                && one.is_ending()
                && other.enter().is_some()
                && !other.is_ending()
        );
        drop(outer);
        assert!(!one.is_ending());
        other.end();
        assert!(other.is_ending());
        drop(inner);
        assert!(!other.is_ending());
    }

    /// More threads than places: those without one are counted, and places of threads that have
    /// ended are taken again.
    #[test]
    fn any_number_of_threads_is_seen() {
        let hazard = Arc::new(Hazard::default());
        let threads = 2 * PLACES;
        let all_in = Barrier::new(threads + 1);
        for round in 0..2 {
            let hazard = if round == 0 { Arc::clone(&hazard) } else { Arc::new(Hazard::default()) };
            std::thread::scope(|scope| {
                let leave: Vec<_> = (0..threads)
                    .map(|_| {
                        let (leave, told) = mpsc::channel::<()>();
                        let (hazard, all_in) = (Arc::clone(&hazard), &all_in);
                        let thread = scope.spawn(move || {
                            let inside = hazard.enter().unwrap();
                            all_in.wait();
                            told.recv().unwrap();
                            drop(inside);
                            place()
                        });
                        (leave, thread)
                    })
                    .collect();
                all_in.wait();
                hazard.end();
                let mut places = Vec::new();
                for (leave, thread) in leave {
                    assert!(hazard.is_ending());
                    leave.send(()).unwrap();
                    places.extend(thread.join().unwrap());
                }
                assert!(!hazard.is_ending());
                places.sort_unstable();
                let taken = places.len();
                places.dedup();
                // Threads of other tests have places, too; threads that wait for each other all at
                // once have different ones.
                assert!(taken == places.len() && taken > 0 && taken <= PLACES, "{taken}");
            });
        }
    }
}
