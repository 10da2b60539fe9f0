//! Datagrams are changed on the way and sealed again, so that no checksum shows the change
//! (WIND-7.6 to 7.8, MEM-4.8). CRC32C protects against accidents, not against an attacker. Payloads
//! may then be wrong, but nothing panics, and every operation ends, well or with an error.
//!
//! Time is virtual, so that a seed reproduces its run. `make soak` sets `OIKAZE_TAMPERED` to more
//! runs.

use super::*;
use oikaze_os::checksum::crc32c;
use oikaze_protocol::limits::{FAILURE_TIME, HEADER_LEN};
use oikaze_protocol::random::Random;
use oikaze_protocol::rma::AtomicOp;

const LEN: u64 = 32 << 10;
const TAG: usize = 4;
/// Number of operations that each node begins in a run.
const OPERATIONS: usize = 60;
/// Time after the last operation began within which every operation ends: a few waits for progress
/// in a row.
const BOUND: Duration = FAILURE_TIME.saturating_mul(16);

/// Changes a few bytes of a datagram and repairs its seal. Handshakes stay as they are, because
/// their seal needs the job's secret.
fn tamper(random: &mut Random, datagram: &mut [u8]) {
    let Some(end) =
        datagram.len().checked_sub(TAG).filter(|end| *end > HEADER_LEN && datagram[..8] != [0; 8])
    else {
        return;
    };
    for _ in 0..=random.below(3) {
        // Changes headers and frames more often than payloads.
        let at = if random.below(4) > 0 {
            8 + random.below((end - 8).min(120))
        } else {
            random.below(end)
        };
        datagram[at] = match random.below(3) {
            0 => random.below(256) as u8,
            1 => datagram[at] ^ (1 << random.below(8)),
            _ => datagram[at].wrapping_add(1),
        };
    }
    let tag = crc32c(0, &datagram[..end]).to_le_bytes();
    datagram[end..].copy_from_slice(&tag);
}

/// Objects and operations of one node.
struct Party {
    node: Node,
    key: u64,
    local: u32,
    begun: Vec<(&'static str, Arc<Completion>)>,
}

impl Party {
    fn new(mut node: Node) -> Self {
        let region = Region::zeroed(LEN as usize).unwrap();
        let key = node.engine.memory().insert(region, Rights::ALL).unwrap().key;
        let local =
            node.engine.memory().insert_local(Region::zeroed(LEN as usize).unwrap()).unwrap();
        Self { node, key, local, begun: Vec::new() }
    }

    fn begin(&mut self, random: &mut Random, peer: Rank, key: u64) {
        let len = [8, 1000, 5000, LEN][random.below(4)];
        let segment = Segment { region: self.local, offset: 0, len };
        let class = [Class::Ordered, Class::Unordered, Class::Sync][random.below(3)];
        let (what, request) = match random.below(5) {
            0 => (
                "put",
                Request::Put {
                    to: peer,
                    key,
                    offset: 0,
                    body: Body::Segment(segment),
                    signal: None,
                },
            ),
            1 => ("get", Request::Get { from: peer, key, offset: 0, into: segment }),
            2 => (
                "atomic",
                Request::Atomic { at: peer, key, offset: 0, op: AtomicOp::add(1), fetch: true },
            ),
            3 => {
                ("message", Request::Send { to: peer, class, tag: 1, body: Body::Segment(segment) })
            }
            _ => (
                "short message",
                Request::Send { to: peer, class, tag: 1, body: Body::Inline(vec![1; 20]) },
            ),
        };
        self.begun.push((what, self.node.ask(request)));
    }

    fn turn(&mut self, now: Time) {
        let ended = (0..10_000).find(|_| !self.node.engine.turn(now).more);
        assert!(ended.is_some(), "one turn after another, for ever");
        while let Some(arrived) = self.node.engine.inbox().take_arrived() {
            self.node.tell(Request::Consumed {
                from: arrived.from,
                messages: 1,
                bytes: arrived.body.len() as u64,
            });
        }
    }

    /// Returns the operations that have not ended.
    fn left(&self) -> Vec<&'static str> {
        self.begun.iter().filter(|(_, one)| !one.is_done()).map(|(what, _)| *what).collect()
    }
}

/// Runs one seed. Returns `true` if a connection ended, and the number of changed datagrams.
fn meet(seed: u64) -> (bool, u64) {
    let mut random = Random::new(seed);
    let (a, b, mut now) = pair();
    let mut parties = [Party::new(a), Party::new(b)];
    let keys = parties.each_ref().map(|party| party.key);
    let one_in = [8, 30, 100][random.below(3)];
    let (mut steps, mut changed, mut last) = (0, 0, now);
    loop {
        for (rank, party) in parties.iter_mut().enumerate() {
            if steps < OPERATIONS {
                party.begin(&mut random, 1 - rank as Rank, keys[1 - rank]);
                last = now;
            }
            party.turn(now);
            for datagram in open(&party.node.engine.link_mut().to).iter_mut() {
                if now - last < FAILURE_TIME && random.below(one_in) == 0 {
                    tamper(&mut random, datagram);
                    changed += 1;
                }
            }
        }
        steps += 1;
        let left = parties.each_ref().map(Party::left);
        if left.iter().all(Vec::is_empty) && steps > OPERATIONS {
            let died =
                parties.iter_mut().any(|party| party.node.engine.inbox().take_death().is_some());
            return (died, changed);
        }
        assert!(now - last < BOUND, "seed {seed}: these have not ended: {left:?}");
        let waiting =
            parties.iter_mut().any(|party| !open(&party.node.engine.link_mut().from).is_empty());
        let next = parties.iter().filter_map(|party| party.node.engine.next_timeout()).min();
        let soonest = step(now);
        now = if waiting || steps <= OPERATIONS {
            soonest
        } else {
            next.unwrap_or(soonest).max(soonest).min(now + FAILURE_TIME)
        };
    }
}

/// WIND-7.6, WIND-7.8.
#[test]
fn operations_end_whatever_is_changed_on_the_way() {
    let wanted =
        std::env::var("OIKAZE_TAMPERED").ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = std::env::var("OIKAZE_TAMPERED_FROM")
        .map_or(0, |text| text.parse::<u64>().expect("a number"));
    let count = wanted.unwrap_or(100);
    let (mut died, mut changed) = (0, 0);
    for seed in first..first + count {
        let (ended, datagrams) = meet(seed);
        (died, changed) = (died + u64::from(ended), changed + datagrams);
    }
    println!(
        "{count} runs from seed {first}: {changed} datagrams changed, {died} runs in which a connection ended"
    );
    assert!(count < 10 || (changed > count && died < count), "little was tried");
}
