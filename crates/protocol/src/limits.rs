//! Every limit of the protocol, in one place, with compile-time checks between those that depend on
//! each other.

use core::time::Duration;

/// Version of the wire format (spec/wire.md); both ends must say the same.
pub const WIRE_VERSION: u16 = 2;
/// Unit of coherence, of bulk fragments where they fit, and of rights.
pub const PAGE: usize = 4096;
/// Bytes of the fixed datagram header (spec/wire.md).
pub const HEADER_LEN: usize = 24;
/// Bytes of the bulk frame's own description, before payload.
pub const BULK_FRAME_LEN: usize = 16;
/// Room kept for the seal at the end of each datagram.
pub const TAG_MAX: usize = 16;
/// A body of up to so many bytes is kept with its message and takes no memory of its own.
pub const BODY_SHORT: usize = 32;
/// Bytes an upper layer may put in front of a message's body.
pub const HEAD_MAX: usize = 64;
/// The largest UDP payload there is (IPv4).
pub const DATAGRAM_MAX: usize = 65_507;
/// The smallest datagram every path must carry (IPv6's minimum MTU less IPv6 and UDP headers).
pub const DATAGRAM_MIN: usize = 1280 - 48;
/// Bulk fragments are multiples of this: a cache line, so that copies begin and end with whole
/// ones, and a multiple of every element.
pub const FRAGMENT_STEP: usize = 64;
/// Bytes of a body that may be cut between pages: of fewer none goes without a copy.
pub const PAGES_MIN: u64 = 64 << 10;
/// Whole pages in a datagram that goes without a copy, at most: of larger ones a call has room for
/// too few.
pub const PAGES_A_DATAGRAM: usize = 2;
/// Bytes of a message's body that may go by the short way, if no more than twice as much is under
/// way by its lane: a longer one is cut as quickly by the kernel.
pub const SHORT_WAY_MAX: u64 = 5 << 10;
/// The largest message body.
pub const BODY_MAX: u64 = 1 << 40;
/// The most that offset, strides, and length with all gaps of a strided block may be, each: six
/// bytes on the wire, and more than a process can map.
pub const STRIDE_MAX: u64 = (1 << 48) - 1;
/// Messages known to one connection and not yet settled.
pub const MESSAGES_IN_FLIGHT: usize = 65_536;
/// Maximum number of messages to one peer that a program may have in flight. The rest of
/// [`MESSAGES_IN_FLIGHT`] is for answers and collectives, which must not wait until the peer's program
/// reads its messages (MEM-8.2).
pub const MESSAGES_OF_PROGRAM_MAX: usize = MESSAGES_IN_FLIGHT - 4096;
/// Ranges in one acknowledgement.
pub const ACK_RANGES_MAX: usize = 32;
/// Acknowledgements in one datagram: one a lane.
pub const ACKS_A_DATAGRAM: usize = 2;
/// Refusals told in one datagram, by its first acknowledgement.
pub const REFUSALS_MAX: usize = 64;
/// A peer from which nothing is heard for this long is dead, unless the job says otherwise.
pub const FAILURE_TIME: Duration = Duration::from_secs(5);
/// A peer that is heard, but has acknowledged nothing of what is outstanding for so many failure
/// times, is given up (WIND-7.6).
pub const PROGRESS_FAILURE_TIMES: u32 = 3;
/// Questions in a row, one each failure time, after which a peer did not say that it owes an
/// answer, and then counts as one that has forgotten it (COH-13.3).
pub const VAIN_QUESTIONS_MAX: u32 = 4;
/// Maximum distance of a datagram's number from the largest that came before it: more than fit into
/// any window, with all that goes during a failure time without an answer (WIND-3.2).
pub const NUMBERS_AHEAD_MAX: u64 = 1 << 24;
/// Times in a row that datagrams on a fast path must be lost, while others arrive, before the fast
/// path is avoided (WIND-8.10).
pub const FAST_PATH_ROUNDS: u16 = 3;
/// Probe timeouts of one silence of the bulk lane after each of which the small lane is answered,
/// before the port for bulk is given up (WIND-8.9).
pub const BULK_PORT_ROUNDS: u8 = 3;
/// Minimum number of datagrams lost in [`FAST_PATH_ROUNDS`].
pub const FAST_PATH_LOST_MIN: u32 = 12;
/// Lost datagrams that one which arrives on the fast path makes up for.
pub const FAST_PATH_WEIGHT: u32 = 8;
/// An avoided fast path is tried again after this time, doubling with each failure up to
/// [`FAST_PATH_RETRY_MAX`].
pub const FAST_PATH_RETRY_MIN: Duration = Duration::from_secs(600);
/// Maximum time between two tries of an avoided fast path.
pub const FAST_PATH_RETRY_MAX: Duration = Duration::from_secs(86_400);
/// How long a peer that was never heard of is called.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// When all nodes of a job are known to run, the connections between them are there within this, or
/// the job has failed.
pub const JOIN_CONNECT_TIME: Duration = Duration::from_secs(8);
/// What a local peer that has ended while the two were meeting over the network said last is waited
/// for so long.
pub const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long one node of a machine waits for what another one has to do, when they agree to share
/// memory: twice for itself, and while that one waits as well. Then they talk over UDP.
pub const LOCAL_PEERS_AGREE_TIME: Duration = Duration::from_secs(2);
/// Between two HELLOs at first; doubles up to [`HELLO_INTERVAL_MAX`].
pub const HELLO_INTERVAL_MIN: Duration = Duration::from_millis(5);
/// Between two HELLOs at last.
pub const HELLO_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// The shortest probe timeout: about what it takes to wake the thread that answers, which the
/// measured round trip does not know of while both sides spin.
pub const PROBE_MIN: Duration = Duration::from_micros(50);
/// The longest probe timeout, however often it has doubled, so that heavy loss ends quickly.
pub const PROBE_MAX: Duration = Duration::from_millis(100);
/// Timeouts in a row that only ask, at most: data is sent again after 2⁶ − 1 = 63 times the first
/// one at the latest.
pub const PATIENCE_MAX: u32 = 5;
/// Acknowledgements after which one of them is taken back: so of so many hardly more than one is
/// for data sent again in vain.
pub const PATIENCE_CALM: u32 = 4096;
/// Datagrams that must overtake another before it counts as lost, while no reordering has been seen
/// (RFC 8985, section 6.2).
pub const REORDERING_THRESHOLD: u64 = 3;
/// The least reordering window: datagrams that arrive in one burst are taken in a turn apart, when
/// two queues or cores deliver them.
pub const REORDERING_MIN: Duration = Duration::from_micros(10);
/// Events of loss without reordering after which the reordering window is small again (RFC 8985,
/// section 6.2, step 4).
pub const REORDERING_CALM: u32 = 16;
/// Datagrams declared lost that are remembered, in case they are acknowledged after all: what fills
/// the largest window at an Ethernet MTU.
pub const LOST_REMEMBERED: usize = WINDOW_MAX as usize / DATAGRAM_ETHERNET as usize;
/// And what they carried: a fragment each, or the shortest messages that fill the small lane's
/// window, of 40 bytes.
pub const LOST_ITEMS_REMEMBERED: usize = SMALL_WINDOW_MAX as usize / 40;
/// Between two goodbyes at least, so that a short burst of loss does not take all of them.
pub const FAREWELL_PAUSE_MIN: Duration = Duration::from_millis(2);
/// Datagrams that are acknowledged together while all is in order.
pub const ACK_EVERY: u32 = 16;
/// Datagrams of one size that must be lost in a row, while all others arrive, before the path
/// counts as too narrow for it (RFC 8899, section 5.1.2: `MAX_PROBES`).
pub const MTU_LOSSES: u32 = 3;
/// The search for a path's size ends when no more than this is left to be found.
pub const MTU_STEP: usize = 64;
/// After a search that ended below what both ends' routes carry, the next begins after this; twice
/// as late each time.
pub const MTU_RAISE_MIN: Duration = Duration::from_secs(5);
/// At last it begins after this (RFC 8899, section 5.1.1: `PMTU_RAISE_TIMER`).
pub const MTU_RAISE_MAX: Duration = Duration::from_secs(600);
/// Words of the system about datagrams that were too large for their path, processed in one turn.
pub const REFUSED_SIZES_A_TURN: usize = 16;
/// Ranges of received datagram numbers that are remembered; older numbers count as received.
pub const RECEIVED_RANGES_MAX: usize = 256;
/// Ranges of one message's bytes; only the lowest missing bytes get in beyond it.
pub const BODY_RANGES_MAX: usize = 4096;
/// Bytes in flight to one peer, unless set.
pub const WINDOW_MAX: u64 = 8 << 20;
/// Of these, bytes of the small lane: what 2.4 million messages a second need on a path of several
/// milliseconds.
pub const SMALL_WINDOW_MAX: u64 = 512 << 10;
/// Bytes of a socket's buffer asked for, each way: a window, and as much again for what the kernel
/// counts beside the data (a datagram's buffers are up to twice as long as what is in them).
pub const SOCKET_BUFFER: usize = 2 * WINDOW_MAX as usize;
/// Below this the bursts of one peer are lost on arrival: what a few hundred microseconds bring at
/// 10 Gbit/s, and its bookkeeping.
pub const SOCKET_BUFFER_LEAST: usize = 2 << 20;
/// Credit granted to one peer, unless set.
pub const CREDIT: u64 = 16 << 20;
/// What a credited message costs beyond its body.
pub const CREDIT_OVERHEAD: u64 = 128;
/// Bytes of one peer's messages held back or being collected, unless set.
pub const HELD_MAX: u64 = 64 << 20;
/// Of all peers' messages together, as far as [`HELD_MIN`] leaves it to be said.
pub const HELD_TOTAL: u64 = 512 << 20;
/// Of one peer's messages, however many peers there are.
pub const HELD_MIN: u64 = 1 << 20;
/// The longest message that is collected rather than placed, unless set.
pub const ASSEMBLY_MAX: u64 = MESSAGE_MAX;
/// UDP payload at an Ethernet MTU (IPv4 over 1500 bytes).
pub const DATAGRAM_ETHERNET: u16 = 1472;
/// What Linux gives a socket when nothing is set, in bytes of datagrams of middling length.
pub const RECEIVE_BUFFER: u32 = 208 * 1024;
/// Messages in fragments that take turns with each other.
pub const BULK_ACTIVE: usize = 16;
/// Bulk datagrams of one message in a row, before another has its turn (one GSO send holds up to
/// 64).
pub const BULK_RUN: u32 = 48;
/// Datagrams that a turn goes on for at most if that is a message's end: else these wait until all
/// others have had their turns.
pub const BULK_RUN_OVER: u32 = BULK_RUN / 8;
/// Turns of messages that are predicted at once, to receive their bytes directly into place.
pub const FORESEEN_MAX: usize = 4;
/// Datagrams of control and small messages to one peer in one turn of a node, before others have
/// theirs.
pub const SMALL_SHARE: usize = 16;
/// Datagrams of control and small messages in one turn of a node.
pub const SMALL_A_TURN: usize = 256;
/// Handshakes with a wrong seal that a node computes at once, of each of two kinds (WIND-10.3) …
pub const STRANGERS_AT_ONCE: u32 = 64;
/// … and one more after each of these: 5,000 a second, which cost about a hundredth of a core.
pub const STRANGERS_PAUSE: Duration = Duration::from_micros(200);
/// Bytes of bulk in one turn of a node, in runs of what one call of the link carries
/// ([`DATAGRAM_MAX`] bytes): what is handed to the kernel cannot be overtaken, and nothing is
/// received meanwhile.
pub const BULK_A_TURN: usize = 2 * DATAGRAM_MAX;
/// The same while small messages come, at least …
pub const BULK_AMONG_SMALL: usize = DATAGRAM_MAX * 2 / 7;
/// … and at most, if a turn with that takes no longer than [`BULK_AMONG_SMALL_TIME`].
pub const BULK_AMONG_SMALL_MAX: usize = DATAGRAM_MAX * 5 / 7;
/// What a small message may wait for bulk: a few of the shortest round trips.
pub const BULK_AMONG_SMALL_TIME: Duration = Duration::from_micros(22);
/// They do if the last came so recently.
pub const SMALL_LATELY: Duration = Duration::from_millis(1);
/// Bytes of memory that a node keeps for a peer with which nothing goes on.
pub const IDLE_PEER_MAX: u64 = 8 << 10;
/// The longest an acknowledgement is held back.
pub const ACK_DELAY: Duration = Duration::from_micros(500);
/// The longest an acknowledgement that was asked for waits for data of ours to ride along with
/// (WIND-3.8): what a program takes from seeing a put to answering it, when it drives the engine
/// itself; short beside what a message costs whose sender waits in vain.
pub const ACK_HOLD: Duration = Duration::from_micros(15);
/// Exchanges in which data followed in time, less those in which none did, from which on such an
/// acknowledgement waits …
pub const INTERACTIVE_FROM: u8 = 4;
/// … each of those weighing as much as so many: a datagram of its own costs somebody who is
/// answered a fourth of the time that is waited …
pub const INTERACTIVE_LOSS: u8 = 4;
/// … and the most that counts, so that it does not last when none follows any more.
pub const INTERACTIVE_MOST: u8 = 24;
/// Bulk goes in bursts of what the pace lets through in this time: timers are not finer (Linux
/// paces TCP so, too).
pub const PACING_SPAN: Duration = Duration::from_millis(1);
/// And of so many bytes at least: as much as one GSO call carries.
pub const PACING_BURST: u64 = 64 << 10;
/// What a receiver lets each peer have in flight at any time, at least.
pub const ALLOWANCE_MIN: u64 = 4096;
/// For so long after it was told a share of the receive buffer may be used.
pub const GRANT_TIME: Duration = Duration::from_millis(50);
/// Nodes in one job.
pub const NODES_MAX: u32 = 4096;
/// Bytes of a published name.
pub const NAME_MAX: usize = 48;
/// Names that one node publishes.
pub const NAMES_MAX: usize = 4096;
/// Bytes of names in the answer to a lookup that found nothing.
pub const NAMES_LISTED: usize = 1024;
/// Gets, atomics and lookups that wait for their answers.
pub const TICKETS_MAX: usize = MESSAGES_IN_FLIGHT;
/// Maximum number of entries of a list operation. Each is a message that waits, as is each answer
/// to a list of the peer, and others have room beside them.
pub const LIST_MAX: usize = MESSAGES_IN_FLIGHT / 4;
/// Fragmented puts and answers of one peer that have begun and are not whole.
pub const TRANSFERS_PER_PEER: usize = 16_384;
/// Elements that one FIFO holds.
pub const FIFO_SLOTS_MAX: u64 = 1 << 24;
/// Bytes of its longest element.
pub const FIFO_ELEMENT_MAX: u64 = 1 << 20;
/// A push that found its FIFO full is tried again after this …
pub const PUSH_PAUSE_MIN: Duration = Duration::from_micros(20);
/// … twice as late each time, after this at last.
pub const PUSH_PAUSE_MAX: Duration = Duration::from_millis(5);
/// Elements of one peer's accumulates of which not all bytes have come: a fragment begins and ends
/// in one.
pub const CUT_ELEMENTS_PER_PEER: usize = 16_384;
/// An operation whose pages were not in its target's memory is tried again after this, at first …
pub const PRESENT_PAUSE_MIN: Duration = Duration::from_micros(100);
/// … and after this at last, …
pub const PRESENT_PAUSE_MAX: Duration = Duration::from_millis(20);
/// … until it has been tried for so long: what a slow disk takes for pages that many wait for.
pub const PRESENT_TIME: Duration = Duration::from_secs(30);
/// Ranges of one region that are fetched at a time, and those that could not be and were not asked
/// for again (MEM-9.1).
pub const FETCHED_AT_ONCE: usize = 1024;
/// Accesses refused to peers that a node remembers one by one; all are counted.
pub const REFUSALS_KEPT: usize = 256;
/// Answers to one peer that Wind has not taken yet: to all that it may have asked, for they may all
/// come at once.
pub const ANSWERS_PER_PEER: usize = TICKETS_MAX;
/// Bodies up to this many bytes are copied when they are posted, and go whole in one frame that
/// shares its datagram.
pub const POST_INLINE: u64 = 1024;
/// The same while hardly anything else is under way to the peer: then a copy costs less than to
/// gather here and to look for bulk there.
pub const POST_INLINE_ALONE: u64 = 2 * PAGE as u64;
/// *Hardly anything*, in bytes in flight: as a header before its data.
pub const QUIET_MAX: u64 = 1024;
/// Answers to gets up to this many bytes are read when they are served and share datagrams with
/// others.
pub const ANSWER_INLINE: u64 = 256;
/// Bodies of at least so many bytes are received into memory that was used before: below it
/// fresh memory is cheap.
pub const BODY_KEPT: usize = 32 << 10;
/// Bytes of such memory that a node keeps for messages to come: what one peer may have under way.
pub const BODIES_KEPT: usize = CREDIT as usize;
/// When none has come for so long, nothing is kept.
pub const BODIES_REST: Duration = Duration::from_secs(1);
/// Maximum number of bytes that a node has copied for operations to one peer that have not ended
/// (MEM-15.6). One operation alone may exceed it.
pub const QUEUED_MAX: u64 = 256 << 20;
/// Maximum number of withdrawn names that a node remembers, the latest ones (MEM-6.6).
pub const WITHDRAWN_KEPT: usize = 1024;
/// Maximum length of a user's message, in bytes, by every path. The receiver holds all of it in
/// memory. A message that costs more than all [`CREDIT`] goes alone (WIND-6.7).
pub const MESSAGE_MAX: u64 = 1 << 30;
/// Bytes of a ring from one node to another on the same machine.
pub const RING_BYTES: usize = 256 << 10;
/// Records in it begin at multiples of this: a cache line, so that a small message is one line that
/// changes hands.
pub const RECORD_STEP: usize = 64;
/// Bytes of a body that one record carries; longer ones go in pieces of this, so that one side
/// copies in while the other copies out.
pub const RECORD_BODY: usize = 16 << 10;
/// Refusals that a ring's reader has told and its writer has not heard.
pub const REFUSALS_TOLD: usize = 32;
/// Regions that one local peer has mapped at a time; further ones are reached through the rings.
pub const GRANTS: usize = 64;
/// Records taken from one local peer in one look (fewer than are read until credit is given back,
/// which is a look: else all messages that follow a few would wait to be looked at, and none be
/// taken by the fast path) …
pub const RECORDS_A_LOOK: usize = 48;
/// … and bytes, after which no further one is.
pub const RECORD_BYTES_A_LOOK: usize = 128 << 10;
/// Messages that go between a local peer's ring and its users, past the turns, from one look at all
/// that has arrived to the next.
pub const FAST_PER_TURN_MAX: u32 = 64;
/// So many of them are taken together from a local peer that sends many, if they are small …
pub const FAST_BATCH_MAX: usize = 8;
/// … that is, until their bodies are of so many bytes.
pub const FAST_BATCH_BYTES_MAX: usize = 1024;
/// Records taken from one local peer in a look that comes between such messages: the others are
/// left to who takes them by the fast path …
pub const RECORDS_BETWEEN: usize = 4;
/// … and for how long after the last of them looks are such looks, too.
pub const FAST_PATH_RECENT: Duration = Duration::from_millis(1);
/// Looks at what a process has left in its ring after its end (MEM-16.7): each ends with one of
/// these two, the last when nothing is left.
pub const LAST_LOOKS: usize = RING_BYTES.div_ceil(RECORDS_A_LOOK * RECORD_STEP)
    + RING_BYTES.div_ceil(RECORD_BYTES_A_LOOK)
    + 1;
/// Bytes that a node reserves for a message which its local peer has only announced, and for which
/// no credit was taken.
pub const RESERVED_MAX: usize = 64 << 10;
/// Nodes of one machine that share memory with one of them; with further ones it talks over UDP.
/// Each costs two rings.
pub const LOCAL_PEERS_MAX: usize = 128;
/// A node with local peers looks at its link so often, for the sake of those that are none …
pub const LINK_AMONG_RINGS: Duration = Duration::from_micros(2);
/// … and so often if all others are local peers: what comes there then is a sign of life, or a
/// goodbye.
pub const LINK_BESIDE_RINGS: Duration = Duration::from_micros(100);
/// A node that does not sleep asks the kernel so often whether a local peer has ended.
pub const LOCAL_PEERS_CHECKED: Duration = Duration::from_millis(1);
/// Between two looks at which a node shows its numbers (`oikaze top`).
pub const SHOWN_EVERY: Duration = Duration::from_millis(100);
/// Peers looked at each time; those of larger jobs take turns.
pub const SHOWN_PEERS: u32 = 256;
/// Bytes of a record of datagrams (`OIKAZE_PCAP`), unless set.
pub const CAPTURE_MAX: u64 = 256 << 20;
/// Bytes that such a record may be limited to at least.
pub const CAPTURE_MIN: u64 = 4096;

const _: () = assert!(HEADER_LEN + BULK_FRAME_LEN <= 40, "a bulk header is at most 40 bytes");
const _: () = assert!(
    HEADER_LEN + 24 + HEAD_MAX + BULK_FRAME_LEN + FRAGMENT_STEP + TAG_MAX <= DATAGRAM_MIN,
    "beside OPEN"
);
const _: () = assert!(
    FIFO_ELEMENT_MAX <= HELD_MIN,
    "one long element is collected, however many peers there are"
);
const _: () = assert!(LIST_MAX <= TICKETS_MAX && LIST_MAX <= MESSAGES_IN_FLIGHT);
const _: () = assert!(PUSH_PAUSE_MIN.as_nanos() < PUSH_PAUSE_MAX.as_nanos());
const _: () =
    assert!(CUT_ELEMENTS_PER_PEER > 2 * BODY_RANGES_MAX, "one accumulate alone always has room");
const _: () = assert!(
    RING_BYTES.is_power_of_two() && RING_BYTES >= 4 * (RECORD_BODY + HEAD_MAX + 2 * RECORD_STEP)
);
const _: () = assert!(PAGE.is_multiple_of(RECORD_STEP) && HEAD_MAX < 256);
const _: () = assert!(JOIN_CONNECT_TIME.as_nanos() < CONNECT_TIME.as_nanos());
const _: () = assert!(
    4 * LOCAL_PEERS_AGREE_TIME.as_nanos() <= JOIN_CONNECT_TIME.as_nanos(),
    "a node that waits for another one of its machine, three times, still answers those that call it meanwhile"
);
const _: () = assert!(
    LAST_LOOKS * RECORDS_A_LOOK > RING_BYTES / RECORD_STEP,
    "a full ring of the smallest records is emptied"
);
const _: () = assert!(2 * RESERVED_MAX as u64 <= HELD_MIN && RESERVED_MAX >= RECORD_BODY);
const _: () = assert!(NAME_MAX < 256, "a listed name's length is one byte");
const _: () = assert!(MESSAGE_MAX <= BODY_MAX && BODY_MAX <= STRIDE_MAX);
const _: () = assert!(MESSAGE_MAX <= ASSEMBLY_MAX, "what may be sent may be collected");
const _: () = assert!(
    MESSAGE_MAX <= u32::MAX as u64 && MESSAGE_MAX > CREDIT,
    "a message's length fits into 32 bits"
);
const _: () = assert!(
    DATAGRAM_MIN > HEADER_LEN + TAG_MAX + 24 + HEAD_MAX + 16,
    "OPEN must fit into any datagram"
);
const _: () = assert!(
    DATAGRAM_MIN > HEADER_LEN + TAG_MAX + 2 * (40 + 8 * ACK_RANGES_MAX) + 9 * REFUSALS_MAX + 4,
    "ACK frames of both lanes must fit"
);
const _: () = assert!(
    LOST_ITEMS_REMEMBERED >= 2 * LOST_REMEMBERED
        && FAREWELL_PAUSE_MIN.as_nanos() < PROBE_MAX.as_nanos()
);
const _: () =
    assert!(ACK_HOLD.as_nanos() < PROBE_MIN.as_nanos(), "a held acknowledgement is no loss");
const _: () =
    assert!(ACK_HOLD.as_nanos() < ACK_DELAY.as_nanos() && INTERACTIVE_FROM < INTERACTIVE_MOST);
const _: () = assert!(
    HELLO_INTERVAL_MIN.as_nanos() < HELLO_INTERVAL_MAX.as_nanos()
        && PROBE_MIN.as_nanos() < PROBE_MAX.as_nanos()
);
