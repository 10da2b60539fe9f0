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

/// End of a channel: its cause, and the position up to which messages had been settled.
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

    /// Wakes the local peer, if it sleeps and has not seen the latest records or outcomes
    /// (MEM-16.5).
    #[inline]
    pub fn wake(&self) {
        if self.view.must_wake() {
            self.line.wake();
        }
    }

    /// Returns `true` if the ring most likely has a record that no turn has taken. No turn
    /// takes the records that were left at the end.
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
    /// Returns the number of these messages.
    #[inline]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set(&self, count: usize) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Called when a turn hands all of them up. Returns their number.
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
    /// Creates the channels of all ranks.
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

    /// Returns the channel of this rank, to keep.
    #[must_use]
    pub fn shared(&self, rank: Rank) -> Option<Arc<ShmChannel>> {
        self.by_rank.get(rank as usize)?.clone()
    }

    /// Returns the number of channels.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// Returns `true` if a message was taken out of a ring ahead of its reader, or a ring has a
    /// record. The rings are read last, because reading a ring takes its cache line from the
    /// writer.
    #[inline]
    #[must_use]
    pub fn have_records(&self) -> bool {
        self.ahead.count() > 0 || self.all.iter().any(|channel| channel.has_record())
    }
}
