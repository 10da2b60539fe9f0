//! A thread that takes part in a program on shared arrays.

pub(super) mod collective;

use super::interface::{Context, Program, Progress};
use super::plan_shared::{Act, SharedPlan, cell_bytes, pieces};
use crate::pages::{Reach, Touching};
use crate::random::Random;
use oikaze_engine::{Completion, Request};
use oikaze_protocol::coherence::{Access, LockMode, Ownership, TargetOp, WriteId};
use oikaze_protocol::limits::PAGE;
use oikaze_protocol::time::Time;
use std::collections::VecDeque;
use std::sync::Arc;

/// Event for which an unfinished act waits.
#[derive(Debug)]
enum Waiting {
    /// Waits for nothing.
    No,
    /// Waits for a request.
    For(Arc<Completion>),
    /// Waits until the page of this array has had more wakeups than this number, as a thread waits
    /// after a page fault.
    Woken(u32, u64, u64),
    /// Waits for the next poll, so that the access with this number may take place during a turn.
    Left(u64),
    /// Waits for the rest of a pause.
    Until(Time),
}

/// Step of an act of the plan.
#[derive(Debug)]
enum Step {
    Act(Act),
    /// Checks and changes the cell of a lock that was requested before.
    Locked(u64),
    Unlock(u64),
    /// A request was submitted, and the step ends when it is settled.
    Waited,
    /// End of the phase.
    Collective,
}

/// Thread that takes part in a program on shared arrays.
#[derive(Debug)]
pub struct Sharer {
    plan: Arc<SharedPlan>,
    thread: usize,
    threads: usize,
    /// Number of collectives that this thread has passed.
    passed: usize,
    steps: VecDeque<Step>,
    waiting: Waiting,
    since: Time,
    /// Write guard of the store under way.
    guard: Option<WriteId>,
    /// Set if the thread has arrived at the end of the phase.
    arrived: bool,
    finished: bool,
    random: Random,
}

impl Sharer {
    /// Makes thread `thread` of the `threads` of a node.
    #[must_use]
    pub fn new(plan: Arc<SharedPlan>, thread: usize, threads: usize, random: Random) -> Sharer {
        let steps = VecDeque::from([Step::Collective]);
        let (waiting, since) = (Waiting::No, Time::default());
        Sharer {
            plan,
            thread,
            threads,
            passed: 0,
            steps,
            waiting,
            since,
            guard: None,
            arrived: false,
            finished: false,
            random,
        }
    }

    /// Returns `Some` if the act still waits, or if a failure made the thread give up. Returns
    /// `None` if the act need not wait any longer.
    fn waits(&mut self, context: &mut Context<'_>) -> Result<Option<Progress>, String> {
        match &self.waiting {
            Waiting::No => return Ok(None),
            Waiting::For(completion) => {
                let Some(outcome) = completion.outcome() else { return Ok(Some(Progress::NONE)) };
                if let Err(failure) = outcome {
                    context.oracle.excuse(
                        &self.describe(),
                        (context.me, context.life),
                        &failure,
                    )?;
                    self.give_up(context, false);
                    return Ok(Some(Progress::ACTED));
                }
            }
            Waiting::Woken(array, page, before) => {
                if context.engine.pages().wakeups(*array, *page) == *before {
                    return Ok(Some(Progress::NONE));
                }
            }
            Waiting::Left(_) => return Ok(None),
            Waiting::Until(time) => {
                if context.now < *time {
                    return Ok(Some(Progress::until(*time)));
                }
            }
        }
        self.waiting = Waiting::No;
        Ok(None)
    }

    /// Ends the program here. `granted` is set if the awaited lock is held.
    fn give_up(&mut self, context: &mut Context<'_>, granted: bool) {
        context.event(format_args!("thread {} gives up", self.thread));
        context.together.broken = true;
        self.finished = true;
        self.waiting = Waiting::No;
        if let Some(guard) = self.guard.take() {
            context.engine.coherence().abandon_write(guard);
        }
        // Releases the lock, as a guard does when it is dropped.
        let held = self.steps.iter().find_map(|step| match step {
            Step::Unlock(lock) => Some(*lock),
            Step::Locked(lock) if granted => Some(*lock),
            _ => None,
        });
        if let Some(lock) = held {
            context.oracle.shared.releases(lock);
            context.tell(Request::Unlock(lock));
        }
    }

    fn wait_for(&mut self, context: &mut Context<'_>, request: Request) {
        self.since = context.now;
        self.waiting = Waiting::For(context.submit(request, None));
    }

    /// Runs one step. Returns `true` if it is done.
    fn step(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        let Some(step) = self.steps.front() else { return Ok(true) };
        match step {
            Step::Collective => self.collective(context),
            Step::Act(Act::Load(reach, expected)) => {
                let (reach, expected) = (reach.clone(), expected.clone());
                let Some(found) = self.reach(context, &reach) else { return Ok(false) };
                if found != expected && !context.oracle.is_disturbed() {
                    return Err(differs(&reach, &found, &expected));
                }
                Ok(true)
            }
            Step::Act(Act::Store(reach)) => {
                let reach = reach.clone();
                if let Touching::Store(bytes) = &reach.what
                    && self.guard.is_none()
                    && matches!(self.waiting, Waiting::No)
                    && self.random.chance(0.05)
                {
                    self.put(context, &reach, bytes.clone());
                    return Ok(false);
                }
                if self.guard.is_none() && context.engine.coherence().is_guarded(reach.array) {
                    self.take_guard(context, &reach);
                    return Ok(false);
                }
                let is_done = self.reach(context, &reach).is_some();
                if is_done {
                    self.end_guard(context);
                }
                Ok(is_done)
            }
            Step::Act(Act::Subscribe(array, bytes, wanted)) => {
                let (coherence, pages) = context.engine.coherence_and_pages();
                let result = coherence.subscribe(*array, bytes.clone(), *wanted, pages);
                result.map(|()| true).map_err(|error| error.to_string())
            }
            Step::Act(Act::Critical(lock)) => {
                let lock = *lock;
                self.steps[0] = Step::Locked(lock);
                self.wait_for(context, Request::Lock(lock, LockMode::default()));
                Ok(false)
            }
            Step::Act(Act::Prefetch(array, pages, access)) => {
                let request =
                    Request::Touch { array: *array, pages: pages.clone(), access: *access };
                self.steps[0] = Step::Waited;
                self.wait_for(context, request);
                Ok(false)
            }
            Step::Act(Act::Pause(time)) => {
                self.waiting = Waiting::Until(context.now + *time);
                Ok(true)
            }
            Step::Locked(lock) => {
                let lock = *lock;
                self.locked(context, lock)?;
                Ok(false)
            }
            Step::Unlock(lock) => {
                let lock = *lock;
                context.event(format_args!("thread {} gives lock {lock} back", self.thread));
                context.oracle.shared.releases(lock);
                self.steps[0] = Step::Waited;
                self.wait_for(context, Request::Unlock(lock));
                Ok(false)
            }
            Step::Waited => Ok(true),
        }
    }

    /// Checks the cell of a lock that is now held, which must be as its last holder left it, and
    /// changes it.
    fn locked(&mut self, context: &mut Context<'_>, lock: u64) -> Result<(), String> {
        let count = match context.oracle.shared.acquired(lock, (context.me, self.thread)) {
            Err(_) if context.oracle.is_disturbed() => 0,
            other => other?,
        };
        context.event(format_args!("thread {} holds lock {lock}, the {count}th", self.thread));
        let cell = self.plan.cells[lock as usize].clone();
        let len = (cell.bytes.end - cell.bytes.start) as usize;
        let (old, new) = (cell_bytes(lock, count, len), cell_bytes(lock, count + 1, len));
        self.steps[0] = Step::Unlock(lock);
        for piece in pieces(cell.bytes.clone()) {
            let part =
                (piece.start - cell.bytes.start) as usize..(piece.end - cell.bytes.start) as usize;
            let reach = |what| Reach { array: cell.array, offset: piece.start, what };
            self.steps.push_front(Step::Act(Act::Store(reach(Touching::Store(
                new[part.clone()].to_vec(),
            )))));
            self.steps.push_front(Step::Act(Act::Load(
                reach(Touching::Load(part.len())),
                old[part].to_vec(),
            )));
        }
        Ok(())
    }

    /// Announces a store to an array that is written under guards, or makes its page valid first.
    fn take_guard(&mut self, context: &mut Context<'_>, reach: &Reach) {
        let (array, page) = (reach.array, reach.page());
        let len = match &reach.what {
            Touching::Load(len) => *len as u64,
            Touching::Store(bytes) => bytes.len() as u64,
        };
        // A guard that merges may cover what other nodes write.
        let (bytes, ownership) = if self.random.chance(0.2) {
            (page * PAGE as u64..(page + 1) * PAGE as u64, Ownership::Merged)
        } else {
            (reach.offset..reach.offset + len, Ownership::Owned)
        };
        let (coherence, pages) = context.engine.coherence_and_pages();
        self.guard = coherence.begin_write(array, bytes, ownership, pages);
        if self.guard.is_none() {
            let access = Access::Write;
            self.wait_for(context, Request::Touch { array, pages: page..page + 1, access });
        }
    }

    /// Stores bytes at their home (COH-12). The thread goes on when they are there.
    fn put(&mut self, context: &mut Context<'_>, reach: &Reach, operands: Vec<u8>) {
        let (array, offset, len) = (reach.array, reach.offset, operands.len() as u64);
        context.event(format_args!(
            "thread {} puts {len} bytes at {offset} of array {array}",
            self.thread
        ));
        self.steps[0] = Step::Waited;
        self.wait_for(
            context,
            Request::Target { array, offset, len, op: TargetOp::Write, operands },
        );
    }

    /// Ends the guard of a store, and sometimes pushes what was stored to other nodes.
    fn end_guard(&mut self, context: &mut Context<'_>) {
        let Some(guard) = self.guard.take() else { return };
        let often = if self.random.chance(0.5) { 0.0 } else { 0.6 };
        let push: Vec<u32> = (0..context.nodes).filter(|_| self.random.chance(often)).collect();
        let (coherence, pages) = context.engine.coherence_and_pages();
        coherence.end_write(guard, &push, pages);
    }

    /// Tries an access. If the view does not permit the access, submits what a guard or a page
    /// fault would submit.
    fn reach(&mut self, context: &mut Context<'_>, reach: &Reach) -> Option<Vec<u8>> {
        if let Waiting::Left(number) = self.waiting {
            self.waiting = Waiting::No;
            if let Some(done) = context.engine.pages().take_back(number) {
                return Some(done);
            }
        } else if self.random.chance(0.25) {
            self.waiting = Waiting::Left(context.engine.pages().leave(reach.clone()));
            return None;
        }
        if let Some(done) = context.engine.pages().reach(reach) {
            return Some(done);
        }
        let (array, page, access) = (reach.array, reach.page(), reach.what.access());
        if self.random.chance(0.5) {
            let last = context.engine.pages().view(array).len() as u64;
            let end = if self.random.chance(0.3) {
                self.random.between(page + 1, last)
            } else {
                page + 1
            };
            self.wait_for(context, Request::Touch { array, pages: page..end, access });
        } else {
            self.since = context.now;
            self.waiting = Waiting::Woken(array, page, context.engine.pages().wakeups(array, page));
            // Some trackers cannot tell a load from a store to an unmapped page.
            let mapped =
                context.engine.pages().view(array).get(page as usize).copied().flatten().is_some();
            let told = if mapped || self.random.chance(0.5) { Some(access) } else { None };
            context.tell(Request::Fault { array, page, access: told });
        }
        None
    }

    /// Fills in the acts of the phase that begins.
    fn refill(&mut self, context: &Context<'_>) {
        if let Some(phase) = self
            .passed
            .checked_sub(self.plan.arrays.len())
            .and_then(|phase| self.plan.phases.get(phase))
        {
            let acts = &phase.acts[context.me as usize][self.thread];
            self.steps.extend(acts.iter().cloned().map(Step::Act));
        }
        self.steps.push_back(Step::Collective);
    }
}

fn differs(reach: &Reach, found: &[u8], expected: &[u8]) -> String {
    let at =
        found.iter().zip(expected).position(|(found, expected)| found != expected).unwrap_or(0);
    format!(
        "a load of {} bytes at {} of array {} (page {}) differs from byte {at} on: {:02x?} instead of {:02x?}",
        found.len(),
        reach.offset,
        reach.array,
        reach.offset / PAGE as u64,
        &found[at..(at + 8).min(found.len())],
        &expected[at..(at + 8).min(expected.len())]
    )
}

impl Program for Sharer {
    fn poll(&mut self, context: &mut Context<'_>) -> Result<Progress, String> {
        let mut acted = false;
        // Runs several steps, and then lets the engine have a turn.
        for _ in 0..self.random.between(1, 12) {
            if let Some(waits) = self.waits(context)? {
                return Ok(Progress { acted: acted || waits.acted, wake: waits.wake });
            }
            if context.together.broken && !self.finished {
                self.give_up(context, true);
            }
            if self.finished {
                return Ok(Progress { acted, wake: None });
            }
            let in_collective = matches!(self.steps.front(), Some(Step::Collective));
            if self.step(context)? {
                self.steps.pop_front();
                acted = true;
                if self.steps.is_empty() {
                    self.refill(context);
                }
            } else if in_collective {
                return Ok(Progress { acted, wake: None });
            } else if let Waiting::Left(_) = self.waiting {
                return Ok(Progress::ACTED);
            } else {
                acted = true;
            }
        }
        Ok(Progress { acted: true, wake: None })
    }

    fn is_finished(&self) -> bool {
        self.finished
    }

    fn waits_since(&self) -> Option<Time> {
        match self.waiting {
            Waiting::For(_) | Waiting::Woken(..) => Some(self.since),
            _ => None,
        }
    }

    fn describe(&self) -> String {
        let step = match self.steps.front() {
            None => "nothing".to_owned(),
            Some(Step::Act(Act::Load(reach, _))) => {
                format!("load at {} of array {}", reach.offset, reach.array)
            }
            Some(Step::Act(Act::Store(reach))) => {
                format!("store at {} of array {}", reach.offset, reach.array)
            }
            Some(step) => format!("{step:?}"),
        };
        let waiting = match &self.waiting {
            Waiting::For(completion) => format!("a request (done: {})", completion.is_done()),
            other => format!("{other:?}"),
        };
        format!(
            "sharer {}: {} collectives passed, {} steps left, at {step}, waits for {waiting}",
            self.thread,
            self.passed,
            self.steps.len()
        )
    }
}

/// Returns the letter of a page's access in the dump.
#[must_use]
pub fn access_letter(access: Option<Access>) -> char {
    match access {
        None => '.',
        Some(Access::Read) => 'r',
        Some(Access::Write) => 'w',
    }
}
