/* Himeno benchmark with MPI: the program of `apps/src/himeno` with messages in place of shared
 * memory.
 *
 * Planes are dealt out in blocks. Each iteration relaxes the two outer planes of a block first,
 * sends them, and relaxes the inner planes while the messages travel.
 *
 *     himeno --size S --iterations 100
 */
#include "common.h"
#include "kernels.h"

enum { ARRAYS = 12 };

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

/* Relaxes plane `local` of this process. `old` and `fresh` point to the plane before the first
 * own plane. Returns the sum of squared residuals. */
static double relax_plane(size_t local, const float *old, float *fresh, float *residual)
{
    const float *these[ARRAYS];
    for (int n = 0; n < ARRAYS; n++)
        these[n] = coefficient[n] + local * plane;
    return kernel_relax_plane(rows, columns, these, old + local * plane,
                              fresh + (local + 1) * plane, residual);
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
    float *residual = zeroed(columns + 8, sizeof(float), 40);
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
