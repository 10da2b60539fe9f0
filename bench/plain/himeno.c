/* Himeno benchmark over arrays of Oikaze by plain pointers: no guard, and no call but barriers.
 * Where all nodes map one memory, that is all a program needs. The inner loops are those of
 * `apps/src/himeno` and `bench/mpi/himeno.c`.
 *
 *     himeno --size S --iterations 100
 */
#include <inttypes.h>
#include <oikaze.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../mpi/kernels.h"

enum { ARRAYS = 12 };
/* Values of a, b, c, bnd and wrk1 in the benchmark. */
static const float VALUES[ARRAYS] = {1, 1, 1, 1.0f / 6.0f, 0, 0, 0, 1, 1, 1, 1, 0};

static const struct size {
    const char *name;
    size_t planes, rows, columns;
} SIZES[] = {{"XS", 32, 32, 64}, {"S", 64, 64, 128}, {"M", 128, 128, 256}};

__attribute__((noreturn)) static void fail(const char *what)
{
    fprintf(stderr, "himeno: %s\n", what);
    exit(1);
}

/* Returns the text after option `name`, or `otherwise` if the option is not there. */
static const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return otherwise;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Returns memory for floats that begins `stagger` cache lines after the start of a page. Arrays
 * that are read together would otherwise fall into the same sets of the first cache. */
static float *floats(size_t count, size_t stagger)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, count * sizeof(float) + stagger * 64) != 0)
        fail("there is not enough memory");
    return (float *)memory + stagger * 64 / sizeof(float);
}

static float *plain(oik_array *array)
{
    void *address;
    oik_check(oik_array_plain(array, &address, NULL));
    return address;
}

int main(int argc, char **argv)
{
    const char *name = option(argc, argv, "--size", "S");
    long iterations = strtol(option(argc, argv, "--iterations", "100"), NULL, 10);
    const struct size *size = NULL;
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++)
        if (strcmp(SIZES[i].name, name) == 0)
            size = &SIZES[i];
    if (!size || iterations < 1)
        fail("--size is XS, S or M, and --iterations a positive number");
    oik_job *job;
    uint32_t rank;
    oik_check(oik_join(&job));
    oik_check(oik_rank(job, &rank));
    size_t rows = size->rows, columns = size->columns, plane = rows * columns;
    size_t shape[3] = {size->planes, rows, columns};
    oik_array *arrays[2];
    oik_range home[3];
    oik_check(oik_array_new(job, "p0", shape, 3, OIK_F32, &arrays[0]));
    oik_check(oik_array_new(job, "p1", shape, 3, OIK_F32, &arrays[1]));
    oik_check(oik_array_home_block(arrays[0], rank, home, 3));
    size_t first = home[0].first, mine = home[0].end - first;
    float *field[2] = {plain(arrays[0]), plain(arrays[1])};
    float *coefficient[ARRAYS], last = (float)(size->planes - 1);
    for (int n = 0; n < ARRAYS; n++) {
        coefficient[n] = floats(mine * plane, (size_t)(5 * n));
        for (size_t i = 0; i < mine * plane; i++)
            coefficient[n][i] = VALUES[n];
    }
    for (int f = 0; f < 2; f++)
        for (size_t i = first; i < home[0].end; i++)
            for (size_t k = 0; k < plane; k++)
                field[f][i * plane + k] = (float)(i * i) / (last * last);
    float *residuals = floats(columns + 8, 40);
    double *sums = calloc(size->planes, sizeof *sums), gosa = 0;
    if (!sums)
        fail("there is not enough memory");
    size_t begin = first > 1 ? first : 1;
    size_t end = home[0].end < size->planes - 1 ? home[0].end : size->planes - 1;

    oik_check(oik_barrier(job));
    double started = now();
    for (long n = 0; n < iterations; n++) {
        const float *old = field[n % 2];
        float *fresh = field[(n + 1) % 2];
        for (size_t i = begin; i < end; i++) {
            const float *these[ARRAYS];
            for (int c = 0; c < ARRAYS; c++)
                these[c] = coefficient[c] + (i - first) * plane;
            sums[i] = kernel_relax_plane(rows, columns, these, old + (i - 1) * plane,
                                         fresh + i * plane, residuals);
        }
        oik_check(oik_barrier(job));
    }
    /* Each node gives its planes' sums, and 0 for all others, so the additions are exact. */
    oik_check(oik_barrier_reduce(job, OIK_F64, OIK_SUM, sums, size->planes));
    for (size_t i = 0; i < size->planes; i++)
        gosa += sums[i];
    double seconds = now() - started;

    if (rank == 0) {
        uint64_t hash = UINT64_C(1469598103934665603);
        const unsigned char *bytes = (const unsigned char *)field[iterations % 2];
        for (size_t i = 0; i < size->planes * plane * sizeof(float); i++)
            hash = (hash ^ bytes[i]) * UINT64_C(0x00000100000001b3);
        double points =
            (double)(size->planes - 3) * (double)(rows - 3) * (double)(columns - 3);
        printf("{\"mflops\":%.3f,\"seconds\":%.9f,\"check\":\"%016" PRIx64 "\",\"gosa\":%.9e}\n",
               34 * points * (double)iterations / seconds / 1e6, seconds, hash, gosa);
    }
    oik_check(oik_barrier(job));
    oik_check(oik_array_release(arrays[0]));
    oik_check(oik_array_release(arrays[1]));
    oik_check(oik_leave(job));
    return 0;
}
