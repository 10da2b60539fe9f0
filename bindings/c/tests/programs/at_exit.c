/* Calls after exit(3) and in an ending thread: the thread's own memory of Oikaze is gone by then. */
#include "check.h"

#include <pthread.h>
#include <unistd.h>

static oik_job *job;
static uint32_t rank, other;
static pthread_key_t key;

/* A check that fails here may not call exit again. */
static void use(const char *where) {
    oik_lock *lock;
    oik_message *message;
    oik_operation *sent;
    char text[64];
    snprintf(text, sizeof text, "%s", oik_error());
    bool holds = oik_barrier(job) == OIK_OK;
    holds = holds && oik_send(job, other, OIK_ORDERED, 1, "x", 1, &sent) == OIK_OK;
    holds = holds && oik_receive(job, other, &message) == OIK_OK;
    holds = holds && oik_message_release(message) == OIK_OK && oik_wait(sent) == OIK_OK;
    /* Waits for the other node. */
    holds = holds && oik_lock_take(job, 3, &lock) == OIK_OK && oik_unlock(lock) == OIK_OK;
    holds = holds && oik_receive_for(job, other, 0.001, &message) == OIK_TIMEOUT;
    holds = holds && strstr(oik_error(), "receiving a message") != NULL;
    holds = holds && oik_rank(job, NULL) == OIK_INVALID && strstr(oik_error(), "rank is NULL");
    holds = holds && oik_barrier(job) == OIK_OK;
    printf("%s: %s\n", where, holds ? "everything works" : oik_error());
    fflush(stdout);
    if (!holds) _exit(1);
}

static void at_exit(void) {
    use("at exit");
    oik_status status = oik_leave(job);
    printf("left: %d\n", (int)status);
    fflush(stdout);
    if (status != OIK_OK) _exit(1);
}

static void at_thread_end(void *unused) {
    (void)unused;
    use("at the end of a thread");
}

static void *in_thread(void *unused) {
    OK(oik_barrier(job));
    FAILS(oik_rank(job, NULL), OIK_INVALID, "rank is NULL");
    pthread_setspecific(key, &key);
    return unused;
}

int main(void) {
    pthread_t thread;
    OK(oik_join(&job));
    OK(oik_rank(job, &rank));
    other = 1 - rank;
    FAILS(oik_rank(job, NULL), OIK_INVALID, "rank is NULL");
    HOLDS(pthread_key_create(&key, at_thread_end) == 0);
    HOLDS(pthread_create(&thread, NULL, in_thread, NULL) == 0);
    HOLDS(pthread_join(thread, NULL) == 0);
    HOLDS(atexit(at_exit) == 0);
    return 0;
}
