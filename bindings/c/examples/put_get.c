/* Each node puts a number into the next node's memory, waits for the one that it gets itself, and
 * reads it back from there. No node receives anything by a call.
 *
 * cc put_get.c $(pkg-config --cflags --libs oikaze) -o put_get && oikaze run -n 2 -- ./put_get */
#include <inttypes.h>
#include <oikaze.h>
#include <stdio.h>

int main(void) {
    oik_job *job;
    uint32_t rank, size;
    oik_check(oik_join(&job));
    oik_check(oik_rank(job, &rank));
    oik_check(oik_size(job, &size));

    /* A word for the signal, then the number. */
    oik_region *inbox, *outbox;
    uint64_t number[1] = {1000 + rank}, back = 0;
    oik_check(oik_publish(job, "inbox", 4096, OIK_READ | OIK_WRITE | OIK_ATOMIC, &inbox));
    oik_check(oik_register(job, number, sizeof number, &outbox));

    oik_remote *there;
    oik_operation *put;
    oik_check(oik_remote_region(job, (rank + 1) % size, "inbox", &there));
    /* The number first, then 1 is added to the word at offset 0. */
    oik_check(oik_put_signal(there, 8, outbox, 0, sizeof number, there, 0, 1, &put));
    oik_check(oik_wait(put));

    /* The previous node's number is here when its signal is. */
    uint64_t *mine;
    oik_check(oik_wait_until(inbox, (rank + size - 1) % size, 0, OIK_GREATER_EQUAL, 1, NULL));
    oik_check(oik_region_address(inbox, (void **)&mine));
    oik_check(oik_get(there, 8, &back, sizeof back, NULL));
    printf("node %" PRIu32 " has %" PRIu64 ", and the next one %" PRIu64 "\n", rank, mine[1], back);

    oik_check(oik_region_release(outbox));
    oik_check(oik_barrier(job)); /* no inbox goes before its reader is done */
    oik_check(oik_leave(job));
    return 0;
}
