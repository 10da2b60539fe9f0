/* Himeno benchmark with MPI: the program of `apps/src/himeno` with messages in place of shared
 * memory.
 *
 * Planes are dealt out in blocks. Each iteration relaxes the two outer planes of a block first,
 * sends them, and relaxes the inner planes while the messages travel.
 *
 *     himeno --size S --iterations 100
 */
#include "common.h"

enum { LANES = 8, ARRAYS = 12 };

/* Results of independent serial programs (f32, no fused multiply-add). */
static const struct known {
    const char *size;
    long iterations;
    double gosa;
    uint64_t hash;
} KNOWN[] = {
    {"XS", 3, 6.229796415e-03, UINT64_C(0xd7a32fbe389b9614)},
    {"XS", 100, 2.317158918e-03, UINT64_C(0x8d5d87ddd7e48c09)},
    {"S", 3, 3.296793931e-03, UINT64_C(0x21957d23e43d9837)},
    {"S", 100, 2.147504499e-03, UINT64_C(0xc7b03b55c2081330)},
    {"S", 200, 1.688480470e-03, UINT64_C(0x9ffd6fc511f6f42d)},
    {"M", 10, 1.636297619e-03, UINT64_C(0xc731a226a9808a40)},
};

/* Values of a, b, c, bnd and wrk1 in the benchmark. */
static const float VALUES[ARRAYS] = {1, 1, 1, 1.0f / 6.0f, 0, 0, 0, 1, 1, 1, 1, 0};

static size_t planes, rows, columns, plane;
/* Coefficients for the planes of this process, each in an array of its own as in the original. */
static float *coefficient[ARRAYS];

/* Relaxes one row. `old` and `fresh` point to column 0. `at` is the place of the row in the
 * coefficients. */
static void relax_row(const float *restrict above, const float *restrict here,
                      const float *restrict below, size_t at, float *restrict fresh,
                      float *restrict residual)
{
    const float *restrict a0 = coefficient[0] + at, *restrict a1 = coefficient[1] + at;
    const float *restrict a2 = coefficient[2] + at, *restrict a3 = coefficient[3] + at;
    const float *restrict b0 = coefficient[4] + at, *restrict b1 = coefficient[5] + at;
    const float *restrict b2 = coefficient[6] + at, *restrict c0 = coefficient[7] + at;
    const float *restrict c1 = coefficient[8] + at, *restrict c2 = coefficient[9] + at;
    const float *restrict bnd = coefficient[10] + at, *restrict wrk1 = coefficient[11] + at;
    const float *above_p = above + columns, *above_m = above - columns;
    const float *here_p = here + columns, *here_m = here - columns;
    const float *below_p = below + columns, *below_m = below - columns;
    const size_t end = columns - 1;
    for (size_t k = 1; k < end; k++) {
        float s0 = a0[k] * below[k] + a1[k] * here_p[k] + a2[k] * here[k + 1]
            + b0[k] * (below_p[k] - below_m[k] - above_p[k] + above_m[k])
            + b1[k] * (here_p[k + 1] - here_m[k + 1] - here_p[k - 1] + here_m[k - 1])
            + b2[k] * (below[k + 1] - above[k + 1] - below[k - 1] + above[k - 1])
            + c0[k] * above[k] + c1[k] * here_m[k] + c2[k] * here[k - 1] + wrk1[k];
        float ss = (s0 * a3[k] - here[k]) * bnd[k];
        residual[k] = ss;
        fresh[k] = here[k] + 0.8f * ss;
    }
}

/* Relaxes plane `local` of this process. `old` and `fresh` point to the plane before the first
 * own plane. Returns the sum of squared residuals. */
static double relax_plane(size_t local, const float *old, float *fresh, float *residual)
{
    double lanes[LANES] = {0};
    const float *here = old + (local + 1) * plane;
    for (size_t j = 1; j + 1 < rows; j++) {
        size_t row = j * columns;
        relax_row(here - plane + row, here + row, here + plane + row, local * plane + row,
                  fresh + (local + 1) * plane + row, residual);
        const float *r = residual + 1;
        size_t left = columns - 2;
        for (; left >= LANES; left -= LANES, r += LANES)
            for (int l = 0; l < LANES; l++)
                lanes[l] += (double)r[l] * (double)r[l];
        for (size_t l = 0; l < left; l++)
            lanes[l] += (double)r[l] * (double)r[l];
    }
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *size = option(argc, argv, "--size", "S");
    long iterations = number(argc, argv, "--iterations", 100);
    if (strcmp(size, "XS") == 0)
        planes = 32, rows = 32, columns = 64;
    else if (strcmp(size, "S") == 0)
        planes = 64, rows = 64, columns = 128;
    else if (strcmp(size, "M") == 0)
        planes = 128, rows = 128, columns = 256;
    else
        fail("--size is XS, S or M");
    if (ranks > 16)
        fail("more processes than 16 would leave too few planes to each");
    plane = rows * columns;
    size_t first = (size_t)first_of((long)planes, rank);
    size_t mine = (size_t)first_of((long)planes, rank + 1) - first;
    for (int n = 0; n < ARRAYS; n++) {
        coefficient[n] = zeroed(mine * plane, sizeof(float), (size_t)(5 * n));
        for (size_t i = 0; i < mine * plane; i++)
            coefficient[n][i] = VALUES[n];
    }
    /* One plane of halo on both sides. */
    float *field[2];
    float last = (float)(planes - 1);
    for (int f = 0; f < 2; f++) {
        field[f] = zeroed((mine + 2) * plane, sizeof(float), (size_t)f);
        for (size_t i = 0; i < mine + 2; i++) {
            /* Unsigned arithmetic wraps for the plane before plane 0, which nobody reads. */
            size_t global = first + i - 1;
            float value = (float)(global * global) / (last * last);
            for (size_t k = 0; k < plane; k++)
                field[f][i * plane + k] = value;
        }
    }
    float *residual = zeroed(columns, sizeof(float), 40);
    double *sums = zeroed(planes, sizeof(double), 0);
    int before = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int after = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[2][4];
    for (int f = 0; f < 2; f++) {
        int count = (int)plane;
        float *p = field[f];
        MPI_Recv_init(p, count, MPI_FLOAT, before, 0, MPI_COMM_WORLD, &requests[f][0]);
        MPI_Recv_init(p + (mine + 1) * plane, count, MPI_FLOAT, after, 1, MPI_COMM_WORLD,
                      &requests[f][1]);
        MPI_Send_init(p + plane, count, MPI_FLOAT, before, 1, MPI_COMM_WORLD, &requests[f][2]);
        MPI_Send_init(p + mine * plane, count, MPI_FLOAT, after, 0, MPI_COMM_WORLD,
                      &requests[f][3]);
    }
    /* The first and the last plane of the field stay as they are. */
    size_t begin = rank == 0 ? 1 : 0, end = rank == ranks - 1 ? mine - 1 : mine;

    double started = time_together();
    int now = 0;
    for (long n = 0; n < iterations; n++, now = !now) {
        const float *old = field[now];
        float *fresh = field[!now];
        MPI_Request *halo = requests[!now];
        MPI_Startall(2, halo);
        sums[first + begin] = relax_plane(begin, old, fresh, residual);
        MPI_Start(&halo[2]);
        if (end - 1 > begin)
            sums[first + end - 1] = relax_plane(end - 1, old, fresh, residual);
        MPI_Start(&halo[3]);
        for (size_t i = begin + 1; i + 1 < end; i++) {
            sums[first + i] = relax_plane(i, old, fresh, residual);
            /* Open MPI moves long messages only inside of calls. */
            int done;
            MPI_Testall(4, halo, &done, MPI_STATUSES_IGNORE);
        }
        MPI_Waitall(4, halo, MPI_STATUSES_IGNORE);
    }
    MPI_Allreduce(MPI_IN_PLACE, sums, (int)planes, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double gosa = 0;
    for (size_t i = 0; i < planes; i++)
        gosa += sums[i];
    double seconds = MPI_Wtime() - started;

    int counts[16], starts[16];
    for (int r = 0; r < ranks; r++) {
        starts[r] = (int)((size_t)first_of((long)planes, r) * plane);
        counts[r] = (int)((size_t)first_of((long)planes, r + 1) * plane) - starts[r];
    }
    float *whole = rank == 0 ? zeroed(planes * plane, sizeof(float), 0) : NULL;
    MPI_Gatherv(field[now] + plane, (int)(mine * plane), MPI_FLOAT, whole, counts, starts,
                MPI_FLOAT, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        uint64_t hash = fingerprint(FINGERPRINT_START, whole, planes * plane * sizeof(float));
        for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
            const struct known *known = &KNOWN[i];
            if (strcmp(known->size, size) != 0 || known->iterations != iterations)
                continue;
            double off = gosa / known->gosa - 1;
            if (known->hash != hash || off > 1e-9 || off < -1e-9)
                fail("wrong result: the field is not the published one");
        }
        double points = (double)(planes - 3) * (double)(rows - 3) * (double)(columns - 3);
        printf("{\"mflops\":%.3f,\"seconds\":%.9f,\"check\":\"%016llx\",\"gosa\":%.9e}\n",
               34 * points * (double)iterations / seconds / 1e6, seconds,
               (unsigned long long)hash, gosa);
    }
    MPI_Finalize();
    return 0;
}
