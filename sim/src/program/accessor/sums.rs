//! Accumulates into arrays that all nodes add to.

use super::Accessor;
use crate::oracle::Addends;
use crate::program::Context;
use crate::program::doing::Doing;
use oikaze_engine::Request;
use oikaze_protocol::Rank;
use oikaze_protocol::rma::{Accumulation, Combine};
use oikaze_protocol::wind::Body;

impl Accessor {
    /// Adds to some elements of a node's arrays, from this node's memory or from the message's own
    /// bytes.
    pub(super) fn accumulate(
        &mut self,
        context: &mut Context<'_>,
        target: Rank,
        slot: usize,
    ) -> (Doing, Request) {
        let (arrays, elements) = Addends::CHOICE;
        let array = self.random.index(arrays);
        let count = self.random.spread(0, (self.work.longest / 8).min(elements) as u64) as usize;
        let start = self.random.index(elements - count + 1);
        let each = (0..count).map(|_| self.random.between(1, 3) as u8).collect();
        let addends = Addends { array, range: start..start + count, each };
        context.oracle.sums.asked(target, &addends);
        let bytes = addends.bytes();
        let body = if !bytes.is_empty() && self.random.chance(0.6) {
            let segment = self.segment(slot, bytes.len());
            if let Some(own) = &self.own {
                let _ = own.memory.write(segment.offset, &bytes);
            }
            Body::Segment(segment)
        } else {
            Body::copy_of(&bytes)
        };
        let how = Accumulation { element: addends.element(), combine: Combine::Sum };
        let request = Request::Accumulate {
            to: target,
            key: self.key(target, "sums"),
            offset: addends.offset(),
            how,
            body,
        };
        (Doing::Accumulate(addends), request)
    }
}
