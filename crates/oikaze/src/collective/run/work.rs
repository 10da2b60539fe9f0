//! The work buffer of a plan, and its result.

use super::rope::Rope;
use crate::collective::operator::Item;
use oikaze_protocol::collective::{Part, Plan};
use oikaze_protocol::wind::SharedBytes;
use oikaze_runtime::node::{POOLED_MIN, WorkPool};
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
    /// Bytes in pieces, for long vectors.
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

    /// Makes room for the plan, and writes the input of this rank. A long buffer is cut where the
    /// plan's parts begin, so that each part can be sent without a copy.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn fill(&mut self, plan: &Plan, input: &[T]) -> Result<(), String> {
        let (len, place) = (plan.len, plan.input);
        if len.saturating_mul(size_of::<T>()) >= POOLED_MIN {
            self.content = Content::Rope(self.rope_of(plan, input)?);
            return Ok(());
        }
        let mut values = Vec::new();
        if place.start == 0 && place.len == len && input.len() == len {
            values.extend_from_slice(input);
        } else {
            values
                .try_reserve_exact(len)
                .map_err(|_| format!("there is not enough memory for {len} elements"))?;
            values.resize(len, T::zeroed());
            if let Some(place) = values.get_mut(place.range()) {
                place.iter_mut().zip(input).for_each(|(place, value)| *place = *value);
            }
        }
        self.content = Content::Dense(values);
        Ok(())
    }

    fn rope_of(&self, plan: &Plan, input: &[T]) -> Result<Rope, String> {
        let mut rope = Rope::default();
        let place = plan.input.range();
        let mut cuts: Vec<usize> =
            plan.parts().flat_map(|part| [part.start, part.start + part.len]).collect();
        cuts.extend([place.start, place.end]);
        cuts.retain(|cut| place.start <= *cut && *cut <= place.end);
        cuts.sort_unstable();
        cuts.dedup();
        for (start, end) in cuts.iter().zip(cuts.iter().skip(1)) {
            let part = input.get(start - place.start..end - place.start).unwrap_or_default();
            let part: &[u8] = bytemuck::cast_slice(part);
            let bytes = self.pool.try_copy_of(part);
            let bytes =
                bytes.ok_or_else(|| format!("there is not enough memory for {} bytes", part.len()));
            rope.insert_own(start * size_of::<T>(), bytes?);
        }
        Ok(rope)
    }

    /// Returns the bytes of a part.
    pub fn bytes(&mut self, part: Part) -> PartBytes<'_> {
        match &mut self.content {
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

    /// Combines bytes that were received into a part.
    pub fn combine(&mut self, part: Part, new: &[u8], mut with: impl FnMut(&mut [T], &[u8])) {
        match &mut self.content {
            Content::Dense(values) => {
                if let Some(here) = values.get_mut(part.range()) {
                    with(here, new);
                }
            }
            Content::Rope(rope) => rope.change(bytes_of::<T>(part), &self.pool, |here, at| {
                let new = new.get(at..at + here.len()).unwrap_or_default();
                match bytemuck::try_cast_slice_mut(here) {
                    Ok(here) => with(here, new),
                    Err(_) => {
                        // A received part need not be aligned.
                        let mut aligned = vec![T::zeroed(); here.len() / size_of::<T>()];
                        bytemuck::cast_slice_mut(&mut aligned).copy_from_slice(here);
                        with(&mut aligned, new);
                        here.copy_from_slice(bytemuck::cast_slice(&aligned));
                    }
                }
            }),
        }
    }

    /// Combines one part into another. The plan keeps the two apart.
    pub fn combine_parts(&mut self, new: Part, into: Part, mut with: impl FnMut(&mut [T], &[u8])) {
        if let Content::Dense(values) = &mut self.content {
            let middle = new.start.max(into.start);
            let Some((low, high)) = values.split_at_mut_checked(middle) else { return };
            let (here, new) = if into.start < new.start {
                (low.get_mut(into.range()), high.get(..new.len))
            } else {
                (high.get_mut(..new.len), low.get(new.range()))
            };
            if let (Some(here), Some(new)) = (here, new) {
                with(here, bytemuck::cast_slice(new));
            }
            return;
        }
        if let PartBytes::Shared(new) = self.bytes(new) {
            self.combine(into, &new, with);
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
    pub fn byte_len(&self) -> usize {
        bytes_of::<T>(self.part).len()
    }

    /// Copies the elements to bytes. The caller has checked that there are as many.
    pub fn copy_to_bytes(self, bytes: &mut [u8]) {
        match self.work.content {
            Content::Dense(all) => {
                let part = all.get(self.part.range()).unwrap_or_default();
                let part: &[u8] = bytemuck::cast_slice(part);
                if part.len() == bytes.len() {
                    bytes.copy_from_slice(part);
                }
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
            }
            Content::Rope(rope) => {
                rope.read(bytes_of::<T>(self.part).start, bytemuck::cast_slice_mut(values));
            }
        }
    }
}
