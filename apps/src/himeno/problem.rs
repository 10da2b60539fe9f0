//! Problem of the benchmark: sizes, starting field, and results of other programs.

use clap::ValueEnum;

/// Sizes of the benchmark, I × J × K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Size {
    /// 32 × 32 × 64
    Xs,
    /// 64 × 64 × 128
    S,
    /// 128 × 128 × 256
    M,
    /// 256 × 256 × 512
    L,
    /// 512 × 512 × 1024
    Xl,
}

impl Size {
    /// Returns the extent of the field.
    #[must_use]
    pub const fn shape(self) -> Shape {
        match self {
            Self::Xs => Shape { planes: 32, rows: 32, columns: 64 },
            Self::S => Shape { planes: 64, rows: 64, columns: 128 },
            Self::M => Shape { planes: 128, rows: 128, columns: 256 },
            Self::L => Shape { planes: 256, rows: 256, columns: 512 },
            Self::Xl => Shape { planes: 512, rows: 512, columns: 1024 },
        }
    }

    /// Returns the name of the size: XS to XL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xs => "XS",
            Self::S => "S",
            Self::M => "M",
            Self::L => "L",
            Self::Xl => "XL",
        }
    }
}

/// Extent of a field stored row-major as `[i][j][k]`: i counts planes, j rows, k columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of planes (I).
    pub planes: usize,
    /// Number of rows of a plane (J).
    pub rows: usize,
    /// Number of columns of a row (K), which are contiguous.
    pub columns: usize,
}

/// Floating-point operations for each inner point, as the original counts them.
const FLOPS_PER_POINT: f64 = 34.0;

impl Shape {
    /// Returns the number of values in one plane.
    #[must_use]
    pub const fn plane(self) -> usize {
        self.rows * self.columns
    }

    /// Returns the number of values in the field.
    #[must_use]
    pub const fn len(self) -> usize {
        self.planes * self.plane()
    }

    /// Fills plane `i` with the starting field: i² / (I − 1)², the same over the whole plane.
    pub fn start(self, i: usize, plane: &mut [f32]) {
        let last = (self.planes - 1) as f32;
        plane.fill((i * i) as f32 / (last * last));
    }

    /// Returns millions of floating-point operations per second. As in most C versions of the
    /// benchmark, (I − 3)(J − 3)(K − 3) points count, a little less than the (I − 2)(J − 2)(K − 2)
    /// points that are computed.
    #[must_use]
    pub fn mflops(self, iterations: u32, seconds: f64) -> f64 {
        let points = (self.planes - 3) as f64 * (self.rows - 3) as f64 * (self.columns - 3) as f64;
        FLOPS_PER_POINT * points * f64::from(iterations) / seconds / 1e6
    }
}

/// Result of an independent serial program.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Size of the field.
    pub size: Size,
    /// Number of iterations.
    pub iterations: u32,
    /// Sum of squared residuals of the last iteration, to ten digits.
    pub gosa: f64,
    /// Fingerprint of the field.
    pub hash: u64,
}

/// Results of independent serial programs (f32, no fused multiply-add).
const KNOWN: [Known; 7] = [
    Known { size: Size::Xs, iterations: 3, gosa: 6.229_796_415e-03, hash: 0xd7a3_2fbe_389b_9614 },
    Known { size: Size::Xs, iterations: 100, gosa: 2.317_158_918e-03, hash: 0x8d5d_87dd_d7e4_8c09 },
    Known { size: Size::S, iterations: 3, gosa: 3.296_793_931e-03, hash: 0x2195_7d23_e43d_9837 },
    Known { size: Size::S, iterations: 100, gosa: 2.147_504_499e-03, hash: 0xc7b0_3b55_c208_1330 },
    Known { size: Size::S, iterations: 200, gosa: 1.688_480_470e-03, hash: 0x9ffd_6fc5_11f6_f42d },
    Known { size: Size::M, iterations: 10, gosa: 1.636_297_619e-03, hash: 0xc731_a226_a980_8a40 },
    Known { size: Size::L, iterations: 3, gosa: 8.606_862_321e-04, hash: 0xe324_9a95_d22d_563c },
];

/// Returns the known result for this size and number of iterations, if there is one.
#[must_use]
pub fn known(size: Size, iterations: u32) -> Option<Known> {
    KNOWN.into_iter().find(|known| known.size == size && known.iterations == iterations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_starts_at_zero_and_ends_at_one() {
        let shape = Size::Xs.shape();
        let mut plane = vec![9.0; shape.plane()];
        shape.start(0, &mut plane);
        assert!(plane.iter().all(|&p| p == 0.0));
        shape.start(shape.planes - 1, &mut plane);
        assert!(plane.iter().all(|&p| p == 1.0));
    }
}
