//! The work buffer of a plan, and its result.

use super::long::{LONG_MIN, LongPart, LongWork, PartSend, RegionPool};
use super::memory::try_room;
use crate::collective::operator::Item;
use crate::error::{Error, Result};
use crate::memory::region::RegionSlice;
use oikaze_engine::ParcelBody;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{ParcelHead, Part, Plan, RoundNumber};
use oikaze_runtime::node::Node;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Work buffer of the bytes of elements, which need not be aligned.
pub(super) struct Work {
    content: Content,
    /// Bytes of an element.
    size: usize,
}

enum Content {
    /// All bytes in one vector.
    Dense(Vec<u8>),
    /// Bytes of long vectors.
    Long(LongWork),
}

/// Bytes of a part.
pub(in crate::collective) enum PartBytes<'a> {
    /// They may change after the step.
    Dense(&'a [u8]),
    /// They stay as they are until the send has ended.
    Long(LongPart),
    /// They are a copy.
    Copied(Vec<u8>),
}

impl Work {
    /// Makes an empty buffer for elements of `size` bytes.
    pub fn new(size: usize) -> Work {
        Work { content: Content::Dense(Vec::new()), size }
    }

    /// Returns the bytes of one element.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Makes a buffer of these bytes for elements of the same size.
    pub fn with(&self, bytes: Vec<u8>) -> Work {
        Work { content: Content::Dense(bytes), size: self.size }
    }

    /// Takes all bytes, if they are in one vector.
    pub fn take_dense(&mut self) -> Vec<u8> {
        match &mut self.content {
            Content::Dense(bytes) => std::mem::take(bytes),
            Content::Long(_) => Vec::new(),
        }
    }

    /// Returns the number of elements of a buffer in one vector.
    pub fn len(&self) -> usize {
        match &self.content {
            Content::Dense(bytes) => bytes.len() / self.size.max(1),
            Content::Long(_) => 0,
        }
    }

    /// Returns the bytes of a part.
    fn range(&self, part: Part) -> Range<usize> {
        let at = |element: usize| element.saturating_mul(self.size);
        at(part.start)..at(part.start.saturating_add(part.len))
    }

    /// Makes room for the plan, and writes the input of this rank.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn fill(
        &mut self,
        plan: &Plan,
        input: &[u8],
        pool: &Arc<RegionPool>,
    ) -> std::result::Result<(), String> {
        let len = plan.len.saturating_mul(self.size);
        let input_range = self.range(plan.input);
        if len >= LONG_MIN
            && let Some(long) = LongWork::new(pool, len)
        {
            long.write(input_range.start, input);
            self.content = Content::Long(long);
            return Ok(());
        }
        let mut bytes = try_room(len)?;
        if input_range == (0..len) && input.len() == len {
            bytes.extend_from_slice(input);
        } else {
            bytes.resize(len, 0);
            if let Some(place) = bytes.get_mut(input_range) {
                place.iter_mut().zip(input).for_each(|(place, byte)| *place = *byte);
            }
        }
        self.content = Content::Dense(bytes);
        Ok(())
    }

    /// Works in memory that the caller lends, which has the input of this rank.
    pub fn lend(&mut self, pool: &Arc<RegionPool>, areas: Vec<(usize, RegionSlice)>) {
        self.content = Content::Long(LongWork::lent(pool, areas));
    }

    /// Returns the long buffer, if it is one.
    pub fn long(&mut self) -> Option<&mut LongWork> {
        match &mut self.content {
            Content::Dense(_) => None,
            Content::Long(long) => Some(long),
        }
    }

    /// Returns the bytes of a part.
    pub fn bytes(&self, part: Part) -> PartBytes<'_> {
        let range = self.range(part);
        match &self.content {
            Content::Dense(all) => PartBytes::Dense(all.get(range).unwrap_or_default()),
            Content::Long(long) => match long.part(&range).filter(|_| range.len() >= LONG_MIN) {
                Some(part) => PartBytes::Long(part),
                None => {
                    let mut bytes = vec![0; range.len()];
                    long.read(range.start, &mut bytes);
                    PartBytes::Copied(bytes)
                }
            },
        }
    }

    /// Returns `true` if memory of the caller can go back.
    pub fn may_end(&mut self) -> bool {
        self.long().is_none_or(|long| long.may_end())
    }

    /// Notes that a part is being sent.
    pub fn sending(&mut self, part: Part, send: PartSend) {
        let range = self.range(part);
        if let Some(long) = self.long() {
            long.sending(range, send);
        }
    }

    /// Returns `true` if a part may change, by what a rank sends in this round or by itself.
    pub fn is_free(&mut self, part: Part, by: Option<(Rank, RoundNumber)>) -> bool {
        let range = self.range(part);
        self.long().is_none_or(|long| long.is_free(&range, by))
    }

    /// Awaits no parcels any more but those of the rounds that `is_left` selects.
    pub fn await_only(&mut self, is_left: impl Fn(RoundNumber) -> bool) {
        if let Some(long) = self.long() {
            long.await_only(is_left);
        }
    }

    /// Makes a parcel arrive in a part, if the part is long.
    pub fn expect(&mut self, node: &Node, from: Rank, head: ParcelHead, part: Part) {
        let range = self.range(part);
        if let Some(long) = self.long().filter(|_| range.len() >= LONG_MIN) {
            long.expect(node, from, head, &range);
        }
    }

    /// Replaces a part by what was received in a round.
    pub fn replace(&mut self, part: Part, round: RoundNumber, body: &ParcelBody) {
        let range = self.range(part);
        match (&mut self.content, body) {
            (Content::Dense(all), ParcelBody::Bytes(body)) => {
                if let Some(here) = all.get_mut(range).filter(|here| here.len() == body.len()) {
                    here.copy_from_slice(body);
                }
            }
            (Content::Long(long), body) => {
                long.came(&range, round, matches!(body, ParcelBody::Placed(_)));
                if let ParcelBody::Bytes(body) = body {
                    long.write(range.start, body);
                }
            }
            _ => {}
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
            Content::Long(long) => long.change(range, self.size, |here, at| {
                with(here, new.get(at..at + here.len()).unwrap_or_default());
            }),
        }
    }

    /// Combines one part into another. The plan keeps the two apart.
    pub fn combine_parts(&mut self, new: Part, into: Part, with: impl Fn(&mut [u8], &[u8])) {
        let (from, to) = (self.range(new), self.range(into));
        match &mut self.content {
            Content::Dense(all) => {
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
            }
            Content::Long(long) => {
                let mut new = Vec::new();
                long.change(to, self.size, |here, at| {
                    new.resize(here.len(), 0);
                    long.read(from.start + at, &mut new);
                    with(here, &new);
                });
            }
        }
    }

    /// Copies a part.
    pub fn copy(&mut self, part: Part, into: usize) {
        let (from, into) = (self.range(part), self.range(Part::new(into, part.len)));
        match &mut self.content {
            Content::Dense(all) => {
                if [from.end, into.end].iter().all(|end| *end <= all.len()) {
                    all.copy_within(from, into.start);
                }
            }
            Content::Long(long) => {
                long.copy(from, into.start);
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
        let mut work = Work::new(size_of::<T>());
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
            Content::Long(long) => long.read(from, bytes),
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
