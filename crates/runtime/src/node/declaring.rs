//! Waits of threads for their turn to declare an array.

use super::coherence::NotYet;
use super::{Node, WaitSubject};
use crate::error::{Error, Result};
use std::time::{Duration, Instant};

/// Turn of the calling thread, which ends with this value.
#[must_use]
pub struct DeclarationTurn<'n> {
    node: &'n Node,
}

impl Node {
    /// Waits until no other thread of this node declares an array, and begins the turn of the
    /// calling thread. If the wait ends without that, this node has called nothing.
    #[track_caller]
    pub fn begin_declaration(
        &self,
        what: &str,
        limit: Option<Duration>,
    ) -> Result<DeclarationTurn<'_>> {
        let turns = &self.coherence.declaring;
        let subject = || WaitSubject::Operation {
            what: format!("{what}, after {}", turns.text()),
            peer: Some(self.rank()),
        };
        let begun = Instant::now();
        let deadline = limit.and_then(|limit| begun.checked_add(limit));
        let turn = self.wait_on(&subject, deadline, || match turns.try_begin(what) {
            Ok(()) => Some(Ok(())),
            Err(NotYet::Same(holder)) => Some(Err(holder)),
            Err(NotYet::Other) => None,
        });
        match turn {
            Some(Ok(())) => Ok(DeclarationTurn { node: self }),
            Some(Err(holder)) => {
                let why = format!(
                    "a handler of a signal has interrupted this thread in its own call, {holder}: \
                     declare the array after that call"
                );
                Err(Error::invalid(what, why))
            }
            None => {
                let late = || format!("{what}, after {}", turns.text());
                let late = self.awaited(late, begun, None);
                late.map_err(|error| self.waits.explain_timeout(error, &subject()))
            }
        }
    }
}

impl Drop for DeclarationTurn<'_> {
    fn drop(&mut self) {
        self.node.coherence.declaring.end();
        self.node.tell_waiters();
    }
}
