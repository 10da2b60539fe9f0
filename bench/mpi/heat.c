/* Heat equation in two dimensions with MPI: explicit steps of a 5-point stencil in f64.
 *
 * Rows are dealt out in blocks. Each step computes the two outer rows of a block first, sends them,
 * and computes the inner rows while the messages travel. Each step ends with the sum of squared
 * changes over all processes, by which a program would stop. The border keeps its values.
 *
 *     heat --size 1024 --iterations 200
 */
#include "common.h"
#include "kernels.h"

enum { FLOPS_PER_POINT = 9 };

static size_t n;

int main(int argc, char **argv)
{
    start(&argc, &argv);
    n = (size_t)number(argc, argv, "--size", 1024);
    long iterations = number(argc, argv, "--iterations", 200);
    if (n < 3 * (size_t)ranks || n < 3)
        fail("--size is too small for so many processes");
    size_t first = (size_t)first_of((long)n, rank);
    size_t mine = (size_t)first_of((long)n, rank + 1) - first;
    /* One row of halo on both sides. */
    double *field[2];
    for (int f = 0; f < 2; f++) {
        field[f] = zeroed((mine + 2) * n, sizeof(double), (size_t)(9 * f));
        for (size_t i = 1; i <= mine; i++)
            for (size_t j = 0; j < n; j++)
                field[f][i * n + j] = uniform(1, (first + i - 1) * n + j);
    }
    int before = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int after = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Request requests[2][4];
    for (int f = 0; f < 2; f++) {
        double *p = field[f];
        MPI_Recv_init(p, (int)n, MPI_DOUBLE, before, 0, MPI_COMM_WORLD, &requests[f][0]);
        MPI_Recv_init(p + (mine + 1) * n, (int)n, MPI_DOUBLE, after, 1, MPI_COMM_WORLD,
                      &requests[f][1]);
        MPI_Send_init(p + n, (int)n, MPI_DOUBLE, before, 1, MPI_COMM_WORLD, &requests[f][2]);
        MPI_Send_init(p + mine * n, (int)n, MPI_DOUBLE, after, 0, MPI_COMM_WORLD,
                      &requests[f][3]);
    }
    MPI_Startall(4, requests[0]);
    MPI_Waitall(4, requests[0], MPI_STATUSES_IGNORE);
    size_t begin = rank == 0 ? 2 : 1, end = rank == ranks - 1 ? mine : mine + 1;

    double residual = 0, started = time_together();
    int now = 0;
    for (long step = 0; step < iterations; step++, now = !now) {
        const double *old = field[now];
        double *next = field[!now];
        MPI_Request *halo = requests[!now];
#define STEP_ROW(i) \
    kernel_step_row(n, old + ((i) - 1) * n, old + (i) * n, old + ((i) + 1) * n, next + (i) * n)
        MPI_Startall(2, halo);
        residual = STEP_ROW(begin);
        MPI_Start(&halo[2]);
        if (end - 1 > begin)
            residual += STEP_ROW(end - 1);
        MPI_Start(&halo[3]);
        for (size_t i = begin + 1; i + 1 < end; i++)
            residual += STEP_ROW(i);
        MPI_Waitall(4, halo, MPI_STATUSES_IGNORE);
        MPI_Allreduce(MPI_IN_PLACE, &residual, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    }
    double seconds = time_together() - started;

    if (rank != 0) {
        MPI_Send(field[now] + n, (int)(mine * n), MPI_DOUBLE, 0, 9, MPI_COMM_WORLD);
    } else {
        uint64_t hash = fingerprint(FINGERPRINT_START, field[now] + n, mine * n * sizeof(double));
        for (int r = 1; r < ranks; r++) {
            size_t count = (size_t)(first_of((long)n, r + 1) - first_of((long)n, r)) * n;
            double *theirs = zeroed(count, sizeof(double), 0);
            MPI_Recv(theirs, (int)count, MPI_DOUBLE, r, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            hash = fingerprint(hash, theirs, count * sizeof(double));
        }
        double points = (double)(n - 2) * (double)(n - 2);
        printf("{\"mflops\":%.3f,\"seconds\":%.9f,\"check\":\"%016llx\",\"residual\":%.9e}\n",
               FLOPS_PER_POINT * points * (double)iterations / seconds / 1e6, seconds,
               (unsigned long long)hash, residual);
    }
    MPI_Finalize();
    return 0;
}
