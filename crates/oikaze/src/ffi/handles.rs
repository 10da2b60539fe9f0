//! Handles: plain numbers for the objects of a job. They serve bindings for languages that have
//! neither ownership nor lifetimes (spec/memory.md, MEM-19).
//!
//! A binding keeps each object that Rust would own ([`Job::keep`]), hands out its [`Handle`], and
//! finds the object by that handle ([`Job::kept`]). All bindings share this one set of types and
//! calls (MEM-19.3).
//!
//! [`Job::keep`]: crate::Job::keep
//! [`Job::kept`]: crate::Job::kept

use crate::error::{Error, Result};
use oikaze_runtime::node::{check_not_forked, lock};
use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock};

/// Low bits of a handle, which hold the place in the table. The other bits hold the place's
/// generation.
const PLACE_BITS: u32 = 24;
const PLACES_MAX: usize = 1 << PLACE_BITS;
const GENERATION_MASK: u64 = u64::MAX >> PLACE_BITS;

/// Name of an object that a [`Job`] keeps, as a plain number that can be copied and passed through
/// C. A handle means its object until the object is [released]. After that the handle
/// means nothing, and never another object (MEM-19.1).
///
/// [`Job`]: crate::Job
/// [released]: crate::Job::release
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Handle(u64);

impl Handle {
    /// Returns the handle as a number, which is never 0.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Makes a handle from any number. A number that [`Handle::to_bits`] has not returned names no
    /// object.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    fn new(generation: u64, place: usize) -> Self {
        Self(generation << PLACE_BITS | place as u64)
    }

    fn place(self) -> usize {
        (self.0 & (PLACES_MAX as u64 - 1)) as usize
    }

    fn generation(self) -> u64 {
        self.0 >> PLACE_BITS
    }
}

/// Type of an object that a job can keep.
pub trait Keepable: Any + Send + Sync {
    #[doc(hidden)]
    const WHAT: &'static str;
}

/// Places in the first chunk. Each later chunk has twice as many as the one before it.
const FIRST_CHUNK: usize = 64;
const CHUNKS: usize = (PLACES_MAX / FIRST_CHUNK).ilog2() as usize + 1;

/// Table of objects by handle. A job has one ([`Job::keep`]); a binding whose objects must outlive
/// their job, or that keeps jobs, has one of its own.
///
/// [`Job::keep`]: crate::Job::keep
///
/// ```
/// use oikaze::ffi::{HandleTable, Keepable};
/// struct Window(u32);
/// impl Keepable for Window {
///     const WHAT: &'static str = "window";
/// }
/// # fn main() -> oikaze::Result<()> {
/// let table = HandleTable::new();
/// let handle = table.keep(Window(7))?;
/// assert_eq!(table.kept::<Window>(handle)?.0, 7);
/// table.release::<Window>(handle)?;
/// assert!(table.kept::<Window>(handle).is_err());
/// # Ok(())
/// # }
/// ```
// Chunks of places never move, and each place has its own lock, so that threads that look up
// different objects do not contend.
pub struct HandleTable {
    chunks: [OnceLock<Box<[Mutex<Place>]>>; CHUNKS],
    free: Mutex<Free>,
    /// First generation of each place. It differs from table to table, so that a handle of another
    /// job most likely names nothing in this job.
    first: u64,
}

/// Places that hold no object.
#[derive(Default)]
struct Free {
    /// Places whose object was released.
    released: Vec<usize>,
    /// First place that has never been used. All later places are unused too.
    unused: usize,
}

struct Place {
    generation: u64,
    object: Option<Object>,
}

pub(super) struct Object {
    what: &'static str,
    object: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for HandleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandleTable").finish_non_exhaustive()
    }
}

impl Default for HandleTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// Takes the object out, and makes its handle mean nothing.
    fn empty(&mut self) -> Option<Object> {
        // 0 stays free: no handle is 0.
        self.generation = ((self.generation + 1) & GENERATION_MASK).max(1);
        self.object.take()
    }
}

impl HandleTable {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        let first = (RandomState::new().hash_one(0) & GENERATION_MASK).max(1);
        Self { chunks: [const { OnceLock::new() }; CHUNKS], free: Mutex::default(), first }
    }

    /// Keeps an object until it is [released](Self::release).
    ///
    /// # Errors
    /// The table already keeps 16,777,216 objects; this process is a child of fork of a node.
    pub fn keep<T: Keepable>(&self, object: T) -> Result<Handle> {
        self.keep_shared(Arc::new(object))
    }

    /// Keeps an object that its maker uses, too, as [`HandleTable::keep`] does.
    ///
    /// # Errors
    /// As [`HandleTable::keep`].
    pub fn keep_shared<T: Keepable>(&self, object: Arc<T>) -> Result<Handle> {
        let doing = || format!("keeping one {} more", T::WHAT);
        check_not_forked(doing)?;
        self.insert(Object { what: T::WHAT, object }).ok_or_else(|| {
            Error::invalid(doing(), format!("{PLACES_MAX} objects are kept; release some"))
        })
    }

    /// Returns the object of this handle.
    ///
    /// # Errors
    /// The object was released, belongs to another table, or is of another type (MEM-19.2); this
    /// process is a child of fork of a node.
    pub fn kept<T: Keepable>(&self, handle: Handle) -> Result<Arc<T>> {
        check_not_forked(|| describe(T::WHAT, handle))?;
        let found = self.find(handle, |place| {
            place.object.as_ref().map(|it| (it.what, Arc::clone(&it.object)))
        });
        let (what, object) = found.flatten().ok_or_else(|| unknown(T::WHAT, handle))?;
        object.downcast().map_err(|_| of_another_kind(T::WHAT, handle, what))
    }

    /// Stops keeping the object, and returns it. A thread that is using the object still has it.
    ///
    /// # Errors
    /// As [`HandleTable::kept`]; an object of another type stays.
    pub fn release<T: Keepable>(&self, handle: Handle) -> Result<Arc<T>> {
        self.release_if(handle, |_: &T| true).map(|(object, _)| object)
    }

    /// Returns the object of this handle, and stops keeping it if `is_over` says so. The second
    /// value tells which. `is_over` is called under a lock, and must not use the table.
    ///
    /// # Errors
    /// As [`HandleTable::kept`].
    pub fn release_if<T: Keepable>(
        &self,
        handle: Handle,
        is_over: impl FnOnce(&T) -> bool,
    ) -> Result<(Arc<T>, bool)> {
        check_not_forked(|| describe(T::WHAT, handle))?;
        let found = self.find(handle, |place| {
            let kept = place.object.as_ref()?;
            let what = kept.what;
            Some(Arc::clone(&kept.object).downcast::<T>().map_err(|_| what).map(|object| {
                let is_over = is_over(&object);
                if is_over {
                    place.empty();
                }
                (object, is_over)
            }))
        });
        let found = found.flatten().ok_or_else(|| unknown(T::WHAT, handle))?;
        let (object, is_over) = found.map_err(|what| of_another_kind(T::WHAT, handle, what))?;
        if is_over {
            lock(&self.free).released.push(handle.place());
        }
        Ok((object, is_over))
    }

    fn insert(&self, object: Object) -> Option<Handle> {
        let number = self.free_place()?;
        let (chunk, _) = chunk_of(number);
        let empty = || Mutex::new(Place { generation: self.first, object: None });
        self.chunks
            .get(chunk)?
            .get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| empty()).collect());
        let mut place = lock(self.place(number)?);
        place.object = Some(object);
        Some(Handle::new(place.generation, number))
    }

    fn free_place(&self) -> Option<usize> {
        let mut free = lock(&self.free);
        if let Some(number) = free.released.pop() {
            return Some(number);
        }
        let number = free.unused;
        free.unused = (number < PLACES_MAX).then_some(number + 1)?;
        Some(number)
    }

    fn place(&self, number: usize) -> Option<&Mutex<Place>> {
        let (chunk, at) = chunk_of(number);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    fn find<T>(&self, handle: Handle, use_it: impl FnOnce(&mut Place) -> T) -> Option<T> {
        let mut place = lock(self.place(handle.place())?);
        let is_it = place.generation == handle.generation() && place.object.is_some();
        is_it.then(|| use_it(&mut place))
    }

    pub(super) fn remove(&self, handle: Handle) -> Option<Object> {
        let object = self.find(handle, |place| place.empty())??;
        lock(&self.free).released.push(handle.place());
        Some(object)
    }
}

/// Returns the chunk of a place, and the index in that chunk.
fn chunk_of(place: usize) -> (usize, usize) {
    let chunk = (place / FIRST_CHUNK + 1).ilog2() as usize;
    (chunk, place - FIRST_CHUNK * ((1 << chunk) - 1))
}

pub(super) fn describe(what: &str, handle: Handle) -> String {
    format!("the {what} of handle {:#x}", handle.to_bits())
}

pub(super) fn unknown(what: &str, handle: Handle) -> Error {
    Error::invalid(
        describe(what, handle),
        "this job keeps nothing by that handle: it was released, or is another job's, or was never one",
    )
}

fn of_another_kind(what: &str, handle: Handle, kept: &str) -> Error {
    Error::invalid(describe(what, handle), format!("it is of another kind: {kept}"))
}

#[cfg(test)]
mod tests {
    use super::{CHUNKS, FIRST_CHUNK, Handle, HandleTable, Keepable, Object, PLACES_MAX, chunk_of};
    use std::sync::Arc;

    fn object(number: u64) -> Object {
        Object { what: "number", object: Arc::new(number) }
    }

    /// MEM-19.1.
    #[test]
    fn a_handle_means_one_object_and_then_nothing() {
        let handles = HandleTable::new();
        let mut stale = Vec::new();
        for round in 0..100u64 {
            let kept: Vec<Handle> =
                (0..5).map(|n| handles.insert(object(10 * round + n)).unwrap()).collect();
            for (n, handle) in (0..).zip(&kept) {
                let found = handles
                    .find(*handle, |place| Arc::clone(&place.object.as_ref().unwrap().object))
                    .unwrap();
                assert_eq!(*found.downcast::<u64>().unwrap(), 10 * round + n);
                assert!(!stale.contains(handle) && handle.to_bits() != 0);
            }
            for handle in kept {
                assert!(handles.remove(handle).is_some() && handles.remove(handle).is_none());
                stale.push(handle);
            }
            assert!(stale.iter().all(|handle| handles.find(*handle, |_| ()).is_none()));
        }
        for never in [0, 1, u64::MAX] {
            assert!(handles.remove(Handle::from_bits(never)).is_none());
        }
        assert_eq!(handles.free.lock().unwrap().unused, 5, "places are used again");
    }

    /// Each place is in one chunk, and no chunk holds more than it has room for.
    #[test]
    fn chunks_hold_all_places() {
        let mut next = (0, 0);
        for place in 0..PLACES_MAX {
            if next.1 == FIRST_CHUNK << next.0 {
                next = (next.0 + 1, 0);
            }
            assert_eq!(chunk_of(place), next);
            next.1 += 1;
        }
        assert!(next.0 < CHUNKS);
    }

    /// MEM-19.1: threads that keep and release at once never see one another's.
    #[test]
    fn threads_find_their_own() {
        let handles = HandleTable::new();
        std::thread::scope(|threads| {
            for thread in 0..4_u64 {
                let handles = &handles;
                threads.spawn(move || {
                    for round in 0..200 {
                        let kept: Vec<Handle> = (0..100)
                            .map(|n| handles.insert(object(thread << 32 | n)).unwrap())
                            .collect();
                        for (n, handle) in (0..).zip(kept) {
                            let found = handles.remove(handle).unwrap();
                            assert_eq!(
                                *found.object.downcast::<u64>().unwrap(),
                                thread << 32 | n,
                                "{round}"
                            );
                            assert!(handles.find(handle, |_| ()).is_none());
                        }
                    }
                });
            }
        });
        assert!(handles.free.lock().unwrap().unused <= 400);
    }

    impl Keepable for u64 {
        const WHAT: &'static str = "number";
    }

    /// MEM-19.1: an object that is not over stays.
    #[test]
    fn objects_are_released_when_they_are_over() {
        let handles = HandleTable::new();
        let handle = handles.keep(7_u64).unwrap();
        assert_eq!(handles.release_if(handle, |one: &u64| *one > 7).unwrap(), (Arc::new(7), false));
        assert_eq!(handles.release_if(handle, |one: &u64| *one == 7).unwrap(), (Arc::new(7), true));
        assert!(handles.release_if(handle, |_: &u64| true).is_err());
        assert!(handles.kept::<u64>(handle).is_err());
        assert_eq!(handles.free.lock().unwrap().released, [handle.place()]);
    }

    /// MEM-19.2.
    #[test]
    fn a_handle_of_another_job_is_none_of_this_one() {
        let (one, other) = (HandleTable::new(), HandleTable::new());
        let handle = one.insert(object(1)).unwrap();
        other.insert(object(2)).unwrap();
        // Of 2^40 generations both may begin with the same one.
        assert!(other.find(handle, |_| ()).is_none());
    }
}
