//! One-sided operations in flight, and the conditions that must hold when each is settled.

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
    /// Looks up the region of this name.
    Lookup(&'static str),
    /// Looks up a name that no node publishes.
    LookupNothing,
    /// Puts bytes into this thread's stripe of the target's arena.
    Put {
        /// Range of the put, with the gaps of its shape.
        range: Range<u64>,
        /// Bytes that must stand there afterwards.
        bytes: Vec<u8>,
        /// Word of the put's signal.
        signal: Option<u64>,
        /// Message sent behind the put, whose receiver checks the data.
        tell: Option<MessageId>,
    },
    /// Gets bytes from the target.
    Get {
        /// Bytes that this node's memory must hold afterwards.
        expected: Vec<u8>,
        /// Range in this thread's stripe, if the bytes come from there.
        range: Option<Range<u64>>,
    },
    /// Adds to a word.
    Add {
        /// Offset of the word.
        word: u64,
        /// Value that is added.
        add: u64,
        /// Set if the operation returns the old value.
        fetch: bool,
    },
    /// Exchanges the value of a word.
    Exchange {
        /// Offset of the word.
        word: u64,
        /// Value that the word must have, if any.
        expected: Option<u64>,
        /// New value of the word.
        new: u64,
    },
    /// Adds to elements of an array.
    Accumulate(Addends),
    /// Pushes an element into a FIFO.
    Push(Push),
    /// Waits for earlier operations.
    Flush {
        /// Completions of the earlier operations.
        before: Vec<Arc<Completion>>,
    },
    /// Request that the target must refuse.
    Nonsense(Refusal),
}

/// An operation that is not settled.
#[derive(Debug)]
pub struct UnderWay {
    /// Rank of the target node.
    pub target: Rank,
    /// Name of the operation in the oracle's counts.
    pub kind: &'static str,
    /// Operation that was asked for.
    pub doing: Doing,
    /// Completion with the outcome.
    pub completion: Arc<Completion>,
    /// Time at which the operation was submitted.
    pub since: Time,
    /// Slot of the thread's own memory that the operation uses.
    pub slot: usize,
    /// Set if the operation's outcome was seen, while that of its message was not.
    pub settled: bool,
    /// Set if the operation was cancelled, so that nothing may be placed for it any more (MEM-4.5).
    pub cancelled: bool,
    /// Outcome of the message sent behind the operation.
    pub told: Option<Arc<Completion>>,
    /// Completion of an operation before this one, with a fence between the two.
    pub earlier: Option<Arc<Completion>>,
}

impl Doing {
    /// Returns the range of the stripe at the target that no other operation may use meanwhile.
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

    /// Returns the name of operations of this kind in the oracle's counts.
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

    /// Returns a short name for the trace and the dump.
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

    /// Checks an operation that has succeeded.
    ///
    /// # Errors
    /// The value is impossible, or a promise does not hold.
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

    /// Returns `true` if this failure is the expected one, or a permitted one.
    ///
    /// # Errors
    /// The failure reports something untrue.
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
            // A flush does not report the outcomes of the operations (MEM-15.3).
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
