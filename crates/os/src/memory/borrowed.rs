//! Memory of the program, lent to the runtime until a scope ends.
//!
//! A message may be retransmitted long after the call that sent it has returned, and each
//! retransmission reads the source again. Memory that the program may free can therefore only be
//! lent inside a closure. When the closure ends, the runtime revokes the loan and waits for
//! accesses under way. The program then has its memory back. The shape is that of
//! `std::thread::scope`.

use super::region::Region;
use core::marker::PhantomData;
use core::ptr::NonNull;
use std::sync::Mutex;

/// Lends memory for the length of one closure; see [`scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    lent: Mutex<Vec<Region>>,
    // Invariant in both lifetimes, as in `std::thread::Scope`: neither may be shortened or
    // stretched.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl<'env> Scope<'_, 'env> {
    /// Lends memory for reading: puts and sends may gather from it.
    pub fn borrow(&self, bytes: &'env [u8]) -> Region {
        self.lend(NonNull::from(bytes).cast(), bytes.len(), false)
    }

    /// Lends memory for reading and writing: gets may also write to it.
    pub fn borrow_mut(&self, bytes: &'env mut [u8]) -> Region {
        let len = bytes.len();
        self.lend(NonNull::from(bytes).cast(), len, true)
    }

    fn lend(&self, at: NonNull<u8>, len: usize, writable: bool) -> Region {
        let region = Region::borrowed(at, len, writable);
        let mut lent = self.lent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Forget regions without other handles, or a scope that lends repeatedly would keep every
        // gate.
        if lent.len() == lent.capacity() {
            lent.retain(|region| !region.is_last());
        }
        lent.push(region.clone());
        region
    }

    fn close(&self) {
        for region in self.lent.lock().unwrap_or_else(std::sync::PoisonError::into_inner).drain(..)
        {
            region.close();
        }
    }
}

/// Runs `body` with a [`Scope`] that lends memory. All loans end before this returns or unwinds.
/// Accesses under way are waited for. Later accesses through regions that were kept fail with
/// [`Closed`](super::AccessError::Closed).
///
/// A [`Gather`](super::Gather) is an access under way, so the scope waits until it is dropped.
///
/// ```
/// let source = vec![7_u8; 100];
/// let mut target = vec![0_u8; 100];
/// oikaze_os::memory::scope(|scope| {
///     let (source, target) = (scope.borrow(&source), scope.borrow_mut(&mut target));
///     let mut byte = [0];
///     source.read(99, &mut byte)?;
///     target.write(0, &byte)
/// })?;
/// assert_eq!(target[0], 7);
/// # Ok::<(), oikaze_os::memory::AccessError>(())
/// ```
///
/// Memory must outlive the scope, so what is made inside cannot be lent:
///
/// ```compile_fail,E0597
/// oikaze_os::memory::scope(|scope| {
///     let inside = vec![7_u8; 100];
///     scope.borrow(&inside);
/// });
/// ```
///
/// and memory lent for writing cannot be touched otherwise meanwhile:
///
/// ```compile_fail,E0506
/// let mut target = [0_u8; 100];
/// oikaze_os::memory::scope(|scope| {
///     let region = scope.borrow_mut(&mut target);
///     target[0] = 1;
///     region.len()
/// });
/// ```
pub fn scope<'env, R>(body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
    struct Closing<'a, 'scope, 'env>(&'a Scope<'scope, 'env>);
    impl Drop for Closing<'_, '_, '_> {
        fn drop(&mut self) {
            self.0.close();
        }
    }
    let scope = Scope { lent: Mutex::new(Vec::new()), scope: PhantomData, env: PhantomData };
    let closing = Closing(&scope);
    body(closing.0)
}

impl Region {
    /// Lends memory of the program until [`Region::end_loan`]. It is meant for bindings of other
    /// languages, whose memory (`malloc`, a NumPy array) has no Rust lifetime. The region is
    /// registered like any other, and is refused where it overlaps a shared array. Rust code uses
    /// [`scope`].
    ///
    /// # Safety
    /// The `len` bytes at `at` stay mapped, readable and, if so said, `writable`, until `end_loan`
    /// has returned. As long as others may write there nobody has references to them; else nobody
    /// has `&mut` ones. (Races of plain loads and stores: see [the module](super).)
    #[must_use]
    pub unsafe fn lent(at: NonNull<u8>, len: usize, writable: bool) -> Region {
        Region::borrowed(at, len, writable)
    }

    /// Ends the loan: waits for accesses under way. All later accesses to the region fail
    /// ([`Closed`](super::AccessError::Closed)), through all its clones. Deregister the region
    /// first, so that peers and operations are told. Does nothing for a region that is not lent.
    pub fn end_loan(&self) {
        self.close();
    }
}

/// Lends one slice for reading while `body` runs.
pub fn with_borrowed<R>(bytes: &[u8], body: impl FnOnce(&Region) -> R) -> R {
    scope(|scope| body(&scope.borrow(bytes)))
}

/// Lends one slice for reading and writing while `body` runs.
pub fn with_borrowed_mut<R>(bytes: &mut [u8], body: impl FnOnce(&Region) -> R) -> R {
    scope(|scope| body(&scope.borrow_mut(bytes)))
}

#[cfg(test)]
mod tests {
    use super::super::AccessError;
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn what_is_lent_without_a_scope_is_reachable_until_the_loan_ends() {
        let mut memory = [0_u8; 64];
        // SAFETY: the bytes are not touched again before the loan's end.
        let lent = unsafe { Region::lent(NonNull::from(&mut memory).cast(), memory.len(), true) };
        let other = lent.clone();
        lent.write(8, b"here").unwrap();
        lent.end_loan();
        assert_eq!(other.write(8, b"late"), Err(AccessError::Closed));
        assert_eq!(&memory[8..12], b"here");
    }

    #[test]
    fn memory_is_reachable_inside_the_scope_and_not_after() {
        let mut source = *b"wind from behind";
        let kept = with_borrowed(&source, |region| {
            let mut bytes = [0; 4];
            region.read(5, &mut bytes).unwrap();
            assert_eq!(&bytes, b"from");
            assert_eq!(region.write(0, b"x"), Err(AccessError::ReadOnly));
            region.clone()
        });
        assert_eq!(kept.read(0, &mut [0; 1]), Err(AccessError::Closed));
        let kept = with_borrowed_mut(&mut source, |region| {
            region.write(0, b"gale").unwrap();
            region.clone()
        });
        assert_eq!(&source[..5], b"gale ");
        assert_eq!(kept.write(0, b"x"), Err(AccessError::Closed));
        assert!(kept.is_closed());
    }

    #[test]
    fn the_scope_waits_for_an_access_under_way() {
        let bytes = vec![7_u8; 100];
        let (give, take) = mpsc::channel();
        let (done, seen) = mpsc::channel();
        let other = std::thread::spawn(move || {
            let (region, hold): (Region, (NonNullSend, super::super::region::access::Hold)) =
                take.recv().unwrap();
            while !region.is_closed() {
                std::thread::yield_now();
            }
            done.send(()).unwrap();
            drop(hold);
        });
        with_borrowed(&bytes, |region| {
            let (at, hold) = region.hold(0, 100).unwrap();
            give.send((region.clone(), (NonNullSend(at), hold))).unwrap();
        });
        // The loan is over, so the other thread has seen it closing and let go.
        assert!(seen.try_recv().is_ok());
        other.join().unwrap();
    }

    struct NonNullSend(#[allow(dead_code)] NonNull<u8>);
    // SAFETY: never dereferenced in the test.
    unsafe impl Send for NonNullSend {}

    #[test]
    fn a_panic_ends_the_loan_too() {
        let bytes = [1_u8; 8];
        let kept = Mutex::new(None);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            with_borrowed(&bytes, |region| {
                *kept.lock().unwrap() = Some(region.clone());
                std::panic::resume_unwind(Box::new("on purpose"));
            })
        }));
        assert!(caught.is_err());
        assert!(kept.into_inner().unwrap().unwrap().is_closed());
    }

    #[test]
    fn many_loans_in_one_scope_do_not_pile_up() {
        let bytes = [0_u8; 16];
        scope(|scope| {
            for _ in 0..10_000 {
                drop(scope.borrow(&bytes));
            }
            assert!(scope.lent.lock().unwrap().capacity() <= 8);
        });
    }
}
