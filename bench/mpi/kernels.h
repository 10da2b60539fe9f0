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

#endif
