//! Checks arrays to which all nodes add (MEM-12): no element is added twice, and no acknowledged
//! accumulate is missing.

use crate::violation::Check;
use oikaze_os::memory::Region;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::NumberKind;
use std::collections::BTreeMap;
use std::ops::Range;

/// Number of elements of each array.
const ELEMENTS: usize = 3_000;
/// Arrays of a node's region, one behind the other.
const ARRAYS: [(NumberKind, usize); 3] =
    [(NumberKind::U64, 8), (NumberKind::F64, 8), (NumberKind::U32, 4)];
/// Bytes of each node's region of sums.
pub const SUMS_LEN: usize = ELEMENTS * 20;

/// Some elements of one array, and the value that is added to each.
#[derive(Clone, Debug)]
pub struct Addends {
    /// Number of the array.
    pub array: usize,
    /// Range of the elements.
    pub range: Range<usize>,
    /// Values that are added, which are small, so that sums are exact and grow.
    pub each: Vec<u8>,
}

/// Arrays of one node, with requested and acknowledged sums.
#[derive(Debug)]
struct Sums {
    region: Region,
    asked: [Vec<u64>; ARRAYS.len()],
    done: [Vec<u64>; ARRAYS.len()],
}

/// Arrays of all nodes.
#[derive(Debug, Default)]
pub struct SumsOracle {
    nodes: BTreeMap<Rank, Sums>,
}

impl Addends {
    /// Number of arrays, and of elements in each, to choose from.
    pub const CHOICE: (usize, usize) = (ARRAYS.len(), ELEMENTS);

    /// Returns the type of the elements.
    #[must_use]
    pub fn element(&self) -> NumberKind {
        ARRAYS[self.array].0
    }

    /// Returns the offset of the first element in the region.
    #[must_use]
    pub fn offset(&self) -> u64 {
        (address(self.array) + self.range.start * ARRAYS[self.array].1) as u64
    }

    /// Returns the values as they stand in memory.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let one = |add: &u8| match self.element() {
            NumberKind::F64 => f64::from(*add).to_ne_bytes().to_vec(),
            NumberKind::U32 => u32::from(*add).to_ne_bytes().to_vec(),
            _ => u64::from(*add).to_ne_bytes().to_vec(),
        };
        self.each.iter().flat_map(one).collect()
    }
}

/// Returns the offset at which an array begins.
fn address(array: usize) -> usize {
    ARRAYS[..array].iter().map(|(_, width)| ELEMENTS * width).sum()
}

impl SumsOracle {
    /// Adds the arrays of a node, which are all zero.
    pub fn add_node(&mut self, node: Rank, region: Region) {
        let zero = || ARRAYS.map(|_| vec![0; ELEMENTS]);
        self.nodes.insert(node, Sums { region, asked: zero(), done: zero() });
    }

    /// Notes that a thread is about to add these values.
    pub fn asked(&mut self, node: Rank, addends: &Addends) {
        if let Some(sums) = self.nodes.get_mut(&node) {
            add(&mut sums.asked, addends);
        }
    }

    /// Notes that the thread learned of their addition.
    pub fn done(&mut self, node: Rank, addends: &Addends) {
        if let Some(sums) = self.nodes.get_mut(&node) {
            add(&mut sums.done, addends);
        }
    }

    /// Checks that every element has at least the acknowledged sum, and at most the requested one.
    /// (Both are the same if no node died.)
    ///
    /// # Errors
    /// An element has another value.
    pub fn check(&self) -> Check {
        for (node, sums) in &self.nodes {
            for (array, (element, width)) in ARRAYS.into_iter().enumerate() {
                for index in 0..ELEMENTS {
                    let at = (address(array) + index * width) as u64;
                    let value = match element {
                        NumberKind::F64 => {
                            f64::from_bits(sums.region.load_u64(at).unwrap_or(u64::MAX))
                        }
                        NumberKind::U32 => {
                            sums.region.word::<u32>(at).load().map_or(f64::NAN, f64::from)
                        }
                        _ => sums.region.load_u64(at).map_or(f64::NAN, |value| value as f64),
                    };
                    let (done, asked) = (sums.done[array][index], sums.asked[array][index]);
                    if !(done as f64 <= value && value <= asked as f64) {
                        return Err(format!(
                            "element {index} of array {array} of node {node} is {value} after {asked} was asked to be added, \
                             and {done} acknowledged"
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn add(sums: &mut [Vec<u64>; ARRAYS.len()], addends: &Addends) {
    for (sum, add) in sums[addends.array][addends.range.clone()].iter_mut().zip(&addends.each) {
        *sum += u64::from(*add);
    }
}
