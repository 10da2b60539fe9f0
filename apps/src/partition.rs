//! Division of work and of pages among the nodes.

use std::ops::Range;

use oikaze::shared::builder::Homes;

/// Bytes of a page, which is the unit of homes.
pub const PAGE: usize = 4096;

/// Returns the share of node `rank` of `nodes` in `units` of work. Shares are contiguous and evenly
/// distributed. Some nodes have none if there are more nodes than units.
#[must_use]
pub const fn part(units: usize, rank: u32, nodes: u32) -> Range<usize> {
    let (rank, nodes) = (rank as usize, nodes as usize);
    units * rank / nodes..units * (rank + 1) / nodes
}

/// Returns the homes of an array of `T` whose elements up to the first of `ends` are written by
/// node 0, those up to the second one by node 1, and so on. Each page is at home where it is
/// written, so that only pages at a border travel. The lower rank has a page that two nodes write.
#[must_use]
pub fn homes<T>(ends: impl IntoIterator<Item = usize>) -> Homes {
    let mut homes = Vec::new();
    for (rank, end) in (0..).zip(ends) {
        let pages: usize = (end * size_of::<T>()).div_ceil(PAGE);
        homes.resize(pages.max(homes.len()), rank);
    }
    Homes::Explicit(homes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_has_one_owner() {
        for (units, nodes) in (1..=40).flat_map(|nodes| [(32, nodes), (7, nodes)]) {
            let mut next = 0;
            for rank in 0..nodes {
                let part = part(units, rank, nodes);
                assert_eq!(part.start, next, "rank {rank} of {nodes}");
                next = part.end;
            }
            assert_eq!(next, units);
        }
    }

    #[test]
    fn page_of_two_parts_is_at_home_on_the_lower_rank() {
        assert_eq!(homes::<f64>([512, 512, 1025]), Homes::Explicit(vec![0, 2, 2]));
        assert_eq!(homes::<f32>([1025, 1026, 3072]), Homes::Explicit(vec![0, 0, 2]));
    }
}
