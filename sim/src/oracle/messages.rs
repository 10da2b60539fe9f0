//! Checks users' messages: each arrives exactly once, unaltered, and in the order that its class
//! promises (spec/wind.md).

use crate::random::{bytes_of, mix};
use crate::violation::Check;
use oikaze_engine::Arrived;
use oikaze_protocol::Rank;
use oikaze_protocol::wind::Class;
use std::collections::BTreeMap;

/// Identity of a message of one life of a node to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    /// Rank of the sender.
    pub from: Rank,
    /// Life of the sender; 0 is the first.
    pub life: u8,
    /// Rank of the receiver.
    pub to: Rank,
    /// Number of the message from 0, in the order of posting.
    pub sequence: u64,
}

impl MessageId {
    /// Returns the tag of the message.
    #[must_use]
    pub fn tag(self) -> u64 {
        u64::from(self.life) << 56 | self.sequence
    }
}

/// Data that must be in the receiver's memory when an ordered message arrives, because a put was
/// posted before the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Offset in the receiver's arena.
    pub offset: u64,
    /// Bytes that must be there.
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sent,
    Delivered,
    /// The sender learned that the message failed.
    Void,
}

#[derive(Debug)]
struct Sent {
    class: Class,
    len: usize,
    state: State,
    claim: Option<Claim>,
}

#[derive(Debug, Default)]
struct Pair {
    sent: Vec<Sent>,
    /// Number of leading messages that are delivered or void.
    prefix: usize,
    outstanding: usize,
}

/// All messages of a run.
#[derive(Debug)]
pub struct MessageOracle {
    seed: u64,
    pairs: BTreeMap<(Rank, u8, Rank), Pair>,
    delivered: u64,
}

impl MessageOracle {
    pub(super) fn new(seed: u64) -> MessageOracle {
        MessageOracle { seed, pairs: BTreeMap::new(), delivered: 0 }
    }

    /// Notes a posted message. Returns its identity and its body.
    pub fn post(
        &mut self,
        (from, life): (Rank, u8),
        to: Rank,
        class: Class,
        len: usize,
        claim: Option<Claim>,
    ) -> (MessageId, Vec<u8>) {
        let pair = self.pairs.entry((from, life, to)).or_default();
        let id = MessageId { from, life, to, sequence: pair.sent.len() as u64 };
        pair.sent.push(Sent { class, len, state: State::Sent, claim });
        pair.outstanding += 1;
        (id, self.body(id, len))
    }

    /// Returns the body of a message.
    #[must_use]
    pub fn body_of(&self, id: MessageId) -> Vec<u8> {
        self.body(id, self.sent(id).map_or(0, |sent| sent.len))
    }

    fn body(&self, id: MessageId, len: usize) -> Vec<u8> {
        let place = u64::from(id.from) << 40 | u64::from(id.to) << 48 | u64::from(id.life) << 56;
        bytes_of(mix(self.seed ^ place) ^ id.sequence, len)
    }

    /// Checks an arrived message. Returns its claim about the receiver's memory.
    ///
    /// # Errors
    /// The message was never sent, comes again, is out of order, or has the wrong body or class.
    pub fn arrived(&mut self, at: Rank, arrived: &Arrived) -> Result<Option<Claim>, String> {
        let Arrived { from, class, tag, body } = arrived;
        let id = MessageId {
            from: *from,
            life: (tag >> 56) as u8,
            to: at,
            sequence: tag & (u64::MAX >> 8),
        };
        let expected = self
            .pairs
            .get(&(id.from, id.life, at))
            .and_then(|pair| Some(pair.sent.get(id.sequence as usize)?.len));
        let Some(len) = expected else {
            return Err(format!("a message arrived that was never sent: {id:?}"));
        };
        if *body != self.body(id, len) {
            return Err(format!(
                "{id:?} arrived with {} bytes that are not the {len} sent",
                body.len()
            ));
        }
        let Some(pair) = self.pairs.get_mut(&(id.from, id.life, at)) else { return Ok(None) };
        while pair.sent.get(pair.prefix).is_some_and(|sent| sent.state != State::Sent) {
            pair.prefix += 1;
        }
        let prefix = pair.prefix;
        let sent = &mut pair.sent[id.sequence as usize];
        match sent.state {
            State::Delivered => return Err(format!("{id:?} arrived twice")),
            State::Void => {
                return Err(format!("{id:?} arrived after its sender was told that it failed"));
            }
            State::Sent => {}
        }
        if sent.class != *class {
            return Err(format!("{id:?} was sent as {:?} and arrived as {class:?}", sent.class));
        }
        if *class != Class::Unordered && (prefix as u64) < id.sequence {
            return Err(format!(
                "{id:?} ({class:?}) arrived before message {prefix}, which was posted before it"
            ));
        }
        sent.state = State::Delivered;
        pair.outstanding -= 1;
        self.delivered += 1;
        Ok(sent.claim.take())
    }

    /// Checks a message whose sender learned that it is settled.
    ///
    /// # Errors
    /// The message has not been delivered (WIND-4.8).
    pub fn settled(&self, id: MessageId) -> Check {
        let Some(sent) = self.sent(id) else { return Ok(()) };
        if sent.state != State::Delivered {
            return Err(format!(
                "{id:?} ({:?}) is settled at its sender but was not delivered",
                sent.class
            ));
        }
        Ok(())
    }

    /// Notes that the sender learned of a message's failure. The message must not arrive any more
    /// (but may have arrived).
    pub fn failed(&mut self, id: MessageId) {
        let Some(pair) = self.pairs.get_mut(&(id.from, id.life, id.to)) else { return };
        let Some(sent) =
            pair.sent.get_mut(id.sequence as usize).filter(|sent| sent.state == State::Sent)
        else {
            return;
        };
        sent.state = State::Void;
        pair.outstanding -= 1;
    }

    fn sent(&self, id: MessageId) -> Option<&Sent> {
        self.pairs.get(&(id.from, id.life, id.to))?.sent.get(id.sequence as usize)
    }

    /// Returns the number of messages between living nodes that have not arrived yet.
    #[must_use]
    pub fn outstanding(&self, is_dead: impl Fn(Rank, u8) -> bool) -> usize {
        let living = self
            .pairs
            .iter()
            .filter(|((from, life, to), _)| !is_dead(*from, *life) && !is_dead(*to, 0));
        living.map(|(_, pair)| pair.outstanding).sum()
    }

    /// Returns the number of messages that have arrived.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }
}
