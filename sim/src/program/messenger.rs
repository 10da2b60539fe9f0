//! A thread that sends messages of all classes and sizes to all nodes.

use super::interface::{Context, Program, Progress};
use crate::oracle::MessageId;
use crate::random::Random;
use oikaze_engine::{Completion, Request};
use oikaze_os::memory::Region;
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::{Body, Class, Segment};
use std::sync::Arc;
use std::time::Duration;

/// Amount of a messenger's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Number of messages.
    pub count: u64,
    /// Maximum number of unsettled messages.
    pub in_flight: usize,
    /// Bytes of the longest message.
    pub longest: usize,
}

/// Source of a message that is gathered from memory.
#[derive(Debug)]
struct Source {
    memory: Region,
    slot: u32,
}

#[derive(Debug)]
struct InFlight {
    id: MessageId,
    completion: Arc<Completion>,
    since: Time,
    source: Option<Source>,
}

/// Thread that sends messages.
#[derive(Debug)]
pub struct Messenger {
    mail: Mail,
    sent: u64,
    in_flight: Vec<InFlight>,
    resume: Time,
    random: Random,
}

impl Messenger {
    /// Makes a thread that sends this much.
    #[must_use]
    pub fn new(mail: Mail, random: Random) -> Messenger {
        Messenger { mail, sent: 0, in_flight: Vec::new(), resume: Time::default(), random }
    }

    fn settle(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        let before = self.in_flight.len();
        let mut at = 0;
        while let Some(one) = self.in_flight.get(at) {
            let Some(outcome) = one.completion.outcome() else {
                at += 1;
                continue;
            };
            let one = self.in_flight.swap_remove(at);
            context.event(format_args!("settled {:?} {}", one.id, outcome.is_ok()));
            context.account("message", one.id.to, one.since, &outcome);
            match outcome {
                Ok(_) => context.oracle.messages.settled(one.id)?,
                Err(failure) => {
                    context.oracle.excuse(
                        &format!("{:?}", one.id),
                        (context.me, context.life),
                        &failure,
                    )?;
                    context.oracle.messages.failed(one.id);
                }
            }
            if let Some(source) = one.source {
                // The message is settled, so the program may write other bytes there.
                let _ = source.memory.fill(0, source.memory.len() as u64, 0xEE);
                if let Some(region) = context.engine.memory().id(source.slot) {
                    context.tell(Request::Remove { region });
                }
            }
        }
        Ok(self.in_flight.len() < before)
    }

    fn length(&mut self) -> usize {
        let longest = self.mail.longest as u64;
        let len = match self.random.below(8) {
            0 => 0,
            1..=4 => self.random.spread(1, 200),
            5 | 6 => self.random.spread(1, 4000),
            _ => self.random.spread(1000, longest.max(1000)),
        };
        len.min(longest) as usize
    }

    fn send(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        let class =
            *self.random.pick(&[Class::Ordered, Class::Unordered, Class::Unordered, Class::Sync]);
        let to = self.random.below(u64::from(context.nodes)) as u32;
        let len = self.length();
        let (id, body) =
            context.oracle.messages.post((context.me, context.life), to, class, len, None);
        let source =
            if len > 0 && self.random.chance(0.4) { Some(source(context, &body)?) } else { None };
        let body = match &source {
            Some(source) => {
                Body::Segment(Segment { region: source.slot, offset: 0, len: len as u64 })
            }
            None if body.is_empty() => Body::Empty,
            None => Body::Inline(body),
        };
        context.event(format_args!("sends {id:?} {class:?} {len} bytes"));
        let completion = context.submit(Request::Send { to, class, tag: id.tag(), body }, None);
        self.sent += 1;
        self.in_flight.push(InFlight { id, completion, since: context.now, source });
        Ok(())
    }
}

fn source(context: &mut Context<'_>, body: &[u8]) -> Result<Source, String> {
    let memory = Region::private(body.len()).map_err(|error| error.to_string())?;
    memory.write(0, body).map_err(|error| error.to_string())?;
    let slot =
        context.engine.memory().insert_local(memory.clone()).map_err(|error| error.to_string())?;
    Ok(Source { memory, slot })
}

impl Program for Messenger {
    fn poll(&mut self, context: &mut Context<'_>) -> Result<Progress, String> {
        let settled = self.settle(context)?;
        if self.sent == self.mail.count || self.in_flight.len() >= self.mail.in_flight {
            return Ok(Progress { acted: settled, wake: None });
        }
        if context.now < self.resume {
            return Ok(Progress { acted: settled, wake: Some(self.resume) });
        }
        for _ in 0..self.random.between(1, 8) {
            if self.sent < self.mail.count && self.in_flight.len() < self.mail.in_flight {
                self.send(context)?;
            }
        }
        if self.random.chance(0.2) {
            self.resume = context.now + Duration::from_nanos(self.random.spread(1_000, 20_000_000));
        }
        Ok(Progress::ACTED)
    }

    fn is_finished(&self) -> bool {
        self.sent == self.mail.count && self.in_flight.is_empty()
    }

    fn waits_since(&self) -> Option<Time> {
        self.in_flight.iter().map(|one| one.since).min()
    }

    fn describe(&self) -> String {
        let waiting: Vec<_> = self
            .in_flight
            .iter()
            .take(8)
            .map(|one| format!("{:?} since {} ns", one.id, one.since.0))
            .collect();
        format!(
            "messenger: {} of {} sent, {} unsettled: {}",
            self.sent,
            self.mail.count,
            self.in_flight.len(),
            waiting.join("; ")
        )
    }
}
