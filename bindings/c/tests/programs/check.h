/* Checks of the test programs. A check that fails ends the job with status 1. */
#ifndef CHECK_H
#define CHECK_H

#include <oikaze.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void wrong(const char *file, int line, const char *what) {
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    exit(1);
}

/* A condition that has to hold. */
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) wrong(__FILE__, __LINE__, #condition);                                   \
    } while (0)

/* A call that has to succeed. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        oik_status status_ = (call);                                                               \
        if (status_ != OIK_OK) {                                                                   \
            fprintf(stderr, "status %d: %s\n", (int)status_, oik_error());                         \
            wrong(__FILE__, __LINE__, #call);                                                      \
        }                                                                                          \
    } while (0)

/* A call that has to fail with this status, and a text that has these words. */
#define FAILS(call, expected, words)                                                               \
    do {                                                                                           \
        oik_status status_ = (call);                                                               \
        if (status_ != (expected) || strstr(oik_error(), (words)) == NULL) {                       \
            fprintf(stderr, "status %d: %s\n", (int)status_, oik_error());                         \
            wrong(__FILE__, __LINE__, #call);                                                      \
        }                                                                                          \
    } while (0)

#endif
