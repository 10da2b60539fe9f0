//! FIFOs: what was acknowledged comes out once, what was refused never, and each producer's
//! elements in their order (MEM-13).

use crate::random::bytes_of;
use crate::violation::Check;
use oikaze_os::memory::fifo::{Fifo, Shape};
use oikaze_protocol::Rank;
use std::collections::BTreeMap;

/// Elements of each node's FIFO: few, so that it is often full.
const SLOTS: u64 = 8;
/// Bytes of the longest: in fragments, where datagrams are short.
const LONGEST: u64 = 3_000;

/// One element: who pushed it, as which of all that this thread pushed to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Push {
    /// The pushing thread, of all nodes.
    pub thread: u64,
    /// Counts that thread's pushes to all nodes.
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
    /// The latest of each thread that came out.
    latest: BTreeMap<u64, u64>,
}

/// Those of all nodes.
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

    /// A node has this FIFO.
    pub fn add_node(&mut self, node: Rank, fifo: Fifo) {
        self.nodes.insert(node, Queue { fifo, fates: BTreeMap::new(), latest: BTreeMap::new() });
    }

    /// The bytes of an element of this length, 16 at least.
    #[must_use]
    pub fn element(push: Push, len: usize) -> Vec<u8> {
        let mut bytes = [push.thread.to_le_bytes(), push.serial.to_le_bytes()].concat();
        bytes.extend(bytes_of(push.thread << 32 ^ push.serial, len.saturating_sub(16)));
        bytes
    }

    /// Somebody is about to push this.
    pub fn asked(&mut self, node: Rank, push: Push) {
        self.fates(node, push, |_| {});
    }

    /// And was told that it is in.
    pub fn acknowledged(&mut self, node: Rank, push: Push) {
        self.fates(node, push, |fate| fate.acknowledged = true);
    }

    /// And was told that there is no room.
    ///
    /// # Errors
    /// It has come out.
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

    /// The node takes an element out; `false`: there is none.
    ///
    /// # Errors
    /// It was never pushed, or comes a second time, or was refused, or comes after a later one of
    /// its thread; or the FIFO was destroyed.
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

    /// Checks, when nobody pushes any more, that every acknowledged element has come out.
    ///
    /// # Errors
    /// Something has not, or came out for nobody.
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
