//! The key exchange with its real cryptography: any bytes and changed messages give no secrets. Two
//! connections whose HELLOs are lost, repeated, delayed and changed never have different secrets
//! once both are established.
#![no_main]
#![forbid(unsafe_code)]

use core::time::Duration;
use libfuzzer_sys::fuzz_target;
use oikaze_os::secrets::seal::NoiseExchange;
use oikaze_os::secrets::secret::Secret;
use oikaze_protocol::Rank;
use oikaze_protocol::seal::{
    Binding, CipherKind, FIRST_LEN, Identity, KeyExchange, SECOND_LEN, SessionSecrets,
};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{
    Admission, Class, Connection, Delivered, Handler, Introduction, Refusal, Settings,
};
use oikaze_protocol::wire::{SealKind, View};

const MINE: Identity = Identity { incarnation: 3, connection: 4 };

fn exchange() -> NoiseExchange {
    NoiseExchange::new(&Secret::from_bytes([7; 32]), CipherKind::Aes128Gcm)
}

/// Changes a message by the first bytes of the input.
fn changed<const N: usize>(message: &[u8; N], input: &[u8]) -> [u8; N] {
    let mut message = *message;
    message.iter_mut().zip(input).for_each(|(byte, change)| *byte ^= change);
    message
}

/// Bytes of the fuzzer against single messages.
fn messages(input: &[u8]) {
    let binding = Binding {
        nodes: 2,
        seal: 3,
        first: 0,
        second: 1,
        identity: Identity { incarnation: 1, connection: 2 },
    };
    let (mut first, mut second) = (exchange(), exchange());
    let raw: [u8; FIRST_LEN] = changed(&[0; FIRST_LEN], input);
    assert!(second.second(&binding, &raw, MINE).is_none(), "any bytes are a first message");
    let message = first.first(&binding).expect("random bytes");
    let wrong = changed(&message, input);
    if wrong != message {
        assert!(second.second(&binding, &wrong, MINE).is_none(), "a changed first message");
    }
    let (answer, theirs) = second.second(&binding, &message, MINE).expect("an answer");
    let raw: [u8; SECOND_LEN] = changed(&[0; SECOND_LEN], input);
    assert!(first.finish(&raw).is_none(), "any bytes are a second message");
    let wrong = changed(&answer, input);
    if wrong != answer {
        assert!(first.finish(&wrong).is_none(), "a changed second message");
    }
    let (identity, mine) = first.finish(&answer).expect("the answer is right");
    assert_eq!((identity, mine.send == theirs.receive), (MINE, true));
}

struct Nothing;

impl Handler for Nothing {
    fn admit(&mut self, _: Rank, _: u64, _: Class, _: &[u8], _: u64) -> Admission {
        Admission::Refuse(Refusal::Malformed)
    }
    fn place(&mut self, _: Rank, _: u64, _: u64, _: &[u8]) {}
    fn deliver(
        &mut self,
        _: Rank,
        _: u64,
        _: Class,
        _: &[u8],
        _: Delivered<'_>,
    ) -> Result<(), Refusal> {
        Ok(())
    }
    fn abandon(&mut self, _: Rank) {}
}

struct Party {
    connection: Connection,
    incarnation: u64,
    secrets: Option<(u64, SessionSecrets)>,
}

impl Party {
    fn new(rank: Rank, incarnation: u64, now: Time) -> Party {
        let settings = Settings { seal: SealKind::Encrypted, ..Settings::default() };
        let id = 100 * u64::from(rank + 1) + incarnation;
        let me = Introduction::here(rank, 2, incarnation, id);
        let mut connection =
            Connection::new(settings, me, 1 - rank, 1, now).with_key_exchange(Box::new(exchange()));
        connection.connect(now);
        Party { connection, incarnation, secrets: None }
    }

    fn receive(&mut self, now: Time, bytes: &[u8]) {
        if let Ok(view) = View::parse(bytes)
            && view.is_handshake()
        {
            self.connection.receive(now, &view, 0, &mut Nothing);
            if let Some(secrets) = self.connection.take_secrets() {
                self.secrets = Some((self.connection.id(), secrets));
            }
        }
    }

    /// Returns the secrets of the connection as it is now.
    fn secrets(&self) -> Option<&SessionSecrets> {
        let id = self.connection.id();
        self.secrets.as_ref().filter(|(of, _)| *of == id).map(|(_, secrets)| secrets)
    }
}

/// HELLOs between two nodes, with what the fuzzer does to them.
fn hellos(mut input: &[u8]) {
    let mut now = Time(1);
    let mut parties = [Party::new(0, 1, now), Party::new(1, 1, now)];
    // HELLOs under way, with the rank of their receiver.
    let mut under_way: Vec<(usize, Vec<u8>)> = Vec::new();
    while let Some(([action, at], rest)) = input.split_first_chunk::<2>() {
        input = rest;
        now += Duration::from_millis(3);
        for (rank, party) in parties.iter_mut().enumerate() {
            if party.connection.next_timeout().is_some_and(|due| due <= now) {
                party.connection.timeout(now);
            }
            let mut bytes = Vec::new();
            while party.connection.transmit(now, &mut bytes).is_some() {
                bytes.resize(bytes.len() + SealKind::Handshake.tag_len(), 0);
                under_way.push((1 - rank, std::mem::take(&mut bytes)));
            }
            while party.connection.poll_event().is_some() {}
        }
        under_way.truncate(64);
        let Some(index) = usize::from(*at).checked_rem(under_way.len()) else { continue };
        match action % 6 {
            // Delivered, and repeated later.
            0 | 1 => {
                let (to, bytes) = under_way[index].clone();
                parties[to].receive(now, &bytes);
            }
            2 => {
                let (to, bytes) = under_way.swap_remove(index);
                parties[to].receive(now, &bytes);
            }
            3 => drop(under_way.swap_remove(index)),
            // Its keys are changed, as no member of the job does.
            4 => {
                let (to, mut bytes) = under_way[index].clone();
                let end = bytes.len() - SealKind::Handshake.tag_len();
                if let Some(byte) = bytes[..end].iter_mut().rev().nth(usize::from(*at) % 64) {
                    *byte ^= action | 1;
                }
                parties[to].receive(now, &bytes);
            }
            _ if action % 8 == 5 => {
                let rank = usize::from(at % 2);
                let incarnation = parties[rank].incarnation + 1;
                parties[rank] = Party::new(rank as Rank, incarnation, now);
            }
            _ => {}
        }
        let [one, other] = &parties;
        if one.connection.is_established() && other.connection.is_established() {
            let knows = |here: &Party, there: &Party| {
                here.connection.peer_introduction().is_some_and(|known| {
                    known.connection == there.connection.id()
                        && known.incarnation == there.incarnation
                })
            };
            if let (Some(mine), Some(theirs)) = (one.secrets(), other.secrets())
                && knows(one, other)
                && knows(other, one)
            {
                assert!(mine.send == theirs.receive && mine.receive == theirs.send);
            }
        }
    }
}

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((0..128, rest)) => messages(rest),
        Some((_, rest)) => hellos(rest),
        None => {}
    }
});
