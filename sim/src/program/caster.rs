//! A thread that sends each of its parcels to several nodes at once, as the root of a broadcast
//! does (WIND-13.1).

use super::interface::{Context, Program, Progress};
use crate::oracle::CastId;
use crate::random::Random;
use oikaze_engine::{Completion, Request, tracked};
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{CollectiveCall, ParcelHead, ParcelPurpose, WHOLE};
use oikaze_protocol::time::Time;
use oikaze_protocol::wind::Body;
use std::sync::Arc;
use std::time::Duration;

/// Maximum number of parcels that have not reached all their receivers.
const IN_FLIGHT: usize = 4;

/// Amount of a caster's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Casting {
    /// Number of parcels.
    pub count: u64,
    /// Bytes of the longest parcel.
    pub longest: u64,
}

#[derive(Debug)]
struct InFlight {
    id: CastId,
    to: Rank,
    completion: Arc<Completion>,
    since: Time,
}

/// Thread that sends parcels to several nodes.
#[derive(Debug)]
pub struct Caster {
    casting: Casting,
    sent: u64,
    in_flight: Vec<InFlight>,
    resume: Time,
    random: Random,
}

impl Caster {
    /// Makes a thread that sends this much.
    #[must_use]
    pub fn new(casting: Casting, random: Random) -> Caster {
        Caster { casting, sent: 0, in_flight: Vec::new(), resume: Time::default(), random }
    }

    fn settle(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        let before = self.in_flight.len();
        for one in std::mem::take(&mut self.in_flight) {
            match one.completion.outcome() {
                None => self.in_flight.push(one),
                Some(Ok(_)) => context.oracle.casts.settled(one.id, one.to)?,
                Some(Err(failure)) => {
                    let viewer = (context.me, context.life);
                    context.oracle.excuse(&format!("{:?}", one.id), viewer, &failure)?;
                }
            }
        }
        Ok(self.in_flight.len() < before)
    }

    fn send(&mut self, context: &mut Context<'_>) {
        self.sent += 1;
        let others = (0..context.nodes).filter(|rank| *rank != context.me);
        let mut to: Vec<Rank> = others.filter(|rank| !context.is_casualty(*rank)).collect();
        if to.len() > 2 && self.random.chance(0.2) {
            to.swap_remove(self.random.index(to.len()));
        }
        let len = self.random.spread(16, self.casting.longest) as usize;
        let (id, body) = context.oracle.casts.post(context.me, len);
        context.event(format_args!("sends {id:?} of {len} bytes to {to:?}"));
        let (purpose, call) = (ParcelPurpose::Data, CollectiveCall::SHRINK);
        let head = ParcelHead { purpose, team: 0, number: id.number, round: WHOLE, call };
        let body = Body::Inline(body).into_shared();
        let mut submissions = Vec::new();
        for to in to {
            let request = Request::Parcel { to, head, body: body.clone() };
            let (submission, completion) = tracked(request, None);
            submissions.push(submission);
            self.in_flight.push(InFlight { id, to, completion, since: context.now });
        }
        context.engine.submit_together(submissions, context.now);
    }
}

impl Program for Caster {
    fn poll(&mut self, context: &mut Context<'_>) -> Result<Progress, String> {
        let settled = self.settle(context)?;
        let room = IN_FLIGHT * (context.nodes as usize - 1);
        if self.sent == self.casting.count || self.in_flight.len() >= room {
            return Ok(Progress { acted: settled, wake: None });
        }
        if context.now < self.resume {
            return Ok(Progress { acted: settled, wake: Some(self.resume) });
        }
        self.send(context);
        if self.random.chance(0.5) {
            self.resume = context.now + Duration::from_nanos(self.random.spread(1_000, 20_000_000));
        }
        Ok(Progress::ACTED)
    }

    fn is_finished(&self) -> bool {
        self.sent == self.casting.count && self.in_flight.is_empty()
    }

    fn waits_since(&self) -> Option<Time> {
        self.in_flight.iter().map(|one| one.since).min()
    }

    fn describe(&self) -> String {
        let waiting: Vec<_> = self
            .in_flight
            .iter()
            .take(8)
            .map(|one| format!("{:?} to {}", one.id, one.to))
            .collect();
        let (sent, count) = (self.sent, self.casting.count);
        format!("caster: {sent} of {count} sent, waits for {}", waiting.join("; "))
    }
}
