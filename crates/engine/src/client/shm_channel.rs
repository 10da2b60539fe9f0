//! Thread-side view of the local peers' rings, which needs no entry into the engine.

use super::completion::Value;
use crate::failure::Failure;
use oikaze_os::shm::{ControlSocket, Pair, RingView};
use oikaze_protocol::Rank;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The rings to and from one local peer.
#[derive(Debug)]
pub struct ShmChannel {
    view: RingView,
    line: Arc<ControlSocket>,
    ended: OnceLock<ChannelEnd>,
}

/// How it ended, and what had been settled then.
#[derive(Debug)]
struct ChannelEnd {
    settled: u64,
    failure: Failure,
}

impl ShmChannel {
    pub fn new(pair: &Pair) -> ShmChannel {
        ShmChannel { view: pair.view(), line: Arc::clone(&pair.line), ended: OnceLock::new() }
    }

    /// Returns the outcome, if known, of the fast-path message that ends at this position. The
    /// message is settled when the ring is settled up to that position (MEM-16.4).
    #[inline]
    #[must_use]
    pub fn outcome(&self, position: u64) -> Option<Result<Value, Failure>> {
        match self.ended.get() {
            None => self.view.has_settled(position).then_some(Ok(Value::Done)),
            Some(end) if position <= end.settled => Some(Ok(Value::Done)),
            Some(end) => Some(Err(end.failure.clone())),
        }
    }

    /// Returns `true` if the message that ends at this position is known to have succeeded.
    #[inline]
    #[must_use]
    pub fn is_done(&self, position: u64) -> bool {
        self.ended.get().is_none() && self.view.has_settled(position)
    }

    /// Wake the local peer, if it sleeps and has not seen what was put in, or settled (MEM-16.5).
    #[inline]
    pub fn wake(&self) {
        if self.view.must_wake() {
            self.line.wake();
        }
    }

    /// Is something in the ring that no turn has taken, most likely? What was left there at the end
    /// nobody takes.
    #[inline]
    fn has_record(&self) -> bool {
        self.view.has_record() && self.ended.get().is_none()
    }

    pub(crate) fn end(&self, settled: u64, failure: Failure) {
        let _ = self.ended.set(ChannelEnd { settled, failure });
    }
}

/// Number of messages that were taken from a ring together with an awaited one and are the oldest
/// that have arrived. Only the thread inside the engine changes it.
#[derive(Clone, Debug, Default)]
pub struct Ahead(Arc<AtomicUsize>);

impl Ahead {
    #[inline]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// A turn hands all of them up.
    pub(crate) fn take(&self) -> usize {
        let count = self.count();
        self.set(0);
        count
    }
}

/// Channels of all local peers with which a node began.
#[derive(Clone, Debug, Default)]
pub struct ShmChannels {
    by_rank: Vec<Option<Arc<ShmChannel>>>,
    all: Vec<Arc<ShmChannel>>,
    ahead: Ahead,
}

impl ShmChannels {
    /// Creates the view from the channels by rank.
    #[must_use]
    pub fn new(by_rank: Vec<Option<Arc<ShmChannel>>>, ahead: Ahead) -> ShmChannels {
        ShmChannels { all: by_rank.iter().flatten().cloned().collect(), by_rank, ahead }
    }

    /// Returns the channel of this rank.
    #[inline]
    #[must_use]
    pub fn of(&self, rank: Rank) -> Option<&ShmChannel> {
        self.by_rank.get(rank as usize)?.as_deref()
    }

    /// The same, to keep.
    #[must_use]
    pub fn shared(&self, rank: Rank) -> Option<Arc<ShmChannel>> {
        self.by_rank.get(rank as usize)?.clone()
    }

    /// Number of them.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Was something taken out of them ahead of its reader, or is something in any? (In this order:
    /// to look at a ring takes its line from who writes it.)
    #[inline]
    #[must_use]
    pub fn have_records(&self) -> bool {
        self.ahead.count() > 0 || self.all.iter().any(|channel| channel.has_record())
    }
}
