//! Limits on the requests of programs, as numbers of the preprocessor.

use oikaze::limits;
use oikaze::memory::remote::COPY_MAX;

/// Maximum number of bytes that `oik_put` copies. Longer memory is read in place.
pub const OIK_COPY_MAX: usize = 4096;
/// Maximum number of bytes of a message.
pub const OIK_MESSAGE_MAX: u64 = 1073741824;
/// Maximum number of bytes of a name.
pub const OIK_NAME_MAX: usize = 48;
/// Maximum number of pieces of a list.
pub const OIK_LIST_MAX: usize = 16384;
/// Maximum number of values of `oik_barrier_reduce`.
pub const OIK_REDUCE_MAX: usize = 65536;
/// Maximum number of bytes of an element of a FIFO.
pub const OIK_FIFO_ELEMENT_MAX: u64 = 1048576;
/// Maximum number of elements of a FIFO.
pub const OIK_FIFO_SLOTS_MAX: u64 = 16777216;
/// Maximum number of nodes of a job.
pub const OIK_NODES_MAX: u32 = 4096;

const _: () = assert!(OIK_COPY_MAX == COPY_MAX);
const _: () = assert!(OIK_MESSAGE_MAX == limits::MESSAGE_MAX);
const _: () = assert!(OIK_NAME_MAX == limits::NAME_MAX);
const _: () = assert!(OIK_LIST_MAX == limits::LIST_MAX);
const _: () = assert!(OIK_REDUCE_MAX == limits::REDUCE_MAX);
const _: () = assert!(OIK_FIFO_ELEMENT_MAX == limits::FIFO_ELEMENT_MAX);
const _: () = assert!(OIK_FIFO_SLOTS_MAX == limits::FIFO_SLOTS_MAX);
const _: () = assert!(OIK_NODES_MAX == limits::NODES_MAX);
