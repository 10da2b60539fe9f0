//! A thread that uses other nodes' memory: puts and gets of every shape, signals, fences and
//! flushes, atomics, lookups, and requests that must be refused.

mod nonsense;
mod order;
mod pushes;
mod shape;
mod sums;
mod transfers;
mod words;

use super::doing::{Doing, UnderWay};
use super::interface::{Context, Program, Progress};
use super::layout::{Layout, SIGNALS};
use crate::oracle::Oracle;
use crate::random::{Random, first_other};
use oikaze_engine::{Completion, Failure, Request, Value};
use oikaze_os::memory::Region;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{Published, RmaError};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class, Refusal, Segment};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Fill byte of an operation's own memory while no operation uses the memory.
const IDLE: u8 = 0xA5;
/// Names of the regions that every node publishes.
const NAMES: [&str; 6] = ["fixed", "arena", "words", "sums", "fifo", "closed"];

/// Amount of an accessor's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Number of operations.
    pub count: u64,
    /// Set if the thread goes on after `count` operations until a node has died.
    pub until_death: bool,
    /// Maximum number of operations in flight.
    pub in_flight: usize,
    /// Bytes of the longest operation.
    pub longest: usize,
    /// Part of every region that belongs to the thread.
    pub layout: Layout,
}

/// Memory of this node for sources and destinations. Each operation in flight uses one slot.
#[derive(Debug)]
struct OwnRegion {
    memory: Region,
    region: u32,
    free: Vec<usize>,
}

/// State that the thread keeps for each target node.
#[derive(Debug, Default)]
struct Target {
    found: BTreeMap<&'static str, Published>,
    /// Expected content of this thread's stripe of the node's arena.
    model: Vec<u8>,
    /// Set if some bytes are unknown, because a put failed.
    unknown: bool,
    /// Last value of each signal.
    signals: [u64; SIGNALS as usize],
}

/// An operation that is to begin.
struct Asked {
    /// Name of the operation in the oracle's counts.
    kind: &'static str,
    doing: Doing,
    ask: Ask,
    /// Completion of an operation before this one, with a fence between the two.
    earlier: Option<Arc<Completion>>,
}

/// Request to the engine.
enum Ask {
    One(Request),
    /// Several requests with one completion.
    List(Vec<Request>),
}

impl From<(Doing, Request)> for Asked {
    fn from((doing, request): (Doing, Request)) -> Asked {
        Asked { kind: doing.kind(), doing, ask: Ask::One(request), earlier: None }
    }
}

/// Thread that uses other nodes' memory.
#[derive(Debug)]
pub struct Accessor {
    work: Work,
    begun: u64,
    /// Set while more operations are to begin.
    unfinished: bool,
    own: Option<OwnRegion>,
    targets: BTreeMap<Rank, Target>,
    under_way: Vec<UnderWay>,
    resume: Time,
    random: Random,
}

impl Accessor {
    /// Makes a thread with this amount of work.
    #[must_use]
    pub fn new(work: Work, random: Random) -> Accessor {
        let (targets, under_way) = (BTreeMap::new(), Vec::new());
        Accessor {
            work,
            begun: 0,
            unfinished: true,
            own: None,
            targets,
            under_way,
            resume: Time::default(),
            random,
        }
    }

    fn prepare(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        if self.own.is_some() {
            return Ok(());
        }
        let len = self.work.in_flight * self.slot_len();
        let memory = Region::private(len).map_err(|error| error.to_string())?;
        memory.fill(0, len as u64, IDLE).map_err(|error| error.to_string())?;
        // Destinations of gets must be writable for answers. No peer can reach the memory, because
        // no peer knows its key.
        let region = context
            .engine
            .memory()
            .insert_local(memory.clone())
            .map_err(|error| error.to_string())?;
        self.own =
            Some(OwnRegion { memory, region, free: (0..self.work.in_flight).rev().collect() });
        Ok(())
    }

    /// Returns the length of a slot, which ends with bytes that no operation may touch.
    fn slot_len(&self) -> usize {
        self.work.longest + 64
    }

    fn settle(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        let mut acted = false;
        for mut one in std::mem::take(&mut self.under_way) {
            if matches!(one.doing, Doing::Get { .. })
                && !one.cancelled
                && !one.settled
                && self.random.chance(0.01)
            {
                one.cancelled = true;
                context.tell(Request::Cancel { completion: Arc::clone(&one.completion) });
                acted = true;
            }
            if let Some(outcome) = one.earlier.as_ref().and_then(|earlier| earlier.outcome()) {
                one.earlier = None;
                if let Err(failure) = outcome {
                    self.failed(&one, &failure, context)?;
                }
            }
            if let Some(outcome) = one.completion.outcome().filter(|_| !one.settled) {
                one.settled = true;
                acted = true;
                let ok = outcome.is_ok();
                context.event(format_args!(
                    "settled {} at node {}: {ok}",
                    one.doing.name(),
                    one.target
                ));
                context.account(one.kind, one.target, one.since, &outcome);
                match outcome {
                    Ok(_) if one.earlier.is_some() => {
                        return Err(format!(
                            "{} is done, and what was before its fence is not",
                            one.doing.name()
                        ));
                    }
                    Ok(value) => self.succeeded(&one, &value, context.oracle)?,
                    Err(failure) if one.doing.wants(one.target, &failure, context.oracle)? => {}
                    Err(Failure::Cancelled) if one.cancelled => {}
                    Err(failure) => self.failed(&one, &failure, context)?,
                }
                self.free(one.slot)?;
            }
            let told = settled_message(&one, context)?;
            if one.settled && told && one.earlier.is_none() {
                acted = true;
            } else {
                self.under_way.push(one);
            }
        }
        Ok(acted)
    }

    /// Handles a failed operation. Only the end of a node may be the reason, and the bytes that it
    /// wrote are unknown.
    fn failed(
        &mut self,
        one: &UnderWay,
        failure: &Failure,
        context: &mut Context<'_>,
    ) -> Result<(), String> {
        self.target(one.target).unknown = true;
        // The process that replaces a dead node publishes no regions.
        if context.is_casualty(one.target) && is_unknown(failure) {
            return Ok(());
        }
        let what = format!("{} at node {}", one.doing.name(), one.target);
        context.oracle.excuse(&what, (context.me, context.life), failure)
    }

    fn succeeded(
        &mut self,
        one: &UnderWay,
        value: &Value,
        oracle: &mut Oracle,
    ) -> Result<(), String> {
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
        self.targets
            .entry(rank)
            .or_insert_with(|| Target { model: vec![0; stripe], ..Target::default() })
    }

    fn own_bytes(&self, slot: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        if let Some(own) = &self.own {
            let _ = own.memory.read((slot * self.slot_len()) as u64, &mut bytes);
        }
        bytes
    }

    /// Frees a slot and fills it with [`IDLE`]. Later checks notice bytes that are sent from the
    /// slot or placed in it after this.
    fn free(&mut self, slot: usize) -> Result<(), String> {
        let len = self.slot_len();
        let Some(own) = &mut self.own else { return Ok(()) };
        own.memory
            .fill((slot * len) as u64, len as u64, IDLE)
            .map_err(|error| error.to_string())?;
        own.free.insert(0, slot);
        Ok(())
    }

    /// Takes a free slot. Fails if the slot was written since it was freed.
    fn take_slot(&mut self) -> Result<Option<usize>, String> {
        let Some(slot) = self.own.as_mut().and_then(|own| own.free.pop()) else { return Ok(None) };
        match first_other(&self.own_bytes(slot, self.slot_len()), IDLE) {
            None => Ok(Some(slot)),
            Some(_) => Err("memory of a settled operation was written afterwards".to_owned()),
        }
    }

    fn segment(&self, slot: usize, len: usize) -> Segment {
        let region = self.own.as_ref().map_or(0, |own| own.region);
        Segment { region, offset: (slot * self.slot_len()) as u64, len: len as u64 }
    }

    fn begin(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        let target = self.random.below(u64::from(context.nodes)) as u32;
        self.begun += 1;
        if context.is_casualty(target) && self.target(target).found.len() < NAMES.len() {
            return Ok(());
        }
        let Some(slot) = self.take_slot()? else { return Ok(()) };
        let missing = match self.missing(target) {
            // Every region that is not known yet is being looked up already.
            Some(None) => return self.free(slot),
            missing => missing.flatten(),
        };
        let asked = match missing {
            Some(name) => Some(
                (Doing::Lookup(name), Request::Lookup { at: target, name: name.to_owned() }).into(),
            ),
            None => match self.random.below(22) {
                0..=5 => self.put(context, target, slot),
                6..=9 => self.get(context, target, slot),
                10..=12 => Some(self.add(context, target).into()),
                13 | 14 => Some(self.exchange(context, target).into()),
                15 | 16 => Some(self.accumulate(context, target, slot).into()),
                17 | 18 => Some(self.push(context, target).into()),
                19 => Some(self.nonsense(target).into()),
                20 => Some(self.flush(target)),
                _ => {
                    let name = format!("nothing {}", self.begun);
                    Some((Doing::LookupNothing, Request::Lookup { at: target, name }).into())
                }
            },
        };
        let Some(Asked { kind, doing, ask, earlier }) = asked else { return self.free(slot) };
        context.event(format_args!("begins {} at node {target}", doing.name()));
        let completion = match ask {
            Ask::One(request) => context.submit(request, None),
            Ask::List(requests) => context.submit_list(requests),
        };
        let told = match &doing {
            Doing::Put { tell: Some(id), .. } => {
                let body = Body::Inline(context.oracle.messages.body_of(*id));
                Some(context.submit(
                    Request::Send { to: target, class: Class::Ordered, tag: id.tag(), body },
                    None,
                ))
            }
            _ => None,
        };
        let (since, settled, cancelled) = (context.now, false, false);
        self.under_way.push(UnderWay {
            target,
            kind,
            doing,
            completion,
            since,
            slot,
            settled,
            cancelled,
            told,
            earlier,
        });
        Ok(())
    }

    /// Returns `None` if all regions of this node are known. Otherwise returns the name of a region
    /// that was not looked up yet, or `Some(None)` if there is none.
    fn missing(&mut self, target: Rank) -> Option<Option<&'static str>> {
        let found = &self.target(target).found;
        let missing: Vec<_> = NAMES.into_iter().filter(|name| !found.contains_key(name)).collect();
        let asked = |name: &str| {
            self.under_way.iter().any(|one| one.target == target && one.doing.is_lookup_of(name))
        };
        (!missing.is_empty()).then(|| missing.into_iter().find(|name| !asked(name)))
    }

    fn key(&mut self, target: Rank, name: &str) -> u64 {
        self.target(target).found.get(name).map_or(0, |published| published.key)
    }
}

/// Returns `false` if the message sent behind a put has no outcome yet. The outcome is that the
/// message has arrived or has failed.
fn settled_message(one: &UnderWay, context: &mut Context<'_>) -> Result<bool, String> {
    let (Doing::Put { tell: Some(id), .. }, Some(told)) = (&one.doing, &one.told) else {
        return Ok(true);
    };
    match told.outcome() {
        None => return Ok(false),
        Some(Ok(_)) => context.oracle.messages.settled(*id)?,
        Some(Err(failure)) => {
            context.oracle.excuse(&format!("{id:?}"), (context.me, context.life), &failure)?;
            context.oracle.messages.failed(*id);
        }
    }
    Ok(true)
}

/// Returns `true` if the node knows no region of this key or name.
fn is_unknown(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Remote(RmaError::UnknownName { .. } | RmaError::Refused(Refusal::UnknownKey))
    )
}

impl Program for Accessor {
    fn poll(&mut self, context: &mut Context<'_>) -> Result<Progress, String> {
        self.prepare(context)?;
        let settled = self.settle(context)?;
        self.unfinished = self.begun < self.work.count
            || (self.work.until_death && context.oracle.killed.is_none());
        if !self.unfinished || self.under_way.len() >= self.work.in_flight {
            return Ok(Progress { acted: settled, wake: None });
        }
        if context.now < self.resume {
            return Ok(Progress { acted: settled, wake: Some(self.resume) });
        }
        for _ in 0..self.random.between(1, 4) {
            if self.under_way.len() < self.work.in_flight {
                self.begin(context)?;
            }
        }
        if self.random.chance(0.2) {
            self.resume = context.now + Duration::from_nanos(self.random.spread(1_000, 10_000_000));
        }
        Ok(Progress::ACTED)
    }

    fn is_finished(&self) -> bool {
        !self.unfinished && self.under_way.is_empty()
    }

    fn waits_since(&self) -> Option<Time> {
        self.under_way.iter().map(|one| one.since).min()
    }

    fn conclude(&self, me: Rank, oracle: &Oracle) -> Result<(), String> {
        for (rank, target) in self
            .targets
            .iter()
            .filter(|(rank, target)| !target.unknown && !oracle.is_lost_to(me, **rank))
        {
            oracle.memory.holds(
                "in the end",
                *rank,
                self.work.layout.stripe_at(),
                &target.model,
            )?;
        }
        let idle = self.own.as_ref().is_none_or(|own| {
            let all = self.work.in_flight * self.slot_len();
            let mut bytes = vec![0; all];
            own.memory.read(0, &mut bytes).is_err() || bytes.iter().all(|byte| *byte == IDLE)
        });
        if idle {
            Ok(())
        } else {
            Err("memory of a settled operation was written afterwards".to_owned())
        }
    }

    fn describe(&self) -> String {
        let waiting: Vec<_> = self
            .under_way
            .iter()
            .take(8)
            .map(|one| {
                format!("{} at node {} since {} ns", one.doing.name(), one.target, one.since.0)
            })
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
