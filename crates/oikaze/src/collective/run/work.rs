//! The work buffer of a plan, and its result.

use super::rope::Rope;
use crate::collective::operator::Item;
use crate::error::{Error, Result};
use oikaze_protocol::collective::{Part, Plan};
use oikaze_protocol::wind::SharedBytes;
use oikaze_runtime::node::{POOLED_MIN, WorkPool};
use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Work buffer of the bytes of elements, which need not be aligned.
pub(super) struct Work {
    content: Content,
    /// Bytes of an element.
    size: usize,
    pool: Arc<WorkPool>,
}

enum Content {
    /// All bytes in one vector.
    Dense(Vec<u8>),
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

impl Work {
    /// Makes an empty buffer for elements of `size` bytes.
    pub fn new(size: usize, pool: Arc<WorkPool>) -> Work {
        Work { content: Content::Dense(Vec::new()), size, pool }
    }

    /// Returns the bytes of one element.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Makes a buffer of these bytes for elements of the same size.
    pub fn with(&self, bytes: Vec<u8>) -> Work {
        Work { content: Content::Dense(bytes), size: self.size, pool: Arc::clone(&self.pool) }
    }

    /// Returns all bytes, if they are in one vector.
    pub fn dense(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Dense(bytes) => Some(bytes),
            Content::Rope(_) => None,
        }
    }

    /// Takes all bytes, if they are in one vector.
    pub fn take_dense(&mut self) -> Vec<u8> {
        match &mut self.content {
            Content::Dense(bytes) => std::mem::take(bytes),
            Content::Rope(_) => Vec::new(),
        }
    }

    /// Returns the number of elements of a buffer in one vector.
    pub fn len(&self) -> usize {
        self.dense().map_or(0, |bytes| bytes.len() / self.size.max(1))
    }

    /// Returns the bytes of a part.
    fn range(&self, part: Part) -> Range<usize> {
        let at = |element: usize| element.saturating_mul(self.size);
        at(part.start)..at(part.start.saturating_add(part.len))
    }

    /// Makes room for the plan, and writes the input of this rank. A long buffer is cut where the
    /// plan's parts begin, so that each part can be sent without a copy.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn fill(&mut self, plan: &Plan, input: &[u8]) -> std::result::Result<(), String> {
        let len = plan.len.saturating_mul(self.size);
        if len >= POOLED_MIN {
            self.content = Content::Rope(self.rope_of(plan, input)?);
            return Ok(());
        }
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact(len)
            .map_err(|_| format!("there is not enough memory for {} elements", plan.len))?;
        if self.range(plan.input) == (0..len) && input.len() == len {
            bytes.extend_from_slice(input);
        } else {
            bytes.resize(len, 0);
            if let Some(place) = bytes.get_mut(self.range(plan.input)) {
                place.iter_mut().zip(input).for_each(|(place, byte)| *place = *byte);
            }
        }
        self.content = Content::Dense(bytes);
        Ok(())
    }

    fn rope_of(&self, plan: &Plan, input: &[u8]) -> std::result::Result<Rope, String> {
        let mut rope = Rope::default();
        let place = self.range(plan.input);
        let ends = |part: Part| [self.range(part).start, self.range(part).end];
        let mut cuts: Vec<usize> = plan.parts().flat_map(ends).collect();
        cuts.extend([place.start, place.end]);
        cuts.retain(|cut| place.start <= *cut && *cut <= place.end);
        cuts.sort_unstable();
        cuts.dedup();
        for (start, end) in cuts.iter().zip(cuts.iter().skip(1)) {
            let part = input.get(start - place.start..end - place.start).unwrap_or_default();
            let bytes = self.pool.try_copy_of(part);
            let bytes =
                bytes.ok_or_else(|| format!("there is not enough memory for {} bytes", part.len()));
            rope.insert_own(*start, bytes?);
        }
        Ok(rope)
    }

    /// Returns the bytes of a part.
    pub fn bytes(&mut self, part: Part) -> PartBytes<'_> {
        let range = self.range(part);
        match &mut self.content {
            Content::Dense(all) => PartBytes::Lent(all.get(range).unwrap_or_default()),
            Content::Rope(rope) => PartBytes::Shared(rope.bytes(range, &self.pool)),
        }
    }

    /// Replaces a part by bytes that were received.
    pub fn replace(&mut self, part: Part, body: oikaze_engine::Body) {
        let range = self.range(part);
        if range.len() != body.len() {
            return;
        }
        match &mut self.content {
            Content::Dense(all) => {
                if let Some(here) = all.get_mut(range) {
                    here.copy_from_slice(&body);
                }
            }
            Content::Rope(rope) => rope.insert(range.start, SharedBytes::new(body)),
        }
    }

    /// Combines bytes that were received into a part.
    pub fn combine(&mut self, part: Part, new: &[u8], with: impl Fn(&mut [u8], &[u8])) {
        let range = self.range(part);
        match &mut self.content {
            Content::Dense(all) => {
                if let Some(here) = all.get_mut(range) {
                    with(here, new);
                }
            }
            Content::Rope(rope) => rope.change(range, &self.pool, |here, at| {
                with(here, new.get(at..at + here.len()).unwrap_or_default());
            }),
        }
    }

    /// Combines one part into another. The plan keeps the two apart.
    pub fn combine_parts(&mut self, new: Part, into: Part, with: impl Fn(&mut [u8], &[u8])) {
        let (from, to) = (self.range(new), self.range(into));
        if let Content::Dense(all) = &mut self.content {
            let middle = from.start.max(to.start);
            let Some((low, high)) = all.split_at_mut_checked(middle) else { return };
            let (here, new) = if to.start < from.start {
                (low.get_mut(to), high.get(..from.len()))
            } else {
                (high.get_mut(..to.len()), low.get(from))
            };
            if let (Some(here), Some(new)) = (here, new) {
                with(here, new);
            }
            return;
        }
        if let PartBytes::Shared(new) = self.bytes(new) {
            self.combine(into, &new, with);
        }
    }

    /// Copies a part.
    pub fn copy(&mut self, part: Part, into: usize) {
        let (from, into) = (self.range(part), self.range(Part::new(into, 0)).start);
        match &mut self.content {
            Content::Dense(all) => {
                let ends = [Some(from.end), into.checked_add(from.len())];
                if ends.iter().all(|end| end.is_some_and(|end| end <= all.len())) {
                    all.copy_within(from, into);
                }
            }
            Content::Rope(rope) => {
                let bytes = rope.bytes(from, &self.pool);
                rope.insert(into, bytes);
            }
        }
    }
}

/// Result of a collective, over bytes: elements, or vectors of elements.
///
/// ```
/// use oikaze::ffi::{CollectiveKind, ElementKind, Untyped, UntypedResult};
/// # fn main() -> oikaze::Result<()> {
/// let job = oikaze::join()?;
/// let bytes = Untyped::of(&job, ElementKind::U8);
/// let all: UntypedResult =
///     bytes.even(CollectiveKind::AllGather, 0, &[job.rank() as u8], None).wait()?;
/// let mut ranks = vec![0; all.len()];
/// all.copy_to(&mut ranks)?;
/// assert_eq!(ranks.len(), job.size() as usize);
/// # Ok(())
/// # }
/// ```
pub struct UntypedResult {
    work: Work,
    /// Part of the work buffer that has the result.
    part: Part,
    /// Numbers of elements of the vectors that the result consists of, if it is not one.
    lens: Option<Vec<usize>>,
}

impl UntypedResult {
    pub(super) fn new(work: Work, part: Part, lens: Option<Vec<usize>>) -> Self {
        Self { work, part, lens }
    }

    /// Makes a result of some elements.
    pub(super) fn of<T: Item>(values: &[T]) -> Self {
        let mut work = Work::new(size_of::<T>(), Arc::default());
        work.content = Content::Dense(bytemuck::cast_slice(values).to_vec());
        Self::new(work, Part::new(0, values.len()), None)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.work.range(self.part).len()
    }

    /// Returns `true` if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes.
    ///
    /// # Errors
    /// The destination has another length.
    pub fn copy_to(self, bytes: &mut [u8]) -> Result<()> {
        let len = self.len();
        if bytes.len() != len {
            let why = format!("{len} bytes have come, and there is room for {}", bytes.len());
            return Err(Error::invalid("take the result of a collective", why));
        }
        self.read(0, bytes);
        Ok(())
    }

    /// Copies the bytes from `at` on. Bytes beyond the result become 0.
    fn read(&self, at: usize, bytes: &mut [u8]) {
        let from = self.work.range(self.part).start.saturating_add(at);
        match &self.work.content {
            Content::Dense(all) => match all.get(from..from.saturating_add(bytes.len())) {
                Some(part) => bytes.copy_from_slice(part),
                None => bytes.fill(0),
            },
            Content::Rope(rope) => rope.read(from, bytes),
        }
    }

    /// Returns the bytes in memory of their own.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        self.elements(0, self.len())
    }

    /// Returns `true` if the result consists of vectors whose lengths may differ.
    #[must_use]
    pub fn has_vectors(&self) -> bool {
        self.lens.is_some()
    }

    /// Returns the bytes of each vector, or of the one that the result is.
    #[must_use]
    pub fn into_vectors(self) -> Vec<Vec<u8>> {
        self.cut(|len| len.saturating_mul(self.work.size))
    }

    /// Returns the elements, which are of the type that the collective had.
    pub(in crate::collective) fn into_elements<T: Item>(self) -> Vec<T> {
        self.elements(0, self.part.len)
    }

    /// Returns each vector of elements, which are of the type that the collective had.
    pub(in crate::collective) fn into_vectors_of<T: Item>(self) -> Vec<Vec<T>> {
        self.cut(|len| len)
    }

    fn elements<T: Item>(&self, at: usize, len: usize) -> Vec<T> {
        let mut values = vec![T::zeroed(); len];
        self.read(at, bytemuck::cast_slice_mut(&mut values));
        values
    }

    /// Cuts the result into vectors. `count` returns the number of items of some elements.
    fn cut<T: Item>(&self, count: impl Fn(usize) -> usize) -> Vec<Vec<T>> {
        let mut at = 0;
        let next = |len: &usize| {
            let vector = self.elements(at, count(*len));
            at += len.saturating_mul(self.work.size);
            vector
        };
        self.lens.as_deref().unwrap_or(&[self.part.len]).iter().map(next).collect()
    }
}

impl fmt::Debug for UntypedResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UntypedResult").field("len", &self.len()).finish_non_exhaustive()
    }
}
