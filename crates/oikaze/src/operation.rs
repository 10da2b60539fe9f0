//! Waiting for an operation: always on an object, with a time limit if wanted.

use crate::completion::{CompletionQueue, Counter};
use crate::engine::{Completion, Failure, Request, Sink, Value};
use crate::node::Node;
use crate::{Error, Result};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::Word;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What an operation can yield.
pub trait Outcome: Copy {
    #[doc(hidden)]
    fn from_value(value: Value) -> Option<Self>;
    #[doc(hidden)]
    fn to_bits(self) -> u64;
}

impl Outcome for () {
    fn from_value(_: Value) -> Option<()> {
        Some(())
    }
    fn to_bits(self) -> u64 {
        0
    }
}

macro_rules! outcome {
    ($($word:ty),*) => {
        $(impl Outcome for $word {
            fn from_value(value: Value) -> Option<$word> {
                match value {
                    Value::Word(word) => Some(Word::from_bits(word)),
                    _ => None,
                }
            }
            fn to_bits(self) -> u64 {
                Word::to_bits(self)
            }
        })*
    };
}
outcome!(u32, i32, i64);

/// Bits: 0 of what yields nothing.
impl Outcome for u64 {
    fn from_value(value: Value) -> Option<u64> {
        match value {
            Value::Word(word) => Some(word),
            Value::Done => Some(0),
            _ => None,
        }
    }
    fn to_bits(self) -> u64 {
        self
    }
}

/// Which kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    GetBlock,
    GetList,
    Put,
    PutBlock,
    PutList,
    Accumulate,
    Push,
    Message,
    /// What is done to a word.
    Word(&'static str),
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Get => "get",
            Verb::GetBlock => "get of a block",
            Verb::GetList => "get of a list",
            Verb::Put => "put",
            Verb::PutBlock => "put of a block",
            Verb::PutList => "put of a list",
            Verb::Accumulate => "accumulate",
            Verb::Push => "push",
            Verb::Message => "message",
            Verb::Word(change) => change,
        })
    }
}

/// What an operation is, in words; put together only when somebody wants to read it.
#[derive(Clone, Debug)]
pub(crate) struct What {
    pub verb: Verb,
    pub len: u64,
    pub peer: Rank,
    /// Region and offset, for one-sided operations.
    pub at: Option<(Arc<str>, u64)>,
}

impl What {
    /// What may have become of it at a node that died before it confirmed (MEM-5.3, MEM-12.5).
    pub(crate) fn fate(&self) -> Option<&'static str> {
        match self.verb {
            Verb::Get | Verb::GetBlock | Verb::GetList => None,
            Verb::Put | Verb::PutBlock | Verb::PutList => Some("of which any part may be there"),
            Verb::Accumulate => Some("of which some elements may have been combined, each once at most"),
            Verb::Push | Verb::Message | Verb::Word(_) => Some("which may have taken place there or not"),
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, len, peer, at } = self;
        match at {
            Some((region, offset)) => write!(f, "{verb} of {len} bytes at offset {offset} of region \"{region}\" on node {peer}"),
            None => write!(f, "{verb} of {len} bytes to node {peer}"),
        }
    }
}

/// An operation in flight. Dropping it does not end it: its memory is counted, and it completes on its own.
#[must_use = "an operation that is not waited for may fail unseen"]
pub struct Operation<T> {
    state: State<T>,
    /// A queue or a counter is told of its end.
    told: AtomicBool,
}

/// How far it is.
enum State<T> {
    Begun(Begun),
    InRing(InRing),
    /// Done before the call that began it returned: nothing of it is left to be waited for, counted or explained.
    Done(T),
}

/// What the engine knows of.
struct Begun {
    node: Arc<Node>,
    completion: Arc<Completion>,
    what: What,
    limit: Option<Duration>,
}

impl Begun {
    fn wait<T: Outcome>(&self, limit: Option<Duration>) -> Result<T> {
        let Self { node, completion, what, .. } = self;
        let value = node.outcome(what, completion, limit).map_err(|error| error.of_unknown_fate(what.fate()))?;
        T::from_value(value).ok_or_else(|| Error::invalid(what.to_string(), "the outcome is of another kind (a defect)"))
    }
}

/// A message that was put straight into its receiver's ring (MEM-16.9).
struct InRing {
    node: Arc<Node>,
    peer: Rank,
    /// Where it ends there.
    position: u64,
    /// Bytes of its body.
    len: u64,
    limit: Option<Duration>,
    given_up: AtomicBool,
}

impl InRing {
    fn outcome(&self) -> Option<std::result::Result<Value, Failure>> {
        if self.given_up.load(Ordering::Relaxed) {
            return Some(Err(Failure::Cancelled));
        }
        self.node.passages().of(self.peer)?.outcome(self.position)
    }

    /// Is it known that it was taken there?
    #[inline]
    fn is_taken(&self) -> bool {
        !self.given_up.load(Ordering::Relaxed)
            && self.node.passages().of(self.peer).is_some_and(|passage| passage.is_done(self.position))
    }

    fn what(&self) -> What {
        What { verb: Verb::Message, len: self.len, peer: self.peer, at: None }
    }

    #[inline]
    fn wait<T: Outcome>(&self, limit: Option<Duration>) -> Result<T> {
        match T::from_value(Value::Done) {
            Some(done) if self.is_taken() => Ok(done),
            _ => self.wait_longer(limit),
        }
    }

    #[cold]
    fn wait_longer<T: Outcome>(&self, limit: Option<Duration>) -> Result<T> {
        let what = &self.what();
        let value = self.node.outcome_of(what, || self.outcome(), limit).map_err(|error| error.of_unknown_fate(what.fate()))?;
        T::from_value(value).ok_or_else(|| Error::invalid(what.to_string(), "the outcome is of another kind (a defect)"))
    }

    /// Nothing of it is read any more here; whether it is taken there, nobody will hear.
    fn give_up(&self) {
        if self.outcome().is_none() {
            self.given_up.store(true, Ordering::Relaxed);
        }
    }

    fn tell(&self, sink: Box<dyn Sink>) {
        let completion = Completion::telling(sink);
        match (self.outcome(), self.node.passages().shared(self.peer)) {
            (None, Some(passage)) => {
                let (peer, position) = (self.peer, self.position);
                self.node.note(Request::Promise { peer, passage, position, completion });
            }
            (outcome, _) => completion.settle(outcome.unwrap_or(Err(Failure::Cancelled))),
        }
    }
}

impl<T: Outcome> Operation<T> {
    /// A message that was put into its receiver's ring, and ends there at this position.
    #[inline]
    pub(crate) fn in_ring(node: &Arc<Node>, (peer, position): (Rank, u64), len: u64, limit: Option<Duration>) -> Self {
        let in_ring = InRing { node: Arc::clone(node), peer, position, len, limit, given_up: AtomicBool::new(false) };
        Self { state: State::InRing(in_ring), told: AtomicBool::new(false) }
    }

    pub(crate) fn new(node: &Arc<Node>, completion: Arc<Completion>, what: What, limit: Option<Duration>) -> Self {
        let begun = Begun { node: Arc::clone(node), completion, what, limit };
        Self { state: State::Begun(begun), told: AtomicBool::new(false) }
    }

    /// One that is done.
    #[inline]
    pub(crate) fn done(outcome: T) -> Self {
        Self { state: State::Done(outcome), told: AtomicBool::new(false) }
    }

    /// Is it settled? One load.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Begun(begun) => begun.completion.is_done(),
            State::InRing(in_ring) => in_ring.is_taken() || in_ring.outcome().is_some(),
            State::Done(_) => true,
        }
    }

    /// Wait until it is complete: for a put, in the peer's memory and visible there. The job's time limit applies.
    ///
    /// # Errors
    /// What failed and why; [`Error::Timeout`] if the time limit passed (the operation goes on).
    #[inline]
    pub fn wait(&self) -> Result<T> {
        match &self.state {
            State::Done(outcome) => Ok(*outcome),
            State::Begun(begun) => begun.wait(begun.limit),
            State::InRing(in_ring) => in_ring.wait(in_ring.limit),
        }
    }

    /// As [`Operation::wait`], with a time limit of its own.
    ///
    /// # Errors
    /// As [`Operation::wait`].
    #[inline]
    pub fn wait_for(&self, limit: Duration) -> Result<T> {
        match &self.state {
            State::Done(outcome) => Ok(*outcome),
            State::Begun(begun) => begun.wait(Some(limit)),
            State::InRing(in_ring) => in_ring.wait(Some(limit)),
        }
    }

    /// Wait, whatever the time limit: for its end, or the peer's.
    pub(crate) fn wait_to_the_end(&self) -> Result<T> {
        match &self.state {
            State::Done(outcome) => Ok(*outcome),
            State::Begun(begun) => begun.wait(None),
            State::InRing(in_ring) => in_ring.wait(None),
        }
    }

    /// Its outcome, if it is settled.
    ///
    /// # Errors
    /// What failed and why.
    #[must_use]
    pub fn try_take(&self) -> Option<Result<T>> {
        // What is settled is not waited for.
        self.is_done().then(|| self.wait_for(Duration::ZERO))
    }

    /// End it, if it has not ended: its memory is not touched any more, nor read. Whether it took place at the peer is not known then.
    ///
    /// # Errors
    /// What failed and why: most often that it was cancelled.
    pub fn cancel(&self) -> Result<T> {
        match &self.state {
            State::Begun(Begun { node, completion, what, limit }) => {
                let asked = node.submit(Request::Cancel { completion: Arc::clone(completion) }, None);
                node.outcome(&format_args!("cancelling the {what}"), &asked, *limit)?;
            }
            State::InRing(in_ring) => in_ring.give_up(),
            State::Done(_) => {}
        }
        self.wait()
    }

    /// Be told of its end in a queue, once, by the number `context`. It may have ended already.
    ///
    /// # Errors
    /// A counter counts it ([`Operation::count_on`]): an operation tells one of them only.
    pub fn into_queue(self, queue: &CompletionQueue, context: u64) -> Result<()> {
        self.queue_on(queue, context)
    }

    /// As [`Operation::into_queue`], of an operation that is kept.
    ///
    /// # Errors
    /// As [`Operation::into_queue`].
    pub fn queue_on(&self, queue: &CompletionQueue, context: u64) -> Result<()> {
        self.tell(|what| queue.sink(context, what), |outcome| queue.take_done(context, outcome.to_bits()))
    }

    /// Count its end, once. It may have ended already.
    ///
    /// # Errors
    /// A counter counts it already.
    pub fn count_on(&self, counter: &Counter) -> Result<()> {
        self.tell(|_| counter.sink(), |_| counter.count_done())
    }

    /// Told by the turn that settles it, or here and now if none will.
    fn tell(&self, sink: impl FnOnce(What) -> Box<dyn Sink>, now: impl FnOnce(T)) -> Result<()> {
        if self.told.swap(true, Ordering::Relaxed) {
            let what = match &self.state {
                State::Begun(begun) => begun.what.to_string(),
                State::InRing(in_ring) => in_ring.what().to_string(),
                State::Done(_) => "an operation that is done".to_owned(),
            };
            return Err(Error::invalid(
                what,
                "its end is told to a counter already; an operation tells one counter or one queue",
            ));
        }
        match &self.state {
            State::Begun(Begun { node, completion, what, .. }) => {
                node.note(Request::Tell { completion: Arc::clone(completion), sink: sink(what.clone()) });
            }
            State::InRing(in_ring) => in_ring.tell(sink(in_ring.what())),
            State::Done(outcome) => now(*outcome),
        }
        Ok(())
    }

    /// The same, yielding bits: the value before, of a word; else 0. So operations of all kinds are of one type ([`crate::Job::keep`]).
    #[must_use = "an operation that is not waited for may fail unseen"]
    pub fn into_bits(self) -> Operation<u64> {
        let state = match self.state {
            State::Begun(begun) => State::Begun(begun),
            State::InRing(in_ring) => State::InRing(in_ring),
            State::Done(outcome) => State::Done(outcome.to_bits()),
        };
        Operation { state, told: self.told }
    }

    /// Where its outcome appears; nowhere if it is done already.
    pub(crate) fn completion(&self) -> Option<&Arc<Completion>> {
        match &self.state {
            State::Begun(begun) => Some(&begun.completion),
            State::InRing(_) | State::Done(_) => None,
        }
    }
}
