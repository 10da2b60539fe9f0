//! Layer above Wind in the model: records what it was handed, and checks whether that was right.

use super::scenario::{FRAGMENT, Fate, LONG, Scenario, Spec, bytes, overtakes};
use crate::Rank;
use crate::wind::{Admission, Class, Delivered, Event, Handler, Refusal};
use std::sync::Arc;
use std::vec::Vec;

/// State of a message from the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Incoming {
    admitted: bool,
    /// Pieces that were placed, as bits.
    placed: u8,
    /// Whether its beginning has come, and which pieces of it have come in datagrams, as bits.
    opened: bool,
    arrived: u8,
    pub done: Option<Done>,
}

/// End of a message at its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Done {
    Delivered,
    Refused,
    Withdrawn,
}

/// End of a message at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    Acknowledged,
    Refused,
    /// The message was cancelled, and no event follows.
    Cancelled,
}

/// Observations of one node.
#[derive(Clone, Debug, Hash)]
pub struct Watcher {
    scenario: Arc<Scenario>,
    peer: usize,
    /// State of the peer's messages, by number.
    pub incoming: Vec<Incoming>,
    /// Outcomes of this node's messages, by place in the scenario.
    pub outcomes: Vec<Option<Outcome>>,
    /// First promise that was broken.
    pub broken: Option<&'static str>,
    /// Whether a message was delivered while an earlier one was not done.
    pub overtaken: bool,
}

impl Watcher {
    pub fn new(scenario: &Arc<Scenario>, me: usize) -> Watcher {
        let peer = 1 - me;
        Watcher {
            peer,
            incoming: scenario.of(peer).map(|_| Incoming::default()).collect(),
            outcomes: scenario.0.iter().map(|_| None).collect(),
            scenario: scenario.clone(),
            broken: None,
            overtaken: false,
        }
    }

    pub fn check(&mut self, holds: bool, promise: &'static str) {
        if !holds {
            self.broken.get_or_insert(promise);
        }
    }

    /// Returns a message of the peer, if it exists.
    fn find(&mut self, number: u64) -> Option<(usize, Spec, &mut Incoming)> {
        let found = self.scenario.find(self.peer, number);
        self.check(found.is_some(), "only what was posted arrives");
        let (id, spec) = found?;
        Some((id, spec, self.incoming.get_mut(number as usize)?))
    }

    /// Returns `true` if all messages with smaller numbers are done.
    pub fn all_done_before(&self, number: u64) -> bool {
        self.incoming.iter().take(number as usize).all(|incoming| incoming.done.is_some())
    }

    /// Notes that a datagram brings the beginning of a message.
    pub fn opens(&mut self, number: u64) {
        if let Some((_, _, incoming)) = self.find(number) {
            incoming.opened = true;
        }
    }

    /// Notes that a datagram brings pieces of a message's body. Fragments before the beginning are
    /// dropped (WIND-2.6).
    pub fn arrives(&mut self, number: u64, pieces: u8) {
        if let Some((_, spec, incoming)) = self.find(number)
            && (incoming.opened || !spec.long)
        {
            incoming.arrived |= pieces;
        }
    }

    /// Checks that no whole message waits without need (WIND-2.3): an unordered message waits for
    /// nothing, others for those before them.
    pub fn nothing_waits_in_vain(&mut self) {
        for number in 0..self.incoming.len() as u64 {
            let all_before = self.all_done_before(number);
            let Some((_, spec, incoming)) = self.find(number) else { continue };
            let whole = incoming.arrived == spec.pieces();
            let has_turn = spec.class == Class::Unordered || all_before;
            let waits = whole && has_turn && incoming.done.is_none();
            self.check(!waits, "what is whole and has its turn is delivered at once");
        }
    }

    /// Checks an event of one of this node's messages. `there` is the watcher at its receiver.
    pub fn settled(&mut self, event: Event, there: &Watcher) {
        let (token, outcome) = match event {
            Event::Acknowledged(token) => (token, Outcome::Acknowledged),
            Event::Refused(token, _) => (token, Outcome::Refused),
            _ => return self.check(false, "nothing fails between two nodes that live"),
        };
        let id = token.0 as usize;
        let spec = self.scenario.0[id];
        let number = self.scenario.of(spec.from).take_while(|(at, _)| *at < id).count();
        if let Event::Refused(_, refusal) = event {
            self.check(refusal == spec.refusal(), "the sender is told why it was refused");
        }
        self.check(self.outcomes[id].is_none(), "each message has one outcome (WIND-4.5)");
        self.outcomes[id] = Some(outcome);
        let expected =
            if outcome == Outcome::Acknowledged { Done::Delivered } else { Done::Refused };
        self.check(
            there.incoming[number].done == Some(expected),
            "an outcome is true when it is told (WIND-4.8)",
        );
        let ordered = spec.class != Class::Unordered && outcome == Outcome::Acknowledged;
        self.check(
            !ordered || there.all_done_before(number as u64),
            "settled in order after all before it (WIND-4.4)",
        );
    }

    fn done(&mut self, number: u64, how: Done) {
        if let Some((_, _, incoming)) = self.find(number) {
            let first = incoming.done.replace(how).is_none();
            self.check(first, "each message is done once (WIND-2.1)");
        }
    }
}

impl Handler for Watcher {
    fn admit(&mut self, _: Rank, number: u64, class: Class, head: &[u8], len: u64) -> Admission {
        let Some((id, spec, incoming)) = self.find(number) else { return Admission::Assemble };
        let again = core::mem::replace(&mut incoming.admitted, true) || incoming.done.is_some();
        self.check(!again, "a message begins once, before it is done");
        self.check(
            head == [id as u8] && class == spec.class && len == LONG,
            "a beginning arrives as it was posted",
        );
        if spec.fate == Fate::RefusedAtOnce {
            self.done(number, Done::Refused);
            return Admission::Refuse(spec.refusal());
        }
        // This applies to every class, because an ordered message must be reassembled all the same
        // (WIND-2.10).
        Admission::Place
    }

    fn place(&mut self, _: Rank, number: u64, offset: u64, placed: &[u8]) {
        let Some((id, spec, incoming)) = self.find(number) else { return };
        let bit = 1 << (offset / FRAGMENT);
        let sound = incoming.admitted && incoming.done.is_none() && incoming.placed & bit == 0;
        incoming.placed |= bit;
        self.check(sound, "bytes are placed once, between beginning and end");
        self.check(
            spec.class == Class::Unordered,
            "no byte of an ordered message is seen before its turn (WIND-2.10)",
        );
        let right =
            offset.is_multiple_of(FRAGMENT) && placed == bytes(id, offset, placed.len() as u64);
        self.check(right, "bytes are placed unaltered where they belong");
    }

    fn deliver(
        &mut self,
        _: Rank,
        number: u64,
        class: Class,
        head: &[u8],
        body: Delivered<'_>,
    ) -> Result<(), Refusal> {
        let Some((id, spec, incoming)) = self.find(number) else { return Ok(()) };
        let placed = incoming.placed;
        let whole = match body {
            Delivered::Bytes(body) => body == bytes(id, 0, spec.len()),
            Delivered::Owned(body) => body == bytes(id, 0, spec.len()),
            Delivered::Placed(len) => len == spec.len() && placed == spec.pieces(),
        };
        self.check(
            whole,
            "a message is handed up whole and unaltered, after its last byte (WIND-2.11)",
        );
        self.check(head == [id as u8] && class == spec.class, "a head arrives as it was posted");
        let waiting: Vec<u64> =
            (0..number).filter(|before| self.incoming[*before as usize].done.is_none()).collect();
        for before in waiting {
            let Some((_, earlier, _)) = self.find(before) else { continue };
            self.check(
                overtakes(earlier.class, class),
                "no message overtakes another against the table (WIND-2.3)",
            );
            self.overtaken = true;
        }
        if spec.fate == Fate::Taken {
            self.done(number, Done::Delivered);
            return Ok(());
        }
        self.done(number, Done::Refused);
        Err(spec.refusal())
    }

    fn withdrawn(&mut self, _: Rank, number: u64) {
        self.done(number, Done::Withdrawn);
    }

    fn abandon(&mut self, _: Rank) {
        self.check(false, "nothing is abandoned between two nodes that live");
    }
}
