/* Additions of all processes at the next one's word, one at a time.
 *
 * mpirun -n 4 fetch_add --turns 1000
 * {"each":3.1}    mean time of an addition in microseconds
 */
#include "common.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    long turns = atol(option(argc, argv, "--turns", "1000"));
    int next = (rank + 1) % ranks;
    int64_t *word, one = 1, before = 0;
    MPI_Win window;
    MPI_Win_allocate(sizeof *word, sizeof *word, MPI_INFO_NULL, MPI_COMM_WORLD, &word, &window);
    *word = 0;
    MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
    MPI_Barrier(MPI_COMM_WORLD);
    double begun = 0;
    for (long turn = -turns / 10; turn < turns; turn++) {
        if (turn == 0) {
            MPI_Barrier(MPI_COMM_WORLD);
            begun = MPI_Wtime();
        }
        MPI_Fetch_and_op(&one, &before, MPI_INT64_T, next, 0, MPI_SUM, window);
        MPI_Win_flush(next, window);
        if (before != turn + turns / 10)
            fail("an addition was lost");
    }
    double each = (MPI_Wtime() - begun) * 1e6 / turns;
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    if (rank == 0)
        printf("{\"each\":%.6f}\n", each);
    MPI_Finalize();
    return 0;
}
