//! A lossy, duplicating, reordering, corrupting channel in virtual time, from one seed.

use crate::random::Random;
use crate::time::Time;
use core::time::Duration;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Fault rates of the channel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplicate: f64,
    pub reorder: f64,
    pub corrupt: f64,
}

/// A datagram that arrives.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub to: usize,
    pub path: u8,
    pub bytes: Vec<u8>,
}

pub struct Channel {
    pub faults: Faults,
    pub delay: Duration,
    random: Random,
    under_way: BTreeMap<(Time, u64), Arrival>,
    count: u64,
}

impl Channel {
    pub fn new(faults: Faults, seed: u64) -> Channel {
        Channel {
            faults,
            delay: Duration::from_micros(20),
            random: Random::new(seed),
            under_way: BTreeMap::new(),
            count: 0,
        }
    }

    pub fn send(&mut self, now: Time, arrival: Arrival) {
        if self.random.chance(self.faults.loss) {
            return;
        }
        let copies = 1 + u64::from(self.random.chance(self.faults.duplicate));
        for _ in 0..copies {
            let mut arrival = arrival.clone();
            if self.random.chance(self.faults.corrupt) {
                let at = self.random.below(arrival.bytes.len());
                arrival.bytes[at] ^= 1 << self.random.below(8);
            }
            let late = if self.random.chance(self.faults.reorder) {
                self.random.below(300) as u64
            } else {
                0
            };
            let at = now + self.delay + Duration::from_micros(late);
            self.count += 1;
            self.under_way.insert((at, self.count), arrival);
        }
    }

    pub fn next(&self) -> Option<Time> {
        self.under_way.keys().next().map(|key| key.0)
    }

    pub fn take(&mut self, now: Time) -> Option<Arrival> {
        self.under_way
            .first_entry()
            .filter(|entry| entry.key().0 <= now)
            .map(|entry| entry.remove())
    }
}
