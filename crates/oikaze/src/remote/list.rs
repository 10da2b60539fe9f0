//! Many ranges in one call, which end as one.

use super::RemoteRegion;
use crate::engine::{Completion, Compound, Failure, Request};
use crate::operation::{Begun, Operation, Verb};
use crate::region::RegionSlice;
use oikaze_protocol::limits::LIST_MAX;
use oikaze_protocol::rma::{Rights, RmaError};
use oikaze_protocol::wind::Body;

impl RemoteRegion {
    /// Write each of at most [`LIST_MAX`](crate::limits::LIST_MAX) slices (16,384) to its offset:
    /// done when all are in the peer's memory and visible, failed (when all have ended) if one has.
    /// They leave together ([`crate::Job::batch`]), and nothing orders one against another.
    pub fn put_list(&self, list: &[(u64, RegionSlice)]) -> Operation<()> {
        let (to, key) = (self.peer.rank, self.published.key);
        self.list(Verb::PutList, list, |offset, from| Request::Put {
            to,
            key,
            offset,
            body: Body::Segment(from.segment(Rights::READ)),
            signal: None,
        })
    }

    /// Read each slice from its offset; as [`RemoteRegion::put_list`], the other way.
    pub fn get_list(&self, list: &[(u64, RegionSlice)]) -> Operation<()> {
        let (from, key) = (self.peer.rank, self.published.key);
        self.list(Verb::GetList, list, |offset, into| Request::Get {
            from,
            key,
            offset,
            into: into.segment(Rights::WRITE),
        })
    }

    fn list(
        &self,
        verb: Verb,
        list: &[(u64, RegionSlice)],
        request: impl Fn(u64, &RegionSlice) -> Request,
    ) -> Operation<()> {
        let node = &self.peer.node;
        let first = list.first().map_or(0, |(offset, _)| *offset);
        let len = list.iter().map(|(_, slice)| slice.len() as u64).sum();
        let whole = Completion::begun(self.what(verb, first, len), &node.untaken);
        if list.len() > LIST_MAX {
            // All or nothing: else the entries beyond it would fail after the others.
            let why = RmaError::ListTooLong { count: list.len(), max: LIST_MAX };
            whole.settle(Err(Failure::Remote(why)));
            return Operation::begun(Begun::new(node, whole, self.peer.limit));
        }
        let joined = Compound::new(list.len(), &whole);
        node.batch(|| {
            for (offset, slice) in list {
                node.push(joined.part(request(*offset, slice), Some(slice.clone().keep())));
            }
        });
        Operation::begun(Begun::new(node, whole, self.peer.limit))
    }
}
