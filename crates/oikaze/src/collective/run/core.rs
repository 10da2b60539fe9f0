//! One team: its collectives in their order, its parcels, and its failures.

use super::caller::CallerRun;
use super::exchange::{Contradiction, Exchange};
use super::long::{LongPart, PartSend};
use super::mail::Mail;
use super::shrink::Shrinks;
use super::slot::{CollectiveFailure, Slot, is_seen_by_all};
use super::stage::Stage;
use super::task::{CollectiveRun, Progress};
use crate::collective::run::work::PartBytes;
use crate::tables::element_kind::named;
use crossbeam_queue::SegQueue;
use oikaze_engine::{
    Completion, Outcome, Parcel, ParcelBody, Request, Sink, Submission, tracked_by,
};
use oikaze_os::shm::Arena;
use oikaze_os::signals::locked;
use oikaze_protocol::Rank;
use oikaze_protocol::coherence::{SAME_CALLS, remedy_of};
use oikaze_protocol::collective::{
    CallCounts, CollectiveCall, CollectiveKind, OrderMistake, OrderPart, ParcelHead, ParcelPurpose,
    RoundNumber,
};
use oikaze_protocol::limits::RECORD_BODY;
use oikaze_protocol::rma::Rights;
use oikaze_protocol::wind::Body;
use oikaze_runtime::node::{Needs, Node, RegisteredTeam, Registry, WORLD, lock};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::task::Waker;

/// Number of ended collectives that a team remembers, to compare late parcels with them.
const HISTORY: usize = 64;
/// Maximum number of collectives by which another rank may be ahead of this one, for parcels that
/// need no credit.
const AHEAD_MAX: u64 = 1 << 16;
/// Maximum length of a reason that another rank sends, in bytes.
const REASON_MAX: usize = 4096;

/// A team, as the node runs it.
pub(crate) struct TeamCore {
    this: Weak<TeamCore>,
    pub(super) id: u64,
    /// Ranks of the job, by rank of the team.
    pub(super) ranks: Arc<[Rank]>,
    /// Ranks of the team, by rank of the job.
    places: BTreeMap<Rank, Rank>,
    me: Rank,
    pub(super) incoming: SegQueue<Parcel>,
    asked: AtomicBool,
    /// A tick has come that no thread has looked at.
    ticked: AtomicBool,
    /// Some collective waits, so that ticks matter.
    waits: AtomicBool,
    /// The program has dropped the team.
    is_dropped: AtomicBool,
    is_over: AtomicBool,
    /// Number of teams split off.
    splits: AtomicU64,
    /// Memory of the machine through which values go (COLL-7).
    arena: Option<Arc<Arena>>,
    pub(super) state: Mutex<TeamState>,
}

/// Lets a team go on at the end of a send.
struct SendEnd {
    team: Weak<TeamCore>,
    teams: Weak<Registry>,
}

impl fmt::Debug for SendEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendEnd")
    }
}

impl Sink for SendEnd {
    fn told(&self, _: &Outcome, _: u64) {
        if let (Some(team), Some(teams)) = (self.team.upgrade(), self.teams.upgrade()) {
            teams.ask(team);
        }
    }
}

/// Failure of a collective as soon as it is its turn.
#[derive(Clone, Debug)]
pub(super) struct Doom {
    failure: CollectiveFailure,
    /// Number of the collective in which the mistake was made: this one, or an earlier one.
    of: u64,
    /// Set if ranks have called collectives of data and of coherence in different orders.
    order: Option<OrderDoom>,
}

/// Mistake in the order of calls.
#[derive(Clone, Debug)]
struct OrderDoom {
    mistake: OrderMistake,
    /// Call of data that has no counterpart.
    call: CollectiveCall,
}

impl Doom {
    pub(super) fn new(failure: CollectiveFailure, of: u64) -> Doom {
        Doom { failure, of, order: None }
    }

    fn of_order(mistake: OrderMistake, call: CollectiveCall, of: u64) -> Doom {
        let failure = CollectiveFailure::Mistake(mistake.text.clone());
        Doom { failure, of, order: Some(OrderDoom { mistake, call }) }
    }

    /// Returns this rank's part, if it has called `data` collectives.
    fn order_part(&self, node: &Node, data: u64) -> Option<OrderPart> {
        let mistake = &self.order.as_ref()?.mistake;
        let counts = CallCounts { data, coherence: node.coherence.order.coherence_calls() };
        Some(mistake.part(counts, node.coherence.order.failed_coherence_call()))
    }
}

/// Wait of a collective for a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParcelWait {
    /// No collective waited.
    #[default]
    None,
    /// This collective waited for this rank at this step of its plan.
    Seen(u64, usize, Rank),
    /// It did so at two ticks in a row, and the rank was told what this rank calls.
    Told(u64, usize, Rank),
}

#[derive(Default)]
pub(super) struct TeamState {
    /// Number of the next collective.
    pub next: u64,
    /// Collectives that were called and have not ended, in their order.
    pub tasks: VecDeque<CollectiveRun>,
    pub exchange: Option<Exchange>,
    mail: Mail,
    shrinks: Shrinks,
    /// Collectives not yet called here that other ranks say have failed.
    failed: BTreeMap<u64, Doom>,
    /// The latest collectives that have ended; `true`: well.
    history: VecDeque<(u64, CollectiveCall, bool)>,
    /// Failure of a collective that had ended well here. The next one reports it.
    late: Option<Doom>,
    /// Mistakes in the order of calls that this rank has learnt of, and has not had its part in, by
    /// number of the collective of data.
    disorders: BTreeMap<u64, Doom>,
    /// Wait of the oldest collective, as the latest tick has found it.
    wait: ParcelWait,
    wakers: Vec<Waker>,
    has_settled: bool,
}

impl TeamCore {
    /// Makes a team. Its values go through the arena, if it has one.
    pub fn new(id: u64, ranks: Arc<[Rank]>, me: Rank, arena: Option<Arc<Arena>>) -> Arc<TeamCore> {
        let exchange = arena.clone().map(|arena| Exchange::new(arena, me, ranks.len()));
        let places = ranks.iter().zip(0..).map(|(rank, place)| (*rank, place)).collect();
        Arc::new_cyclic(|this| TeamCore {
            this: Weak::clone(this),
            id,
            ranks,
            places,
            me,
            incoming: SegQueue::new(),
            asked: AtomicBool::new(false),
            ticked: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            is_dropped: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            splits: AtomicU64::new(0),
            arena,
            state: Mutex::new(TeamState { exchange, ..TeamState::default() }),
        })
    }

    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns `true` if values go through memory of the machine.
    pub fn has_memory(&self) -> bool {
        self.arena.is_some()
    }

    /// Returns `true` if a caller may have to take a step: what it waits for has come, or something
    /// is to be noted.
    pub(super) fn may_step(&self) -> bool {
        let awaits = |arena: &Arc<Arena>| arena.awaits() && !arena.is_awaited_here();
        !self.arena.as_ref().is_some_and(awaits)
            || self.ticked.load(Ordering::SeqCst)
            || self.is_asked()
            || !self.incoming.is_empty()
    }

    /// Returns `true` if the team is to run, because of what came while another thread ran it.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Returns this node's rank in the team.
    pub fn me(&self) -> Rank {
        self.me
    }

    pub fn ranks(&self) -> &Arc<[Rank]> {
        &self.ranks
    }

    /// Returns the rank in the team of a rank of the job.
    pub fn place_of(&self, rank: Rank) -> Option<Rank> {
        self.places.get(&rank).copied()
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

    /// Begins a collective, and returns its number in the team, from 0. With an error, this rank's
    /// arguments do not fit, and all ranks fail (COLL-3.2).
    pub(in crate::collective) fn begin(
        self: &Arc<Self>,
        node: &Node,
        call: CollectiveCall,
        stage: (Box<Stage>, Arc<Slot>),
        sound: Result<(), String>,
    ) -> u64 {
        let number = {
            let mut state = lock(&self.state);
            if self.id == WORLD {
                node.coherence.order.note_data_call();
            }
            let disorder = state.take_disorder(node);
            let number = state.next;
            state.next += 1;
            let after = node.coherence.order.coherence_calls();
            let mut task = CollectiveRun::new(number, call, stage, after, self.has_memory());
            let other = state.mail.of(number).find(|(_, theirs)| call.contradicts(theirs));
            // Once a rank is lost, ranks call different things, because some have failed and some
            // have not. The loss is the reason then.
            let other = other.filter(|_| node.departures.loss_in(&self.ranks).is_none());
            let mismatch = other.map(|(from, theirs)| self.mismatch(from, theirs, &call));
            // A late failure is told by this collective, whatever else it fails by.
            let late = state.late.take();
            task.doomed = if let Some(doom) = disorder.or_else(|| state.failed.remove(&number)) {
                Some(doom)
            } else if let Err(why) = sound {
                let text = format!("on rank {}: {why}{}", self.me, remedy_of(&why));
                let failure = CollectiveFailure::Mistake(text);
                Some(Doom::new(failure, number))
            } else {
                let doom = mismatch.map(|failure| Doom::new(failure, number));
                doom.or(late)
            };
            state.tasks.push_back(task);
            number
        };
        node.collectives.ask(Arc::<Self>::clone(self));
        node.collectives.run(node);
        number
    }

    /// Fails all collectives that this rank has called and that have not ended, and makes the next
    /// one that of this number (COLL-3.7). Nothing is sent: all ranks do it while they call
    /// nothing. What comes later for an earlier collective is ignored.
    fn abandon_calls(self: &Arc<Self>, node: &Node, (next, splits): (u64, u64), why: &str) {
        self.splits.fetch_max(splits, Ordering::Relaxed);
        {
            let mut state = lock(&self.state);
            let state = &mut *state;
            while let Some(task) = state.tasks.front_mut() {
                let failure = CollectiveFailure::Mistake(why.to_owned());
                state.wakers.extend(task.fail((self, node, &mut state.mail), failure));
                state.end_front(false);
            }
            state.next = state.next.max(next);
            let next = state.next;
            state.leave(next);
            if let Some(last) = state.next.checked_sub(1) {
                state.mail.forget(last);
            }
            state.failed.clear();
            state.late = None;
            state.disorders.clear();
            state.history.iter_mut().for_each(|(_, _, well)| *well = false);
        }
        node.collectives.ask(Arc::<Self>::clone(self));
        node.collectives.run(node);
    }

    /// Begins an agreement on the living ranks. Returns its number.
    pub(in crate::collective) fn begin_shrink(
        self: &Arc<Self>,
        node: &Node,
        slot: Arc<Slot>,
    ) -> u64 {
        let number = lock(&self.state).shrinks.begin(self, slot);
        node.collectives.ask(Arc::<Self>::clone(self));
        node.collectives.run(node);
        number
    }

    fn mismatch(
        &self,
        from: Rank,
        theirs: &CollectiveCall,
        mine: &CollectiveCall,
    ) -> CollectiveFailure {
        CollectiveFailure::Mistake(self.text_of_mismatch(from, &named(theirs), &named(mine)))
    }

    fn text_of_mismatch(
        &self,
        from: Rank,
        theirs: &dyn fmt::Display,
        mine: &dyn fmt::Display,
    ) -> String {
        // All ranks get the same text, whoever finds it.
        let (me, from) = ((self.me, mine), (from, theirs));
        let (low, high) = if me.0 < from.0 { (me, from) } else { (from, me) };
        format!("rank {} calls {}, and rank {} calls {}{SAME_CALLS}", low.0, low.1, high.0, high.1)
    }

    /// Tells the rank for which the oldest collective waits what this rank calls, if it has waited
    /// since the latest tick. If that rank waits for this one, it finds that the calls do not fit
    /// together (COLL-3.3).
    fn notify(&self, state: &mut TeamState, node: &Node, to: Rank) {
        if !self.ticked.swap(false, Ordering::SeqCst) {
            return;
        }
        let Some(task) = state.tasks.front() else { return };
        let (number, step, call) = (task.number, task.step(), task.call);
        let after = task.after.to_le_bytes();
        state.wait = match state.wait {
            ParcelWait::Seen(..) if state.wait == ParcelWait::Seen(number, step, to) => {
                if to != self.me {
                    let head = self.head(ParcelPurpose::Notice, number, 0, call);
                    self.send(node, to, head, &after);
                }
                ParcelWait::Told(number, step, to)
            }
            told if told == ParcelWait::Told(number, step, to) => told,
            _ => ParcelWait::Seen(number, step, to),
        };
    }

    /// Runs collectives until all wait. Returns at once if another thread does so, which then looks
    /// again. A caller runs its collective itself, and waits for the other thread.
    pub(super) fn run_all(
        self: &Arc<Self>,
        node: &Node,
        mut caller: Option<(u64, &mut CallerRun<'_>)>,
    ) {
        // A handler that interrupts this thread must not wait for the lock.
        let _masked = locked(|| ());
        loop {
            let mut state = match self.state.try_lock() {
                Ok(state) => state,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if caller.is_none() => return,
                Err(TryLockError::WouldBlock) => {
                    self.state.lock().unwrap_or_else(PoisonError::into_inner)
                }
            };
            self.asked.store(false, Ordering::SeqCst);
            let caller = caller.as_mut().map(|(number, caller)| (*number, &mut **caller));
            self.work(&mut state, node, caller);
            let wakers = std::mem::take(&mut state.wakers);
            let has_settled = std::mem::take(&mut state.has_settled);
            let is_idle = state.tasks.is_empty() && !state.shrinks.are_called();
            if is_idle && self.is_dropped.load(Ordering::Acquire) {
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

    fn work(
        self: &Arc<Self>,
        state: &mut TeamState,
        node: &Node,
        mut caller: Option<(u64, &mut CallerRun<'_>)>,
    ) {
        loop {
            while let Some(parcel) = self.incoming.pop() {
                self.take(state, node, parcel);
            }
            // Before the first call, what was read is reported with it.
            if let Some(call) = state.some_call() {
                for (to, bytes) in state.mail.reports() {
                    self.report_credit(node, to, bytes, call);
                }
            }
            let TeamState { tasks, mail, exchange, wakers, shrinks, has_settled, .. } = state;
            *has_settled |= shrinks.run(self, node, wakers);
            let Some(task) = tasks.front_mut() else {
                self.waits.store(false, Ordering::Relaxed);
                return;
            };
            let of = task.number;
            if let Some(doom) = task.doomed.take() {
                self.fail_front(state, node, doom);
                continue;
            }
            let caller = caller.as_mut().filter(|caller| caller.0 == of);
            let caller = caller.map(|(_, caller)| &mut **caller);
            let loss = node.departures.loss_in(&self.ranks);
            if loss.is_none() && caller.is_none() && task.is_callers() {
                self.waits.store(true, Ordering::Relaxed);
                // Its caller looks once more.
                if let Some(exchange) = exchange.as_ref().filter(|one| one.may_go_on()) {
                    exchange.end_wait();
                }
                *has_settled = true;
                return;
            }
            let progress = match loss {
                Some(failure) => Progress::Fails(CollectiveFailure::Lost(failure)),
                None => task.run(self, node, (mail, exchange.as_mut()), caller, wakers),
            };
            match progress {
                Progress::Ended => state.end_front(true),
                Progress::Fails(failure) => self.fail_front(state, node, Doom::new(failure, of)),
                Progress::Contradicts(Contradiction { number, from, theirs, mine }) => {
                    // A mistake that has failed a collective here must not hide later ones.
                    if state.ended(number).is_none_or(|(_, well)| well) {
                        let failure = self.mismatch(from, &theirs, &mine);
                        state.fail(number, Doom::new(failure, number));
                    }
                }
                Progress::Waits(for_rank) => {
                    self.waits.store(true, Ordering::Relaxed);
                    if !self.incoming.is_empty() {
                        continue;
                    }
                    let rank = for_rank.and_then(|rank| self.ranks.get(rank as usize).copied());
                    match node.departures.loss_of(rank, Needs::Messages).filter(|_| rank.is_some())
                    {
                        // Its last parcels and values may have come meanwhile.
                        Some(_) if !self.incoming.is_empty() || state.may_go_on() => {}
                        Some(failure) => {
                            let failure = CollectiveFailure::Lost(failure);
                            self.fail_front(state, node, Doom::new(failure, of));
                        }
                        None => {
                            if let Some(to) = for_rank {
                                self.notify(state, node, to);
                            }
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Fails the oldest collective, and tells the other ranks. A rank that was told itself tells
    /// them again, so that nobody sees this rank leave before it knows why.
    fn fail_front(&self, state: &mut TeamState, node: &Node, doom: Doom) {
        let Some(task) = state.tasks.front_mut() else { return };
        let (number, call) = (task.number, task.call);
        // Before the program goes on, and calls the next collective of coherence.
        if let (Some(OrderPart::JoinCoherence), Some(order)) =
            (doom.order_part(node, number + 1), &doom.order)
        {
            node.coherence.join_coherence(node, order.mistake.after, &order.mistake.text);
        }
        // Before the program knows, and tells others by messages of its own.
        self.tell_all(node, number, call, &doom);
        state.wakers.extend(task.fail((self, node, &mut state.mail), doom.failure));
        state.leave(number + 1);
        state.end_front(false);
    }

    /// Tells all other ranks why a collective has failed.
    fn tell_all(&self, node: &Node, number: u64, call: CollectiveCall, doom: &Doom) {
        for to in (0..).take(self.ranks.len()).filter(|to| *to != self.me) {
            self.send_failed(node, to, number, call, doom);
        }
    }

    /// Tells another rank why a collective has failed, unless every rank sees it by itself.
    fn send_failed(&self, node: &Node, to: Rank, number: u64, call: CollectiveCall, doom: &Doom) {
        let text = match &doom.failure {
            CollectiveFailure::Mistake(why) => why.clone(),
            CollectiveFailure::Lost(failure) if is_seen_by_all(failure) => return,
            CollectiveFailure::Lost(failure) => format!("on rank {}: {failure}", self.me),
        };
        let text = text.get(..text.floor_char_boundary(REASON_MAX)).unwrap_or_default();
        let since = RoundNumber::try_from(number.saturating_sub(doom.of)).unwrap_or(0);
        if let Some(order) = &doom.order {
            let head = self.head(ParcelPurpose::Disorder, number, since, order.call);
            return self.send(node, to, head, &order.mistake.encode(REASON_MAX));
        }
        let head = self.head(ParcelPurpose::Failed, number, since, call);
        self.send(node, to, head, text.as_bytes());
    }

    /// Takes a parcel in. It may come before this rank has called the collective, or after the
    /// collective has ended here.
    fn take(&self, state: &mut TeamState, node: &Node, parcel: Parcel) {
        let Parcel { from, head, body } = parcel;
        let Some(&from) = self.places.get(&from) else { return };
        let number = head.number;
        let first = state.tasks.front().map_or(state.next, |task| task.number);
        let is_refused = matches!(body, ParcelBody::Refused(_));
        let is_data = head.purpose == ParcelPurpose::Data && !is_refused;
        if !is_data && number > state.next.saturating_add(AHEAD_MAX) {
            return;
        }
        if head.purpose == ParcelPurpose::Data && state.mail.is_repeated(from, &head, body.len()) {
            // Its sender has withdrawn it too late, and has sent it again (COLL-1.5).
            return;
        }
        if let ParcelBody::Refused(len) = body {
            return self.refused(state, from, &head, len);
        }
        let bytes: &[u8] = match &body {
            ParcelBody::Bytes(bytes) => bytes,
            _ => &[],
        };
        match head.purpose {
            ParcelPurpose::Credit => {
                if let Some(bytes) = bytes.first_chunk() {
                    state.mail.granted(from, u64::from_le_bytes(*bytes));
                }
                return;
            }
            ParcelPurpose::Failed => {
                let why = String::from_utf8_lossy(bytes.get(..REASON_MAX).unwrap_or(bytes));
                let failure = CollectiveFailure::Mistake(why.into_owned());
                let of = number.saturating_sub(u64::from(head.round));
                return state.fail(number, Doom::new(failure, of));
            }
            ParcelPurpose::Disorder => {
                let Ok(mistake) = OrderMistake::read(bytes, REASON_MAX) else { return };
                let of = number.saturating_sub(u64::from(head.round));
                let mut doom = Doom::of_order(mistake, head.call, of);
                state.skip_disorders(node);
                // This rank has had its part already, and only shares in what fails by it later.
                if state.ended(of).is_some_and(|(_, well)| !well) {
                    doom.order = None;
                }
                return state.fail(number, doom);
            }
            ParcelPurpose::View => return state.shrinks.hear(self, from, number, bytes),
            ParcelPurpose::NotWhole => {
                if let Some(task) = state.task(number).filter(|task| task.call.root == from) {
                    task.note_not_whole();
                }
                return;
            }
            ParcelPurpose::Data | ParcelPurpose::Notice => {}
        }
        let after = match head.purpose {
            ParcelPurpose::Notice => bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)),
            _ => None,
        };
        let body = (head.purpose == ParcelPurpose::Data).then_some(body);
        let mine = match state.task(number) {
            Some(task) => Some(task.call),
            None => state.ended(number).filter(|(_, well)| *well).map(|(call, _)| call),
        };
        let mismatch = mine
            .filter(|mine| {
                mine.contradicts(&head.call) && node.departures.loss_in(&self.ranks).is_none()
            })
            .map(|mine| self.mismatch(from, &head.call, &mine));
        if let Some(body) = &body
            && !state.mail.arrived(from, body.len())
        {
            let why = format!("rank {from} sends more than this rank has granted: it is broken");
            let failure = CollectiveFailure::Mistake(why);
            state.fail_next(Doom::new(failure, number));
            return;
        }
        if let Some(failure) = mismatch {
            state.fail(number, Doom::new(failure, number));
        } else if after.is_some() && self.sends_by_plan(state, node, &head) {
            let head = self.head(ParcelPurpose::NotWhole, number, 0, head.call);
            self.send(node, from, head, &[]);
        }
        if number >= first {
            if self.id == WORLD && after.is_some() && number >= state.next {
                // A thread that waits in a collective of coherence looks at it.
                node.coherence.order.note_waiting_rank();
                state.has_settled = true;
            }
            state.mail.keep(from, &head, body, after);
        } else if let Some(body) = body {
            state.mail.has_read(from, body.len());
        }
    }

    /// Returns `true` if this rank is the root of a broadcast that another rank calls, and has not
    /// sent all values at once. The other rank may wait for them in vain (COLL-2.7).
    fn sends_by_plan(&self, state: &TeamState, node: &Node, theirs: &ParcelHead) -> bool {
        node.uses_multicast()
            && theirs.call.kind == CollectiveKind::Broadcast
            && theirs.call.root == self.me
            && !state.mail.has_sent_whole(theirs.number)
    }

    /// Fails the collective of a parcel that this node had no memory for (COLL-3.6).
    fn refused(&self, state: &mut TeamState, from: Rank, head: &ParcelHead, len: u64) {
        let why = format!(
            "rank {} has no memory for {len} bytes of rank {from}: free memory there, or cut the vectors into several",
            self.me
        );
        let failure = CollectiveFailure::Mistake(why);
        match head.purpose {
            ParcelPurpose::Data => {
                // The sender gets its credit back.
                state.mail.arrived(from, len);
                state.mail.has_read(from, len);
            }
            ParcelPurpose::Failed | ParcelPurpose::Disorder => {}
            ParcelPurpose::View => return state.shrinks.fail(failure),
            // These have no body, or one of 8 bytes that a later one replaces.
            ParcelPurpose::Notice | ParcelPurpose::Credit | ParcelPurpose::NotWhole => return,
        }
        state.fail(head.number, Doom::new(failure, head.number));
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
        self.send_part(node, to, head, PartBytes::Dense(body));
    }

    /// Sends a parcel with a part of a work buffer to a rank of the team. Returns the send, if it
    /// reads the part until it has ended.
    pub(super) fn send_part(
        &self,
        node: &Node,
        to: Rank,
        head: ParcelHead,
        body: PartBytes<'_>,
    ) -> Option<PartSend> {
        let body = match body {
            PartBytes::Long(part) => return self.send_long(node, to, head, part),
            PartBytes::Dense(bytes) => Ok(bytes),
            PartBytes::Copied(bytes) => Err(bytes),
        };
        let &rank = self.ranks.get(to as usize)?;
        let bytes: &[u8] = match &body {
            Ok(bytes) => bytes,
            Err(bytes) => bytes,
        };
        if bytes.len() > RECORD_BODY || !node.fast.send_parcel_fast(node, rank, &head, bytes) {
            let body = body.map_or_else(Body::Inline, Body::copy_of);
            node.tell(Request::Parcel { to: rank, head, body });
        }
        None
    }

    /// Sends one part to several ranks of the team, by multicast if they have a group. Returns the
    /// sends that read the part until they have ended.
    pub(super) fn send_whole(
        &self,
        node: &Node,
        to: &[Rank],
        head: ParcelHead,
        body: PartBytes<'_>,
    ) -> Vec<PartSend> {
        let bytes = match body {
            PartBytes::Long(part) => {
                let send = |to: &Rank| self.long_send(node, *to, head, part.clone());
                let (sends, submissions) = to.iter().filter_map(send).unzip();
                node.push_together(submissions);
                return sends;
            }
            PartBytes::Dense(bytes) => bytes.to_vec(),
            PartBytes::Copied(bytes) => bytes,
        };
        let body = Body::Inline(bytes).into_shared();
        let submission = |to: &Rank| {
            let to = *self.ranks.get(*to as usize)?;
            let request = Request::Parcel { to, head, body: body.clone() };
            Some(Submission { request, completion: None, keep: None })
        };
        node.push_together(to.iter().filter_map(submission).collect());
        Vec::new()
    }

    /// Sends a parcel from memory of a work buffer.
    pub(super) fn send_long(
        &self,
        node: &Node,
        to: Rank,
        head: ParcelHead,
        part: LongPart,
    ) -> Option<PartSend> {
        let (send, submission) = self.long_send(node, to, head, part)?;
        node.push(submission);
        Some(send)
    }

    /// Makes the submission of a parcel from memory of a work buffer.
    pub(super) fn long_send(
        &self,
        node: &Node,
        to: Rank,
        head: ParcelHead,
        part: LongPart,
    ) -> Option<(PartSend, Submission)> {
        let &rank = self.ranks.get(to as usize)?;
        let teams = Arc::downgrade(&node.collectives);
        let end = SendEnd { team: Weak::clone(&self.this), teams };
        let completion = Completion::telling(Box::new(end));
        let body = Body::Segment(part.memory.segment(Rights::READ));
        let request = Request::Parcel { to: rank, head, body };
        let submission = tracked_by(Arc::clone(&completion), request, Some(part.keep));
        Some((PartSend { to, head, completion }, submission))
    }

    /// Returns the memory of a caller that does not wait any more.
    pub(in crate::collective) fn return_memory(self: &Arc<Self>, node: &Node, number: u64) {
        {
            let state = &mut *lock(&self.state);
            if let Some(task) = task_of(&mut state.tasks, number) {
                task.return_memory(self, node, &mut state.mail);
            }
        }
        // A thread that found the state locked meanwhile has left its news to this one.
        node.collectives.ask(Arc::<Self>::clone(self));
        node.collectives.run(node);
    }

    /// Tells a rank how many bytes of its parcels were read.
    pub fn report_credit(&self, node: &Node, to: Rank, bytes: u64, call: CollectiveCall) {
        let head = self.head(ParcelPurpose::Credit, 0, 0, call);
        self.send(node, to, head, &bytes.to_le_bytes());
    }
}

impl RegisteredTeam for TeamCore {
    fn id(&self) -> u64 {
        self.id
    }

    fn advance(self: Arc<Self>, node: &Node) -> bool {
        self.run_all(node, None);
        self.is_over()
    }

    fn abandon(self: Arc<Self>, node: &Node, called: (u64, u64), why: &str) {
        self.abandon_calls(node, called, why);
    }

    fn deposit(&self, parcel: Parcel) {
        self.incoming.push(parcel);
        self.ask();
    }

    fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
    }

    fn tick(&self) -> bool {
        let matters = self.waits.load(Ordering::Relaxed);
        if matters {
            self.ticked.store(true, Ordering::SeqCst);
            self.ask();
        }
        matters
    }

    fn accuse_order(&self, node: &Node, what: &str) -> bool {
        let mut state = lock(&self.state);
        state.skip_disorders(node);
        let counts =
            CallCounts { data: state.next, coherence: node.coherence.order.coherence_calls() };
        let notice = {
            let mut notices = state.mail.notices_from(counts.data).peekable();
            if notices.peek().is_none() {
                return true;
            }
            notices
                .find(|(position, ..)| position.contradicts(counts))
                .map(|(position, from, call)| (position, from, *call))
        };
        // Once a rank is lost, ranks call different things (COLL-3.4).
        let is_lost = node.departures.loss_in(&self.ranks).is_some();
        let is_news = |number: u64| !is_lost && !state.disorders.contains_key(&number);
        if let Some((position, from, call)) = notice.filter(|notice| is_news(notice.0.number)) {
            let text = self.text_of_mismatch(from, &named(&call), &what);
            let mistake = OrderMistake { after: position.after, text };
            let doom = Doom::of_order(mistake, call, position.number);
            self.tell_all(node, position.number, call, &doom);
            state.disorders.insert(position.number, doom);
        }
        false
    }

    fn called(&self) -> (u64, u64) {
        (lock(&self.state).next, self.splits.load(Ordering::Relaxed))
    }
}

impl TeamState {
    /// Returns `true` if values have come for which a collective waits.
    fn may_go_on(&self) -> bool {
        self.exchange.as_ref().is_some_and(Exchange::may_go_on)
    }

    /// Leaves all collectives below this number in the memory of the machine.
    fn leave(&mut self, number: u64) {
        if let Some(exchange) = &mut self.exchange {
            exchange.leave(number);
        }
    }

    /// Returns `true` if no call, parcel or failure comes before the next call.
    pub fn is_quiet(&self) -> bool {
        self.tasks.is_empty()
            && self.late.is_none()
            && self.failed.is_empty()
            && self.disorders.is_empty()
            && self.mail.is_quiet()
            && !self.shrinks.are_called()
    }

    pub fn task(&mut self, number: u64) -> Option<&mut CollectiveRun> {
        task_of(&mut self.tasks, number)
    }

    fn ended(&self, number: u64) -> Option<(CollectiveCall, bool)> {
        let ended = self.history.iter().rev().find(|(ended, ..)| *ended == number);
        ended.map(|(_, call, well)| (*call, *well))
    }

    /// Fails this collective, whether it is under way, is not called yet, or has ended.
    fn fail(&mut self, number: u64, doom: Doom) {
        let is_news =
            [number, doom.of].iter().all(|of| self.ended(*of).is_some_and(|(_, well)| well));
        // A program gets one error for each mistake. Other ranks may tell of it later, by this
        // number or by an earlier one.
        let concerned = doom.of..=number;
        for (_, _, well) in self.history.iter_mut().filter(|one| concerned.contains(&one.0)) {
            *well = false;
        }
        if let Some(task) = self.task(number) {
            task.doomed.get_or_insert(doom);
        } else if number >= self.next {
            match doom.order {
                Some(_) => _ = self.disorders.entry(doom.of).or_insert(doom),
                None => _ = self.failed.insert(number, doom),
            }
        } else if is_news && doom.order.is_some() && self.tasks.is_empty() {
            self.disorders.entry(doom.of).or_insert(doom);
        } else if is_news {
            self.fail_next(doom);
        }
    }

    /// Leaves out the collectives of data that have no counterpart, because a collective of
    /// coherence of this rank has failed in their place.
    fn skip_disorders(&mut self, node: &Node) {
        while let Some(first) = self.disorders.first_entry()
            && first.get().order_part(node, self.next + 1) == Some(OrderPart::SkipData)
        {
            let (of, doom) = first.remove_entry();
            if let Some(order) = doom.order.filter(|_| of >= self.next) {
                self.next = of + 1;
                if self.tasks.is_empty() {
                    self.mail.forget(of);
                }
                self.failed = self.failed.split_off(&self.next);
                self.remember(of, order.call, false);
            }
        }
    }

    /// Returns the mistake in the order of calls by which this rank's next call is to fail.
    fn take_disorder(&mut self, node: &Node) -> Option<Doom> {
        self.skip_disorders(node);
        let (of, doom) = self.disorders.pop_first()?;
        self.next = self.next.max(of);
        Some(doom)
    }

    /// Fails the collective under way, or else the next one (COLL-3.5).
    fn fail_next(&mut self, doom: Doom) {
        match self.tasks.front_mut() {
            Some(task) => {
                task.doomed.get_or_insert(doom);
            }
            None => {
                self.late.get_or_insert(doom);
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
        self.remember(task.number, task.call, well);
        self.has_settled = true;
    }

    pub fn remember(&mut self, number: u64, call: CollectiveCall, well: bool) {
        self.history.push_back((number, call, well));
        if self.history.len() > HISTORY
            && let Some((oldest, ..)) = self.history.pop_front()
        {
            self.mail.forget_repeated(oldest + 1);
        }
    }
}

fn task_of(tasks: &mut VecDeque<CollectiveRun>, number: u64) -> Option<&mut CollectiveRun> {
    // Numbers may be left out (`skip_disorders`).
    let at = tasks.binary_search_by_key(&number, |task| task.number).ok()?;
    tasks.get_mut(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collectives;
    use crate::collective::Team;
    use crate::collective::operator::Sum;
    use crate::collective::run::long::{LONG_MIN, RegionPool};
    use crate::collective::run::stage::StageShape;
    use crate::tests::node::{node_and_local_peer, put_leaving, take_parcels};
    use oikaze_protocol::collective::{
        CollectiveAlgorithm, ElementCode, Lengths, Operator, PlanRequest, WHOLE, plan,
    };
    use oikaze_protocol::limits::GROUP_BODY_MIN;

    /// COLL-1.5: a parcel that comes again, because its sender has withdrawn it too late, takes no
    /// credit.
    #[test]
    fn parcel_that_comes_again_is_not_counted() {
        let (node, _local_peer) = node_and_local_peer();
        let team = Team::world(&node, 0, vec![0, 1], None);
        let mine = [1_u64; LONG_MIN / 4];
        let first = team.start().all_reduce(&mine, Sum);
        let call = lock(&team.core.state).task(0).unwrap().call;
        let came = |number, round, body| {
            let head = team.core.head(ParcelPurpose::Data, number, round, call);
            team.core.deposit(Parcel { from: 1, head, body });
            team.core.run_all(&node, None);
            lock(&team.core.state).mail.unreported(1)
        };
        let bytes = |len: usize| ParcelBody::Bytes(vec![0; len].into());
        let unreported = |number, round| came(number, round, bytes(LONG_MIN));
        let cost = LONG_MIN as u64 + 1024;
        assert_eq!(unreported(0, 1), cost);
        assert_eq!(unreported(0, 1), cost, "its step was taken");
        assert!(!first.is_done());
        assert_eq!(unreported(0, 2), 2 * cost);
        assert!(first.is_done());
        assert_eq!(unreported(0, 2), 2 * cost, "its collective has ended");
        assert_eq!([unreported(1, 1), unreported(1, 1)], [2 * cost; 2], "it waits for its step");
        let second = team.start().all_reduce(&mine, Sum);
        assert_eq!(unreported(1, 2), 4 * cost);
        assert!(second.is_done());
        let third = team.start().all_reduce(&mine, Sum);
        assert_eq!(unreported(2, 1), 5 * cost);
        lock(&team.core.state).fail(2, Doom::new(CollectiveFailure::Mistake(String::new()), 2));
        assert_eq!(unreported(2, 1), 5 * cost, "its step was taken before the failure");
        assert!(third.wait().is_err());
        assert_eq!([unreported(2, 2), unreported(2, 2)], [6 * cost; 2], "it came after the end");
        let fourth = team.start().all_reduce(&mine, Sum);
        assert_eq!(unreported(3, 1), 7 * cost);
        assert_eq!(came(3, 1, ParcelBody::Refused(LONG_MIN as u64)), 7 * cost);
        assert!(unreported(3, 2) == 0 && fourth.wait().is_ok(), "the refused one was not needed");
    }

    const ROOT: Rank = 1;

    /// Deposits a parcel of the root, and runs what it lets go on.
    fn deposit(team: &Team, node: &Node, of: (u64, RoundNumber, CollectiveCall), bytes: Vec<u8>) {
        let (number, round, call) = of;
        let head = team.core.head(ParcelPurpose::Data, number, round, call);
        team.core.deposit(Parcel { from: ROOT, head, body: ParcelBody::Bytes(bytes.into()) });
        team.core.run_all(node, None);
    }

    /// COLL-2.7: a rank takes all values from the root at once, before its call or after it.
    #[test]
    fn values_that_the_root_sends_at_once_end_a_broadcast() {
        let (node, _local_peer) = node_and_local_peer();
        let team = Team::world(&node, 0, vec![0, 1, 2, 3], None);
        let begin = || team.start().broadcast::<u64>(ROOT, &[]);
        let call_of = |number| lock(&team.core.state).task(number).unwrap().call;
        for (number, len) in [(0, 512), (2, LONG_MIN), (4, 4 * LONG_MIN)] {
            let values: Vec<u64> = (0..len as u64).collect();
            let bytes = bytemuck::cast_slice(&values).to_vec();
            let late = begin();
            let call = CollectiveCall { count: Some(len as u64), ..call_of(number) };
            assert!(!late.is_done());
            deposit(&team, &node, (number, WHOLE, call), bytes.clone());
            assert!(late.is_done(), "{len} elements");
            assert!(late.wait().unwrap() == values);
            deposit(&team, &node, (number + 1, WHOLE, call), bytes);
            assert!(begin().wait().unwrap() == values, "it came before the call");
        }
    }

    /// COLL-2.7: the root is wrong to send all values after a part of them, or too few.
    #[test]
    fn values_after_a_part_of_them_fail_the_broadcast() {
        let (node, _local_peer) = node_and_local_peer();
        let team = Team::world(&node, 0, vec![0, 1, 2], None);
        let begin = || team.start().broadcast::<u64>(ROOT, &[]);
        let call_of = |number| lock(&team.core.state).task(number).unwrap().call;
        let len = 8 * LONG_MIN;
        let with_count = |call| CollectiveCall { count: Some(len as u64), ..call };
        let broadcast = begin();
        let call = with_count(call_of(0));
        // This rank has no elements in the first piece of the scatter.
        deposit(&team, &node, (0, 0, call), Vec::new());
        assert!(!broadcast.is_done());
        deposit(&team, &node, (0, WHOLE, call), vec![0; 8 * len]);
        let said = broadcast.wait().unwrap_err().to_string();
        assert!(said.contains("rank 1 sent all values after a part of them"), "{said}");
        let broadcast = begin();
        deposit(&team, &node, (1, WHOLE, with_count(call_of(1))), vec![0; 8 * len - 8]);
        let said = broadcast.wait().unwrap_err().to_string();
        assert!(said.contains("elements of 8 bytes belong"), "{said}");
    }

    /// COLL-2.7, COLL-1.5: the memory of the caller takes all values as they come.
    #[test]
    fn values_that_come_at_once_are_placed_as_they_come() {
        let (node, _local_peer) = node_and_local_peer();
        let team = Team::world(&node, 0, vec![0, 1, 2], None);
        let broadcast = team.start().broadcast::<u64>(ROOT, &[]);
        let call = lock(&team.core.state).task(0).unwrap().call;
        let call = CollectiveCall { count: Some(LONG_MIN as u64), ..call };
        // A notice tells the number of elements.
        let notice = team.core.head(ParcelPurpose::Notice, 0, 0, call);
        let body = ParcelBody::Bytes(vec![0; 8].into());
        team.core.deposit(Parcel { from: ROOT, head: notice, body });
        team.core.run_all(&node, None);
        let head = team.core.head(ParcelPurpose::Data, 0, WHOLE, call);
        let len = 8 * LONG_MIN as u64;
        let mut placement = node.mail.parcels.begin(ROOT, &head, len).expect("it is awaited");
        placement.write(0, &vec![7; len as usize]);
        assert!(placement.finish());
        team.core.deposit(Parcel { from: ROOT, head, body: ParcelBody::Placed(len) });
        team.core.run_all(&node, None);
        assert_eq!(broadcast.wait().unwrap(), vec![0x0707_0707_0707_0707; LONG_MIN]);
    }

    fn parcel(team: &Team, node: &Node, of: (Rank, ParcelPurpose, CollectiveCall), body: Vec<u8>) {
        let (from, purpose, call) = of;
        let round = if purpose == ParcelPurpose::Data { WHOLE } else { 0 };
        let head = team.core.head(purpose, 0, round, call);
        team.core.deposit(Parcel { from, head, body: ParcelBody::Bytes(body.into()) });
        team.core.run_all(node, None);
    }

    /// COLL-2.7: the sender of the plan may have got all values at once, and have left. A rank then
    /// waits for the root, until the root says that it has not sent them.
    #[test]
    fn rank_whose_sender_has_left_waits_for_the_root_until_it_says_no() {
        let values: Vec<u64> = (0..512).collect();
        let bytes = || bytemuck::cast_slice(&values).to_vec();
        for (knows_count, is_sent) in [(false, true), (true, true), (false, false), (true, false)] {
            let (node, mut local_peer) = node_and_local_peer();
            node.with_engine(|engine| engine.use_multicast(GROUP_BODY_MIN));
            // Rank 1 is the parent of this rank in the tree of root 4.
            let team = Team::world(&node, 2, vec![0, 1, 2, 3, 4], None);
            let broadcast = team.start().broadcast::<u64>(4, &[]);
            let call = lock(&team.core.state).task(0).unwrap().call;
            let call = CollectiveCall { count: Some(512), ..call };
            if knows_count {
                parcel(&team, &node, (4, ParcelPurpose::Notice, call), vec![0; 8]);
            }
            put_leaving(&mut local_peer);
            node.try_turn(node.now()).unwrap();
            team.core.run_all(&node, None);
            assert!(!broadcast.is_done(), "the root may have sent all values");
            parcel(&team, &node, (3, ParcelPurpose::NotWhole, call), Vec::new());
            assert!(!broadcast.is_done(), "another rank does not know what the root has sent");
            if is_sent {
                parcel(&team, &node, (4, ParcelPurpose::Data, call), bytes());
                assert_eq!(broadcast.wait().unwrap(), values);
            } else {
                parcel(&team, &node, (4, ParcelPurpose::NotWhole, call), Vec::new());
                assert!(broadcast.is_done(), "rank 1 sends nothing any more");
                let said = broadcast.wait().unwrap_err().to_string();
                assert!(said.contains("node 1"), "{said}");
            }
        }
    }

    /// COLL-2.7: a rank may ask before the root has called the broadcast, and after that.
    #[test]
    fn root_says_whether_it_has_sent_all_values_at_once() {
        let (node, mut local_peer) = node_and_local_peer();
        let team = Team::world(&node, 0, vec![0, 1, 2], None);
        let call = CollectiveCall {
            kind: CollectiveKind::Broadcast,
            uneven: false,
            element: ElementCode::new("u64", 8),
            operator: Operator::None,
            root: 0,
            count: None,
        };
        let mut answers = |number, call| {
            let head = team.core.head(ParcelPurpose::Notice, number, 0, call);
            let body = ParcelBody::Bytes(vec![0; 8].into());
            take_parcels(&mut local_peer);
            team.core.deposit(Parcel { from: 1, head, body });
            team.core.run_all(&node, None);
            let answers = take_parcels(&mut local_peer).into_iter();
            answers.filter(|head| head.purpose == ParcelPurpose::NotWhole).count()
        };
        assert_eq!(answers(0, call), 0, "the node uses no multicast");
        node.with_engine(|engine| engine.use_multicast(GROUP_BODY_MIN));
        assert_eq!(answers(0, call), 1, "it has not called the broadcast");
        let broadcast = team.start().broadcast(0, &[1_u64]);
        assert!(broadcast.is_done(), "it went by the tree");
        assert_eq!(answers(0, call), 1);
        assert_eq!(answers(11, CollectiveCall { root: 2, ..call }), 0, "another rank is the root");
        let kind = CollectiveKind::Scatter;
        assert_eq!(answers(12, CollectiveCall { kind, ..call }), 0);
        let number = lock(&team.core.state).next;
        begin_whole(&team, &node, call);
        assert_eq!((answers(number, call), answers(number + 1, call)), (0, 1));
    }

    /// Begins a broadcast that sends all values at once, as if a group were open.
    fn begin_whole(team: &Team, node: &Node, call: CollectiveCall) {
        let machines = [0, 1, 2];
        let plan = plan(&PlanRequest {
            kind: CollectiveKind::Broadcast,
            algorithm: CollectiveAlgorithm::Multicast,
            rank: 0,
            ranks: 3,
            root: 0,
            lengths: Lengths::Even(512),
            element: 8,
            commutes: true,
            machines: &machines,
        });
        let shape = StageShape {
            kind: CollectiveKind::Broadcast,
            rank: 0,
            root: 0,
            machines: Arc::from(machines),
            nodes: Arc::clone(team.core.ranks()),
            several_machines: false,
            pool: RegionPool::new(&team.node),
            uneven: None,
            has_memory: false,
        };
        let mut stage = Stage::new(shape, 8, None);
        stage.take_plan(plan.unwrap(), &[7; 4096]).unwrap();
        let slot = Arc::new(Slot::default());
        let call = CollectiveCall { count: Some(512), ..call };
        team.core.begin(node, call, (stage, Arc::clone(&slot)), Ok(()));
        assert!(matches!(slot.take(), Some(Ok(_))));
    }
}
