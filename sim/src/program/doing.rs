//! One-sided operations under way, and what must be true when each is settled.

use crate::oracle::{Addends, MessageId, Oracle, Push};
use oikaze_engine::{Completion, Failure, Value};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::RmaError;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Refusal;
use std::ops::Range;
use std::sync::Arc;

/// Operation that was asked for.
#[derive(Clone, Debug)]
pub enum Doing {
    /// Find the region of this name.
    Lookup(&'static str),
    /// A name that nobody publishes.
    LookupNothing,
    /// Bytes into our stripe of the target's arena.
    Put {
        /// Where, with the gaps of its shape.
        range: Range<u64>,
        /// Bytes that must stand there afterwards.
        bytes: Vec<u8>,
        /// The word of its signal.
        signal: Option<u64>,
        /// A message sent behind it, whose receiver checks the data.
        tell: Option<MessageId>,
    },
    /// Bytes from the target.
    Get {
        /// Bytes that our memory must hold then.
        expected: Vec<u8>,
        /// Where the range in our stripe is, if it is there.
        range: Option<Range<u64>>,
    },
    /// Add to a word.
    Add {
        /// Which.
        word: u64,
        /// How much.
        add: u64,
        /// `true` if the value before is wanted.
        fetch: bool,
    },
    /// Put another value into a word.
    Exchange {
        /// Which.
        word: u64,
        /// If it is this.
        expected: Option<u64>,
        /// The new value.
        new: u64,
    },
    /// Add to elements of an array.
    Accumulate(Addends),
    /// An element into a FIFO.
    Push(Push),
    /// Wait for what was asked for before.
    Flush {
        /// Completions of the operations that were asked for before.
        before: Vec<Arc<Completion>>,
    },
    /// Request that the target must refuse.
    Nonsense(Refusal),
}

/// An operation that is not settled.
#[derive(Debug)]
pub struct UnderWay {
    /// At which node.
    pub target: Rank,
    /// Name of the operation in accounts.
    pub kind: &'static str,
    /// Operation that was asked for.
    pub doing: Doing,
    /// The outcome.
    pub completion: Arc<Completion>,
    /// When it was asked.
    pub since: Time,
    /// Which part of the thread's own memory it uses.
    pub slot: usize,
    /// Its outcome was seen, that of its message was not.
    pub settled: bool,
    /// It was given up: nothing may be placed for it any more (MEM-4.5).
    pub cancelled: bool,
    /// The outcome of the message sent behind it.
    pub told: Option<Arc<Completion>>,
    /// Completion of the operation that was begun earlier, with a fence behind it.
    pub earlier: Option<Arc<Completion>>,
}

impl Doing {
    /// The range of our stripe at the target that must not be used meanwhile.
    #[must_use]
    pub fn range(&self) -> Option<&Range<u64>> {
        match self {
            Doing::Put { range, .. } => Some(range),
            Doing::Get { range, .. } => range.as_ref(),
            _ => None,
        }
    }

    /// Returns `true` if the operation is a lookup of this name.
    #[must_use]
    pub fn is_lookup_of(&self, name: &str) -> bool {
        matches!(self, Doing::Lookup(asked) if *asked == name)
    }

    /// Returns the name of operations of this kind in accounts.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Doing::Lookup(_) | Doing::LookupNothing => "lookup",
            Doing::Put { .. } => "put",
            Doing::Get { .. } => "get",
            Doing::Add { fetch: true, .. } => "fetch-add",
            Doing::Add { .. } => "add",
            Doing::Exchange { .. } => "exchange",
            Doing::Accumulate(_) => "accumulate",
            Doing::Push(_) => "push",
            Doing::Flush { .. } => "flush",
            Doing::Nonsense(_) => "what is refused",
        }
    }

    /// Short, for the trace and the dump.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Doing::Lookup(name) => format!("lookup of {name}"),
            Doing::LookupNothing => "lookup of nothing".to_owned(),
            Doing::Put { range, signal, tell, .. } => {
                format!("put to {range:?} signal {signal:?} tell {tell:?}")
            }
            Doing::Get { expected, range } => {
                format!("get of {} bytes from {range:?}", expected.len())
            }
            Doing::Add { word, add, fetch } => {
                format!("add of {add} to word {word}, fetching {fetch}")
            }
            Doing::Exchange { word, expected, new } => {
                format!("exchange of word {word} from {expected:?} to {new}")
            }
            Doing::Accumulate(Addends { array, range, .. }) => {
                format!("accumulate of {range:?} of array {array}")
            }
            Doing::Push(push) => format!("push of {push:?}"),
            Doing::Flush { before } => format!("flush of {} operations", before.len()),
            Doing::Nonsense(refusal) => format!("what must be refused ({refusal:?})"),
        }
    }

    /// The operation is settled well.
    ///
    /// # Errors
    /// Its value cannot be, or what it promised is not so.
    pub fn check(
        &self,
        target: Rank,
        value: &Value,
        landed: &[u8],
        oracle: &mut Oracle,
    ) -> Result<(), String> {
        match (self, value) {
            (Doing::Put { range, bytes, signal, .. }, Value::Done) => match signal {
                Some(word) => oracle.memory.unwatch(target, *word),
                None => oracle.memory.holds("settled put", target, range.start, bytes),
            },
            (Doing::Get { expected, .. }, Value::Done) => match landed == expected {
                true => Ok(()),
                false => Err(format!(
                    "{} brought other bytes from node {target} than are there",
                    self.name()
                )),
            },
            (Doing::Add { word, add, fetch: true }, Value::Word(old)) => {
                added(oracle, target, *word, *add, *old)
            }
            (Doing::Add { word, fetch: false, .. }, Value::Done) => {
                oracle.memory.word(target, *word).done += 1;
                Ok(())
            }
            (Doing::Push(push), Value::Done) => {
                oracle.fifos.acknowledged(target, *push);
                Ok(())
            }
            (Doing::Accumulate(addends), Value::Done) => {
                oracle.sums.done(target, addends);
                Ok(())
            }
            (Doing::Flush { before }, Value::Done) => {
                match before.iter().filter(|one| !one.is_done()).count() {
                    0 => Ok(()),
                    left => Err(format!("{} is done before {left} of them", self.name())),
                }
            }
            (Doing::Exchange { word, expected, new }, Value::Word(old)) => {
                exchanged(oracle, target, *word, *expected, *new, *old)
            }
            _ => Err(format!("{} at node {target} succeeded with {value:?}", self.name())),
        }
    }

    /// Returns `true` if this failure is the one that was asked for, or one that may be.
    ///
    /// # Errors
    /// It tells what is not so.
    pub fn wants(
        &self,
        target: Rank,
        failure: &Failure,
        oracle: &mut Oracle,
    ) -> Result<bool, String> {
        if let (Doing::Push(push), Failure::Remote(RmaError::Refused(Refusal::Full))) =
            (self, failure)
        {
            return oracle.fifos.refused(target, *push).map(|()| true);
        }
        if let Doing::Flush { .. } = self {
            // It says of nothing how it ended (MEM-15.3).
            return Err(format!("{} failed: {failure}", self.name()));
        }
        Ok(match (self, failure) {
            (Doing::Nonsense(wanted), Failure::Remote(RmaError::Refused(refusal))) => {
                wanted == refusal
            }
            (Doing::LookupNothing, Failure::Remote(RmaError::UnknownName { .. })) => true,
            _ => false,
        })
    }
}

fn added(oracle: &mut Oracle, target: Rank, word: u64, add: u64, old: u64) -> Result<(), String> {
    let known = oracle.memory.word(target, word);
    known.done += 1;
    if add == 1 && (!known.olds.insert(old) || old >= known.asked) {
        return Err(format!(
            "adding 1 to word {word} of node {target} gave {old}, twice or after only {} additions",
            known.asked
        ));
    }
    Ok(())
}

fn exchanged(
    oracle: &mut Oracle,
    target: Rank,
    word: u64,
    expected: Option<u64>,
    new: u64,
    old: u64,
) -> Result<(), String> {
    let known = oracle.memory.word(target, word);
    if old != 0 && !known.tried.contains(&old) {
        return Err(format!("word {word} of node {target} was {old}, which nobody put there"));
    }
    if expected.is_some_and(|expected| expected != old) {
        return Ok(());
    }
    match known.successors.insert(old, new) {
        None => Ok(()),
        Some(other) => Err(format!(
            "value {old} of word {word} of node {target} was taken twice, for {other} and for {new}"
        )),
    }
}
