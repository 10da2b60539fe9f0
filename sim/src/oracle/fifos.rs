//! Checks FIFOs (MEM-13): acknowledged elements come out once, refused ones never, and each
//! producer's elements in their order.

use crate::random::bytes_of;
use crate::violation::Check;
use oikaze_os::memory::fifo::{Fifo, Shape};
use oikaze_protocol::Rank;
use std::collections::BTreeMap;

/// Number of elements of each node's FIFO, which is small, so that it is often full.
const SLOTS: u64 = 8;
/// Bytes of the longest element, which has fragments where datagrams are short.
const LONGEST: u64 = 3_000;

/// Identity of an element: the thread that pushed it, and its number among this thread's pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Push {
    /// Pushing thread, counted over all nodes.
    pub thread: u64,
    /// Number among this thread's pushes to all nodes.
    pub serial: u64,
}

/// Knowledge about an element.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    refused: bool,
    acknowledged: bool,
    popped: bool,
}

#[derive(Debug)]
struct Queue {
    fifo: Fifo,
    fates: BTreeMap<Push, Fate>,
    /// Latest element of each thread that came out.
    latest: BTreeMap<u64, u64>,
}

/// FIFOs of all nodes.
#[derive(Debug, Default)]
pub struct FifosOracle {
    nodes: BTreeMap<Rank, Queue>,
}

impl FifosOracle {
    /// Returns the shape of each FIFO.
    #[must_use]
    pub fn shape() -> Option<Shape> {
        Shape::new(SLOTS, LONGEST)
    }

    /// Adds the FIFO of a node.
    pub fn add_node(&mut self, node: Rank, fifo: Fifo) {
        self.nodes.insert(node, Queue { fifo, fates: BTreeMap::new(), latest: BTreeMap::new() });
    }

    /// Returns the bytes of an element of this length, which is at least 16.
    #[must_use]
    pub fn element(push: Push, len: usize) -> Vec<u8> {
        let mut bytes = [push.thread.to_le_bytes(), push.serial.to_le_bytes()].concat();
        bytes.extend(bytes_of(push.thread << 32 ^ push.serial, len.saturating_sub(16)));
        bytes
    }

    /// Notes that a thread is about to push this element.
    pub fn asked(&mut self, node: Rank, push: Push) {
        self.fates(node, push, |_| {});
    }

    /// Notes that the thread learned of the element's acceptance.
    pub fn acknowledged(&mut self, node: Rank, push: Push) {
        self.fates(node, push, |fate| fate.acknowledged = true);
    }

    /// Notes that the thread learned that there was no room.
    ///
    /// # Errors
    /// The element has come out.
    pub fn refused(&mut self, node: Rank, push: Push) -> Check {
        let mut popped = false;
        self.fates(node, push, |fate| {
            fate.refused = true;
            popped = fate.popped;
        });
        if popped {
            Err(format!("{push:?} was refused, but has come out of the FIFO of node {node}"))
        } else {
            Ok(())
        }
    }

    fn fates(&mut self, node: Rank, push: Push, change: impl FnOnce(&mut Fate)) {
        if let Some(queue) = self.nodes.get_mut(&node) {
            change(queue.fates.entry(push).or_default());
        }
    }

    /// Takes an element out of the node's FIFO. Returns `false` if there is none.
    ///
    /// # Errors
    /// The element was never pushed, comes a second time, was refused, or comes after a later one
    /// of its thread. Or the FIFO was destroyed.
    pub fn pop(&mut self, node: Rank) -> Result<bool, String> {
        let Some(queue) = self.nodes.get_mut(&node) else { return Ok(false) };
        let mut element = Vec::new();
        if !queue
            .fifo
            .try_pop(&mut element)
            .map_err(|error| format!("the FIFO of node {node}: {error}"))?
        {
            return Ok(false);
        }
        let wrong = |what: String| Err(format!("out of the FIFO of node {node} came {what}"));
        let Some(([thread, serial], _)) = element.as_chunks::<8>().0.split_first_chunk::<2>()
        else {
            return wrong(format!("{} bytes that nobody pushed", element.len()));
        };
        let push =
            Push { thread: u64::from_le_bytes(*thread), serial: u64::from_le_bytes(*serial) };
        if element != FifosOracle::element(push, element.len()) {
            return wrong(format!("{push:?}, damaged"));
        }
        match queue.fates.get_mut(&push) {
            None => return wrong(format!("{push:?}, which nobody pushed")),
            Some(fate) if fate.popped || fate.refused => {
                return wrong(format!("{push:?}, which was {fate:?}"));
            }
            Some(fate) => fate.popped = true,
        }
        if let Some(later) =
            queue.latest.insert(push.thread, push.serial).filter(|latest| *latest > push.serial)
        {
            return wrong(format!("{push:?} after {later}"));
        }
        Ok(true)
    }

    /// Checks, when no thread pushes any more, that every acknowledged element has come out.
    ///
    /// # Errors
    /// An element has not come out, or has come out without a push.
    pub fn conclude(&mut self) -> Check {
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            while self.pop(node)? {}
        }
        for (node, queue) in &self.nodes {
            if let Some((push, fate)) =
                queue.fates.iter().find(|(_, fate)| fate.acknowledged && !fate.popped)
            {
                return Err(format!(
                    "{push:?} has not come out of the FIFO of node {node}: {fate:?}"
                ));
            }
        }
        Ok(())
    }
}
