//! The work buffer of a plan, and its result.

use super::pool::{POOLED_MIN, WorkPool};
use super::rope::Rope;
use crate::collective::Item;
use oikaze_protocol::collective::Part;
use oikaze_protocol::wind::SharedBytes;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Work buffer of `len` elements.
pub(super) struct Work<T: Item> {
    content: Content<T>,
    pool: Arc<WorkPool>,
}

enum Content<T> {
    /// All elements in one vector.
    Dense(Vec<T>),
    /// Bytes in pieces, for long vectors that are only moved.
    Rope(Rope),
}

/// Bytes of a part.
pub(in crate::collective) enum PartBytes<'a> {
    /// They may change after the step.
    Lent(&'a [u8]),
    /// They stay as they are.
    Shared(SharedBytes),
}

impl Deref for PartBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            PartBytes::Lent(bytes) => bytes,
            PartBytes::Shared(bytes) => bytes,
        }
    }
}

/// Returns the bytes of a part.
fn bytes_of<T>(part: Part) -> Range<usize> {
    let at = |element: usize| element.saturating_mul(size_of::<T>());
    at(part.start)..at(part.start.saturating_add(part.len))
}

impl<T: Item> Work<T> {
    /// Makes an empty buffer.
    pub fn new(pool: Arc<WorkPool>) -> Work<T> {
        Work { content: Content::Dense(Vec::new()), pool }
    }

    /// Makes room for `len` elements, and writes the input of this rank. A buffer that only moves
    /// elements may leave them where they are received.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn fill(
        &mut self,
        len: usize,
        place: Part,
        input: &[T],
        moves: bool,
    ) -> Result<(), String> {
        if moves && len.saturating_mul(size_of::<T>()) >= POOLED_MIN {
            let mut rope = Rope::default();
            let copy = self.pool.copy_of(bytemuck::cast_slice(input));
            rope.insert(bytes_of::<T>(place).start, SharedBytes::new(copy));
            self.content = Content::Rope(rope);
            return Ok(());
        }
        let mut values = self.pool.take::<T>(len);
        if place.start == 0 && place.len == len && input.len() == len {
            values.clear();
            values.extend_from_slice(input);
        } else {
            values
                .try_reserve_exact(len.saturating_sub(values.len()))
                .map_err(|_| format!("there is not enough memory for {len} elements"))?;
            values.resize(len, T::zeroed());
            if let Some(place) = values.get_mut(place.range()) {
                place.iter_mut().zip(input).for_each(|(place, value)| *place = *value);
            }
        }
        self.content = Content::Dense(values);
        Ok(())
    }

    /// Returns the bytes of a part.
    pub fn bytes(&self, part: Part) -> PartBytes<'_> {
        match &self.content {
            Content::Dense(values) => {
                PartBytes::Lent(bytemuck::cast_slice(values.get(part.range()).unwrap_or_default()))
            }
            Content::Rope(rope) => PartBytes::Shared(rope.bytes(bytes_of::<T>(part), &self.pool)),
        }
    }

    /// Replaces a part by bytes that were received.
    pub fn replace(&mut self, part: Part, body: oikaze_engine::Body) {
        match &mut self.content {
            Content::Dense(values) => {
                let Some(here) = values.get_mut(part.range()) else { return };
                let here: &mut [u8] = bytemuck::cast_slice_mut(here);
                if here.len() == body.len() {
                    here.copy_from_slice(&body);
                }
            }
            Content::Rope(rope) => {
                if bytes_of::<T>(part).len() == body.len() {
                    rope.insert(bytes_of::<T>(part).start, SharedBytes::new(body));
                }
            }
        }
    }

    /// Returns all elements, to combine some of them.
    pub fn dense(&mut self) -> &mut [T] {
        match &mut self.content {
            Content::Dense(values) => values,
            // A collective that combines has no rope.
            Content::Rope(_) => &mut [],
        }
    }

    /// Copies a part.
    pub fn copy(&mut self, part: Part, into: usize) {
        match &mut self.content {
            Content::Dense(values) => {
                let fits = |end: Option<usize>| end.is_some_and(|end| end <= values.len());
                if fits(part.start.checked_add(part.len)) && fits(into.checked_add(part.len)) {
                    values.copy_within(part.range(), into);
                }
            }
            Content::Rope(rope) => {
                let bytes = rope.bytes(bytes_of::<T>(part), &self.pool);
                rope.insert(bytes_of::<T>(Part::new(into, 0)).start, bytes);
            }
        }
    }
}

/// Result of a plan: a part of its work buffer.
pub(in crate::collective) struct Output<T: Item> {
    work: Work<T>,
    part: Part,
}

impl<T: Item> Output<T> {
    pub(super) fn new(work: Work<T>, part: Part) -> Output<T> {
        Output { work, part }
    }

    /// Returns the elements in memory of their own.
    pub fn into_vec(self) -> Vec<T> {
        let Output { work, part } = self;
        match work.content {
            Content::Dense(mut values) => {
                if part.start > 0 && part.start + part.len <= values.len() {
                    values.copy_within(part.range(), 0);
                }
                values.truncate(part.len);
                values
            }
            Content::Rope(rope) => {
                let mut values = vec![T::zeroed(); part.len];
                rope.read(bytes_of::<T>(part).start, bytemuck::cast_slice_mut(&mut values));
                values
            }
        }
    }

    /// Returns the number of bytes of the elements.
    #[cfg(feature = "ffi")]
    pub fn byte_len(&self) -> usize {
        bytes_of::<T>(self.part).len()
    }

    /// Copies the elements to bytes. The caller has checked that there are as many.
    #[cfg(feature = "ffi")]
    pub fn copy_to_bytes(self, bytes: &mut [u8]) {
        match self.work.content {
            Content::Dense(all) => {
                let part = all.get(self.part.range()).unwrap_or_default();
                let part: &[u8] = bytemuck::cast_slice(part);
                if part.len() == bytes.len() {
                    bytes.copy_from_slice(part);
                }
                self.work.pool.give(all);
            }
            Content::Rope(rope) => rope.read(bytes_of::<T>(self.part).start, bytes),
        }
    }

    /// Copies the elements to a slice. The caller has checked that it is equally long.
    pub fn copy_to(self, values: &mut [T]) {
        match self.work.content {
            Content::Dense(all) => {
                let part = all.get(self.part.range()).unwrap_or_default();
                values.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
                self.work.pool.give(all);
            }
            Content::Rope(rope) => {
                rope.read(bytes_of::<T>(self.part).start, bytemuck::cast_slice_mut(values));
            }
        }
    }
}
