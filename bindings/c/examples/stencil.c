/* A stencil on an array that all nodes write in place: plain loads and stores, and a barrier.
 *
 * cc stencil.c $(pkg-config --cflags --libs oikaze) -o stencil && oikaze run -n 2 -- ./stencil */
#include <oikaze.h>
#include <stdio.h>

enum { ROWS = 64, COLUMNS = 1024, STEPS = 10 };

int main(void) {
    oik_job *job;
    uint32_t rank;
    oik_check(oik_join(&job));
    oik_check(oik_rank(job, &rank));

    /* The same two arrays on every node. Each node is home to some rows. */
    oik_array *arrays[2];
    double *grid[2];
    oik_range mine[2];
    size_t shape[2] = {ROWS, COLUMNS};
    for (int n = 0; n < 2; n++) {
        oik_check(oik_array_new(job, n == 0 ? "old" : "new", shape, 2, OIK_F64, &arrays[n]));
        oik_check(oik_array_plain(arrays[n], (void **)&grid[n], NULL));
    }
    oik_check(oik_array_home_block(arrays[0], rank, mine, 2));

    /* The first row is hot and stays so. */
    for (size_t i = mine[0].first; i < mine[0].end; i++)
        for (size_t k = 0; k < COLUMNS; k++)
            grid[0][i * COLUMNS + k] = grid[1][i * COLUMNS + k] = i == 0 ? 100 : 0;
    oik_check(oik_barrier(job));

    for (int step = 0; step < STEPS; step++) {
        double *old = grid[step % 2], *new = grid[(step + 1) % 2];
        for (size_t i = mine[0].first; i < mine[0].end; i++) {
            if (i == 0 || i == ROWS - 1) continue;
            /* The rows of other nodes came with the barrier, or come now. */
            for (size_t k = 1; k < COLUMNS - 1; k++)
                new[i * COLUMNS + k] =
                    (old[(i - 1) * COLUMNS + k] + old[(i + 1) * COLUMNS + k] +
                     old[i * COLUMNS + k - 1] + old[i * COLUMNS + k + 1]) / 4;
        }
        oik_check(oik_barrier(job)); /* now every node sees every row */
    }

    double heat = 0, total;
    for (size_t i = mine[0].first; i < mine[0].end; i++)
        for (size_t k = 0; k < COLUMNS; k++) heat += grid[STEPS % 2][i * COLUMNS + k];
    oik_team *all;
    oik_check(oik_world(job, &all));
    oik_check(oik_sum_exact(all, OIK_F64, &heat, 1, &total));
    if (rank == 0) printf("heat %.6f\n", total);

    oik_check(oik_team_release(all));
    oik_check(oik_array_release(arrays[0]));
    oik_check(oik_array_release(arrays[1]));
    oik_check(oik_leave(job));
    return 0;
}
