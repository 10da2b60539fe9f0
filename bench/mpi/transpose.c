/* Transposition of a matrix of f64 with MPI: in each iteration every process sends a part of its
 * rows to every other. The layout is that of `apps/src/transpose`.
 *
 * The matrix consists of tiles. Each process has a block of rows of tiles, and stores its tiles
 * column by column, so that the tiles which another process needs are one range. An iteration
 * stores B = Aᵀ + 1, and the next one takes B as its A. Parts go out column of tiles by column of
 * tiles, and a process transposes its own part while the first ones travel.
 *
 *     transpose --size 2048 --iterations 10
 */
#include "common.h"
#include "kernels.h"

enum { SIDE = 32, VALUES = SIDE * SIDE };

/* Returns the fingerprint of some rows of tiles, continued row of values by row of values. */
static uint64_t fingerprint_rows(uint64_t print, const double *part, long rows, long tiles)
{
    for (long i = 0; i < rows * SIDE; i++) {
        for (long column = 0; column < tiles; column++) {
            const double *tile = part + (column * rows + i / SIDE) * VALUES;
            print = fingerprint(print, tile + i % SIDE * SIDE, SIDE * sizeof(double));
        }
    }
    return print;
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    long n = number(argc, argv, "--size", 2048);
    long iterations = number(argc, argv, "--iterations", 10);
    if (n % SIDE != 0)
        fail("--size is a multiple of 32");
    long tiles = n / SIDE;
    if (tiles < ranks)
        fail("there are more processes than rows of tiles");
    long first = first_of(tiles, rank), mine = first_of(tiles, rank + 1) - first;
    size_t values = (size_t)(mine * tiles * VALUES);
    double *matrix[2] = {zeroed(values, sizeof(double), 0), zeroed(values, sizeof(double), 9)};
    for (long column = 0; column < tiles; column++)
        for (long row = 0; row < mine; row++)
            for (long v = 0; v < VALUES; v++)
                matrix[0][(column * mine + row) * VALUES + v] = uniform(
                    1, (uint64_t)(((first + row) * SIDE + v / SIDE) * n + column * SIDE + v % SIDE));
    double *received = zeroed(values, sizeof(double), 0);
    size_t messages = (size_t)(tiles * ranks);
    MPI_Request *sends = zeroed(messages, sizeof *sends, 0);
    MPI_Request *receives = zeroed(messages, sizeof *receives, 0);
    /* Tiles of a message: their first row in the matrix, their number, and this process's row that
     * they become. */
    struct arriving {
        const double *data;
        long theirs, count, row;
    } *arriving = zeroed(messages, sizeof *arriving, 0);

    double started = time_together();
    for (long step = 0; step < iterations; step++) {
        const double *old = matrix[step % 2];
        double *new = matrix[(step + 1) % 2];
        int sent = 0, expected = 0, done;
        double *place = received;
        for (long row = 0; row < mine; row++) {
            for (int k = 1; k < ranks; k++) {
                int from = (rank + ranks - k) % ranks;
                long theirs = first_of(tiles, from), count = first_of(tiles, from + 1) - theirs;
                arriving[expected] = (struct arriving){place, theirs, count, row};
                MPI_Irecv(place, (int)(count * VALUES), MPI_DOUBLE, from, (int)row, MPI_COMM_WORLD,
                          &receives[expected++]);
                place += count * VALUES;
            }
        }
        for (int k = 1; k < ranks; k++) {
            int to = (rank + k) % ranks;
            long begin = first_of(tiles, to), end = first_of(tiles, to + 1);
            for (long column = begin; column < end; column++)
                MPI_Isend(old + column * mine * VALUES, (int)(mine * VALUES), MPI_DOUBLE, to,
                          (int)(column - begin), MPI_COMM_WORLD, &sends[sent++]);
        }
        for (long row = 0; row < mine; row++) {
            const double *column = old + (first + row) * mine * VALUES;
            for (long i = 0; i < mine; i++)
                kernel_transpose(column + i * VALUES, new + ((first + i) * mine + row) * VALUES);
            /* Open MPI moves long messages only inside of calls. */
            MPI_Testall(sent, sends, &done, MPI_STATUSES_IGNORE);
        }
        for (int left = expected; left > 0; left--) {
            int which;
            MPI_Waitany(expected, receives, &which, MPI_STATUS_IGNORE);
            const struct arriving *here = &arriving[which];
            for (long i = 0; i < here->count; i++)
                kernel_transpose(here->data + i * VALUES,
                          new + ((here->theirs + i) * mine + here->row) * VALUES);
        }
        MPI_Waitall(sent, sends, MPI_STATUSES_IGNORE);
    }
    double seconds = time_together() - started;

    const double *result = matrix[iterations % 2];
    if (rank != 0) {
        MPI_Send(result, (int)values, MPI_DOUBLE, 0, 9, MPI_COMM_WORLD);
    } else {
        uint64_t hash = fingerprint_rows(FINGERPRINT_START, result, mine, tiles);
        for (int r = 1; r < ranks; r++) {
            long rows = first_of(tiles, r + 1) - first_of(tiles, r);
            size_t count = (size_t)(rows * tiles * VALUES);
            double *theirs = zeroed(count, sizeof(double), 0);
            MPI_Recv(theirs, (int)count, MPI_DOUBLE, r, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            hash = fingerprint_rows(hash, theirs, rows, tiles);
        }
        printf("{\"mops\":%.3f,\"seconds\":%.9f,\"check\":\"%016llx\"}\n",
               (double)n * (double)n * (double)iterations / seconds / 1e6, seconds,
               (unsigned long long)hash);
    }
    MPI_Finalize();
    return 0;
}
