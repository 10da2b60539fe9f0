//! A thread that uses other nodes' memory: puts with and without signals, gets, atomics, lookups, and what must be refused.

mod nonsense;
mod pushes;
mod sums;
mod words;

use super::doing::{Doing, UnderWay};
use super::layout::{FIXED_LEN, Layout, SIGNALS};
use super::{Context, Program, Progress};
use crate::oracle::{Claim, Oracle, Watch};
use crate::random::{Random, bytes_of};
use oikaze::engine::{Failure, Request, Value};
use oikaze_os::memory::Region;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{Published, RmaError, Signal};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class, Refusal, Segment};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// What the own memory of an operation holds while nobody uses it.
const IDLE: u8 = 0xA5;
/// The regions that every node publishes.
const NAMES: [&str; 6] = ["fixed", "arena", "words", "sums", "fifo", "closed"];

/// How much an accessor does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Operations in all.
    pub count: u64,
    /// Under way at a time.
    pub in_flight: usize,
    /// Bytes of the longest.
    pub longest: usize,
    /// The thread's part of every region.
    pub layout: Layout,
}

/// Memory of our own that operations read from or write to: a slot for each operation under way.
#[derive(Debug)]
struct Own {
    memory: Region,
    region: u32,
    free: Vec<usize>,
}

/// What the thread knows of a node.
#[derive(Debug, Default)]
struct Target {
    found: BTreeMap<&'static str, Published>,
    /// Our stripe of its arena, as it must be.
    model: Vec<u8>,
    /// Bytes that are not known: a put that failed.
    unknown: bool,
    /// Last value of each signal.
    signals: [u64; SIGNALS as usize],
}

/// Uses other nodes' memory.
#[derive(Debug)]
pub struct Accessor {
    work: Work,
    begun: u64,
    own: Option<Own>,
    targets: BTreeMap<Rank, Target>,
    under_way: Vec<UnderWay>,
    resume: Time,
    random: Random,
}

impl Accessor {
    /// A thread that does this much.
    #[must_use]
    pub fn new(work: Work, random: Random) -> Accessor {
        let (targets, under_way) = (BTreeMap::new(), Vec::new());
        Accessor { work, begun: 0, own: None, targets, under_way, resume: Time::default(), random }
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        if self.own.is_some() {
            return Ok(());
        }
        let len = self.work.in_flight * self.slot_len();
        let memory = Region::private(len).map_err(|error| error.to_string())?;
        memory.fill(0, len as u64, IDLE).map_err(|error| error.to_string())?;
        // Destinations of gets must be writable for answers; no peer can reach it, for nobody knows its key.
        let region = context.engine.memory().insert_local(memory.clone()).map_err(|error| error.to_string())?;
        self.own = Some(Own { memory, region, free: (0..self.work.in_flight).rev().collect() });
        Ok(())
    }

    /// A slot ends with bytes that nobody may touch.
    fn slot_len(&self) -> usize {
        self.work.longest + 64
    }

    fn settle(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        let mut acted = false;
        for mut one in std::mem::take(&mut self.under_way) {
            if matches!(one.doing, Doing::Get { .. }) && !one.cancelled && !one.settled && self.random.chance(0.01) {
                one.cancelled = true;
                context.tell(Request::Cancel { completion: Arc::clone(&one.completion) });
                acted = true;
            }
            if let Some(outcome) = one.completion.outcome().filter(|_| !one.settled) {
                one.settled = true;
                acted = true;
                let ok = outcome.is_ok();
                context.trace.event(
                    context.now,
                    context.me,
                    format_args!("settled {} at node {}: {ok}", one.doing.name(), one.target),
                );
                match outcome {
                    Ok(value) => self.succeeded(&one, &value, context.oracle)?,
                    Err(failure) if one.doing.wants(one.target, &failure, context.oracle)? => {}
                    Err(Failure::Cancelled) if one.cancelled => {}
                    // What took a dead node's place publishes nothing.
                    Err(failure) if context.is_casualty(one.target) && is_unknown(&failure) => {
                        self.target(one.target).unknown = true
                    }
                    Err(failure) => {
                        context.oracle.excuse(
                            &format!("{} at node {}", one.doing.name(), one.target),
                            (context.me, context.life),
                            &failure,
                        )?;
                        self.target(one.target).unknown = true;
                    }
                }
                self.free(one.slot)?;
            }
            let told = settled_message(&one, context)?;
            if one.settled && told {
                acted = true;
            } else {
                self.under_way.push(one);
            }
        }
        Ok(acted)
    }

    fn succeeded(&mut self, one: &UnderWay, value: &Value, oracle: &mut Oracle) -> Result<(), String> {
        match (&one.doing, value) {
            (Doing::Lookup(name), Value::Region(published)) => {
                self.target(one.target).found.insert(name, *published);
                return Ok(());
            }
            (Doing::Put { range, bytes, .. }, _) => {
                let at = (range.start - self.work.layout.stripe_at()) as usize;
                self.target(one.target).model[at..at + bytes.len()].copy_from_slice(bytes);
            }
            _ => {}
        }
        let landed = match &one.doing {
            Doing::Get { expected, .. } => self.own_bytes(one.slot, expected.len()),
            _ => Vec::new(),
        };
        one.doing.check(one.target, value, &landed, oracle)
    }

    fn target(&mut self, rank: Rank) -> &mut Target {
        let stripe = self.work.layout.stripe as usize;
        self.targets.entry(rank).or_insert_with(|| Target { model: vec![0; stripe], ..Target::default() })
    }

    fn own_bytes(&self, slot: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        if let Some(own) = &self.own {
            let _ = own.memory.read((slot * self.slot_len()) as u64, &mut bytes);
        }
        bytes
    }

    /// Nobody may touch the slot from now on: what is still sent or placed there shows.
    fn free(&mut self, slot: usize) -> Result<(), String> {
        let len = self.slot_len();
        let Some(own) = &mut self.own else { return Ok(()) };
        own.memory.fill((slot * len) as u64, len as u64, IDLE).map_err(|error| error.to_string())?;
        own.free.insert(0, slot);
        Ok(())
    }

    /// A slot, which must be as it was left.
    fn take_slot(&mut self) -> Result<Option<usize>, String> {
        let Some(slot) = self.own.as_mut().and_then(|own| own.free.pop()) else { return Ok(None) };
        match self.own_bytes(slot, self.slot_len()).iter().all(|byte| *byte == IDLE) {
            true => Ok(Some(slot)),
            false => Err("memory of a settled operation was written afterwards".to_owned()),
        }
    }

    fn segment(&self, slot: usize, len: usize) -> Segment {
        let region = self.own.as_ref().map_or(0, |own| own.region);
        Segment { region, offset: (slot * self.slot_len()) as u64, len: len as u64 }
    }

    /// Some range of our stripe at the target that no operation under way uses.
    fn range(&mut self, target: Rank) -> Option<Range<u64>> {
        let Layout { stripe, .. } = self.work.layout;
        let len = self.random.spread(0, (self.work.longest as u64).min(stripe));
        let start = self.work.layout.stripe_at() + self.random.below(stripe - len + 1);
        let range = start..start + len;
        let mut used = self.under_way.iter().filter(|one| one.target == target).filter_map(|one| one.doing.range());
        (!used.any(|used| used.start < range.end && range.start < used.end)).then_some(range)
    }

    fn begin(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        let target = self.random.below(u64::from(context.nodes)) as u32;
        self.begun += 1;
        if context.is_casualty(target) && self.target(target).found.len() < NAMES.len() {
            return Ok(());
        }
        let Some(slot) = self.take_slot()? else { return Ok(()) };
        let missing = NAMES.into_iter().find(|name| !self.target(target).found.contains_key(name));
        let asked = match missing {
            Some(name) => Some((Doing::Lookup(name), Request::Lookup { at: target, name: name.to_owned() })),
            None => match self.random.below(20) {
                0..=5 => self.put(context, target, slot),
                6..=8 => self.get(context, target, slot),
                9..=11 => self.add(context, target),
                12 | 13 => self.exchange(context, target),
                14 | 15 => Some(self.accumulate(context, target, slot)),
                16 | 17 => Some(self.push(context, target)),
                18 => self.nonsense(target),
                _ => {
                    let name = format!("nothing {}", self.begun);
                    Some((Doing::LookupNothing, Request::Lookup { at: target, name }))
                }
            },
        };
        let Some((doing, request)) = asked else { return self.free(slot) };
        context.trace.event(context.now, context.me, format_args!("begins {} at node {target}", doing.name()));
        let completion = context.submit(request, None);
        let told = match &doing {
            Doing::Put { tell: Some(id), .. } => {
                let body = Body::Inline(context.oracle.messages.body_of(*id));
                Some(context.submit(Request::Send { to: target, class: Class::Ordered, tag: id.tag(), body }, None))
            }
            _ => None,
        };
        self.under_way.push(UnderWay {
            target,
            doing,
            completion,
            since: context.now,
            slot,
            settled: false,
            cancelled: false,
            told,
        });
        Ok(())
    }

    fn key(&mut self, target: Rank, name: &str) -> u64 {
        self.target(target).found.get(name).map_or(0, |published| published.key)
    }

    fn put(&mut self, context: &mut Context<'_>, target: Rank, slot: usize) -> Option<(Doing, Request)> {
        let range = self.range(target)?;
        let len = (range.end - range.start) as usize;
        let bytes = bytes_of(self.random.word(), len);
        let signal = self.random.chance(0.3).then(|| self.signal(context, target, &range, &bytes)).flatten();
        let (name, life) = (context.me, context.life);
        let tell = (signal.is_none() && self.random.chance(0.3)).then(|| {
            let claim = Claim { offset: range.start, bytes: bytes.clone() };
            context.oracle.messages.post((name, life), target, Class::Ordered, 9, Some(claim)).0
        });
        let body = if len == 0 {
            Body::Empty
        } else if self.random.chance(0.6) {
            let segment = self.segment(slot, len);
            if let Some(own) = &self.own {
                let _ = own.memory.write(segment.offset, &bytes);
            }
            Body::Segment(segment)
        } else {
            Body::Inline(bytes.clone())
        };
        let (key, words) = (self.key(target, "arena"), self.key(target, "words"));
        let asked = signal.map(|(word, add)| Signal { key: words, offset: word, add });
        let request = Request::Put { to: target, key, offset: range.start, body, signal: asked };
        Some((Doing::Put { range, bytes, signal: signal.map(|(word, _)| word), tell }, request))
    }

    /// The word and number of a signal that no put under way uses.
    fn signal(&mut self, context: &mut Context<'_>, target: Rank, range: &Range<u64>, bytes: &[u8]) -> Option<(u64, u64)> {
        let number = self.random.below(SIGNALS);
        let word = self.work.layout.signal_at(number);
        let in_use =
            |one: &UnderWay| one.target == target && matches!(one.doing, Doing::Put { signal: Some(used), .. } if used == word);
        if self.under_way.iter().any(in_use) {
            return None;
        }
        let add = self.random.spread(1, 1 << 40);
        let last = &mut self.target(target).signals[number as usize];
        *last = last.wrapping_add(add);
        let raised = *last;
        let watch = Watch { word, raised, offset: range.start, bytes: bytes.to_vec() };
        context.oracle.memory.watch(target, watch);
        Some((word, add))
    }

    fn get(&mut self, context: &mut Context<'_>, target: Rank, slot: usize) -> Option<(Doing, Request)> {
        let (name, offset, expected, range) = if self.random.chance(0.5) && !self.target(target).unknown {
            let range = self.range(target)?;
            let at = (range.start - self.work.layout.stripe_at()) as usize;
            let len = (range.end - range.start) as usize;
            let expected = self.target(target).model[at..at + len].to_vec();
            ("arena", range.start, expected, Some(range))
        } else {
            let len = self.random.spread(0, self.work.longest.min(FIXED_LEN) as u64) as usize;
            let at = self.random.index(FIXED_LEN - len + 1);
            ("fixed", at as u64, context.oracle.memory.fixed(target, FIXED_LEN)[at..at + len].to_vec(), None)
        };
        let into = self.segment(slot, expected.len());
        let key = self.key(target, name);
        Some((Doing::Get { expected, range }, Request::Get { from: target, key, offset, into }))
    }
}

/// Is nothing more to be waited for of the message sent behind a put: has it arrived, or failed?
fn settled_message(one: &UnderWay, context: &mut Context<'_>) -> Result<bool, String> {
    let (Doing::Put { tell: Some(id), .. }, Some(told)) = (&one.doing, &one.told) else { return Ok(true) };
    if let Some(Err(failure)) = told.outcome() {
        context.oracle.excuse(&format!("{id:?}"), (context.me, context.life), &failure)?;
        context.oracle.messages.failed(*id);
        return Ok(true);
    }
    // Acknowledged and held back at a node that was killed, it neither arrives nor fails.
    let lost = told.is_done() && context.is_casualty(one.target);
    Ok(lost || context.oracle.messages.is_delivered(*id))
}

/// Nothing is known there under this key or name.
fn is_unknown(failure: &Failure) -> bool {
    matches!(failure, Failure::Remote(RmaError::UnknownName { .. } | RmaError::Refused(Refusal::UnknownKey)))
}

impl Program for Accessor {
    fn poll(&mut self, context: &mut Context<'_>) -> Result<Progress, String> {
        self.prepare(context)?;
        let settled = self.settle(context)?;
        if self.begun >= self.work.count || self.under_way.len() >= self.work.in_flight {
            return Ok(Progress { acted: settled, wake: None });
        }
        if context.now < self.resume {
            return Ok(Progress { acted: settled, wake: Some(self.resume) });
        }
        for _ in 0..self.random.between(1, 4) {
            if self.begun < self.work.count && self.under_way.len() < self.work.in_flight {
                self.begin(context)?;
            }
        }
        if self.random.chance(0.2) {
            self.resume = context.now + Duration::from_nanos(self.random.spread(1_000, 10_000_000));
        }
        Ok(Progress::ACTED)
    }

    fn is_finished(&self) -> bool {
        self.begun >= self.work.count && self.under_way.is_empty()
    }

    fn waits_since(&self) -> Option<Time> {
        self.under_way.iter().map(|one| one.since).min()
    }

    fn conclude(&self, me: Rank, oracle: &Oracle) -> Result<(), String> {
        for (rank, target) in self.targets.iter().filter(|(rank, target)| !target.unknown && !oracle.is_lost_to(me, **rank)) {
            oracle.memory.holds("in the end", *rank, self.work.layout.stripe_at(), &target.model)?;
        }
        let idle = self.own.as_ref().is_none_or(|own| {
            let all = self.work.in_flight * self.slot_len();
            let mut bytes = vec![0; all];
            own.memory.read(0, &mut bytes).is_err() || bytes.iter().all(|byte| *byte == IDLE)
        });
        if idle { Ok(()) } else { Err("memory of a settled operation was written afterwards".to_owned()) }
    }

    fn describe(&self) -> String {
        let waiting: Vec<_> = self
            .under_way
            .iter()
            .take(8)
            .map(|one| format!("{} at node {} since {} ns", one.doing.name(), one.target, one.since.0))
            .collect();
        format!(
            "accessor: {} of {} begun, {} under way: {}",
            self.begun,
            self.work.count,
            self.under_way.len(),
            waiting.join("; ")
        )
    }
}
