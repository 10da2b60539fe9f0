//! Queue of the messages to the agent on one host, and the loop of the thread that writes them.
//!
//! A host that has stopped reading (a stopped ssh or agent, a dead network) fills the pipe. Only
//! the thread of that host waits then. The launcher's main thread puts messages into the queue, and
//! goes on with signals and time limits (LAUNCH-8.6).

use super::pipe::Control;
use crate::clock::{Clock, TICK};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Maximum number of bytes that wait for one host. The values of one barrier may have more, if
/// nothing else waits.
const QUEUE_MAX: usize = 256 << 20;

/// Message as a line of JSON. The queues of all hosts share its bytes.
#[derive(Clone)]
pub struct ControlLine(Arc<[u8]>);

impl ControlLine {
    /// Encodes a message.
    #[must_use]
    pub fn new(control: &Control) -> ControlLine {
        // It has texts and numbers only, which are always JSON.
        let mut line = serde_json::to_vec(control).unwrap_or_default();
        line.push(b'\n');
        ControlLine(line.into())
    }
}

/// Error of a host that does not take its messages.
#[derive(Debug, PartialEq, Eq)]
pub enum Silence {
    /// No byte was taken for this time.
    Time(Duration),
    /// More than [`QUEUE_MAX`] bytes wait.
    Bytes,
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Silence::Time(time) => write!(f, "took no message for {} s", time.as_secs_f32()),
            Silence::Bytes => write!(f, "left {} MiB of messages unread", QUEUE_MAX >> 20),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum QueueStage {
    /// The agent does not have its order yet. The messages wait.
    Starting,
    /// A thread writes the messages.
    Open,
    /// Nothing is sent any more. The agent finds the end of its input.
    Closed,
}

struct QueueState {
    stage: QueueStage,
    lines: VecDeque<ControlLine>,
    bytes: usize,
    /// Set while a message is being written.
    is_writing: bool,
    /// Set while the host takes nothing.
    is_stuck: bool,
    has_too_much: bool,
}

/// Messages that wait for one host.
pub struct ControlQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

impl ControlQueue {
    /// Makes an empty queue, for an agent that does not have its order yet.
    #[must_use]
    pub fn new() -> ControlQueue {
        let state = QueueState {
            stage: QueueStage::Starting,
            lines: VecDeque::new(),
            bytes: 0,
            is_writing: false,
            is_stuck: false,
            has_too_much: false,
        };
        ControlQueue { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message, and never waits.
    pub fn put(&self, line: ControlLine) {
        let mut state = self.lock();
        if state.stage == QueueStage::Closed {
            return;
        }
        let bytes = state.bytes + line.0.len();
        if state.lines.is_empty() || bytes <= QUEUE_MAX {
            state.bytes = bytes;
            state.lines.push_back(line);
        } else {
            state.has_too_much = true;
        }
        self.changed.notify_all();
    }

    /// Returns `true` until the agent has its order.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        self.lock().stage == QueueStage::Starting
    }

    /// Returns `true` if an agent gets the messages.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lock().stage == QueueStage::Open
    }

    /// Returns `true` while a message waits that the host does not take.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.lock().is_stuck
    }

    /// Waits until all messages are written, for at most `limit`. A host that takes nothing, or has
    /// no agent yet, is not waited for.
    pub fn flush(&self, limit: Duration) {
        let waits = |state: &mut QueueState| {
            let has_some = state.is_writing || !state.lines.is_empty();
            state.stage == QueueStage::Open && has_some && !state.is_stuck
        };
        drop(self.changed.wait_timeout_while(self.lock(), limit, waits));
    }

    /// Ends the input of the agent. Messages that wait are dropped.
    pub fn close(&self) {
        let mut state = self.lock();
        state.stage = QueueStage::Closed;
        (state.bytes, state.is_stuck) = (0, false);
        state.lines.clear();
        self.changed.notify_all();
    }

    /// Marks the agent as having its order. [`ControlQueue::write_to`] follows.
    pub fn open(&self) {
        let mut state = self.lock();
        if state.stage == QueueStage::Starting {
            state.stage = QueueStage::Open;
        }
    }

    /// Writes the messages to the agent's input, until the queue is closed or the agent has gone.
    /// The host may take no byte for `patience`. Time in which `is_excused` returns `true` does not
    /// count.
    ///
    /// # Errors
    /// The host does not take its messages.
    pub fn write_to(
        &self,
        input: OwnedFd,
        patience: Duration,
        is_excused: impl Fn() -> bool,
    ) -> Result<(), Silence> {
        // Only this end of the pipe. The other end is a file of its own.
        let _ = ioctl_fionbio(&input, true);
        let mut input = File::from(input);
        let mut clock = Clock::new();
        while let Some(line) = self.next()? {
            let mut rest = &line.0[..];
            let mut since = clock.now();
            while !rest.is_empty() {
                match input.write(rest) {
                    Ok(taken) => {
                        rest = rest.get(taken..).unwrap_or_default();
                        since = clock.now();
                        self.lock().is_stuck = false;
                    }
                    Err(why) if why.kind() == ErrorKind::Interrupted => {}
                    Err(why) if why.kind() == ErrorKind::WouldBlock => {
                        self.wait_for_room(&input)?;
                        if self.lock().stage == QueueStage::Closed {
                            return Ok(());
                        }
                        let now = clock.now();
                        if is_excused() {
                            since = now;
                        }
                        if now.saturating_sub(since) >= patience {
                            return Err(Silence::Time(patience));
                        }
                    }
                    // A broken pipe shows as the end of the agent's output.
                    Err(_) => return Ok(()),
                }
            }
        }
        Ok(())
    }

    /// Waits for a message, after the one before was written. Returns `None` when the queue is
    /// closed.
    fn next(&self) -> Result<Option<ControlLine>, Silence> {
        let is_idle =
            |state: &mut QueueState| state.lines.is_empty() && state.stage != QueueStage::Closed;
        let mut state = self.lock();
        state.is_writing = false;
        self.changed.notify_all();
        let waited = self.changed.wait_while(state, is_idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.check()?;
        let line = state.lines.pop_front();
        state.is_writing = line.is_some();
        state.bytes -= line.as_ref().map_or(0, |line| line.0.len());
        Ok(line)
    }

    /// Waits until the pipe has room, for at most [`TICK`].
    fn wait_for_room(&self, input: &File) -> Result<(), Silence> {
        let mut fds = [PollFd::new(input, PollFlags::OUT)];
        // An interrupted or failed poll is a turn without room.
        let has_room = poll(&mut fds, Timespec::try_from(TICK).ok().as_ref());
        let mut state = self.lock();
        state.is_stuck = !has_room.is_ok_and(|ready| ready > 0);
        self.changed.notify_all();
        state.check()
    }
}

impl QueueState {
    /// Checks that no message was left out.
    fn check(&self) -> Result<(), Silence> {
        match self.has_too_much && self.stage != QueueStage::Closed {
            true => Err(Silence::Bytes),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;
    use std::io::{BufRead, BufReader};

    fn signals(queue: &ControlQueue, count: usize) {
        (0..count).for_each(|_| queue.put(ControlLine::new(&Control::Signal(10))));
    }

    /// LAUNCH-8.6.
    #[test]
    fn messages_reach_the_host_in_order_and_wait_for_its_order() {
        let queue = ControlQueue::new();
        for signal in [1, 2] {
            queue.put(ControlLine::new(&Control::Signal(signal)));
        }
        assert!(queue.is_starting() && !queue.is_open());
        queue.open();
        let (output, input) = pipe().unwrap();
        std::thread::scope(|scope| {
            let written = scope.spawn(|| queue.write_to(input, Duration::MAX, || false));
            let mut lines = BufReader::new(File::from(output)).lines().map(Result::unwrap);
            let mut next = || serde_json::from_str::<Control>(&lines.next().unwrap()).unwrap();
            assert_eq!((next(), next()), (Control::Signal(1), Control::Signal(2)));
            signals(&queue, 1);
            queue.flush(Duration::MAX);
            let state = queue.lock();
            assert!(state.lines.is_empty() && !state.is_writing, "it is in the pipe");
            drop(state);
            assert_eq!(next(), Control::Signal(10));
            queue.put(ControlLine::new(&Control::Drain(7)));
            assert_eq!(next(), Control::Drain(7));
            queue.close();
            signals(&queue, 1);
            assert!(lines.next().is_none(), "the agent finds the end");
            assert_eq!(written.join().unwrap(), Ok(()));
        });
    }

    /// LAUNCH-8.6: neither putting nor closing waits for a host that reads nothing.
    #[test]
    fn host_that_reads_nothing_is_reported_after_its_time() {
        // More than the pipe has room for.
        let fill = |queue: &ControlQueue| signals(queue, (1 << 20) / 14);
        let queue = ControlQueue::new();
        queue.open();
        fill(&queue);
        let (output, input) = pipe().unwrap();
        let patience = Duration::from_millis(1);
        assert_eq!(queue.write_to(input, patience, || false), Err(Silence::Time(patience)));
        drop(output);

        let queue = ControlQueue::new();
        queue.open();
        let (output, input) = pipe().unwrap();
        std::thread::scope(|scope| {
            let written = scope.spawn(|| queue.write_to(input, patience, || true));
            fill(&queue);
            while !queue.is_stuck() {
                std::thread::yield_now();
            }
            assert!(!written.is_finished(), "a slow reader here is the reason");
            queue.flush(Duration::MAX);
            queue.close();
            assert_eq!(written.join().unwrap(), Ok(()));
        });
        drop(output);
    }

    /// LAUNCH-8.6.
    #[test]
    fn messages_that_wait_have_a_bound() {
        let queue = ControlQueue::new();
        queue.open();
        let values = ControlLine(vec![b'v'; 1 << 20].into());
        (0..QUEUE_MAX >> 20).for_each(|_| queue.put(values.clone()));
        assert!(queue.lock().check().is_ok());
        signals(&queue, 1);
        assert_eq!(queue.lock().lines.len(), QUEUE_MAX >> 20);
        let (output, input) = pipe().unwrap();
        assert_eq!(queue.write_to(input, Duration::MAX, || true), Err(Silence::Bytes));
        drop(output);
    }
}
