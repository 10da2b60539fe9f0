//! Tests which threads send and receive, in each mode of the engine.

use crate::job::{EngineMode, Feature, JobBuilder};
use crate::prelude::*;
use crate::testing::cluster_with;
use oikaze_os::net::{
    Link, LinkProperties, LocalAddress, Outgoing, PayloadForm, Sink, Statistics, TooBig,
};
use std::collections::HashSet;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread::{ThreadId, current};
use std::time::Instant;

/// Threads of this process that have called a link to send or to receive.
static CALLERS: Mutex<Option<HashSet<ThreadId>>> = Mutex::new(None);

fn note_caller() {
    let mut callers = CALLERS.lock().unwrap();
    callers.get_or_insert_default().insert(current().id());
}

fn has_called() -> bool {
    CALLERS.lock().unwrap().as_ref().is_some_and(|callers| callers.contains(&current().id()))
}

/// Wraps a link, and notes the threads that send and receive.
pub(crate) fn noting_callers(link: Box<dyn Link>) -> Box<dyn Link> {
    Box::new(NotingLink(link))
}

struct NotingLink(Box<dyn Link>);

impl Link for NotingLink {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        note_caller();
        self.0.send(batch)
    }

    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        note_caller();
        self.0.receive_into(sink)
    }

    fn receive_again(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        note_caller();
        self.0.receive_again(sink)
    }

    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        self.0.local_addresses()
    }

    fn properties(&self) -> LinkProperties<'_> {
        self.0.properties()
    }

    fn prefers(&mut self, to: SocketAddr, form: PayloadForm) -> bool {
        self.0.prefers(to, form)
    }

    fn watch(&mut self, yes: bool) -> io::Result<()> {
        self.0.watch(yes)
    }

    fn next_wakeup(&self) -> Option<Instant> {
        self.0.next_wakeup()
    }

    fn poll_too_big(&mut self) -> Option<TooBig> {
        self.0.poll_too_big()
    }

    fn report_silence(&mut self, peer: SocketAddr) {
        self.0.report_silence(peer);
    }

    fn notice(&mut self) -> Option<String> {
        self.0.notice()
    }

    fn statistics(&self) -> Statistics {
        self.0.statistics()
    }
}

/// Uses every kind of operation once, and returns `true` if the calling thread has sent or received
/// since it has called [`Job::builder`]'s `join`.
fn use_all(job: &Job) -> Result<bool, Box<dyn Error>> {
    const LEN: usize = 1 << 20;
    let (me, other) = (job.rank(), 1 - job.rank());
    let peer = job.peer(other)?;
    let inbox = job.publish("inbox", Region::shared(LEN)?, Rights::ALL)?;
    let theirs = peer.region("inbox")?;
    let page = job.register(Region::zeroed(LEN)?)?;
    theirs.put_signal(8, page.slice(0..LEN - 8)?, &theirs.signal(0, 1)).wait()?;
    inbox.wait_until(0, |count| count >= 1)?;
    theirs.put_copy(16, &[1; 8])?.wait()?;
    theirs.get(0, page.all()).wait()?;
    theirs.word::<u64>(0).fetch_add(1).wait()?;
    for _ in 0..100 {
        let _ = peer.send(Class::Ordered, 3, &[1; 64]);
    }
    for _ in 0..100 {
        assert_eq!(job.receive(None)?.bytes().len(), 64);
    }
    let posted = job
        .batch(|| (0..6000).map(|_| theirs.put_copy(24, &[0; 8])).collect::<Result<Vec<_>, _>>())?;
    posted.iter().try_for_each(Operation::wait)?;
    let array = job.array::<u64>("array", 1 << 12)?;
    array.write(me as usize..me as usize + 1)?[0] = 5;
    job.barrier()?;
    assert_eq!(array.read(other as usize..other as usize + 1)?[0], 5);
    assert_eq!(job.barrier_reduce(u64::from(me), Sum)?, 1);
    Ok(has_called())
}

fn who_calls(settings: JobBuilder) -> Vec<bool> {
    cluster_with(2, settings, use_all)
}

/// In thread mode every operation is the work of the engine's own thread (issue 33, paper 002).
#[test]
fn callers_in_thread_mode_never_send_nor_receive() {
    for without in [&[Feature::Shm][..], &[]] {
        let settings = Job::builder().engine(EngineMode::thread());
        assert_eq!(who_calls(settings.without(without.iter().copied())), [false; 2]);
    }
}

/// Shows that the test above can fail.
#[test]
fn callers_in_inline_mode_send_and_receive() {
    let settings = Job::builder().engine(EngineMode::inline());
    assert_eq!(who_calls(settings.without([Feature::Shm])), [true; 2]);
}
