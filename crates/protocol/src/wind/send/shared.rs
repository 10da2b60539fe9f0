//! Bytes that several messages send without a copy.

use alloc::sync::Arc;
use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::{Deref, Range};

/// Bytes that do not change while any message or reader uses them. Clones and slices are of the
/// same memory, which its owner frees when the last of them is gone.
///
/// ```
/// use oikaze_protocol::wind::SharedBytes;
/// let all = SharedBytes::new(vec![1_u8, 2, 3, 4]);
/// let end = all.slice(2..4);
/// assert_eq!((&end[..], end.as_ptr()), (&[3, 4][..], all[2..].as_ptr()));
/// assert!(all.slice(2..9).is_empty(), "no bytes beyond the end");
/// ```
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    start: usize,
    len: usize,
}

impl SharedBytes {
    /// Shares all bytes of an owner.
    pub fn new(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> SharedBytes {
        let len = owner.as_ref().len();
        SharedBytes { owner: Arc::new(owner), start: 0, len }
    }

    /// Returns a part of these bytes, or no bytes if the range is not inside.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> SharedBytes {
        let is_inside = range.start <= range.end && range.end <= self.len;
        let (start, len) = if is_inside { (range.start, range.len()) } else { (0, 0) };
        SharedBytes { owner: Arc::clone(&self.owner), start: self.start + start, len }
    }
}

impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all = (*self.owner).as_ref();
        all.get(self.start..self.start + self.len).unwrap_or_default()
    }
}

impl PartialEq for SharedBytes {
    fn eq(&self, other: &SharedBytes) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl Hash for SharedBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedBytes").field(&self.len).finish()
    }
}
