/* Start of MPI: all processes meet at one barrier and end. Rank 0 prints their number.
 *
 *     start
 */
#include "common.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d nodes\n", ranks);
    MPI_Finalize();
    return 0;
}
