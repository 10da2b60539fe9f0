//! Buffer pool for long message bodies. Fresh memory costs a page fault per 4096 bytes, which takes
//! as long as receiving these bytes.
//!
//! Bench case: `message_bw` of 1 MiB (`bench wind`).

use oikaze_os::memory::{ask_for_huge_pages, has_memory_for};
use oikaze_os::signals::{Locked, locked};
use oikaze_protocol::limits::{BODY_INLINE_MAX, BODY_POOL_BYTES_MAX, BODY_POOLED_MIN, CREDIT};
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a message. A long body returns its buffer to the pool when the body is dropped. A short
/// body is stored inline and has no buffer.
pub struct Body(BodyBytes);

enum BodyBytes {
    Short { len: u8, words: Words },
    Long { bytes: Vec<u8>, home: Option<Arc<BufferPool>> },
}

/// Bytes of a short body, as words of 8 bytes. The copy out of the ring loads and stores whole
/// words, so that the words stay in registers. A load of another width than the store before it
/// cannot be forwarded, and waits until the store buffer has drained.
pub(super) type Words = [[u8; 8]; BODY_INLINE_MAX / 8];

/// Pool of buffers that no message uses at present.
#[derive(Debug, Default)]
pub(super) struct BufferPool(Mutex<IdleBuffers>);

#[derive(Debug, Default)]
struct IdleBuffers {
    buffers: VecDeque<Vec<u8>>,
    /// Sum of the capacities of all buffers.
    bytes: usize,
    /// Is `true` from [`BufferPool::trim`] until the next long buffer is wanted. Meanwhile the pool
    /// keeps no buffer.
    trimmed: bool,
}

impl Body {
    /// Converts the body into a vector, without a copy if the body is long. The caller then owns
    /// the memory.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<u8> {
        match &mut self.0 {
            BodyBytes::Short { len, words } => short(*len, words).to_vec(),
            BodyBytes::Long { bytes, home } => {
                *home = None;
                std::mem::take(bytes)
            }
        }
    }

    /// Creates a long body from received bytes. The buffer comes from [`BufferPool::lend`] or from
    /// elsewhere.
    pub(super) fn new(bytes: Vec<u8>, buffer_pool: &Arc<BufferPool>) -> Self {
        let home = (bytes.capacity() >= BODY_POOLED_MIN).then(|| Arc::clone(buffer_pool));
        Self(BodyBytes::Long { bytes, home })
    }

    /// Creates a body of the first `len` of these bytes.
    #[inline]
    pub(super) fn short(len: usize, words: Words) -> Self {
        Self(BodyBytes::Short { len: len.min(BODY_INLINE_MAX) as u8, words })
    }
}

/// Returns the first `len` of these bytes.
fn short(len: u8, words: &Words) -> &[u8] {
    words.as_flattened().get(..len.into()).unwrap_or_default()
}

impl Default for Body {
    fn default() -> Self {
        Self(BodyBytes::Short { len: 0, words: Words::default() })
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(BodyBytes::Long { bytes, home: None })
    }
}

impl From<Body> for Vec<u8> {
    fn from(body: Body) -> Self {
        body.into_vec()
    }
}

impl Drop for Body {
    #[inline]
    fn drop(&mut self) {
        if let BodyBytes::Long { bytes, home } = &mut self.0
            && let Some(home) = home.take()
        {
            home.keep(std::mem::take(bytes));
        }
    }
}

impl Deref for Body {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            BodyBytes::Short { len, words } => short(*len, words),
            BodyBytes::Long { bytes, .. } => bytes,
        }
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Clone for Body {
    fn clone(&self) -> Self {
        match &self.0 {
            BodyBytes::Short { len, words } => Self(BodyBytes::Short { len: *len, words: *words }),
            BodyBytes::Long { bytes, .. } => bytes.clone().into(),
        }
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Body {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl Eq for Body {}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl BufferPool {
    /// Returns an empty buffer with room for `len` bytes. Reuses a buffer of the pool if its
    /// capacity is at most twice `len`.
    pub fn lend(&self, len: usize) -> Vec<u8> {
        let used = if len < BODY_POOLED_MIN { None } else { self.kept().take(len) };
        used.unwrap_or_else(|| Vec::with_capacity(len))
    }

    /// Returns a buffer as [`BufferPool::lend`] does, or `None` if there is too little memory.
    /// Before it allocates more than one peer's default credit, it checks how much memory the
    /// machine and the control group have left. Under overcommit, the allocation itself succeeds,
    /// and the first use kills the process.
    pub fn try_lend(&self, len: usize) -> Option<Vec<u8>> {
        let used = if len < BODY_POOLED_MIN { None } else { self.kept().take(len) };
        used.or_else(|| {
            if len as u64 > CREDIT && !has_memory_for(len) {
                return None;
            }
            let mut fresh = Vec::new();
            fresh.try_reserve_exact(len).ok()?;
            ask_for_huge_pages(&mut fresh);
            Some(fresh)
        })
    }

    /// Called when no long message has come for a while. Frees all idle buffers. Buffers in use are
    /// freed with their bodies, until the next long buffer is wanted.
    pub fn trim(&self) {
        let mut kept = self.kept();
        *kept = IdleBuffers { trimmed: true, ..IdleBuffers::default() };
    }

    fn kept(&self) -> Locked<MutexGuard<'_, IdleBuffers>> {
        locked(|| self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn keep(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        // If another thread holds the lock, the buffer is freed instead of kept. (In a child of
        // fork the lock may be held for ever: MEM-24.2.)
        let Ok(mut kept) = self.0.try_lock() else { return };
        let displaced = kept.put(buffer);
        // Free the displaced buffers after releasing the lock.
        drop(kept);
        drop(displaced);
    }
}

impl IdleBuffers {
    fn take(&mut self, len: usize) -> Option<Vec<u8>> {
        self.trimmed = false;
        let fits = |buffer: &Vec<u8>| (len..=len.saturating_mul(2)).contains(&buffer.capacity());
        let at = self.buffers.iter().rposition(fits)?;
        let buffer = self.buffers.remove(at)?;
        self.bytes -= buffer.capacity();
        Some(buffer)
    }

    /// Adds a buffer, unless the pool rests. Returns the buffers to free: those beyond
    /// `BODY_POOL_BYTES_MAX`, least recently used first. The latest buffer stays, however long it
    /// is.
    fn put(&mut self, buffer: Vec<u8>) -> Vec<Vec<u8>> {
        if self.trimmed {
            return vec![buffer];
        }
        self.bytes += buffer.capacity();
        self.buffers.push_back(buffer);
        let mut displaced = Vec::new();
        while self.bytes > BODY_POOL_BYTES_MAX
            && self.buffers.len() > 1
            && let Some(oldest) = self.buffers.pop_front()
        {
            self.bytes -= oldest.capacity();
            displaced.push(oldest);
        }
        displaced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_is_received_where_the_one_before_was() {
        let buffer_pool = Arc::new(BufferPool::default());
        let place = |len: usize| {
            let mut buffer = buffer_pool.lend(len);
            assert!(buffer.is_empty() && buffer.capacity() >= len);
            buffer.resize(len, 7);
            let body = Body::new(buffer, &buffer_pool);
            assert_eq!(body, vec![7; len]);
            body.as_ptr()
        };
        let first = place(1 << 20);
        assert_eq!([place(1 << 20), place(600 << 10)], [first, first]);
        // Bodies of less than half the length, and bodies after `into_vec`, use other buffers.
        assert_ne!(place(100 << 10), first);
        let taken = Body::new(buffer_pool.lend(1 << 20), &buffer_pool).into_vec();
        assert_eq!(taken.as_ptr(), first);
        assert_ne!(place(1 << 20), first);
    }

    #[test]
    fn nothing_is_kept_while_nothing_long_comes() {
        let buffer_pool = Arc::new(BufferPool::default());
        let [early, late] = [0, 1].map(|_| Body::new(buffer_pool.lend(1 << 20), &buffer_pool));
        drop(early);
        assert_eq!(buffer_pool.kept().bytes, 1 << 20);
        buffer_pool.trim();
        drop(late);
        assert!(buffer_pool.kept().buffers.is_empty());
        assert_eq!(buffer_pool.kept().bytes, 0);
        drop(Body::new(buffer_pool.lend(1 << 20), &buffer_pool));
        assert_eq!(buffer_pool.kept().bytes, 1 << 20);
    }

    #[test]
    fn a_body_whose_memory_was_taken_leaves_nothing_behind() {
        let buffer_pool = Arc::new(BufferPool::default());
        for _ in 0..100 {
            assert!(
                Body::new(buffer_pool.lend(BODY_POOLED_MIN), &buffer_pool).into_vec().capacity()
                    >= BODY_POOLED_MIN
            );
        }
        assert!(buffer_pool.kept().buffers.is_empty());
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let buffer_pool = Arc::new(BufferPool::default());
        let lens = [
            BODY_POOLED_MIN - 1,
            BODY_POOLED_MIN,
            1 << 20,
            BODY_POOL_BYTES_MAX / 2,
            BODY_POOL_BYTES_MAX,
            BODY_POOL_BYTES_MAX + 1,
            3 << 20,
        ];
        for turn in 0..200 {
            let some: Vec<Body> = lens
                .iter()
                .cycle()
                .skip(turn)
                .take(1 + turn % 5)
                .map(|len| Body::new(buffer_pool.lend(*len), &buffer_pool))
                .collect();
            drop(some);
            let kept = buffer_pool.kept();
            assert_eq!(kept.bytes, kept.buffers.iter().map(Vec::capacity).sum::<usize>());
            assert!(kept.bytes <= BODY_POOL_BYTES_MAX || kept.buffers.len() == 1);
            assert!(kept.buffers.iter().all(|buffer| buffer.capacity() >= BODY_POOLED_MIN));
        }
    }
}
