//! Bodies of messages at the target: their length, their bytes, and the place of a part.

use crate::wind::Delivered;
use alloc::vec::Vec;

/// Returns the place of `bytes`, which begin at `start` of a transfer of `len` bytes at `offset`.
/// Returns `None` if they reach beyond its end.
pub(crate) fn within(offset: u64, len: u64, start: u64, bytes: &[u8]) -> Option<u64> {
    let end = start.checked_add(bytes.len() as u64)?;
    (end <= len).then(|| offset.checked_add(start)).flatten()
}

/// Returns the length of a body in bytes.
pub(crate) fn length(body: &Delivered<'_>) -> u64 {
    match body {
        Delivered::Placed(len) => *len,
        Delivered::Bytes(bytes) => bytes.len() as u64,
        Delivered::Owned(bytes) => bytes.len() as u64,
    }
}

/// Returns the bytes, unless they are already at their place.
pub(crate) fn bytes_of<'a>(body: &'a Delivered<'_>) -> Option<&'a [u8]> {
    match body {
        Delivered::Bytes(bytes) => Some(bytes),
        Delivered::Owned(bytes) => Some(Vec::as_slice(bytes)),
        Delivered::Placed(_) => None,
    }
}
