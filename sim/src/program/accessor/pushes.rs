//! Pushes into the FIFOs of all nodes.

use super::Accessor;
use crate::oracle::{FifosOracle, Push};
use crate::program::Context;
use crate::program::doing::Doing;
use oikaze_engine::Request;
use oikaze_protocol::Rank;
use oikaze_protocol::wind::Body;

impl Accessor {
    /// Pushes an element of random length, and tells the oracle of it beforehand.
    pub(super) fn push(&mut self, context: &mut Context<'_>, target: Rank) -> (Doing, Request) {
        let push = Push { thread: self.work.layout.thread, serial: self.begun };
        let len = self.random.spread(16, FifosOracle::shape().map_or(16, |shape| shape.element()))
            as usize;
        context.oracle.fifos.asked(target, push);
        let body = Body::copy_of(&FifosOracle::element(push, len));
        let request = Request::Push {
            to: target,
            key: self.key(target, "fifo"),
            body,
            urgent: self.random.chance(0.5),
        };
        (Doing::Push(push), request)
    }
}
