//! Vector clocks (COH-4.3).

use crate::Rank;
use crate::bytes::{ByteReader, ByteWriter, Invalid};
use crate::coherence::short_list::ShortList;
use alloc::vec::Vec;

/// Maximum number of nodes whose vectors need no allocation.
const NODES_SHORT: usize = 4;

/// Number of the last known interval of each node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
pub(crate) struct Vector(ShortList<u64, NODES_SHORT>);

impl Vector {
    pub fn new(nodes: u32) -> Vector {
        Vector(core::iter::repeat_n(0, nodes as usize).collect())
    }

    pub fn get(&self, rank: Rank) -> u64 {
        self.0.get(rank as usize).copied().unwrap_or(0)
    }

    pub fn raise(&mut self, rank: Rank, to: u64) {
        if let Some(slot) = self.0.get_mut(rank as usize) {
            *slot = (*slot).max(to);
        }
    }

    /// Returns `true` if this vector knows everything that the other one knows.
    pub fn covers(&self, other: &Vector) -> bool {
        self.0.iter().zip(&*other.0).all(|(mine, theirs)| mine >= theirs)
    }

    pub fn merge(&mut self, other: &Vector) {
        self.0.iter_mut().zip(&*other.0).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> u32 {
        self.0.len() as u32
    }

    /// Keeps of each number the lower one.
    pub fn lower(&mut self, other: &Vector) {
        self.0.iter_mut().zip(&*other.0).for_each(|(mine, theirs)| *mine = (*mine).min(*theirs));
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        self.0.iter().fold(out, |out, number| out.put_leb128(*number));
    }

    pub fn read(reader: &mut ByteReader<'_>, nodes: u32) -> Result<Vector, Invalid> {
        (0..nodes).map(|_| reader.leb128()).collect::<Result<_, _>>().map(Vector)
    }
}
