//! Tests of every ordered pair of classes, small and fragmented, over every fault that a channel
//! can apply to two messages. They cover the table of WIND-2.3, row by row, with refusals and
//! withdrawn messages (WIND-2.9), and when messages are settled (WIND-4.8).

use crate::time::Time;
use crate::wind::tests::support::world::{Node, TestSeal, Words, World, body, message};
use crate::wind::*;
use crate::wire::{Seal, SealKind, View};
use core::time::Duration;
use std::vec;
use std::vec::Vec;

/// Rule for the later message at the receiver while the earlier one is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Waits,
    Overtakes,
}
use Rule::{Overtakes, Waits};

/// The table of WIND-2.3, as the spec prints it: (earlier, later, rule).
const TABLE: [(Class, Class, Rule); 9] = [
    (Class::Ordered, Class::Ordered, Waits),
    (Class::Ordered, Class::Unordered, Overtakes),
    (Class::Ordered, Class::Sync, Waits),
    (Class::Unordered, Class::Ordered, Waits),
    (Class::Unordered, Class::Unordered, Overtakes),
    (Class::Unordered, Class::Sync, Waits),
    (Class::Sync, Class::Ordered, Waits),
    (Class::Sync, Class::Unordered, Overtakes),
    (Class::Sync, Class::Sync, Waits),
];

/// Fault that the channel applies to the two messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    InOrder,
    LaterFirst,
    /// The later message comes first, and everything comes three times.
    Duplicates,
    /// The earlier message must be sent again.
    LostAndRepeated,
}

/// Fate of the earlier message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Taken,
    Refused,
    /// The sender withdraws it before anything of it has arrived. Datagrams already sent arrive
    /// late, or never.
    Withdrawn,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    earlier: Class,
    later: Class,
    rule: Rule,
    channel: Channel,
    fate: Fate,
    /// Whether each of the two messages is fragmented.
    long: [bool; 2],
}

const SMALL: u64 = 20;
const LONG: u64 = 5000;
const EARLIER: Token = Token(1);
const LATER: Token = Token(2);

/// Two nodes whose datagrams the test delivers itself.
struct Hands {
    nodes: [Node; 2],
    now: Time,
}

impl Hands {
    fn new() -> Hands {
        let world = World::established(
            Settings::default(),
            crate::wind::tests::support::channel::Faults::default(),
            1,
        );
        let mut hands = Hands { now: world.now, nodes: world.nodes };
        hands.run_to_idle();
        hands.nodes.iter_mut().for_each(|node| node.events.clear());
        hands
    }

    fn post(&mut self, class: Class, token: Token, long: bool, refuse: bool) {
        let len = if long { LONG } else { SMALL };
        let words = Words { id: token.0, refuse, place: long && class == Class::Unordered };
        let body = Body::Inline(body(token.0, 0, len));
        let message =
            Message { urgent: false, head: words.head(0), body, ..message(class, token.0, 0) };
        self.nodes[0].connection.post(self.now, message).unwrap();
    }

    /// Returns all datagrams that a node has to send now.
    fn send(&mut self, n: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let mut bytes = Vec::new();
            let Some(transmit) = self.nodes[n].connection.transmit(self.now, &mut bytes) else {
                return all;
            };
            let seal =
                TestSeal(if transmit.handshake { SealKind::Handshake } else { SealKind::EndToEnd });
            let mut tag = vec![0; seal.len()];
            seal.tag(&[&bytes], &mut tag);
            bytes.extend(tag);
            all.push(bytes);
        }
    }

    fn arrive(&mut self, to: usize, datagrams: &[Vec<u8>]) {
        let node = &mut self.nodes[to];
        for bytes in datagrams {
            node.connection.receive(self.now, &View::parse(bytes).unwrap(), 0, &mut node.handler);
        }
        self.read_events();
    }

    fn read_events(&mut self) {
        for node in &mut self.nodes {
            while let Some(event) = node.connection.poll_event() {
                node.events.push(event);
            }
        }
    }

    /// Delivers the receiver's acknowledgements to the sender.
    fn acknowledge(&mut self) {
        self.now += crate::limits::ACK_DELAY;
        let acknowledgements = self.send(1);
        self.arrive(0, &acknowledgements);
    }

    /// Runs over a perfect channel, in virtual time, until both nodes are idle.
    fn run_to_idle(&mut self) {
        for _ in 0..1000 {
            for n in 0..2 {
                let datagrams = self.send(n);
                self.arrive(1 - n, &datagrams);
            }
            if self.nodes.iter().all(|node| node.connection.is_idle()) {
                return;
            }
            let next = self.nodes.iter().filter_map(|node| node.connection.next_timeout()).min();
            self.now = next.unwrap_or(self.now).max(self.now + Duration::from_nanos(1));
            for node in &mut self.nodes {
                if node.connection.next_timeout().is_some_and(|at| at <= self.now) {
                    node.connection.timeout(self.now);
                }
            }
        }
        panic!("not idle");
    }

    /// Returns the numbers of the messages delivered at the receiver.
    fn delivered(&self) -> &[u64] {
        &self.nodes[1].handler.order
    }

    fn outcome(&self, token: Token) -> Option<Event> {
        let mut of = self.nodes[0].events.iter().filter(|event| match event {
            Event::Acknowledged(t) | Event::Refused(t, _) | Event::Failed(t, _) => *t == token,
            _ => false,
        });
        let first = of.next().copied();
        assert_eq!(of.next(), None, "one outcome at most (WIND-4.5)");
        first
    }
}

/// Oracle: returns which of the two numbers are delivered, in which order.
fn expected(case: Case) -> Vec<u64> {
    let in_order = case.channel == Channel::InOrder || case.rule == Waits;
    let both = if in_order { [0, 1] } else { [1, 0] };
    both.into_iter().filter(|number| *number == 1 || case.fate == Fate::Taken).collect()
}

fn play(case: Case) {
    let mut hands = Hands::new();
    hands.post(case.earlier, EARLIER, case.long[0], case.fate == Fate::Refused);
    let mut first = hands.send(0);
    hands.post(case.later, LATER, case.long[1], false);
    let second = hands.send(0);
    let mut late = Vec::new();
    if case.fate == Fate::Withdrawn {
        hands.nodes[0].connection.cancel(EARLIER);
        late = core::mem::replace(&mut first, hands.send(0));
    }
    let copies = if case.channel == Channel::Duplicates { 3 } else { 1 };
    if case.channel == Channel::InOrder {
        hands.arrive(1, &first);
        hands.arrive(1, &second);
    } else {
        (0..copies).for_each(|_| hands.arrive(1, &second));
        // WIND-2.3, WIND-2.8: nothing of a message that waits is visible.
        let alone: &[u64] = if case.rule == Overtakes { &[1] } else { &[] };
        assert_eq!(hands.delivered(), alone, "while the earlier one is missing");
        // WIND-4.8: only an unordered message is settled while one before it is not.
        hands.acknowledge();
        let settled = (case.rule == Overtakes).then_some(Event::Acknowledged(LATER));
        assert_eq!((hands.outcome(LATER), hands.outcome(EARLIER)), (settled, None));
        if case.channel != Channel::LostAndRepeated {
            (0..copies).for_each(|_| hands.arrive(1, &first));
        }
    }
    if case.channel != Channel::LostAndRepeated {
        assert_eq!(hands.delivered(), expected(case), "no need to wait for anything more");
    }
    hands.run_to_idle();
    // Late copies no longer change anything (WIND-2.7).
    for datagrams in [&late, &first, &second] {
        hands.arrive(1, datagrams);
    }
    hands.run_to_idle();
    assert_eq!(hands.delivered(), expected(case));
    assert_eq!(
        hands.outcome(LATER),
        Some(Event::Acknowledged(LATER)),
        "its fate is its own (WIND-2.9)"
    );
    let handler = &hands.nodes[1].handler;
    let (refused, withdrawn) = (handler.refused.contains(&0), handler.withdrawn.contains(&0));
    assert_eq!((refused, withdrawn), (case.fate == Fate::Refused, case.fate == Fate::Withdrawn));
    match (case.fate, hands.outcome(EARLIER)) {
        (Fate::Taken, Some(Event::Acknowledged(_)))
        | (Fate::Refused, Some(Event::Refused(..)))
        | (Fate::Withdrawn, None) => {}
        (_, other) => panic!("{other:?}"),
    }
    let place = |token: Token| {
        hands.nodes[0].events.iter().position(|event| hands.outcome(token) == Some(*event))
    };
    if case.rule == Waits && case.fate != Fate::Withdrawn {
        assert!(place(EARLIER) < place(LATER), "settled in order (WIND-4.4)");
    }
}

fn every_case(mut play: impl FnMut(Case)) -> u32 {
    let mut cases = 0;
    for (earlier, later, rule) in TABLE {
        for channel in
            [Channel::InOrder, Channel::LaterFirst, Channel::Duplicates, Channel::LostAndRepeated]
        {
            for fate in [Fate::Taken, Fate::Refused, Fate::Withdrawn] {
                for long in [[false, false], [false, true], [true, false], [true, true]] {
                    play(Case { earlier, later, rule, channel, fate, long });
                    cases += 1;
                }
            }
        }
    }
    cases
}

/// WIND-2.1, WIND-2.3, WIND-2.7 to WIND-2.10, WIND-4.4, WIND-4.5, WIND-4.8.
#[test]
fn every_pair_of_classes_through_every_channel() {
    let cases = every_case(|case| {
        std::eprintln!("{case:?}");
        play(case);
    });
    assert_eq!(cases, 9 * 4 * 3 * 4);
}

/// WIND-2.11, WIND-2.10: an ordered message after unordered puts is not visible before the last
/// byte of each is in its place.
#[test]
fn place_then_tell() {
    for (class, long) in
        [(Class::Ordered, false), (Class::Ordered, true), (Class::Sync, false), (Class::Sync, true)]
    {
        let mut hands = Hands::new();
        hands.post(Class::Unordered, EARLIER, true, false);
        let put = hands.send(0);
        hands.post(class, LATER, long, false);
        let tells = hands.send(0);
        hands.arrive(1, &tells);
        // Deliver the put's datagrams last first. The message is delivered with the last missing
        // byte, whichever that is.
        for (missing, datagram) in put.iter().enumerate().rev() {
            assert_eq!(hands.delivered(), [0u64; 0]);
            hands.arrive(1, core::slice::from_ref(datagram));
            assert_eq!(hands.delivered().is_empty(), missing > 0);
        }
        assert_eq!(hands.delivered(), [0, 1]);
    }
}

/// WIND-2.3: unordered messages are delivered as they arrive, in any order, however many are
/// missing before them.
#[test]
fn unordered_messages_never_wait_for_one_another() {
    let mut hands = Hands::new();
    let mut sent = Vec::new();
    for n in 0..6 {
        hands.post(Class::Unordered, Token(n + 1), n % 2 == 1, false);
        sent.push(hands.send(0));
    }
    for (so_far, n) in [4, 1, 5, 0, 3, 2].into_iter().enumerate() {
        hands.arrive(1, &sent[n]);
        assert_eq!(hands.delivered().len(), so_far + 1);
        assert_eq!(hands.delivered().last(), Some(&(n as u64)));
    }
}

/// WIND-3.5: the sender of a synchronous message asks for its acknowledgement at once. For others,
/// the acknowledgement may be delayed.
#[test]
fn a_synchronous_message_is_acknowledged_at_once() {
    for (class, at_once) in
        [(Class::Ordered, false), (Class::Unordered, false), (Class::Sync, true)]
    {
        let mut hands = Hands::new();
        hands.post(class, LATER, false, false);
        let sent = hands.send(0);
        hands.arrive(1, &sent);
        let answer = hands.send(1);
        assert_eq!(!answer.is_empty(), at_once, "{class:?}");
        hands.arrive(0, &answer);
        assert_eq!(hands.outcome(LATER).is_some(), at_once);
    }
}
