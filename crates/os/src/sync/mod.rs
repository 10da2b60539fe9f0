//! Tracks threads that are using an object, so that teardown can wait for them: rundown protection,
//! as Windows calls it. The marks are hazard pointers (Michael 2004), set and cleared by plain
//! stores.
//!
//! A thread that enters sets its mark first and then checks whether the object is closed. A thread
//! that closes the object says so first and then checks the marks. With a fence between the two
//! steps of each, one of them sees the other (Dekker's argument). Entering is frequent and closing
//! is rare. So where the kernel permits it, the closing thread makes the fence for all others
//! ([`asymmetric_fence`]).
//!
//! Each thread has a place for its mark; threads without a place are counted instead. [`Rundown`]
//! is for threads of this process; marks shared by two processes lie in memory that both map
//! (`shm::lease_marks`).

#[cfg_attr(all(test, loom), allow(dead_code))]
pub(crate) mod asymmetric_fence;
#[cfg(all(test, loom))]
pub(crate) mod models;
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

/// Maximum number of threads that have a place at the same time.
#[cfg(not(all(test, loom)))]
pub(crate) const PLACES: usize = 64;
#[cfg(all(test, loom))]
pub(crate) const PLACES: usize = 2;

/// Mark of one thread: name of the rundown that the thread is inside, or 0. Only that thread
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

/// Protection of an object of this process that threads enter, and that is closed once.
#[derive(Debug, Default)]
pub struct Rundown {
    closed: AtomicBool,
    /// Number of threads inside that have set no mark.
    counted: AtomicUsize,
}

/// A thread's use of a protected object, which lasts until this is dropped.
#[derive(Debug)]
pub struct RundownGuard<'h> {
    rundown: &'h Rundown,
    mark: Option<&'static Mark>,
}

impl Rundown {
    /// Enters, unless the object is closed.
    #[inline]
    #[must_use]
    pub fn enter(&self) -> Option<RundownGuard<'_>> {
        self.enter_by(place(), light)
    }

    #[inline]
    fn enter_by(&self, place: Option<usize>, light: impl FnOnce()) -> Option<RundownGuard<'_>> {
        let inside = match free_mark(place) {
            Some(mark) => self.set(mark),
            None => {
                self.counted.fetch_add(1, Ordering::Relaxed);
                RundownGuard { rundown: self, mark: None }
            }
        };
        inside.unless_closed(light)
    }

    #[inline]
    fn set(&self, mark: &'static Mark) -> RundownGuard<'_> {
        // A thread that waits for the rundown that this mark named before may see this name
        // instead.
        mark.0.store(self.name(), Ordering::Release);
        RundownGuard { rundown: self, mark: Some(mark) }
    }

    /// Closes the object, so that no thread can enter any more. Threads that have entered are
    /// [inside](Rundown::is_inside).
    pub fn close(&self) {
        self.close_by(heavy);
    }

    fn close_by(&self, heavy: impl FnOnce()) {
        self.closed.store(true, Ordering::Relaxed);
        heavy();
    }

    /// Returns `true` if the object is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns `true` if the object is closed and a thread is still inside.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.closed.load(Ordering::Relaxed) && self.is_inside()
    }

    /// Returns `true` if a thread is inside. The answer is reliable only once the object is closed.
    fn is_inside(&self) -> bool {
        self.counted.load(Ordering::Acquire) != 0
            || MARKS.iter().any(|mark| mark.0.load(Ordering::Acquire) == self.name())
    }

    /// Name that marks carry for this rundown: its address, which stays the same while a thread is
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

/// Returns this thread's mark unless it is in use, because the thread is inside another rundown.
#[inline]
fn free_mark(place: Option<usize>) -> Option<&'static Mark> {
    place.and_then(|place| MARKS.get(place)).filter(|mark| mark.0.load(Ordering::Relaxed) == 0)
}

impl RundownGuard<'_> {
    #[inline]
    fn unless_closed(self, light: impl FnOnce()) -> Option<Self> {
        light();
        (!self.rundown.closed.load(Ordering::Acquire)).then_some(self)
    }
}

impl Drop for RundownGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        match self.mark {
            Some(mark) => mark.0.store(0, Ordering::Release),
            None => _ = self.rundown.counted.fetch_sub(1, Ordering::Release),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{PLACES, Rundown, place};
    use std::sync::{Arc, Barrier, mpsc};

    #[test]
    fn closed_object_refuses_entry_and_shows_who_is_inside() {
        let (one, other) = (Rundown::default(), Rundown::default());
        let outer = one.enter().unwrap();
        // The thread is inside two rundowns at once, so one of them is counted.
        let inner = other.enter().unwrap();
        one.close();
        assert!(one.enter().is_none() && one.is_draining() && other.enter().is_some());
        assert!(!other.is_draining());
        drop(outer);
        assert!(!one.is_draining());
        other.close();
        assert!(other.is_draining());
        drop(inner);
        assert!(!other.is_draining());
    }

    /// More threads than places: those without one are counted, and places of threads that have
    /// ended are taken again.
    #[test]
    fn threads_without_a_place_are_seen() {
        let rundown = Arc::new(Rundown::default());
        let threads = 2 * PLACES;
        let all_in = Barrier::new(threads + 1);
        for round in 0..2 {
            let rundown =
                if round == 0 { Arc::clone(&rundown) } else { Arc::new(Rundown::default()) };
            std::thread::scope(|scope| {
                let leave: Vec<_> = (0..threads)
                    .map(|_| {
                        let (leave, told) = mpsc::channel::<()>();
                        let (rundown, all_in) = (Arc::clone(&rundown), &all_in);
                        let thread = scope.spawn(move || {
                            let inside = rundown.enter().unwrap();
                            all_in.wait();
                            told.recv().unwrap();
                            drop(inside);
                            place()
                        });
                        (leave, thread)
                    })
                    .collect();
                all_in.wait();
                rundown.close();
                let mut places = Vec::new();
                for (leave, thread) in leave {
                    assert!(rundown.is_draining());
                    leave.send(()).unwrap();
                    places.extend(thread.join().unwrap());
                }
                assert!(!rundown.is_draining());
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
