/* Transposition of a matrix of f64 with MPI: in each iteration every process sends a part of its
 * rows to every other.
 *
 * Rows are dealt out in blocks. An iteration stores B[i][j] = A[j][i] + 1, and the next one takes B
 * as its A. The addition changes every value, so that no memory system can skip equal bytes. The
 * process packs a stripe of target rows, sends it, and packs the next one while it travels.
 *
 *     transpose --size 2048 --iterations 10
 */
#include "common.h"

enum { TILE = 16, STRIPE = 64 };

static size_t n, first, mine;

/* Stores rows `from..to` of the transposed own part: `out[(c - from) * stride + i]` becomes
 * `in[i][c] + 1` for all own rows i. Tiles keep both sides in the first cache. */
static void transpose(const double *restrict in, size_t from, size_t to, double *restrict out,
                      size_t stride)
{
    for (size_t c = from; c < to; c += TILE) {
        size_t c_end = c + TILE < to ? c + TILE : to;
        for (size_t i = 0; i < mine; i += TILE) {
            size_t i_end = i + TILE < mine ? i + TILE : mine;
            for (size_t column = c; column < c_end; column++)
                for (size_t row = i; row < i_end; row++)
                    out[(column - from) * stride + row] = in[row * n + column] + 1.0;
        }
    }
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    n = (size_t)number(argc, argv, "--size", 2048);
    long iterations = number(argc, argv, "--iterations", 10);
    first = (size_t)first_of((long)n, rank);
    mine = (size_t)first_of((long)n, rank + 1) - first;
    double *matrix[2] = {zeroed(mine * n, sizeof(double), 0), zeroed(mine * n, sizeof(double), 9)};
    for (size_t k = 0; k < mine * n; k++)
        matrix[0][k] = uniform(1, first * n + k);
    /* All parts for others beside each other, and theirs: stripes of target rows. */
    double *packed = zeroed(n * mine, sizeof(double), 0);
    double *received = zeroed(n * mine, sizeof(double), 0);
    size_t stripes = (size_t)ranks * (n / STRIPE / (size_t)ranks + 2);
    MPI_Request *sends = zeroed(stripes, sizeof *sends, 0);
    MPI_Request *receives = zeroed(stripes, sizeof *receives, 0);
    struct stripe {
        const double *data;
        size_t row, rows, column, columns;
    } *arriving = zeroed(stripes, sizeof *arriving, 0);

    double started = time_together();
    for (long step = 0; step < iterations; step++) {
        const double *from = matrix[step % 2];
        double *to = matrix[(step + 1) % 2];
        int sent = 0, expected = 0, done;
        double *place = received;
        for (size_t row = 0; row < mine; row += STRIPE) {
            size_t count = row + STRIPE < mine ? STRIPE : mine - row;
            for (int k = 1; k < ranks; k++) {
                int r = (rank + ranks - k) % ranks;
                size_t column = (size_t)first_of((long)n, r);
                size_t columns = (size_t)first_of((long)n, r + 1) - column;
                arriving[expected] = (struct stripe){place, row, count, column, columns};
                MPI_Irecv(place, (int)(count * columns), MPI_DOUBLE, r, (int)(row / STRIPE),
                          MPI_COMM_WORLD, &receives[expected++]);
                place += count * columns;
            }
        }
        size_t most = 0;
        for (int r = 0; r < ranks; r++) {
            size_t rows = (size_t)(first_of((long)n, r + 1) - first_of((long)n, r));
            most = rows > most ? rows : most;
        }
        for (size_t row = 0; row < most; row += STRIPE) {
            for (int k = 1; k < ranks; k++) {
                int r = (rank + k) % ranks;
                size_t begin = (size_t)first_of((long)n, r), end = (size_t)first_of((long)n, r + 1);
                if (begin + row >= end)
                    continue;
                size_t count = begin + row + STRIPE < end ? STRIPE : end - begin - row;
                double *part = packed + (begin + row) * mine;
                transpose(from, begin + row, begin + row + count, part, mine);
                MPI_Isend(part, (int)(count * mine), MPI_DOUBLE, r, (int)(row / STRIPE),
                          MPI_COMM_WORLD, &sends[sent++]);
            }
            /* The own part, a stripe at a time. */
            if (row < mine) {
                size_t count = row + STRIPE < mine ? STRIPE : mine - row;
                transpose(from, first + row, first + row + count, to + row * n + first, n);
            }
            /* Open MPI moves long messages only inside of calls. */
            MPI_Testall(sent, sends, &done, MPI_STATUSES_IGNORE);
        }
        for (int left = expected; left > 0; left--) {
            int which;
            MPI_Waitany(expected, receives, &which, MPI_STATUS_IGNORE);
            const struct stripe *stripe = &arriving[which];
            for (size_t i = 0; i < stripe->rows; i++)
                memcpy(to + (stripe->row + i) * n + stripe->column,
                       stripe->data + i * stripe->columns, stripe->columns * sizeof(double));
        }
        MPI_Waitall(sent, sends, MPI_STATUSES_IGNORE);
    }
    double seconds = time_together() - started;

    const double *result = matrix[iterations % 2];
    if (rank != 0) {
        MPI_Send(result, (int)(mine * n), MPI_DOUBLE, 0, 9, MPI_COMM_WORLD);
    } else {
        uint64_t hash = fingerprint(FINGERPRINT_START, result, mine * n * sizeof(double));
        for (int r = 1; r < ranks; r++) {
            size_t count = (size_t)(first_of((long)n, r + 1) - first_of((long)n, r)) * n;
            double *theirs = zeroed(count, sizeof(double), 0);
            MPI_Recv(theirs, (int)count, MPI_DOUBLE, r, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            hash = fingerprint(hash, theirs, count * sizeof(double));
        }
        printf("{\"mops\":%.3f,\"seconds\":%.9f,\"check\":\"%016llx\"}\n",
               (double)n * (double)n * (double)iterations / seconds / 1e6, seconds,
               (unsigned long long)hash);
    }
    MPI_Finalize();
    return 0;
}
