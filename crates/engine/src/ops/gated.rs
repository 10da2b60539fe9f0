//! Operations that begin when others have ended, such as the last put of a list, which tells the
//! target that all of the list is there (MEM-27.3).

use crate::client::completion::{Completion, Value};
use crate::client::submission::Request;
use crate::failure::Failure;
use oikaze_protocol::wind::Token;
use std::sync::Arc;

/// Admitted operations that wait for their gates.
#[derive(Default)]
pub(crate) struct GatedQueue(Vec<GatedOperation>);

/// Operation that begins when `gate` is settled.
pub(crate) struct GatedOperation {
    pub gate: Arc<Completion>,
    pub request: Request,
    pub token: Token,
}

impl GatedQueue {
    pub fn add(&mut self, operation: GatedOperation) {
        self.0.push(operation);
    }

    /// Takes an operation whose gate is settled, with the gate's outcome.
    #[inline]
    pub fn take_due(&mut self) -> Option<(GatedOperation, Result<Value, Failure>)> {
        let at = self.0.iter().position(|operation| operation.gate.is_done())?;
        let operation = self.0.swap_remove(at);
        let outcome = operation.gate.outcome()?;
        Some((operation, outcome))
    }

    /// Forgets operations that were cancelled (MEM-27.4).
    pub fn cancel(&mut self, cancelled: &impl Fn(Token) -> bool) {
        self.0.retain(|operation| !cancelled(operation.token));
    }

    /// Forgets all operations, at the end of a job.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}
