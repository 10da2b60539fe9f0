//! Limits of spinning (busy polling), of polling and of sleeping. Durations carry their unit in
//! their type.

use std::time::Duration;

// Spinning: a thread polls instead of sleeping.

/// Maximum time for which a waiting thread spins before it blocks, unless the user lets it spin
/// for ever. The adaptive policy spins for less where that has not paid.
pub const SPIN_TIME: Duration = Duration::from_millis(2);
/// Cost of a sleep and its wakeup beside spinning, as the adaptive policy weighs it. A wait that is
/// slept through is 50 µs late, which is a fifth of a wait of this length.
pub const SLEEP_COST: Duration = Duration::from_micros(250);
/// Maximum time for which a thread yields its core again and again before it sleeps, where nodes
/// share cores. If all of them do so, the core goes round within a few microseconds, and a sleep
/// with its wakeup takes tens.
pub const YIELD_TIME: Duration = Duration::from_micros(200);
/// Maximum time for which a thread that drives sleeps on a word in shared memory while it waits for
/// one step of a node of this machine. What comes from elsewhere does not wake it.
pub const WORD_SLEEP_TIME: Duration = Duration::from_micros(200);
/// Time for which a blocking thread polls after a wakeup, from the latest news on (paper 000).
/// Several completions then cost one wakeup.
pub const BURST_TIME: Duration = Duration::from_micros(100);
/// Polls of the rings between two idle turns, of all local peers together. A turn does much else,
/// and reads the clock.
pub const SPIN_POLLS_BETWEEN_TURNS: usize = 32;
/// Polls for a message, of the rings of all local peers together, before a thread becomes the
/// driver to wait for it. They take about a microsecond.
pub const SPIN_POLLS_BEFORE_DRIVING: usize = 32;
/// Pauses between two of those polls. Each poll takes the cache line of the next record away from
/// the peer that is about to write it.
pub const SPIN_PAUSES: usize = 2;
/// Maximum number of times that an idle turn of a waiting thread polls the link alone. The rest of
/// a turn takes half as long as a poll, and a datagram that arrives meanwhile waits for its end.
/// Another thread that wants the engine ends these polls.
pub const SPIN_POLLS_OF_LINK: u32 = 3;
/// Idle turns of one wait after which peers get back the credit of all messages that were read. The
/// turns take longer than a round trip, so an exchange of small messages does not return credit
/// each time. The limit also serves nodes on which no thread ever sleeps.
pub const SPIN_TURNS_UNTIL_CREDIT: u64 = 256;

// Streams: many messages of local peers in a row.

/// Maximum number of polls in vain after which a found message counts as one of a stream. An answer
/// to the reader's own message takes more polls, so that an exchange of messages is not a stream.
pub const STREAM_POLLS_MAX: usize = 2;
/// Maximum number of pauses for which the reader of a stream backs off. While streaming, the reader
/// waits for one pause per message of the stream so far. The writer gets some records ahead
/// meanwhile, and the reader then fetches each of their cache lines once. The pauses add at most
/// half of the time that the stream has taken so far.
pub const STREAM_BACKOFF_MAX: usize = 128;
/// Number of messages of a stream from which on the reader takes several together.
pub const STREAM_BATCH_MIN: usize = 16;

// Shared cores: no thread spins while other threads take its core away.

/// Minimum time for which a thread that computes takes a core. Helpers and the kernel's threads
/// take less.
pub const PREEMPTED_MIN: Duration = Duration::from_millis(1);
/// Number of preemptions in a row, each within `PREEMPTED_AGAIN_MAX` of the one before, that end
/// spinning. A process that begins or ends is not a reason to stop spinning.
pub const PREEMPTED_TIMES: u32 = 3;
/// Longest time between two preemptions in a row.
pub const PREEMPTED_AGAIN_MAX: Duration = Duration::from_millis(50);
/// Idle time after which a thread asks how often it was preempted. By then, the next message is not
/// just about to come.
pub const PREEMPTED_CHECK_AFTER: Duration = Duration::from_micros(20);
/// Time for which no thread spins after the core was taken away. After that, one idle span tries it
/// again.
pub const SPIN_PAUSE: Duration = Duration::from_millis(100);

// Sleeping.

/// Maximum sleep of a thread without a timer.
pub const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Maximum sleep on a link that cannot be watched.
pub const SLEEP_UNWATCHED_MAX: Duration = Duration::from_millis(1);
/// Sleep of the helper away from the socket, after which it polls by itself, so that a short gap
/// between two drivers need not wake it. The sleep may be twice as long where that spares an
/// interrupt. Each poll takes the core away from the application for a moment.
pub const HELPER_SLEEP: Duration = Duration::from_millis(2);
/// Maximum sleep of the helper away from the socket. While one driver stays, each sleep is twice as
/// long as the one before, up to this time. Then a leaving driver always wakes the helper. A helper
/// from which a driver took the socket may sleep for [`SLEEP_MAX`].
pub const HELPER_SLEEP_MAX: Duration = HELPER_SLEEP.saturating_mul(32);

// Tasks that await, and event loops.

/// Minimum time between two turns of tasks. Tasks that are polled one after another need one turn
/// together.
pub const TASK_TURNS_APART: Duration = Duration::from_nanos(500);
/// Maximum number of turns for an event loop that is about to sleep. If there is still more to do,
/// the helper goes on.
pub const TURNS_BEFORE_SLEEP: u32 = 2;
/// Time for which the helper leaves what has arrived to an event loop that sleeps on the
/// descriptor. The loop is woken by the same arrival, and the helper must not take it away.
pub const LOOP_GRACE: Duration = Duration::from_micros(50);

// Gaps between two drivers, in nanoseconds because they are kept in atomics.

/// Longest gap for which waking the helper would be a waste, while peers ask this node for
/// something. They wait until it answers.
pub const GAP_SHORT_NS: u64 = 50_000;
/// Longest such gap while no peer has asked for anything in the last `QUIET_GAPS` gaps. A program
/// that computes and comes to barriers is such a case: what it gets meanwhile can wait until it
/// comes, and each datagram would cost a wakeup of the helper on the program's core.
pub const GAP_QUIET_NS: u64 = 2_000_000;
/// Number of gaps in a row without a request of a peer, after which longer gaps count as short.
pub const QUIET_GAPS: u64 = 8;
/// Maximum length of a gap that counts, as a multiple of the longest short gap, so that a long
/// pause is forgotten after some short ones.
pub const GAP_MAX_FACTOR: u64 = 4;
/// Number of gaps in the moving average. A gap in which this thread lost its core does not decide
/// alone. The helper that is woken for it would take the core away again, and so on.
pub const GAPS_AVERAGED: u64 = 16;
