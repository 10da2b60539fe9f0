/* Barriers of MPI: the median time of one, in microseconds. With `--size`, each process also sends
 * that many bytes to the next one, which has them when the barrier ends.
 *
 *     barrier --iterations 10000 --size 0
 */
#include "common.h"

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    long iterations = number(argc, argv, "--iterations", 10000);
    const char *text = option(argc, argv, "--size", "0");
    long size = strcmp(text, "0") == 0 ? 0 : number(argc, argv, "--size", 0);
    char *sent = zeroed((size_t)size + 1, 1, 0), *received = zeroed((size_t)size + 1, 1, 1);
    double *times = zeroed((size_t)iterations, sizeof *times, 0);
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    double started = time_together();
    for (long i = 0; i < iterations; i++) {
        double begun = MPI_Wtime();
        if (size > 0) {
            MPI_Request requests[2];
            MPI_Irecv(received, (int)size, MPI_BYTE, before, 0, MPI_COMM_WORLD, &requests[0]);
            MPI_Isend(sent, (int)size, MPI_BYTE, next, 0, MPI_COMM_WORLD, &requests[1]);
            MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        times[i] = MPI_Wtime() - begun;
    }
    double seconds = MPI_Wtime() - started;
    qsort(times, (size_t)iterations, sizeof *times, compare);
    if (rank == 0)
        printf("{\"us\":%.4f,\"seconds\":%.9f,\"check\":%ld}\n", times[iterations / 2] * 1e6,
               seconds, iterations);
    MPI_Finalize();
    return 0;
}
