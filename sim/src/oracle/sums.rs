//! Arrays that everybody adds to: no element was added twice, and none of an accumulate that was
//! acknowledged is missing (MEM-12).

use crate::violation::Check;
use oikaze_os::memory::Region;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::NumberKind;
use std::collections::BTreeMap;
use std::ops::Range;

/// Elements of each array.
const ELEMENTS: usize = 3_000;
/// The arrays of a node's region, one behind the other.
const ARRAYS: [(NumberKind, usize); 3] =
    [(NumberKind::U64, 8), (NumberKind::F64, 8), (NumberKind::U32, 4)];
/// Bytes of each node's region of sums.
pub const SUMS_LEN: usize = ELEMENTS * 20;

/// Some elements of one array, and what is added to each.
#[derive(Clone, Debug)]
pub struct Addends {
    /// Which array.
    pub array: usize,
    /// Which elements.
    pub range: Range<usize>,
    /// Small, so that sums are exact and grow.
    pub each: Vec<u8>,
}

/// One node's arrays: what was asked for, and what was acknowledged.
#[derive(Debug)]
struct Sums {
    region: Region,
    asked: [Vec<u64>; ARRAYS.len()],
    done: [Vec<u64>; ARRAYS.len()],
}

/// Those of all nodes.
#[derive(Debug, Default)]
pub struct SumsOracle {
    nodes: BTreeMap<Rank, Sums>,
}

impl Addends {
    /// How many arrays and elements there are to choose from.
    pub const CHOICE: (usize, usize) = (ARRAYS.len(), ELEMENTS);

    /// Returns the type of the elements.
    #[must_use]
    pub fn element(&self) -> NumberKind {
        ARRAYS[self.array].0
    }

    /// Where the first of them is in the region.
    #[must_use]
    pub fn offset(&self) -> u64 {
        (address(self.array) + self.range.start * ARRAYS[self.array].1) as u64
    }

    /// As they stand in memory.
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

/// Where an array begins.
fn address(array: usize) -> usize {
    ARRAYS[..array].iter().map(|(_, width)| ELEMENTS * width).sum()
}

impl SumsOracle {
    /// A node has these arrays, all zero.
    pub fn add_node(&mut self, node: Rank, region: Region) {
        let zero = || ARRAYS.map(|_| vec![0; ELEMENTS]);
        self.nodes.insert(node, Sums { region, asked: zero(), done: zero() });
    }

    /// Somebody is about to add these.
    pub fn asked(&mut self, node: Rank, addends: &Addends) {
        if let Some(sums) = self.nodes.get_mut(&node) {
            add(&mut sums.asked, addends);
        }
    }

    /// And has been told that they are added.
    pub fn done(&mut self, node: Rank, addends: &Addends) {
        if let Some(sums) = self.nodes.get_mut(&node) {
            add(&mut sums.done, addends);
        }
    }

    /// Checks that every element holds at least what was acknowledged, and at most what was asked
    /// for. (Both are the same if nobody died.)
    ///
    /// # Errors
    /// One does not.
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
