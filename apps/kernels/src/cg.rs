//! Sums and updates of vectors, and the product of a sparse matrix with one. Every sum has the same
//! order of additions wherever it is taken.

/// Number of independent partial sums. They hide the latency of an addition.
const LANES: usize = 8;

/// Adds the product of some rows of a sparse matrix with `vector` to `sums`. Row `i` has its values
/// and their columns at places `starts[i]` to `ends[i]`.
#[inline]
pub fn add_products(
    starts: &[usize],
    ends: &[usize],
    columns: &[u32],
    values: &[f64],
    vector: &[f64],
    sums: &mut [f64],
) {
    for ((&start, &end), sum) in starts.iter().zip(ends).zip(sums) {
        *sum += sum_of_products(&columns[start..end], &values[start..end], vector);
    }
}

/// Returns the product of one row of a sparse matrix with a vector.
#[inline]
fn sum_of_products(columns: &[u32], values: &[f64], vector: &[f64]) -> f64 {
    let (column_lanes, column_rest) = columns.as_chunks::<LANES>();
    let (value_lanes, value_rest) = values.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (columns, values) in column_lanes.iter().zip(value_lanes) {
        for lane in 0..LANES {
            sums[lane] += values[lane] * vector[columns[lane] as usize];
        }
    }
    let mut rest = 0.0;
    for (column, value) in column_rest.iter().zip(value_rest) {
        rest += value * vector[*column as usize];
    }
    add_lanes(&sums) + rest
}

/// Returns the scalar product of two vectors of equal length.
#[inline]
pub fn dot(one: &[f64], other: &[f64]) -> f64 {
    let (one_lanes, one_rest) = one.as_chunks::<LANES>();
    let (other_lanes, other_rest) = other.as_chunks::<LANES>();
    let mut sums = [0.0; LANES];
    for (one, other) in one_lanes.iter().zip(other_lanes) {
        for lane in 0..LANES {
            sums[lane] += one[lane] * other[lane];
        }
    }
    let rest: f64 = one_rest.iter().zip(other_rest).map(|(one, other)| one * other).sum();
    add_lanes(&sums) + rest
}

/// Adds lanes in pairs.
#[inline]
fn add_lanes(sums: &[f64; LANES]) -> f64 {
    ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
}

/// Computes `vector ← vector + factor · other`.
#[inline]
pub fn add_multiple(vector: &mut [f64], factor: f64, other: &[f64]) {
    for (value, other) in vector.iter_mut().zip(other) {
        *value += factor * other;
    }
}

/// Computes `vector ← other + factor · vector`.
#[inline]
pub fn multiply_and_add(vector: &mut [f64], factor: f64, other: &[f64]) {
    for (value, other) in vector.iter_mut().zip(other) {
        *value = other + factor * *value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_close_to_the_plain_ones() {
        for len in [0, 1, 7, 8, 9, 40, 133] {
            let vector = |seed| -> Vec<f64> {
                (0..len as u64).map(|i| crate::random::uniform(seed, i)).collect()
            };
            let (one, other) = (vector(1), vector(2));
            let plain: f64 = one.iter().zip(&other).map(|(one, other)| one * other).sum();
            assert!((dot(&one, &other) - plain).abs() < 1e-12, "{len}");
            let columns: Vec<u32> = (0..len as u32).collect();
            assert!((sum_of_products(&columns, &one, &other) - plain).abs() < 1e-12, "{len}");
        }
    }

    #[test]
    fn products_of_rows_are_added() {
        let (columns, values) = ([0, 2, 1, 0, 1], [1.0, 2.0, 3.0, 4.0, 5.0]);
        let mut sums = [10.0, 20.0, 30.0];
        let (starts, ends) = ([0, 2, 3], [2, 2, 5]);
        add_products(&starts, &ends, &columns, &values, &[1.0, 10.0, 100.0], &mut sums);
        assert_eq!(sums, [10.0 + 201.0, 20.0, 30.0 + 54.0]);
    }
}
