//! Waiting for an operation: always on an object, with a time limit if wanted.

use crate::engine::{Completion, Value};
use crate::node::Node;
use crate::{Error, Result};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::Word;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// What an operation can yield.
pub trait Outcome: Sized {
    #[doc(hidden)]
    fn from_value(value: Value) -> Option<Self>;
}

impl Outcome for () {
    fn from_value(_: Value) -> Option<()> {
        Some(())
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
        })*
    };
}
outcome!(u32, i32, u64, i64);

/// What an operation is, in words; put together only when somebody wants to read it.
#[derive(Clone, Debug)]
pub(crate) struct What {
    pub verb: &'static str,
    pub len: u64,
    pub peer: Rank,
    /// Region and offset, for one-sided operations.
    pub at: Option<(Arc<str>, u64)>,
}

impl What {
    /// What may have become of it at a node that died before it confirmed (MEM-5.3, MEM-12.5).
    fn fate(&self) -> Option<&'static str> {
        match self.verb {
            "get" | "get of a block" => None,
            "put" | "put of a block" => Some("of which any part may be there"),
            "accumulate" => Some("of which some elements may have been combined, each once at most"),
            _ => Some("which may have taken place there or not"),
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
    node: Arc<Node>,
    state: State,
    what: What,
    limit: Option<Duration>,
    yields: PhantomData<fn() -> T>,
}

/// How far it is.
enum State {
    Begun(Arc<Completion>),
    /// Done before the call that began it returned.
    Done(Value),
}

impl<T: Outcome> Operation<T> {
    pub(crate) fn new(node: &Arc<Node>, completion: Arc<Completion>, what: What, limit: Option<Duration>) -> Self {
        Self { node: Arc::clone(node), state: State::Begun(completion), what, limit, yields: PhantomData }
    }

    /// One that is done.
    #[inline]
    pub(crate) fn done(node: &Arc<Node>, value: Value, what: What) -> Self {
        Self { node: Arc::clone(node), state: State::Done(value), what, limit: None, yields: PhantomData }
    }

    /// Is it settled? One load.
    #[must_use]
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Begun(completion) => completion.is_done(),
            State::Done(_) => true,
        }
    }

    /// Wait until it is complete: for a put, in the peer's memory and visible there. The job's time limit applies.
    ///
    /// # Errors
    /// What failed and why; [`Error::Timeout`] if the time limit passed (the operation goes on).
    pub fn wait(&self) -> Result<T> {
        self.wait_limited(self.limit)
    }

    /// As [`Operation::wait`], with a time limit of its own.
    ///
    /// # Errors
    /// As [`Operation::wait`].
    pub fn wait_for(&self, limit: Duration) -> Result<T> {
        self.wait_limited(Some(limit))
    }

    fn wait_limited(&self, limit: Option<Duration>) -> Result<T> {
        let value = match &self.state {
            State::Done(value) => value.clone(),
            State::Begun(completion) => {
                self.node.outcome(&self.what, completion, limit).map_err(|error| error.of_unknown_fate(self.what.fate()))?
            }
        };
        T::from_value(value).ok_or_else(|| Error::invalid(self.what.to_string(), "the outcome is of another kind (a defect)"))
    }

    /// Where its outcome appears; nowhere if it is done already.
    pub(crate) fn completion(&self) -> Option<&Arc<Completion>> {
        match &self.state {
            State::Begun(completion) => Some(completion),
            State::Done(_) => None,
        }
    }
}
