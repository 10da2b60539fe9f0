/* Parts that the MPI programs share: options, errors, fingerprints, random numbers, output.
 *
 * Every program prints one line of JSON on rank 0: the rate, the seconds between two barriers, and
 * a check value of the result. The bench compares the check value with that of Oikaze.
 */
#ifndef OIKAZE_BENCH_COMMON_H
#define OIKAZE_BENCH_COMMON_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rank of this process, and number of processes. */
static int rank, ranks;

/* Prints an error and ends all processes. */
__attribute__((noreturn)) static void fail(const char *what)
{
    fprintf(stderr, "rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
    exit(1);
}

/* Starts MPI. */
static inline void start(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

/* Returns the text after option `name`, or `otherwise` if the option is not there. */
static inline const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], name) == 0) {
            if (i + 1 == argc)
                fail("the last option has no value");
            return argv[i + 1];
        }
    }
    return otherwise;
}

/* Returns the positive number after option `name`, or `otherwise`. */
static inline long number(int argc, char **argv, const char *name, long otherwise)
{
    const char *text = option(argc, argv, name, NULL);
    if (!text)
        return otherwise;
    char *end;
    long value = strtol(text, &end, 10);
    if (*end != '\0' || value <= 0)
        fail("an option needs a positive number");
    return value;
}

/* Returns zeroed memory of `count` elements of `size` bytes. The memory begins `stagger` cache
 * lines after the start of a page. Arrays that are read together would otherwise fall into the same
 * sets of the first cache. */
static inline void *zeroed(size_t count, size_t size, size_t stagger)
{
    void *memory = NULL;
    size_t bytes = count * size + stagger * 64;
    if (posix_memalign(&memory, 4096, bytes) != 0)
        fail("there is not enough memory");
    memset(memory, 0, bytes);
    return (char *)memory + stagger * 64;
}

/* Returns the time in seconds, after all processes have arrived. */
static inline double time_together(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Wtime();
}

/* Start and factor of FNV-1a, as in `apps/src/fingerprint.rs`. */
#define FINGERPRINT_START UINT64_C(1469598103934665603)

/* Continues a fingerprint over `length` bytes. */
static inline uint64_t fingerprint(uint64_t print, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++)
        print = (print ^ bytes[i]) * UINT64_C(0x00000100000001b3);
    return print;
}

/* Returns the 64-bit random number `index` of the sequence of `seed` (splitmix64). */
static inline uint64_t splitmix(uint64_t seed, uint64_t index)
{
    uint64_t z = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Returns a value in 0..1 as `uniform` of `apps/src/lu/matrix.rs` does. */
static inline double uniform(uint64_t seed, uint64_t index)
{
    return (double)(splitmix(seed, index) >> 11) / (double)(UINT64_C(1) << 53);
}

/* Returns the first of `count` items that belong to process `of`. */
static inline long first_of(long count, int of)
{
    return count * of / ranks;
}

#endif
