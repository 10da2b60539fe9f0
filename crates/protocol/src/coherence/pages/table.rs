//! All shared arrays of this node, and the end of their lives (COH-14).

use crate::coherence::Coherence;
use crate::coherence::array::Array;
use crate::coherence::machine::{ArrayId, Pages};
use crate::coherence::number_set::NumberSet;
use crate::coherence::statistics::ArrayStatistics;
use crate::wind::Refusal;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Arrays by number. A number is used once in a job.
#[derive(Debug, Default)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Arrays {
    /// Number of the next declaration.
    next: ArrayId,
    known: BTreeMap<ArrayId, Array>,
    /// Arrays that this node has dropped and that are not freed.
    dropped: NumberSet,
    /// Freed arrays whose memory messages of this node may still read.
    ending: Vec<ArrayId>,
    /// Slots of aliases that the engine can remove.
    unused: Vec<u32>,
    /// Sums of the counters of freed arrays by name. Those for which there is no room have the
    /// empty name.
    counted: BTreeMap<String, ArrayStatistics>,
}

/// Maximum number of names of freed arrays whose counters are kept apart.
const FREED_NAMES_MAX: usize = 64;

/// Leaves out the counters.
#[cfg(test)]
impl core::hash::Hash for Arrays {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        let Arrays { next, known, dropped, ending, unused, counted: _ } = self;
        (next, known, dropped, ending, unused).hash(state);
    }
}

impl Arrays {
    /// Returns the number of the next declaration.
    pub fn next(&self) -> ArrayId {
        self.next
    }

    /// Uses up the next number. There is no array of that number unless one is given.
    pub fn add(&mut self, array: Option<Array>) -> ArrayId {
        let number = self.next;
        // 2³² declarations take weeks.
        self.next = self.next.saturating_add(1);
        if let Some(array) = array {
            self.known.insert(number, array);
        }
        number
    }

    /// Uses up all numbers below this one.
    pub fn skip(&mut self, next: ArrayId) {
        self.next = self.next.max(next);
    }

    pub fn get(&self, number: ArrayId) -> Option<&Array> {
        self.known.get(&number)
    }

    pub fn get_mut(&mut self, number: ArrayId) -> Option<&mut Array> {
        self.known.get_mut(&number)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ArrayId, &mut Array)> {
        self.known.iter_mut().map(|(number, array)| (*number, array))
    }

    /// Returns `true` if an array that this node has not dropped has the name.
    pub fn has_name(&self, name: &str, except: Option<ArrayId>) -> bool {
        let is_meant =
            |number: ArrayId| Some(number) != except && !self.dropped.contains(u64::from(number));
        self.known.iter().any(|(number, array)| array.name == name && is_meant(*number))
    }

    /// Returns `true` if the number was declared, and its array was freed or not agreed on.
    pub fn is_over(&self, number: ArrayId) -> bool {
        number < self.next && !self.known.contains_key(&number)
    }

    /// Adds the counters of an array that ends to those of its name.
    fn keep_counters(&mut self, array: ArrayId) {
        let Some(ended) = self.known.get(&array) else { return };
        let has_room =
            self.counted.contains_key(&ended.name) || self.counted.len() < FREED_NAMES_MAX;
        let name = if has_room { ended.name.clone() } else { String::new() };
        let counted = self.counted.entry(name).or_default();
        let (sums, more) = (counted.values(), ended.statistics.values());
        *counted = ArrayStatistics::from_values(core::array::from_fn(|at| {
            let (sum, more) = (sums.get(at), more.get(at));
            sum.copied().unwrap_or(0).saturating_add(more.copied().unwrap_or(0))
        }));
    }

    /// Checks that these pages exist. Pages of a freed array do, because a message that names them
    /// may be old (COH-14.4).
    pub fn check(&self, number: ArrayId, first: u64, count: u64) -> Result<(), Refusal> {
        match self.get(number) {
            Some(array) if array.contains(first, count) => Ok(()),
            Some(_) => Err(Refusal::OutOfBounds),
            None if self.is_over(number) => Ok(()),
            None => Err(Refusal::UnknownObject),
        }
    }
}

impl Coherence {
    /// Tells that no thread of this node will use the array any more. It is freed at a collective
    /// before which all nodes have dropped it (COH-14.1).
    pub fn drop_array(&mut self, array: ArrayId) {
        if self.arrays.get(array).is_some() {
            self.arrays.dropped.insert(u64::from(array)..u64::from(array) + 1);
            self.fetches.prefetches.retain(|(other, _)| *other != array);
        }
    }

    /// Returns the dropped arrays of which no page is on its way to this node (COH-14.2).
    pub(crate) fn arrays_to_free(&self) -> NumberSet {
        let mut dropped = self.arrays.dropped.clone();
        for run in self.fetches.runs.values() {
            let number = u64::from(run.pages.array);
            dropped.remove(number..number + 1);
        }
        for array in self.targets.arrays().map(u64::from) {
            dropped.remove(array..array + 1);
        }
        dropped
    }

    /// Returns `true` if pages of the array are on their way to this node.
    pub(crate) fn is_fetching(&self, array: ArrayId) -> bool {
        self.fetches.runs.values().any(|run| run.pages.array == array)
            || self.targets.arrays().any(|other| other == array)
    }

    /// Removes all state of an array. No node uses it any more, or not all nodes have declared it
    /// alike.
    pub(crate) fn remove_array(&mut self, array: ArrayId) -> Option<u32> {
        self.arrays.known.remove(&array);
        self.arrays.dropped.remove(u64::from(array)..u64::from(array) + 1);
        let is_other = |other: ArrayId| other != array;
        self.dirty.retain(|id| is_other(id.0));
        self.guards.forget(array);
        self.releases.forget(array);
        self.updates.forget(array);
        self.fetches.prefetches.retain(|(other, _)| is_other(*other));
        self.touches.retain(|touch| is_other(touch.array));
        self.regions.remove(&array)
    }

    /// Frees arrays that all nodes have dropped (COH-14.3).
    pub(crate) fn free_arrays(&mut self, freed: &NumberSet) {
        let numbers = freed.iter().flatten().filter_map(|number| ArrayId::try_from(number).ok());
        for array in numbers.collect::<Vec<_>>() {
            if self.arrays.get(array).is_none() {
                continue;
            }
            self.statistics.arrays_freed += 1;
            self.arrays.keep_counters(array);
            if let Some(slot) = self.remove_array(array) {
                self.arrays.unused.push(slot);
            }
            self.arrays.ending.push(array);
        }
    }

    /// Gives back the memory of freed arrays that no message of this node reads any more.
    pub(crate) fn end_arrays(&mut self, pages: &mut dyn Pages) {
        if self.arrays.ending.is_empty() {
            return;
        }
        let posted = &self.posted;
        let mut over: Vec<ArrayId> = Vec::new();
        self.arrays.ending.retain(|array| {
            let is_read = posted.values().any(|posted| posted.purpose.reads() == Some(*array));
            if !is_read {
                over.push(*array);
            }
            is_read
        });
        over.into_iter().for_each(|array| pages.free(array));
    }

    /// Iterates over the arrays that are not freed: number, name and counters of each.
    pub fn arrays(&self) -> impl Iterator<Item = (ArrayId, &str, &ArrayStatistics)> {
        let arrays = self.arrays.known.iter();
        arrays.map(|(number, array)| (*number, array.name.as_str(), &array.statistics))
    }

    /// Iterates over the counters of freed arrays: the name, and the sum of the counters of all
    /// freed arrays of that name. Those that are not kept apart have the empty name.
    pub fn freed_arrays(&self) -> impl Iterator<Item = (&str, &ArrayStatistics)> {
        self.arrays.counted.iter().map(|(name, counters)| (name.as_str(), counters))
    }

    /// Returns the slot of an alias that is not needed any more. The engine removes it.
    pub fn poll_unused_region(&mut self) -> Option<u32> {
        // A retransmission may read any alias until the messages of the ending arrays are settled.
        if self.arrays.ending.is_empty() { self.arrays.unused.pop() } else { None }
    }
}
