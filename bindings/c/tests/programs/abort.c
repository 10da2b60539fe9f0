/* Aborts of one node of two, with the status and the way that the arguments name. */
#include "check.h"

static oik_job *job;

static void at_exit(void) { oik_abort(job, 9, "in a function of atexit"); }

int main(int count, char **arguments) {
    uint32_t rank;
    HOLDS(count == 3);
    OK(oik_join(&job));
    OK(oik_rank(job, &rank));
    /* Rank 1 aborts when rank 0 has joined. The abort may be known before the acknowledgement. */
    if (rank == 0) {
        oik_operation *sent;
        OK(oik_send(job, 1, OIK_ORDERED, 0, "joined", 6, &sent));
        (void)oik_wait(sent);
    }
    if (rank == 1) {
        oik_message *message;
        OK(oik_receive(job, 0, &message));
        OK(oik_message_release(message));
        printf("before");
        int status = atoi(arguments[1]);
        if (strcmp(arguments[2], "at exit") == 0) {
            atexit(at_exit);
            return 0;
        }
        if (strcmp(arguments[2], "bad arguments") == 0) oik_abort(NULL, status, NULL);
        oik_abort(job, status, "the input is broken");
        printf("after");
    }
    FAILS(oik_barrier(job), OIK_ABORTED, strcmp(arguments[2], "") == 0 ? "the input is broken" : "");
    OK(oik_leave(job));
    return 0;
}
