//! Collectives whose caller waits, and takes their steps with its own values and result.

use super::caller::CallerRun;
use super::core::TeamCore;
use super::memory::{MemoryEnd, MemoryRun};
use super::slot::Slot;
use super::task::CollectiveRun;
use oikaze_os::signals::locked;
use oikaze_protocol::collective::CollectiveCall;
use oikaze_runtime::node::{Node, WORLD, lock};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, TryLockError};

std::thread_local! {
    /// Set while this thread waits for a collective whose steps it takes.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` if this thread waits for a collective whose steps it takes: a handler of a signal
/// has interrupted it. A collective that the handler calls would wait for that one.
pub(in crate::collective) fn waits_as_caller() -> bool {
    WAITS.get()
}

/// A caller that waits. When it waits no more, other threads run what is left, also after a panic.
pub(in crate::collective) struct WaitingCaller<'w, 'c> {
    core: &'w Arc<TeamCore>,
    node: &'w Node,
    number: u64,
    slot: Arc<Slot>,
    pub caller: &'w mut CallerRun<'c>,
}

impl<'w, 'c> WaitingCaller<'w, 'c> {
    /// Begins the wait for collective `number`, whose outcome comes to `slot`.
    pub fn new(
        (core, node): (&'w Arc<TeamCore>, &'w Node),
        (number, slot): (u64, Arc<Slot>),
        caller: &'w mut CallerRun<'c>,
    ) -> WaitingCaller<'w, 'c> {
        WAITS.set(true);
        WaitingCaller { core, node, number, slot, caller }
    }

    /// Takes steps of the collective.
    pub fn step(&mut self) {
        if self.core.may_step() {
            self.core.run_all(self.node, Some((self.number, self.caller)));
        }
    }
}

impl Drop for WaitingCaller<'_, '_> {
    fn drop(&mut self) {
        WAITS.set(false);
        if !self.slot.is_done() {
            self.core.leave_to_others(self.node, self.number, self.caller);
        }
    }
}

/// Beginning of a collective by its caller.
pub(in crate::collective) enum CallerBegin {
    /// It has ended well.
    Ended,
    /// It is under way.
    Waits {
        /// Number of the collective in the team, from 0.
        number: u64,
        /// Place of the outcome.
        slot: Arc<Slot>,
    },
}

impl TeamCore {
    /// Calls a collective through memory, and takes its steps as long as no rank is late. Returns
    /// `None` if nothing was called, because other calls or failures come first.
    pub(in crate::collective) fn begin_as_caller(
        self: &Arc<Self>,
        node: &Node,
        mut call: CollectiveCall,
        mut memory: MemoryRun,
        caller: &mut CallerRun<'_>,
    ) -> Option<CallerBegin> {
        // A handler that interrupts this thread must not wait for the lock.
        let _masked = locked(|| ());
        let mut guard = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let state = &mut *guard;
        let is_quiet = self.incoming.is_empty() && state.is_quiet();
        if !is_quiet || node.departures.loss_in(&self.ranks).is_some() {
            return None;
        }
        let exchange = state.exchange.as_mut()?;
        if self.id == WORLD {
            node.coherence.order.note_data_call();
        }
        let number = state.next;
        state.next += 1;
        let polls = node.word_polls();
        let run = || caller.run(&mut memory, exchange, (number, &mut call), polls);
        let ended = catch_unwind(AssertUnwindSafe(run));
        let begun = if let Ok(Ok(MemoryEnd::Done)) = ended {
            state.remember(number, call, true);
            CallerBegin::Ended
        } else {
            let slot = Arc::<Slot>::default();
            let after = node.coherence.order.coherence_calls();
            let memory = Some(memory);
            let mut run = CollectiveRun::of_caller(number, call, memory, Arc::clone(&slot), after);
            run.note_begin(self.me(), ended, caller);
            state.tasks.push_back(run);
            CallerBegin::Waits { number, slot }
        };
        drop(guard);
        if matches!(begun, CallerBegin::Waits { .. }) || self.is_asked() {
            node.collectives.ask(Arc::<Self>::clone(self));
            node.collectives.run(node);
        }
        Some(begun)
    }

    /// Lets other threads run a collective whose caller waits no more (COLL-7.8).
    fn leave_to_others(self: &Arc<Self>, node: &Node, number: u64, caller: &mut CallerRun<'_>) {
        if let Some(task) = lock(&self.state).task(number) {
            task.take_over(caller);
        }
        node.collectives.ask(Arc::<Self>::clone(self));
        node.collectives.run(node);
    }
}
