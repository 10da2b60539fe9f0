/* Oikaze: shared and remote memory for clusters on ordinary Ethernet.
 *
 * Written by `cargo xtask header` from bindings/c/src. Do not edit.
 *
 * Each function returns a status, and `oik_error` has the text of a failure: operation, cause and
 * remedy. Results are written through pointers. A function that fails leaves them alone,
 * handles of new objects among them, unless it says otherwise.
 *
 * Objects are handles: a pointer to `oik_job` or another object is a number that is never
 * dereferenced. A handle that was released, or was never one, is an error (OIK_HANDLE), not a crash.
 * Each object is released by the function that its type names; those of a job that this node has left
 * are to be released, too.
 *
 * All functions may be called by any thread at any time, unless they say otherwise. No function calls
 * back on another thread than its caller's. A child of fork may call none of them.
 *
 * Memory that an argument points to is not used after the call, unless the function says so. Nobody
 * changes it meanwhile. Texts are UTF-8 and end with a zero byte. Times are in seconds. */

#ifndef OIKAZE_H
#define OIKAZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Maximum number of bytes that `oik_put` copies. Longer memory is read in place.
 */
#define OIK_COPY_MAX 4096

/**
 * Maximum number of bytes of a message.
 */
#define OIK_MESSAGE_MAX 1073741824

/**
 * Maximum number of bytes of a name.
 */
#define OIK_NAME_MAX 48

/**
 * Maximum number of pieces of a list.
 */
#define OIK_LIST_MAX 16384

/**
 * Maximum number of values of `oik_barrier_reduce`.
 */
#define OIK_REDUCE_MAX 65536

/**
 * Maximum number of bytes of an element of a FIFO.
 */
#define OIK_FIFO_ELEMENT_MAX 1048576

/**
 * Maximum number of elements of a FIFO.
 */
#define OIK_FIFO_SLOTS_MAX 16777216

/**
 * Maximum number of nodes of a job.
 */
#define OIK_NODES_MAX 4096

/**
 * Stands for as many flows as pay, where a number of flows is asked for.
 */
#define OIK_FLOWS_AUTO -1

/**
 * Number of bytes that `oik_exchange` gathers from each process.
 */
#define OIK_GATHERED 1024

/**
 * Stands for any node, where a rank is asked for.
 */
#define OIK_ANY UINT32_MAX

/**
 * Maximum number of axes of an array.
 */
#define OIK_AXES_MAX 4

/**
 * Stands for no color: a rank that gets no team of a split.
 */
#define OIK_NO_COLOR UINT32_MAX

/**
 * Outcome of a call. `OIK_OK` is 0; all others are failures, whose text `oik_error` returns.
 */
typedef enum {
  /**
   * The call succeeded.
   */
  OIK_OK = 0,
  /**
   * Nothing is there yet. Only calls that poll return this.
   */
  OIK_NOT_READY = 1,
  /**
   * An argument makes no sense: NULL, a bad length, an unknown constant, a wrong root.
   */
  OIK_INVALID = 2,
  /**
   * The handle means nothing: the object was released, or the handle was never one.
   */
  OIK_HANDLE = 3,
  /**
   * The buffer is too small. The call has told the length, and has lost nothing.
   */
  OIK_TOO_SMALL = 4,
  /**
   * A time limit has passed. An operation goes on, and may be waited for again.
   */
  OIK_TIMEOUT = 5,
  /**
   * A node is lost, or has not done its part (`oik_error_lost_peer`).
   */
  OIK_PEER_LOST = 6,
  /**
   * A node is leaving the job, and will not do what is waited for.
   */
  OIK_PEER_LEAVING = 7,
  /**
   * The peer refused the operation (rights, bounds, a name that it has not published), which has
   * changed nothing there.
   */
  OIK_REFUSED = 8,
  /**
   * A FIFO is full. Push again later.
   */
  OIK_FULL = 9,
  /**
   * Too much is queued to the peer. Wait for earlier operations first.
   */
  OIK_QUEUE_FULL = 10,
  /**
   * A collective failed on all ranks: they did not call the same, or one of them gave arguments
   * that make no sense.
   */
  OIK_MISMATCH = 11,
  /**
   * A node or the launcher ended the job.
   */
  OIK_ABORTED = 12,
  /**
   * This node has left the job.
   */
  OIK_LEFT = 13,
  /**
   * This process is a child of fork, and not the node.
   */
  OIK_FORKED = 14,
  /**
   * The operation was cancelled.
   */
  OIK_CANCELLED = 15,
  /**
   * Operations have failed that nobody waited for.
   */
  OIK_UNREPORTED = 16,
  /**
   * There is not enough memory, or no way to track it.
   */
  OIK_MEMORY = 17,
  /**
   * The job could not be found, started or reached.
   */
  OIK_JOB = 18,
  /**
   * The machine or its system refused a request.
   */
  OIK_SYSTEM = 19,
  /**
   * Oikaze has a defect. Nothing that the job does from here on is certain.
   */
  OIK_DEFECT = 20,
} oik_status;

/**
 * An array that all nodes of a job share.
 */
typedef struct oik_array oik_array;

/**
 * A counter of operations that have ended.
 */
typedef struct oik_counter oik_counter;

/**
 * A FIFO of this node, which peers push elements into.
 */
typedef struct oik_fifo oik_fifo;

/**
 * A part of an array that this node reads or writes.
 */
typedef struct oik_guard oik_guard;

/**
 * A job that this process has joined.
 */
typedef struct oik_job oik_job;

/**
 * A lock that this node holds.
 */
typedef struct oik_lock oik_lock;

/**
 * A message that has arrived.
 */
typedef struct oik_message oik_message;

/**
 * An operation under way: a put, a get, an atomic, a message, a posted receive, a collective. Its
 * handle means nothing any more once a wait for it has ended, well or with an error. After
 * `OIK_TIMEOUT` it may be waited for again. A call that is given NULL as the place of the handle
 * returns the failure of an operation that has failed at once; `oik_flush` and `oik_leave` report
 * later failures.
 */
typedef struct oik_operation oik_operation;

/**
 * A queue in which operations report their end.
 */
typedef struct oik_queue oik_queue;

/**
 * A region: memory of this node that is registered for operations.
 */
typedef struct oik_region oik_region;

/**
 * A region of a peer.
 */
typedef struct oik_remote oik_remote;

/**
 * A FIFO of a peer.
 */
typedef struct oik_remote_fifo oik_remote_fifo;

/**
 * Settings for joining. A value that is set here wins over its environment variable.
 */
typedef struct oik_settings oik_settings;

/**
 * Some or all nodes of a job, with collectives of their own. Ranks of a team are numbered from 0.
 */
typedef struct oik_team oik_team;

/**
 * Vectors of different lengths that a collective has brought, one for each rank.
 */
typedef struct oik_vectors oik_vectors;

/**
 * Counters of one node, all of them from its start.
 */
typedef struct {
  /**
   * Page faults of the program on shared arrays, for loads.
   */
  uint64_t read_faults;
  /**
   * Page faults of the program on shared arrays, for stores.
   */
  uint64_t write_faults;
  /**
   * Pages fetched from their homes.
   */
  uint64_t pages_fetched;
  /**
   * Diffs sent to homes.
   */
  uint64_t diffs;
  /**
   * Bytes of diffs sent.
   */
  uint64_t diff_bytes;
  /**
   * Barriers and reductions passed.
   */
  uint64_t barriers;
  /**
   * Number of locks taken.
   */
  uint64_t locks;
  /**
   * Number of datagrams sent.
   */
  uint64_t datagrams_sent;
  /**
   * Number of datagrams received.
   */
  uint64_t datagrams_received;
  /**
   * Bytes sent, in UDP payloads.
   */
  uint64_t bytes_sent;
  /**
   * Bytes received, in UDP payloads.
   */
  uint64_t bytes_received;
  /**
   * Messages or parts of them sent again.
   */
  uint64_t retransmissions;
  /**
   * Datagrams dropped for a wrong seal.
   */
  uint64_t corrupt;
  /**
   * Datagrams dropped because their identifier is of no connection of this node.
   */
  uint64_t unknown_connection;
  /**
   * Handshakes dropped because their authentication code is of another secret.
   */
  uint64_t bad_mac;
  /**
   * Handshakes dropped before they were verified, because wrong ones have used up the rate limit
   * for verification.
   */
  uint64_t rate_limited;
  /**
   * Handshakes dropped because a newer one had come from their sender. Most are replays.
   */
  uint64_t stale_handshakes;
  /**
   * Handshakes without the cookie that proves the address of their sender.
   */
  uint64_t no_cookie;
  /**
   * Datagrams dropped because they had been received before.
   */
  uint64_t duplicates;
  /**
   * Messages that were placed into posted memory as their bytes arrived, without a copy in
   * between (`oik_post_receive`).
   */
  uint64_t placed_messages;
} oik_statistics;

/**
 * Gathers `OIK_GATHERED` bytes at `mine` from each process into `all`, in the order of the ranks.
 * Returns 0, or another number if it has failed.
 */
typedef int32_t (*oik_exchange)(const void *mine, void *all, void *context);

/**
 * An operation that has ended.
 */
typedef struct {
  /**
   * Context that the program gave to the operation.
   */
  uint64_t context;
  /**
   * Previous value, for an atomic (its bits, if it has 32). Length, for a posted receive.
   * Otherwise 0.
   */
  uint64_t value;
  /**
   * Outcome of the operation.
   */
  oik_status status;
} oik_completed;

/**
 * Numbers of operations that have ended since a counter was made.
 */
typedef struct {
  /**
   * Number of operations that succeeded.
   */
  uint64_t succeeded;
  /**
   * Number of operations that failed.
   */
  uint64_t failed;
} oik_counts;

/**
 * Rights that a region grants to peers: a sum of `OIK_READ`, `OIK_WRITE`, `OIK_ATOMIC`.
 */
typedef uint32_t oik_rights;

/**
 * Kind of memory.
 */
typedef uint32_t oik_memory_kind;

/**
 * Memory for `oik_region_new`. All fields but `len` may be 0.
 */
typedef struct {
  /**
   * Kind of the memory: `OIK_SHARED` …
   */
  oik_memory_kind kind;
  /**
   * Length in bytes, at least 1.
   */
  size_t len;
  /**
   * Length in bytes up to which shared or private memory may grow; 0 for `len`.
   */
  size_t capacity;
  /**
   * Shared or private memory is made of small pages, not of huge ones. Small pages can be moved
   * one by one.
   */
  bool small_pages;
  /**
   * Memory of the program, or a file, is only read.
   */
  bool read_only;
  /**
   * Start of the program's memory.
   */
  void *address;
  /**
   * Descriptor of the file.
   */
  int32_t descriptor;
  /**
   * Offset in the file, in whole pages.
   */
  uint64_t offset;
} oik_memory;

/**
 * Id by which any node of the job can use a region (`oik_remote_region_by_id`). It may be sent in
 * a message.
 */
typedef struct {
  /**
   * The id, the same on every machine.
   */
  uint8_t bytes[24];
} oik_remote_id;

/**
 * Comparison of a word with a value, both unsigned.
 */
typedef uint32_t oik_comparison;

/**
 * Change of a word by an atomic operation.
 */
typedef uint32_t oik_change;

/**
 * Bytes whose pages have changed place, and bytes that were copied.
 */
typedef struct {
  /**
   * Bytes whose pages were moved.
   */
  uint64_t moved;
  /**
   * Bytes that were copied.
   */
  uint64_t copied;
} oik_placed;

/**
 * Rows of equal length at equal distances, and planes of such rows. All lengths are in bytes. A
 * block without a row, or with rows of 0 bytes, moves nothing.
 */
typedef struct {
  /**
   * Offset of the first byte of the first row.
   */
  uint64_t offset;
  /**
   * Length of a row.
   */
  uint32_t row;
  /**
   * Number of rows in a plane.
   */
  uint32_t rows;
  /**
   * Number of planes.
   */
  uint32_t planes;
  /**
   * Distance from the beginning of a row to that of the next.
   */
  uint64_t row_stride;
  /**
   * Distance from the beginning of a plane to that of the next.
   */
  uint64_t plane_stride;
} oik_block;

/**
 * A piece of a list: a range of a peer's region, and one of a region of this node.
 */
typedef struct {
  /**
   * Offset in the peer's region.
   */
  uint64_t offset;
  /**
   * Offset in the region of this node.
   */
  size_t at;
  /**
   * Length in bytes.
   */
  size_t len;
} oik_piece;

/**
 * Type of elements. Values of another type, such as a struct, are moved as `OIK_U8`, and the count
 * is then their size in bytes.
 */
typedef uint32_t oik_kind;

/**
 * Operator that combines two elements.
 */
typedef uint32_t oik_operator;

/**
 * An access of a peer to this node's memory that this node refused. It had no effect.
 */
typedef struct {
  /**
   * Serial number among all refused accesses, from 1 on. A gap shows how many lie between.
   */
  uint64_t serial;
  /**
   * Rank of the peer.
   */
  uint32_t from;
  /**
   * Right that the access needs.
   */
  oik_rights right;
  /**
   * Offset from the region's start, in bytes.
   */
  uint64_t offset;
  /**
   * Length of the access in bytes.
   */
  uint64_t len;
  /**
   * Operation, region and reason, as a text that ends with a zero byte. A longer text is cut.
   */
  char text[256];
} oik_refused_access;

/**
 * Class of a message: order, and the meaning of "done".
 */
typedef uint32_t oik_class;

/**
 * Description of the message that a posted receive has got.
 */
typedef struct {
  /**
   * Rank of the sender.
   */
  uint32_t from;
  /**
   * Tag that the sender chose.
   */
  uint64_t tag;
  /**
   * Length in bytes.
   */
  size_t len;
} oik_received;

/**
 * Facts about a message.
 */
typedef struct {
  /**
   * Rank of the sender.
   */
  uint32_t from;
  /**
   * Class of the message.
   */
  oik_class class_;
  /**
   * Tag that the sender chose.
   */
  uint64_t tag;
  /**
   * Length in bytes.
   */
  size_t len;
  /**
   * Bytes of the message, valid until it is released; NULL after `oik_receive_into`.
   */
  const void *bytes;
  /**
   * The message, if it did not fit into the buffer of `oik_receive_into`; otherwise NULL.
   */
  oik_message *message;
} oik_message_info;

/**
 * A put with notice that has arrived: all its bytes are in place and visible.
 */
typedef struct {
  /**
   * Rank of the node that put the bytes.
   */
  uint32_t from;
  /**
   * Tag that the sender chose.
   */
  uint64_t tag;
  /**
   * Key of the region (`oik_region_key`).
   */
  uint64_t key;
  /**
   * Offset of the bytes from the start of the region.
   */
  uint64_t offset;
  /**
   * Number of bytes.
   */
  uint64_t len;
} oik_arrival;

/**
 * A field of a struct that is the element of an array.
 */
typedef struct {
  /**
   * Name of the field. It may end in extents, such as "position[3]".
   */
  const char *name;
  /**
   * Type of the field, or of its elements.
   */
  oik_kind kind;
} oik_field;

/**
 * Distribution of an array over the nodes.
 */
typedef uint32_t oik_distribution;

/**
 * Selects how data of an array that travels between nodes is put into the receiver's memory. The
 * result is the same; only the costs differ.
 */
typedef uint32_t oik_delivery;

/**
 * Settings of an array. All fields but `kind` or `element_size` may be 0.
 */
typedef struct {
  /**
   * Type of the elements, unless they are structs.
   */
  oik_kind kind;
  /**
   * Size of a struct that is the element, in bytes, without padding.
   */
  size_t element_size;
  /**
   * Fields of the struct.
   */
  const oik_field *fields;
  /**
   * Number of fields.
   */
  size_t field_count;
  /**
   * Distribution: `OIK_DEFAULT` …
   */
  oik_distribution distribution;
  /**
   * Axis along which the array is distributed; 0 is the outermost one.
   */
  size_t axis;
  /**
   * Number of consecutive indices (or pages) of one node.
   */
  size_t indices;
  /**
   * Ranks of the owners.
   */
  const uint32_t *owners;
  /**
   * Number of owners.
   */
  size_t owner_count;
  /**
   * Delivery of updates: `OIK_DELIVERY_DEFAULT` …
   */
  oik_delivery delivery;
  /**
   * Class of the messages that bring updates.
   */
  oik_class update_class;
  /**
   * `update_class` is set. Otherwise updates have the class of the default.
   */
  bool has_update_class;
} oik_array_options;

/**
 * Indices of one axis: from `first` to before `end`.
 */
typedef struct {
  /**
   * First index of the range.
   */
  size_t first;
  /**
   * Index behind the last one.
   */
  size_t end;
} oik_range;

/**
 * Memory of a guard's part.
 */
typedef struct {
  /**
   * Address of the first element.
   */
  void *address;
  /**
   * Number of axes.
   */
  size_t axes;
  /**
   * Number of indices of the part along each axis.
   */
  size_t shape[OIK_AXES_MAX];
  /**
   * Bytes from one index of each axis to the next one.
   */
  size_t strides[OIK_AXES_MAX];
} oik_view;

/**
 * Counters of one array on this node.
 */
typedef struct {
  /**
   * Fetch requests sent.
   */
  uint64_t fetches;
  /**
   * Pages fetched to this node.
   */
  uint64_t fetched_pages;
  /**
   * Pages sent to other nodes that asked for them.
   */
  uint64_t served_pages;
  /**
   * Diff messages sent, each with changes of one or more pages.
   */
  uint64_t diffs_sent;
  /**
   * Bytes of the bodies of diff messages.
   */
  uint64_t diff_bytes;
  /**
   * Updates sent to readers.
   */
  uint64_t updates_sent;
  /**
   * Bytes of the bodies of updates sent.
   */
  uint64_t update_bytes;
  /**
   * Updates that arrived.
   */
  uint64_t updates_received;
  /**
   * Updates of pages that no guard had touched since the update before.
   */
  uint64_t updates_wasted;
  /**
   * Pages whose homes have moved to this node.
   */
  uint64_t homes_moved;
} oik_array_statistics;

/**
 * Combines two vectors of `count` elements of the program's own type: `into[i]` becomes `into[i]`
 * combined with `next[i]`, which comes from a greater rank. Oikaze calls it on the thread of
 * `oik_all_reduce_by` or its relatives. It returns normally: neither longjmp nor an exception of
 * C++ leaves it.
 */
typedef void (*oik_combine)(void *into, const void *next, size_t count, void *context);

/**
 * A vector of the program.
 */
typedef struct {
  /**
   * Elements of the vector.
   */
  const void *values;
  /**
   * Number of elements.
   */
  size_t count;
} oik_vector;

/**
 * No right at all.
 */
#define OIK_NONE 0

/**
 * Peers may get.
 */
#define OIK_READ 1

/**
 * Peers may put.
 */
#define OIK_WRITE 2

/**
 * Peers may use atomics and signals.
 */
#define OIK_ATOMIC 4

/**
 * Zeroed memory of the library, which local peers may map. All of it is reserved at once.
 */
#define OIK_SHARED 0

/**
 * Zeroed memory of this process alone, allocated when it is touched.
 */
#define OIK_PRIVATE 1

/**
 * Memory of the program at `address`.
 */
#define OIK_PROGRAM 2

/**
 * Part of an open file. Its pages need not be in memory.
 */
#define OIK_FILE 3

/**
 * The word is the value.
 */
#define OIK_EQUAL 0

/**
 * The word is not the value.
 */
#define OIK_NOT_EQUAL 1

/**
 * The word is greater than the value.
 */
#define OIK_GREATER 2

/**
 * The word is greater than the value, or is the value.
 */
#define OIK_GREATER_EQUAL 3

/**
 * The word is less than the value.
 */
#define OIK_LESS 4

/**
 * The word is less than the value, or is the value.
 */
#define OIK_LESS_EQUAL 5

/**
 * Adds the operand, wrapping. With 0 as operand, the word is only read.
 */
#define OIK_ADD 1

/**
 * Stores the operand if the word is `expected`.
 */
#define OIK_COMPARE_EXCHANGE 2

/**
 * Stores the operand.
 */
#define OIK_SWAP 3

/**
 * Keeps the bits that are set in both.
 */
#define OIK_BIT_AND 4

/**
 * Sets the bits of the operand.
 */
#define OIK_BIT_OR 5

/**
 * Flips the bits of the operand.
 */
#define OIK_BIT_XOR 6

/**
 * Stores the minimum of both, unsigned.
 */
#define OIK_UNSIGNED_MIN 7

/**
 * Stores the maximum of both, unsigned.
 */
#define OIK_UNSIGNED_MAX 8

/**
 * Stores the minimum of both, signed.
 */
#define OIK_SIGNED_MIN 9

/**
 * Stores the maximum of both, signed.
 */
#define OIK_SIGNED_MAX 10

/**
 * Elements of type `uint8_t`.
 */
#define OIK_U8 1

/**
 * Elements of type `int8_t`.
 */
#define OIK_I8 2

/**
 * Elements of type `uint16_t`.
 */
#define OIK_U16 3

/**
 * Elements of type `int16_t`.
 */
#define OIK_I16 4

/**
 * Elements of type `uint32_t`.
 */
#define OIK_U32 5

/**
 * Elements of type `int32_t`.
 */
#define OIK_I32 6

/**
 * Elements of type `uint64_t`.
 */
#define OIK_U64 7

/**
 * Elements of type `int64_t`.
 */
#define OIK_I64 8

/**
 * Elements of type `float`.
 */
#define OIK_F32 9

/**
 * Elements of type `double`.
 */
#define OIK_F64 10

/**
 * Elements of type `bool`.
 */
#define OIK_BOOL 11

/**
 * Elements of type `float complex`.
 */
#define OIK_C64 12

/**
 * Elements of type `double complex`.
 */
#define OIK_C128 13

/**
 * Sum. Integers wrap.
 */
#define OIK_SUM 1

/**
 * Product. Integers wrap.
 */
#define OIK_PRODUCT 2

/**
 * Minimum. A NaN stays a NaN.
 */
#define OIK_MIN 3

/**
 * Maximum. A NaN stays a NaN.
 */
#define OIK_MAX 4

/**
 * Bits that are set in both.
 */
#define OIK_AND 5

/**
 * Bits that are set in one of both.
 */
#define OIK_OR 6

/**
 * Bits that differ.
 */
#define OIK_XOR 7

/**
 * Minimum, with its location. Elements are pairs of a value and a location of the same kind.
 */
#define OIK_MIN_LOCATION 8

/**
 * Maximum, with its location. Elements are pairs of a value and a location of the same kind.
 */
#define OIK_MAX_LOCATION 9

/**
 * After all ordered messages before it.
 */
#define OIK_ORDERED 0

/**
 * As soon as it arrives.
 */
#define OIK_UNORDERED 1

/**
 * Ordered, and done when the peer has accepted it.
 */
#define OIK_SYNC 2

/**
 * The default: runs of pages in one dimension, otherwise blocks along the outermost axis.
 */
#define OIK_DEFAULT 0

/**
 * One block of indices along the axis for each node.
 */
#define OIK_BLOCK 1

/**
 * Blocks of `indices` indices along the axis for each node in turn.
 */
#define OIK_CYCLIC 2

/**
 * One rank, of `owners`, for each index along the axis.
 */
#define OIK_EXPLICIT 3

/**
 * One run of pages for each node.
 */
#define OIK_PAGES 4

/**
 * Runs of `indices` pages for each node in turn.
 */
#define OIK_CYCLIC_PAGES 5

/**
 * One rank, of `owners`, for each page.
 */
#define OIK_EXPLICIT_PAGES 6

/**
 * The default: the runtime chooses for each transfer.
 */
#define OIK_DELIVERY_DEFAULT 0

/**
 * Whole ranges travel. Each datagram is copied to its place in the array as it arrives, and the
 * runtime processes no message.
 */
#define OIK_DIRECT_MAP 1

/**
 * As `OIK_DIRECT_MAP`, and the runtime then processes a message without the data.
 */
#define OIK_HEADER_THROUGH 2

/**
 * Whole ranges travel in messages. The runtime receives each message and copies its data.
 */
#define OIK_MESSAGE_THROUGH 3

/**
 * Only the bytes that changed travel (diffs). They are written to the array as they arrive, and
 * the runtime processes no message.
 */
#define OIK_DIRECT_DIFF_DECODE 4

/**
 * As `OIK_DIRECT_DIFF_DECODE`, and the runtime then processes a message without the data.
 */
#define OIK_HEADER_THROUGH_DIFF_DECODE 5

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the text of the calling thread's last failure: operation, cause and remedy. The text is
 * valid until the next call of this thread fails. Returns an empty text if no call has failed.
 * Thread-safe: each thread has a text of its own.
 */
const char *oik_error(void);

/**
 * Writes the rank of the node whose loss caused the calling thread's last failure. Returns
 * `OIK_NOT_READY` if the loss of a node was not the cause. Thread-safe: each thread has a last
 * failure of its own.
 */
oik_status oik_error_lost_peer(uint32_t *rank);

/**
 * Does nothing for `OIK_OK`. For a failure, prints its text, ends all jobs of this process for all
 * their nodes (as `oik_abort` does), and exits with status 1. Programs that treat errors so write
 * `oik_check(oik_barrier(job))`. Thread-safe, as exit(3) is.
 */
void oik_check(int32_t status);

/**
 * Joins the job that the environment describes, and writes its handle to `job`. The environment is
 * that of `oikaze run`, mpirun, srun, torchrun, Kubernetes, or a list of hosts. Without a
 * launcher, the program is a job of one node. `oik_join_with` takes settings. A program calls
 * `oik_leave` before it ends; otherwise this node is lost to the others. Thread-safe.
 *
 * Errors: `OIK_JOB` if the job or its store could not be reached; `OIK_INVALID` if an environment
 * variable makes no sense; `OIK_SYSTEM` or `OIK_MEMORY` if this machine does not grant something.
 */
oik_status oik_join(oik_job **job);

/**
 * Leaves the job: waits for all other nodes to leave, then says goodbye. The handle means nothing
 * from then on, even if the call fails. Calls with objects of this job fail with `OIK_LEFT` from
 * then on, except those that release an object or look at what this node has. Memory that the
 * program has lent is the program's again. Thread-safe.
 *
 * Errors: `OIK_PEER_LOST` if a node was lost before it left; `OIK_UNREPORTED` if operations have
 * failed that nobody waited for; `OIK_INVALID` if a guard is alive.
 */
oik_status oik_leave(oik_job *job);

/**
 * Ends the job for all nodes, for this reason, and this process by exit(3) with this status, as
 * `MPI_Abort` does. Does not return. Every wait and operation of every other node fails with
 * `OIK_ABORTED`. The launcher prints the reason, and ends each process that does not end by
 * itself. The job's status is this one. An aborted job has failed, so 0 counts as 1. If several
 * nodes abort the job, the first reason stays. Bad arguments do not keep the job from ending.
 * Thread-safe, as exit(3) is.
 */
void oik_abort(oik_job *job, int32_t status, const char *reason) __attribute__((noreturn));

/**
 * Writes this node's rank, 0 to size − 1. Thread-safe.
 */
oik_status oik_rank(oik_job *job, uint32_t *rank);

/**
 * Writes the number of nodes in the job. Thread-safe.
 */
oik_status oik_size(oik_job *job, uint32_t *size);

/**
 * Writes the time limit, in seconds, of waits that are given none of their own; INFINITY if there
 * is none. Thread-safe.
 */
oik_status oik_time_limit(oik_job *job, double *seconds);

/**
 * Writes the ranks of nodes that have died, or have left without waiting for the others, in the
 * order in which this node learned of it. `count` gets their number. Returns `OIK_TOO_SMALL` if
 * there is room for fewer (`capacity` ranks). Thread-safe.
 */
oik_status oik_lost(oik_job *job, uint32_t *ranks, size_t capacity, size_t *count);

/**
 * Writes the counters of this node. Thread-safe.
 */
oik_status oik_get_statistics(oik_job *job, oik_statistics *statistics);

/**
 * Writes how this node detects accesses to shared arrays, and why not in a better way, to
 * `buffer`: `len` bytes without a zero byte. Returns `OIK_TOO_SMALL` if `capacity` is less.
 * Thread-safe.
 */
oik_status oik_page_tracking(oik_job *job, void *buffer, size_t capacity, size_t *len);

/**
 * Writes a descriptor that becomes readable when an operation has ended or a message has arrived,
 * for poll(2) and event loops. `oik_clear_descriptor` makes it unreadable again. Check for events
 * after that call, not before. It may become readable without any event. The descriptor is the
 * job's: it is not to be closed. A loop that calls `oik_progress` before it sleeps is about as
 * fast as a blocking wait. Thread-safe.
 */
oik_status oik_descriptor(oik_job *job, int32_t *descriptor);

/**
 * Makes the job's descriptor unreadable again, and takes in what has arrived. Thread-safe.
 */
oik_status oik_clear_descriptor(oik_job *job);

/**
 * Does the work of the node that is due now, and returns at once, for programs with an event loop.
 * Writes `true` if the loop should look for its events and call again, and `false` if it should
 * sleep on `oik_descriptor`. The way to wait (`OIKAZE_WAIT`) says for how long it is `true`. No
 * program has to call this: a thread of the node works otherwise. Thread-safe.
 */
oik_status oik_progress(oik_job *job, bool *again);

/**
 * Makes settings that change nothing. Thread-safe, as all functions for settings are.
 */
oik_status oik_settings_new(oik_settings **settings);

/**
 * Releases settings. Thread-safe.
 */
oik_status oik_settings_release(oik_settings *settings);

/**
 * Joins the job as `oik_join` does, with these settings, which may be used again. Thread-safe.
 */
oik_status oik_join_with(oik_settings *settings, oik_job **job);

/**
 * Joins a job of `size` processes as the one of this rank, with these settings. The processes meet
 * by `gather(mine, all, context)`, which each of them calls once on this thread. It gathers the
 * `OIK_GATHERED` bytes at `mine` of each process, in the order of their ranks, into `all`, and
 * returns 0. MPI_Allgather does so. The bytes of rank 0 hold the job's secret. With one process it
 * is not called. It returns normally: neither longjmp nor an exception of C++ leaves it.
 * Thread-safe.
 *
 * Errors: as `oik_join`; `OIK_JOB` if `gather` returns another number than 0.
 */
oik_status oik_join_gathering(oik_settings *settings,
                              uint32_t rank,
                              uint32_t size,
                              oik_exchange gather,
                              void *context,
                              oik_job **job);

/**
 * Sets the time limit, in seconds, of waits that are given none of their own (`OIKAZE_TIMEOUT`).
 * INFINITY means no limit. Thread-safe.
 */
oik_status oik_settings_time_limit(oik_settings *settings, double seconds);

/**
 * Sets the time of silence, in seconds, after which a peer is dead (`OIKAZE_FAILURE_TIME`; 5 s
 * unless set). Thread-safe.
 */
oik_status oik_settings_failure_time(oik_settings *settings, double seconds);

/**
 * Sets the time, in seconds, that a wait lasts before one line on stderr explains it
 * (`OIKAZE_EXPLAIN_AFTER`; 5 s unless set). With 0, no wait is explained. Thread-safe.
 */
oik_status oik_settings_explain_after(oik_settings *settings, double seconds);

/**
 * Sets whether survivors go on with what needs no dead node when a node dies
 * (`OIKAZE_KEEP_GOING`). `oik_lost` names the dead. Thread-safe.
 */
oik_status oik_settings_keep_going(oik_settings *settings, bool goes_on);

/**
 * Sets how datagrams between machines are protected (`OIKAZE_SEAL`): "full" (encrypted, the
 * default), "integrity", "crc" or "header". All nodes of a job choose the same. Thread-safe.
 */
oik_status oik_settings_seal(oik_settings *settings, const char *seal);

/**
 * Controls congestion by loss, as CUBIC does, and not by delay (`OIKAZE_CONGESTION=cubic`).
 * Thread-safe.
 */
oik_status oik_settings_cubic(oik_settings *settings);

/**
 * Sets the number of UDP source ports from which bulk to a peer leaves (`OIKAZE_FLOWS`), where the
 * network caps what one of them carries: 1 to 16, or `OIK_FLOWS_AUTO`. With 0, the number stays as
 * it is. Thread-safe.
 */
oik_status oik_settings_flows(oik_settings *settings, int32_t flows);

/**
 * Sets the UDP ports that the node may use, `first` to `last` (`OIKAZE_PORTS`). Thread-safe.
 */
oik_status oik_settings_ports(oik_settings *settings, uint16_t first, uint16_t last);

/**
 * Lets threads that wait spin without end (`OIKAZE_WAIT=spin`). Thread-safe.
 */
oik_status oik_settings_spin_while_waiting(oik_settings *settings);

/**
 * Lets threads that wait poll every `nanoseconds`, 1 µs to 100 ms, and sleep in between
 * (`OIKAZE_WAIT=poll:TIME`). Another interval is an error when the job is joined. Thread-safe.
 */
oik_status oik_settings_poll_while_waiting(oik_settings *settings, uint64_t nanoseconds);

/**
 * Lets threads that wait sleep at once (`OIKAZE_WAIT=block`). Thread-safe.
 */
oik_status oik_settings_block_while_waiting(oik_settings *settings);

/**
 * Lets threads that wait spin for a while where the machine has cores for it
 * (`OIKAZE_WAIT=adaptive`, the default). Thread-safe.
 */
oik_status oik_settings_wait_adaptively(oik_settings *settings);

/**
 * Lets the threads that wait run the engine (`OIKAZE_ENGINE=inline`, the default). Thread-safe.
 */
oik_status oik_settings_engine_inline(oik_settings *settings);

/**
 * Gives the engine a thread of its own (`OIKAZE_ENGINE=thread`). Thread-safe.
 */
oik_status oik_settings_engine_thread(oik_settings *settings);

/**
 * Gives the engine a thread of its own on this core (`OIKAZE_ENGINE=thread:CORE`). The core may
 * lie outside the affinity mask of the program. `oik_settings_engine` takes sets of cores.
 * Thread-safe.
 */
oik_status oik_settings_engine_thread_on(oik_settings *settings, size_t core);

/**
 * Runs the engine in the words of `OIKAZE_ENGINE`: "inline", "thread[:CORES]", such as
 * "thread:0,2-3", or "process[:NAME][@CORES]", such as "process:io@3". In mode "process" a server
 * of this machine sends and receives (`oikaze serve --help`); it is started if it does not run. A
 * core that the machine does not have is an error when the job is joined. Thread-safe.
 */
oik_status oik_settings_engine(oik_settings *settings, const char *words);

/**
 * Gives the engine's own thread a priority over applications, in the words of `OIKAZE_PRIORITY`:
 * "fifo" or "fifo:N" (real-time class, 1 to 99), or "nice:N" (-20 to 19). If the system forbids
 * the priority, the node says so on stderr and runs without it. Thread-safe.
 */
oik_status oik_settings_engine_priority(oik_settings *settings, const char *words);

/**
 * Lets threads wait in the words of `OIKAZE_WAIT`: "spin", "poll:TIME", such as "poll:10us",
 * "block" or "adaptive". Thread-safe.
 */
oik_status oik_settings_waiting(oik_settings *settings, const char *words);

/**
 * Switches features off, in the words of `OIKAZE_WITHOUT`, such as "gso,gro". Thread-safe.
 */
oik_status oik_settings_without(oik_settings *settings, const char *features);

/**
 * Waits for an operation within the job's time limit, and releases it. Returns its outcome.
 * Thread-safe.
 */
oik_status oik_wait(oik_operation *operation);

/**
 * Waits as `oik_wait` does, and writes the previous value of the word that an atomic changed (its
 * bits, if it has 32), or 0 for other operations. Thread-safe.
 */
oik_status oik_wait_value(oik_operation *operation, uint64_t *value);

/**
 * Waits as `oik_wait_value` does, with this time limit in seconds. `value` may be NULL. After
 * `OIK_TIMEOUT` the operation goes on. Thread-safe.
 */
oik_status oik_wait_for(oik_operation *operation, double seconds, uint64_t *value);

/**
 * Waits for `count` operations as `oik_wait` does, and releases all of them. NULL stands for an
 * operation that has ended. Returns the first failure. After `OIK_TIMEOUT`, the operation that did
 * not end and all after it may be waited for again. Thread-safe.
 */
oik_status oik_wait_all(oik_operation **operations, size_t count);

/**
 * Returns `OIK_NOT_READY` if the operation has not ended. Otherwise releases it and returns its
 * outcome, as `oik_wait_value` does. `value` may be NULL. Thread-safe.
 */
oik_status oik_test(oik_operation *operation, uint64_t *value);

/**
 * Cancels an operation (not a collective), waits until it uses no memory of the program any more,
 * and releases it. Returns `OIK_OK` if it had ended well, and `OIK_CANCELLED` if it may not have
 * taken place. Thread-safe.
 */
oik_status oik_cancel(oik_operation *operation);

/**
 * Releases an operation, which goes on. If the program's memory was lent to it, the call waits
 * until it does not use that memory any more. A failure is reported by `oik_flush` or `oik_leave`.
 * A posted receive is cancelled. Thread-safe.
 */
oik_status oik_operation_release(oik_operation *operation);

/**
 * Waits until all operations and messages that this node has begun have ended, to all peers,
 * within the job's time limit. Returns `OIK_UNREPORTED` if some have failed that no call has
 * reported; each failure is reported once. Thread-safe.
 */
oik_status oik_flush(oik_job *job);

/**
 * Flushes as `oik_flush` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_flush_for(oik_job *job, double seconds);

/**
 * Flushes as `oik_flush` does, operations to one peer only. Thread-safe.
 */
oik_status oik_flush_peer(oik_job *job, uint32_t rank);

/**
 * Flushes as `oik_flush_peer` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_flush_peer_for(oik_job *job, uint32_t rank, double seconds);

/**
 * Orders operations and messages to each peer: those begun after the fence take place at the peer
 * after those begun before it. Returns at once. Thread-safe.
 */
oik_status oik_fence(oik_job *job);

/**
 * Orders operations as `oik_fence` does, to one peer only. Thread-safe.
 */
oik_status oik_fence_peer(oik_job *job, uint32_t rank);

/**
 * Calls `posts(context)` on the calling thread. The operations that it begins leave together at
 * its end, in as few datagrams as hold them. Many small operations so have several times the rate.
 * `posts` returns normally: neither longjmp nor an exception of C++ leaves it. Thread-safe.
 */
oik_status oik_batch(oik_job *job, void (*posts)(void *context), void *context);

/**
 * Makes a queue in which operations report their end (`oik_report_to`). Thread-safe.
 */
oik_status oik_queue_new(oik_job *job, oik_queue **queue);

/**
 * Lets a queue report the end of an operation, with this context. The operation is still to be
 * waited for or released. Thread-safe.
 */
oik_status oik_report_to(oik_operation *operation, oik_queue *queue, uint64_t context);

/**
 * Takes operations that have ended out of the queue without waiting, at most `capacity` of them.
 * `count` gets their number, which may be 0. If some have failed, `oik_error` gives the text of
 * the last of them. Thread-safe.
 */
oik_status oik_queue_poll(oik_queue *queue,
                          oik_completed *completed,
                          size_t capacity,
                          size_t *count);

/**
 * Waits within the job's time limit until at least `at_least` operations have ended, and takes
 * them out of the queue as `oik_queue_poll` does. Thread-safe.
 */
oik_status oik_queue_wait(oik_queue *queue,
                          size_t at_least,
                          oik_completed *completed,
                          size_t capacity,
                          size_t *count);

/**
 * Waits as `oik_queue_wait` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_queue_wait_for(oik_queue *queue,
                              size_t at_least,
                              double seconds,
                              oik_completed *completed,
                              size_t capacity,
                              size_t *count);

/**
 * Releases a queue. Thread-safe.
 */
oik_status oik_queue_release(oik_queue *queue);

/**
 * Makes a counter of operations that have ended (`oik_count_in`). A thread that waits for the last
 * of many operations is woken once. Thread-safe.
 */
oik_status oik_counter_new(oik_job *job, oik_counter **counter);

/**
 * Lets a counter count an operation when it ends. The operation is still to be waited for or
 * released. Thread-safe.
 */
oik_status oik_count_in(oik_operation *operation, oik_counter *counter);

/**
 * Writes how many operations have ended. Thread-safe.
 */
oik_status oik_counter_counts(oik_counter *counter, oik_counts *counts);

/**
 * Waits within the job's time limit until at least `ended` operations have ended. `counts` may be
 * NULL. Thread-safe.
 */
oik_status oik_counter_wait(oik_counter *counter, uint64_t ended, oik_counts *counts);

/**
 * Waits as `oik_counter_wait` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_counter_wait_for(oik_counter *counter,
                                uint64_t ended,
                                double seconds,
                                oik_counts *counts);

/**
 * Releases a counter. Thread-safe.
 */
oik_status oik_counter_release(oik_counter *counter);

/**
 * Makes `len` bytes of zeroed memory, and publishes it under this name: peers find it by
 * `oik_remote_region`, and may do what `rights` grant. Thread-safe.
 *
 * Errors: `OIK_INVALID` if the name is taken, empty or too long; `OIK_MEMORY`.
 */
oik_status oik_publish(oik_job *job,
                       const char *name,
                       size_t len,
                       oik_rights rights,
                       oik_region **region);

/**
 * Publishes memory of the program under this name, as `oik_publish` does. The memory stays mapped
 * and is not freed until the region is released or the node has left. Thread-safe.
 */
oik_status oik_publish_memory(oik_job *job,
                              const char *name,
                              void *address,
                              size_t len,
                              oik_rights rights,
                              oik_region **region);

/**
 * Registers memory of the program for operations of this node, which read and write it where it
 * lies. The memory stays mapped and is not freed until the region is released or the node has
 * left. Thread-safe.
 */
oik_status oik_register(oik_job *job, void *address, size_t len, oik_region **region);

/**
 * Registers memory of any kind. Peers find the region by its name, or, if `name` is NULL, by its
 * id (`oik_region_id`). With `OIK_NONE` as rights, it is for operations of this node alone.
 * Thread-safe.
 */
oik_status oik_region_new(oik_job *job,
                          const char *name,
                          const oik_memory *memory,
                          oik_rights rights,
                          oik_region **region);

/**
 * Releases a region. Memory of the program is the program's again when the call returns:
 * operations that use it have ended or are cancelled. Memory of the library lives until the last
 * operation with it has ended. Thread-safe.
 */
oik_status oik_region_release(oik_region *region);

/**
 * Ends the registration: peers are shut out at once, and no operation uses the memory any more
 * when the call returns. The memory, and its address, stay until the region is released.
 * Thread-safe.
 *
 * Errors: `OIK_INVALID` if the region is not registered any more; `OIK_PEER_LOST` if a peer that
 * was given up may still be in the middle of an access.
 */
oik_status oik_region_deregister(oik_region *region);

/**
 * Ends the registration as `oik_region_deregister` does, and registers the same memory in its
 * place, with these rights and a new id. The old id is useless to peers that know it. A name
 * stays. Both regions are to be released. Thread-safe.
 *
 * Errors: as `oik_region_deregister`; `OIK_INVALID` if the memory cannot grant these rights.
 */
oik_status oik_region_reregister(oik_region *region, oik_rights rights, oik_region **renewed);

/**
 * Writes the key of the region, by which an `oik_arrival` names it. Thread-safe.
 */
oik_status oik_region_key(oik_region *region, uint64_t *key);

/**
 * Writes the address of the region's memory, for plain loads and stores, which is valid until the
 * region is released. Thread-safe.
 */
oik_status oik_region_address(oik_region *region, void **address);

/**
 * Writes the region's length in bytes. Thread-safe.
 */
oik_status oik_region_len(oik_region *region, size_t *len);

/**
 * Writes the rights of peers. Thread-safe.
 */
oik_status oik_region_rights(oik_region *region, oik_rights *rights);

/**
 * Grants these rights to peers from now on. When the call returns, no forbidden access happens any
 * more. Thread-safe.
 */
oik_status oik_region_set_rights(oik_region *region, oik_rights rights);

/**
 * Grants rights as `oik_region_set_rights` does, on `len` bytes from `offset`. Both are multiples
 * of 4096 bytes, or the range ends with the region. Thread-safe.
 */
oik_status oik_region_protect(oik_region *region, uint64_t offset, uint64_t len, oik_rights rights);

/**
 * Makes the region longer, up to its capacity, where it is. A peer that looks it up again gets the
 * new length. Thread-safe.
 */
oik_status oik_region_grow(oik_region *region, size_t len);

/**
 * Writes the region's id. Thread-safe.
 */
oik_status oik_region_id(oik_region *region, oik_remote_id *id);

/**
 * Waits within the job's time limit until the 64-bit word at `offset` satisfies the comparison
 * with `value`. Bytes that a peer put before it changed the word are visible then. The word is
 * changed by `peer`, whose loss ends the wait, or by `OIK_ANY`. `seen` gets the word; it may be
 * NULL. Thread-safe.
 */
oik_status oik_wait_until(oik_region *region,
                          uint32_t peer,
                          uint64_t offset,
                          oik_comparison comparison,
                          uint64_t value,
                          uint64_t *seen);

/**
 * Waits as `oik_wait_until` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_wait_until_for(oik_region *region,
                              uint32_t peer,
                              uint64_t offset,
                              oik_comparison comparison,
                              uint64_t value,
                              double seconds,
                              uint64_t *seen);

/**
 * Changes an aligned word of this node's region in one step, also with respect to atomics of
 * peers. `bits` is 32 or 64. `expected` counts for `OIK_COMPARE_EXCHANGE` alone. `previous` gets
 * the word before; it may be NULL. Thread-safe.
 */
oik_status oik_region_atomic(oik_region *region,
                             uint64_t offset,
                             oik_change change,
                             uint32_t bits,
                             uint64_t operand,
                             uint64_t expected,
                             uint64_t *previous);

/**
 * Loads the aligned 64-bit word at `offset` (acquire). Thread-safe.
 */
oik_status oik_region_load(oik_region *region, uint64_t offset, uint64_t *word);

/**
 * Stores the aligned 64-bit word at `offset` (release). Thread-safe.
 */
oik_status oik_region_store(oik_region *region, uint64_t offset, uint64_t word);

/**
 * Copies `len` bytes of the region at `offset` to `into`, while peers may write. Thread-safe.
 */
oik_status oik_region_read(oik_region *region, uint64_t offset, void *into, size_t len);

/**
 * Copies `len` bytes at `from` to the region at `offset`, while peers may read. Thread-safe.
 */
oik_status oik_region_write(oik_region *region, uint64_t offset, const void *from, size_t len);

/**
 * Exchanges `pages` pages of two regions of this node, without copying where the kernel can move
 * pages. Offsets are in bytes, in whole pages. `placed` may be NULL. Thread-safe.
 */
oik_status oik_exchange_pages(oik_job *job,
                              oik_region *one,
                              uint64_t offset,
                              oik_region *other,
                              uint64_t other_offset,
                              uint64_t pages,
                              oik_placed *placed);

/**
 * Moves `pages` pages of one region of this node to another, as `oik_exchange_pages` exchanges
 * them. What remains at `from` is undefined. Thread-safe.
 */
oik_status oik_move_pages(oik_job *job,
                          oik_region *from,
                          uint64_t offset,
                          oik_region *to,
                          uint64_t to_offset,
                          uint64_t pages,
                          oik_placed *placed);

/**
 * Finds the region that the peer `rank` has published under this name. Waits within the job's time
 * limit until there is one. The region of a local peer is mapped, if it can be. Thread-safe.
 *
 * Errors: `OIK_INVALID` if there is no such rank; `OIK_REFUSED` if the peer had not published the
 * name when the limit passed; `OIK_TIMEOUT` if the peer has not answered; `OIK_PEER_LOST`.
 */
oik_status oik_remote_region(oik_job *job, uint32_t rank, const char *name, oik_remote **there);

/**
 * Finds a region as `oik_remote_region` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_remote_region_for(oik_job *job,
                                 uint32_t rank,
                                 const char *name,
                                 double seconds,
                                 oik_remote **there);

/**
 * Makes a region of a peer from the id that its owner got by `oik_region_id`. Thread-safe.
 *
 * Errors: `OIK_INVALID` if the bytes are not an id, or name a rank that the job does not have.
 */
oik_status oik_remote_region_by_id(oik_job *job, const oik_remote_id *id, oik_remote **there);

/**
 * Releases a region of a peer. Operations under way go on. Thread-safe.
 */
oik_status oik_remote_release(oik_remote *there);

/**
 * Writes the length in bytes, as it was when the region was looked up. Thread-safe.
 */
oik_status oik_remote_len(oik_remote *there, uint64_t *len);

/**
 * Writes the rights that the owner granted when the region was looked up. Thread-safe.
 */
oik_status oik_remote_rights(oik_remote *there, oik_rights *rights);

/**
 * Writes the rank of the region's owner. Thread-safe.
 */
oik_status oik_remote_rank(oik_remote *there, uint32_t *rank);

/**
 * Returns `OIK_OK` if operations reach the region's memory directly, by loads and stores of this
 * process. Otherwise returns `OIK_NOT_READY`, and `oik_error` gives the reason. Thread-safe.
 */
oik_status oik_remote_is_mapped(oik_remote *there);

/**
 * Writes `len` bytes at `from`, any memory of the program, to `offset` of a peer's region. The
 * operation is complete when the bytes are in the peer's memory and visible there.
 *
 * Up to 4096 bytes are copied before the call returns. Longer memory is read in place until the
 * operation has ended: it stays unchanged until `oik_wait` has returned. If `operation` is NULL,
 * the call returns when `from` may be used again, and `oik_flush` reports failures. Thread-safe.
 */
oik_status oik_put(oik_remote *there,
                   uint64_t offset,
                   const void *from,
                   size_t len,
                   oik_operation **operation);

/**
 * Writes `len` bytes at `at` of a region of this node to `offset` of a peer's region, without a
 * copy. `operation` may be NULL. Thread-safe.
 */
oik_status oik_put_from(oik_remote *there,
                        uint64_t offset,
                        oik_region *from,
                        size_t at,
                        size_t len,
                        oik_operation **operation);

/**
 * Puts as `oik_put_from` does, and adds `add` to the 64-bit word at `signal_offset` of `signal`
 * once all of the bytes are in place. `signal` is a region of the same peer; it may be `there`.
 * The peer waits for the word by `oik_wait_until`. `operation` may be NULL. Thread-safe.
 */
oik_status oik_put_signal(oik_remote *there,
                          uint64_t offset,
                          oik_region *from,
                          size_t at,
                          size_t len,
                          oik_remote *signal,
                          uint64_t signal_offset,
                          uint64_t add,
                          oik_operation **operation);

/**
 * Puts as `oik_put` does. Once all bytes are in place, an entry with this tag appears in the
 * peer's arrival queue (`oik_next_arrival`). The put waits for receive credit while the peer does
 * not take its entries. If `operation` is NULL, the call returns when `from` may be used again.
 * Thread-safe.
 */
oik_status oik_put_notify(oik_remote *there,
                          uint64_t offset,
                          const void *from,
                          size_t len,
                          uint64_t tag,
                          oik_operation **operation);

/**
 * Puts from a region of this node as `oik_put_from` does, with a notice as `oik_put_notify`.
 * `operation` may be NULL. Thread-safe.
 */
oik_status oik_put_notify_from(oik_remote *there,
                               uint64_t offset,
                               oik_region *from,
                               size_t at,
                               size_t len,
                               uint64_t tag,
                               oik_operation **operation);

/**
 * Reads `len` bytes at `offset` of a peer's region into any memory of the program, `into`, which
 * is left alone until `oik_wait` has returned. If `operation` is NULL, the call returns when the
 * bytes are there. Thread-safe.
 */
oik_status oik_get(oik_remote *there,
                   uint64_t offset,
                   void *into,
                   size_t len,
                   oik_operation **operation);

/**
 * Reads `len` bytes at `offset` of a peer's region into a region of this node, at `at`.
 * `operation` may be NULL. Thread-safe.
 */
oik_status oik_get_into(oik_remote *there,
                        uint64_t offset,
                        oik_region *into,
                        size_t at,
                        size_t len,
                        oik_operation **operation);

/**
 * Writes the rows `here` of a region of this node to the rows `block` of a peer's region.
 * `operation` may be NULL. Thread-safe.
 */
oik_status oik_put_block(oik_remote *there,
                         const oik_block *block,
                         oik_region *from,
                         const oik_block *here,
                         oik_operation **operation);

/**
 * Puts as `oik_put_block` does, and then changes a word as `oik_put_signal` does. `operation` may
 * be NULL. Thread-safe.
 */
oik_status oik_put_block_signal(oik_remote *there,
                                const oik_block *block,
                                oik_region *from,
                                const oik_block *here,
                                oik_remote *signal,
                                uint64_t signal_offset,
                                uint64_t add,
                                oik_operation **operation);

/**
 * Reads the rows `block` of a peer's region into the rows `here` of a region of this node.
 * `operation` may be NULL. Thread-safe.
 */
oik_status oik_get_block(oik_remote *there,
                         const oik_block *block,
                         oik_region *into,
                         const oik_block *here,
                         oik_operation **operation);

/**
 * Writes `count` pieces of a region of this node to a peer's region, as one operation. If there
 * are more than `OIK_LIST_MAX`, or one of them is not inside its region, none is written.
 * `operation` may be NULL. Thread-safe.
 */
oik_status oik_put_list(oik_remote *there,
                        oik_region *from,
                        const oik_piece *pieces,
                        size_t count,
                        oik_operation **operation);

/**
 * Writes pieces as `oik_put_list` does, and then adds `add` to the 64-bit word at `signal_offset`
 * of `signal` as `oik_put_signal` does, once all pieces are in place. `operation` may be NULL.
 * Thread-safe.
 */
oik_status oik_put_list_signal(oik_remote *there,
                               oik_region *from,
                               const oik_piece *pieces,
                               size_t count,
                               oik_remote *signal,
                               uint64_t signal_offset,
                               uint64_t add,
                               oik_operation **operation);

/**
 * Writes pieces as `oik_put_list` does. Once all of them are in place, an entry with this tag
 * appears in the peer's arrival queue (`oik_next_arrival`), with offset and length of the last
 * piece. `operation` may be NULL. Thread-safe.
 */
oik_status oik_put_list_notify(oik_remote *there,
                               oik_region *from,
                               const oik_piece *pieces,
                               size_t count,
                               uint64_t tag,
                               oik_operation **operation);

/**
 * Reads `count` pieces of a peer's region into a region of this node, as one operation.
 * `operation` may be NULL. Thread-safe.
 */
oik_status oik_get_list(oik_remote *there,
                        oik_region *into,
                        const oik_piece *pieces,
                        size_t count,
                        oik_operation **operation);

/**
 * Combines `count` numbers, any memory of the program, with those at `offset` of a peer's region,
 * each in one step. `kind` is `OIK_U32`, `OIK_I32`, `OIK_U64`, `OIK_I64`, `OIK_F32` or `OIK_F64`;
 * `operator_` is `OIK_SUM`, `OIK_MIN` or `OIK_MAX`. The numbers stay unchanged until the operation
 * has ended. If `operation` is NULL, the call returns when it has. Thread-safe.
 */
oik_status oik_accumulate(oik_remote *there,
                          uint64_t offset,
                          oik_kind kind,
                          oik_operator operator_,
                          const void *numbers,
                          size_t count,
                          oik_operation **operation);

/**
 * Accumulates as `oik_accumulate` does, from `count` numbers at `at` of a region of this node.
 * `operation` may be NULL. Thread-safe.
 */
oik_status oik_accumulate_from(oik_remote *there,
                               uint64_t offset,
                               oik_kind kind,
                               oik_operator operator_,
                               oik_region *from,
                               size_t at,
                               size_t count,
                               oik_operation **operation);

/**
 * Changes an aligned word of a peer's region in one step. `bits` is 32 or 64. `expected` counts
 * for `OIK_COMPARE_EXCHANGE` alone. `oik_wait_value` gives the word before. `operation` may be
 * NULL, and then the word before is not fetched. Thread-safe.
 */
oik_status oik_atomic(oik_remote *there,
                      uint64_t offset,
                      oik_change change,
                      uint32_t bits,
                      uint64_t operand,
                      uint64_t expected,
                      oik_operation **operation);

/**
 * Adds to the 64-bit word at `offset` of a peer's region, waits within the job's time limit, and
 * writes the word before. Thread-safe.
 */
oik_status oik_fetch_add(oik_remote *there, uint64_t offset, uint64_t add, uint64_t *previous);

/**
 * Stores `desired` in the 64-bit word at `offset` of a peer's region if that word is `expected`.
 * Waits within the job's time limit, and writes the word before. Thread-safe.
 */
oik_status oik_compare_exchange(oik_remote *there,
                                uint64_t offset,
                                uint64_t expected,
                                uint64_t desired,
                                uint64_t *previous);

/**
 * Exchanges `pages` pages of a peer's region with pages of a region of this node. Offsets are in
 * bytes, in whole pages. `placed` may be NULL. Thread-safe.
 */
oik_status oik_exchange_with(oik_remote *there,
                             uint64_t offset,
                             oik_region *here,
                             uint64_t here_offset,
                             uint64_t pages,
                             oik_placed *placed);

/**
 * Writes the latest accesses of peers that this node has refused, at most `capacity` of them, the
 * oldest first. `count` gets their number. Thread-safe.
 */
oik_status oik_refused_accesses(oik_job *job,
                                oik_refused_access *accesses,
                                size_t capacity,
                                size_t *count);

/**
 * Sends a message of `len` bytes (at most 1 GiB) to the peer `rank`. The bytes are copied before
 * the call returns. The operation is done when the peer has the message. `operation` may be NULL.
 * Thread-safe.
 */
oik_status oik_send(oik_job *job,
                    uint32_t rank,
                    oik_class class_,
                    uint64_t tag,
                    const void *bytes,
                    size_t len,
                    oik_operation **operation);

/**
 * Sends `len` bytes at `at` of a region of this node, without a copy. `operation` may be NULL.
 * Thread-safe.
 */
oik_status oik_send_from(oik_job *job,
                         uint32_t rank,
                         oik_class class_,
                         uint64_t tag,
                         oik_region *from,
                         size_t at,
                         size_t len,
                         oik_operation **operation);

/**
 * Receives a message from the peer `from`, or from `OIK_ANY`. Waits within the job's time limit.
 * `oik_message_info` is read by `oik_message_get`. Thread-safe: each message goes to one caller.
 *
 * Errors: `OIK_TIMEOUT`; `OIK_PEER_LOST` or `OIK_PEER_LEAVING` if the peer will send no more.
 */
oik_status oik_receive(oik_job *job, uint32_t from, oik_message **message);

/**
 * Receives as `oik_receive` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_receive_for(oik_job *job, uint32_t from, double seconds, oik_message **message);

/**
 * Receives a message that has arrived already. Returns `OIK_NOT_READY` if there is none.
 * Thread-safe.
 */
oik_status oik_try_receive(oik_job *job, uint32_t from, oik_message **message);

/**
 * Waits for the next message from the peer `from`, or from `OIK_ANY`, and describes it in `next`
 * without taking it, as `MPI_Probe` does. Waits within the job's time limit. The next receive with
 * the same `from` gets that message, unless another thread receives it before, or a receive that
 * is posted meanwhile matches it. Thread-safe.
 *
 * Errors: those of `oik_receive`.
 */
oik_status oik_probe(oik_job *job, uint32_t from, oik_received *next);

/**
 * Describes the next message as `oik_probe` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_probe_for(oik_job *job, uint32_t from, double seconds, oik_received *next);

/**
 * Describes the next message if one has arrived. Returns `OIK_NOT_READY` if there is none.
 * Thread-safe.
 */
oik_status oik_try_probe(oik_job *job, uint32_t from, oik_received *next);

/**
 * Receives `count` messages from any peers, in the order of their arrival. Waits within the job's
 * time limit until all of them have arrived, and is woken once. `messages` has room for `count`
 * handles. `received` gets the number of messages, also if the call fails: those that have arrived
 * are not lost. Thread-safe: each message goes to one caller.
 *
 * Errors: `OIK_TIMEOUT`; `OIK_PEER_LOST` or `OIK_PEER_LEAVING` if the other nodes will send no
 * more.
 */
oik_status oik_receive_batch(oik_job *job, oik_message **messages, size_t count, size_t *received);

/**
 * Receives messages as `oik_receive_batch` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_receive_batch_for(oik_job *job,
                                 oik_message **messages,
                                 size_t count,
                                 double seconds,
                                 size_t *received);

/**
 * Receives a message as `oik_receive` does, into a buffer, without making an object. `info` gets
 * its sender, tag, class and length. If it is longer than `capacity`, the call returns
 * `OIK_TOO_SMALL`, and `info` has the message. Thread-safe.
 */
oik_status oik_receive_into(oik_job *job,
                            uint32_t from,
                            void *buffer,
                            size_t capacity,
                            oik_message_info *info);

/**
 * Receives as `oik_receive_into` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_receive_into_for(oik_job *job,
                                uint32_t from,
                                void *buffer,
                                size_t capacity,
                                double seconds,
                                oik_message_info *info);

/**
 * Receives as `oik_receive_into` does, a message that has arrived already. Returns `OIK_NOT_READY`
 * if there is none. Thread-safe.
 */
oik_status oik_try_receive_into(oik_job *job,
                                uint32_t from,
                                void *buffer,
                                size_t capacity,
                                oik_message_info *info);

/**
 * Offers `len` bytes of any memory for one message: of the peer `from`, or of any for `OIK_ANY`,
 * whose tag equals `tag` in the bits of `mask`. The memory is left alone until `oik_wait_received`
 * has returned. A mask of `UINT64_MAX` wants exactly the tag, and 0 wants any.
 *
 * Receives match in the order in which they were posted. The oldest unread message that matches
 * fills a receive at once. `oik_receive` gets the messages that no posted receive matches. If the
 * message is longer than the memory, the receive fails with `OIK_TOO_SMALL`, and the message waits
 * to be received. Thread-safe.
 */
oik_status oik_post_receive(oik_job *job,
                            uint32_t from,
                            uint64_t tag,
                            uint64_t mask,
                            void *into,
                            size_t len,
                            oik_operation **operation);

/**
 * Offers `len` bytes at `at` of a region of this node for a message, as `oik_post_receive` does.
 * Thread-safe.
 */
oik_status oik_post_receive_into(oik_job *job,
                                 uint32_t from,
                                 uint64_t tag,
                                 uint64_t mask,
                                 oik_region *into,
                                 size_t at,
                                 size_t len,
                                 oik_operation **operation);

/**
 * Waits for a posted receive within the job's time limit, and releases it. Writes sender, tag and
 * length of the message, also if it was too long for the memory (`OIK_TOO_SMALL`). Thread-safe.
 */
oik_status oik_wait_received(oik_operation *operation, oik_received *message);

/**
 * Waits as `oik_wait_received` does, with this time limit in seconds. After `OIK_TIMEOUT` the
 * receive goes on. Thread-safe.
 */
oik_status oik_wait_received_for(oik_operation *operation, double seconds, oik_received *message);

/**
 * Returns `OIK_NOT_READY` if the posted receive has not ended. Otherwise does as
 * `oik_wait_received`. Thread-safe.
 */
oik_status oik_test_received(oik_operation *operation, oik_received *message);

/**
 * Writes the facts about a message, its bytes included. Thread-safe.
 */
oik_status oik_message_get(oik_message *message, oik_message_info *info);

/**
 * Forwards a message to the peer `rank`, without a copy, and releases it. `operation` may be NULL.
 * Thread-safe.
 */
oik_status oik_forward(oik_job *job,
                       uint32_t rank,
                       oik_class class_,
                       uint64_t tag,
                       oik_message *message,
                       oik_operation **operation);

/**
 * Releases a message and its bytes. Thread-safe.
 */
oik_status oik_message_release(oik_message *message);

/**
 * Makes a FIFO of `slots` elements of up to `longest` bytes, and publishes it under this name.
 * Thread-safe.
 */
oik_status oik_fifo_new(oik_job *job,
                        const char *name,
                        uint64_t slots,
                        uint64_t longest,
                        oik_fifo **fifo);

/**
 * Writes the FIFO's id, by which any node of the job can push into it (`oik_remote_fifo_by_id`).
 * The id may be sent in a message. Thread-safe.
 */
oik_status oik_fifo_id(oik_fifo *fifo, oik_remote_id *id);

/**
 * Takes an element out of a FIFO of this node. Waits within the job's time limit. `capacity` is at
 * least the FIFO's longest element. `len` gets the length. Thread-safe.
 */
oik_status oik_pop(oik_fifo *fifo, void *buffer, size_t capacity, size_t *len);

/**
 * Takes an element out as `oik_pop` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_pop_for(oik_fifo *fifo, void *buffer, size_t capacity, double seconds, size_t *len);

/**
 * Takes an element out as `oik_pop` does. Returns `OIK_NOT_READY` if there is none. Thread-safe.
 */
oik_status oik_try_pop(oik_fifo *fifo, void *buffer, size_t capacity, size_t *len);

/**
 * Releases a FIFO. Thread-safe.
 */
oik_status oik_fifo_release(oik_fifo *fifo);

/**
 * Finds the FIFO that the peer `rank` has made under this name. Waits within the job's time limit
 * until there is one. Thread-safe.
 */
oik_status oik_remote_fifo_find(oik_job *job,
                                uint32_t rank,
                                const char *name,
                                oik_remote_fifo **fifo);

/**
 * Finds a FIFO as `oik_remote_fifo_find` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_remote_fifo_find_for(oik_job *job,
                                    uint32_t rank,
                                    const char *name,
                                    double seconds,
                                    oik_remote_fifo **fifo);

/**
 * Makes a FIFO of a peer from the id that its owner got by `oik_fifo_id`. Thread-safe.
 *
 * Errors: `OIK_INVALID` if the bytes are not an id, or that of something else, or name a rank that
 * the job does not have.
 */
oik_status oik_remote_fifo_by_id(oik_job *job, const oik_remote_id *id, oik_remote_fifo **fifo);

/**
 * Pushes an element into a FIFO of a peer. Waits within the job's time limit for room.
 * Thread-safe.
 */
oik_status oik_push(oik_remote_fifo *fifo, const void *element, size_t len);

/**
 * Pushes as `oik_push` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_push_for(oik_remote_fifo *fifo, const void *element, size_t len, double seconds);

/**
 * Pushes an element. Returns `OIK_FULL` if there is no room for it. Thread-safe.
 */
oik_status oik_try_push(oik_remote_fifo *fifo, const void *element, size_t len);

/**
 * Begins a push. The operation fails with `OIK_FULL` if there is no room. `operation` may be NULL.
 * Thread-safe.
 */
oik_status oik_post(oik_remote_fifo *fifo,
                    const void *element,
                    size_t len,
                    oik_operation **operation);

/**
 * Releases a FIFO of a peer. Thread-safe.
 */
oik_status oik_remote_fifo_release(oik_remote_fifo *fifo);

/**
 * Takes the oldest put with notice (`oik_put_notify`) to this region, or to any for NULL. Waits
 * within the job's time limit. Each is taken once, by whoever asks first.
 *
 * An entry that is not taken costs its sender 128 bytes of the 16 MiB that unread messages and
 * entries may cost. A sender without credit holds its puts with notice, and its messages, back.
 * Thread-safe.
 *
 * Errors: `OIK_TIMEOUT`; `OIK_PEER_LOST` or `OIK_PEER_LEAVING` if the other nodes will put nothing
 * more.
 */
oik_status oik_next_arrival(oik_job *job, oik_region *region, oik_arrival *arrival);

/**
 * Takes a put with notice as `oik_next_arrival` does, with this time limit in seconds.
 * Thread-safe.
 */
oik_status oik_next_arrival_for(oik_job *job,
                                oik_region *region,
                                double seconds,
                                oik_arrival *arrival);

/**
 * Takes a put with notice that has arrived already. Returns `OIK_NOT_READY` if there is none.
 * Thread-safe.
 */
oik_status oik_try_arrival(oik_job *job, oik_region *region, oik_arrival *arrival);

/**
 * Waits until all nodes have come here. Afterwards each node sees what the others wrote to shared
 * arrays before. All nodes call it equally often. Thread-safe, but one barrier at a time.
 *
 * Errors: `OIK_INVALID` if a guard is alive; `OIK_MISMATCH` if another node calls another
 * collective; `OIK_PEER_LOST`; `OIK_TIMEOUT`.
 */
oik_status oik_barrier(oik_job *job);

/**
 * Waits as `oik_barrier` does, with this time limit in seconds. Thread-safe, but one barrier at a
 * time. After `OIK_TIMEOUT`, the next barrier goes on to wait for the same one, if the program
 * calls no other collective before. What the node has written since the first call becomes visible
 * with the collective after that.
 */
oik_status oik_barrier_for(oik_job *job, double seconds);

/**
 * Takes the lock of this number, one of the job's 2^64. Waits within the job's time limit.
 * Afterwards this node sees what its last holders wrote to shared arrays. Thread-safe.
 */
oik_status oik_lock_take(oik_job *job, uint64_t number, oik_lock **lock);

/**
 * Writes the number of the lock of a name, which is 2^63 or more and the same on all nodes and in
 * all languages. Errors then call the lock so. Two names have the same lock with a probability of
 * 2^-63. Thread-safe.
 */
oik_status oik_lock_number(oik_job *job, const char *name, uint64_t *number);

/**
 * Takes a lock as `oik_lock_take` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_lock_take_for(oik_job *job, uint64_t number, double seconds, oik_lock **lock);

/**
 * Takes a lock as `oik_lock_take` does, if no other thread or node has it. A lock that another
 * node gave back a moment ago may still count as taken. Thread-safe.
 *
 * Errors: `OIK_NOT_READY` at once if the lock is taken.
 */
oik_status oik_lock_try(oik_job *job, uint64_t number, oik_lock **lock);

/**
 * Takes a lock for reading. Waits within the job's time limit. Any number of threads and nodes can
 * have a lock for reading at once, while none has it by `oik_lock_take`. Afterwards this node sees
 * what the last holders wrote to shared arrays. Writes under the lock are not prevented, and two
 * holders that write the same elements race. `oik_unlock` gives the lock back. Thread-safe.
 */
oik_status oik_read_lock_take(oik_job *job, uint64_t number, oik_lock **lock);

/**
 * Takes a lock as `oik_read_lock_take` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_read_lock_take_for(oik_job *job, uint64_t number, double seconds, oik_lock **lock);

/**
 * Takes a lock as `oik_read_lock_take` does, if no other thread or node has it by `oik_lock_take`
 * or waits for it. Thread-safe.
 *
 * Errors: `OIK_NOT_READY` at once if the lock is taken.
 */
oik_status oik_read_lock_try(oik_job *job, uint64_t number, oik_lock **lock);

/**
 * Gives a lock back, so that the next holder sees what this node wrote. Thread-safe: any thread
 * may give it back.
 */
oik_status oik_unlock(oik_lock *lock);

/**
 * Tells the node `to` that this node has come here. `to` sees what this node wrote to shared
 * arrays before, once it has waited for the notification. Thread-safe.
 */
oik_status oik_notify(oik_job *job, uint32_t to);

/**
 * Waits within the job's time limit for a notification of the node `from`. Thread-safe.
 */
oik_status oik_wait_notify(oik_job *job, uint32_t from);

/**
 * Waits as `oik_wait_notify` does, with this time limit in seconds. Thread-safe.
 */
oik_status oik_wait_notify_for(oik_job *job, uint32_t from, double seconds);

/**
 * Makes an array of this name, with `axes` axes (1 to 4) of the extents `shape`, and elements of
 * one kind. All nodes make the same arrays in the same order, in C or in another language.
 * Elements are 0 at first. Rows are contiguous: the last axis is the innermost one. Thread-safe,
 * but one collective at a time.
 */
oik_status oik_array_new(oik_job *job,
                         const char *name,
                         const size_t *shape,
                         size_t axes,
                         oik_kind kind,
                         oik_array **array);

/**
 * Makes an array as `oik_array_new` does, with these settings. Thread-safe, but one collective at
 * a time.
 */
oik_status oik_array_new_with(oik_job *job,
                              const char *name,
                              const size_t *shape,
                              size_t axes,
                              const oik_array_options *options,
                              oik_array **array);

/**
 * Releases this node's handle of an array. Its memory stays for the other nodes; addresses of
 * `oik_array_plain` are invalid from then on. Guards stay valid. Thread-safe.
 */
oik_status oik_array_release(oik_array *array);

/**
 * Frees the array on all nodes. All nodes call it. The handle is still to be released.
 * Thread-safe, but one collective at a time.
 */
oik_status oik_array_free(oik_array *array);

/**
 * Writes the number of elements. Thread-safe.
 */
oik_status oik_array_len(oik_array *array, size_t *len);

/**
 * Writes the extents of the axes to `shape`, which has room for `capacity`, and their number to
 * `axes`. Thread-safe.
 */
oik_status oik_array_shape(oik_array *array, size_t *shape, size_t capacity, size_t *axes);

/**
 * Writes the size of an element in bytes. Thread-safe.
 */
oik_status oik_array_element_size(oik_array *array, size_t *size);

/**
 * Writes the block of elements whose home is the node `rank`, one range for each of the `axes`
 * axes. If the node is home to several blocks, writes the first. A node that is home to none has
 * an empty block. Thread-safe.
 */
oik_status oik_array_home_block(oik_array *array, uint32_t rank, oik_range *part, size_t axes);

/**
 * Writes all blocks of elements whose home is the node `rank`, each as one range for each axis.
 * `parts` has room for `capacity` ranges. `count` gets the number of blocks. Thread-safe.
 */
oik_status oik_array_home_blocks(oik_array *array,
                                 uint32_t rank,
                                 oik_range *parts,
                                 size_t capacity,
                                 size_t *count);

/**
 * Writes the elements, in row-major order, from the first to the last one whose declared home is
 * the node `rank`. It never changes. Thread-safe.
 */
oik_status oik_array_home_range(oik_array *array, uint32_t rank, oik_range *range);

/**
 * Writes the rank of the node that was declared as the home of the element of this index, which
 * has one number for each axis. It never changes, also if homes move. Thread-safe.
 */
oik_status oik_array_home_of(oik_array *array, const size_t *index, size_t axes, uint32_t *rank);

/**
 * Writes the address of the array's elements, for plain loads and stores without a guard, and
 * their length in bytes (which may be NULL). Pages come when they are touched, and writes become
 * visible at the next barrier. From this call on, the array is tracked by pages. Two nodes do not
 * write the same element between two barriers. The address is valid until the array is released.
 * Thread-safe.
 *
 * Errors: `OIK_INVALID` if all nodes map the same memory, and a guard of a node in Rust is alive;
 * `OIK_PEER_LOST`.
 */
oik_status oik_array_plain(oik_array *array, void **address, size_t *len);

/**
 * Lets this node read a part of the array: one range for each of `axes` axes, or all of it if
 * `part` is NULL. Waits until all of it is here. `view` gets its memory, which the program reads
 * until it releases the guard. No guard is alive at a barrier. Thread-safe.
 *
 * Errors: `OIK_INVALID` if the part is out of bounds or another guard writes it; `OIK_PEER_LOST`.
 */
oik_status oik_read(oik_array *array,
                    const oik_range *part,
                    size_t axes,
                    oik_view *view,
                    oik_guard **guard);

/**
 * Lets this node write a part of the array, as `oik_read` lets it read. No other node writes the
 * part before the next barrier, or without the same lock. Thread-safe.
 *
 * Errors: as `oik_read`; `OIK_INVALID` if another guard is alive there.
 */
oik_status oik_write(oik_array *array,
                     const oik_range *part,
                     size_t axes,
                     oik_view *view,
                     oik_guard **guard);

/**
 * Lets this node write a part as `oik_write` does, of which only elements that change count as
 * written. Other nodes may write the other elements. Thread-safe.
 */
oik_status oik_write_merged(oik_array *array,
                            const oik_range *part,
                            size_t axes,
                            oik_view *view,
                            oik_guard **guard);

/**
 * Lets this node read a part as `oik_read` does, without waiting for it: pages come when a load
 * touches them. A load cannot fail. If the home of a page is lost, it gives the last bytes that
 * were here, and `oik_guard_release` reports that. Thread-safe.
 */
oik_status oik_read_lazily(oik_array *array,
                           const oik_range *part,
                           size_t axes,
                           oik_view *view,
                           oik_guard **guard);

/**
 * Lets this node write a part as `oik_write_merged` does, without waiting for it: pages come when
 * they are touched. From this call on, the array is tracked by pages, and the first store to each
 * page between two barriers traps. Thread-safe.
 */
oik_status oik_write_lazily(oik_array *array,
                            const oik_range *part,
                            size_t axes,
                            oik_view *view,
                            oik_guard **guard);

/**
 * Sends what the guard writes to these nodes at its end, although they have not read the part
 * before. Thread-safe.
 */
oik_status oik_guard_push_to(oik_guard *guard, const uint32_t *ranks, size_t count);

/**
 * Ends a guard. What it wrote begins to travel to the nodes that read it. Its memory is not
 * touched any more. Thread-safe.
 */
oik_status oik_guard_release(oik_guard *guard);

/**
 * Begins to fetch a part, which this node will read. Returns at once. Thread-safe.
 */
oik_status oik_array_prefetch(oik_array *array, const oik_range *part, size_t axes);

/**
 * Asks the writers of a part to send what they write to this node, from the next barrier on.
 * Thread-safe.
 */
oik_status oik_array_subscribe(oik_array *array, const oik_range *part, size_t axes);

/**
 * Ends what `oik_array_subscribe` began. Thread-safe.
 */
oik_status oik_array_unsubscribe(oik_array *array, const oik_range *part, size_t axes);

/**
 * Subscribes to the `n` indices around a part, along each axis. Thread-safe.
 */
oik_status oik_array_halo(oik_array *array, const oik_range *part, size_t axes, size_t n);

/**
 * Gives all elements the value at `value`. All nodes call it with the same value. Thread-safe, but
 * one collective at a time.
 */
oik_status oik_array_fill(oik_array *array, const void *value);

/**
 * Gives the array another shape, of as many axes. All nodes call it. Elements keep their indices,
 * and new ones are 0. Addresses of `oik_array_plain` are those of the old array. Thread-safe, but
 * one collective at a time.
 */
oik_status oik_array_resize(oik_array *array, const size_t *shape, size_t axes);

/**
 * Distributes the array anew, as `options` say, of which only the distribution counts. All nodes
 * call it. Thread-safe, but one collective at a time.
 */
oik_status oik_array_redistribute(oik_array *array, const oik_array_options *options);

/**
 * Writes the counters of the array on this node. Thread-safe.
 */
oik_status oik_array_get_statistics(oik_array *array, oik_array_statistics *statistics);

/**
 * Writes why each node keeps pages of its own of the array to `buffer`: `len` bytes without a zero
 * byte. There are none if all nodes map the same memory, because the job is on one machine.
 * Returns `OIK_TOO_SMALL` if `capacity` is less. Thread-safe.
 */
oik_status oik_array_why_not_shared(oik_array *array, void *buffer, size_t capacity, size_t *len);

/**
 * Writes `count` elements to their homes, from the element `first` in row-major order on. They are
 * visible there when the call returns, and here after the next barrier. Thread-safe.
 */
oik_status oik_array_put(oik_array *array, size_t first, const void *elements, size_t count);

/**
 * Reads `count` elements from their homes, as they are there now. Thread-safe.
 */
oik_status oik_array_get(oik_array *array, size_t first, void *into, size_t count);

/**
 * Combines an element with the number at `number` at its home, in one step. `operator_` is
 * `OIK_SUM`, `OIK_MIN` or `OIK_MAX`. `previous` gets the element before; it may be NULL.
 * Thread-safe.
 */
oik_status oik_array_fetch_combine(oik_array *array,
                                   const size_t *index,
                                   size_t axes,
                                   oik_operator operator_,
                                   const void *number,
                                   void *previous);

/**
 * Replaces an element by the one at `desired` at its home if it has the bits at `expected`, in one
 * step. `previous` gets the element before; it may be NULL. Thread-safe.
 */
oik_status oik_array_compare_exchange(oik_array *array,
                                      const size_t *index,
                                      size_t axes,
                                      const void *expected,
                                      const void *desired,
                                      void *previous);

/**
 * Combines `count` numbers with the elements from `first` on, at their homes, each in one step.
 * `operator_` is `OIK_SUM`, `OIK_MIN` or `OIK_MAX`. Thread-safe.
 */
oik_status oik_array_accumulate(oik_array *array,
                                size_t first,
                                oik_operator operator_,
                                const void *numbers,
                                size_t count);

/**
 * Writes the array to a file in NumPy's format (.npy), each node its own part. All nodes call it.
 * The file replaces an older one when it is whole. Its mode and symbolic links stay. Devices and
 * pipes are refused. Thread-safe, but one collective at a time.
 */
oik_status oik_array_save(oik_array *array, const char *path);

/**
 * Reads the array from a file of `oik_array_save` or NumPy. All nodes call it. Thread-safe, but
 * one collective at a time.
 */
oik_status oik_array_load(oik_array *array, const char *path);

/**
 * Makes a handle of the team of all nodes. No node waits for another. Thread-safe.
 */
oik_status oik_world(oik_job *job, oik_team **team);

/**
 * Splits a team: ranks of the same color form a new team, in the order of their keys, and of their
 * ranks if keys are equal. A rank of `OIK_NO_COLOR` gets NULL. All ranks call it. Thread-safe, but
 * one collective of a team at a time.
 */
oik_status oik_team_split(oik_team *team, uint32_t color, int64_t key, oik_team **part);

/**
 * Makes a team of the ranks of a team that live. All of them call it. Thread-safe, but one
 * collective of a team at a time.
 */
oik_status oik_team_shrink(oik_team *team, oik_team **living);

/**
 * Releases a team. Thread-safe.
 */
oik_status oik_team_release(oik_team *team);

/**
 * Writes this node's rank in the team. Thread-safe.
 */
oik_status oik_team_rank(oik_team *team, uint32_t *rank);

/**
 * Writes the number of ranks in the team. Thread-safe.
 */
oik_status oik_team_size(oik_team *team, uint32_t *size);

/**
 * Writes the job's ranks of the members to `ranks`, which has room for `capacity`. There are as
 * many as `oik_team_size` says. Thread-safe.
 */
oik_status oik_team_ranks(oik_team *team, uint32_t *ranks, size_t capacity);

/**
 * Waits until all ranks of the team have called it. Each rank then sees what the others wrote to
 * shared arrays before. Thread-safe, but one collective of a team at a time.
 */
oik_status oik_team_barrier(oik_team *team);

/**
 * Writes the name of the algorithm that a collective (such as "all_reduce") uses for vectors of
 * `bytes` bytes: `len` bytes without a zero byte. Thread-safe.
 */
oik_status oik_team_algorithm(oik_team *team,
                              const char *collective,
                              size_t bytes,
                              void *buffer,
                              size_t capacity,
                              size_t *len);

/**
 * Sends `count` values of the root to all ranks. All ranks give the same root, kind and count. If
 * `operation` is NULL, the call waits within the job's time limit; otherwise it returns at once,
 * and `values` is left alone until `oik_wait` has returned. Thread-safe, but all ranks of a team
 * call its collectives in the same order. After an error, memory for a result may have been
 * written in part.
 *
 * Errors, of all collectives: `OIK_MISMATCH` if the ranks do not call the same; `OIK_INVALID` if
 * an argument makes no sense (NULL, an unknown constant), and then the collective fails on the
 * other ranks, too; `OIK_PEER_LOST`; `OIK_TIMEOUT`. A rank that passes another handle than that of
 * a team takes no part, and the others wait for it.
 */
oik_status oik_broadcast(oik_team *team,
                         uint32_t root,
                         oik_kind kind,
                         void *values,
                         size_t count,
                         oik_operation **operation);

/**
 * Collects `count` values of each rank at the root, in the order of ranks. `result` has room for
 * those of all ranks; at other ranks it may be NULL. `operation` is as for `oik_broadcast`.
 * Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_gather(oik_team *team,
                      uint32_t root,
                      oik_kind kind,
                      const void *values,
                      size_t count,
                      void *result,
                      oik_operation **operation);

/**
 * Collects `count` values of each rank at all ranks, in the order of ranks. `result` has room for
 * those of all ranks. `operation` is as for `oik_broadcast`. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_all_gather(oik_team *team,
                          oik_kind kind,
                          const void *values,
                          size_t count,
                          void *result,
                          oik_operation **operation);

/**
 * Sends block `r` of the root's values, of `count` values, to rank `r`. At other ranks `values`
 * may be NULL. `result` has room for `count` values. `operation` is as for `oik_broadcast`.
 * Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_scatter(oik_team *team,
                       uint32_t root,
                       oik_kind kind,
                       const void *values,
                       size_t count,
                       void *result,
                       oik_operation **operation);

/**
 * Sends block `r` of the values, of `count` values, to rank `r`, and gets one block of each rank.
 * `operation` is as for `oik_broadcast`. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_all_to_all(oik_team *team,
                          oik_kind kind,
                          const void *values,
                          size_t count,
                          void *result,
                          oik_operation **operation);

/**
 * Combines `count` values of all ranks, element by element, at the root. At other ranks `result`
 * may be NULL. For `OIK_MIN_LOCATION` and `OIK_MAX_LOCATION`, elements are pairs. `operation` is
 * as for `oik_broadcast`. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_reduce(oik_team *team,
                      uint32_t root,
                      oik_kind kind,
                      oik_operator operator_,
                      const void *values,
                      size_t count,
                      void *result,
                      oik_operation **operation);

/**
 * Combines `count` values of all ranks, element by element, in place: all ranks get the result.
 * Otherwise as `oik_reduce`. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_all_reduce(oik_team *team,
                          oik_kind kind,
                          oik_operator operator_,
                          void *values,
                          size_t count,
                          oik_operation **operation);

/**
 * Combines the values of all ranks, element by element. Rank `r` gets block `r` of the result, of
 * `count` values. Otherwise as `oik_reduce`. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_reduce_scatter(oik_team *team,
                              oik_kind kind,
                              oik_operator operator_,
                              const void *values,
                              size_t count,
                              void *result,
                              oik_operation **operation);

/**
 * Combines `count` values of the ranks up to this one, element by element. Otherwise as
 * `oik_reduce`. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_scan(oik_team *team,
                    oik_kind kind,
                    oik_operator operator_,
                    const void *values,
                    size_t count,
                    void *result,
                    oik_operation **operation);

/**
 * Combines `count` values of the ranks before this one. At rank 0, `result` stays as it is.
 * Otherwise as `oik_reduce`. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_exclusive_scan(oik_team *team,
                              oik_kind kind,
                              oik_operator operator_,
                              const void *values,
                              size_t count,
                              void *result,
                              oik_operation **operation);

/**
 * Adds up `count` values of each rank, `OIK_F32` or `OIK_F64`, exactly, and rounds once: the sum
 * has the same bits in any order and on any number of ranks. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_sum_exact(oik_team *team,
                         oik_kind kind,
                         const void *values,
                         size_t count,
                         double *sum);

/**
 * Waits for all nodes as `oik_barrier` does, and combines `count` values (at most 65,536) in
 * place, element by element. `kind` is `OIK_F64`, `OIK_I64` or `OIK_U64`; `operator_` is
 * `OIK_SUM`, `OIK_MIN` or `OIK_MAX`. Thread-safe, but one barrier at a time.
 */
oik_status oik_barrier_reduce(oik_job *job,
                              oik_kind kind,
                              oik_operator operator_,
                              void *values,
                              size_t count);

/**
 * Combines `count` elements of `size` bytes of all ranks by a function of the program, in the
 * order of ranks, in place: all ranks get the result. Every rank combines, and calls
 * `combine(into, next, count, context)`. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_all_reduce_by(oik_team *team,
                             size_t size,
                             oik_combine combine,
                             void *context,
                             void *values,
                             size_t count);

/**
 * Combines elements as `oik_all_reduce_by` does. Only the root combines, and gets the result; at
 * other ranks `result` may be NULL. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_reduce_by(oik_team *team,
                         uint32_t root,
                         size_t size,
                         oik_combine combine,
                         void *context,
                         const void *values,
                         size_t count,
                         void *result);

/**
 * Combines elements of the ranks up to this one as `oik_all_reduce_by` does. Thread-safe, as
 * `oik_broadcast` is.
 */
oik_status oik_scan_by(oik_team *team,
                       size_t size,
                       oik_combine combine,
                       void *context,
                       void *values,
                       size_t count);

/**
 * Collects vectors of different lengths at the root. `result` gets one vector for each rank there,
 * and none at other ranks. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_gather_uneven(oik_team *team,
                             uint32_t root,
                             oik_kind kind,
                             const void *values,
                             size_t count,
                             oik_vectors **result);

/**
 * Collects vectors of different lengths at all ranks. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_all_gather_uneven(oik_team *team,
                                 oik_kind kind,
                                 const void *values,
                                 size_t count,
                                 oik_vectors **result);

/**
 * Sends vector `r` of the root to rank `r`. At the root `vectors` has one for each rank; at other
 * ranks it may be NULL. `result` gets one vector. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_scatter_uneven(oik_team *team,
                              uint32_t root,
                              oik_kind kind,
                              const oik_vector *vectors,
                              oik_vectors **result);

/**
 * Sends vector `r` to rank `r`, and gets one of each rank. Thread-safe, as `oik_broadcast` is.
 */
oik_status oik_all_to_all_uneven(oik_team *team,
                                 oik_kind kind,
                                 const oik_vector *vectors,
                                 oik_vectors **result);

/**
 * Combines the vectors of all ranks, element by element. Rank `r` gets the combined vectors `r`.
 * All ranks give vectors of the same lengths. `result` gets one vector. Thread-safe, as
 * `oik_broadcast` is.
 */
oik_status oik_reduce_scatter_uneven(oik_team *team,
                                     oik_kind kind,
                                     oik_operator operator_,
                                     const oik_vector *vectors,
                                     oik_vectors **result);

/**
 * Writes the number of vectors. Thread-safe.
 */
oik_status oik_vectors_count(oik_vectors *vectors, size_t *count);

/**
 * Writes the vector of this index, which is valid until the vectors are released. Thread-safe.
 */
oik_status oik_vectors_get(oik_vectors *vectors, size_t index, oik_vector *vector);

/**
 * Releases vectors. Thread-safe.
 */
oik_status oik_vectors_release(oik_vectors *vectors);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /*OIKAZE_H */
