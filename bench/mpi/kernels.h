/* Inner loops of the programs, which `apps/kernels` has in Rust. Both sides of a comparison compute
 * with the same code. `bindings/kernels` translates, and is linked into the programs.
 *
 * Memory that a function writes overlaps no other argument.
 */
#ifndef OIKAZE_BENCH_KERNELS_H
#define OIKAZE_BENCH_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Himeno. Computes a plane of the new field, and returns its sum of squared residuals. `old` has
 * the planes before, at and after it. Each of the coefficients has the values of the plane: a[4],
 * b[3], c[3], bnd and wrk1. The border of `fresh` stays as it is. `residuals` has room for
 * `columns + 8` values. A row has at least 18 values. */
double kernel_relax_plane(size_t rows, size_t columns, const float *const coefficients[12],
                          const float *old, float *fresh, float *residuals);

/* LU in blocks of 16 × 16 values: lu0, bdiv, bmodd and bmod of SPLASH-2. */
void kernel_factor(double *diagonal);
void kernel_divide(double *block, const double *diagonal);
void kernel_eliminate(double *block, const double *diagonal);
void kernel_update(double *block, const double *left, const double *above);

/* Heat equation. Computes the inner points of a row of the next step from three rows of `size`
 * values, and returns the row's sum of squared changes. */
double kernel_step_row(size_t size, const double *above, const double *here, const double *below,
                       double *next);

/* Transposition. Stores the transposed tile of 32 × 32 values, with one added to every value. */
void kernel_transpose(const double *from, double *to);

/* Histogram. Counts keys number `from` to `to` (without) of the sequence of `seed`. */
void kernel_count(uint64_t seed, uint64_t from, uint64_t to, size_t bins, uint64_t *counts);
/* Stores the first of the fullest bins, and its count. */
void kernel_fullest(size_t bins, const uint64_t *counts, uint64_t result[2]);

/* CG. Rows of a sparse matrix. Row `i` has its columns and values at places `starts[i]` to
 * `ends[i]` (without) of arrays with `elements` elements. */
struct kernel_rows {
    size_t rows;
    const size_t *starts, *ends;
    size_t elements;
    const uint32_t *columns;
    const double *values;
};
/* Adds the product of the rows with a vector of `length` values to `sums`. */
void kernel_add_products(const struct kernel_rows *matrix, size_t length, const double *vector,
                         double *sums);
/* Returns the scalar product of two vectors. */
double kernel_dot(size_t length, const double *one, const double *other);
/* Computes `vector += factor * other`. */
void kernel_add_multiple(size_t length, double *vector, double factor, const double *other);
/* Computes `vector = other + factor * vector`. */
void kernel_multiply_and_add(size_t length, double *vector, double factor, const double *other);

#endif
