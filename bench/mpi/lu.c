/* LU factorization with MPI: SPLASH-2's kernel in the variant with contiguous blocks, as
 * `apps/src/lu`, with messages in place of shared memory.
 *
 * Blocks are dealt out two-dimensionally. In each step the diagonal block goes to the owners of its
 * row and column, the row goes down each column of the grid in one message, and the column goes
 * along each row of the grid. Nothing waits for a message that it does not need yet.
 *
 *     lu --n 1024
 */
#include "common.h"
#include "kernels.h"

enum { SIDE = 16, VALUES = SIDE * SIDE };

/* Maximum distance of a value of the solution from one. */
static const double TOLERANCE = 1e-5;

static long blocks, seed;
/* Grid of processes, and the place of this one. */
static long grid_rows, grid_columns, my_row, my_column;
/* Blocks of this process, row by row. */
static long local_rows, local_columns;
static double *own;

static inline double *block_of(long i, long j)
{
    return own + (i / grid_rows * local_columns + j / grid_columns) * VALUES;
}

/* Returns the first index of this process's rows (or columns) that is at least `from`. */
static inline long next_mine(long from, long grid, long me)
{
    return from + (me - from % grid + grid) % grid;
}

/* Returns value (i, j) of the matrix. */
static double value_at(long i, long j)
{
    double value = uniform((uint64_t)seed, (uint64_t)(i * blocks * SIDE + j));
    return i == j ? value * 10.0 : value;
}

/* Sends the same bytes to every process of a column of the grid (or of a row), except this one. */
static int to_others(const double *data, long count, int tag, MPI_Comm group, int size, int me,
                     MPI_Request *requests)
{
    int sent = 0;
    for (int to = 0; to < size; to++)
        if (to != me)
            MPI_Isend(data, (int)count, MPI_DOUBLE, to, tag, group, &requests[sent++]);
    return sent;
}

static void check(double seconds);

int main(int argc, char **argv)
{
    start(&argc, &argv);
    long n = number(argc, argv, "--n", 1024);
    seed = number(argc, argv, "--seed", 1);
    if (n % SIDE != 0)
        fail("--n is a multiple of 16");
    blocks = n / SIDE;
    grid_columns = 1;
    for (long c = 1; c * c <= ranks; c++)
        if (ranks % c == 0)
            grid_columns = c;
    grid_rows = ranks / grid_columns;
    my_row = rank / grid_columns, my_column = rank % grid_columns;
    local_rows = (blocks - my_row + grid_rows - 1) / grid_rows;
    local_columns = (blocks - my_column + grid_columns - 1) / grid_columns;
    if (local_rows <= 0 || local_columns <= 0)
        fail("there are more processes than blocks");
    own = zeroed((size_t)(local_rows * local_columns * VALUES), sizeof(double), 0);
    for (long i = my_row; i < blocks; i += grid_rows)
        for (long j = my_column; j < blocks; j += grid_columns)
            for (int v = 0; v < VALUES; v++)
                block_of(i, j)[v] = value_at(i * SIDE + v / SIDE, j * SIDE + v % SIDE);
    MPI_Comm down, along; /* processes of my column of the grid, and of my row */
    MPI_Comm_split(MPI_COMM_WORLD, (int)my_column, (int)my_row, &down);
    MPI_Comm_split(MPI_COMM_WORLD, (int)my_row, (int)my_column, &along);

    double *diagonal_in = zeroed(VALUES, sizeof(double), 0);
    double *row_in = zeroed((size_t)(local_columns * VALUES), sizeof(double), 0);
    double *column = zeroed((size_t)(local_rows * VALUES), sizeof(double), 0);
    MPI_Request *sends = zeroed((size_t)(4 * ranks), sizeof *sends, 0);
    enum { DIAGONAL, ROW, COLUMN };

    double started = time_together();
    for (long k = 0; k < blocks; k++) {
        long source_row = k % grid_rows, source_column = k % grid_columns;
        int has_row = my_row == source_row, has_column = my_column == source_column;
        long i0 = next_mine(k + 1, grid_rows, my_row);
        long j0 = next_mine(k + 1, grid_columns, my_column);
        long row_values = j0 < blocks ? (local_columns - j0 / grid_columns) * VALUES : 0;
        long column_values = i0 < blocks ? (local_rows - i0 / grid_rows) * VALUES : 0;
        MPI_Request row_request = MPI_REQUEST_NULL, column_request = MPI_REQUEST_NULL;
        MPI_Request diagonal_request = MPI_REQUEST_NULL;
        int sent = 0;
        if (!has_row && row_values > 0)
            MPI_Irecv(row_in, (int)row_values, MPI_DOUBLE, (int)source_row, ROW, down,
                      &row_request);
        if (!has_column && column_values > 0)
            MPI_Irecv(column, (int)column_values, MPI_DOUBLE, (int)source_column, COLUMN, along,
                      &column_request);
        const double *diagonal = diagonal_in;
        if (has_row && has_column) {
            kernel_factor(block_of(k, k));
            diagonal = block_of(k, k);
            sent += to_others(diagonal, VALUES, DIAGONAL, down, (int)grid_rows, (int)my_row,
                              sends + sent);
            sent += to_others(diagonal, VALUES, DIAGONAL, along, (int)grid_columns,
                              (int)my_column, sends + sent);
        } else if (has_row) {
            MPI_Irecv(diagonal_in, VALUES, MPI_DOUBLE, (int)source_column, DIAGONAL, along,
                      &diagonal_request);
        } else if (has_column) {
            MPI_Irecv(diagonal_in, VALUES, MPI_DOUBLE, (int)source_row, DIAGONAL, down,
                      &diagonal_request);
        }
        MPI_Wait(&diagonal_request, MPI_STATUS_IGNORE);
        /* The row first: the other rows of the grid wait for it. */
        const double *above = row_in;
        if (has_row && row_values > 0) {
            for (long j = j0; j < blocks; j += grid_columns)
                kernel_eliminate(block_of(k, j), diagonal);
            above = block_of(k, j0);
            sent += to_others(above, row_values, ROW, down, (int)grid_rows, (int)my_row,
                              sends + sent);
        }
        if (has_column && column_values > 0) {
            double *to = column;
            for (long i = i0; i < blocks; i += grid_rows, to += VALUES) {
                kernel_divide(block_of(i, k), diagonal);
                memcpy(to, block_of(i, k), sizeof(double) * VALUES);
                /* Open MPI moves long messages only inside of calls. */
                int done;
                MPI_Testall(sent, sends, &done, MPI_STATUSES_IGNORE);
            }
            sent += to_others(column, column_values, COLUMN, along, (int)grid_columns,
                              (int)my_column, sends + sent);
        }
        MPI_Wait(&row_request, MPI_STATUS_IGNORE);
        MPI_Wait(&column_request, MPI_STATUS_IGNORE);
        const double *left = column;
        for (long i = i0; i < blocks; i += grid_rows, left += VALUES) {
            double *block = block_of(i, j0);
            for (long v = 0; v < row_values; v += VALUES)
                kernel_update(block + v, left, above + v);
            int done;
            MPI_Testall(sent, sends, &done, MPI_STATUSES_IGNORE);
        }
        MPI_Waitall(sent, sends, MPI_STATUSES_IGNORE);
    }
    /* The time ends when all processes have ended. */
    check(time_together() - started);
    MPI_Finalize();
    return 0;
}

/* Gathers the factors on rank 0, which solves the system whose solution is all ones, and prints
 * the result. */
static void check(double seconds)
{
    long n = blocks * SIDE;
    if (rank != 0) {
        MPI_Send(own, (int)(local_rows * local_columns * VALUES), MPI_DOUBLE, 0, 9,
                 MPI_COMM_WORLD);
        return;
    }
    double *whole = zeroed((size_t)(n * n), sizeof(double), 0);
    double *theirs = zeroed((size_t)(local_rows * local_columns * VALUES), sizeof(double), 0);
    for (int from = 0; from < ranks; from++) {
        long row = from / grid_columns, column = from % grid_columns;
        long their_rows = (blocks - row + grid_rows - 1) / grid_rows;
        long their_columns = (blocks - column + grid_columns - 1) / grid_columns;
        const double *part = own;
        if (from != 0) {
            MPI_Recv(theirs, (int)(their_rows * their_columns * VALUES), MPI_DOUBLE, from, 9,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            part = theirs;
        }
        for (long i = row; i < blocks; i += grid_rows)
            for (long j = column; j < blocks; j += grid_columns)
                memcpy(whole + (i * blocks + j) * VALUES,
                       part + (i / grid_rows * their_columns + j / grid_columns) * VALUES,
                       sizeof(double) * VALUES);
    }
    double *x = zeroed((size_t)n, sizeof(double), 0);
    for (long i = 0; i < n; i++)
        for (long j = 0; j < n; j++)
            x[i] += value_at(i, j);
#define FACTOR(i, j) whole[((i) / SIDE * blocks + (j) / SIDE) * VALUES + (i) % SIDE * SIDE + (j) % SIDE]
    for (long i = 0; i < n; i++)
        for (long j = 0; j < i; j++)
            x[i] -= FACTOR(i, j) * x[j];
    for (long i = n - 1; i >= 0; i--) {
        for (long j = i + 1; j < n; j++)
            x[i] -= FACTOR(i, j) * x[j];
        x[i] /= FACTOR(i, i);
    }
    double error = 0;
    for (long i = 0; i < n; i++) {
        double distance = x[i] > 1 ? x[i] - 1 : 1 - x[i];
        if (!(distance < TOLERANCE))
            fail("wrong result: the solution is not all ones");
        error = distance > error ? distance : error;
    }
    uint64_t hash = fingerprint(FINGERPRINT_START, whole, (size_t)(n * n) * sizeof(double));
    double flops = 2.0 / 3.0 * (double)n * (double)n * (double)n;
    printf("{\"mflops\":%.3f,\"seconds\":%.9f,\"check\":\"%016llx\",\"error\":%.3e}\n",
           flops / seconds / 1e6, seconds, (unsigned long long)hash, error);
}
