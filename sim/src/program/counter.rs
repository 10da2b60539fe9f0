//! A thread that adds 1 to words of other nodes many times. The oracle checks that the sums are
//! exact (MEM-5.2).

use super::doing::Doing;
use super::interface::{Context, Program, Progress};
use super::layout::ONES;
use crate::random::Random;
use oikaze_engine::{Completion, Request, Value};
use oikaze_protocol::Rank;
use oikaze_protocol::rma::AtomicOp;
use oikaze_protocol::time::Time;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the region of words, which every node publishes.
const NAME: &str = "words";
/// Maximum number of additions that one poll submits.
const TOGETHER: u64 = 64;

#[derive(Debug)]
struct Asked {
    target: Rank,
    doing: Doing,
    completion: Arc<Completion>,
    since: Time,
}

/// Thread that adds 1 to words of other nodes.
#[derive(Debug)]
pub struct Counter {
    left: u64,
    in_flight: usize,
    /// Keys of the words, or `None` while the lookup is in flight.
    keys: BTreeMap<Rank, Option<u64>>,
    under_way: Vec<Asked>,
    random: Random,
}

impl Counter {
    /// Makes a thread that adds this many times.
    #[must_use]
    pub fn new(count: u64, mut random: Random) -> Counter {
        let in_flight = random.spread(16, 1024) as usize;
        Counter { left: count, in_flight, keys: BTreeMap::new(), under_way: Vec::new(), random }
    }

    fn settle(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        let before = self.under_way.len();
        for asked in std::mem::take(&mut self.under_way) {
            let Asked { target, doing, .. } = &asked;
            match (asked.completion.outcome(), doing) {
                (None, _) => self.under_way.push(asked),
                (Some(Ok(Value::Region(published))), Doing::Lookup(_)) => {
                    self.keys.insert(*target, Some(published.key));
                }
                (Some(Ok(value)), _) => doing.check(*target, &value, &[], context.oracle)?,
                // The process that replaces a dead node publishes no regions.
                (Some(Err(_)), _) if context.is_casualty(*target) => {}
                (Some(Err(failure)), _) => {
                    context.oracle.excuse(&doing.name(), (context.me, context.life), &failure)?;
                }
            }
        }
        Ok(self.under_way.len() < before)
    }

    fn begin(&mut self, context: &mut Context<'_>) {
        // The target is never this node. Additions to this node would take no simulated time, so
        // most additions would be of that kind.
        let away = 1 + self.random.below(u64::from(context.nodes) - 1) as Rank;
        let target = (context.me + away) % context.nodes;
        let (doing, request) = match self.keys.get(&target) {
            // A dead target answers neither lookups nor additions. For a node that is cut off, all
            // targets are dead, so it counts the addition as done in order to finish.
            _ if context.is_casualty(target) => {
                self.left -= u64::from(context.oracle.isolated == Some(context.me));
                return;
            }
            Some(None) => return,
            None => {
                self.keys.insert(target, None);
                (Doing::Lookup(NAME), Request::Lookup { at: target, name: NAME.to_owned() })
            }
            Some(Some(key)) => {
                self.left -= 1;
                let (word, fetch) = (self.random.below(ONES) * 8, self.random.chance(0.7));
                let known = context.oracle.memory.word(target, word);
                known.asked += 1;
                known.sum += 1;
                let request = Request::Atomic {
                    at: target,
                    key: *key,
                    offset: word,
                    op: AtomicOp::add(1_u64),
                    fetch,
                };
                (Doing::Add { word, add: 1, fetch }, request)
            }
        };
        let completion = context.submit(request, None);
        self.under_way.push(Asked { target, doing, completion, since: context.now });
    }
}

impl Program for Counter {
    fn poll(&mut self, context: &mut Context<'_>) -> Result<Progress, String> {
        let settled = self.settle(context)?;
        let mut begun = false;
        for _ in 0..self.random.between(1, TOGETHER) {
            if self.left > 0 && self.under_way.len() < self.in_flight {
                let before = (self.left, self.under_way.len());
                self.begin(context);
                begun |= before != (self.left, self.under_way.len());
            }
        }
        Ok(Progress { acted: settled || begun, wake: None })
    }

    fn is_finished(&self) -> bool {
        self.left == 0 && self.under_way.is_empty()
    }

    fn waits_since(&self) -> Option<Time> {
        self.under_way.iter().map(|asked| asked.since).min()
    }

    fn describe(&self) -> String {
        format!("counter: {} additions left, {} under way", self.left, self.under_way.len())
    }
}
