//! Random division of work among nodes.

use oikaze_protocol::random::Random;
use std::ops::Range;

/// Cuts `len` units into a part for each node, some of which may be empty.
pub fn cuts(len: usize, nodes: u32, random: &mut Random) -> Vec<Range<usize>> {
    let mut ends: Vec<usize> = (1..nodes).map(|_| random.below(len + 1)).collect();
    ends.sort_unstable();
    let starts = [0].into_iter().chain(ends.clone());
    starts.zip(ends.iter().copied().chain([len])).map(|(start, end)| start..end).collect()
}
