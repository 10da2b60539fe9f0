/* Collectives of MPI: time of one operation in microseconds, for each size.
 *
 *     collectives --case all_reduce --sizes 8,4096,1048576 --iterations 5000 --volume 67108864
 *
 * `oikaze perf collectives` measures the same in the same way, so that both can be compared:
 *
 * - A size is the bytes of one process's vector (broadcast, all_reduce), of its contribution
 *   (all_gather), or of the block for one process (all_to_all).
 * - `--iterations` operations, but at most `--volume` bytes, are divided into blocks. The time of an
 *   operation is the mean of a block on the slowest process. The median of the blocks counts.
 * - The root of a broadcast changes with each operation. Each root has received the operation
 *   before, so the operations cannot overlap.
 * - The first and the last word of each vector change with each operation, and are checked. All
 *   words are written and checked before the measurement, and checked after it.
 */
#include "common.h"

/* Blocks of a measurement. */
#define BLOCKS 10
/* Operations before the measurement, of which every word is checked. */
#define WARM_UP 10
/* Minimum number of operations in a block. */
#define BLOCK_MIN 2

enum kind { BARRIER, BROADCAST, ALL_REDUCE, ALL_GATHER, ALL_TO_ALL };
static const char *const names[] = {"barrier", "broadcast", "all_reduce", "all_gather",
                                    "all_to_all"};

/* Elements of one vector or block, and the memory of this process. */
static long words;
static double *sent, *received;
static enum kind kind;

/* Returns the value that process `from` sends to process `to` in operation `turn`. */
static double value(long turn, int from, int to)
{
    return (double)(turn * 4096 + from * 64 + to);
}

/* Returns the number of blocks that this process sends, and receives. */
static int blocks_sent(void)
{
    return kind == ALL_TO_ALL ? ranks : 1;
}

static int blocks_received(void)
{
    return kind == ALL_TO_ALL || kind == ALL_GATHER ? ranks : 1;
}

/* Writes what operation `turn` sends: the first and the last word of each block, or all. */
static void write_words(long turn, int all)
{
    for (int to = 0; to < blocks_sent(); to++) {
        double *block = sent + to * words;
        double word = value(turn, rank, kind == ALL_TO_ALL ? to : 0);
        for (long i = 0; all && i < words; i++)
            block[i] = word;
        block[0] = block[words - 1] = word;
    }
}

/* Checks what operation `turn` has brought. The words between the ends are those of turn `inner`. */
static void check_words(long turn, int root, int all, long inner)
{
    const double *result = kind == BROADCAST && rank == root ? sent : received;
    for (int from = 0; from < blocks_received(); from++) {
        const double *block = result + from * words;
        double outer = 0, within = 0;
        if (kind == ALL_REDUCE) {
            for (int each = 0; each < ranks; each++) {
                outer += value(turn, each, 0);
                within += value(inner, each, 0);
            }
        } else {
            int sender = kind == BROADCAST ? root : from, to = kind == ALL_TO_ALL ? rank : 0;
            outer = value(turn, sender, to);
            within = value(inner, sender, to);
        }
        if (block[0] != outer || block[words - 1] != outer)
            fail("a result is wrong");
        for (long i = 1; all && i + 1 < words; i++)
            if (block[i] != within)
                fail("a result is wrong within");
    }
}

/* Runs one operation. */
static void run(int root)
{
    int count = (int)words;
    switch (kind) {
    case BARRIER:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
    case BROADCAST:
        MPI_Bcast(rank == root ? sent : received, count, MPI_DOUBLE, root, MPI_COMM_WORLD);
        break;
    case ALL_REDUCE:
        MPI_Allreduce(sent, received, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        break;
    case ALL_GATHER:
        MPI_Allgather(sent, count, MPI_DOUBLE, received, count, MPI_DOUBLE, MPI_COMM_WORLD);
        break;
    case ALL_TO_ALL:
        MPI_Alltoall(sent, count, MPI_DOUBLE, received, count, MPI_DOUBLE, MPI_COMM_WORLD);
        break;
    }
}

static void one_turn(long turn, int all, long inner)
{
    int root = (int)(turn % ranks);
    if (kind == BARRIER) {
        run(root);
        return;
    }
    write_words(turn, all);
    run(root);
    check_words(turn, root, all, all ? turn : inner);
}

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

/* Measures one size. */
static void measure(long size, long iterations, long volume)
{
    words = (size + 7) / 8;
    if (words < 1)
        words = 1;
    sent = zeroed((size_t)words * (size_t)ranks, sizeof *sent, 0);
    received = zeroed((size_t)words * (size_t)ranks, sizeof *received, 1);
    long within = size > 0 ? volume / size : iterations;
    if (iterations > within)
        iterations = within;
    long each = (iterations + BLOCKS - 1) / BLOCKS;
    if (each < BLOCK_MIN)
        each = BLOCK_MIN;
    /* Every process is the root equally often. */
    each = (each + ranks - 1) / ranks * ranks;
    /* The words between the ends stay those of the last turn that wrote all. */
    long turn = 0, inner = WARM_UP - 1;
    for (; turn < WARM_UP; turn++)
        one_turn(turn, 1, 0);
    double times[BLOCKS], slowest[BLOCKS];
    MPI_Barrier(MPI_COMM_WORLD);
    for (int block = 0; block < BLOCKS; block++) {
        double begun = MPI_Wtime();
        for (long i = 0; i < each; i++)
            one_turn(turn++, 0, inner);
        times[block] = (MPI_Wtime() - begun) / (double)each;
    }
    if (kind != BARRIER)
        check_words(turn - 1, (int)((turn - 1) % ranks), 1, inner);
    MPI_Allreduce(times, slowest, BLOCKS, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(slowest, BLOCKS, sizeof *slowest, compare);
    double us = (slowest[BLOCKS / 2 - 1] + slowest[BLOCKS / 2]) / 2 * 1e6;
    if (rank == 0) {
        printf("{\"case\":\"%s\",\"size\":%ld,\"nodes\":%d,\"operations\":%ld,\"us\":%.4f}\n",
               names[kind], size, ranks, each * BLOCKS, us);
        fflush(stdout);
    }
    free(sent);
    free((char *)received - 64);
}

int main(int argc, char **argv)
{
    start(&argc, &argv);
    const char *name = option(argc, argv, "--case", "barrier");
    int found = -1;
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(name, names[i]) == 0)
            found = i;
    if (found < 0)
        fail("--case must be barrier, broadcast, all_reduce, all_gather or all_to_all");
    kind = (enum kind)found;
    long iterations = number(argc, argv, "--iterations", 5000);
    long volume = number(argc, argv, "--volume", 64L << 20);
    const char *sizes = option(argc, argv, "--sizes", "8");
    if (kind == BARRIER)
        sizes = "0";
    for (;;) {
        char *end;
        long size = strtol(sizes, &end, 10);
        if (end == sizes || size < 0 || size > 1L << 28 || (size == 0 && kind != BARRIER))
            fail("--sizes must be bytes, at most 256 MiB, with commas between them");
        measure(size, iterations, volume);
        if (*end == '\0')
            break;
        if (*end != ',')
            fail("--sizes must be bytes, with commas between them");
        sizes = end + 1;
    }
    MPI_Finalize();
    return 0;
}
