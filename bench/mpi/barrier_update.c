/* Barriers of MPI that bring an update: the processes send `--size` bytes to all others in turn,
 * each with a barrier behind it. Prints the median time of one such round, in microseconds.
 *
 *     barrier_update --iterations 2000 --size 65536
 *
 * As in `oikaze perf barrier-update`, a process writes after it has left the barrier before, so each
 * round begins where the update of the round before has arrived.
 */
#include "common.h"

#ifndef WITHOUT_BARRIERS
#define WITHOUT_BARRIERS 0
#endif

/* Turns of all processes before the measurement, for each way to send. */
#define WARM_UP 16

/* Part of each process, as every process has it. */
static char **parts;
static int size;
static MPI_Request *requests;

/* Sends the part of process `writer` to all others. */
static void send_part(int writer, int by_broadcast)
{
    if (by_broadcast) {
        MPI_Bcast(parts[writer], size, MPI_BYTE, writer, MPI_COMM_WORLD);
    } else if (rank == writer) {
        int count = 0;
        for (int to = 0; to < ranks; to++)
            if (to != rank)
                MPI_Isend(parts[writer], size, MPI_BYTE, to, 0, MPI_COMM_WORLD, &requests[count++]);
        MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
    } else {
        MPI_Recv(parts[writer], size, MPI_BYTE, writer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

/* Lets every process write and send its part once. */
static void one_turn(long turn, int by_broadcast)
{
    uint64_t word = (uint64_t)turn + 1;
    for (int writer = 0; writer < ranks; writer++) {
        if (rank == writer)
            for (int at = 0; at + 8 <= size; at += 8)
                memcpy(parts[writer] + at, &word, sizeof word);
        send_part(writer, by_broadcast);
        if (!WITHOUT_BARRIERS)
            MPI_Barrier(MPI_COMM_WORLD);
        for (int at = 0; rank != writer && at + 8 <= size; at += 8)
            if (memcmp(parts[writer] + at, &word, sizeof word) != 0)
                fail("a part does not have the bytes of its turn");
    }
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    long iterations = number(argc, argv, "--iterations", 2000);
    long bytes = number(argc, argv, "--size", 4096);
    if (bytes < 8 || bytes > 1 << 30)
        fail("--size must be 8 bytes to 1 GiB");
    size = (int)bytes;
    parts = zeroed((size_t)ranks, sizeof *parts, 0);
    for (int of = 0; of < ranks; of++)
        parts[of] = zeroed((size_t)size, 1, 0);
    requests = zeroed((size_t)ranks, sizeof *requests, 0);
    /* The quicker way to send is measured: one broadcast, or a message to each process. */
    double spent[2];
    long turn = 0;
    for (int by_broadcast = 0; by_broadcast < 2; by_broadcast++) {
        double begun = time_together();
        for (int i = 0; i < WARM_UP; i++)
            one_turn(turn++, by_broadcast);
        spent[by_broadcast] = MPI_Wtime() - begun;
    }
    MPI_Bcast(spent, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    int by_broadcast = spent[1] < spent[0];
    long turns = (iterations + ranks - 1) / ranks;
    double *times = zeroed((size_t)turns, sizeof *times, 0);
    double started = time_together();
    for (long i = 0; i < turns; i++) {
        double begun = MPI_Wtime();
        one_turn(turn++, by_broadcast);
        times[i] = (MPI_Wtime() - begun) / ranks;
    }
    double seconds = MPI_Wtime() - started;
    qsort(times, (size_t)turns, sizeof *times, compare);
    if (rank == 0)
        printf("{\"us\":%.4f,\"seconds\":%.9f,\"check\":%ld}\n", times[turns / 2] * 1e6, seconds,
               turns);
    MPI_Finalize();
    return 0;
}
