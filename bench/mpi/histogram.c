/* Histogram of random keys with MPI: each process counts its share of a round's keys into a table
 * of its own, and one reduction adds the tables. Every process then has the whole histogram and
 * finds its fullest bin.
 *
 * Key number i of round t is splitmix64 of seed t; its bin is the upper half of key × bins.
 *
 *     histogram --size 4096 --iterations 100 --keys 262144
 */
#include "common.h"
#include "kernels.h"

int main(int argc, char **argv)
{
    start(&argc, &argv);
    long bins = number(argc, argv, "--size", 4096);
    long rounds = number(argc, argv, "--iterations", 100);
    long keys = number(argc, argv, "--keys", 1 << 18);
    uint64_t *table = zeroed((size_t)bins, sizeof *table, 0);
    uint64_t *total = zeroed((size_t)bins, sizeof *total, 1);
    uint64_t first = (uint64_t)first_of(keys, rank), end = (uint64_t)first_of(keys, rank + 1);

    uint64_t peaks = FINGERPRINT_START;

    double started = time_together();
    for (long round = 0; round < rounds; round++) {
        memset(table, 0, (size_t)bins * sizeof *table);
        kernel_count((uint64_t)round, first, end, (size_t)bins, table);
        MPI_Allreduce(MPI_IN_PLACE, table, (int)bins, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        for (long bin = 0; bin < bins; bin++)
            total[bin] += table[bin];
        uint64_t fullest[2];
        kernel_fullest((size_t)bins, total, fullest);
        peaks = fingerprint(peaks, fullest, sizeof fullest);
    }
    double seconds = time_together() - started;

    if (rank == 0) {
        uint64_t counted = 0;
        for (long bin = 0; bin < bins; bin++)
            counted += total[bin];
        if (counted != (uint64_t)(keys * rounds))
            fail("wrong result: the bins do not add up to the number of keys");
        uint64_t hash = fingerprint(FINGERPRINT_START, total, (size_t)bins * sizeof *total);
        printf("{\"mops\":%.3f,\"seconds\":%.9f,\"check\":\"%016llx\",\"peaks\":\"%016llx\"}\n",
               (double)keys * (double)rounds / seconds / 1e6, seconds, (unsigned long long)hash,
               (unsigned long long)peaks);
    }
    MPI_Finalize();
    return 0;
}
