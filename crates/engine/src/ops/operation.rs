//! Operations in flight: from the token that travels through the protocol to the thread that waits.

use oikaze_os::memory::Holder;
use oikaze_os::shm::Mapped;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::ArrayId;
use oikaze_protocol::planted::{Bug, planted};
use oikaze_protocol::rma::Published;
use oikaze_protocol::wind::Token;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::outstanding::Outstanding;
use super::submission::Keep;
use super::untaken::Untaken;
use crate::failure::Failure;
use crate::ops::label::OperationLabel;

/// Result of a finished operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value; the operation is done.
    Done,
    /// The old value of an atomic.
    Word(u64),
    /// A peer's memory, mapped here.
    Mapped(Arc<Mapped>),
    /// Number of bytes in pages that were exchanged with a local peer's.
    Swapped(u64),
    /// A published region.
    Region(Published),
    /// A declared array.
    Array(ArrayId),
    /// The result of a reduction.
    Reduced(oikaze_protocol::coherence::Values),
}

/// Holds the outcome of one operation. A turn writes it once.
#[derive(Debug, Default)]
pub struct Completion {
    outcome: OnceLock<Outcome>,
    /// Further receiver of the outcome, called once. Only the engine sets it, where outcomes
    /// appear, so that neither misses the other. Settling an operation without a sink costs one
    /// more load.
    sink: OnceLock<Box<dyn Sink>>,
    /// The caller's operation, and where its failure is noted until the caller is told. `None` for
    /// a wait of the library itself.
    begun: Option<(OperationLabel, Arc<Untaken>)>,
    /// Serial number of its failure, until a caller is told of it.
    failed: AtomicU64,
}

/// Result of an operation. A failure is boxed because it is rare and large.
pub type Outcome = Result<Value, Box<Failure>>;

/// Receiver of an outcome, called by the turn that settles the operation. It is a queue, a counter,
/// or an operation of which this one is a part.
pub trait Sink: Send + Sync + fmt::Debug {
    /// Called once, when the outcome is there. `failure` is the serial number among the failures
    /// that no caller has been told of, or 0.
    fn told(&self, outcome: &Outcome, failure: u64);

    /// Returns the operation of which this one is a part.
    fn whole(&self) -> Option<&Arc<Completion>> {
        None
    }
}

impl Completion {
    /// A new one, pending.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// A pending one of an operation that a caller has begun.
    #[must_use]
    pub fn begun(what: OperationLabel, untaken: &Arc<Untaken>) -> Arc<Self> {
        Arc::new(Self { begun: Some((what, Arc::clone(untaken))), ..Self::default() })
    }

    /// The operation that its caller has begun.
    pub fn what(&self) -> Option<&OperationLabel> {
        self.begun.as_ref().map(|(what, _)| what)
    }

    /// A caller is being told of the failure, if there is one.
    #[cold]
    pub fn take_failure(&self) -> bool {
        let serial = self.failed.swap(0, Ordering::Acquire);
        if let Some((what, untaken)) = self.begun.as_ref().filter(|_| serial > 0) {
            untaken.take(what.peer, serial);
        }
        serial > 0
    }

    /// Returns `true` if the outcome is there. Costs one load, cheap enough to spin on.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.outcome.get().is_some()
    }

    /// The outcome, if there is one.
    #[must_use]
    pub fn outcome(&self) -> Option<Result<Value, Failure>> {
        self.outcome.get().map(|outcome| outcome.clone().map_err(|failure| *failure))
    }

    /// A pending one that will tell `sink`.
    #[must_use]
    pub fn telling(sink: Box<dyn Sink>) -> Arc<Self> {
        Arc::new(Self { sink: sink.into(), ..Self::default() })
    }

    /// Settle it; a second outcome is ignored.
    pub fn settle(&self, outcome: Result<Value, Failure>) {
        if let (Err(failure), Some((what, untaken)), None) =
            (&outcome, &self.begun, self.outcome.get())
        {
            // Before the outcome appears, so that whoever sees it can take the failure.
            self.failed.store(untaken.note(what, failure), Ordering::Release);
        }
        let first = self.outcome.set(outcome.map_err(Box::new)).is_ok();
        if let (Some(sink), Some(outcome), true) = (self.sink.get(), self.outcome.get(), first) {
            sink.told(outcome, self.failed.load(Ordering::Relaxed));
        }
    }

    /// Passes the outcome to `sink`, now or when it is settled. Returns `true` if it is settled.
    pub fn tell(&self, sink: Box<dyn Sink>) -> bool {
        let is_first = self.sink.set(sink).is_ok();
        if let (Some(sink), Some(outcome), true) = (self.sink.get(), self.outcome.get(), is_first) {
            sink.told(outcome, self.failed.load(Ordering::Relaxed));
        }
        self.is_done()
    }

    /// Returns `true` if this completion is `whole` or a part of it.
    fn is_of(self: &Arc<Self>, whole: &Arc<Completion>) -> bool {
        Arc::ptr_eq(self, whole)
            || self
                .sink
                .get()
                .and_then(|sink| sink.whole())
                .is_some_and(|of| Arc::ptr_eq(of, whole))
    }
}

struct Pending {
    completion: Arc<Completion>,
    /// To whom it goes, and in which of their epochs; [`NOBODY`]: to no single peer.
    peer: Rank,
    epoch: u32,
    /// To a peer's memory: its end does not depend on when a program reads messages or calls a
    /// collective.
    is_one_sided: bool,
    /// Bytes that were copied for it.
    copied: u64,
    /// Memory that must stay while the operation is in flight.
    keep: Keep,
}

/// Collectives, locks and pages concern no single peer.
const NOBODY: Rank = Rank::MAX;

/// All operations in flight, by token: a slab whose slots carry a generation, so that a late event
/// finds nothing.
#[derive(Default)]
pub struct Operations {
    slots: Vec<(u32, Option<Pending>)>,
    free: Vec<u32>,
    live: usize,
    /// Those of them that are one-sided.
    one_sided: usize,
    /// Since [`Operations::take_settled`] was asked last.
    settled: usize,
    /// Operations in flight to each peer.
    pub(crate) outstanding: Outstanding,
    /// Bytes copied for operations in flight, by peer; grown as needed.
    copied: Vec<u64>,
}

impl Operations {
    /// Remember an operation, to this peer if it is to one; its token.
    pub fn insert(
        &mut self,
        completion: Arc<Completion>,
        keep: Keep,
        peer: Option<Rank>,
        copied: u64,
        is_message: bool,
    ) -> Token {
        let is_one_sided = peer.is_some() && !is_message;
        let epoch = peer.map_or(0, |peer| self.outstanding.begin(peer));
        if let Some(peer) = peer.filter(|_| copied > 0) {
            let at = peer as usize;
            self.copied.resize(self.copied.len().max(at + 1), 0);
            self.copied.get_mut(at).into_iter().for_each(|bytes| *bytes += copied);
        }
        let pending = Some(Pending {
            completion,
            peer: peer.unwrap_or(NOBODY),
            epoch,
            is_one_sided,
            copied,
            keep,
        });
        self.live += 1;
        self.one_sided += usize::from(is_one_sided);
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push((0, None));
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let generation = self.slots.get_mut(slot as usize).map_or(0, |entry| {
            entry.1 = pending;
            entry.0
        });
        // Two bits stay free for the engine's own marks.
        Token((u64::from(generation & 0x0fff_ffff) << 32) | u64::from(slot))
    }

    /// Settle an operation and forget it; nothing if it is not pending.
    pub fn settle(&mut self, token: Token, outcome: Result<Value, Failure>) -> bool {
        let slot = token.0 as u32;
        let Some(entry) = self.slots.get_mut(slot as usize) else { return false };
        if u64::from(entry.0 & 0x0fff_ffff) != token.0 >> 32 {
            return false;
        }
        let Some(pending) = entry.1.take() else { return false };
        entry.0 = entry.0.wrapping_add(1);
        self.free.push(slot);
        self.live -= 1;
        self.one_sided -= usize::from(pending.is_one_sided);
        self.settled += 1;
        if pending.peer != NOBODY && !(planted(Bug::HoldForFailed) && outcome.is_err()) {
            self.outstanding.end(pending.peer, pending.epoch);
        }
        if pending.copied > 0
            && let Some(bytes) = self.copied.get_mut(pending.peer as usize)
        {
            *bytes = bytes.saturating_sub(pending.copied);
        }
        pending.completion.settle(outcome);
        true
    }

    /// Bytes copied for operations to this peer that have not ended.
    #[must_use]
    pub fn copied(&self, peer: Rank) -> u64 {
        self.copied.get(peer as usize).copied().unwrap_or(0)
    }

    /// Tokens of the operations whose completion is this one, or a part of it (for cancellation;
    /// rare).
    pub fn tokens_of(&self, completion: &Arc<Completion>) -> impl Iterator<Item = Token> {
        self.tokens_where(|pending| pending.completion.is_of(completion))
    }

    /// Those of the operations in flight that keep this. Rare, too.
    pub fn keeping(&self, holder: &Holder) -> impl Iterator<Item = Token> {
        self.tokens_where(|pending| {
            pending.keep.as_ref().is_some_and(|keep| Arc::ptr_eq(keep, holder))
        })
    }

    fn tokens_where(&self, wanted: impl Fn(&Pending) -> bool) -> impl Iterator<Item = Token> {
        self.slots.iter().enumerate().filter_map(move |(slot, (generation, pending))| {
            let is_wanted = pending.as_ref().is_some_and(&wanted);
            is_wanted.then_some(Token((u64::from(generation & 0x0fff_ffff) << 32) | slot as u64))
        })
    }

    /// Settle everything, at the end of a job.
    pub fn settle_all(&mut self, failure: &Failure) {
        for (generation, slot) in &mut self.slots {
            if let Some(pending) = slot.take() {
                *generation = generation.wrapping_add(1);
                pending.completion.settle(Err(failure.clone()));
            }
        }
        self.live = 0;
        self.one_sided = 0;
        self.outstanding = Outstanding::default();
        self.copied.clear();
        self.free = (0..u32::try_from(self.slots.len()).unwrap_or(0)).collect();
    }

    /// How many were settled since this was asked last: somebody may wait for them.
    pub fn take_settled(&mut self) -> usize {
        std::mem::take(&mut self.settled)
    }

    /// Operations in flight.
    #[must_use]
    pub fn len(&self) -> usize {
        self.live
    }

    /// One-sided operations in flight, to any peer.
    #[must_use]
    pub fn one_sided(&self) -> usize {
        self.one_sided
    }

    /// Returns `true` if no operation is in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }
}
