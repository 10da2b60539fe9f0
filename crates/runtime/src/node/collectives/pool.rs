//! Buffers of collectives that are used again. Fresh memory costs a page fault for each 4096 bytes,
//! which takes longer than a copy of these bytes.
//!
//! Bench cases: 1 MiB of `bench collectives`.

use crate::sync::lock;
use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Minimum length of a pooled buffer in bytes. Fresh memory is cheap below it.
pub const POOLED_MIN: usize = 32 << 10;
/// Maximum number of bytes that a pool keeps.
const POOL_BYTES_MAX: usize = 64 << 20;

/// Buffers that no collective of this node uses at present.
#[derive(Default)]
pub struct WorkPool(Mutex<IdleBuffers>);

#[derive(Default)]
struct IdleBuffers {
    /// Vectors with the type of their elements and their capacity in bytes.
    buffers: VecDeque<(TypeId, usize, Box<dyn Any + Send>)>,
    bytes: usize,
}

impl fmt::Debug for WorkPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkPool").finish_non_exhaustive()
    }
}

impl WorkPool {
    /// Returns a vector with room for `len` elements, or for fewer. Its elements are those of an
    /// earlier use.
    pub fn take<T: Send + 'static>(&self, len: usize) -> Vec<T> {
        let bytes = len.saturating_mul(size_of::<T>());
        if bytes < POOLED_MIN {
            return Vec::new();
        }
        let mut idle = lock(&self.0);
        let fits = |(of, has, _): &(TypeId, usize, _)| {
            *of == TypeId::of::<T>() && (bytes..=bytes.saturating_mul(2)).contains(has)
        };
        let at = idle.buffers.iter().rposition(fits);
        let Some((_, has, buffer)) = at.and_then(|at| idle.buffers.remove(at)) else {
            return Vec::new();
        };
        idle.bytes -= has;
        drop(idle);
        buffer.downcast().map_or_else(|_| Vec::new(), |buffer| *buffer)
    }

    /// Takes back a vector. Frees the oldest ones if there are too many.
    pub fn give<T: Send + 'static>(&self, buffer: Vec<T>) {
        let bytes = buffer.capacity().saturating_mul(size_of::<T>());
        if !(POOLED_MIN..=POOL_BYTES_MAX).contains(&bytes) {
            return;
        }
        let entry = (TypeId::of::<T>(), bytes, Box::new(buffer) as Box<dyn Any + Send>);
        let mut displaced = Vec::new();
        // In a child of fork, nobody may be left to release the lock (MEM-24.2).
        let Ok(mut idle) = self.0.try_lock() else { return };
        idle.bytes += bytes;
        idle.buffers.push_back(entry);
        while idle.bytes > POOL_BYTES_MAX
            && let Some(oldest) = idle.buffers.pop_front()
        {
            idle.bytes -= oldest.1;
            displaced.push(oldest);
        }
        drop(idle);
    }

    /// Returns a copy of bytes, whose memory comes back when it is dropped.
    pub fn copy_of(self: &Arc<Self>, bytes: &[u8]) -> PooledBytes {
        let mut copy = self.take(bytes.len());
        copy.clear();
        copy.extend_from_slice(bytes);
        PooledBytes { bytes: copy, home: Arc::clone(self) }
    }

    /// Returns a copy as [`Self::copy_of`] does, or `None` without memory for it.
    pub fn try_copy_of(self: &Arc<Self>, bytes: &[u8]) -> Option<PooledBytes> {
        let mut copy = self.take(bytes.len());
        copy.clear();
        copy.try_reserve_exact(bytes.len()).ok()?;
        copy.extend_from_slice(bytes);
        Some(PooledBytes { bytes: copy, home: Arc::clone(self) })
    }

    /// Returns `len` bytes that `fill` writes, whose memory comes back when they are dropped.
    pub fn filled(self: &Arc<Self>, len: usize, fill: impl FnOnce(&mut [u8])) -> PooledBytes {
        let mut bytes: Vec<u8> = self.take(len);
        bytes.resize(len, 0);
        fill(&mut bytes);
        PooledBytes { bytes, home: Arc::clone(self) }
    }
}

/// Bytes in a buffer of a pool.
pub struct PooledBytes {
    bytes: Vec<u8>,
    home: Arc<WorkPool>,
}

impl AsRef<[u8]> for PooledBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for PooledBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PooledBytes {
    fn drop(&mut self) {
        self.home.give(std::mem::take(&mut self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_for_the_same_type_and_length() {
        let pool = Arc::new(WorkPool::default());
        let first = pool.copy_of(&[7; 1 << 20]);
        let place = first.as_ref().as_ptr();
        drop(first);
        assert!(pool.take::<u64>(1 << 17).is_empty(), "another type");
        assert!(pool.take::<u8>(100 << 10).is_empty(), "a much shorter one");
        let second = pool.filled(1 << 20, |bytes| bytes[0] = 1);
        assert_eq!((second.as_ref().as_ptr(), second.as_ref()[..2].to_vec()), (place, vec![1, 7]));
        assert!(pool.take::<u8>(1 << 20).is_empty(), "it is in use");
    }

    #[test]
    fn a_pool_keeps_a_bounded_number_of_bytes() {
        let pool = WorkPool::default();
        for _ in 0..40 {
            pool.give(Vec::<f64>::with_capacity(1 << 19));
        }
        pool.give(Vec::<u8>::with_capacity(8));
        let idle = lock(&pool.0);
        let sum: usize = idle.buffers.iter().map(|(_, bytes, _)| bytes).sum();
        assert!(sum == idle.bytes && sum <= POOL_BYTES_MAX && sum > POOL_BYTES_MAX / 2, "{sum}");
    }
}
