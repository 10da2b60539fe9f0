/* NAS CG with MPI: an estimate of the smallest eigenvalue of a sparse matrix by inverse iteration,
 * each step of which is 25 iterations of the conjugate gradient method.
 *
 * Rows of the matrix are dealt out in blocks. Each process has the whole vector that is multiplied.
 * It multiplies the columns of its own part while the parts of the others travel.
 *
 *     cg --size A
 */
#include "common.h"
#include "kernels.h"

#include <math.h>

/* Classes of the benchmark, with the published results. */
static const struct class {
    const char *name;
    long n, nonzeros, iterations;
    double shift, zeta;
} CLASSES[] = {
    {"S", 1400, 7, 15, 10, 8.5971775078648},
    {"W", 7000, 8, 15, 12, 10.362595087124},
    {"A", 14000, 11, 15, 20, 17.130235054029},
    {"B", 75000, 13, 75, 60, 22.712745482631},
};

enum { STEPS = 25, NONZEROS_MAX = 16 };
static const double CONDITION = 0.1;

static const struct class *class;
/* Rows of this process: `mine` from `first` on. */
static long n, first, mine;
/* Own rows of the matrix. A row has columns before, in, and after this process's part of the
 * vector: three consecutive ranges of places. */
static size_t *range[4];
static double *value;
static uint32_t *column;
/* Number generator of the benchmark: 48-bit linear congruential. */
static uint64_t state = 314159265;

static double next_random(void)
{
    const uint64_t mask = (UINT64_C(1) << 46) - 1;
    state = state * UINT64_C(1220703125) & mask;
    return (double)state * 0x1p-46;
}

struct element {
    long row, column;
    double value;
};

/* One random sparse vector of the matrix's sum of outer products. */
struct row {
    int count;
    long place[NONZEROS_MAX];
    double value[NONZEROS_MAX];
};

static void random_row(struct row *row, long own_place, long power)
{
    row->count = 0;
    while (row->count < class->nonzeros) {
        double what = next_random();
        long place = (long)(next_random() * (double)power);
        int seen = place >= n;
        for (int i = 0; i < row->count; i++)
            seen |= row->place[i] == place;
        if (!seen) {
            row->place[row->count] = place;
            row->value[row->count++] = what;
        }
    }
    for (int i = 0; i < row->count; i++) {
        if (row->place[i] == own_place) {
            row->value[i] = 0.5;
            return;
        }
    }
    row->place[row->count] = own_place;
    row->value[row->count++] = 0.5;
}

/* Makes this process's rows of the matrix. */
static void make_matrix(void)
{
    long power = 1;
    while (power < n)
        power *= 2;
    struct row *rows = zeroed((size_t)n, sizeof *rows, 0);
    long *starts = zeroed((size_t)mine + 1, sizeof *starts, 0);
    for (long i = 0; i < n; i++) {
        random_row(&rows[i], i, power);
        for (int k = 0; k < rows[i].count; k++) {
            long at = rows[i].place[k] - first;
            if (at >= 0 && at < mine)
                starts[at + 1] += rows[i].count;
        }
    }
    for (long i = 0; i < mine; i++)
        starts[i + 1] += starts[i];
    for (int k = 0; k < 4; k++)
        range[k] = zeroed((size_t)mine, sizeof *range[k], 0);
    value = zeroed((size_t)starts[mine], sizeof *value, 1);
    column = zeroed((size_t)starts[mine], sizeof *column, 2);
    long *filled = zeroed((size_t)mine, sizeof *filled, 0);
    double size = 1, ratio = pow(CONDITION, 1.0 / (double)n);
    for (long i = 0; i < n; i++, size *= ratio) {
        const struct row *row = &rows[i];
        for (int k = 0; k < row->count; k++) {
            long at = row->place[k] - first;
            if (at < 0 || at >= mine)
                continue;
            for (int l = 0; l < row->count; l++) {
                double add = row->value[l] * (size * row->value[k]);
                if (row->place[l] == row->place[k] && row->place[k] == i)
                    add += CONDITION - class->shift;
                /* Columns of a row are kept in order; equal ones are added. */
                long begin = starts[at], end = begin + filled[at], place = end;
                uint32_t want = (uint32_t)row->place[l];
                while (place > begin && column[place - 1] > want)
                    place--;
                if (place > begin && column[place - 1] == want) {
                    value[place - 1] += add;
                    continue;
                }
                memmove(column + place + 1, column + place, (size_t)(end - place) * sizeof *column);
                memmove(value + place + 1, value + place, (size_t)(end - place) * sizeof *value);
                column[place] = want;
                value[place] = add;
                filled[at]++;
            }
        }
    }
    /* Closes the gaps between the rows, and finds the own columns of each. */
    long next = 0;
    for (long i = 0; i < mine; i++) {
        memmove(column + next, column + starts[i], (size_t)filled[i] * sizeof *column);
        memmove(value + next, value + starts[i], (size_t)filled[i] * sizeof *value);
        long end = next + filled[i], own = next;
        range[0][i] = (size_t)next;
        while (own < end && column[own] < (uint32_t)first)
            own++;
        range[1][i] = (size_t)own;
        while (own < end && column[own] < (uint32_t)(first + mine))
            own++;
        range[2][i] = (size_t)own;
        range[3][i] = (size_t)end;
        next = end;
    }
}

/* Requests that send this process's part of `vector` to all others and receive theirs. */
static void exchange_init(double *vector, MPI_Request *requests)
{
    int count = 0;
    for (int r = 0; r < ranks; r++) {
        if (r == rank)
            continue;
        long start = first_of(n, r), length = first_of(n, r + 1) - start;
        MPI_Recv_init(vector + start, (int)length, MPI_DOUBLE, r, 0, MPI_COMM_WORLD,
                      &requests[count++]);
    }
    for (int r = 0; r < ranks; r++)
        if (r != rank)
            MPI_Send_init(vector + first, (int)mine, MPI_DOUBLE, r, 0, MPI_COMM_WORLD,
                          &requests[count++]);
}

/* Adds the product of the own rows' columns of range `which` with `vector`. */
static void add_products(int which, const double *vector, double *result)
{
    const struct kernel_rows rows = {
        .rows = (size_t)mine,
        .starts = range[which],
        .ends = range[which + 1],
        .elements = mine > 0 ? range[3][mine - 1] : 0,
        .columns = column,
        .values = value,
    };
    kernel_add_products(&rows, (size_t)n, vector, result);
}

/* Computes `result = matrix * vector` for the own rows. The requests are those of the vector. */
static void multiply(const double *vector, double *restrict result, MPI_Request *requests)
{
    enum { BEFORE, OWN, AFTER };
    int count = 2 * (ranks - 1);
    MPI_Startall(count, requests);
    memset(result, 0, (size_t)mine * sizeof *result);
    add_products(OWN, vector, result);
    MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    if (ranks == 1)
        return;
    add_products(BEFORE, vector, result);
    add_products(AFTER, vector, result);
}

static double dot(const double *a, const double *b)
{
    return kernel_dot((size_t)mine, a, b);
}

static void add_all(double *values, int count)
{
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static double *x, *z, *p, *q, *r;
static MPI_Request *p_requests, *z_requests;

/* Solves matrix * z = x approximately. Returns the norm of the residual. */
static double solve(void)
{
    double *own_p = p + first, *own_z = z + first;
    for (long i = 0; i < mine; i++)
        own_z[i] = 0, r[i] = own_p[i] = x[i];
    double rho = dot(r, r);
    add_all(&rho, 1);
    for (int step = 0; step < STEPS; step++) {
        multiply(p, q, p_requests);
        double curvature = dot(own_p, q);
        add_all(&curvature, 1);
        double alpha = rho / curvature;
        kernel_add_multiple((size_t)mine, own_z, alpha, own_p);
        kernel_add_multiple((size_t)mine, r, -alpha, q);
        double before = rho;
        rho = dot(r, r);
        add_all(&rho, 1);
        kernel_multiply_and_add((size_t)mine, own_p, rho / before, r);
    }
    multiply(z, q, z_requests);
    for (long i = 0; i < mine; i++)
        q[i] = x[i] - q[i];
    double norm = dot(q, q);
    add_all(&norm, 1);
    return sqrt(norm);
}

/* Runs one step of the inverse iteration. Returns the estimate. */
static double estimate(double *residual)
{
    *residual = solve();
    double both[2] = {dot(x, z + first), dot(z + first, z + first)};
    add_all(both, 2);
    double scale = 1 / sqrt(both[1]);
    for (long i = 0; i < mine; i++)
        x[i] = scale * z[first + i];
    return class->shift + 1 / both[0];
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *size = option(argc, argv, "--size", "A");
    for (size_t i = 0; i < sizeof CLASSES / sizeof *CLASSES; i++)
        if (strcmp(CLASSES[i].name, size) == 0)
            class = &CLASSES[i];
    if (!class)
        fail("--size is S, W, A or B");
    n = class->n;
    first = first_of(n, rank);
    mine = first_of(n, rank + 1) - first;
    next_random(); /* the benchmark draws one number before the matrix */
    make_matrix();
    x = zeroed((size_t)mine, sizeof *x, 3), q = zeroed((size_t)mine, sizeof *q, 4);
    r = zeroed((size_t)mine, sizeof *r, 5);
    z = zeroed((size_t)n, sizeof *z, 6), p = zeroed((size_t)n, sizeof *p, 7);
    p_requests = zeroed((size_t)(2 * ranks), sizeof *p_requests, 0);
    z_requests = zeroed((size_t)(2 * ranks), sizeof *z_requests, 0);
    exchange_init(p, p_requests);
    exchange_init(z, z_requests);
    for (long i = 0; i < mine; i++)
        x[i] = 1;
    /* One step is not timed, as in the original. */
    double residual, zeta = estimate(&residual);
    for (long i = 0; i < mine; i++)
        x[i] = 1;
    double started = time_together();
    for (long i = 0; i < class->iterations; i++)
        zeta = estimate(&residual);
    double seconds = time_together() - started;
    double off = zeta / class->zeta - 1;
    if (!(off < 1e-10 && off > -1e-10))
        fail("wrong result: zeta is not the published one");
    if (rank == 0) {
        double pairs = (double)(class->nonzeros * (class->nonzeros + 1));
        double flops = 2.0 * (double)class->iterations * (double)n
            * (3 + pairs + STEPS * (5 + pairs) + 3);
        printf("{\"mflops\":%.3f,\"seconds\":%.9f,\"check\":%.13f,\"residual\":%.3e}\n",
               flops / seconds / 1e6, seconds, zeta, residual);
    }
    MPI_Finalize();
    return 0;
}
