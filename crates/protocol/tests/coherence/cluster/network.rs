//! Model of Wind. Each message arrives exactly once. Unordered messages arrive in any order. An
//! ordered or synchronous message arrives after all earlier messages to the same node. A
//! notification arrives only after earlier notifications, as if acknowledgements of others were
//! forged (COH-13). Then it matters that it counts updates. Bodies in memory are cut into
//! fragments, each of which is read at some moment between posting and delivery.

use super::machine::Machine;
use super::{Cluster, FETCH, NOTIFY, Node};
use oikaze_protocol::Rank;
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::random::Random;
use oikaze_protocol::wind::{Admission, Body, Class, Message, Refusal, Segment, Token};
use std::collections::BTreeMap;

/// Fragment of a body: offset, length, and its bytes if they were read early.
type Fragment = (usize, usize, Option<Vec<u8>>);

struct Flying {
    number: u64,
    message: Message,
    fragments: Vec<Fragment>,
    admitted: Option<Admission>,
    /// Number of steps that still skip the message, as if it was lost a few times.
    patience: usize,
}

/// Network of the cluster, with the messages in flight.
#[derive(Default)]
pub struct Network {
    pairs: BTreeMap<(Rank, Rank), Vec<Flying>>,
    /// Settled messages: poster, receiver, token and outcome.
    settled: Vec<(Rank, Rank, Token, Result<(), Refusal>)>,
    /// Deaths that nodes have yet to learn of: the learning node and the dead node.
    deaths: Vec<(Rank, Rank)>,
    next: u64,
    /// Code of a message that is refused, with the reason: the next such message.
    pub refuse_next: Option<(u8, Refusal)>,
    /// Messages that are held back: their sender, receiver and code.
    pub held: Option<(Rank, Rank, u8)>,
    /// Number of fragments that may be received directly into their places.
    pub placed: u64,
    /// Number of messages delivered, for tests that count the traffic.
    pub delivered: u64,
}

fn bytes_of(message: &Message, machine: &Machine) -> Vec<u8> {
    match &message.body {
        // The tests' regions have the numbers of their arrays.
        Body::Segment(s) => machine.alias(s.region)[s.offset as usize..][..s.len as usize].to_vec(),
        body => body.bytes().to_vec(),
    }
}

impl Network {
    pub fn post(
        &mut self,
        from: Rank,
        to: Rank,
        message: Message,
        random: &mut Random,
        machine: &Machine,
    ) {
        assert!(message.head.len() <= oikaze_protocol::limits::HEAD_MAX);
        let len = message.body.len() as usize;
        let mut fragments = Vec::new();
        let is_segment = matches!(message.body, Body::Segment(_));
        let size = if is_segment && random.chance(0.7) {
            [1366, PAGE, 2 * PAGE][random.below(3)]
        } else {
            len.max(1)
        };
        for at in (0..len).step_by(size) {
            let cut = size.min(len - at);
            let early = (is_segment && random.chance(0.5))
                .then(|| bytes_of(&message, machine)[at..at + cut].to_vec());
            fragments.push((at, cut, early));
        }
        let mut message = message;
        // An ordered message may be acknowledged while it waits for earlier messages. A synchronous
        // message is acknowledged on delivery only, and so is a fetch, which may be refused.
        let is_fetch = message.head.get(1) == Some(&FETCH);
        let may_be_early = message.class == Class::Ordered && message.token != Token::NONE;
        if may_be_early && random.chance(0.5) && !is_fetch {
            self.settled.push((from, to, message.token, Ok(())));
            message.token = Token::NONE;
        }
        self.next += 1;
        let patience = if random.chance(0.15) { random.below(80) } else { 0 };
        let flying = Flying { number: self.next, message, fragments, admitted: None, patience };
        self.pairs.entry((from, to)).or_default().push(flying);
    }

    /// Returns `true` if a message on its way from a node may be read again from these bytes.
    pub fn reads_memory(&self, rank: Rank, place: &Segment) -> bool {
        let overlaps = |one: &Flying| match &one.message.body {
            Body::Segment(read) => {
                let (end, read_end) = (place.offset + place.len, read.offset + read.len);
                read.region == place.region && read.offset < end && place.offset < read_end
            }
            _ => false,
        };
        self.pairs.iter().any(|((from, _), flying)| *from == rank && flying.iter().any(overlaps))
    }

    pub fn kill(&mut self, rank: Rank, others: &[Rank], random: &mut Random) {
        self.deaths.extend(others.iter().map(|other| (*other, rank)));
        for ((from, to), flying) in &mut self.pairs {
            if *from == rank {
                let kept = random.below(flying.len() + 1);
                flying.truncate(kept);
            } else if *to == rank {
                flying.clear();
            }
        }
        self.settled.retain(|(poster, receiver, ..)| {
            *poster != rank && (*receiver != rank || random.chance(0.5))
        });
    }

    pub fn drop_from(&mut self, rank: Rank, to: Rank) {
        self.pairs.remove(&(rank, to));
        self.settled.retain(|(poster, receiver, ..)| *poster != to || *receiver != rank);
    }
}

/// Runs one random event: a fragment, a message, an acknowledgement or the news of a death arrives.
pub fn step(cluster: &mut Cluster) -> bool {
    let network = &mut cluster.network;
    network.pairs.retain(|_, flying| !flying.is_empty());
    let (pairs, settled, deaths) =
        (network.pairs.len(), network.settled.len(), network.deaths.len());
    let all = pairs * 3 + settled * 2 + deaths;
    if all == 0 {
        return false;
    }
    let pick = cluster.random.below(all);
    if pick < deaths {
        let (who, dead) = network.deaths.swap_remove(pick);
        network.drop_from(dead, who);
        let node = &mut cluster.nodes[who as usize];
        if node.alive {
            node.coherence.node_died(dead, &mut node.machine);
            cluster.collect(who);
        }
    } else if pick < deaths + settled * 2 {
        let (poster, _, token, result) = network.settled.swap_remove((pick - deaths) / 2);
        let node = &mut cluster.nodes[poster as usize];
        match result {
            Ok(()) => node.coherence.acknowledged(token, &mut node.machine),
            Err(refusal) => node.coherence.refused(token, refusal, &mut node.machine),
        }
        cluster.collect(poster);
    } else {
        let pair = *network.pairs.keys().nth((pick - deaths - settled * 2) / 3).unwrap();
        deliver(cluster, pair);
    }
    true
}

fn deliver(cluster: &mut Cluster, (from, to): (Rank, Rank)) {
    let Cluster { network, random, nodes, seed, .. } = cluster;
    let flying = network.pairs.get_mut(&(from, to)).unwrap();
    // Mostly choose the oldest message, because a network is mostly in order.
    let is_notification = |i: usize| flying[i].message.head.get(1) == Some(&NOTIFY);
    let first_notification = (0..flying.len()).find(|i| is_notification(*i));
    let may_arrive = |i: &usize| {
        let is_unordered = flying[*i].message.class == Class::Unordered;
        *i == 0 || is_unordered || Some(*i) == first_notification
    };
    let choices: Vec<usize> = (0..flying.len()).filter(may_arrive).collect();
    let index = if random.chance(0.5) { 0 } else { choices[random.below(choices.len())] };
    let one = &mut flying[index];
    let is_held = |(sender, receiver, code)| {
        (sender, receiver) == (from, to) && one.message.head.get(1) == Some(&code)
    };
    if network.held.is_some_and(is_held) {
        return;
    }
    if one.patience > 0 {
        one.patience -= 1;
        return;
    }
    if one.fragments.len() > 1 || one.admitted.is_some() {
        let len = one.message.body.len();
        let admitted = *one.admitted.get_or_insert_with(|| {
            nodes[to as usize].coherence.admit(from, one.number, &one.message.head, len)
        });
        let number = one.number;
        if admitted == Admission::Place && !one.fragments.is_empty() {
            let (at, len, early) = one.fragments.swap_remove(random.below(one.fragments.len()));
            let bytes = early.unwrap_or_else(|| {
                bytes_of(&one.message, &nodes[from as usize].machine)[at..at + len].to_vec()
            });
            let Node { coherence, machine, .. } = &mut nodes[to as usize];
            if let Some(place) = coherence.place_of(from, number, at as u64, len as u64, machine) {
                let is_read = network.reads_memory(to, &place);
                assert!(!is_read, "seed {seed}: node {to} sends what it receives");
                network.placed += 1;
            }
            coherence.place(from, number, at as u64, &bytes, machine);
            return cluster.collect(to);
        }
    }
    let one = flying.remove(index);
    network.delivered += 1;
    let body = match one.fragments.as_slice() {
        [(_, _, Some(early))] => early.clone(),
        _ => bytes_of(&one.message, &nodes[from as usize].machine),
    };
    let Node { coherence, machine, .. } = &mut nodes[to as usize];
    let refused = network.refuse_next.take_if(|(code, _)| one.message.head.get(1) == Some(code));
    if let Some((_, refusal)) = refused {
        network.settled.push((from, to, one.message.token, Err(refusal)));
        return;
    }
    let result = match one.admitted {
        Some(Admission::Place) => coherence.arrived(from, one.number, &one.message.head, machine),
        Some(Admission::Refuse(refusal)) => Err(refusal),
        _ => coherence.receive(from, &one.message.head, &body, machine),
    };
    assert!(
        result.is_ok()
            || result == Err(Refusal::Moved)
            || !nodes[from as usize].alive
            || nodes[to as usize].machine.has_failed(),
        "seed {seed}: node {to} refused {one:?} of node {from}: {result:?}",
        one = one.message
    );
    if one.message.token != Token::NONE {
        network.settled.push((from, to, one.message.token, result));
    }
    cluster.collect(to);
}
