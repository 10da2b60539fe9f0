//! Operations on many ranges in one call, which end as one.

use super::RemoteRegion;
use crate::completion::operation::{Begun, Operation};
use crate::memory::region::RegionSlice;
use oikaze_engine::OperationKind;
use oikaze_engine::{Completion, Compound, Failure, Request};
use oikaze_protocol::limits::LIST_MAX;
use oikaze_protocol::rma::{Rights, RmaError};
use oikaze_protocol::wind::Body;

impl RemoteRegion {
    /// Writes each of at most [`LIST_MAX`](crate::limits::LIST_MAX) slices (16,384) to its offset.
    /// The operation is done when all slices are in the peer's memory and visible. It fails, after
    /// all have ended, if one of them has failed. The slices leave together
    /// ([`crate::Job::batch`]), in no order among them.
    pub fn put_list(&self, list: &[(u64, RegionSlice)]) -> Operation<()> {
        let (to, key) = (self.peer.rank, self.published.key);
        self.list(OperationKind::PutList, list, |offset, from| Request::Put {
            to,
            key,
            offset,
            body: Body::Segment(from.segment(Rights::READ)),
            signal: None,
        })
    }

    /// Reads each slice from its offset. It is the counterpart of [`RemoteRegion::put_list`].
    pub fn get_list(&self, list: &[(u64, RegionSlice)]) -> Operation<()> {
        let (from, key) = (self.peer.rank, self.published.key);
        self.list(OperationKind::GetList, list, |offset, into| Request::Get {
            from,
            key,
            offset,
            into: into.segment(Rights::WRITE),
        })
    }

    fn list(
        &self,
        verb: OperationKind,
        list: &[(u64, RegionSlice)],
        request: impl Fn(u64, &RegionSlice) -> Request,
    ) -> Operation<()> {
        let node = &self.peer.node;
        let first = list.first().map_or(0, |(offset, _)| *offset);
        let len = list.iter().map(|(_, slice)| slice.len() as u64).sum();
        let whole = Completion::begun(self.what(verb, first, len), &node.untaken);
        if list.len() > LIST_MAX {
            // Refused as a whole, because otherwise the entries beyond the limit would fail after
            // the others.
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
