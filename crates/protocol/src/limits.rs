//! All limits of the protocol, with compile-time checks between limits that depend on each other.

use core::time::Duration;

/// Highest version of the wire format that this program speaks. A change of what a datagram means
/// takes a new version (WIRE-6.6).
pub const WIRE_VERSION: u16 = 11;
/// Lowest version of the wire format that this program speaks.
pub const WIRE_VERSION_MIN: u16 = 11;
/// Size of a page in bytes. It is the unit of coherence, of rights, and of bulk fragments where
/// they fit.
pub const PAGE: usize = 4096;
/// Length of the fixed datagram header, in bytes (spec/wire.md).
pub const HEADER_LEN: usize = 24;
/// Length of a bulk frame's own description, in bytes, before its payload.
pub const BULK_FRAME_LEN: usize = 16;
/// Maximum length of the seal at the end of a datagram, in bytes. Each datagram keeps this room
/// free.
pub const TAG_MAX: usize = 16;
/// Maximum length of a body, in bytes, that is stored inside its message. A longer body costs an
/// allocation.
pub const BODY_INLINE_MAX: usize = 32;
/// Maximum length of the head, in bytes, that an upper layer puts in front of a message's body.
pub const HEAD_MAX: usize = 64;
/// Maximum UDP payload in bytes (IPv4).
pub const DATAGRAM_MAX: usize = 65_507;
/// Minimum UDP payload in bytes that every path must carry. It is IPv6's minimum MTU less the IPv6
/// and UDP headers.
pub const DATAGRAM_MIN: usize = 1280 - 48;
/// Unit of bulk fragments in bytes. It is one cache line, so that copies begin and end on whole
/// cache lines, and a multiple of every element's size.
pub const FRAGMENT_STEP: usize = 64;
/// Minimum length of a body, in bytes, that may be cut at page boundaries. A shorter body is always
/// copied, so such a cut would not help it.
pub const PAGES_MIN: u64 = 64 << 10;
/// Maximum number of whole pages in a datagram that is sent without a copy. One send call has room
/// for too few larger datagrams.
pub const PAGES_A_DATAGRAM: usize = 2;
/// Maximum length of a body, in bytes, whose fragments may go to the peer's first port (WIND-8.9).
/// They may do so while at most twice as much is in flight by the bulk lane. A longer body has no
/// shorter way there.
pub const FIRST_PORT_BULK_MAX: u64 = 8 << 10;
/// Maximum length of a message body in bytes.
pub const BODY_MAX: u64 = 1 << 40;
/// Maximum value of the offset, of each stride, and of the length including all gaps of a strided
/// block, in bytes. Each travels as six bytes, and a process cannot map more.
pub const STRIDE_MAX: u64 = (1 << 48) - 1;
/// Maximum number of unsettled messages of one connection.
pub const MESSAGES_IN_FLIGHT: usize = 65_536;
/// Maximum number of messages to one peer that a program may have in flight. The rest of
/// [`MESSAGES_IN_FLIGHT`] is for answers and collectives, which must not wait until the peer's
/// program reads its messages (MEM-8.2).
pub const MESSAGES_OF_PROGRAM_MAX: usize = MESSAGES_IN_FLIGHT - 4096;
/// Maximum number of ranges in one acknowledgement.
pub const ACK_RANGES_MAX: usize = 32;
/// Maximum number of acknowledgements in one datagram, one for each lane.
pub const ACKS_A_DATAGRAM: usize = 2;
/// Maximum number of refusals in one datagram. Its first acknowledgement carries them.
pub const REFUSALS_MAX: usize = 64;
/// Default time without a sign of life after which a peer counts as dead. A job may set another
/// time.
pub const FAILURE_TIME: Duration = Duration::from_secs(5);
/// Maximum number of failure times without progress (WIND-7.6). The connection ends when a peer
/// sends signs of life but acknowledges nothing of what is outstanding for that long.
pub const PROGRESS_FAILURE_TIMES: u32 = 3;
/// Maximum number of consecutive questions, one each failure time, to which a peer does not confirm
/// that it owes an answer. After these the peer counts as one that has forgotten the request
/// (COH-13.3).
pub const VAIN_QUESTIONS_MAX: u32 = 4;
/// Largest datagram number of a lane, as in RFC 9000, section 12.3. A connection that reaches it
/// ends (WIND-7.10).
pub const DATAGRAM_NUMBER_MAX: u64 = (1 << 62) - 1;
/// Maximum distance of a datagram's number from the largest that came before it. It is more than
/// fits into any window, together with all datagrams sent during a failure time without an answer
/// (WIND-3.2).
pub const NUMBERS_AHEAD_MAX: u64 = 1 << 24;
/// Number of consecutive rounds in which datagrams on a fast path must be lost, while others
/// arrive, before the sender avoids that fast path (WIND-8.10).
pub const FAST_PATH_ROUNDS: u16 = 3;
/// Number of rounds before the sender gives up the port for bulk (WIND-8.9). A round is a probe
/// timeout of a silent bulk lane after which the small lane is answered.
pub const BULK_PORT_ROUNDS: u8 = 3;
/// Maximum number of flows over which a node sprays bulk to one peer (WIND-14.1).
pub const FLOWS_MAX: u8 = 16;
/// Minimum time over which the rate is measured while the number of flows is chosen (WIND-14.7).
pub const FLOW_TRIAL_INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Number of round trips over which the rate is measured, if they take longer.
pub const FLOW_TRIAL_ROUND_TRIPS: u32 = 16;
/// Minimum time after a trial of another number of flows that did not pay before the next one. It
/// doubles with each up to [`FLOW_TRIAL_WAIT_MAX`].
pub const FLOW_TRIAL_WAIT_MIN: Duration = Duration::from_secs(2);
/// Maximum time between two trials of another number of flows.
pub const FLOW_TRIAL_WAIT_MAX: Duration = Duration::from_secs(240);
/// Number of rounds in a row in which a flow of bulk must carry nothing, while others do, before
/// the sender gives it up (WIND-14.5).
pub const FLOW_SILENT_ROUNDS: u8 = 3;
/// Minimum time before the sender tries a flow again that carried nothing. It doubles each time up
/// to [`FLOW_RETRY_MAX`].
pub const FLOW_RETRY_MIN: Duration = Duration::from_secs(10);
/// Maximum time between two tries of such a flow.
pub const FLOW_RETRY_MAX: Duration = Duration::from_secs(600);
/// Minimum number of datagrams lost in [`FAST_PATH_ROUNDS`].
pub const FAST_PATH_LOST_MIN: u32 = 12;
/// Number of lost datagrams that one datagram cancels by arriving on the fast path.
pub const FAST_PATH_WEIGHT: u32 = 8;
/// Minimum time before the sender tries an avoided fast path again. It doubles with each failure up
/// to [`FAST_PATH_RETRY_MAX`].
pub const FAST_PATH_RETRY_MIN: Duration = Duration::from_secs(600);
/// Maximum time between two tries of an avoided fast path.
pub const FAST_PATH_RETRY_MAX: Duration = Duration::from_secs(86_400);
/// Maximum time for which a node calls a peer that it has never heard of.
pub const CONNECT_TIME: Duration = Duration::from_secs(10);
/// Maximum time to connect all nodes of a job once all are known to run. The job fails after it.
pub const JOIN_CONNECT_TIME: Duration = Duration::from_secs(8);
/// Maximum time to wait for the last datagrams of a local peer that ended while the connection over
/// the network was still being established (MEM-16.7).
pub const ENDED_PEER_WAIT_TIME: Duration = Duration::from_millis(500);
/// Maximum time for which a node waits for one step of another node of its machine while they agree
/// to share memory. It waits twice as long for an answer, because the other node may wait for a
/// third one. After that the two nodes talk over UDP.
pub const LOCAL_PEERS_AGREE_TIME: Duration = Duration::from_secs(2);
/// Time between the first two HELLOs. It doubles up to [`HELLO_INTERVAL_MAX`].
pub const HELLO_INTERVAL_MIN: Duration = Duration::from_millis(5);
/// Maximum time between two HELLOs.
pub const HELLO_INTERVAL_MAX: Duration = Duration::from_millis(100);
/// Minimum probe timeout (retransmission timer, WIND-5.4). The value is about the time to wake up
/// the answering thread. The measured round trip does not include that time while both sides spin.
pub const PROBE_MIN: Duration = Duration::from_micros(50);
/// Maximum probe timeout after all doubling, so that heavy loss is repaired quickly.
pub const PROBE_MAX: Duration = Duration::from_millis(100);
/// Maximum number of consecutive timeouts that only ask (WIND-5.7). The sender retransmits data
/// after 2⁶ − 1 = 63 times the first timeout at the latest.
pub const PTO_PINGS_MAX: u32 = 5;
/// Number of acknowledgements after which patience falls by one (WIND-5.7). It keeps needless
/// retransmissions at about one for this many acknowledgements.
pub const PTO_PINGS_DECAY_ACKS: u32 = 4096;
/// Number of datagrams that must overtake another before it counts as lost, while no reordering has
/// been seen (RFC 8985, section 6.2).
pub const REORDERING_THRESHOLD: u64 = 3;
/// Minimum reordering window. Datagrams of one burst can be taken in one turn apart when two queues
/// or cores deliver them.
pub const REORDERING_MIN: Duration = Duration::from_micros(10);
/// Number of losses without reordering after which the reordering window is small again (RFC 8985,
/// section 6.2, step 4).
pub const REORDERING_CALM: u32 = 16;
/// Maximum number of datagrams declared lost that a sender remembers, in case they are acknowledged
/// after all. It fills the largest window at an Ethernet MTU.
pub const LOST_REMEMBERED: usize = WINDOW_MAX as usize / DATAGRAM_ETHERNET as usize;
/// Maximum number of items that a sender remembers of the datagrams it declared lost. An item is a
/// fragment or a small message. The shortest messages, of 40 bytes, fill the small lane's window
/// with this many.
pub const LOST_ITEMS_REMEMBERED: usize = SMALL_WINDOW_MAX as usize / 40;
/// Minimum time between two goodbyes, so that a short burst of loss does not drop all of them.
pub const FAREWELL_PAUSE_MIN: Duration = Duration::from_millis(2);
/// Number of datagrams after which the receiver acknowledges, while all arrive in order.
pub const ACK_EVERY: u32 = 16;
/// Number of datagrams of one size that must be lost in a row, while all others arrive, before the
/// path counts as too narrow for that size (RFC 8899, section 5.1.2: `MAX_PROBES`).
pub const MTU_LOSSES: u32 = 3;
/// Width in bytes of the remaining interval at which the search for a path's size ends.
pub const MTU_STEP: usize = 64;
/// Minimum time before the next search, after a search that ended below what both ends' routes
/// carry. It doubles each time up to [`MTU_RAISE_MAX`].
pub const MTU_RAISE_MIN: Duration = Duration::from_secs(5);
/// Maximum time before the next search (RFC 8899, section 5.1.1: `PMTU_RAISE_TIMER`).
pub const MTU_RAISE_MAX: Duration = Duration::from_secs(600);
/// Maximum number of the system's reports about datagrams too large for their path that one turn
/// processes.
pub const REFUSED_SIZES_A_TURN: usize = 16;
/// Maximum number of ranges of received datagram numbers that a receiver remembers of the small
/// lane. Older numbers count as received (WIND-3.2).
pub const RECEIVED_RANGES_MAX: usize = 256;
/// Maximum number of such ranges of the bulk lane, which may have flows of different delays. A flow
/// that is 2 ms later than others at 20 Gbit/s leaves 3,400 gaps, if it sends every second datagram
/// of 1,472 bytes.
pub const RECEIVED_BULK_RANGES_MAX: usize = 4096;
/// Maximum number of ranges of received bytes of one message. Beyond it the receiver accepts only
/// the lowest missing bytes.
pub const BODY_RANGES_MAX: usize = 4096;
/// Default maximum congestion window: number of bytes in flight to one peer.
pub const WINDOW_MAX: u64 = 8 << 20;
/// Maximum congestion window of the small lane in bytes, as a part of [`WINDOW_MAX`]. A rate of 2.4
/// million messages a second needs it on a path of several milliseconds.
pub const SMALL_WINDOW_MAX: u64 = 512 << 10;
/// Size of a socket's buffer, in bytes, that a node requests for each direction. It is one window,
/// and as much again for the kernel's bookkeeping, because a datagram's buffers are up to twice as
/// long as its content.
pub const SOCKET_BUFFER: usize = 2 * WINDOW_MAX as usize;
/// Minimum useful size of a socket's buffer in bytes. Below it, bursts of one peer are lost on
/// arrival. It covers a few hundred microseconds at 10 Gbit/s and the kernel's bookkeeping.
pub const SOCKET_BUFFER_LEAST: usize = 2 << 20;
/// Default receive credit of one peer in bytes (flow control, WIND-6.3).
pub const CREDIT: u64 = 16 << 20;
/// Credit in bytes that a credited message costs beyond its body.
pub const CREDIT_OVERHEAD: u64 = 128;
/// Default maximum number of bytes of one peer's messages that are held back or being collected.
pub const HELD_MAX: u64 = 64 << 20;
/// Maximum number of bytes of all peers' messages that are held back or being collected.
/// [`HELD_MIN`] for each peer takes precedence.
pub const HELD_TOTAL: u64 = 512 << 20;
/// Minimum number of bytes that one peer's messages may hold, for any number of peers.
pub const HELD_MIN: u64 = 1 << 20;
/// Default maximum length of a message, in bytes, that is collected rather than placed.
pub const ASSEMBLY_MAX: u64 = MESSAGE_MAX;
/// UDP payload in bytes at an Ethernet MTU (IPv4 over 1500 bytes).
pub const DATAGRAM_ETHERNET: u16 = 1472;
/// Receive buffer of a socket for which nothing is set on Linux, in bytes of datagrams of middling
/// length.
pub const RECEIVE_BUFFER: u32 = 208 * 1024;
/// Maximum number of fragmented messages that take turns with each other.
pub const BULK_ACTIVE: usize = 16;
/// Maximum number of consecutive bulk datagrams of one message before another message has its turn.
/// One GSO send holds up to 64.
pub const BULK_RUN: u32 = 48;
/// Maximum number of extra datagrams that a message may send past [`BULK_RUN`] to finish. Without
/// them its last datagrams would wait until all other messages have had their turns.
pub const BULK_RUN_OVER: u32 = BULK_RUN / 8;
/// Maximum number of datagrams of control and small messages that a node sends to one peer in one
/// turn before other peers.
pub const SMALL_SHARE: usize = 16;
/// Maximum number of datagrams of control and small messages in one turn of a node.
pub const SMALL_A_TURN: usize = 256;
/// Size of the token bucket for handshakes with a wrong seal, for each of two kinds of address
/// (WIND-10.3). Each token is one computed seal.
pub const HANDSHAKE_BURST: u32 = 64;
/// Time after which the token bucket for handshakes gains one token. The rate of 5,000 seals a
/// second costs about a hundredth of a core.
pub const HANDSHAKE_TOKEN_INTERVAL: Duration = Duration::from_micros(200);
/// Maximum number of bytes of bulk in one turn of a node, in runs of what one call of the link
/// carries ([`DATAGRAM_MAX`] bytes). Datagrams handed to the kernel cannot be overtaken, and the
/// node receives nothing meanwhile.
pub const BULK_A_TURN: usize = 2 * DATAGRAM_MAX;
/// Minimum number of bytes of bulk that one turn may send while small messages come.
pub const BULK_AMONG_SMALL: usize = DATAGRAM_MAX * 2 / 7;
/// Maximum number of bytes of bulk in one turn while small messages come, if such a turn takes no
/// longer than [`BULK_AMONG_SMALL_TIME`].
pub const BULK_AMONG_SMALL_MAX: usize = DATAGRAM_MAX * 5 / 7;
/// Maximum time for which a small message may wait for bulk, which is a few of the shortest round
/// trips.
pub const BULK_AMONG_SMALL_TIME: Duration = Duration::from_micros(22);
/// Time after the last small message during which the limits for bulk among small messages hold.
pub const SMALL_RECENT_TIME: Duration = Duration::from_millis(1);
/// Maximum memory in bytes that a node keeps for an idle peer.
pub const IDLE_PEER_MAX: u64 = 8 << 10;
/// Maximum time for which the receiver delays an acknowledgement (delayed ACK).
pub const ACK_DELAY: Duration = Duration::from_micros(500);
/// Maximum time for which a delayed ACK that the peer requested waits for data to travel with
/// (WIND-3.8). A program that drives the engine itself takes about this long from seeing a put to
/// answering it. The time is short beside the cost of a message whose sender waits in vain.
pub const ACK_PIGGYBACK_TIME: Duration = Duration::from_micros(15);
/// Minimum score at which delayed ACKs wait for data (WIND-3.8). The score rises by one with each
/// exchange in which data followed in time.
pub const ACK_SCORE_MIN: u8 = 4;
/// Amount by which an exchange without data in time lowers the score (WIND-3.8). A separate
/// acknowledgement datagram costs the answered peer a fourth of the time that a wait in vain costs.
pub const ACK_SCORE_PENALTY: u8 = 4;
/// Number of exchanges with late data, each after an acknowledgement that went alone, that raise
/// the score by one (WIND-3.8). A wait in vain then costs little beside them.
pub const ACK_LATE_EXCHANGES: u8 = 16;
/// Maximum score (WIND-3.8), so that acknowledgements soon stop waiting when data no longer
/// follows.
pub const ACK_SCORE_MAX: u8 = 24;
/// Length of a pacing burst, as the time in which the pace lets it through. Timers are not finer,
/// and Linux paces TCP with the same span.
pub const PACING_SPAN: Duration = Duration::from_millis(1);
/// Minimum size of a pacing burst in bytes, which is what one GSO call carries.
pub const PACING_BURST: u64 = 64 << 10;
/// Minimum number of bytes that a receiver lets each peer have in flight at any time.
pub const ALLOWANCE_MIN: u64 = 4096;
/// Time for which a sender may use a share of the receive buffer after the receiver granted it.
pub const GRANT_TIME: Duration = Duration::from_millis(50);
/// Maximum number of members of a multicast stream. Each has one bit in every group datagram.
pub const GROUP_MEMBERS_MAX: usize = 32;
/// Maximum number of streams to which one node sends, and that it follows of one peer.
pub const GROUP_STREAMS_MAX: usize = 8;
/// Time after which a small datagram tells a peer which messages are settled, if no other datagram
/// has told it (WIND-12.14).
pub const SETTLED_DELAY: Duration = Duration::from_millis(20);
/// Maximum distance between numbers of one stream that a member follows at one place.
pub const GROUP_NUMBERS_NEAR: u64 = 1 << 16;
/// Number of datagrams after which a member follows the numbers of a stream where these lie, if
/// none came where it has followed them.
pub const GROUP_MOVED_MIN: u32 = 8;
/// Minimum number of members to which a message goes by group datagrams.
pub const GROUP_RECEIVERS_MIN: usize = 2;
/// Minimum length of a body, in bytes, that goes by group datagrams. A shorter body shares its
/// datagram with other messages.
pub const GROUP_BODY_MIN: u64 = 4096;
/// Minimum time for which a member that has no room may hold up all others. The value exceeds a
/// time slice of the scheduler, so that a member that only waited for its processor stays.
pub const GROUP_HOLD_MIN: Duration = Duration::from_millis(20);
/// Number of round trips for which a member that has no room may hold up all others.
pub const GROUP_HOLD_ROUND_TRIPS: u32 = 4;
/// Number of group datagrams over which the loss of a member is judged.
pub const GROUP_LOSS_SPAN: u64 = 64;
/// Maximum loss of group datagrams in percent. A member that loses more gets its messages alone.
pub const GROUP_LOSS_MAX: u64 = 10;
/// Maximum loss of group datagrams in percent of a member for which the others wait much.
pub const GROUP_LOSS_SLOWING: u64 = 2;
/// Part of the time of a stream, as 1 in so many, for which the others may wait for such a member.
pub const GROUP_HELD_PART: u32 = 5;
/// Number of spans without too much loss after which a member that was left out counts as new.
pub const GROUP_SPANS_CALM: u32 = 16;
/// Number of messages, the latest that were sent as a whole, whose losses are repaired by group
/// datagrams.
pub const GROUP_REPAIRED_MESSAGES: usize = 8;
/// Time within which a member has to answer whether it follows a stream.
pub const GROUP_JOIN_TIME: Duration = Duration::from_secs(10);
/// Number of rounds of probes, one after the other, after which multicast does not seem to reach a
/// member at all. They take more than three seconds.
pub const GROUP_ROUNDS_MAX: u8 = 3;
/// Maximum number of probes that a member may leave unanswered.
pub const GROUP_PROBES_MAX: u8 = 3;
/// Time after which a member that was left out is probed again. It doubles each time up to
/// [`GROUP_RETRY_MAX`].
pub const GROUP_RETRY_MIN: Duration = Duration::from_secs(1);
/// Maximum time after which a member that was left out is probed again.
pub const GROUP_RETRY_MAX: Duration = Duration::from_secs(60);
/// Maximum number of nodes in one job.
pub const NODES_MAX: u32 = 4096;
/// Maximum length of a published name in bytes.
pub const NAME_MAX: usize = 48;
/// Maximum number of names that one node publishes.
pub const NAMES_MAX: usize = 4096;
/// Maximum number of bytes of names in the answer to a lookup that found nothing.
pub const NAMES_LISTED: usize = 1024;
/// Maximum number of gets, atomics and lookups that wait for their answers.
pub const TICKETS_MAX: usize = MESSAGES_IN_FLIGHT;
/// Maximum number of entries of a list operation. Each entry is a message that waits, and so is
/// each answer to a peer's list. The limit leaves room for other messages.
pub const LIST_MAX: usize = MESSAGES_IN_FLIGHT / 4;
/// Maximum number of fragmented puts and answers of one peer that have begun and are not whole.
pub const TRANSFERS_PER_PEER: usize = 16_384;
/// Maximum number of elements that one FIFO holds.
pub const FIFO_SLOTS_MAX: u64 = 1 << 24;
/// Maximum length of a FIFO's element in bytes.
pub const FIFO_ELEMENT_MAX: u64 = 1 << 20;
/// Minimum backoff before a push that found its FIFO full is tried again. It doubles each time up
/// to [`PUSH_PAUSE_MAX`].
pub const PUSH_PAUSE_MIN: Duration = Duration::from_micros(20);
/// Maximum backoff before a push that found its FIFO full is tried again.
pub const PUSH_PAUSE_MAX: Duration = Duration::from_millis(5);
/// Maximum number of partly received elements of one peer's accumulates. A fragment can begin and
/// end inside an element.
pub const CUT_ELEMENTS_PER_PEER: usize = 16_384;
/// Minimum backoff before an operation is tried again whose pages were not in its target's memory.
/// It grows up to [`PRESENT_PAUSE_MAX`].
pub const PRESENT_PAUSE_MIN: Duration = Duration::from_micros(100);
/// Maximum backoff before an operation is tried again whose pages were not in its target's memory.
pub const PRESENT_PAUSE_MAX: Duration = Duration::from_millis(20);
/// Maximum time for which an operation is tried again while its pages are absent. A slow disk takes
/// about this long for pages that many wait for.
pub const PRESENT_TIME: Duration = Duration::from_secs(30);
/// Maximum number of ranges of one region that are fetched at a time. It also limits the ranges
/// that could not be fetched and were not asked for again (MEM-9.1).
pub const FETCHED_AT_ONCE: usize = 1024;
/// Maximum number of accesses refused to peers that a node remembers one by one. All refusals are
/// counted.
pub const REFUSALS_KEPT: usize = 256;
/// Number of different keys without a region after which a peer may ask for no region any more.
pub const WRONG_KEYS_MAX: usize = 1024;
/// Maximum number of answers to one peer that Wind has not taken yet. It covers everything that the
/// peer may have asked for, because all the requests may arrive at once.
pub const ANSWERS_PER_PEER: usize = TICKETS_MAX;
/// Maximum length of a body, in bytes, that is copied when it is posted. The body goes whole in one
/// frame that shares its datagram.
pub const POST_INLINE: u64 = 1024;
/// Maximum length of a body, in bytes, that is copied when it is posted while almost nothing else
/// is in flight to the peer ([`QUIET_MAX`]). A copy then costs less than gathering at the sender
/// and looking for bulk at the receiver.
pub const POST_INLINE_ALONE: u64 = 2 * PAGE as u64;
/// Maximum number of bytes in flight at which [`POST_INLINE_ALONE`] holds. It admits a header
/// before its data.
pub const QUIET_MAX: u64 = 1024;
/// Maximum length of an answer to a get, in bytes, that is read when it is served and shares a
/// datagram with others.
pub const ANSWER_INLINE: u64 = 256;
/// Minimum length of a body, in bytes, that is received into reused memory of the buffer pool.
/// Fresh memory is cheap below it.
pub const BODY_POOLED_MIN: usize = 32 << 10;
/// Maximum number of bytes that the buffer pool keeps for messages to come, unless one buffer alone
/// is longer. It is what one peer may have under way (WIND-6.3, WIND-6.7).
pub const BODY_POOL_BYTES_MAX: usize = CREDIT as usize;
/// Time without long bodies after which the buffer pool keeps nothing.
pub const BODY_POOL_IDLE_TIME: Duration = Duration::from_secs(1);
/// Maximum number of bytes that a node has copied for operations to one peer that have not ended
/// (MEM-15.6). One operation alone may exceed it.
pub const QUEUED_MAX: u64 = 256 << 20;
/// Maximum number of withdrawn names that a node remembers, the latest ones (MEM-6.6).
pub const WITHDRAWN_KEPT: usize = 1024;
/// Maximum length of a user's message, in bytes, by every path. The receiver holds all of it in
/// memory. A message that costs more than all [`CREDIT`] goes alone (WIND-6.7).
pub const MESSAGE_MAX: u64 = 1 << 30;
/// Size in bytes of a ring from one node to another on the same machine.
pub const RING_BYTES: usize = 256 << 10;
/// Alignment of records in a ring, in bytes. It is one cache line, so that a small message is one
/// cache line that changes hands.
pub const RECORD_STEP: usize = 64;
/// Maximum number of bytes of a body that one record carries. A longer body goes in pieces of this
/// size, so that one side copies in while the other copies out.
pub const RECORD_BODY: usize = 16 << 10;
/// Maximum number of refusals that a ring's reader has reported and its writer has not read.
pub const REFUSALS_TOLD: usize = 32;
/// Maximum number of regions that one local peer has mapped at a time. The peer reaches further
/// regions through the rings.
pub const GRANTS: usize = 64;
/// Maximum number of records taken from one local peer in one poll. It is lower than the
/// credit-return interval, so that polling does not starve the fast path.
pub const RECORDS_PER_POLL: usize = 48;
/// Number of bytes taken from one local peer in one poll after which the poll takes no further
/// record.
pub const RECORD_BYTES_PER_POLL: usize = 128 << 10;
/// Maximum number of messages that go by the fast path, between a local peer's ring and its users,
/// from one poll of all that has arrived to the next.
pub const FAST_PER_TURN_MAX: u32 = 64;
/// Maximum number of small messages that the fast path takes together from a local peer that sends
/// many.
pub const FAST_BATCH_MAX: usize = 8;
/// Number of bytes of bodies after which a batch of the fast path takes no further message.
pub const FAST_BATCH_BYTES_MAX: usize = 1024;
/// Maximum number of records taken from one local peer in a poll between fast-path messages. The
/// poll leaves the other records to the thread that receives by the fast path.
pub const RECORDS_PER_FAST_POLL: usize = 4;
/// Time after the last fast-path receive during which [`RECORDS_PER_FAST_POLL`] holds.
pub const FAST_PATH_RECENT: Duration = Duration::from_millis(1);
/// Maximum number of polls of the records that an ended process has left in its ring (MEM-16.7).
/// Each poll ends at [`RECORDS_PER_POLL`] or [`RECORD_BYTES_PER_POLL`], and the last poll finds
/// nothing left.
pub const FINAL_POLLS_MAX: usize = RING_BYTES.div_ceil(RECORDS_PER_POLL * RECORD_STEP)
    + RING_BYTES.div_ceil(RECORD_BYTES_PER_POLL)
    + 1;
/// Maximum number of bytes that a node reserves for a message that its local peer has only
/// announced, and for which no credit was taken.
pub const RESERVED_MAX: usize = 64 << 10;
/// Maximum number of nodes of one machine that share memory with one of them. Each costs two rings.
/// The node talks to further ones over UDP.
pub const LOCAL_PEERS_MAX: usize = 128;
/// Time between two polls of the link by a node with local peers, for the sake of its other peers.
pub const LINK_POLL_TIME: Duration = Duration::from_micros(2);
/// Time between two polls of the link by a node whose peers are all local. Only signs of life and
/// goodbyes arrive there.
pub const LINK_POLL_LOCAL_ONLY_TIME: Duration = Duration::from_micros(100);
/// Time between two checks in which a node that does not sleep asks the kernel whether a local peer
/// has ended.
pub const LOCAL_PEERS_CHECKED: Duration = Duration::from_millis(1);
/// Time between two publications of a node's counters (`oikaze top`).
pub const SHOWN_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of peers whose counters one publication refreshes. The peers of larger jobs take
/// turns.
pub const SHOWN_PEERS: u32 = 256;
/// Default maximum size of a record of datagrams (`OIKAZE_PCAP`) in bytes.
pub const CAPTURE_MAX: u64 = 256 << 20;
/// Minimum of the size limit, in bytes, that a user may set for a record of datagrams.
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
    FINAL_POLLS_MAX * RECORDS_PER_POLL > RING_BYTES / RECORD_STEP,
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
    DATAGRAM_MIN > HEADER_LEN + TAG_MAX + 48 + 8 * ACK_RANGES_MAX + 9 * REFUSALS_MAX + 4,
    "the ACK frame of a stream must fit alone"
);
const _: () = assert!(
    DATAGRAM_MIN
        > HEADER_LEN
            + TAG_MAX
            + BULK_FRAME_LEN
            + 8
            + 4 * GROUP_MEMBERS_MAX
            + 24
            + HEAD_MAX
            + FRAGMENT_STEP,
    "the addressees and OPEN must fit beside a fragment"
);
const _: () = assert!(GROUP_RECEIVERS_MIN >= 2 && GROUP_RECEIVERS_MIN <= GROUP_MEMBERS_MAX);
const _: () = assert!(GROUP_RETRY_MIN.as_nanos() <= GROUP_RETRY_MAX.as_nanos());
const _: () = assert!(
    LOST_ITEMS_REMEMBERED >= 2 * LOST_REMEMBERED
        && FAREWELL_PAUSE_MIN.as_nanos() < PROBE_MAX.as_nanos()
);
const _: () = assert!(
    ACK_PIGGYBACK_TIME.as_nanos() < PROBE_MIN.as_nanos(),
    "a held acknowledgement is not a loss"
);
const _: () =
    assert!(ACK_PIGGYBACK_TIME.as_nanos() < ACK_DELAY.as_nanos() && ACK_SCORE_MIN < ACK_SCORE_MAX);
const _: () = assert!(
    HELLO_INTERVAL_MIN.as_nanos() < HELLO_INTERVAL_MAX.as_nanos()
        && PROBE_MIN.as_nanos() < PROBE_MAX.as_nanos()
);
