/* A program of MPI without Oikaze. Its argument says what it does. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    const char *what = count > 1 ? words[1] : "adds";
    const char *last = getenv("OIKAZE_RANK");
    if (strcmp(what, "absent") == 0 && last != NULL && strcmp(last, "2") == 0) {
        return 0; /* without MPI_Init, for which the others wait */
    }
    MPI_Init(&count, &words);
    int rank, size, sum, universe_is_set, *universe;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &universe_is_set);
    if (strcmp(what, "aborts") == 0 && rank == 1) {
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    if (strcmp(what, "exits") == 0 && rank == 1) {
        _Exit(0); /* without MPI_Finalize */
    }
    if (strcmp(what, "spawns") == 0) {
        char *programs[] = {"true", "true"};
        int counts[] = {1, 1};
        MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
        MPI_Comm others;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        int status = MPI_Comm_spawn_multiple(2, programs, MPI_ARGVS_NULL, counts, infos, 0,
                                             MPI_COMM_WORLD, &others, MPI_ERRCODES_IGNORE);
        printf("two programs were %s\n", status == MPI_SUCCESS ? "started" : "refused");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm node;
    int here;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &here);
    printf("mpi %d of %d on a host of %d has %d, universe %d\n", rank, size, here, sum,
           universe_is_set ? *universe : -1);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}
