//! One collective of one team: the steps of its plan.

use super::core::Doom;
use super::exchange::{Contradiction, Exchange, Obstacle};
use super::mail::Mail;
use super::slot::{CollectiveFailure, Slot};
use super::stage::{End, Stage};
use super::work::UntypedResult;
use crate::collective::run::core::TeamCore;
use crate::panics::message_of_panic;
use oikaze_engine::Body;
use oikaze_os::shm::SLOT_BYTES;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{
    Arrival, CollectiveCall, ParcelPurpose, Part, Plan, PlanStep, RoundNumber,
};
use oikaze_protocol::limits::MESSAGE_MAX;
use oikaze_runtime::node::Node;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

/// Position of the number of a collective's plan in the number of a round.
const STAGE_SHIFT: u32 = 24;

/// A collective that this rank has called.
pub(super) struct CollectiveRun {
    pub number: u64,
    pub call: CollectiveCall,
    /// Number of collectives of coherence that this rank had called before.
    pub after: u64,
    /// `None`: it has ended.
    stage: Option<Box<Stage>>,
    /// Place of the outcome.
    slot: Arc<Slot>,
    /// Number of plans before the present one.
    stages: RoundNumber,
    plan: Option<Plan>,
    next: usize,
    /// Its part in the slots of the team.
    in_slots: InSlots,
    /// Reason for which it fails as soon as it is its turn.
    pub doomed: Option<Doom>,
}

/// Part of a collective in the slots of its team.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InSlots {
    /// This rank has not come to the collective there.
    NotCome,
    /// This rank has come.
    Come,
    /// The values go by parcels.
    Left,
}

/// Result of running a task.
pub(super) enum Progress {
    /// It has ended well.
    Ended,
    /// It waits for this rank, or for a parcel of any rank.
    Waits(Option<Rank>),
    /// It cannot go on.
    Fails(CollectiveFailure),
    /// A rank has called something else, in this collective or before.
    Contradicts(Contradiction),
}

impl CollectiveRun {
    pub fn new(
        number: u64,
        call: CollectiveCall,
        (stage, slot): (Box<Stage>, Arc<Slot>),
        after: u64,
    ) -> CollectiveRun {
        CollectiveRun {
            number,
            call,
            after,
            stage: Some(stage),
            slot,
            stages: 0,
            plan: None,
            next: 0,
            in_slots: InSlots::NotCome,
            doomed: None,
        }
    }

    /// Returns a number that changes with each step.
    pub fn step(&self) -> usize {
        self.next + ((self.stages as usize) << STAGE_SHIFT)
    }

    /// Settles with a failure.
    pub fn fail(&mut self, failure: CollectiveFailure) -> Option<Waker> {
        self.stage = None;
        self.slot.settle(Err(failure))
    }

    /// Runs steps until one has to wait.
    pub fn run(
        &mut self,
        team: &TeamCore,
        node: &Node,
        (mail, exchange): (&mut Mail, Option<&mut Exchange>),
        wakers: &mut Vec<Waker>,
    ) -> Progress {
        // A function of the program may panic.
        match catch_unwind(AssertUnwindSafe(|| {
            self.run_steps(team, node, (mail, exchange), wakers)
        })) {
            Ok(progress) => progress,
            Err(payload) => Progress::Fails(CollectiveFailure::Mistake(format!(
                "the operator panicked on rank {}: {}. Mend the function that was given as operator",
                team.me(),
                message_of_panic(payload.as_ref())
            ))),
        }
    }

    fn run_steps(
        &mut self,
        team: &TeamCore,
        node: &Node,
        (mail, exchange): (&mut Mail, Option<&mut Exchange>),
        wakers: &mut Vec<Waker>,
    ) -> Progress {
        if let Some(exchange) = exchange.filter(|_| self.in_slots != InSlots::Left) {
            match self.run_in_slots(exchange) {
                Ok(Some(result)) => {
                    wakers.extend(self.slot.settle(Ok(result)));
                    return Progress::Ended;
                }
                Ok(None) => {
                    self.in_slots = InSlots::Left;
                    if let Some(stage) = &mut self.stage {
                        stage.leave_slots();
                    }
                }
                Err(Obstacle::Waits(rank)) => return Progress::Waits(Some(rank)),
                Err(Obstacle::Broken(rank)) => return Progress::Fails(broken(rank)),
                Err(Obstacle::Contradiction(contradiction)) => {
                    return Progress::Contradicts(contradiction);
                }
            }
        }
        loop {
            let Some(stage) = &mut self.stage else { return Progress::Ended };
            let plan = match &self.plan {
                Some(plan) => plan,
                None => {
                    let of_others = || mail.of(self.number).find_map(|(_, call)| call.count);
                    let said = self.call.count.or_else(of_others);
                    match stage.plan(said) {
                        Ok(Some(plan)) => {
                            let bytes = plan.longest().saturating_mul(stage.size());
                            if bytes as u64 > MESSAGE_MAX {
                                return Progress::Fails(too_long(bytes));
                            }
                            self.call.count = self.call.count.or(said);
                            self.plan.insert(plan)
                        }
                        Ok(None) => return Progress::Waits(stage.first_sender()),
                        Err(why) => return Progress::Fails(CollectiveFailure::Mistake(why)),
                    }
                }
            };
            let Some(&(round, step)) = plan.steps.get(self.next) else {
                let output = plan.output;
                let Some(stage) = self.stage.take() else { return Progress::Ended };
                match stage.end(output) {
                    Ok(End::Result(result)) => {
                        wakers.extend(self.slot.settle(Ok(result)));
                        return Progress::Ended;
                    }
                    Ok(End::Next(stage)) => {
                        (self.stage, self.plan, self.next) = (Some(stage), None, 0);
                        self.stages += 1;
                        continue;
                    }
                    Err(why) => return Progress::Fails(CollectiveFailure::Mistake(why)),
                }
            };
            let round = self.stages << STAGE_SHIFT | round;
            match step {
                PlanStep::Send { to, part } => {
                    let len = part.len.saturating_mul(stage.size());
                    if !mail.may_send(to, len) {
                        return Progress::Waits(Some(to));
                    }
                    let purpose = ParcelPurpose::Data;
                    let head = team.head(purpose, self.number, round, self.call);
                    team.send_part(node, to, head, stage.bytes(part));
                }
                PlanStep::Receive { from, part, how } => {
                    let Some(body) = mail.take(self.number, round, from) else {
                        return Progress::Waits(Some(from));
                    };
                    mail.has_read(from, body.len());
                    if let Err(failure) = receive(stage, part, how, body, from) {
                        return Progress::Fails(failure);
                    }
                    if let Some(bytes) = mail.report(from) {
                        team.report_credit(node, from, bytes, self.call);
                    }
                }
                PlanStep::Combine { new, into, order } => stage.combine(new, into, order),
                PlanStep::Copy { part, into } => stage.copy(part, into),
            }
            self.next += 1;
        }
    }
}

impl CollectiveRun {
    /// Comes to the collective in the slots, and returns the result if all is there. Returns `None`
    /// if the values go by parcels.
    fn run_in_slots(&mut self, exchange: &mut Exchange) -> Result<Option<UntypedResult>, Obstacle> {
        let Some(stage) = &mut self.stage else { return Ok(None) };
        if self.in_slots == InSlots::NotCome {
            exchange.give(self.number, self.call, stage.slot_values().as_deref())?;
            self.in_slots = InSlots::Come;
        }
        let is_in_slot = stage.slot_values().is_some();
        if !is_in_slot && (self.call.count.is_some() || self.call.uneven) {
            return Ok(None);
        }
        let mut count = self.call.count;
        let me = exchange.me();
        for rank in stage.sources().filter(|rank| *rank != me) {
            let (call, is_in_slot) = exchange.call_of(rank, self.number)?;
            count = count.or(call.count);
            if !is_in_slot {
                // The root knows that its values are long.
                self.call.count = count;
                return Ok(None);
            }
        }
        // The count of a root is not checked yet.
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| count.saturating_mul(stage.size()) <= SLOT_BYTES);
        let count = count.ok_or(Obstacle::Broken(self.call.root))?;
        let Some(stage) = self.stage.take() else { return Ok(None) };
        let (exchange, number) = (&*exchange, self.number);
        let read = |rank: Rank, at: usize, into: &mut [u8]| exchange.read(rank, number, at, into);
        Ok(Some(stage.end_in_slots(count, &read)))
    }
}

fn broken(rank: Rank) -> CollectiveFailure {
    CollectiveFailure::Mistake(format!(
        "rank {rank} gives another number of elements than it says; do all nodes run the same version of Oikaze?"
    ))
}

fn receive(
    stage: &mut Stage,
    part: Part,
    how: Arrival,
    body: Body,
    from: Rank,
) -> Result<(), CollectiveFailure> {
    if Some(body.len()) != part.len.checked_mul(stage.size()) {
        return Err(CollectiveFailure::Mistake(format!(
            "rank {from} sent {} bytes where {} elements of {} bytes belong; do all nodes run the same version of Oikaze?",
            body.len(),
            part.len,
            stage.size()
        )));
    }
    stage.receive(part, how, body);
    Ok(())
}

fn too_long(bytes: usize) -> CollectiveFailure {
    CollectiveFailure::Mistake(format!(
        "a part of {bytes} bytes is longer than one message may be ({MESSAGE_MAX} bytes): cut the vector into several"
    ))
}
