//! Bytes of a region that an iovec may be filled into.

use super::region::Hold;
use arrayvec::ArrayVec;
use core::ptr::NonNull;
use oikaze_protocol::limits::FORESEEN_MAX;

/// Checked, writable bytes of a region that stay in place for as long as this lives: where a link may receive payloads that belong there.
///
/// Short-lived, as a [`Gather`](super::Gather): a scope that lent the memory waits for it.
#[derive(Debug)]
pub struct Scatter {
    at: NonNull<u8>,
    len: usize,
    _hold: Hold,
}

// SAFETY: the bytes stay valid while the hold lives, on whatever thread; they are reached by raw copies (see the module about races).
unsafe impl Send for Scatter {}

impl Scatter {
    /// `len` bytes at `at`, valid and writable while `hold` lives.
    pub(super) fn new(at: NonNull<u8>, len: usize, hold: Hold) -> Scatter {
        Scatter { at, len, _hold: hold }
    }

    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of `len` bytes from `start` on, for an iovec; `None` if they stick out. Not to be used after this value is gone.
    pub(crate) fn place(&mut self, start: usize, len: usize) -> Option<*mut u8> {
        let inside = start.checked_add(len)? <= self.len;
        // SAFETY: inside the bytes that the hold keeps.
        inside.then(|| unsafe { self.at.as_ptr().add(start) })
    }

    /// The bytes as they are now; `None` if they stick out. A program that writes there meanwhile, which it may not (MEM-3.3), is
    /// in a race with whoever looks, and what was received is found damaged.
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> Option<&[u8]> {
        let inside = start.checked_add(len)? <= self.len;
        // SAFETY: inside the bytes that the hold keeps; bytes have no invalid values.
        inside.then(|| unsafe { core::slice::from_raw_parts(self.at.as_ptr().add(start), len) })
    }

    /// Copy in, as the kernel would: for links that are none of the kernel's. Nothing happens if the bytes stick out.
    pub fn fill(&mut self, start: usize, bytes: &[u8]) {
        if let Some(at) = self.place(start, bytes.len()) {
            // SAFETY: `place` has checked that so many bytes are ours to write; nobody outside this crate has a reference into a region.
            unsafe { core::ptr::copy(bytes.as_ptr(), at, bytes.len()) }
        }
    }
}

/// Several of these, counted as one behind the other. What is asked for lies in one of them.
#[derive(Debug, Default)]
pub struct Places(ArrayVec<Scatter, FORESEEN_MAX>);

impl Places {
    /// One more; false if there is no room.
    pub fn push(&mut self, scatter: Scatter) -> bool {
        self.0.try_push(scatter).is_ok()
    }

    /// Bytes of all.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Scatter::len).sum()
    }

    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which, and where in it.
    fn find(&self, mut start: usize) -> Option<(usize, usize)> {
        for (index, scatter) in self.0.iter().enumerate() {
            match start.checked_sub(scatter.len()) {
                None => return Some((index, start)),
                Some(beyond) => start = beyond,
            }
        }
        None
    }

    /// As [`Scatter::place`].
    pub(crate) fn place(&mut self, start: usize, len: usize) -> Option<*mut u8> {
        let (index, start) = self.find(start)?;
        self.0.get_mut(index)?.place(start, len)
    }

    /// As [`Scatter::part`].
    #[must_use]
    pub fn part(&self, start: usize, len: usize) -> Option<&[u8]> {
        let (index, start) = self.find(start)?;
        self.0.get(index)?.part(start, len)
    }

    /// As [`Scatter::fill`].
    pub fn fill(&mut self, start: usize, bytes: &[u8]) {
        if let Some((index, start)) = self.find(start)
            && let Some(scatter) = self.0.get_mut(index)
        {
            scatter.fill(start, bytes);
        }
    }
}
