//! Faults on a link of numbered datagrams, with a simulated clock.

use super::*;
use crate::net::{LinkProperties, LocalAddress, Outgoing, Statistics};
use proptest::prelude::*;
use std::collections::HashMap;

/// A link that delivers the next numbers, `burst` of them per call.
struct Numbers {
    next: u32,
    burst: u32,
    end: u32,
}

impl Link for Numbers {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        Ok(batch.len())
    }
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        let last = (self.next + self.burst).min(self.end);
        (self.next..last).for_each(|number| sink.take(Arrival::new(from(), &number.to_le_bytes())));
        Ok((last - std::mem::replace(&mut self.next, last)) as usize)
    }
    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        Ok(Vec::new())
    }
    fn properties(&self) -> LinkProperties<'_> {
        LinkProperties::within_process(1000, 1000)
    }
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

fn from() -> SocketAddr {
    ([10, 0, 0, 1], 7).into()
}

/// Returns all arrivals when the clock advances only as far as the link asks.
fn run(settings: FaultSettings, end: u32, burst: u32) -> Vec<Vec<u8>> {
    let mut link = Fault::new(Numbers { next: 0, burst, end }, settings);
    let mut now = Instant::now();
    let mut taken = Vec::new();
    while link.inner.next < end || link.next_wakeup().is_some() {
        if link.inner.next >= end {
            now = link.next_wakeup().map_or(now, |due| due.max(now));
        }
        let before = taken.len();
        let told = link
            .receive_at(now, &mut |arrival| {
                assert_eq!(arrival.from, from());
                taken.push(arrival.bytes.to_vec());
            })
            .unwrap();
        assert_eq!(told, taken.len() - before);
    }
    taken
}

fn numbers(taken: &[Vec<u8>]) -> Vec<u32> {
    taken.iter().map(|bytes| u32::from_le_bytes(bytes.as_slice().try_into().unwrap())).collect()
}

#[test]
fn no_faults_change_nothing() {
    assert_eq!(numbers(&run(FaultSettings::default(), 500, 7)), (0..500).collect::<Vec<_>>());
}

#[test]
fn everything_lost_is_nothing() {
    assert!(run(FaultSettings { loss: 1.0, ..FaultSettings::default() }, 100, 7).is_empty());
}

#[test]
fn everything_twice() {
    let want: Vec<u32> = (0..100).flat_map(|number| [number, number]).collect();
    assert_eq!(
        numbers(&run(FaultSettings { duplicate: 1.0, ..FaultSettings::default() }, 100, 7)),
        want
    );
}

#[test]
fn a_reordered_datagram_is_overtaken_by_few() {
    let taken = numbers(&run(
        FaultSettings { reorder: 0.3, seed: 5, ..FaultSettings::default() },
        1000,
        10,
    ));
    assert!(!taken.is_sorted());
    let mut sorted = taken.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_delayed_datagram_asks_to_be_called_for() {
    let delay_time = Duration::from_millis(2);
    let mut link = Fault::new(
        Numbers { next: 0, burst: 1, end: 1 },
        FaultSettings { delay: 1.0, delay_time, ..FaultSettings::default() },
    );
    let now = Instant::now();
    assert_eq!(link.receive_at(now, &mut |_| panic!("too early")).unwrap(), 0);
    assert_eq!(link.next_wakeup(), Some(now + delay_time));
    assert_eq!(link.receive_at(now + delay_time / 2, &mut |_| panic!("too early")).unwrap(), 0);
    assert_eq!(link.receive_at(now + delay_time, &mut |_| ()).unwrap(), 1);
    assert_eq!(link.next_wakeup(), None);
}

/// A reseal whose tag is the last byte, the sum of those before.
#[derive(Debug)]
struct Sum;

impl Reseal for Sum {
    fn reseal(&self, datagram: &mut [u8]) {
        if let Some((tag, covered)) = datagram.split_last_mut() {
            *tag = covered.iter().fold(0, |sum, byte| sum.wrapping_add(*byte));
        }
    }
}

/// A link that delivers the same datagram of 20 bytes again and again.
struct Same;

impl Link for Same {
    fn send(&mut self, batch: &[Outgoing<'_>]) -> io::Result<usize> {
        Ok(batch.len())
    }
    fn receive_into(&mut self, sink: &mut dyn Sink) -> io::Result<usize> {
        sink.take(Arrival::new(from(), &[0; 20]));
        Ok(1)
    }
    fn local_addresses(&self) -> io::Result<Vec<LocalAddress>> {
        Ok(Vec::new())
    }
    fn properties(&self) -> LinkProperties<'_> {
        LinkProperties::within_process(1000, 1000)
    }
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

#[test]
fn a_tampered_datagram_has_a_right_checksum() {
    let settings = FaultSettings { seed: 4, tamper: 1.0, ..FaultSettings::default() };
    let mut link = Fault::new(Same, settings).resealing(Box::new(Sum));
    let mut changed = 0;
    for _ in 0..100 {
        link.receive(&mut |arrival| {
            let mut right = arrival.bytes.to_vec();
            Sum.reseal(&mut right);
            assert_eq!(arrival.bytes, right);
            changed += u32::from(arrival.bytes[..19] != [0; 19]);
        })
        .unwrap();
    }
    assert!(changed > 80, "{changed} of 100 were changed");
}

proptest! {
    /// Every number comes at most as often as duplication explains, and losses and copies follow
    /// the plan.
    #[test]
    fn what_comes_is_what_the_plan_says(
        seed: u64, loss in 0.0..0.5, duplicate in 0.0..0.5, reorder in 0.0..0.5, delay in 0.0..0.5, burst in 1_u32..80,
    ) {
        let settings = FaultSettings {
            seed, loss, duplicate, reorder, corrupt: 0.0, tamper: 0.0, delay, delay_time: Duration::from_millis(3),
        };
        let mut plan = FaultPlan::new(settings);
        let mut want: HashMap<u32, usize> = HashMap::new();
        for number in 0..300 {
            let decision = plan.decide();
            let copies = usize::from(decision.first.is_some()) + usize::from(decision.second.is_some());
            if copies > 0 {
                want.insert(number, copies);
            }
        }
        let mut got: HashMap<u32, usize> = HashMap::new();
        for number in numbers(&run(settings, 300, burst)) {
            *got.entry(number).or_default() += 1;
        }
        prop_assert_eq!(got, want);
    }

    #[test]
    fn corruption_changes_a_bit_and_nothing_else(seed: u64) {
        let taken = numbers(&run(FaultSettings { seed, corrupt: 1.0, ..FaultSettings::default() }, 50, 7));
        prop_assert_eq!(taken.len(), 50);
        prop_assert!(taken.iter().zip(0_u32..).all(|(got, sent)| (got ^ sent).count_ones() == 1));
    }
}
