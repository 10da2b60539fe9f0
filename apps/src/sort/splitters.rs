//! Samples of sorted keys, and the keys that divide the result among the nodes.
//!
//! A key counts together with its place in the input, so that no two are equal. The nodes therefore
//! get shares of nearly equal length, however many keys are equal.

use oikaze::shared::Element;

/// Samples that each node takes for each node. A share is at most one part in this number longer
/// than the mean.
const SAMPLES: usize = 32;

/// A key and its place in the input, which orders equal keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Element)]
#[repr(C)]
pub struct Sample {
    key: u64,
    place: u64,
}

/// Returns keys at equal distances from a node's sorted keys, of which the first has this place.
#[must_use]
pub fn samples(first: usize, keys: &[u64], nodes: u32) -> Vec<Sample> {
    let count = (SAMPLES * nodes as usize).min(keys.len());
    let index = |sample: usize| (sample * keys.len() + keys.len() / 2) / count;
    (0..count)
        .map(index)
        .map(|index| Sample { key: keys[index], place: (first + index) as u64 })
        .collect()
}

/// Returns the first key of each node but node 0, from the samples of all nodes.
#[must_use]
pub fn splitters(mut samples: Vec<Sample>, nodes: u32) -> Vec<Sample> {
    samples.sort_unstable();
    let nodes = nodes as usize;
    (1..nodes).filter_map(|node| samples.get(samples.len() * node / nodes).copied()).collect()
}

/// Cuts a node's sorted keys, of which the first has this place, into one part for each node.
#[must_use]
pub fn cut(first: usize, keys: &[u64], splitters: &[Sample], nodes: u32) -> Vec<Vec<u64>> {
    let end = |splitter: &Sample| {
        let below = keys.partition_point(|key| *key < splitter.key);
        let equal = keys[below..].partition_point(|key| *key == splitter.key);
        (splitter.place as usize).saturating_sub(first).clamp(below, below + equal)
    };
    let mut parts = Vec::with_capacity(nodes as usize);
    let mut start = 0;
    for end in splitters.iter().map(end).chain([keys.len()]) {
        parts.push(keys[start..end].to_vec());
        start = end;
    }
    parts.resize(nodes as usize, Vec::new()); // there are no splitters if there are no keys
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use oikaze_apps::{part, random};

    /// Sorts as the nodes do, and returns their shares.
    fn shares(keys: &[u64], nodes: u32) -> Vec<Vec<u64>> {
        let inputs: Vec<(usize, Vec<u64>)> = (0..nodes)
            .map(|rank| {
                let part = part(keys.len(), rank, nodes);
                let mut mine = keys[part.clone()].to_vec();
                mine.sort_unstable();
                (part.start, mine)
            })
            .collect();
        let all = inputs.iter().flat_map(|(first, keys)| samples(*first, keys, nodes)).collect();
        let splitters = splitters(all, nodes);
        let mut shares = vec![Vec::new(); nodes as usize];
        for (first, keys) in &inputs {
            let parts = cut(*first, keys, &splitters, nodes);
            assert_eq!(parts.len(), shares.len());
            shares.iter_mut().zip(parts).for_each(|(share, part)| share.extend(part));
        }
        shares.iter_mut().for_each(|share| share.sort_unstable());
        shares
    }

    #[test]
    fn shares_are_in_order_complete_and_nearly_equal() {
        let of = |key: fn(u64) -> u64, count| (0..count).map(key).collect::<Vec<u64>>();
        for (key, kind) in [
            ((|index| random(3, index)) as fn(u64) -> u64, "uniform"),
            (|index| random(3, index) >> (random(4, index) % 64), "skewed"),
            (|_| 7, "equal"),
            (|index| 1_000_000 - index, "falling"),
            (|index| index % 3, "three"),
        ] {
            for (count, nodes) in [(0, 3), (1, 4), (5, 9), (1000, 1), (20_000, 3), (20_000, 8)] {
                let keys = of(key, count);
                let shares = shares(&keys, nodes);
                let mut expected = keys.clone();
                expected.sort_unstable();
                assert_eq!(shares.concat(), expected, "{count} {kind} keys on {nodes} nodes");
                let longest = shares.iter().map(Vec::len).max().unwrap();
                let mean = keys.len() as f64 / f64::from(nodes);
                assert!(
                    count < 1000 || longest as f64 <= mean * 1.1,
                    "{longest} of {count} {kind} keys on one of {nodes} nodes"
                );
            }
        }
    }
}
