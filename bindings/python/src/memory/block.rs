//! Blocks: arrays with gaps between their rows, here or at a peer.

use oikaze::memory::Block;

/// Returns the block of an array's bytes: rows, or planes of rows, at equal distances.
///
/// Axes are joined where one continues the other without a gap. The error says what to do.
pub fn block_of(
    offset: u64,
    item: usize,
    shape: &[usize],
    strides: &[isize],
) -> Result<Block, String> {
    if shape.len() != strides.len() {
        return Err(format!(
            "{} strides are given for {} axes; give one for each",
            strides.len(),
            shape.len()
        ));
    }
    if shape.contains(&0) {
        return Ok(Block::new(offset, 0));
    }
    // Length of a row, then number and distance of rows, of planes and so on.
    let mut row = item as u64;
    let mut steps: Vec<(u64, u64)> = Vec::new();
    for (count, stride) in shape.iter().zip(strides).rev().filter(|(count, _)| **count > 1) {
        let count = *count as u64;
        let stride = u64::try_from(*stride).map_err(|_| {
            "a stride is negative; reverse a copy, such as numpy.ascontiguousarray(array)"
                .to_owned()
        })?;
        match steps.last_mut() {
            None if stride == row => row = row.saturating_mul(count),
            Some((inner, distance)) if distance.checked_mul(*inner) == Some(stride) => {
                *inner = inner.saturating_mul(count);
            }
            _ => steps.push((count, stride)),
        }
    }
    let short = |number: u64| {
        u32::try_from(number).map_err(|_| "it is too long; cut it into several".to_owned())
    };
    let block = Block::new(offset, short(row)?);
    match *steps {
        [] => Ok(block),
        [(rows, distance)] => Ok(block.rows(short(rows)?, distance)),
        [(rows, distance), (planes, between)] => {
            Ok(block.rows(short(rows)?, distance).planes(short(planes)?, between))
        }
        _ => Err("it has gaps along more than two axes; take one plane after another".to_owned()),
    }
}
