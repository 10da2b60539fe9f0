//! Storage of the stencil's coefficients.

use std::error::Error;
use std::fmt;
use std::hint::black_box;

use oikaze_kernels::himeno::{Arrays, Scalars, relax_plane};

use crate::problem::Shape;

/// Coefficients of the stencil.
///
/// The original keeps the coefficients as twelve arrays as large as the field and reads them at
/// each point, so it measures memory bandwidth. [`Coefficients::arrays`] does so too (for the
/// planes of this node only), which makes MFLOPS comparable. [`Coefficients::scalars`] does the
/// same arithmetic from registers.
pub struct Coefficients {
    /// Arrays of the coefficients; `None` if they are kept in registers.
    arrays: Option<PlaneArrays>,
}

/// Coefficients a[4], b[3], c[3], bnd and wrk1, each for `planes` from `first` on.
struct PlaneArrays {
    first: usize,
    plane: usize,
    /// Distance between the starts of two arrays in `values`.
    stride: usize,
    /// All twelve arrays, one after another.
    values: Vec<f32>,
}

/// Values of an array of f32 in one page.
const PAGE: usize = 4096 / size_of::<f32>();
/// Values between two arrays beyond whole pages: five cache lines. A row's twelve coefficients are
/// read together. Arrays at the same place of a page would fall into the same sets of the first
/// cache and displace each other, which took two to three times as long.
const STAGGER: usize = 5 * 64 / size_of::<f32>();

/// Values of a, b, c, bnd and wrk1 in the benchmark.
const VALUES: [f32; 12] = [1.0, 1.0, 1.0, 1.0 / 6.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0];

/// The coefficients do not fit into memory.
#[derive(Clone, Copy, Debug)]
pub struct NoMemory {
    bytes: usize,
}

impl Error for NoMemory {}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the coefficients of this node's planes need {} MiB, which this machine (or ulimit -v) does not give: use more nodes, a \
             smaller --size, or --coefficients registers",
            self.bytes >> 20
        )
    }
}

impl Coefficients {
    /// Makes one array for each coefficient, for these planes, as the original does.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn arrays(shape: Shape, planes: &std::ops::Range<usize>) -> Result<Self, NoMemory> {
        let stride = (planes.len() * shape.plane()).next_multiple_of(PAGE) + STAGGER;
        let (mut values, count) = (Vec::new(), VALUES.len() * stride);
        values
            .try_reserve_exact(count)
            .map_err(|_| NoMemory { bytes: count * size_of::<f32>() })?;
        for (value, end) in VALUES.into_iter().zip((stride..).step_by(stride)) {
            values.resize(end, value);
        }
        let (first, plane) = (planes.start, shape.plane());
        Ok(Self { arrays: Some(PlaneArrays { first, plane, stride, values }) })
    }

    /// Makes coefficients that are kept in registers.
    #[must_use]
    pub const fn scalars() -> Self {
        Self { arrays: None }
    }

    /// Computes plane `i` of the new field ([`relax_plane`]).
    pub fn relax_plane(
        &self,
        i: usize,
        shape: Shape,
        old: [&[f32]; 3],
        new: &mut [f32],
        residuals: &mut [f32],
    ) -> f64 {
        let Some(arrays) = &self.arrays else {
            // The compiler would leave out what it knows to be multiplied by zero or one.
            let values = Scalars(black_box(VALUES));
            return relax_plane(shape.columns, &values, old, new, residuals);
        };
        let these = Arrays(std::array::from_fn(|n| {
            let start = n * arrays.stride + (i - arrays.first) * arrays.plane;
            &arrays.values[start..start + arrays.plane]
        }));
        relax_plane(shape.columns, &these, old, new, residuals)
    }
}
