//! Matrix of the benchmark (makea), and the product of some of its rows with a vector.
//!
//! The matrix is a weighted sum of outer products of sparse random vectors, with weights between 1
//! and 0.1, less a multiple of the identity.

use std::ops::Range;

use oikaze_kernels::cg::add_products;

use crate::class::Class;
use crate::random::Sequence;

/// Reciprocal of the condition number of the matrix.
const RECIPROCAL_CONDITION: f64 = 0.1;

/// Some rows of the matrix: for each row its values and their columns, in order of the columns.
pub struct Rows {
    /// First value of each row, and the end of the last row.
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f64>,
}

/// A sparse vector: places and values.
type Sparse = Vec<(usize, f64)>;

impl Rows {
    /// Computes these rows of the matrix. Every node draws all random vectors, because each number
    /// depends on the one before it.
    #[must_use]
    pub fn new(class: &Class, rows: &Range<usize>) -> Self {
        let vectors = vectors(class);
        // The values of each row, in the order of the vectors that they come from. Values of one
        // column are added in this order, so that a row has the same bits on any node.
        let mut values = vec![Vec::new(); rows.len()];
        let ratio = RECIPROCAL_CONDITION.powf(1.0 / class.rows as f64);
        let mut weight = 1.0;
        for (i, vector) in vectors.iter().enumerate() {
            for &(row, left) in vector.iter().filter(|(row, _)| rows.contains(row)) {
                let scale = weight * left;
                for &(column, right) in vector {
                    let mut value = right * scale;
                    if column == row && row == i {
                        value = value + RECIPROCAL_CONDITION - class.shift;
                    }
                    values[row - rows.start].push((column as u32, value));
                }
            }
            weight *= ratio;
        }
        let mut matrix = Self { starts: vec![0], columns: Vec::new(), values: Vec::new() };
        for mut row in values {
            row.sort_by_key(|&(column, _)| column); // stable
            for same in row.chunk_by(|one, other| one.0 == other.0) {
                matrix.columns.push(same[0].0);
                matrix.values.push(same.iter().fold(0.0, |sum, (_, value)| sum + value));
            }
            matrix.starts.push(matrix.columns.len());
        }
        matrix
    }

    /// Moves columns: the vector of a product has element i at place `place(i)`, which grows with
    /// i.
    pub fn move_columns(&mut self, place: impl Fn(usize) -> usize) {
        for column in &mut self.columns {
            *column = place(*column as usize) as u32;
        }
    }

    /// Computes the product of all these rows with `vector`.
    pub fn multiply(&self, vector: &[f64], product: &mut [f64]) {
        product.fill(0.0);
        let (starts, ends) = (&self.starts, &self.starts[1..]);
        add_products(starts, ends, &self.columns, &self.values, vector, product);
    }
}

/// Draws one sparse vector for each row (sprnvc and vecset).
fn vectors(class: &Class) -> Vec<Sparse> {
    let mut sequence = Sequence::new();
    sequence.draw(); // the benchmark draws its first zeta
    let power = class.rows.next_power_of_two();
    let vector = |i| {
        let mut vector = Sparse::with_capacity(class.nonzeros + 1);
        while vector.len() < class.nonzeros {
            let (value, place) = (sequence.draw(), (power as f64 * sequence.draw()) as usize);
            if place < class.rows && vector.iter().all(|&(other, _)| other != place) {
                vector.push((place, value));
            }
        }
        match vector.iter_mut().find(|(place, _)| *place == i) {
            Some((_, value)) => *value = 0.5,
            None => vector.push((i, 0.5)),
        }
        vector
    };
    (0..class.rows).map(vector).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Size;

    #[test]
    fn rows_are_the_same_alone_and_among_all() {
        let class = Size::S.class();
        let (all, some) = (Rows::new(&class, &(0..1400)), Rows::new(&class, &(500..700)));
        let vector: Vec<f64> = (0..1400).map(|i| oikaze_apps::uniform(1, i)).collect();
        let (mut product, mut part) = (vec![0.0; 1400], vec![0.0; 200]);
        all.multiply(&vector, &mut product);
        some.multiply(&vector, &mut part);
        assert_eq!(product[500..700], part);
    }

    #[test]
    fn matrix_is_symmetric() {
        let class = Size::S.class();
        let rows = Rows::new(&class, &(0..class.rows));
        let mut values = std::collections::HashMap::new();
        for (i, row) in rows.starts.windows(2).enumerate() {
            for at in row[0]..row[1] {
                values.insert((i, rows.columns[at] as usize), rows.values[at]);
            }
        }
        for (&(i, j), value) in &values {
            let other = values.get(&(j, i)).expect("an outer product has both");
            assert!((value - other).abs() < 1e-14, "({i}, {j}): {value} and {other}");
        }
    }
}
