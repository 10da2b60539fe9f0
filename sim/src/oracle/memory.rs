//! Checks regions: the content of every node's memory, and that each atomic took place exactly once
//! (spec/memory.md).

use crate::program::layout::ONES;
use crate::random::{bytes_of, mix};
use crate::violation::Check;
use oikaze_os::memory::Region;
use oikaze_protocol::Rank;
use std::collections::{BTreeMap, BTreeSet};

/// A word that only atomics change, in a node's region of words.
#[derive(Clone, Debug, Default)]
pub struct Word {
    /// Number of atomics that were requested.
    pub asked: u64,
    /// Atomics that were answered or acknowledged.
    pub done: u64,
    /// Sum of the added values.
    pub sum: u64,
    /// Old values that came back (for words to which only 1 is added).
    pub olds: BTreeSet<u64>,
    /// For words whose values are exchanged: the value that replaced each value.
    pub successors: BTreeMap<u64, u64>,
    /// Values that a thread tried to put there.
    pub tried: BTreeSet<u64>,
}

/// A put with a signal in flight. A thread that sees the signal must see the data.
#[derive(Clone, Debug)]
pub struct Watch {
    /// Offset of the signal's word.
    pub word: u64,
    /// Value of the word after the signal.
    pub raised: u64,
    /// Offset of the data in the arena.
    pub offset: u64,
    /// Bytes of the data.
    pub bytes: Vec<u8>,
}

/// Regions of one node, as the simulator sees them.
#[derive(Clone, Debug)]
pub struct NodeMemory {
    /// Region that is never written.
    pub fixed: Region,
    /// Region that puts write.
    pub arena: Region,
    /// Region that atomics and signals change.
    pub words: Region,
}

/// All regions of a run.
#[derive(Debug)]
pub struct MemoryOracle {
    seed: u64,
    nodes: BTreeMap<Rank, NodeMemory>,
    words: BTreeMap<(Rank, u64), Word>,
    watches: BTreeMap<(Rank, u64), Watch>,
    unique: u64,
}

impl MemoryOracle {
    pub(super) fn new(seed: u64) -> MemoryOracle {
        MemoryOracle {
            seed,
            nodes: BTreeMap::new(),
            words: BTreeMap::new(),
            watches: BTreeMap::new(),
            unique: 0,
        }
    }

    /// Returns the content of a node's fixed region.
    #[must_use]
    pub fn fixed(&self, node: Rank, len: usize) -> Vec<u8> {
        bytes_of(mix(self.seed) ^ u64::from(node), len)
    }

    /// Adds the regions of a node.
    pub fn add_node(&mut self, node: Rank, memory: NodeMemory) {
        self.nodes.insert(node, memory);
    }

    /// Returns a value that is used only once.
    pub fn unique(&mut self) -> u64 {
        self.unique += 1;
        mix(self.seed ^ self.unique) | 1
    }

    /// Returns `true` if pages of a node's arena may be absent.
    #[must_use]
    pub fn may_be_absent(&self, node: Rank) -> bool {
        self.nodes.get(&node).is_some_and(|memory| memory.arena.may_be_absent())
    }

    /// Returns bytes of a node's arena now.
    #[must_use]
    pub fn arena(&self, node: Rank, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        if let Some(memory) = self.nodes.get(&node) {
            let _ = memory.arena.read(offset, &mut bytes);
        }
        bytes
    }

    /// Checks that these bytes are in a node's arena now.
    ///
    /// # Errors
    /// The arena has other bytes.
    pub fn holds(&self, what: &str, node: Rank, offset: u64, bytes: &[u8]) -> Check {
        let found = self.arena(node, offset, bytes.len());
        match found.iter().zip(bytes).position(|(found, wanted)| found != wanted) {
            None => Ok(()),
            Some(at) => Err(format!(
                "{what}: {} bytes at {offset} of node {node}'s arena differ from byte {at} on: {:02x?} instead of {:02x?}",
                bytes.len(),
                &found[at..(at + 8).min(found.len())],
                &bytes[at..(at + 8).min(bytes.len())]
            )),
        }
    }

    /// Returns the knowledge about a word.
    pub fn word(&mut self, node: Rank, offset: u64) -> &mut Word {
        self.words.entry((node, offset)).or_default()
    }

    /// Returns a word's value now.
    #[must_use]
    pub fn value(&self, node: Rank, offset: u64) -> u64 {
        self.nodes.get(&node).and_then(|memory| memory.words.load_u64(offset).ok()).unwrap_or(0)
    }

    /// Watches a put with signal from now on.
    pub fn watch(&mut self, node: Rank, watch: Watch) {
        self.watches.insert((node, watch.word), watch);
    }

    /// Ends the watch of a settled put, whose signal must have been given exactly once.
    ///
    /// # Errors
    /// The signal was not given, or was given more often, or the data is missing.
    pub fn unwatch(&mut self, node: Rank, word: u64) -> Check {
        let Some(watch) = self.watches.remove(&(node, word)) else { return Ok(()) };
        let value = self.value(node, word);
        if value != watch.raised {
            return Err(format!(
                "a put with signal is settled, but its word {word} at node {node} is {value}, not {}",
                watch.raised
            ));
        }
        self.holds("settled put with signal", node, watch.offset, &watch.bytes)
    }

    /// Checks for each signal given at this node that its data is there.
    ///
    /// # Errors
    /// A signal came before its data.
    pub fn check_signals(&self, node: Rank) -> Check {
        for watch in self.watches.range((node, 0)..=(node, u64::MAX)).map(|(_, watch)| watch) {
            if self.value(node, watch.word) == watch.raised {
                self.holds(
                    "a signal was given before its data was there",
                    node,
                    watch.offset,
                    &watch.bytes,
                )?;
            }
        }
        Ok(())
    }

    /// Checks the words to which operations only add 1. Whichever node died, the sum is at least
    /// the number of confirmed additions and at most the number of requested ones.
    ///
    /// # Errors
    /// A word has more or fewer additions.
    pub fn check_counts(&self) -> Check {
        for ((node, offset), word) in
            self.words.iter().filter(|((_, offset), _)| *offset < ONES * 8)
        {
            let value = self.value(*node, *offset);
            if value < word.done || value > word.asked {
                return Err(format!(
                    "word {offset} of node {node} is {value} after 1 was added {} times, {} of them confirmed",
                    word.asked, word.done
                ));
            }
        }
        Ok(())
    }

    /// Returns how often 1 was certainly added to such words.
    #[must_use]
    pub fn counted(&self) -> u64 {
        self.words
            .iter()
            .filter(|((_, offset), _)| *offset < ONES * 8)
            .map(|(_, word)| word.done)
            .sum()
    }

    /// Checks that each word holds the value that the atomics on it leave.
    ///
    /// # Errors
    /// A word holds another value.
    pub fn check_words(&self) -> Check {
        for ((node, offset), word) in &self.words {
            let value = self.value(*node, *offset);
            if word.tried.is_empty() {
                if value != word.sum {
                    return Err(format!(
                        "word {offset} of node {node} is {value} after additions that sum up to {}",
                        word.sum
                    ));
                }
                continue;
            }
            let (mut last, mut steps) = (0, 0);
            while let Some(&next) = word.successors.get(&last) {
                (last, steps) = (next, steps + 1);
            }
            if steps != word.successors.len() || value != last {
                return Err(format!(
                    "word {offset} of node {node} is {value}; its exchanges lead to {last} in {steps} of {} steps",
                    word.successors.len()
                ));
            }
        }
        Ok(())
    }

    /// Checks that the fixed regions are unchanged.
    ///
    /// # Errors
    /// A region has changed.
    pub fn check_fixed(&self, len: usize) -> Check {
        for (node, memory) in &self.nodes {
            let mut bytes = vec![0; len];
            let _ = memory.fixed.read(0, &mut bytes);
            if bytes != self.fixed(*node, len) {
                return Err(format!("the read-only region of node {node} has changed"));
            }
        }
        Ok(())
    }
}
