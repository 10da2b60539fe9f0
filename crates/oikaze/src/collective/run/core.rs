//! One team: its collectives in their order, its parcels, and its failures.

use super::mail::Mail;
use super::slot::CollectiveFailure;
use super::stage::Stage;
use super::task::{CollectiveRun, Progress};
use crate::node::{Needs, Node, lock};
use crossbeam_queue::SegQueue;
use oikaze_engine::{Completion, Failure, Outcome, Parcel, Request, Sink, Submission};
use oikaze_os::signals::locked;
use oikaze_protocol::Rank;
use oikaze_protocol::collective::{CollectiveCall, ParcelHead, ParcelPurpose, RoundNumber};
use oikaze_protocol::limits::RECORD_BODY;
use oikaze_protocol::wind::Body;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::task::Waker;

/// Number of ended collectives that a team remembers, to compare late parcels with them.
const HISTORY: usize = 64;
/// Maximum number of collectives by which another rank may be ahead of this one, for parcels that
/// need no credit.
const AHEAD_MAX: u64 = 1 << 16;
/// Maximum length of a reason that another rank sends, in bytes.
const REASON_MAX: usize = 4096;
/// Length of a body from which on the sender hears of its refusal. A receiver refuses a body only
/// if it has no memory for it.
const REFUSABLE_MIN: u64 = 64 << 10;

/// A team, as the node runs it.
pub(crate) struct TeamCore {
    id: u64,
    /// Ranks of the job, by rank of the team.
    ranks: Arc<[Rank]>,
    /// Ranks of the team, by rank of the job.
    places: BTreeMap<Rank, Rank>,
    me: Rank,
    incoming: SegQueue<Incoming>,
    asked: AtomicBool,
    /// The program has dropped the team.
    is_dropped: AtomicBool,
    is_over: AtomicBool,
    /// Number of teams split off.
    splits: AtomicU64,
    state: Mutex<TeamState>,
}

enum Incoming {
    Parcel(Parcel),
    /// A parcel of this collective could not be sent.
    Unsent(u64, Failure),
}

#[derive(Default)]
struct TeamState {
    /// Number of the next collective.
    next: u64,
    /// Collectives that were called and have not ended, in their order.
    tasks: VecDeque<CollectiveRun>,
    mail: Mail,
    /// Collectives not yet called here that other ranks say have failed.
    failed: BTreeMap<u64, CollectiveFailure>,
    /// The latest collectives that have ended; `true`: well.
    history: VecDeque<(u64, CollectiveCall, bool)>,
    /// Failure of a collective that had ended well here. The next one reports it.
    late: Option<CollectiveFailure>,
    /// Rank for which the oldest collective waits.
    waits_for: Option<Rank>,
    wakers: Vec<Waker>,
    has_settled: bool,
}

impl TeamCore {
    pub fn new(id: u64, ranks: Arc<[Rank]>, me: Rank) -> Arc<TeamCore> {
        let places = ranks.iter().zip(0..).map(|(rank, place)| (*rank, place)).collect();
        Arc::new(TeamCore {
            id,
            ranks,
            places,
            me,
            incoming: SegQueue::new(),
            asked: AtomicBool::new(false),
            is_dropped: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            splits: AtomicU64::new(0),
            state: Mutex::default(),
        })
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns this node's rank in the team.
    pub fn me(&self) -> Rank {
        self.me
    }

    pub fn ranks(&self) -> &Arc<[Rank]> {
        &self.ranks
    }

    /// Returns the number of the next team split off.
    pub fn next_split(&self) -> u64 {
        self.splits.fetch_add(1, Ordering::Relaxed)
    }

    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Called when the program drops the team. It ends when its collectives have ended.
    pub fn dropped(&self) {
        self.is_dropped.store(true, Ordering::Release);
    }

    /// Takes a parcel from the engine.
    pub fn deposit(&self, parcel: Parcel) {
        self.incoming.push(Incoming::Parcel(parcel));
        self.ask();
    }

    pub fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
    }

    /// Begins a collective. With an error, this rank's arguments do not fit, and all ranks fail
    /// (COLL-3.2).
    pub(in crate::collective) fn begin(
        self: &Arc<Self>,
        node: &Node,
        call: CollectiveCall,
        stage: Box<dyn Stage>,
        sound: Result<(), String>,
    ) {
        {
            let mut state = lock(&self.state);
            let number = state.next;
            state.next += 1;
            let mut task = CollectiveRun::new(number, call, stage);
            let other = state.mail.of(number).find(|(_, theirs)| call.contradicts(theirs));
            let mismatch = other.map(|(from, theirs)| self.mismatch(from, theirs, &call));
            task.doomed = if let Some(failure) = state.failed.remove(&number) {
                Some(failure)
            } else if let Err(why) = sound {
                Some(CollectiveFailure::Mistake(format!("on rank {}: {why}", self.me)))
            } else {
                mismatch.or_else(|| state.late.take())
            };
            state.tasks.push_back(task);
        }
        node.collectives().ask(self);
        node.collectives().run(node);
    }

    fn mismatch(
        &self,
        from: Rank,
        theirs: &CollectiveCall,
        mine: &CollectiveCall,
    ) -> CollectiveFailure {
        // All ranks get the same text, whoever finds it.
        let (me, from) = ((self.me, mine), (from, theirs));
        let (low, high) = if me.0 < from.0 { (me, from) } else { (from, me) };
        CollectiveFailure::Mistake(format!(
            "rank {} calls {}, and rank {} calls {}: all ranks of a team make the same calls in the same order",
            low.0, low.1, high.0, high.1
        ))
    }

    /// Tells the rank for which the oldest collective waits what this rank calls. If that rank
    /// waits for this one, it finds that the calls do not fit together (COLL-3.3).
    pub fn notify(&self, node: &Node) {
        let notice = {
            let state = lock(&self.state);
            state.tasks.front().map(|task| (state.waits_for, task.number, task.call))
        };
        if let Some((Some(to), number, call)) = notice
            && to != self.me
        {
            let head = self.head(ParcelPurpose::Notice, number, 0, call);
            self.send(node, to, head, &[]);
        }
    }

    /// Runs collectives until all wait. Returns at once if another thread does so, which then looks
    /// again.
    pub fn advance(self: &Arc<Self>, node: &Node) {
        // A handler that interrupts this thread must not wait for the lock.
        let _masked = locked(|| ());
        loop {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return,
            };
            self.asked.store(false, Ordering::SeqCst);
            self.work(&mut state, node);
            let wakers = std::mem::take(&mut state.wakers);
            let has_settled = std::mem::take(&mut state.has_settled);
            if state.tasks.is_empty() && self.is_dropped.load(Ordering::Acquire) {
                self.is_over.store(true, Ordering::Release);
            }
            drop(state);
            if has_settled {
                node.tell_waiters();
            }
            wakers.into_iter().for_each(Waker::wake);
            if !self.asked.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    fn work(self: &Arc<Self>, state: &mut TeamState, node: &Node) {
        loop {
            while let Some(incoming) = self.incoming.pop() {
                match incoming {
                    Incoming::Parcel(parcel) => self.take(state, parcel),
                    Incoming::Unsent(number, failure) => {
                        if let Some(task) = state.task(number) {
                            task.doomed = Some(CollectiveFailure::Lost(failure));
                        }
                    }
                }
            }
            for (to, bytes) in state.mail.reports() {
                if let Some(call) = state.some_call() {
                    self.report_credit(node, to, bytes, call);
                }
            }
            let TeamState { tasks, mail, wakers, .. } = state;
            let Some(task) = tasks.front_mut() else { return };
            let progress = match task.doomed.take() {
                Some(failure) => Progress::Fails(failure),
                None => match node.loss_in(&self.ranks) {
                    Some(failure) => Progress::Fails(CollectiveFailure::Lost(failure)),
                    None => task.run(self, node, mail, wakers),
                },
            };
            match progress {
                Progress::Ended => state.end_front(true),
                Progress::Fails(failure) => self.fail_front(state, node, failure),
                Progress::Waits(for_rank) => {
                    state.waits_for = for_rank;
                    if !self.incoming.is_empty() {
                        continue;
                    }
                    let rank = for_rank.and_then(|rank| self.ranks.get(rank as usize).copied());
                    match node.loss_of(rank, Needs::Messages).filter(|_| rank.is_some()) {
                        // Its last parcels may have come meanwhile.
                        Some(_) if !self.incoming.is_empty() => {}
                        Some(failure) => {
                            let failure = CollectiveFailure::Lost(failure);
                            self.fail_front(state, node, failure);
                        }
                        None => return,
                    }
                }
            }
        }
    }

    /// Fails the oldest collective, and tells the other ranks. A rank that was told itself tells
    /// them again, so that nobody sees this rank leave before it knows why.
    fn fail_front(&self, state: &mut TeamState, node: &Node, failure: CollectiveFailure) {
        let Some(task) = state.tasks.front_mut() else { return };
        let (number, call) = (task.number, task.call);
        let waker = task.fail(failure.clone());
        state.wakers.extend(waker);
        state.end_front(false);
        let mut text = match failure {
            CollectiveFailure::Mistake(why) => why,
            // Every rank sees by itself that a node is dead, or that the job is over (COLL-3.4).
            CollectiveFailure::Lost(
                Failure::PeerLost { .. } | Failure::Left | Failure::Aborted(_),
            ) => return,
            CollectiveFailure::Lost(failure) => format!("on rank {}: {failure}", self.me),
        };
        let mut end = text.len().min(REASON_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        for to in (0..).take(self.ranks.len()).filter(|to| *to != self.me) {
            let head = self.head(ParcelPurpose::Failed, number, 0, call);
            self.send(node, to, head, text.as_bytes());
        }
    }

    /// Takes a parcel in. It may come before this rank has called the collective, or after the
    /// collective has ended here.
    fn take(&self, state: &mut TeamState, parcel: Parcel) {
        let Parcel { from, head, body } = parcel;
        let Some(&from) = self.places.get(&from) else { return };
        let number = head.number;
        let first = state.next - state.tasks.len() as u64;
        if head.purpose != ParcelPurpose::Data && number > state.next.saturating_add(AHEAD_MAX) {
            return;
        }
        match head.purpose {
            ParcelPurpose::Credit => {
                if let Some(bytes) = body.first_chunk() {
                    state.mail.granted(from, u64::from_le_bytes(*bytes));
                }
                return;
            }
            ParcelPurpose::Failed => {
                let why = String::from_utf8_lossy(body.get(..REASON_MAX).unwrap_or(&body));
                let failure = CollectiveFailure::Mistake(why.into_owned());
                if number < first {
                    // A rank that has got an error of its own needs no second one.
                    if state.ended(number).is_some_and(|(_, well)| well) {
                        state.fail_next(failure);
                    }
                } else if let Some(task) = state.task(number) {
                    task.doomed.get_or_insert(failure);
                } else {
                    state.failed.insert(number, failure);
                }
                return;
            }
            ParcelPurpose::Data | ParcelPurpose::Notice => {}
        }
        let body = (head.purpose == ParcelPurpose::Data).then_some(body);
        if let Some(body) = &body
            && !state.mail.arrived(from, body.len())
        {
            let why = format!("rank {from} sends more than this rank has granted: it is broken");
            state.fail_next(CollectiveFailure::Mistake(why));
            return;
        }
        let mine = match state.task(number) {
            Some(task) => Some(task.call),
            None => state.ended(number).filter(|(_, well)| *well).map(|(call, _)| call),
        };
        let mismatch = mine
            .filter(|mine| mine.contradicts(&head.call))
            .map(|mine| self.mismatch(from, &head.call, &mine));
        if let Some(failure) = mismatch {
            match state.task(number) {
                Some(task) => {
                    task.doomed.get_or_insert(failure);
                }
                None => state.fail_next(failure),
            }
        }
        if number >= first {
            state.mail.keep(from, &head, body);
        } else if let Some(body) = body {
            state.mail.has_read(from, body.len());
        }
    }

    pub fn head(
        &self,
        purpose: ParcelPurpose,
        number: u64,
        round: RoundNumber,
        call: CollectiveCall,
    ) -> ParcelHead {
        ParcelHead { purpose, team: self.id, number, round, call }
    }

    /// Sends a parcel to a rank of the team.
    pub fn send(&self, node: &Node, to: Rank, head: ParcelHead, body: &[u8]) {
        let Some(&to) = self.ranks.get(to as usize) else { return };
        if body.len() <= RECORD_BODY && node.send_parcel_fast(to, &head, body) {
            return;
        }
        let body = Body::copy_of(body);
        let completion = (body.len() >= REFUSABLE_MIN).then(|| {
            let (team, number) = (self.id, head.number);
            Completion::telling(Box::new(Unsent {
                registry: node.collectives().clone(),
                team,
                number,
            }))
        });
        let request = Request::Parcel { to, head, body };
        node.push(Submission { request, completion, keep: None });
    }

    /// Tells a rank how many bytes of its parcels were read.
    pub fn report_credit(&self, node: &Node, to: Rank, bytes: u64, call: CollectiveCall) {
        let head = self.head(ParcelPurpose::Credit, 0, 0, call);
        self.send(node, to, head, &bytes.to_le_bytes());
    }

    /// Notes that a parcel could not be sent.
    pub fn unsent(&self, number: u64, failure: Failure) {
        self.incoming.push(Incoming::Unsent(number, failure));
        self.ask();
    }
}

impl TeamState {
    fn task(&mut self, number: u64) -> Option<&mut CollectiveRun> {
        let first = self.next - self.tasks.len() as u64;
        self.tasks.get_mut(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    fn ended(&self, number: u64) -> Option<(CollectiveCall, bool)> {
        let ended = self.history.iter().rev().find(|(ended, ..)| *ended == number);
        ended.map(|(_, call, well)| (*call, *well))
    }

    /// Fails the collective under way, or else the next one (COLL-3.5).
    fn fail_next(&mut self, failure: CollectiveFailure) {
        match self.tasks.front_mut() {
            Some(task) => {
                task.doomed.get_or_insert(failure);
            }
            None => {
                self.late.get_or_insert(failure);
            }
        }
    }

    /// Any call of this rank, for heads of parcels that concern no collective.
    fn some_call(&self) -> Option<CollectiveCall> {
        let ended = self.history.back().map(|(_, call, _)| *call);
        self.tasks.front().map(|task| task.call).or(ended)
    }

    fn end_front(&mut self, well: bool) {
        let Some(task) = self.tasks.pop_front() else { return };
        self.mail.forget(task.number);
        self.history.push_back((task.number, task.call, well));
        if self.history.len() > HISTORY {
            self.history.pop_front();
        }
        self.waits_for = None;
        self.has_settled = true;
    }
}

/// Learns that a parcel was refused.
struct Unsent {
    registry: Arc<super::Registry>,
    team: u64,
    number: u64,
}

impl fmt::Debug for Unsent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unsent").field("number", &self.number).finish_non_exhaustive()
    }
}

impl Sink for Unsent {
    fn told(&self, outcome: &Outcome, _: u64) {
        if let Err(failure) = outcome {
            self.registry.unsent(self.team, self.number, (**failure).clone());
        }
    }
}
