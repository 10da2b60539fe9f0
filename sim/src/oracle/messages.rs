//! Users' messages: each exactly once, unaltered, and in the order that its class promises
//! (spec/wind.md).

use crate::random::{bytes_of, mix};
use crate::violation::Check;
use oikaze_engine::Arrived;
use oikaze_protocol::Rank;
use oikaze_protocol::wind::Class;
use std::collections::BTreeMap;

/// A message of one life of a node to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MessageId {
    /// Sender.
    pub from: Rank,
    /// Which life of the sender's: 0 is the first.
    pub life: u8,
    /// Receiver.
    pub to: Rank,
    /// Counts from 0, in the order of posting.
    pub sequence: u64,
}

impl MessageId {
    /// The tag it carries.
    #[must_use]
    pub fn tag(self) -> u64 {
        u64::from(self.life) << 56 | self.sequence
    }
}

/// Data that must be in the receiver's memory when an ordered message arrives, because a put was
/// posted before the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// In the receiver's arena, from here on.
    pub offset: u64,
    /// These bytes.
    pub bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sent,
    Delivered,
    /// Its sender was told that it failed.
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
    /// All before are delivered or void.
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

    /// A message is posted: its name and its body.
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

    /// The body that goes with a message.
    #[must_use]
    pub fn body_of(&self, id: MessageId) -> Vec<u8> {
        self.body(id, self.sent(id).map_or(0, |sent| sent.len))
    }

    fn body(&self, id: MessageId, len: usize) -> Vec<u8> {
        let place = u64::from(id.from) << 40 | u64::from(id.to) << 48 | u64::from(id.life) << 56;
        bytes_of(mix(self.seed ^ place) ^ id.sequence, len)
    }

    /// A message has arrived; what it claims about the receiver's memory.
    ///
    /// # Errors
    /// It was never sent, comes again, is out of order, or has the wrong body or class.
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

    /// The sender was told that its message is settled.
    ///
    /// # Errors
    /// It has not been delivered (WIND-4.8).
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

    /// The sender was told that its message failed: it must not arrive any more (but may have
    /// arrived).
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

    /// Messages between living nodes that have not arrived yet.
    #[must_use]
    pub fn outstanding(&self, is_dead: impl Fn(Rank, u8) -> bool) -> usize {
        let living = self
            .pairs
            .iter()
            .filter(|((from, life, to), _)| !is_dead(*from, *life) && !is_dead(*to, 0));
        living.map(|(_, pair)| pair.outstanding).sum()
    }

    /// Messages that have arrived.
    #[must_use]
    pub fn delivered(&self) -> u64 {
        self.delivered
    }
}
