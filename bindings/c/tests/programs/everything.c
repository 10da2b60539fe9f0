/* Every group of functions does what it says, on two nodes. */
#include "check.h"

#include <poll.h>

static oik_job *job;
static uint32_t rank, other;

static int gather(const void *mine, void *all, void *context) {
    (void)mine;
    (void)all;
    *(int *)context += 1;
    return 7;
}

/* A job of its own, beside that of the launcher. */
static void joins_by_an_exchange(oik_settings *settings) {
    oik_job *alone;
    uint32_t size;
    int calls = 0;
    OK(oik_join_gathering(settings, 0, 1, gather, &calls, &alone));
    OK(oik_size(alone, &size));
    HOLDS(size == 1 && calls == 0);
    OK(oik_leave(alone));
    HOLDS(oik_join_gathering(settings, 1, 2, gather, &calls, &alone) == OIK_JOB && calls == 1);
    HOLDS(oik_join_gathering(settings, 2, 2, gather, &calls, &alone) == OIK_JOB);
    HOLDS(oik_join_gathering(settings, 0, 1, NULL, NULL, &alone) == OIK_INVALID);
}

static void of_the_job(void) {
    uint32_t size;
    double limit;
    oik_statistics statistics;
    char text[256];
    size_t len, count;
    uint32_t lost[2];
    int descriptor;
    OK(oik_size(job, &size));
    OK(oik_time_limit(job, &limit));
    HOLDS(size == 2 && limit == 50);
    OK(oik_barrier(job));
    OK(oik_get_statistics(job, &statistics));
    HOLDS(statistics.barriers > 0);
    OK(oik_page_tracking(job, text, sizeof text, &len));
    HOLDS(len > 0 && len <= sizeof text);
    HOLDS(oik_page_tracking(job, text, 1, &len) == OIK_TOO_SMALL && len > 1);
    OK(oik_lost(job, lost, 2, &count));
    HOLDS(count == 0);
    /* The descriptor tells of a message. */
    OK(oik_descriptor(job, &descriptor));
    OK(oik_clear_descriptor(job));
    OK(oik_send(job, other, OIK_ORDERED, 1, "news", 4, NULL));
    struct pollfd ready = {.fd = descriptor, .events = POLLIN};
    oik_message *message;
    oik_status status;
    while ((status = oik_try_receive(job, other, &message)) == OIK_NOT_READY) {
        HOLDS(poll(&ready, 1, 20000) == 1);
        OK(oik_clear_descriptor(job));
    }
    OK(status);
    OK(oik_message_release(message));
    /* So does a loop that lets the node work before it sleeps. */
    OK(oik_send(job, other, OIK_ORDERED, 1, "more", 4, NULL));
    while ((status = oik_try_receive(job, other, &message)) == OIK_NOT_READY) {
        bool again;
        OK(oik_progress(job, &again));
        if (!again) {
            HOLDS(poll(&ready, 1, 20000) == 1);
            OK(oik_clear_descriptor(job));
        }
    }
    OK(status);
    OK(oik_message_release(message));
    HOLDS(oik_progress(job, NULL) == OIK_INVALID);
    OK(oik_flush(job));
}

static void of_memory(void) {
    uint64_t *words, own[8] = {11, 22, 33, 44, 55, 66, 77, 88}, back[8] = {0}, word;
    oik_region *inbox, *mine, *file;
    oik_remote *there, *by_id;
    size_t len;
    uint64_t there_len;
    oik_rights rights;
    oik_memory memory = {.kind = OIK_SHARED, .len = 8192, .capacity = 16384};
    OK(oik_region_new(job, "inbox", &memory, OIK_READ | OIK_WRITE | OIK_ATOMIC, &inbox));
    OK(oik_register(job, own, sizeof own, &mine));
    OK(oik_region_address(inbox, (void **)&words));
    void *address;
    OK(oik_region_address(mine, &address));
    HOLDS(address == (void *)own);
    OK(oik_region_len(inbox, &len));
    OK(oik_region_rights(inbox, &rights));
    HOLDS(len == 8192 && rights == (OIK_READ | OIK_WRITE | OIK_ATOMIC));
    oik_remote_id id;
    OK(oik_region_id(inbox, &id));
    OK(oik_send(job, other, OIK_SYNC, 9, &id, sizeof id, NULL));
    oik_message_info info;
    OK(oik_receive_into(job, other, &id, sizeof id, &info));
    HOLDS(info.tag == 9 && info.class_ == OIK_SYNC && info.len == sizeof id && info.message == NULL);
    OK(oik_remote_region_by_id(job, &id, &by_id));
    OK(oik_remote_region(job, other, "inbox", &there));
    uint32_t owner;
    OK(oik_remote_rank(there, &owner));
    OK(oik_remote_len(by_id, &there_len));
    OK(oik_remote_rights(there, &rights));
    HOLDS(owner == other && there_len == 8192 && rights == (OIK_READ | OIK_WRITE | OIK_ATOMIC));
    HOLDS(oik_remote_is_mapped(there) == OIK_OK || strlen(oik_error()) > 0);

    /* Puts and gets, of copies, of lent memory and of regions. */
    oik_operation *operation, *all[4];
    OK(oik_put(there, 64, own, 16, NULL));
    OK(oik_put(by_id, 80, own + 2, 16, &operation));
    OK(oik_wait(operation));
    OK(oik_put_from(there, 96, mine, 32, 32, &operation));
    OK(oik_wait_for(operation, 30, NULL));
    OK(oik_get(there, 64, back, sizeof back, NULL));
    HOLDS(memcmp(own, back, sizeof own) == 0);
    char *large = malloc(8192 - 512), *again = malloc(8192 - 512);
    HOLDS(large != NULL && again != NULL);
    memset(large, 'a' + (int)rank, 8192 - 512);
    OK(oik_put(there, 512, large, 8192 - 512, &all[0])); /* lent until the wait */
    all[1] = NULL;
    OK(oik_get(there, 64, back, 8, &all[2]));
    OK(oik_get_into(there, 72, mine, 0, 8, &all[3]));
    OK(oik_wait_all(all, 4));
    HOLDS(all[0] == NULL && all[3] == NULL && own[0] == 22);
    OK(oik_get(there, 512, again, 8192 - 512, NULL));
    HOLDS(memcmp(large, again, 8192 - 512) == 0);
    memset(large, 'A' + (int)rank, 8192 - 512);
    OK(oik_put(there, 512, large, 8192 - 512, NULL)); /* waits */
    OK(oik_get(there, 512, again, 8192 - 512, NULL));
    HOLDS(memcmp(large, again, 8192 - 512) == 0);
    free(large);
    free(again);
    own[0] = 11;
    OK(oik_flush_peer(job, other));
    OK(oik_barrier(job));
    HOLDS(words[8] == 11 && words[15] == 88);
    char copied[4];
    OK(oik_region_read(inbox, 512, copied, 4));
    HOLDS(copied[0] == 'A' + (int)other);
    OK(oik_region_write(inbox, 512, "text", 4));
    OK(oik_region_read(inbox, 512, copied, 4));
    HOLDS(memcmp(copied, "text", 4) == 0);
    memset(words + 64, 0, 8192 - 512);
    OK(oik_barrier(job));

    /* Rows, pieces, and signals behind them. */
    oik_block rows = {.offset = 1024, .row = 8, .rows = 2, .planes = 2, .row_stride = 16,
                      .plane_stride = 64};
    oik_block here = {.offset = 0, .row = 8, .rows = 2, .planes = 2, .row_stride = 8,
                      .plane_stride = 16};
    OK(oik_put_block_signal(there, &rows, mine, &here, there, 0, 1, NULL));
    OK(oik_put_signal(there, 2048, mine, 0, 8, by_id, 0, 1, &operation));
    OK(oik_wait(operation));
    OK(oik_wait_until(inbox, other, 0, OIK_GREATER_EQUAL, 2, &word));
    HOLDS(word >= 2 && words[128] == 11 && words[130] == 22);
    HOLDS(words[136] == 33 && words[138] == 44);
    OK(oik_put_block(there, &rows, mine, &here, &operation));
    OK(oik_wait(operation));
    OK(oik_get_block(there, &rows, mine, &here, &operation));
    OK(oik_wait(operation));
    HOLDS(own[0] == 11 && own[3] == 44);
    /* Blocks without rows move nothing. The signal still comes. */
    oik_block no_rows = {.offset = 1024, .row = 8, .rows = 0, .planes = 1, .row_stride = 16};
    oik_block none_here = {.offset = 64, .row = 8, .rows = 0, .planes = 1};
    OK(oik_put_block(there, &no_rows, mine, &none_here, NULL));
    OK(oik_get_block(there, &no_rows, mine, &none_here, &operation));
    OK(oik_wait(operation));
    OK(oik_put_block_signal(there, &no_rows, mine, &none_here, there, 0, 1, &operation));
    OK(oik_wait(operation));
    OK(oik_wait_until(inbox, other, 0, OIK_GREATER_EQUAL, 3, NULL));
    HOLDS(words[128] == 11 && own[0] == 11);
    oik_piece pieces[2] = {{3000, 0, 8}, {3016, 8, 8}};
    OK(oik_put_list(there, mine, pieces, 2, &operation));
    OK(oik_wait(operation));
    pieces[0].at = 16;
    pieces[1].at = 24;
    OK(oik_get_list(there, mine, pieces, 2, &operation));
    OK(oik_wait(operation));
    HOLDS(own[2] == 11 && own[3] == 22);
    OK(oik_put_list_signal(there, mine, pieces, 2, there, 0, 1, &operation));
    OK(oik_wait(operation));
    OK(oik_wait_until(inbox, other, 0, OIK_GREATER_EQUAL, 4, NULL));
    pieces[1].offset = UINT64_MAX - 3;
    OK(oik_put_list_signal(there, mine, pieces, 2, there, 0, 1, &operation));
    FAILS(oik_wait(operation), OIK_REFUSED, "lies outside the region");
    /* A value is read into any memory, with or without an operation. */
    uint64_t value = 0;
    OK(oik_get(there, 3000, &value, 8, &operation));
    OK(oik_wait(operation));
    HOLDS(value == 11);
    OK(oik_get(there, 3016, &value, 8, NULL));
    HOLDS(value == 22);

    /* Words. */
    OK(oik_fetch_add(there, 8, 5, &word));
    HOLDS(word == 0);
    OK(oik_compare_exchange(there, 8, 5, 7, &word));
    HOLDS(word == 5);
    OK(oik_atomic(there, 8, OIK_BIT_OR, 64, 8, 0, &operation));
    OK(oik_wait_value(operation, &word));
    HOLDS(word == 7);
    OK(oik_atomic(there, 8, OIK_SIGNED_MIN, 32, (uint32_t)-3, 0, NULL));
    double numbers[2] = {1.5, 2.5};
    OK(oik_accumulate(there, 4000, OIK_F64, OIK_SUM, numbers, 2, NULL));
    OK(oik_accumulate(there, 4000, OIK_F64, OIK_MAX, numbers, 2, &operation));
    OK(oik_wait(operation));
    OK(oik_accumulate_from(there, 5000, OIK_U64, OIK_SUM, mine, 32, 1, &operation));
    OK(oik_wait(operation));
    OK(oik_fence(job));
    OK(oik_fence_peer(job, other));
    OK(oik_flush(job));
    OK(oik_barrier(job));
    OK(oik_region_load(inbox, 8, &word));
    HOLDS(word == (uint32_t)-3 && words[625] == 55);
    double sums[2];
    memcpy(sums, words + 500, sizeof sums);
    HOLDS(sums[0] == 1.5 && sums[1] == 2.5);
    OK(oik_region_store(inbox, 8, 3));
    OK(oik_region_atomic(inbox, 8, OIK_SWAP, 64, 4, 0, &word));
    HOLDS(word == 3 && words[1] == 4);
    OK(oik_wait_until_for(inbox, OIK_ANY, 8, OIK_EQUAL, 4, 1, NULL));

    /* Rights, length, pages. */
    OK(oik_barrier(job));
    OK(oik_region_grow(inbox, 12288));
    OK(oik_region_protect(inbox, 8192, 4096, OIK_READ));
    OK(oik_barrier(job));
    OK(oik_remote_release(there));
    OK(oik_remote_region_for(job, other, "inbox", 30, &there));
    OK(oik_remote_len(there, &there_len));
    HOLDS(there_len == 12288);
    OK(oik_put(there, 8192, own, 8, &operation));
    FAILS(oik_wait(operation), OIK_REFUSED, "does not grant this right");
    OK(oik_get(there, 8192, back, 8, NULL));
    OK(oik_barrier(job));
    OK(oik_region_set_rights(inbox, OIK_READ | OIK_WRITE));
    oik_refused_access refused[4];
    size_t count;
    OK(oik_refused_accesses(job, refused, 4, &count));
    HOLDS(count == 1 && refused[0].from == other && refused[0].offset == 8192);
    HOLDS(refused[0].right == OIK_WRITE && strstr(refused[0].text, "inbox") != NULL);
    oik_region *renewed;
    OK(oik_region_reregister(mine, OIK_NONE, &renewed));
    OK(oik_region_release(mine));
    mine = renewed;
    OK(oik_put_from(there, 64, mine, 0, 8, &operation));
    OK(oik_wait(operation));
    oik_region *pages;
    oik_placed placed;
    memory = (oik_memory){.kind = OIK_PRIVATE, .len = 8192, .small_pages = true};
    OK(oik_region_new(job, NULL, &memory, OIK_NONE, &pages));
    OK(oik_region_store(pages, 0, 123));
    OK(oik_exchange_pages(job, pages, 0, pages, 4096, 1, &placed));
    HOLDS(placed.moved + placed.copied > 0);
    OK(oik_region_load(pages, 4096, &word));
    HOLDS(word == 123);
    OK(oik_move_pages(job, pages, 4096, pages, 0, 1, NULL));
    OK(oik_barrier(job));
    if (rank == 0) OK(oik_exchange_with(there, 4096, pages, 0, 1, &placed));
    OK(oik_barrier(job));
    HOLDS(rank == 0 || words[512] == 123);
    FILE *temporary = tmpfile();
    HOLDS(temporary != NULL && fwrite("of a file", 1, 9, temporary) == 9 && fflush(temporary) == 0);
    memory = (oik_memory){.kind = OIK_FILE, .len = 9, .descriptor = fileno(temporary),
                          .read_only = true};
    OK(oik_region_new(job, "file", &memory, OIK_READ, &file));
    oik_remote *of_file;
    OK(oik_remote_region(job, other, "file", &of_file));
    char text[9];
    OK(oik_get(of_file, 0, text, 9, NULL));
    HOLDS(memcmp(text, "of a file", 9) == 0);
    OK(oik_barrier(job));
    OK(oik_region_deregister(inbox));
    OK(oik_region_release(inbox));
    OK(oik_region_release(mine));
    OK(oik_region_release(pages));
    OK(oik_region_release(file));
    fclose(temporary);
    own[0] = 12; /* the memory is the program's again */
    OK(oik_remote_release(there));
    OK(oik_remote_release(by_id));
    OK(oik_remote_release(of_file));
}

static void posts(void *context) {
    oik_operation **sent = context;
    for (uint64_t n = 0; n < 8; n++) OK(oik_send(job, other, OIK_ORDERED, n, &n, 8, &sent[n]));
}

static void of_notices(void) {
    oik_region *inbox, *mine, *second;
    oik_remote *there, *also;
    oik_operation *operation;
    oik_arrival arrival;
    uint64_t words[8] = {1, 2, 3}, key;
    char *large = malloc(65536);
    HOLDS(large != NULL);
    memset(large, 'n', 65536);
    oik_memory memory = {.kind = OIK_SHARED, .len = 65536};
    OK(oik_region_new(job, "notices", &memory, OIK_WRITE, &inbox));
    OK(oik_region_new(job, "second", &memory, OIK_WRITE, &second));
    OK(oik_register(job, words, sizeof words, &mine));
    OK(oik_remote_region(job, other, "notices", &there));
    OK(oik_remote_region(job, other, "second", &also));
    OK(oik_region_key(inbox, &key));
    OK(oik_put_notify(there, 8, words, 16, 77, &operation));
    OK(oik_wait(operation));
    OK(oik_next_arrival(job, NULL, &arrival));
    HOLDS(arrival.from == other && arrival.tag == 77 && arrival.key == key);
    HOLDS(arrival.offset == 8 && arrival.len == 16);
    OK(oik_put_notify_from(also, 0, mine, 8, 8, 78, NULL));
    OK(oik_put_notify(there, 0, large, 65536, UINT64_MAX, NULL));
    OK(oik_next_arrival_for(job, inbox, 30, &arrival));
    HOLDS(arrival.tag == UINT64_MAX && arrival.len == 65536 && arrival.key == key);
    char copied[4];
    OK(oik_region_read(inbox, 65532, copied, 4));
    HOLDS(memcmp(copied, "nnnn", 4) == 0);
    oik_status status;
    while ((status = oik_try_arrival(job, second, &arrival)) == OIK_NOT_READY) {}
    OK(status);
    HOLDS(arrival.tag == 78 && arrival.key != key);
    oik_piece pieces[2] = {{0, 0, 8}, {64, 8, 16}};
    OK(oik_put_list_notify(also, mine, pieces, 2, 79, &operation));
    OK(oik_wait(operation));
    OK(oik_next_arrival_for(job, second, 30, &arrival));
    HOLDS(arrival.tag == 79 && arrival.offset == 64 && arrival.len == 16);
    FAILS(oik_next_arrival_for(job, NULL, 0.01, &arrival), OIK_TIMEOUT, "a put with notice");
    OK(oik_flush(job));
    OK(oik_barrier(job));
    OK(oik_remote_release(there));
    OK(oik_remote_release(also));
    OK(oik_region_release(inbox));
    OK(oik_region_release(second));
    OK(oik_region_release(mine));
    free(large);
}

static void of_posted_receives(void) {
    char into[64] = "", small[4];
    uint64_t words[2] = {0};
    oik_operation *any, *exact, *tight, *never;
    oik_received message;
    oik_region *mine;
    OK(oik_register(job, words, sizeof words, &mine));
    OK(oik_post_receive(job, OIK_ANY, 0x500, 0xff00, into, sizeof into, &any));
    OK(oik_post_receive_into(job, other, 9, UINT64_MAX, mine, 8, 8, &exact));
    OK(oik_post_receive(job, other, 3, UINT64_MAX, small, sizeof small, &tight));
    OK(oik_post_receive(job, other, 99, UINT64_MAX, small, 0, &never));
    HOLDS(oik_test_received(any, &message) == OIK_NOT_READY);
    FAILS(oik_wait_received_for(any, 0.01, &message), OIK_TIMEOUT, "receive of up to 64 bytes");
    OK(oik_barrier(job));
    uint64_t word = 42;
    OK(oik_send(job, other, OIK_ORDERED, 9, &word, 8, NULL));
    OK(oik_send(job, other, OIK_ORDERED, 3, "too long", 8, NULL));
    OK(oik_send(job, other, OIK_ORDERED, 0x5aa, "matched", 8, NULL));
    OK(oik_wait_received(any, &message));
    HOLDS(message.from == other && message.tag == 0x5aa && message.len == 8);
    HOLDS(strcmp(into, "matched") == 0);
    OK(oik_wait_received_for(exact, 30, &message));
    HOLDS(message.tag == 9 && message.len == 8 && words[0] == 0 && words[1] == 42);
    FAILS(oik_wait_received(tight, &message), OIK_TOO_SMALL, "the posted memory has 4");
    HOLDS(message.tag == 3 && message.len == 8);
    oik_message_info info;
    OK(oik_receive_into(job, other, into, sizeof into, &info));
    HOLDS(info.tag == 3 && memcmp(into, "too long", 8) == 0);
    HOLDS(oik_cancel(never) == OIK_CANCELLED);
    OK(oik_post_receive(job, other, 98, UINT64_MAX, small, 4, &never));
    OK(oik_operation_release(never));
    OK(oik_barrier(job));
    OK(oik_send(job, other, OIK_ORDERED, 98, "kept", 4, &any));
    FAILS(oik_wait_received(any, &message), OIK_INVALID, "not a posted receive");
    OK(oik_wait(any));
    OK(oik_receive_into(job, other, into, sizeof into, &info));
    HOLDS(info.tag == 98);
    OK(oik_region_release(mine));
    OK(oik_barrier(job));
}

static void of_probes(void) {
    oik_received next;
    char into[8];
    oik_message_info info;
    HOLDS(oik_try_probe(job, OIK_ANY, &next) == OIK_NOT_READY);
    FAILS(oik_probe_for(job, other, 0.01, &next), OIK_TIMEOUT, "message");
    FAILS(oik_probe(job, 77, &next), OIK_INVALID, "77");
    FAILS(oik_probe(job, other, NULL), OIK_INVALID, "next is NULL");
    OK(oik_barrier(job));
    OK(oik_send(job, other, OIK_ORDERED, 40, "probed", 6, NULL));
    OK(oik_probe(job, OIK_ANY, &next));
    HOLDS(next.from == other && next.tag == 40 && next.len == 6);
    OK(oik_probe_for(job, other, 30, &next));
    OK(oik_try_probe(job, other, &next));
    HOLDS(next.from == other && next.tag == 40 && next.len == 6);
    OK(oik_receive_into(job, next.from, into, sizeof into, &info));
    HOLDS(info.tag == 40 && info.len == 6 && memcmp(into, "probed", 6) == 0);
    HOLDS(oik_try_probe(job, OIK_ANY, &next) == OIK_NOT_READY);
    OK(oik_barrier(job));
}

/* A message that exceeds a ring is not whole before its receiver offers it to the receives, so that
   its bytes are placed as they arrive. */
static void of_placed_messages(void) {
    enum { LEN = 4 << 20 };
    char *long_message = calloc(1, LEN);
    oik_statistics before, after;
    oik_operation *receive;
    oik_received message;
    HOLDS(long_message != NULL);
    OK(oik_get_statistics(job, &before));
    OK(oik_post_receive(job, other, 70, UINT64_MAX, long_message, LEN, &receive));
    OK(oik_barrier(job));
    char *sent = malloc(LEN);
    HOLDS(sent != NULL);
    memset(sent, 7, LEN);
    OK(oik_send(job, other, OIK_ORDERED, 70, sent, LEN, NULL));
    OK(oik_wait_received_for(receive, 30, &message));
    HOLDS(message.len == LEN && long_message[0] == 7 && long_message[LEN - 1] == 7);
    OK(oik_get_statistics(job, &after));
    HOLDS(after.placed_messages == before.placed_messages + 1);
    OK(oik_barrier(job));
    free(sent);
    free(long_message);
}

static void of_messages(void) {
    oik_operation *sent[8];
    oik_queue *queue;
    oik_counter *counter;
    oik_completed completed[3];
    oik_counts counts;
    size_t count, ended = 0;
    OK(oik_queue_new(job, &queue));
    OK(oik_counter_new(job, &counter));
    OK(oik_batch(job, posts, sent));
    uint64_t contexts = 0;
    for (uint64_t n = 0; n < 8; n++) {
        if (n < 4) OK(oik_report_to(sent[n], queue, n));
        else OK(oik_count_in(sent[n], counter));
    }
    for (uint64_t n = 0, word; n < 8; n++) {
        oik_message_info info;
        OK(oik_receive_into_for(job, other, &word, 8, 30, &info));
        HOLDS(word == n && info.tag == n && info.from == other);
    }
    /* Three at a time, so that one is left for a second call. */
    while (ended < 4) {
        OK(oik_queue_wait_for(queue, 1, 30, completed, 3, &count));
        for (size_t n = 0; n < count; n++) {
            HOLDS(completed[n].status == OIK_OK && completed[n].value == 0);
            contexts |= UINT64_C(1) << completed[n].context;
        }
        ended += count;
    }
    HOLDS(contexts == 15);
    OK(oik_queue_poll(queue, completed, 3, &count));
    HOLDS(count == 0);
    OK(oik_counter_wait(counter, 4, &counts));
    HOLDS(counts.succeeded == 4 && counts.failed == 0);
    OK(oik_counter_wait_for(counter, 4, 1, NULL));
    OK(oik_counter_counts(counter, &counts));
    for (int n = 0; n < 8; n++) {
        if (n % 2) OK(oik_operation_release(sent[n]));
        else OK(oik_test(sent[n], NULL));
    }
    OK(oik_queue_release(queue));
    OK(oik_counter_release(counter));

    /* A message goes on to its sender, and from a region. */
    oik_message *message;
    oik_message_info info;
    oik_region *region;
    char bytes[6] = "round";
    OK(oik_register(job, bytes, sizeof bytes, &region));
    OK(oik_send_from(job, other, OIK_UNORDERED, 1, region, 0, sizeof bytes, NULL));
    OK(oik_receive(job, OIK_ANY, &message));
    OK(oik_forward(job, other, OIK_ORDERED, 2, message, NULL));
    OK(oik_receive_for(job, other, 30, &message));
    OK(oik_message_get(message, &info));
    HOLDS(info.tag == 2 && info.len == 6 && strcmp(info.bytes, "round") == 0);
    OK(oik_message_release(message));
    OK(oik_region_release(region));

    /* Several messages at once. */
    oik_message *batch[3];
    size_t received;
    for (uint64_t n = 0; n < 3; n++) OK(oik_send(job, other, OIK_ORDERED, n, "batch", 6, NULL));
    OK(oik_receive_batch(job, batch, 3, &received));
    HOLDS(received == 3);
    for (uint64_t n = 0; n < 3; n++) {
        OK(oik_message_get(batch[n], &info));
        HOLDS(info.tag == n && info.from == other && strcmp(info.bytes, "batch") == 0);
        OK(oik_message_release(batch[n]));
    }
    OK(oik_receive_batch_for(job, NULL, 0, 0, &received));
    HOLDS(received == 0);
    OK(oik_barrier(job));

    oik_fifo *fifo;
    oik_remote_fifo *pushes, *by_id;
    oik_operation *posted;
    char element[32];
    size_t len;
    OK(oik_fifo_new(job, "fifo", 4, 32, &fifo));
    OK(oik_remote_fifo_find_for(job, other, "fifo", 30, &pushes));
    OK(oik_push(pushes, "one", 3));
    OK(oik_try_push(pushes, "two", 3));
    OK(oik_post(pushes, "three", 5, &posted));
    OK(oik_wait(posted));
    oik_remote_id id;
    OK(oik_fifo_id(fifo, &id));
    OK(oik_send(job, other, OIK_ORDERED, 3, &id, sizeof id, NULL));
    OK(oik_receive_into(job, other, &id, sizeof id, &info));
    OK(oik_remote_fifo_by_id(job, &id, &by_id));
    OK(oik_push_for(by_id, "four", 4, 30));
    OK(oik_remote_fifo_release(by_id));
    OK(oik_pop(fifo, element, sizeof element, &len));
    HOLDS(len == 3 && memcmp(element, "one", 3) == 0);
    OK(oik_pop_for(fifo, element, sizeof element, 30, &len));
    OK(oik_pop_for(fifo, element, sizeof element, 30, &len));
    OK(oik_barrier(job));
    OK(oik_try_pop(fifo, element, sizeof element, &len));
    HOLDS(len == 4 && memcmp(element, "four", 4) == 0);
    OK(oik_remote_fifo_release(pushes));
    OK(oik_barrier(job));
    OK(oik_fifo_release(fifo));
}

static void of_arrays(void) {
    oik_array *array, *structs, *cyclic;
    oik_view view;
    oik_guard *guard;
    oik_range part[2], range;
    size_t shape[2] = {64, 128}, extents[2], axes, len, size, count;
    OK(oik_array_new(job, "array", shape, 2, OIK_I64, &array));
    OK(oik_array_len(array, &len));
    OK(oik_array_shape(array, extents, 2, &axes));
    OK(oik_array_element_size(array, &size));
    HOLDS(len == 8192 && axes == 2 && extents[0] == 64 && extents[1] == 128 && size == 8);
    OK(oik_array_home_block(array, rank, part, 2));
    HOLDS(part[0].end - part[0].first == 32 && part[1].end == 128);
    uint32_t home;
    size_t place[2] = {part[0].first, 5};
    OK(oik_array_home_of(array, place, 2, &home));
    OK(oik_array_home_range(array, rank, &range));
    HOLDS(home == rank && range.first == part[0].first * 128 && range.end == part[0].end * 128);

    /* Guards of this node's rows, and of all rows. */
    OK(oik_write(array, part, 2, &view, &guard));
    HOLDS(view.axes == 2 && view.shape[0] == 32 && view.strides[0] == 1024 && view.strides[1] == 8);
    for (size_t n = 0; n < 32 * 128; n++) ((int64_t *)view.address)[n] = (int64_t)n + rank;
    OK(oik_guard_push_to(guard, &other, 1));
    OK(oik_guard_release(guard));
    OK(oik_array_halo(array, part, 2, 1));
    OK(oik_barrier(job));
    OK(oik_array_prefetch(array, NULL, 0));
    OK(oik_read(array, NULL, 0, &view, &guard));
    HOLDS(((int64_t *)view.address)[0] == 0 && ((int64_t *)view.address)[4096] == 1);
    OK(oik_guard_release(guard));
    OK(oik_array_subscribe(array, part, 2));
    OK(oik_array_unsubscribe(array, part, 2));
    OK(oik_barrier(job));

    /* Guards whose pages come when they are touched. */
    int64_t before_it = 7;
    OK(oik_write_lazily(array, part, 2, &view, &guard));
    HOLDS(view.shape[0] == 32 && view.strides[0] == 1024);
    ((int64_t *)view.address)[3] = before_it + rank;
    HOLDS(oik_guard_push_to(guard, &other, 1) == OIK_INVALID);
    OK(oik_guard_release(guard));
    OK(oik_barrier(job));
    OK(oik_read_lazily(array, NULL, 0, &view, &guard));
    HOLDS(((int64_t *)view.address)[3] == 7 && ((int64_t *)view.address)[4096 + 3] == 8);
    OK(oik_guard_release(guard));
    OK(oik_barrier(job));

    /* Elements that two nodes write in one part, and elements at their homes. */
    oik_range both[2] = {{0, 1}, {0, 128}};
    OK(oik_write_merged(array, both, 2, &view, &guard));
    ((int64_t *)view.address)[rank] = 100 + rank;
    OK(oik_guard_release(guard));
    OK(oik_barrier(job));
    int64_t values[2], number = 5, before;
    OK(oik_array_get(array, 0, values, 2));
    HOLDS(values[0] == 100 && values[1] == 101);
    OK(oik_barrier(job));
    size_t index[2] = {63, 127};
    OK(oik_array_put(array, 10 + rank, &number, 1));
    OK(oik_array_fetch_combine(array, index, 2, OIK_SUM, &number, &before));
    OK(oik_array_accumulate(array, 8191, OIK_SUM, &number, 1));
    OK(oik_barrier(job));
    OK(oik_array_get(array, 8191, values, 1));
    HOLDS(values[0] == 4095 + 1 + 4 * number);
    OK(oik_barrier(job));
    if (rank == 0) {
        int64_t wanted = values[0], next = 1;
        OK(oik_array_compare_exchange(array, index, 2, &wanted, &next, &before));
        HOLDS(before == wanted);
    }
    oik_array_statistics statistics;
    OK(oik_array_get_statistics(array, &statistics));
    char why[200], one[1];
    size_t why_len;
    OK(oik_array_why_not_shared(array, why, sizeof why, &why_len));
    /* All nodes map one memory, or know the reason (the test runs without "shm", too). */
    const char *without = getenv("OIKAZE_WITHOUT");
    if (without && *without) {
        HOLDS(why_len > 1);
        FAILS(oik_array_why_not_shared(array, one, 1, &why_len), OIK_TOO_SMALL, "");
    } else {
        HOLDS(why_len == 0);
    }
    OK(oik_barrier(job));

    /* Files, another shape, another distribution, and the end. */
    OK(oik_array_save(array, "oikaze-everything.npy"));
    int64_t zero = 0, *plain;
    OK(oik_array_fill(array, &zero));
    OK(oik_array_get(array, 8191, values, 1));
    HOLDS(values[0] == 0);
    OK(oik_array_load(array, "oikaze-everything.npy"));
    OK(oik_array_plain(array, (void **)&plain, &len));
    HOLDS(len == 65536 && plain[8191] == 1);
    OK(oik_barrier(job));
    if (rank == 0) plain[8191] = 2;
    OK(oik_barrier(job));
    HOLDS(plain[8191] == 2);
    size_t longer[2] = {80, 128};
    OK(oik_array_resize(array, longer, 2));
    OK(oik_array_plain(array, (void **)&plain, &len));
    HOLDS(len == 81920 && plain[8191] == 2 && plain[8192] == 0);
    oik_array_options columns = {.distribution = OIK_BLOCK, .axis = 1};
    OK(oik_array_redistribute(array, &columns));
    OK(oik_array_home_block(array, rank, part, 2));
    HOLDS(part[0].end == 80 && part[1].end - part[1].first == 64);
    OK(oik_array_free(array));
    OK(oik_array_release(array));

    oik_field fields[2] = {{"position[3]", OIK_F64}, {"mass", OIK_F64}};
    oik_array_options options = {.element_size = 32, .fields = fields, .field_count = 2,
                                 .delivery = OIK_DIRECT_MAP, .update_class = OIK_UNORDERED,
                                 .has_update_class = true};
    size_t some = 100;
    OK(oik_array_new_with(job, "structs", &some, 1, &options, &structs));
    OK(oik_array_element_size(structs, &size));
    HOLDS(size == 32);
    options = (oik_array_options){.kind = OIK_F32, .distribution = OIK_CYCLIC_PAGES, .indices = 1};
    some = 4096;
    OK(oik_array_new_with(job, "cyclic", &some, 1, &options, &cyclic));
    oik_range blocks[4];
    OK(oik_array_home_blocks(cyclic, rank, blocks, 4, &count));
    HOLDS(count == 2 && blocks[0].first == 1024 * rank && blocks[1].first == 2048 + 1024 * rank);
    uint32_t owners[4] = {1, 1, 0, 0};
    options = (oik_array_options){.distribution = OIK_EXPLICIT_PAGES, .owners = owners,
                                  .owner_count = 4};
    OK(oik_array_redistribute(cyclic, &options));
    place[0] = 0;
    OK(oik_array_home_of(cyclic, place, 1, &home));
    HOLDS(home == 1);
    OK(oik_array_release(structs));
    OK(oik_array_release(cyclic));
}

static void of_locks(void) {
    oik_array *array;
    oik_lock *lock;
    size_t one = 1;
    int64_t *sum;
    OK(oik_array_new(job, "sum", &one, 1, OIK_I64, &array));
    OK(oik_array_plain(array, (void **)&sum, NULL));
    for (int n = 0; n < 20; n++) {
        if (n % 2) OK(oik_lock_take(job, 7, &lock));
        else OK(oik_lock_take_for(job, 7, 30, &lock));
        *sum += 1;
        OK(oik_unlock(lock));
    }
    OK(oik_barrier_for(job, 30));
    HOLDS(*sum == 40);
    OK(oik_barrier(job));
    uint64_t named;
    OK(oik_lock_number(job, "a", &named));
    HOLDS(named == 0xd7b1ee264300f646);
    OK(oik_lock_take(job, named, &lock));
    FAILS(oik_lock_try(job, named, &lock), OIK_INVALID, "lock \"a\"");
    OK(oik_unlock(lock));
    while (oik_lock_try(job, 7, &lock) == OIK_NOT_READY) {}
    *sum += 1;
    OK(oik_unlock(lock));
    OK(oik_barrier(job));
    HOLDS(*sum == 42);
    if (rank == 0) OK(oik_lock_take(job, 8, &lock));
    OK(oik_barrier(job));
    if (rank != 0) {
        FAILS(oik_lock_try(job, 8, &lock), OIK_NOT_READY, "the lock is taken");
        FAILS(oik_lock_take_for(job, 8, 0.01, &lock), OIK_TIMEOUT, "lock 8");
    }
    OK(oik_barrier(job));
    if (rank == 0) OK(oik_unlock(lock));
    OK(oik_barrier(job));
    if (rank == 0) OK(oik_read_lock_take(job, 8, &lock));
    else OK(oik_read_lock_take_for(job, 8, 30, &lock));
    oik_team *both;
    int32_t holders = 1;
    OK(oik_world(job, &both));
    OK(oik_all_reduce(both, OIK_I32, OIK_SUM, &holders, 1, NULL)); // while both have it
    HOLDS(holders == 2);
    OK(oik_team_release(both));
    OK(oik_unlock(lock));
    OK(oik_barrier(job));
    if (rank == 0) OK(oik_lock_take(job, 8, &lock));
    OK(oik_barrier(job));
    if (rank != 0) FAILS(oik_read_lock_try(job, 8, &lock), OIK_NOT_READY, "the lock is taken");
    OK(oik_barrier(job));
    if (rank == 0) OK(oik_unlock(lock));
    while (oik_read_lock_try(job, 8, &lock) == OIK_NOT_READY) {}
    OK(oik_unlock(lock));
    OK(oik_notify(job, other));
    OK(oik_wait_notify(job, other));
    OK(oik_notify(job, other));
    OK(oik_wait_notify_for(job, other, 30));
    OK(oik_barrier(job));
    OK(oik_array_release(array));
}

static void digits(void *into, const void *next, size_t count, void *context) {
    HOLDS(context != NULL);
    for (size_t n = 0; n < count; n++)
        ((int *)into)[n] = 10 * ((int *)into)[n] + ((const int *)next)[n];
}

static void of_collectives(void) {
    oik_team *all, *alone, *living, *none;
    uint32_t ranks[2], mine, size;
    OK(oik_world(job, &all));
    OK(oik_team_rank(all, &mine));
    OK(oik_team_size(all, &size));
    OK(oik_team_ranks(all, ranks, 2));
    HOLDS(mine == rank && size == 2 && ranks[0] == 0 && ranks[1] == 1);
    char name[64];
    size_t len;
    OK(oik_team_algorithm(all, "all_reduce", 8, name, sizeof name, &len));
    HOLDS(len > 0);

    int32_t one = (int32_t)rank + 1, two[2] = {one, 10 * one}, result[4], value = one;
    OK(oik_broadcast(all, 1, OIK_I32, &value, 1, NULL));
    HOLDS(value == 2);
    OK(oik_gather(all, 0, OIK_I32, two, 2, rank == 0 ? result : NULL, NULL));
    HOLDS(rank == 1 || (result[0] == 1 && result[1] == 10 && result[2] == 2 && result[3] == 20));
    OK(oik_all_gather(all, OIK_I32, two, 2, result, NULL));
    HOLDS(result[1] == 10 && result[2] == 2);
    OK(oik_scatter(all, 1, OIK_I32, two, 1, &value, NULL));
    HOLDS(value == (rank == 0 ? 2 : 20));
    OK(oik_all_to_all(all, OIK_I32, two, 1, result, NULL));
    HOLDS(result[0] == (rank == 0 ? 1 : 10) && result[1] == (rank == 0 ? 2 : 20));
    /* Values in the memory of the result. */
    int32_t over[3] = {0, one, 10 * one};
    OK(oik_all_gather(all, OIK_I32, over + 1, 1, over, NULL));
    HOLDS(over[0] == 1 && over[1] == 2 && over[2] == 10 * one);
    OK(oik_all_to_all(all, OIK_I32, over, 1, over + 1, NULL));
    HOLDS(over[1] == one && over[2] == one);
    OK(oik_reduce(all, 1, OIK_I32, OIK_PRODUCT, two, 2, result, NULL));
    HOLDS(rank == 0 || (result[0] == 2 && result[1] == 200));
    value = one;
    OK(oik_all_reduce(all, OIK_I32, OIK_SUM, &value, 1, NULL));
    HOLDS(value == 3);
    int32_t pair[2] = {-5, (int32_t)rank}; /* a value and its location */
    OK(oik_all_reduce(all, OIK_I32, OIK_MIN_LOCATION, pair, 1, NULL));
    HOLDS(pair[0] == -5 && pair[1] == 0);
    OK(oik_reduce_scatter(all, OIK_I32, OIK_SUM, two, 1, &value, NULL));
    HOLDS(value == (rank == 0 ? 3 : 30));
    OK(oik_scan(all, OIK_I32, OIK_SUM, &one, 1, &value, NULL));
    HOLDS(value == (rank == 0 ? 1 : 3));
    value = -1;
    OK(oik_exclusive_scan(all, OIK_I32, OIK_SUM, &one, 1, &value, NULL));
    HOLDS(rank == 0 || value == 1);
    double tenth[2] = {0.1, 1e100}, sum;
    if (rank == 1) tenth[1] = -1e100;
    OK(oik_sum_exact(all, OIK_F64, tenth, 2, &sum));
    HOLDS(sum == 0.2);
    uint64_t maximum[2] = {rank, 5 - rank};
    OK(oik_barrier_reduce(job, OIK_U64, OIK_MAX, maximum, 2));
    HOLDS(maximum[0] == 1 && maximum[1] == 5);

    /* Without waiting: two at a time. */
    oik_operation *operations[2];
    float floats[2] = {1.5f, 2.5f};
    value = one;
    OK(oik_all_reduce(all, OIK_I32, OIK_MAX, &value, 1, &operations[0]));
    OK(oik_all_reduce(all, OIK_F32, OIK_SUM, floats, 2, &operations[1]));
    FAILS(oik_cancel(operations[1]), OIK_INVALID, "cannot be cancelled");
    OK(oik_wait_all(operations, 2));
    HOLDS(value == 2 && floats[0] == 3 && floats[1] == 5);
    OK(oik_all_gather(all, OIK_I32, &one, 1, result, &operations[0]));
    oik_status status;
    while ((status = oik_test(operations[0], NULL)) == OIK_NOT_READY) OK(oik_fence(job));
    OK(status);
    HOLDS(result[0] == 1 && result[1] == 2);

    /* Operators of the program, in the order of ranks. */
    int digit = one;
    OK(oik_all_reduce_by(all, sizeof digit, digits, job, &digit, 1));
    HOLDS(digit == 12);
    digit = one;
    OK(oik_scan_by(all, sizeof digit, digits, job, &digit, 1));
    HOLDS(digit == (rank == 0 ? 1 : 12));
    int at_root = 0;
    OK(oik_reduce_by(all, 1, sizeof digit, digits, job, &one, 1, rank == 1 ? &at_root : NULL));
    HOLDS(at_root == (rank == 0 ? 0 : 12));

    /* Vectors of different lengths. */
    oik_vectors *vectors;
    oik_vector vector, given[2] = {{two, rank + 1}, {two, 0}};
    size_t count;
    OK(oik_all_gather_uneven(all, OIK_I32, two, rank + 1, &vectors));
    OK(oik_vectors_count(vectors, &count));
    OK(oik_vectors_get(vectors, 1, &vector));
    HOLDS(count == 2 && vector.count == 2 && ((const int32_t *)vector.values)[1] == 20);
    HOLDS(oik_vectors_get(vectors, 2, &vector) == OIK_INVALID);
    OK(oik_vectors_release(vectors));
    OK(oik_gather_uneven(all, 0, OIK_I32, two, rank + 1, &vectors));
    OK(oik_vectors_release(vectors));
    OK(oik_scatter_uneven(all, 1, OIK_I32, rank == 1 ? given : NULL, &vectors));
    OK(oik_vectors_get(vectors, 0, &vector));
    HOLDS(vector.count == (rank == 0 ? 2u : 0u));
    OK(oik_vectors_release(vectors));
    OK(oik_all_to_all_uneven(all, OIK_I32, given, &vectors));
    OK(oik_vectors_get(vectors, 1, &vector));
    HOLDS(vector.count == (rank == 0 ? 2u : 0u));
    OK(oik_vectors_release(vectors));
    given[0].count = given[1].count = 1;
    OK(oik_reduce_scatter_uneven(all, OIK_I32, OIK_SUM, given, &vectors));
    OK(oik_vectors_get(vectors, 0, &vector));
    HOLDS(vector.count == 1 && *(const int32_t *)vector.values == 3);
    OK(oik_vectors_release(vectors));

    /* Teams. */
    OK(oik_team_split(all, rank, 0, &alone));
    OK(oik_team_size(alone, &size));
    HOLDS(size == 1);
    OK(oik_team_barrier(alone));
    OK(oik_team_split(all, OIK_NO_COLOR, 0, &none));
    HOLDS(none == NULL);
    OK(oik_team_shrink(all, &living));
    OK(oik_team_size(living, &size));
    HOLDS(size == 2);
    OK(oik_team_barrier(living));
    OK(oik_team_release(alone));
    OK(oik_team_release(living));
    OK(oik_team_release(all));
}

int main(void) {
    oik_settings *settings;
    OK(oik_settings_new(&settings));
    OK(oik_settings_time_limit(settings, 50));
    OK(oik_settings_failure_time(settings, 10));
    OK(oik_settings_explain_after(settings, 0));
    OK(oik_settings_keep_going(settings, false));
    OK(oik_settings_flows(settings, 4));
    OK(oik_settings_flows(settings, 0));
    OK(oik_settings_flows(settings, OIK_FLOWS_AUTO));
    OK(oik_settings_poll_while_waiting(settings, 10000));
    OK(oik_settings_wait_adaptively(settings));
    OK(oik_settings_waiting(settings, "adaptive"));
    OK(oik_settings_engine(settings, "process:io@0"));
    OK(oik_settings_engine_priority(settings, "nice:0"));
    OK(oik_settings_engine_inline(settings));
    OK(oik_join_with(settings, &job));
    joins_by_an_exchange(settings);
    OK(oik_settings_release(settings));
    OK(oik_rank(job, &rank));
    other = 1 - rank;
    of_the_job();
    of_memory();
    of_messages();
    of_probes();
    of_notices();
    of_posted_receives();
    of_placed_messages();
    of_arrays();
    of_locks();
    of_collectives();
    OK(oik_leave(job));
    printf("node %u has done everything\n", rank);
    return 0;
}
