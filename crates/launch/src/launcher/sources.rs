//! Sources of the nodes' output, and waits until all output of a node so far has been passed on.
//!
//! Each stream has a thread of its own, so the streams of several nodes pass in any order. A node
//! that fails prints why before it ends the job. The launcher waits here for that text before it
//! tells others of the failure, so that no text that follows from it stands above it
//! (LAUNCH-5.4).

use super::output::{Sink, Stream};
use oikaze_protocol::Rank;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of bytes of one read: the capacity of a pipe, so that a node's write usually passes as
/// one.
const CHUNK: usize = 64 << 10;
/// Time limit of a wait for output. Only a reader that has stopped reading takes so long.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Source of the output of some nodes.
pub trait OutputSource: Send + Sync {
    /// Waits until all that the node has written so far has been passed on. Returns `false` if it
    /// has not by the deadline.
    fn drain(&self, rank: Rank, deadline: Instant) -> bool;
}

/// A source, and the ranks of its nodes.
type RankedSource = (Range<Rank>, Arc<dyn OutputSource>);

/// All sources of a job.
#[derive(Default)]
pub struct OutputSources {
    sources: Mutex<Vec<RankedSource>>,
    /// Set while a reader does not read. Each end of a node would have to wait for it otherwise.
    is_stalled: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl OutputSources {
    /// Adds a source of the output of these nodes.
    pub fn add(&self, ranks: Range<Rank>, source: Arc<dyn OutputSource>) {
        lock(&self.sources).push((ranks, source));
    }

    /// Waits until all that these nodes have written so far has been passed on, for at most
    /// [`WAIT_MAX`].
    pub fn drain(&self, ranks: &[Rank]) {
        let limit = if self.is_stalled.load(Ordering::Relaxed) { Duration::ZERO } else { WAIT_MAX };
        let deadline = Instant::now() + limit;
        let mut sources = Vec::new();
        for &rank in ranks {
            let of_rank = |(ranks, _): &&RankedSource| ranks.contains(&rank);
            let found = lock(&self.sources);
            sources.extend(found.iter().filter(of_rank).map(|(_, from)| (rank, Arc::clone(from))));
        }
        let is_late =
            |(rank, source): &(Rank, Arc<dyn OutputSource>)| !source.drain(*rank, deadline);
        if !sources.is_empty() {
            self.is_stalled.store(sources.iter().any(is_late), Ordering::Relaxed);
        }
    }
}

/// Progress of one stream.
struct Progress {
    /// Read end of the pipe, until the stream has ended.
    pipe: Option<Arc<OwnedFd>>,
    /// Number of bytes that were read.
    read: u64,
    /// Number of bytes that the sink has taken.
    written: u64,
}

/// One output stream of a node of this host.
pub struct OutputPipe {
    rank: Rank,
    stream: Stream,
    progress: Mutex<Progress>,
    moved: Condvar,
}

impl OutputPipe {
    /// Takes the read end of a node's pipe.
    pub fn new(pipe: OwnedFd, rank: Rank, stream: Stream) -> OutputPipe {
        let progress = Progress { pipe: Some(Arc::new(pipe)), read: 0, written: 0 };
        OutputPipe { rank, stream, progress: Mutex::new(progress), moved: Condvar::new() }
    }

    /// Passes output on until the stream ends or no reader is left. One thread calls this once.
    pub fn pump(&self, sink: &dyn Sink) {
        let mut chunk = vec![0; CHUNK];
        while let Some(bytes) = self.read(&mut chunk) {
            let goes_on = sink.write(self.rank, self.stream, bytes);
            lock(&self.progress).written += bytes.len() as u64;
            self.moved.notify_all();
            if !goes_on {
                break;
            }
        }
        sink.end(self.rank, self.stream);
        // Closing this end of the pipe gives the child what `| head` would give it: SIGPIPE.
        lock(&self.progress).pipe = None;
        self.moved.notify_all();
    }

    /// Waits for bytes and reads them. Returns `None` at the end of the stream.
    fn read<'c>(&self, chunk: &'c mut [u8]) -> Option<&'c [u8]> {
        let pipe = lock(&self.progress).pipe.clone()?;
        loop {
            match poll(&mut [PollFd::new(&*pipe, PollFlags::IN)], None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            }
            // Read and counted in one step, so that `drain` sees each byte either in the pipe or
            // in the count.
            let mut progress = lock(&self.progress);
            match rustix::io::read(&*pipe, &mut *chunk) {
                Ok(0) => return None,
                Ok(len) => {
                    progress.read += len as u64;
                    return chunk.get(..len);
                }
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
    }
}

impl OutputSource for OutputPipe {
    fn drain(&self, _: Rank, deadline: Instant) -> bool {
        let progress = lock(&self.progress);
        let Some(pipe) = &progress.pipe else { return true };
        let mut polled = [PollFd::new(&**pipe, PollFlags::IN)];
        let _ = poll(&mut polled, Some(&Timespec::default()));
        // No process can write any more. The end completes a last line without a newline.
        let is_closed = polled.iter().any(|pipe| pipe.revents().contains(PollFlags::HUP));
        let goal = progress.read + ioctl_fionread(pipe).unwrap_or(0);
        let is_behind = move |progress: &mut Progress| {
            progress.pipe.is_some() && (is_closed || progress.written < goal)
        };
        let limit = deadline.saturating_duration_since(Instant::now());
        let waited = self.moved.wait_timeout_while(progress, limit, is_behind);
        !is_behind(&mut waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::Busy;
    use super::*;
    use std::io::Write;
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// Sink that takes bytes only while a test lets it.
    struct Gate {
        open: Mutex<Receiver<()>>,
        taken: Mutex<Vec<u8>>,
        busy: Busy,
    }

    impl Gate {
        fn new() -> (Sender<()>, Arc<Gate>) {
            let (key, open) = channel();
            let (open, taken) = (Mutex::new(open), Mutex::default());
            (key, Arc::new(Gate { open, taken, busy: Busy::default() }))
        }
    }

    impl Sink for Gate {
        fn write(&self, _: Rank, _: Stream, bytes: &[u8]) -> bool {
            let open = self.busy.during(|| lock(&self.open).recv().is_ok());
            lock(&self.taken).extend(bytes);
            open
        }
        fn end(&self, _: Rank, _: Stream) {
            lock(&self.taken).push(b'.');
        }
        fn is_busy(&self) -> bool {
            self.busy.is_any()
        }
    }

    fn source() -> (std::io::PipeWriter, Arc<OutputPipe>, OutputSources) {
        let (from, to) = std::io::pipe().unwrap();
        let pipe = Arc::new(OutputPipe::new(from.into(), 1, Stream::Err));
        let sources = OutputSources::default();
        sources.add(1..2, Arc::clone(&pipe) as Arc<dyn OutputSource>);
        (to, pipe, sources)
    }

    /// LAUNCH-5.4: bytes in the pipe and bytes in the hands of the thread are waited for.
    #[test]
    fn drain_returns_when_all_bytes_have_been_passed_on() {
        let (mut to, pipe, sources) = source();
        let (key, gate) = Gate::new();
        to.write_all(b"the cause\n").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| pipe.pump(&*gate));
            let (begun, waits) = channel();
            let (gate, sources) = (&gate, &sources);
            let wait = scope.spawn(move || {
                begun.send(()).unwrap();
                sources.drain(&[0, 1]);
                lock(&gate.taken).clone()
            });
            waits.recv().unwrap();
            key.send(()).unwrap();
            assert_eq!(wait.join().unwrap(), b"the cause\n");
            // Nothing is left to wait for, whatever the sink does.
            sources.drain(&[1]);
            assert!(!sources.is_stalled.load(Ordering::Relaxed));
            // The end of the stream is waited for, too.
            drop(to);
            sources.drain(&[1]);
            assert_eq!(*lock(&gate.taken), b"the cause\n.");
        });
    }

    /// A reader that has stopped reading holds up the first wait alone.
    #[test]
    fn drain_gives_up_on_a_reader_that_does_not_read() {
        let (mut to, pipe, sources) = source();
        let (key, gate) = Gate::new();
        to.write_all(b"unread").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| pipe.pump(&*gate));
            let begun = Instant::now();
            sources.drain(&[1]);
            assert!(begun.elapsed() >= WAIT_MAX && sources.is_stalled.load(Ordering::Relaxed));
            (0..1000).for_each(|_| sources.drain(&[1]));
            assert!(begun.elapsed() < 100 * WAIT_MAX, "{:?}", begun.elapsed());
            drop((key, to));
        });
        sources.drain(&[1]);
        assert!(!sources.is_stalled.load(Ordering::Relaxed));
    }
}
