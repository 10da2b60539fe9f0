/* The Himeno benchmark on a shared array: each node relaxes its planes and reads the adjacent ones
 * through a guard, whose elements came with the last barrier. The field has the same bits on any
 * number of nodes, and those of Oikaze's program in Rust.
 *
 * himeno [SIZE [ITERATIONS]]    SIZE: XS, S or M
 *
 * cc -O2 -ffp-contract=off himeno.c $(pkg-config --cflags --libs oikaze) -o himeno */
#include <inttypes.h>
#include <oikaze.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    const char *name;
    size_t planes, rows, columns;
} SIZES[] = {{"XS", 32, 32, 64}, {"S", 64, 64, 128}, {"M", 128, 128, 256}};

/* Results of an independent serial program: a fingerprint of the field. */
static const struct {
    const char *name;
    int iterations;
    uint64_t hash;
} KNOWN[] = {{"XS", 3, 0xd7a32fbe389b9614},   {"XS", 100, 0x8d5d87ddd7e48c09},
             {"S", 3, 0x21957d23e43d9837},    {"S", 100, 0xc7b03b55c2081330},
             {"S", 200, 0x9ffd6fc511f6f42d},  {"M", 10, 0xc731a226a9808a40}};

static size_t rows, columns;

/* Computes the row j of a plane from the rows around it in three planes, in the order of operations
 * of the original. Adds the squared residuals to the lanes. */
static void relax_row(const float *above, const float *here, const float *below, float *new,
                      size_t j, double lanes[8]) {
    const float a[4] = {1, 1, 1, 1.0f / 6.0f}, b = 0, c = 1, bnd = 1, wrk1 = 0, omega = 0.8f;
    const float *u = above + j * columns, *h = here + j * columns, *d = below + j * columns;
    ptrdiff_t up = -(ptrdiff_t)columns, down = (ptrdiff_t)columns;
    for (ptrdiff_t k = 1; k < (ptrdiff_t)columns - 1; k++) {
        float s0 = a[0] * d[k] + a[1] * h[k + down] + a[2] * h[k + 1] +
                   b * (d[k + down] - d[k + up] - u[k + down] + u[k + up]) +
                   b * (h[k + down + 1] - h[k + up + 1] - h[k + down - 1] + h[k + up - 1]) +
                   b * (d[k + 1] - u[k + 1] - d[k - 1] + u[k - 1]) + c * u[k] + c * h[k + up] +
                   c * h[k - 1] + wrk1;
        float residual = (s0 * a[3] - h[k]) * bnd;
        lanes[(k - 1) % 8] += (double)residual * (double)residual;
        new[j * columns + (size_t)k] = h[k] + omega * residual;
    }
}

/* Computes a plane. Its sum depends on the plane alone. */
static double relax_plane(const float *above, const float *here, const float *below, float *new) {
    double lanes[8] = {0}, sum = 0;
    for (size_t j = 1; j + 1 < rows; j++) relax_row(above, here, below, new, j, lanes);
    for (int n = 0; n < 8; n++) sum += lanes[n];
    return sum;
}

/* The planes first..end of a field, for a guard. */
static const oik_range *planes(size_t first, size_t end, oik_range part[3]) {
    part[0] = (oik_range){first, end};
    part[1] = (oik_range){0, rows};
    part[2] = (oik_range){0, columns};
    return part;
}

/* Relaxes the planes first..end of `new`, of which `halo` has one more at each side. */
static void relax(oik_array *new, size_t first, size_t end, const float *halo, size_t halo_first,
                  double *sums) {
    oik_range part[3];
    oik_view view;
    oik_guard *guard;
    if (first >= end) return;
    oik_check(oik_write(new, planes(first, end, part), 3, &view, &guard));
    size_t plane = rows * columns;
    float *out = view.address;
    for (size_t i = first; i < end; i++, out += plane) {
        const float *here = halo + (i - halo_first) * plane;
        sums[i] = relax_plane(here - plane, here, here + plane, out);
    }
    /* From here on, the planes travel to the nodes that read them. */
    oik_check(oik_guard_release(guard));
}

static void iterate(oik_array *old, oik_array *new, oik_range mine, size_t all, double *sums) {
    oik_range part[3];
    oik_view view;
    oik_guard *guard;
    size_t first = mine.first > 1 ? mine.first : 1, end = mine.end < all - 1 ? mine.end : all - 1;
    if (first >= end) return; /* more nodes than planes */
    oik_check(oik_read(old, planes(first - 1, end + 1, part), 3, &view, &guard));
    /* Borders first: they are sent while the others are computed. */
    size_t inner = first + 1 < end ? first + 1 : end, last = end - 1 > inner ? end - 1 : inner;
    relax(new, first, inner, view.address, first - 1, sums);
    relax(new, last, end, view.address, first - 1, sums);
    relax(new, inner, last, view.address, first - 1, sums);
    oik_check(oik_guard_release(guard));
}

/* FNV-1a of the field, which this node reads from all others, plane by plane. */
static uint64_t fingerprint(oik_array *field, size_t all) {
    uint64_t hash = UINT64_C(1469598103934665603);
    for (size_t i = 0; i < all; i++) {
        oik_range part[3];
        oik_view view;
        oik_guard *guard;
        oik_check(oik_read(field, planes(i, i + 1, part), 3, &view, &guard));
        const unsigned char *bytes = view.address;
        for (size_t n = 0; n < rows * columns * sizeof(float); n++)
            hash = (hash ^ bytes[n]) * UINT64_C(0x100000001b3);
        oik_check(oik_guard_release(guard));
    }
    return hash;
}

static void start(oik_array *field, oik_range mine, size_t all) {
    oik_range part[3];
    oik_view view;
    oik_guard *guard;
    oik_check(oik_write(field, planes(mine.first, mine.end, part), 3, &view, &guard));
    float *out = view.address, last = (float)(all - 1);
    for (size_t i = mine.first; i < mine.end; i++)
        for (size_t n = 0; n < rows * columns; n++) *out++ = (float)(i * i) / (last * last);
    oik_check(oik_guard_release(guard));
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "XS";
    int iterations = argc > 2 ? atoi(argv[2]) : 3;
    size_t all = 0;
    for (size_t n = 0; n < sizeof SIZES / sizeof *SIZES; n++)
        if (strcmp(name, SIZES[n].name) == 0) {
            all = SIZES[n].planes;
            rows = SIZES[n].rows;
            columns = SIZES[n].columns;
        }
    if (all == 0 || iterations < 1) {
        fprintf(stderr, "himeno: sizes are XS, S and M, and there is at least one iteration\n");
        return 2;
    }
    oik_job *job;
    uint32_t rank;
    oik_check(oik_join(&job));
    oik_check(oik_rank(job, &rank));
    oik_array *old, *new;
    oik_range mine[3];
    size_t shape[3] = {all, rows, columns};
    oik_check(oik_array_new(job, "p0", shape, 3, OIK_F32, &old));
    oik_check(oik_array_new(job, "p1", shape, 3, OIK_F32, &new));
    oik_check(oik_array_home_block(old, rank, mine, 3));
    start(old, mine[0], all);
    start(new, mine[0], all);
    double *sums = calloc(all, sizeof *sums), gosa = 0;
    if (sums == NULL) return 1;
    oik_check(oik_barrier(job));

    struct timespec begun, ended;
    timespec_get(&begun, TIME_UTC);
    for (int n = 0; n < iterations; n++) {
        iterate(old, new, mine[0], all, sums);
        oik_check(oik_barrier(job)); /* now all nodes see all planes, and nobody reads `old` */
        oik_array *swapped = old;
        old = new;
        new = swapped;
    }
    /* Each node gives its planes' sums, and 0 for all others, so the additions are exact. */
    oik_check(oik_barrier_reduce(job, OIK_F64, OIK_SUM, sums, all));
    timespec_get(&ended, TIME_UTC);
    for (size_t i = 0; i < all; i++) gosa += sums[i];
    if (rank == 0) {
        uint64_t hash = fingerprint(old, all);
        double seconds = (double)(ended.tv_sec - begun.tv_sec) +
                         1e-9 * (double)(ended.tv_nsec - begun.tv_nsec);
        double points = (double)(all - 3) * (double)(rows - 3) * (double)(columns - 3);
        fprintf(stderr, "%.0f MFLOPS\n", 34 * points * iterations / seconds / 1e6);
        printf("gosa %.9e, p hash %016" PRIx64 "\n", gosa, hash);
        for (size_t n = 0; n < sizeof KNOWN / sizeof *KNOWN; n++)
            if (strcmp(name, KNOWN[n].name) == 0 && iterations == KNOWN[n].iterations) {
                if (hash != KNOWN[n].hash) {
                    printf("wrong: the hash should be %016" PRIx64 "\n", KNOWN[n].hash);
                    oik_abort(job, 1, "the field is wrong");
                }
                printf("correct\n");
            }
    }
    free(sums);
    oik_check(oik_array_release(old));
    oik_check(oik_array_release(new));
    oik_check(oik_leave(job));
    return 0;
}
