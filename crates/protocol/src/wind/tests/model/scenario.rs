//! Scenario: the messages posted in one run of the model, and what the spec says about them.

use crate::wind::{Body, Class, Head, Message, Refusal, Segment, Token};
use std::vec;
use std::vec::Vec;

pub const CLASSES: [Class; 3] = [Class::Ordered, Class::Unordered, Class::Sync];

/// Returns `true` if the later message may be delivered while the earlier one is not done, by the
/// table of WIND-2.3.
pub const fn overtakes(earlier: Class, later: Class) -> bool {
    match (earlier, later) {
        (Class::Ordered | Class::Unordered | Class::Sync, Class::Unordered) => true,
        (Class::Ordered | Class::Unordered | Class::Sync, Class::Ordered | Class::Sync) => false,
    }
}

/// Fate of a message in the layer above.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    Taken,
    /// The message is refused at its beginning or, if it is small, when it is delivered.
    RefusedAtOnce,
    RefusedAtDelivery,
}

/// Properties of one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Spec {
    /// Node that posts the message.
    pub from: usize,
    pub class: Class,
    /// Whether the message goes in two fragments.
    pub long: bool,
    pub fate: Fate,
}

/// Bytes of a fragment in the model.
pub const FRAGMENT: u64 = 40;
/// Bytes of a long message.
pub const LONG: u64 = 2 * FRAGMENT;
const SHORT: u64 = FRAGMENT;

impl Spec {
    pub fn len(&self) -> u64 {
        if self.long { LONG } else { SHORT }
    }

    /// Returns the pieces in which its body travels, as bits.
    pub fn pieces(&self) -> u8 {
        if self.long { 0b11 } else { 0b1 }
    }

    /// Returns the message as it is posted. `id` is its place in the scenario.
    pub fn message(&self, id: usize) -> Message {
        let mut head = Head::new();
        head.push(id as u8);
        let body = if self.long {
            Body::Segment(Segment { region: id as u32, offset: 0, len: LONG })
        } else {
            Body::Inline(bytes(id, 0, SHORT))
        };
        Message::new(self.class, head, body, Token(id as u64))
    }

    /// Returns the reason with which the message is refused.
    pub fn refusal(&self) -> Refusal {
        if self.long && self.fate == Fate::RefusedAtOnce {
            Refusal::OutOfBounds
        } else {
            Refusal::NotPermitted
        }
    }
}

/// Returns the body of a message. No two bytes of a scenario are alike.
pub fn bytes(id: usize, from: u64, len: u64) -> Vec<u8> {
    (from..from + len).map(|at| (id as u64 * LONG + at + 1) as u8).collect()
}

/// The messages of one run, in the order in which each node posts its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scenario(pub Vec<Spec>);

impl Scenario {
    /// Returns the messages that node `n` posts, by their numbers, with their places in the
    /// scenario.
    pub fn of(&self, n: usize) -> impl Iterator<Item = (usize, Spec)> + '_ {
        self.0.iter().copied().enumerate().filter(move |(_, spec)| spec.from == n)
    }

    /// Returns message `number` of node `from`.
    pub fn find(&self, from: usize, number: u64) -> Option<(usize, Spec)> {
        self.of(from).nth(usize::try_from(number).ok()?)
    }
}

/// Returns every assignment of classes to messages that these nodes post. `long` tells which
/// messages are long.
pub fn every_class(from: &[usize], long: &[bool]) -> Vec<Scenario> {
    let mut all = vec![Scenario(Vec::new())];
    for (&from, &long) in from.iter().zip(long) {
        let longer = |scenario: &Scenario, class| {
            let mut scenario = scenario.clone();
            scenario.0.push(Spec { from, class, long, fate: Fate::Taken });
            scenario
        };
        all =
            all.iter().flat_map(|scenario| CLASSES.map(|class| longer(scenario, class))).collect();
    }
    all
}
