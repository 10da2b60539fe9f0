//! One step of one row of the heat equation, as a pure function from three rows to one.

/// Diffusion number α·Δt/Δx². An explicit step is stable up to 1/4.
const DIFFUSION: f64 = 0.2;
/// Number of points that are computed at once, and of independent partial sums. They fill vector
/// registers.
const LANES: usize = 8;

/// Computes the inner points of a row of the new field from three rows of the old one. All rows
/// have the same length, of at least two points. Returns the sum of squared changes.
#[inline]
pub fn step_row(above: &[f64], here: &[f64], below: &[f64], new: &mut [f64]) -> f64 {
    let size = new.len();
    let (above, here, below) = (&above[..size], &here[..size], &below[..size]);
    let mut sums = [0.0; LANES];
    let mut add = |changes: [f64; LANES]| {
        for (sum, change) in sums.iter_mut().zip(changes) {
            *sum += change * change;
        }
    };
    let blocks = (size - 2) / LANES;
    for block in 0..blocks {
        let first = block * LANES;
        let rows = [above, here, below].map(|row| window(row, first));
        let (values, changes) = step_block(&rows);
        new[first + 1..first + 1 + LANES].copy_from_slice(&values);
        add(changes);
    }
    // The last points stand in a block of zeros. A point beyond them is not stored, and its change
    // does not count.
    let first = blocks * LANES;
    let rest = size - 2 - first;
    let rows = [above, here, below].map(|row| {
        let mut window = [0.0; LANES + 2];
        window[..rest + 2].copy_from_slice(&row[first..]);
        window
    });
    let (values, mut changes) = step_block(&rows.each_ref());
    new[first + 1..size - 1].copy_from_slice(&values[..rest]);
    changes[rest..].fill(0.0);
    add(changes);
    ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
}

/// Returns the values of a block from `start` on, with one value on both sides.
#[inline(always)]
fn window(row: &[f64], start: usize) -> &[f64; LANES + 2] {
    row[start..].first_chunk().expect("a block is inside of its row")
}

/// Computes some points from three rows around them. Returns their new values and their changes.
#[inline(always)]
fn step_block(rows: &[&[f64; LANES + 2]; 3]) -> ([f64; LANES], [f64; LANES]) {
    let [above, here, below] = *rows;
    let (mut new, mut changes) = ([0.0; LANES], [0.0; LANES]);
    for n in 0..LANES {
        let around = (above[n + 1] + below[n + 1]) + (here[n] + here[n + 2]);
        let change = DIFFUSION * (around - 4.0 * here[n + 1]);
        new[n] = here[n + 1] + change;
        changes[n] = change;
    }
    (new, changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::uniform;

    #[test]
    fn row_is_what_the_definition_says() {
        for size in [2, 3, 4, 10, 18, 33] {
            let row = |seed| -> Vec<f64> { (0..size).map(|j| uniform(seed, j as u64)).collect() };
            let (above, here, below, mut new) = (row(1), row(2), row(3), row(4));
            let border = [new[0], new[size - 1]];
            let sum = step_row(&above, &here, &below, &mut new);
            let mut expected = 0.0;
            for j in 1..size - 1 {
                let around = above[j] + below[j] + (here[j - 1] + here[j + 1]);
                let change = 0.2 * (around - 4.0 * here[j]);
                assert_eq!(new[j].to_bits(), (here[j] + change).to_bits(), "{j} of {size}");
                expected += change * change;
            }
            assert!((sum - expected).abs() < 1e-12, "{sum} and {expected}");
            assert_eq!([new[0], new[size - 1]], border);
        }
    }
}
