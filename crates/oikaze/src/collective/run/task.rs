//! One collective of one team: the steps of its plan.

use super::caller::CallerRun;
use super::core::Doom;
use super::exchange::{Contradiction, Exchange, Obstacle};
use super::long::{LongPart, LongWork, PartSend};
use super::mail::Mail;
use super::memory::{MemoryEnd, MemoryRun, OwnBuffers};
use super::slot::{CollectiveFailure, Slot, is_seen_by_all, is_told_by_receiver};
use super::stage::{End, Stage};
use super::work::UntypedResult;
use crate::collective::run::core::TeamCore;
use crate::panics::message_of_panic;
use oikaze_engine::ParcelBody;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{
    Arrival, CollectiveCall, ParcelPurpose, Part, Plan, PlanStep, RoundNumber, WHOLE,
};
use oikaze_protocol::limits::MESSAGE_MAX;
use oikaze_runtime::node::{Needs, Node, WordPolls};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread;

/// Position of the number of a collective's plan in the number of a round.
const STAGE_SHIFT: u32 = 24;
/// Number of steps among which parcels are awaited, before the step that takes them.
const STEPS_AHEAD: usize = 8;

/// A collective that this rank has called.
pub(super) struct CollectiveRun {
    pub number: u64,
    pub call: CollectiveCall,
    /// Number of collectives of coherence that this rank had called before.
    pub after: u64,
    /// `None`: it has ended, or its caller runs it.
    stage: Option<Box<Stage>>,
    /// Place of the outcome.
    slot: Arc<Slot>,
    /// Number of plans before the present one.
    stages: RoundNumber,
    plan: Option<Plan>,
    next: usize,
    /// Number of steps whose parcels are awaited, if they are long.
    awaited: usize,
    /// The root has said that it has not sent all values at once.
    is_not_whole: bool,
    /// Its part in the memory of the machine. `None`: the values go by parcels.
    memory: Option<MemoryRun>,
    /// Values and result in the memory of the machine, if the caller does not have them.
    buffers: OwnBuffers,
    /// End of its first steps, which its caller has taken, if they did not wait.
    begun: Option<Progress>,
    /// Reason for which it fails as soon as it is its turn.
    pub doomed: Option<Doom>,
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
    /// Makes the run of a call that this rank has begun after `after` collectives of coherence. A
    /// team whose ranks share memory compares calls there (`has_memory`).
    pub fn new(
        number: u64,
        call: CollectiveCall,
        (mut stage, slot): (Box<Stage>, Arc<Slot>),
        after: u64,
        has_memory: bool,
    ) -> CollectiveRun {
        let memory = has_memory.then(|| MemoryRun::new(stage.facts(), &call));
        let is_in_memory = memory.as_ref().is_some_and(|memory| !memory.is_by_parcels());
        let given = if is_in_memory { stage.take_given() } else { Vec::new() };
        CollectiveRun {
            stage: Some(stage),
            memory,
            buffers: OwnBuffers::new(given),
            ..CollectiveRun::of_caller(number, call, None, slot, after)
        }
    }

    /// Makes the run of a call whose caller runs it through memory.
    pub fn of_caller(
        number: u64,
        call: CollectiveCall,
        memory: Option<MemoryRun>,
        slot: Arc<Slot>,
        after: u64,
    ) -> CollectiveRun {
        CollectiveRun {
            number,
            call,
            after,
            stage: None,
            slot,
            stages: 0,
            plan: None,
            next: 0,
            awaited: 0,
            is_not_whole: false,
            memory,
            buffers: OwnBuffers::default(),
            begun: None,
            doomed: None,
        }
    }

    /// Returns `true` if its caller alone can run it.
    pub fn is_callers(&self) -> bool {
        self.stage.is_none()
    }

    /// Notes how the first steps have ended, which its caller has taken.
    pub fn note_begin(
        &mut self,
        me: Rank,
        ended: thread::Result<Result<MemoryEnd, Obstacle>>,
        caller: &mut CallerRun<'_>,
    ) {
        self.begun = match ended {
            // The next step looks again, because what is waited for may have come.
            Ok(Err(Obstacle::Waits(_) | Obstacle::Pauses)) => None,
            Ok(ended) => self.progress_of(ended, Some(caller)),
            Err(payload) => Some(Progress::Fails(panicked(me, payload.as_ref()))),
        };
    }

    /// Takes the caller's values and what there is of the result, so that other threads run it.
    pub fn take_over(&mut self, caller: &mut CallerRun<'_>) {
        if self.stage.is_none() {
            let len = self.memory.as_ref().and_then(MemoryRun::result_len).unwrap_or(0);
            self.stage = Some(caller.stage());
            match OwnBuffers::copy_of(caller.buffers, len) {
                Ok(buffers) => self.buffers = buffers,
                Err(why) => {
                    let failure = CollectiveFailure::Mistake(why);
                    self.doomed.get_or_insert(Doom::new(failure, self.number));
                }
            }
        }
    }

    /// Notes that the root had not sent all values at once when it was asked (COLL-2.7).
    pub fn note_not_whole(&mut self) {
        self.is_not_whole = true;
    }

    /// Returns a number that changes with each step.
    pub fn step(&self) -> usize {
        let in_memory = self.memory.as_ref().map_or(0, MemoryRun::step);
        self.next + in_memory + ((self.stages as usize) << STAGE_SHIFT)
    }

    /// Returns the work buffer, if it is long.
    pub fn long(&mut self) -> Option<&mut LongWork> {
        self.stage.as_mut()?.work().long()
    }

    /// Returns memory of the caller, who does not wait any more, and goes on with a copy.
    pub fn return_memory(&mut self, team: &TeamCore, node: &Node, mail: &mut Mail) {
        let number = self.number;
        let Some(long) = self.long() else { return };
        let again = |send: &PartSend, len: usize, part: Option<LongPart>| match part {
            Some(part) => team.long_send(node, send.to, send.head, part),
            None => {
                mail.withdrawn(send.to, len as u64);
                None
            }
        };
        if let Err(why) = long.take_over(again) {
            let doom = Doom::new(CollectiveFailure::Mistake(why), number);
            self.doomed.get_or_insert(doom);
        }
    }

    /// Settles with a failure. A parcel that does not come would take credit for ever, so those on
    /// their way from memory of the caller are sent again.
    pub fn fail(
        &mut self,
        (team, node, mail): (&TeamCore, &Node, &mut Mail),
        failure: CollectiveFailure,
    ) -> Option<Waker> {
        if self.long().is_some_and(|long| long.sends_lent()) {
            self.return_memory(team, node, mail);
        }
        self.stage = None;
        self.slot.settle(Err(failure))
    }

    /// Runs steps until one has to wait. A `caller` runs its own collective.
    pub fn run(
        &mut self,
        team: &TeamCore,
        node: &Node,
        (mail, exchange): (&mut Mail, Option<&mut Exchange>),
        caller: Option<&mut CallerRun<'_>>,
        wakers: &mut Vec<Waker>,
    ) -> Progress {
        if let Some(progress) = self.begun.take() {
            return progress;
        }
        let run = || match exchange.filter(|_| self.memory.is_some()) {
            Some(exchange) => match self.run_in_memory(exchange, caller) {
                Some(Progress::Ended) => {
                    wakers.extend(self.end_in_memory());
                    Progress::Ended
                }
                Some(progress) => progress,
                None => self.run_steps(team, node, mail, wakers),
            },
            None => self.run_steps(team, node, mail, wakers),
        };
        // A function of the program may panic.
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(progress) => progress,
            Err(payload) => Progress::Fails(panicked(team.me(), payload.as_ref())),
        }
    }

    /// Runs steps in the memory of the machine. Returns `None` if the values go by parcels.
    fn run_in_memory(
        &mut self,
        exchange: &mut Exchange,
        caller: Option<&mut CallerRun<'_>>,
    ) -> Option<Progress> {
        let memory = self.memory.as_mut()?;
        let call = (self.number, &mut self.call);
        let (ended, caller) = match (&self.stage, caller) {
            (Some(stage), _) => {
                exchange.limit(WordPolls::NONE, usize::MAX);
                (memory.run(exchange, call, &mut self.buffers, stage.combiner()), None)
            }
            (None, Some(caller)) => {
                (caller.run(memory, exchange, call, WordPolls::NONE), Some(caller))
            }
            (None, None) => return Some(Progress::Waits(None)),
        };
        self.progress_of(ended, caller)
    }

    fn progress_of(
        &mut self,
        ended: Result<MemoryEnd, Obstacle>,
        caller: Option<&mut CallerRun<'_>>,
    ) -> Option<Progress> {
        Some(match ended {
            Ok(MemoryEnd::Done) => Progress::Ended,
            Ok(MemoryEnd::Parcels) => {
                self.memory = None;
                let stage = self.stage.take().or_else(|| caller.map(CallerRun::stage));
                self.stage = stage.map(Stage::by_parcels);
                return None;
            }
            Err(Obstacle::Waits(rank)) => Progress::Waits(Some(rank)),
            Err(Obstacle::Pauses) => Progress::Waits(None),
            Err(Obstacle::Broken(rank)) => Progress::Fails(broken(rank)),
            Err(Obstacle::NoMemory(bytes)) => Progress::Fails(CollectiveFailure::Mistake(format!(
                "there is not enough memory for {bytes} bytes"
            ))),
            Err(Obstacle::Contradiction(contradiction)) => Progress::Contradicts(contradiction),
        })
    }

    fn end_in_memory(&mut self) -> Option<Waker> {
        let result = match self.stage.take() {
            Some(stage) => stage.end_with(std::mem::take(&mut self.buffers).into_result()),
            None => UntypedResult::of::<u8>(&[]),
        };
        self.slot.settle(Ok(result))
    }

    fn run_steps(
        &mut self,
        team: &TeamCore,
        node: &Node,
        mail: &mut Mail,
        wakers: &mut Vec<Waker>,
    ) -> Progress {
        loop {
            let Some(stage) = &mut self.stage else { return Progress::Ended };
            let mut lost = None;
            for (to, len, failure) in
                stage.work().long().map(LongWork::end_sends).unwrap_or_default()
            {
                if is_told_by_receiver(&failure) {
                    continue;
                }
                mail.withdrawn(to, len);
                if !is_seen_by_all(&failure) {
                    lost = Some(failure);
                }
            }
            // A receiver would wait for such a part for ever.
            if let Some(failure) = lost {
                return Progress::Fails(CollectiveFailure::Lost(failure));
            }
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
                        Ok(None) => {
                            let first = stage.first_sender();
                            let whole_from = stage.whole_sender().filter(|_| !self.is_not_whole);
                            let sender = |first| sender_awaited(team, node, first, whole_from);
                            return Progress::Waits(first.map(sender));
                        }
                        Err(why) => return Progress::Fails(CollectiveFailure::Mistake(why)),
                    }
                }
            };
            let head = |round| {
                let round = self.stages << STAGE_SHIFT | round;
                team.head(ParcelPurpose::Data, self.number, round, self.call)
            };
            if let Some(root) = plan.whole_from {
                let head = head(WHOLE);
                if let Some(body) = mail.take(self.number, head.round, root) {
                    mail.has_read(root, body.len());
                    if self.next > 0 {
                        return Progress::Fails(whole_after_a_part(root));
                    }
                    let whole = (plan.output, Arrival::Replace);
                    if let Err(failure) = receive(stage, whole, head.round, &body, root) {
                        return Progress::Fails(failure);
                    }
                    stage.work().await_only(|_| false);
                    if let Some(bytes) = mail.report(root) {
                        team.report_credit(node, root, bytes, self.call);
                    }
                    self.next = plan.steps.len();
                } else if self.awaited == 0
                    && let Some(&sender) = team.ranks.get(root as usize)
                {
                    stage.work().expect(node, sender, head, plan.output);
                }
            }
            self.awaited = self.awaited.max(self.next);
            while let Some(&(round, step)) = plan.steps.get(self.awaited)
                && self.awaited < self.next + STEPS_AHEAD
            {
                if let PlanStep::Receive { from, part, how: Arrival::Replace } = step
                    && let Some(&sender) = team.ranks.get(from as usize)
                {
                    let head = head(round);
                    let is_unused = plan.leaves_alone(self.next..self.awaited, part);
                    if !is_unused || !stage.work().is_free(part, Some((from, head.round))) {
                        break;
                    }
                    stage.work().expect(node, sender, head, part);
                }
                self.awaited += 1;
            }
            let Some(&(round, step)) = plan.steps.get(self.next) else {
                let output = plan.output;
                if !stage.work().may_end() {
                    return Progress::Waits(None);
                }
                let Some(stage) = self.stage.take() else { return Progress::Ended };
                match stage.end(output) {
                    Ok(End::Result(result)) => {
                        wakers.extend(self.slot.settle(Ok(result)));
                        return Progress::Ended;
                    }
                    Ok(End::Next(stage)) => {
                        (self.stage, self.plan) = (Some(stage), None);
                        (self.next, self.awaited) = (0, 0);
                        self.stages += 1;
                        continue;
                    }
                    Err(why) => return Progress::Fails(CollectiveFailure::Mistake(why)),
                }
            };
            let head = head(round);
            // A part that a step writes may still be on its way from an earlier step.
            let (written, by) = match step {
                PlanStep::Send { .. } => (Part::default(), None),
                PlanStep::Receive { from, part, .. } => (part, Some((from, head.round))),
                PlanStep::Combine { new: part, into, .. } | PlanStep::Copy { part, into } => {
                    (Part::new(into, part.len), None)
                }
            };
            if !stage.work().is_free(written, by) {
                return Progress::Waits(None);
            }
            match step {
                PlanStep::Send { part, .. } if round == WHOLE => {
                    let to = plan.receivers_from(self.next);
                    // All at once, so that they get it by multicast.
                    if let Some(waits) = to.iter().find(|to| !mail.has_credit(**to)) {
                        return Progress::Waits(Some(*waits));
                    }
                    let len = part.len.saturating_mul(stage.size());
                    to.iter().for_each(|to| _ = mail.may_send(*to, len as u64));
                    mail.note_whole(self.number);
                    for send in team.send_whole(node, &to, head, stage.bytes(part)) {
                        stage.work().sending(part, send);
                    }
                    self.next = plan.steps.len();
                    continue;
                }
                PlanStep::Send { to, part } => {
                    let len = part.len.saturating_mul(stage.size());
                    if !mail.may_send(to, len as u64) {
                        return Progress::Waits(Some(to));
                    }
                    if let Some(send) = team.send_part(node, to, head, stage.bytes(part)) {
                        stage.work().sending(part, send);
                    }
                }
                PlanStep::Receive { from, part, how } => {
                    let Some(body) = mail.take(self.number, head.round, from) else {
                        let may_come = self.next == 0 && !self.is_not_whole;
                        let whole_from = plan.whole_from.filter(|_| may_come);
                        let from = sender_awaited(team, node, from, whole_from);
                        return Progress::Waits(Some(from));
                    };
                    mail.has_read(from, body.len());
                    if let Err(failure) = receive(stage, (part, how), head.round, &body, from) {
                        return Progress::Fails(failure);
                    }
                    if plan.whole_from.is_some() && self.next == 0 {
                        let whole = self.stages << STAGE_SHIFT | WHOLE;
                        stage.work().await_only(|round| round != whole);
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

/// Returns the rank for whose first parcel this rank waits. The sender of the plan may have got all
/// values of the root at once, and have left. Then those of this rank are still to come, unless the
/// root says otherwise (COLL-2.7).
fn sender_awaited(team: &TeamCore, node: &Node, first: Rank, whole_from: Option<Rank>) -> Rank {
    let has_left = |rank: Rank| {
        let node_rank = team.ranks.get(rank as usize).copied();
        node_rank.is_some() && node.departures.loss_of(node_rank, Needs::Messages).is_some()
    };
    whole_from.filter(|_| node.uses_multicast() && has_left(first)).unwrap_or(first)
}

/// Returns the failure of a broadcast whose root sends all values after a part of them.
fn whole_after_a_part(root: Rank) -> CollectiveFailure {
    CollectiveFailure::Mistake(format!(
        "rank {root} sent all values after a part of them; do all nodes run the same version of Oikaze?"
    ))
}

/// Returns the failure of a collective whose operator has panicked.
pub(super) fn panicked(me: Rank, payload: &(dyn Any + Send)) -> CollectiveFailure {
    CollectiveFailure::Mistake(format!(
        "the operator panicked on rank {me}: {}. Mend the function that was given as operator",
        message_of_panic(payload)
    ))
}

fn broken(rank: Rank) -> CollectiveFailure {
    CollectiveFailure::Mistake(format!(
        "rank {rank} gives another number of elements than it says; do all nodes run the same version of Oikaze?"
    ))
}

fn receive(
    stage: &mut Stage,
    (part, how): (Part, Arrival),
    round: RoundNumber,
    body: &ParcelBody,
    from: Rank,
) -> Result<(), CollectiveFailure> {
    let expected = part.len.checked_mul(stage.size());
    if expected.is_none_or(|expected| body.len() != expected as u64) {
        return Err(CollectiveFailure::Mistake(format!(
            "rank {from} sent {} bytes where {} elements of {} bytes belong; do all nodes run the same version of Oikaze?",
            body.len(),
            part.len,
            stage.size()
        )));
    }
    stage.receive(part, how, (round, body));
    Ok(())
}

fn too_long(bytes: usize) -> CollectiveFailure {
    CollectiveFailure::Mistake(format!(
        "a part of {bytes} bytes is longer than one message may be ({MESSAGE_MAX} bytes): cut the vector into several"
    ))
}
