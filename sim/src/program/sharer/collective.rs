//! Ends of phases. The node's threads wait for each other, and the last thread to arrive enters the
//! collective for all of them.

use super::Sharer;
use crate::program::interface::Context;
use crate::program::plan_shared::Ending;
use oikaze_engine::{Completion, Failure, Request, Value};
use oikaze_protocol::coherence::{CoherenceError, ReduceOp, Reduction, Values};
use oikaze_protocol::time::Time;
use std::sync::Arc;

/// Common work of the sharing threads of one node. The last thread to arrive enters the collective
/// for all.
#[derive(Debug, Default)]
pub struct Together {
    /// Number of threads that have arrived at the end of the phase.
    arrived: usize,
    /// Number of collectives that are over at this node: declarations, phases, leaving.
    over: usize,
    under_way: Option<(u64, Arc<Completion>)>,
    since: Time,
    /// Set if a node was lost, so that the program ends here.
    pub(super) broken: bool,
}

impl Together {
    /// Returns the time since which the collective in flight waits.
    #[must_use]
    pub fn waits_since(&self) -> Option<Time> {
        self.under_way.as_ref().map(|_| self.since)
    }
}

impl Sharer {
    /// Ends a phase: waits for the node's other threads, the last of which enters the collective.
    pub(super) fn collective(&mut self, context: &mut Context<'_>) -> Result<bool, String> {
        if context.together.over > self.passed {
            return Ok(self.pass());
        }
        if !self.arrived {
            self.arrived = true;
            context.together.arrived += 1;
            if context.together.arrived == self.threads {
                context.together.arrived = 0;
                let request = self.request(context)?;
                let number = context.oracle.shared.enters(context.me);
                context.event(format_args!("enters collective {number}"));
                context.together.since = context.now;
                context.together.under_way = Some((number, context.submit(request, None)));
            }
        }
        let Some((number, completion)) = &context.together.under_way else { return Ok(false) };
        let Some(outcome) = completion.outcome() else { return Ok(false) };
        let number = *number;
        context.together.under_way = None;
        match outcome {
            Err(Failure::Coherence(CoherenceError::Mismatch(said))) if self.disagree() => {
                context.event(format_args!("collective {number}: {said}"));
                context.oracle.shared.is_over(number)?;
                context.oracle.shared.disagreed(number, &said)?;
            }
            Err(failure) => {
                context.oracle.excuse(
                    &format!("collective {number}"),
                    (context.me, context.life),
                    &failure,
                )?;
                self.give_up(context, false);
                return Ok(false);
            }
            Ok(value) => {
                context.event(format_args!("collective {number} is over"));
                if !context.oracle.is_disturbed() {
                    context.oracle.shared.is_over(number)?;
                }
                self.check(context, &value)?;
                if let Value::Array(array) = value {
                    context.engine.coherence().set_moving_homes(array, true);
                    if self.plan.guarded.get(array as usize).copied().unwrap_or(false) {
                        context.engine.coherence().track_by_guards(array);
                    }
                }
            }
        }
        context.together.over += 1;
        Ok(self.pass())
    }

    /// Goes on to the next phase.
    fn pass(&mut self) -> bool {
        self.passed += 1;
        self.arrived = false;
        self.finished = self.passed == self.plan.arrays.len() + self.plan.phases.len() + 1;
        true
    }

    /// Returns the request for the node's collective.
    fn request(&self, context: &mut Context<'_>) -> Result<Request, String> {
        let (arrays, phases) = (self.plan.arrays.len(), self.plan.phases.len());
        if let Some(declaration) = self.plan.arrays.get(self.passed) {
            let array = context.engine.coherence().next_array();
            let alias = context
                .engine
                .pages()
                .add(array, declaration.bytes)
                .map_err(|error| error.to_string())?;
            let slot =
                context.engine.memory().insert_local(alias).map_err(|error| error.to_string())?;
            context.engine.coherence().set_alias_region(array, slot);
            return Ok(Request::Declare(declaration.clone()));
        }
        if self.passed == arrays + phases {
            return Ok(Request::Leave);
        }
        Ok(match &self.plan.phases[self.passed - arrays].ending {
            Ending::Barrier => Request::Barrier,
            Ending::Disagreement(odd) if *odd == context.me => Request::Barrier,
            Ending::Disagreement(_) => {
                Request::Reduce(Reduction { op: ReduceOp::Max, values: Values::U64(vec![1]) })
            }
            Ending::Reduce(contributions, _) => {
                Request::Reduce(contributions[context.me as usize].clone())
            }
        })
    }

    fn check(&self, context: &Context<'_>, value: &Value) -> Result<(), String> {
        let arrays = self.plan.arrays.len();
        let ending = self
            .passed
            .checked_sub(arrays)
            .and_then(|phase| self.plan.phases.get(phase))
            .map(|phase| &phase.ending);
        let right = match (value, ending) {
            (Value::Array(array), _) => self.passed < arrays && *array as usize == self.passed,
            (Value::Reduced(found), Some(Ending::Reduce(_, wanted))) => bits(found) == bits(wanted),
            (Value::Done, Some(Ending::Barrier)) => true,
            (Value::Done, None) => self.passed >= arrays,
            _ => false,
        };
        if right {
            Ok(())
        } else {
            Err(format!("collective {} of node {} gave {value:?}", self.passed, context.me))
        }
    }

    /// Returns `true` if the nodes call different collectives.
    fn disagree(&self) -> bool {
        let phase = self
            .passed
            .checked_sub(self.plan.arrays.len())
            .and_then(|phase| self.plan.phases.get(phase));
        phase.is_some_and(|phase| matches!(phase.ending, Ending::Disagreement(_)))
    }
}

fn bits(values: &Values) -> Vec<u64> {
    match values {
        Values::F64(values) => values.iter().map(|value| value.to_bits()).collect(),
        Values::I64(values) => values.iter().map(|value| value.cast_unsigned()).collect(),
        Values::U64(values) => values.clone(),
    }
}
