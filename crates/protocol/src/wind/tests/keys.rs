//! Agreement on keys in the handshake (SEAL-2), over a channel that loses, repeats and delays
//! datagrams, between nodes that restart at any time. The key exchange is a toy, whose messages are
//! numbers in clear.

use super::support::world::{Node, TestSeal};
use crate::fnv::fnv1a;
use crate::random::Random;
use crate::seal::{
    Binding, CipherKind, FIRST_LEN, FirstMessage, Identity, KeyExchange, SECOND_LEN, SecondMessage,
    SessionSecrets,
};
use crate::time::Time;
use crate::wind::*;
use crate::wire::{Seal, SealKind, View};
use core::time::Duration;
use std::boxed::Box;
use std::vec;
use std::vec::Vec;

/// Exchange in which each side draws a number, and the secrets are made of both.
struct Toy {
    random: Random,
    waiting: Option<u64>,
}

fn put(message: &mut [u8], words: &[u64]) {
    message.chunks_exact_mut(8).zip(words).for_each(|(to, word)| {
        to.copy_from_slice(&word.to_le_bytes());
    });
}

fn word(message: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(message[8 * at..8 * at + 8].try_into().unwrap())
}

/// Secrets of the node of the lower rank.
fn secrets(first: u64, second: u64) -> SessionSecrets {
    let (mut send, mut receive) = ([0; 32], [1; 32]);
    put(&mut send, &[first, second]);
    put(&mut receive, &[first, second]);
    SessionSecrets { cipher: CipherKind::Aes128Gcm, send, receive }
}

impl KeyExchange for Toy {
    fn first(&mut self, binding: &Binding) -> Option<FirstMessage> {
        let (mine, mut message) = (self.random.next_u64(), [0; FIRST_LEN]);
        self.waiting = Some(mine);
        put(&mut message, &[mine, fnv1a(binding.to_bytes())]);
        Some(message)
    }

    fn second(
        &mut self,
        binding: &Binding,
        first: &FirstMessage,
        mine: Identity,
    ) -> Option<(SecondMessage, SessionSecrets)> {
        if word(first, 1) != fnv1a(binding.to_bytes()) {
            return None;
        }
        let (theirs, own, mut message) = (word(first, 0), self.random.next_u64(), [0; SECOND_LEN]);
        put(&mut message, &[own, theirs]);
        message[16..32].copy_from_slice(&mine.to_bytes());
        let theirs = secrets(theirs, own);
        let SessionSecrets { cipher, send, receive } = theirs;
        Some((message, SessionSecrets { cipher, send: receive, receive: send }))
    }

    fn finish(&mut self, second: &SecondMessage) -> Option<(Identity, SessionSecrets)> {
        let mine = self.waiting.take_if(|mine| *mine == word(second, 1))?;
        let identity = Identity::from_bytes(second[16..32].try_into().unwrap());
        Some((identity, secrets(mine, word(second, 0))))
    }
}

/// One node, and the latest secrets with the connection id that they are for.
struct Party {
    node: Node,
    keys: Option<(u64, SessionSecrets)>,
}

impl Party {
    fn new(rank: u32, incarnation: u64, random: &mut Random, now: Time) -> Party {
        let settings = Settings { seal: SealKind::Encrypted, ..Settings::default() };
        let mut node = Node::new(settings, rank, incarnation, random.next_u64() | 1, now);
        let toy = Toy { random: Random::new(random.next_u64()), waiting: None };
        node.connection = node.connection.with_key_exchange(Box::new(toy));
        node.connection.connect(now);
        Party { node, keys: None }
    }

    fn keys(&self) -> Option<&SessionSecrets> {
        self.keys.as_ref().filter(|(id, _)| *id == self.node.connection.id()).map(|(_, keys)| keys)
    }

    /// Receives a datagram. One that is not a handshake opens only with the sender's secrets.
    fn receive(&mut self, now: Time, bytes: &[u8], sealed_by: Option<&SessionSecrets>) {
        let view = View::parse(bytes).unwrap();
        let opens = self
            .keys()
            .is_some_and(|mine| sealed_by.is_some_and(|theirs| theirs.send == mine.receive));
        if view.is_handshake() || opens {
            self.node.connection.receive(now, &view, 0, &mut self.node.handler);
        }
        if let Some(secrets) = self.node.connection.take_secrets() {
            self.keys = Some((self.node.connection.id(), secrets));
        }
    }
}

/// SEAL-2.2, SEAL-2.4, SEAL-2.5, SEAL-5.2.
#[test]
fn both_ends_have_the_same_keys_once_established() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut now = Time(0);
        let mut parties = [0, 1].map(|rank| Party::new(rank, 1, &mut random, now));
        let mut waiting: Vec<(Time, usize, Vec<u8>, Option<SessionSecrets>)> = Vec::new();
        let mut restarts = random.below(4);
        let mut settled = false;
        for _ in 0..4000 {
            now += Duration::from_micros(500);
            for (from, party) in parties.iter_mut().enumerate() {
                if party.node.connection.next_timeout().is_some_and(|at| at <= now) {
                    party.node.connection.timeout(now);
                }
                loop {
                    let mut bytes = Vec::new();
                    let Some(transmit) = party.node.connection.transmit(now, &mut bytes) else {
                        break;
                    };
                    let keys = party.keys().cloned();
                    assert!(transmit.handshake || keys.is_some(), "data without keys");
                    let kind =
                        if transmit.handshake { SealKind::Handshake } else { SealKind::Encrypted };
                    let mut tag = vec![0; TestSeal(kind).len()];
                    TestSeal(kind).tag(&[&bytes], &mut tag);
                    bytes.extend(tag);
                    for _ in 0..[0, 1, 1, 2, 3][random.below(5)] {
                        let at = now + Duration::from_micros(random.below(60_000) as u64);
                        waiting.push((at, 1 - from, bytes.clone(), keys.clone()));
                    }
                }
                while party.node.connection.poll_event().is_some() {}
            }
            let due = waiting.extract_if(.., |datagram| datagram.0 <= now).collect::<Vec<_>>();
            for (_, to, bytes, keys) in due {
                parties[to].receive(now, &bytes, keys.as_ref());
            }
            if restarts > 0 && random.below(100) == 0 {
                restarts -= 1;
                let rank = random.below(2);
                let incarnation = 10 - restarts as u64;
                parties[rank] = Party::new(rank as u32, incarnation, &mut random, now);
            }
            let [a, b] = &parties;
            if a.node.connection.is_established() && b.node.connection.is_established() {
                let agree = a
                    .keys()
                    .zip(b.keys())
                    .is_some_and(|(a, b)| a.send == b.receive && a.receive == b.send);
                // A node that does not know of the other's restart yet has the keys of before.
                let knows = |of: &Party, other: &Party| {
                    of.node.connection.peer_introduction().map(|them| them.connection)
                        == Some(other.node.connection.id())
                };
                let know = knows(a, b) && knows(b, a);
                assert!(agree || !know, "seed {seed}: other keys");
                settled = agree && restarts == 0;
                if settled && waiting.is_empty() {
                    break;
                }
            }
        }
        assert!(settled, "seed {seed}: not established");
    }
}

/// SEAL-1.1: a connection whose seal needs keys, and that has none, is never established.
#[test]
fn connection_without_keys_is_not_established() {
    let mut random = Random::new(1);
    let mut now = Time(0);
    let mut keyed = Party::new(1, 1, &mut random, now);
    let settings = Settings { seal: SealKind::Encrypted, ..Settings::default() };
    let mut bare = Node::new(settings, 0, 1, 77, now);
    bare.connection.connect(now);
    for _ in 0..100 {
        now += Duration::from_millis(10);
        let mut bytes = Vec::new();
        while bare.connection.transmit(now, &mut bytes).is_some() {
            bytes.extend([0; 16]);
            keyed.receive(now, &bytes, None);
            bytes.clear();
        }
        while keyed.node.connection.transmit(now, &mut bytes).is_some() {
            bytes.extend([0; 16]);
            bare.connection.receive(now, &View::parse(&bytes).unwrap(), 0, &mut bare.handler);
            bytes.clear();
        }
        assert!(!keyed.node.connection.is_established());
    }
}
