/* Bad input: each kind is a status with a text, and never a crash. Two nodes. */
#include "check.h"

#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static oik_job *job;
static uint32_t rank, other;

static void pointers(void) {
    FAILS(oik_join(NULL), OIK_INVALID, "job is NULL");
    FAILS(oik_rank(NULL, &rank), OIK_INVALID, "the job is NULL");
    FAILS(oik_rank(job, NULL), OIK_INVALID, "rank is NULL");
    FAILS(oik_wait(NULL), OIK_INVALID, "the operation is NULL");
    FAILS(oik_send(job, other, OIK_ORDERED, 0, NULL, 8, NULL), OIK_INVALID, "bytes is NULL");
    FAILS(oik_send(job, other, OIK_ORDERED, 0, "x", SIZE_MAX, NULL), OIK_INVALID, "more than memory");
    FAILS(oik_send(job, other, 99, 0, "x", 1, NULL), OIK_INVALID, "class 99 is unknown");
    FAILS(oik_send(job, 2, OIK_ORDERED, 0, "x", 1, NULL), OIK_INVALID, "this job has 2 nodes");
    FAILS(oik_receive_into(job, other, NULL, 8, NULL), OIK_INVALID, "info is NULL");
    FAILS(oik_barrier_for(job, -1), OIK_INVALID, "time limit of -1 s");
    FAILS(oik_barrier_for(job, NAN), OIK_INVALID, "time limit of NaN s");
    const char latin[] = {'\xe9', 0};
    oik_region *mine;
    FAILS(oik_publish(job, latin, 64, OIK_READ, &mine), OIK_INVALID, "name is not UTF-8");
    uint64_t words[2] = {0};
    FAILS(oik_publish(job, "a", 64, 8, &mine), OIK_INVALID, "rights 0x8 are unknown");
    FAILS(oik_publish(job, "", 64, OIK_READ, &mine), OIK_INVALID, "name");
    FAILS(oik_publish(job, "a", 0, OIK_READ, &mine), OIK_INVALID, "0 bytes");
    FAILS(oik_register(job, NULL, 64, &mine), OIK_INVALID, "address is NULL");
    FAILS(oik_register(job, words, SIZE_MAX, &mine), OIK_INVALID, "more than memory can have");
    oik_memory memory = {.kind = 77, .len = 64};
    FAILS(oik_region_new(job, NULL, &memory, OIK_READ, &mine), OIK_INVALID, "memory kind 77");
    memory = (oik_memory){.kind = OIK_FILE, .len = 64, .descriptor = -1};
    FAILS(oik_region_new(job, NULL, &memory, OIK_READ, &mine), OIK_INVALID, "descriptor");
    memory = (oik_memory){.kind = OIK_PROGRAM, .len = 16, .address = words, .read_only = true};
    FAILS(oik_region_new(job, NULL, &memory, OIK_WRITE, &mine), OIK_INVALID, "lent for reading");
}

static void settings(void) {
    oik_settings *settings;
    OK(oik_settings_new(&settings));
    FAILS(oik_settings_flows(settings, 17), OIK_INVALID, "setting flows to 17");
    FAILS(oik_settings_flows(settings, -2), OIK_INVALID, "give 0 to 16, or OIK_FLOWS_AUTO");
    OK(oik_settings_release(settings));
}

static void handles(void) {
    oik_operation *sent;
    oik_counter *counter;
    OK(oik_send(job, other, OIK_ORDERED, 7, "x", 1, &sent));
    OK(oik_counter_new(job, &counter));
    /* Of another kind: C lets a cast through, and Oikaze does not. */
    FAILS(oik_wait((oik_operation *)(void *)counter), OIK_HANDLE, "it is of another kind: counter");
    oik_operation *copy = sent;
    OK(oik_wait(sent));
    FAILS(oik_wait(copy), OIK_HANDLE, "it was released");
    FAILS(oik_test(copy, NULL), OIK_HANDLE, "it was released");
    FAILS(oik_wait((oik_operation *)4096), OIK_HANDLE, "was never one");
    FAILS(oik_wait((oik_operation *)&sent), OIK_HANDLE, "was never one");
    OK(oik_counter_release(counter));
    FAILS(oik_counter_release(counter), OIK_HANDLE, "it was released");
    oik_message *message;
    oik_message_info info;
    OK(oik_receive(job, other, &message));
    OK(oik_message_release(message));
    FAILS(oik_message_get(message, &info), OIK_HANDLE, "it was released");
    FAILS(oik_forward(job, other, OIK_ORDERED, 0, message, NULL), OIK_HANDLE, "it was released");
    oik_queue *queue;
    oik_completed completed[1];
    size_t count;
    OK(oik_queue_new(job, &queue));
    FAILS(oik_queue_wait(queue, 2, completed, 1, &count), OIK_INVALID, "2 operations do not fit");
    OK(oik_queue_release(queue));
}

static void memory(void) {
    oik_region *inbox, *mine;
    oik_remote *there;
    uint64_t words[4] = {1, 2, 3, 4}, word;
    OK(oik_publish(job, "inbox", 4096, OIK_READ, &inbox));
    OK(oik_register(job, words, sizeof words, &mine));
    OK(oik_remote_region(job, other, "inbox", &there));
    FAILS(oik_publish(job, "inbox", 64, OIK_READ, &(oik_region *){NULL}), OIK_INVALID, "inbox");
    FAILS(oik_get(there, 4090, &word, 8, NULL), OIK_INVALID, "stay inside");
    FAILS(oik_get(there, UINT64_MAX, &word, 8, NULL), OIK_INVALID, "stay inside");
    oik_operation *operation;
    OK(oik_get_into(there, 4090, mine, 0, 8, &operation));
    FAILS(oik_wait(operation), OIK_REFUSED, "outside the region");
    OK(oik_put(there, 0, words, 8, &operation));
    FAILS(oik_wait(operation), OIK_REFUSED, "does not grant this right");
    FAILS(oik_put_from(there, 0, mine, 30, 8, NULL), OIK_INVALID, "32 bytes");
    FAILS(oik_put_from(there, 0, mine, SIZE_MAX, 8, NULL), OIK_INVALID, "too many");
    FAILS(oik_atomic(there, 0, 99, 64, 1, 0, NULL), OIK_INVALID, "change 99 is unknown");
    FAILS(oik_atomic(there, 0, OIK_ADD, 16, 1, 0, NULL), OIK_INVALID, "words of 16 bits");
    FAILS(oik_fetch_add(there, 0, 1, &word), OIK_REFUSED, "does not grant this right");
    FAILS(oik_accumulate(there, 0, OIK_U8, OIK_SUM, words, 1, NULL), OIK_INVALID, "not accumulated");
    FAILS(oik_accumulate(there, 0, OIK_U64, OIK_XOR, words, 1, NULL), OIK_INVALID, "OIK_SUM");
    oik_block block = {.row = 8, .rows = 2, .planes = 1, .row_stride = 4};
    FAILS(oik_put_block(there, &block, mine, &block, NULL), OIK_INVALID, "overlap");
    FAILS(oik_put_block(there, NULL, mine, &block, NULL), OIK_INVALID, "block is NULL");
    FAILS(oik_put_list(there, mine, NULL, 1, NULL), OIK_INVALID, "pieces is NULL");
    FAILS(oik_region_load(mine, 4, &word), OIK_INVALID, "multiple of 8 bytes");
    FAILS(oik_region_load(mine, 32, &word), OIK_INVALID, "");
    FAILS(oik_wait_until(mine, other, 0, 9, 0, NULL), OIK_INVALID, "comparison 9 is unknown");
    FAILS(oik_wait_until_for(inbox, OIK_ANY, 0, OIK_EQUAL, 1, 0.001, NULL), OIK_TIMEOUT, "not done");
    oik_remote *none;
    /* Refused by the peer, unless its answer takes longer. */
    oik_status status = oik_remote_region_for(job, other, "nothing", 0.01, &none);
    HOLDS(status == OIK_REFUSED || status == OIK_TIMEOUT);
    HOLDS(strstr(oik_error(), "\"nothing\"") != NULL);
    oik_remote_id id = {{0}};
    memset(&id, 0xff, sizeof id);
    FAILS(oik_remote_region_by_id(job, &id, &none), OIK_INVALID, "");
    /* What this node refused is no failure of its own. */
    OK(oik_region_release(mine));
    FAILS(oik_region_release(mine), OIK_HANDLE, "it was released");
    FAILS(oik_put_from(there, 0, mine, 0, 8, NULL), OIK_HANDLE, "it was released");
    OK(oik_remote_release(there));
    OK(oik_barrier(job));
    OK(oik_region_release(inbox));
}

static void fifos(void) {
    oik_fifo *fifo;
    oik_remote_fifo *pushes;
    char buffer[16];
    size_t len;
    OK(oik_fifo_new(job, "queue", 2, 16, &fifo));
    OK(oik_remote_fifo_find(job, other, "queue", &pushes));
    FAILS(oik_try_pop(fifo, buffer, sizeof buffer, &len), OIK_NOT_READY, "nothing is there yet");
    FAILS(oik_pop(fifo, buffer, 8, &len), OIK_TOO_SMALL, "up to 16 bytes");
    FAILS(oik_pop_for(fifo, buffer, sizeof buffer, 0.001, &len), OIK_TIMEOUT, "");
    FAILS(oik_push(pushes, "0123456789abcdefg", 17), OIK_REFUSED, "longer than the FIFO's slots");
    oik_remote_fifo *none;
    oik_remote_id id;
    memset(&id, 0xff, sizeof id);
    FAILS(oik_remote_fifo_by_id(job, &id, &none), OIK_INVALID, "");
    FAILS(oik_remote_fifo_by_id(job, NULL, &none), OIK_INVALID, "id is NULL");
    OK(oik_barrier(job));
    OK(oik_push(pushes, "a", 1));
    OK(oik_push(pushes, "b", 1));
    FAILS(oik_try_push(pushes, "c", 1), OIK_FULL, "full");
    oik_status status = oik_push_for(pushes, "c", 1, 0.01);
    HOLDS(status == OIK_FULL || status == OIK_TIMEOUT); /* if the answer takes longer */
    OK(oik_barrier(job));
    OK(oik_pop(fifo, buffer, sizeof buffer, &len));
    HOLDS(len == 1 && buffer[0] == 'a');
    OK(oik_remote_fifo_release(pushes));
    OK(oik_barrier(job));
    OK(oik_fifo_release(fifo));
}

static void messages(void) {
    oik_message_info info;
    char buffer[4];
    OK(oik_send(job, other, OIK_ORDERED, 5, "too long", 8, NULL));
    FAILS(oik_receive_into(job, other, buffer, sizeof buffer, &info), OIK_TOO_SMALL, "info has it");
    HOLDS(info.len == 8 && info.tag == 5 && info.from == other && info.message != NULL);
    oik_message *message = info.message;
    OK(oik_message_get(message, &info)); /* nothing was lost */
    HOLDS(info.len == 8 && memcmp(info.bytes, "too long", 8) == 0);
    OK(oik_message_release(message));
    FAILS(oik_try_receive(job, other, &message), OIK_NOT_READY, "nothing");
    FAILS(oik_try_receive_into(job, other, buffer, 4, &info), OIK_NOT_READY, "nothing");
    FAILS(oik_receive_for(job, OIK_ANY, 0.001, &message), OIK_TIMEOUT, "not done after");
    /* Messages that have come are not lost when another does not. */
    oik_message *batch[2];
    size_t received;
    oik_operation *sent;
    OK(oik_barrier(job));
    OK(oik_send(job, other, OIK_ORDERED, 6, "one", 4, &sent));
    OK(oik_wait(sent));
    OK(oik_barrier(job));
    FAILS(oik_receive_batch_for(job, batch, 2, 0.01, &received), OIK_TIMEOUT, "not done after");
    HOLDS(received == 1);
    OK(oik_message_get(batch[0], &info));
    HOLDS(info.tag == 6 && strcmp(info.bytes, "one") == 0);
    OK(oik_message_release(batch[0]));
    FAILS(oik_receive_batch(job, NULL, 2, &received), OIK_INVALID, "messages is NULL");
    FAILS(oik_receive_batch(job, batch, 2, NULL), OIK_INVALID, "received is NULL");
    OK(oik_flush(job));
}

static void arrays(void) {
    oik_array *array;
    oik_view view;
    oik_guard *guard, *second;
    size_t shape[5] = {16, 8, 1, 1, 1}, axes;
    FAILS(oik_array_new(job, "a", shape, 5, OIK_F64, &array), OIK_INVALID, "axes");
    FAILS(oik_array_new(job, "a", shape, 0, OIK_F64, &array), OIK_INVALID, "");
    FAILS(oik_array_new(job, "a", shape, 2, 99, &array), OIK_INVALID, "kind 99 is unknown");
    FAILS(oik_array_new(job, "a", NULL, 2, OIK_F64, &array), OIK_INVALID, "shape is NULL");
    oik_field fields[2] = {{"x", OIK_F64}, {"n", OIK_U32}};
    oik_array_options options = {.element_size = 16, .fields = fields, .field_count = 2};
    FAILS(oik_array_new_with(job, "a", shape, 1, &options, &array), OIK_INVALID, "no padding");
    options = (oik_array_options){.kind = OIK_U8, .distribution = 99};
    FAILS(oik_array_new_with(job, "a", shape, 1, &options, &array), OIK_INVALID, "distribution 99");
    OK(oik_array_new(job, "array", shape, 2, OIK_F64, &array));
    oik_range outside[2] = {{0, 17}, {0, 8}}, turned[2] = {{3, 2}, {0, 8}};
    FAILS(oik_read(array, outside, 2, &view, &guard), OIK_INVALID, "17");
    FAILS(oik_write(array, turned, 2, &view, &guard), OIK_INVALID, "");
    FAILS(oik_read(array, outside, 1, &view, &guard), OIK_INVALID, "");
    FAILS(oik_read(array, NULL, 0, NULL, &guard), OIK_INVALID, "view is NULL");
    size_t place[2] = {16, 0};
    uint32_t home;
    FAILS(oik_array_home_of(array, place, 2, &home), OIK_INVALID, "no element has the index");
    FAILS(oik_array_shape(array, shape, 1, &axes), OIK_TOO_SMALL, "2 values do not fit");
    double number = 1;
    FAILS(oik_array_put(array, 128, &number, 1), OIK_INVALID, "");
    FAILS(oik_array_get(array, 0, &number, SIZE_MAX), OIK_INVALID, "too many");
    oik_range mine[2] = {{8 * rank, 8 * rank + 8}, {0, 8}};
    OK(oik_write(array, mine, 2, &view, &guard));
    FAILS(oik_write(array, mine, 2, &view, &second), OIK_INVALID, "guard that writes bytes");
    HOLDS(strstr(oik_error(), ".rs") == NULL); /* no line of the binding */
    FAILS(oik_barrier(job), OIK_INVALID, "guard that writes bytes");
    HOLDS(strstr(oik_error(), ".rs") == NULL);
    uint32_t nobody = 9;
    FAILS(oik_guard_push_to(guard, &nobody, 1), OIK_INVALID, "9");
    OK(oik_guard_release(guard));
    FAILS(oik_guard_release(guard), OIK_HANDLE, "it was released");
    OK(oik_read(array, mine, 2, &view, &guard));
    FAILS(oik_guard_push_to(guard, &nobody, 1), OIK_INVALID, "pushes nothing");
    OK(oik_guard_release(guard));
    OK(oik_barrier(job));
    OK(oik_array_release(array));
    FAILS(oik_read(array, NULL, 0, &view, &guard), OIK_HANDLE, "it was released");
}

static void collectives(void) {
    oik_team *all;
    OK(oik_world(job, &all));
    int32_t numbers[4] = {1, 2, 3, 4};
    float floats[2] = {1, 2};
    FAILS(oik_broadcast(all, 2, OIK_I32, numbers, 4, NULL), OIK_MISMATCH, "root 2 is not a rank");
    FAILS(oik_all_reduce(all, OIK_F32, OIK_XOR, floats, 2, NULL), OIK_MISMATCH, "does not combine");
    FAILS(oik_all_reduce(all, OIK_F32, 99, floats, 2, NULL), OIK_INVALID, "operator 99");
    FAILS(oik_all_reduce(all, OIK_F32, OIK_SUM, floats, SIZE_MAX, NULL), OIK_INVALID, "too many");
    FAILS(oik_all_reduce(all, OIK_F32, OIK_SUM, NULL, 2, NULL), OIK_INVALID, "values is NULL");
    FAILS(oik_all_reduce_by(all, 4, NULL, NULL, numbers, 1), OIK_INVALID, "combine is NULL");
    /* One rank calls another collective than the other. */
    oik_status status = rank == 0 ? oik_all_reduce(all, OIK_I32, OIK_SUM, numbers, 4, NULL)
                                  : oik_broadcast(all, 1, OIK_I32, numbers, 4, NULL);
    oik_status next = oik_team_barrier(all);
    HOLDS(status == OIK_MISMATCH || next == OIK_MISMATCH);
    HOLDS(strstr(oik_error(), "all_reduce") != NULL && strstr(oik_error(), "broadcast") != NULL);
    status = rank == 0 ? oik_team_barrier(all)
                       : oik_all_reduce(all, OIK_U8, OIK_SUM, numbers, 4, NULL);
    HOLDS(status == OIK_MISMATCH && strstr(oik_error(), "barrier of a team") != NULL);
    OK(oik_team_release(all));
    FAILS(oik_team_barrier(all), OIK_HANDLE, "it was released");
}

/* A broadcast of another count fails where it is received, in the call or by an operation, and the
 * root learns of it in one of the next calls. */
static void broadcasts_of_different_counts(void) {
    oik_team *all;
    int32_t values[4] = {1, 2, 3, 4};
    OK(oik_world(job, &all));
    for (uint32_t ways = 0; ways < 4; ways++) {
        oik_operation *operation = NULL;
        int begins = ways >> rank & 1;
        oik_status status =
            oik_broadcast(all, 0, OIK_I32, values, 3 + rank, begins ? &operation : NULL);
        if (begins) {
            OK(status);
            status = oik_wait(operation);
        }
        HOLDS(rank == 0 || (status == OIK_MISMATCH && strstr(oik_error(), "of 4 i32") != NULL));
        for (int later = 0; later < 5; later++)
            (void)oik_all_reduce(all, OIK_I32, OIK_SUM, values, 1, NULL);
        OK(oik_all_reduce(all, OIK_I32, OIK_SUM, values, 1, NULL));
    }
    OK(oik_team_release(all));
}

/* The wrong call of one rank fails with these words, and so does the right call of the other. */
#define REFUSED_BY_1(right, wrong, words) REFUSED_BY(1, right, wrong, words)
#define REFUSED_BY(refuser, right, wrong, words)                                                   \
    do {                                                                                           \
        if (rank == (refuser)) {                                                                   \
            FAILS(wrong, OIK_INVALID, words);                                                      \
        } else {                                                                                   \
            FAILS(right, OIK_MISMATCH, words);                                                     \
        }                                                                                          \
    } while (0)

/* What one rank refuses fails on the other, and later results are those of the same call. */
static void refused_by_one_rank(void) {
    oik_team *all, *part;
    oik_vectors *vectors;
    oik_array *array;
    int32_t one[1] = {1}, two[2];
    double sum, number = 1;
    size_t shape[1] = {100};
    oik_vector given[2] = {{one, 1}, {one, 1}}, bad[2] = {{one, 1}, {NULL, 1}};
    OK(oik_world(job, &all));
    REFUSED_BY_1(oik_broadcast(all, 1, OIK_I32, one, 1, NULL),
                 oik_broadcast(all, 1, 99, one, 1, NULL), "kind 99 is unknown");
    REFUSED_BY_1(oik_gather(all, 0, OIK_I32, one, 1, two, NULL),
                 oik_gather(all, 0, OIK_I32, NULL, 1, NULL, NULL), "values is NULL");
    REFUSED_BY_1(oik_all_gather(all, OIK_I32, one, 1, two, NULL),
                 oik_all_gather(all, OIK_I32, one, 1, NULL, NULL), "result is NULL");
    REFUSED_BY_1(oik_scatter(all, 1, OIK_I32, two, 1, one, NULL),
                 oik_scatter(all, 1, OIK_I32, two, 1, NULL, NULL), "result is NULL");
    REFUSED_BY_1(oik_all_to_all(all, OIK_I32, two, 1, two, NULL),
                 oik_all_to_all(all, OIK_I32, NULL, 1, two, NULL), "values is NULL");
    REFUSED_BY_1(oik_reduce(all, 0, OIK_I32, OIK_SUM, one, 1, two, NULL),
                 oik_reduce(all, 0, OIK_I32, 99, one, 1, two, NULL), "operator 99");
    REFUSED_BY_1(oik_all_reduce(all, OIK_I32, OIK_SUM, one, 1, NULL),
                 oik_all_reduce(all, OIK_I32, OIK_SUM, one, SIZE_MAX, NULL), "too many");
    REFUSED_BY_1(oik_reduce_scatter(all, OIK_I32, OIK_SUM, two, 1, one, NULL),
                 oik_reduce_scatter(all, OIK_I32, OIK_SUM, two, 1, NULL, NULL), "result is NULL");
    REFUSED_BY(0, oik_scan(all, OIK_I32, OIK_SUM, one, 1, two, NULL),
               oik_scan(all, OIK_I32, OIK_SUM, NULL, 1, two, NULL), "values is NULL");
    REFUSED_BY(0, oik_exclusive_scan(all, OIK_I32, OIK_SUM, one, 1, two, NULL),
               oik_exclusive_scan(all, OIK_I32, 99, one, 1, two, NULL), "operator 99");
    REFUSED_BY_1(oik_sum_exact(all, OIK_F64, &number, 1, &sum),
                 oik_sum_exact(all, OIK_F64, &number, 1, NULL), "sum is NULL");
    REFUSED_BY_1(oik_gather_uneven(all, 0, OIK_I32, one, 1, &vectors),
                 oik_gather_uneven(all, 0, OIK_I32, one, 1, NULL), "result is NULL");
    REFUSED_BY_1(oik_all_gather_uneven(all, OIK_I32, one, 1, &vectors),
                 oik_all_gather_uneven(all, OIK_I32, NULL, 1, &vectors), "values is NULL");
    REFUSED_BY_1(oik_scatter_uneven(all, 1, OIK_I32, given, &vectors),
                 oik_scatter_uneven(all, 1, 99, NULL, &vectors), "kind 99 is unknown");
    REFUSED_BY_1(oik_all_to_all_uneven(all, OIK_I32, given, &vectors),
                 oik_all_to_all_uneven(all, OIK_I32, bad, &vectors), "values of a vector is NULL");
    REFUSED_BY_1(oik_reduce_scatter_uneven(all, OIK_I32, OIK_SUM, given, &vectors),
                 oik_reduce_scatter_uneven(all, OIK_I32, 99, given, &vectors), "operator 99");
    REFUSED_BY_1(oik_all_reduce_by(all, 4, NULL, NULL, one, 1),
                 oik_all_reduce_by(all, 4, NULL, NULL, NULL, 1), "values is NULL");
    REFUSED_BY_1(oik_reduce_by(all, 0, 4, NULL, NULL, one, 1, two),
                 oik_reduce_by(all, 0, 4, NULL, NULL, NULL, 1, NULL), "values is NULL");
    REFUSED_BY_1(oik_scan_by(all, 4, NULL, NULL, one, 1),
                 oik_scan_by(all, SIZE_MAX, NULL, NULL, one, 2), "too many");
    REFUSED_BY_1(oik_barrier_reduce(job, OIK_F64, OIK_SUM, &number, 1),
                 oik_barrier_reduce(job, OIK_I32, OIK_SUM, &number, 1), "does not travel");
    REFUSED_BY_1(oik_array_new(job, "refused", shape, 1, OIK_F64, &array),
                 oik_array_new(job, "refused", shape, 1, 99, &array), "kind 99 is unknown");
    /* A rank without a place for its team has come all the same. */
    if (rank == 1) {
        FAILS(oik_team_split(all, 0, 0, NULL), OIK_INVALID, "part is NULL");
    } else {
        OK(oik_team_split(all, 0, 0, &part));
        OK(oik_team_release(part));
    }
    one[0] = 1;
    OK(oik_all_reduce(all, OIK_I32, OIK_SUM, one, 1, NULL));
    HOLDS(one[0] == 2);
    number = 1 + rank;
    OK(oik_barrier_reduce(job, OIK_F64, OIK_SUM, &number, 1));
    HOLDS(number == 3);
    OK(oik_team_release(all));
}

static void *own_text(void *unused) {
    (void)unused;
    HOLDS(oik_error()[0] == 0); /* each thread has a last failure of its own */
    FAILS(oik_barrier(NULL), OIK_INVALID, "the job is NULL");
    return NULL;
}

static void threads(void) {
    pthread_t thread;
    FAILS(oik_wait(NULL), OIK_INVALID, "the operation is NULL");
    HOLDS(pthread_create(&thread, NULL, own_text, NULL) == 0);
    HOLDS(pthread_join(thread, NULL) == 0);
    HOLDS(strstr(oik_error(), "the operation is NULL") != NULL);
}

static void locks(void) {
    oik_lock *lock, *again;
    OK(oik_lock_take(job, 20 + rank, &lock));
    FAILS(oik_lock_take(job, 20 + rank, &again), OIK_INVALID, "locks are not recursive");
    FAILS(oik_lock_take_for(job, 20 + rank, 10, &again), OIK_INVALID, "this thread took the lock");
    OK(oik_unlock(lock));
    OK(oik_lock_take(job, 20 + rank, &again));
    OK(oik_unlock(again));
}

static void forks(void) {
    pid_t child = fork();
    HOLDS(child >= 0);
    if (child == 0) {
        oik_status status = oik_barrier(job);
        _exit(status == OIK_FORKED && strstr(oik_error(), "exec") != NULL ? 0 : 1);
    }
    int ended;
    HOLDS(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

static void another_job_and_after_leave(void) {
    oik_region *inbox, *mine;
    oik_remote *there;
    oik_team *all;
    oik_array *array;
    oik_view view;
    oik_guard *guard;
    oik_fifo *fifo;
    oik_remote_fifo *pushes;
    oik_queue *queue;
    oik_counter *counter;
    size_t shape[1] = {100}, len;
    static char large[1 << 16];
    OK(oik_publish(job, "late", 4096, OIK_READ | OIK_WRITE, &inbox));
    OK(oik_remote_region(job, other, "late", &there));
    OK(oik_world(job, &all));
    OK(oik_array_new(job, "late", shape, 1, OIK_U64, &array));
    OK(oik_register(job, large, sizeof large, &mine));
    OK(oik_fifo_new(job, "late fifo", 4, 8, &fifo));
    OK(oik_remote_fifo_find(job, other, "late fifo", &pushes));
    OK(oik_queue_new(job, &queue));
    OK(oik_counter_new(job, &counter));
    OK(oik_barrier(job));
    oik_job *left = job;
    OK(oik_leave(job));
    FAILS(oik_barrier(left), OIK_HANDLE, "it was released");
    FAILS(oik_leave(left), OIK_HANDLE, "it was released");
    FAILS(oik_team_barrier(all), OIK_LEFT, "has left the job");
    uint64_t word = 0;
    oik_operation *put;
    oik_status status = oik_put(there, 0, &word, 8, &put);
    if (status == OIK_OK) status = oik_wait(put);
    HOLDS(status == OIK_LEFT && strstr(oik_error(), "left the job") != NULL);
    /* Also where nobody waits for the operation. */
    oik_block block = {.row = 8, .rows = 2, .planes = 1, .row_stride = 16};
    oik_range some = {0, 8};
    char element[8];
    oik_completed completed[1];
    FAILS(oik_put(there, 0, &word, 8, NULL), OIK_LEFT, "left the job");
    FAILS(oik_put(there, 0, large, sizeof large, NULL), OIK_LEFT, "left the job");
    FAILS(oik_put_from(there, 0, mine, 0, 8, NULL), OIK_LEFT, "left the job");
    FAILS(oik_put_from(there, 0, mine, 0, 4096, NULL), OIK_LEFT, "left the job");
    FAILS(oik_put_signal(there, 8, mine, 0, 8, there, 0, 1, NULL), OIK_LEFT, "left the job");
    FAILS(oik_get(there, 0, &word, 8, NULL), OIK_LEFT, "left the job");
    FAILS(oik_get_into(there, 0, mine, 0, 8, NULL), OIK_LEFT, "left the job");
    FAILS(oik_put_block(there, &block, mine, &block, NULL), OIK_LEFT, "left the job");
    FAILS(oik_get_block(there, &block, mine, &block, NULL), OIK_LEFT, "left the job");
    FAILS(oik_atomic(there, 0, OIK_ADD, 64, 1, 0, NULL), OIK_LEFT, "left the job");
    FAILS(oik_fetch_add(there, 0, 1, &word), OIK_LEFT, "left the job");
    FAILS(oik_accumulate(there, 0, OIK_U64, OIK_SUM, &word, 1, NULL), OIK_LEFT, "left the job");
    FAILS(oik_post(pushes, "x", 1, NULL), OIK_LEFT, "left the job");
    FAILS(oik_try_push(pushes, "x", 1), OIK_LEFT, "left the job");
    FAILS(oik_try_pop(fifo, element, sizeof element, &len), OIK_LEFT, "left the job");
    FAILS(oik_queue_poll(queue, completed, 1, &len), OIK_LEFT, "left the job");
    FAILS(oik_queue_wait(queue, 1, completed, 1, &len), OIK_LEFT, "left the job");
    FAILS(oik_counter_wait(counter, 1, NULL), OIK_LEFT, "left the job");
    FAILS(oik_region_set_rights(inbox, OIK_READ), OIK_LEFT, "left the job");
    FAILS(oik_read(array, NULL, 0, &view, &guard), OIK_LEFT, "left the job");
    FAILS(oik_write(array, NULL, 0, &view, &guard), OIK_LEFT, "left the job");
    FAILS(oik_write_lazily(array, NULL, 0, &view, &guard), OIK_LEFT, "left the job");
    FAILS(oik_array_prefetch(array, &some, 1), OIK_LEFT, "left the job");
    FAILS(oik_array_subscribe(array, &some, 1), OIK_LEFT, "left the job");
    FAILS(oik_array_halo(array, &some, 1, 1), OIK_LEFT, "left the job");
    FAILS(oik_array_plain(array, &(void *){NULL}, &len), OIK_LEFT, "left the job");
    FAILS(oik_array_put(array, 0, &word, 1), OIK_LEFT, "left the job");
    FAILS(oik_array_get(array, 0, &word, 1), OIK_LEFT, "left the job");
    /* Objects of a job that was left are still to be released. */
    OK(oik_region_release(inbox));
    OK(oik_region_release(mine));
    OK(oik_remote_release(there));
    OK(oik_team_release(all));
    OK(oik_array_release(array));
    OK(oik_fifo_release(fifo));
    OK(oik_remote_fifo_release(pushes));
    OK(oik_queue_release(queue));
    OK(oik_counter_release(counter));
}

int main(void) {
    OK(oik_join(&job));
    OK(oik_rank(job, &rank));
    other = 1 - rank;
    pointers();
    settings();
    handles();
    memory();
    fifos();
    messages();
    arrays();
    threads();
    locks();
    forks();
    collectives();
    refused_by_one_rank();
    broadcasts_of_different_counts();
    another_job_and_after_leave();
    printf("node %u has seen all errors\n", rank);
    return 0;
}
